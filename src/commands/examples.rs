//! The table as text, for tests: the syntax of the commands, the forms of the replies, and example requests.
//!
//! A unit test writes all of it into `tests/server/commands/examples.txt`, and the server tests send the requests of
//! that file to real servers. So every form of reply in the table is one that a server has given. The replies of the
//! servers are in `tests/server/commands/replies.txt`, from where `pages` takes them.

use super::grammar::{Arg, Kind, Times};
use super::replies::Form;
use super::row::{Row, prefix};
use super::table::ROWS;
use dsync_engine::Family;

impl Row {
    /// The arguments as a manual writes them: `key token [EX seconds | PX milliseconds]`.
    pub(super) fn syntax(&self) -> String {
        let args: Vec<_> = self.args.iter().map(Arg::syntax).collect();
        args.join(" ")
    }

    /// One example for each form of reply, the sessions of the manual, and one for each error that has a request.
    pub(super) fn examples(&self) -> Vec<Example> {
        let of_replies = self.replies.iter().map(|reply| Example {
            shows: reply.when,
            lines: self.lines(reply.before, Some(reply.example)),
            forms: Some([Resp::Two, Resp::Three].map(|resp| reply.form.text(resp))),
        });
        let of_errors = self.errors.iter().filter_map(|error| {
            let lines = match (error.code, error.example) {
                // Every command with a key replies this if the key is a string.
                ("WRONGTYPE", _) => {
                    let request = self.replies.first()?.example.replace("{fence}", "1");
                    self.lines(&["SET jobs:1 text"], Some(&request))
                }
                (_, "") => return None,
                (_, example) => self.lines(error.before, Some(example)),
            };
            let form = format!("-{}", error.code);
            Some(Example {
                shows: error.when,
                lines,
                forms: Some([form.clone(), form]),
            })
        });
        let sessions = self.manual.sessions.iter().map(|session| Example {
            shows: session.shows,
            lines: self.lines(session.lines, None),
            forms: None,
        });
        of_replies.chain(sessions).chain(of_errors).collect()
    }

    /// The title of an example in the files of examples and replies.
    pub(super) fn title(&self, example: &Example) -> String {
        format!("{}: {}", self.name.as_str(), example.shows)
    }

    /// The lines to send, with `{hold}`, `{request}` and `{family}` replaced; the last one is a request of this command
    /// with the arguments of `example`, if there is one.
    fn lines(&self, before: &[&str], example: Option<&str>) -> Vec<String> {
        let (hold, request) = self.family().map_or(("", ""), hold_and_request);
        let whole = |line: &&str| {
            let line = line.replace("{hold}", hold).replace("{request}", request);
            let line = line.replace("{family}", self.family().map_or("", prefix));
            if line == "B" || line.starts_with("B> ") {
                line
            } else {
                format!("> {line}")
            }
        };
        let last = example.map(|example| format!("> {} {example}", self.name.as_str()));
        before.iter().map(whole).chain(last).collect()
    }
}

/// Requests, and the form of the last one's reply.
pub(super) struct Example {
    /// When the reply comes, in words.
    pub(super) shows: &'static str,
    /// Each begins with `> `, or with `B> ` if a second connection sends it and then waits. `B` is the reply to that one.
    pub(super) lines: Vec<String>,
    /// The form of the last reply in RESP2 and in RESP3. None for a session, in which every reply has one of the forms
    /// of its command.
    forms: Option<[String; 2]>,
}

/// Two requests of a family: the first lets `a-41` hold `jobs:1`, the second, of `b-72`, then has to wait.
fn hold_and_request(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::Lock => (
            "DLOCK.ACQUIRE jobs:1 TOKEN a-41",
            "DLOCK.ACQUIRE jobs:1 TOKEN b-72",
        ),
        Family::Semaphore => (
            "DSEM.ACQUIRE jobs:1 LIMIT 2 TOKEN a-41",
            "DSEM.ACQUIRE jobs:1 PERMITS 2 TOKEN b-72",
        ),
        Family::Group => (
            "DWG.ADD jobs:1 TOKEN a-41",
            "DWG.ADD jobs:1 LIMIT 1 TOKEN b-72",
        ),
        Family::Once => (
            "DONCE.BEGIN jobs:1 TOKEN a-41",
            "DONCE.BEGIN jobs:1 TOKEN b-72",
        ),
    }
}

impl Arg {
    pub(super) fn syntax(&self) -> String {
        let words = self.word.iter().copied();
        let mut text = match self.kind {
            Kind::OneOf(alternatives) => {
                let alternatives: Vec<_> = alternatives.iter().map(Arg::syntax).collect();
                alternatives.join(" | ")
            }
            Kind::Flag(_) => words.collect(),
            _ => words.chain([self.name]).collect::<Vec<_>>().join(" "),
        };
        if self.times == Times::OnceOrMore {
            text = format!("{text} [{text} ...]");
        }
        if self.is_optional() {
            format!("[{text}]")
        } else {
            text
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Resp {
    Two,
    Three,
}

impl Form {
    /// The form as the file of examples writes it: `null`, `integer`, `ms`, `id`, `bulk`, `7`, `"text"`, `+OK`,
    /// `[bulk, integer]`, `[integer ...]`, `{"name": bulk}`, `bulk|null`. In RESP2 a map is a flat array.
    pub(super) fn text(&self, resp: Resp) -> String {
        let texts = |forms: &[Form], between: &str| {
            let texts: Vec<_> = forms.iter().map(|form| form.text(resp)).collect();
            texts.join(between)
        };
        match self {
            Form::Null => "null".to_owned(),
            Form::Integer => "integer".to_owned(),
            Form::Ms => "ms".to_owned(),
            Form::Id => "id".to_owned(),
            Form::Is(number) => number.to_string(),
            Form::Bulk => "bulk".to_owned(),
            Form::Word(word) => format!("\"{word}\""),
            Form::Status(line) => format!("+{line}"),
            Form::Array(elements) => {
                let forms: Vec<_> = elements.iter().map(|(_, form)| *form).collect();
                format!("[{}]", texts(&forms, ", "))
            }
            Form::List(element) => format!("[{} ...]", element.text(resp)),
            Form::Map(fields) => {
                let (open, colon, close) = match resp {
                    Resp::Two => ("[", ",", "]"),
                    Resp::Three => ("{", ":", "}"),
                };
                let field =
                    |(name, form): &(&str, Form)| format!("\"{name}\"{colon} {}", form.text(resp));
                let fields: Vec<_> = fields.iter().map(field).collect();
                format!("{open}{}{close}", fields.join(", "))
            }
            Form::Either(forms) => texts(forms, "|"),
            Form::Info(_) => self.whole().text(resp),
        }
    }
}

const HEADER: &str = "\
# Every form of reply and the errors in the table of commands (src/commands), with requests that get them on an empty
# server, and sessions. A unit test writes this file, and the server tests send its requests. A second connection sends
# the lines with `B> `, and then waits until a line `B`, which is its reply. The form is that of the last reply. In it `ms`
# and `id` are integers that differ from run to run.
";

/// The text of the file: the examples of all commands.
pub(super) fn examples() -> String {
    let mut text = HEADER.to_owned();
    for row in &ROWS {
        for example in row.examples() {
            let (title, lines) = (row.title(&example), example.lines.join("\n"));
            text += &format!("\n# {title}\n{lines}\n");
            if let Some([two, three]) = example.forms {
                text += &format!("RESP2 {two}\nRESP3 {three}\n");
            }
        }
    }
    text
}
