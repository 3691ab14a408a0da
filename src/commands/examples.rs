//! The table as text, for tests: the syntax of the commands, the forms of the replies, and example requests.
//!
//! A unit test writes all of it into `tests/server/commands/examples.txt`, and the server tests send the requests of
//! that file to real servers. So every form of reply in the table is one that a server has given.

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

    /// One example for each form of reply and for each error that has a request.
    pub(super) fn examples(&self) -> Vec<Example> {
        let of_replies = self.replies.iter().map(|reply| Example {
            shows: reply.when.to_owned(),
            lines: self.lines(reply.before, reply.example),
            forms: [Resp::Two, Resp::Three].map(|resp| reply.form.text(resp)),
        });
        let of_errors = self.errors.iter().filter_map(|error| {
            let lines = match (error.code, error.example) {
                // Every command with a key replies this if the key is a string.
                ("WRONGTYPE", _) => {
                    let request = self.replies.first()?.example.replace("{fence}", "1");
                    self.lines(&["SET jobs:1 text"], &request)
                }
                (_, "") => return None,
                (_, example) => self.lines(error.before, example),
            };
            let form = format!("-{}", error.code);
            Some(Example {
                shows: error.when.to_owned(),
                lines,
                forms: [form.clone(), form],
            })
        });
        of_replies.chain(of_errors).collect()
    }

    /// The lines to send, with `{hold}`, `{request}` and `{family}` replaced.
    fn lines(&self, before: &[&str], example: &str) -> Vec<String> {
        let (hold, request) = self.family().map_or(("", ""), hold_and_request);
        let whole = |line: &&str| {
            let line = line.replace("{hold}", hold).replace("{request}", request);
            let line = line.replace("{family}", self.family().map_or("", prefix));
            if line.starts_with("B> ") {
                line
            } else {
                format!("> {line}")
            }
        };
        let last = format!("> {} {example}", self.name.as_str());
        before.iter().map(whole).chain([last]).collect()
    }
}

/// Requests, and the form of the last one's reply.
pub(super) struct Example {
    /// When the reply comes, in words.
    shows: String,
    /// Each begins with `> `, or with `B> ` if a second connection sends it.
    pub(super) lines: Vec<String>,
    /// The form of the reply in RESP2 and in RESP3.
    forms: [String; 2],
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
    fn syntax(&self) -> String {
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
    /// The form as the file of examples writes it: `null`, `integer`, `bulk`, `7`, `"text"`, `+OK`, `[bulk, integer]`,
    /// `[integer ...]`, `{"name": bulk}`, `bulk|null`. In RESP2 a map is a flat array.
    pub(super) fn text(&self, resp: Resp) -> String {
        let texts = |forms: &[Form], between: &str| {
            let texts: Vec<_> = forms.iter().map(|form| form.text(resp)).collect();
            texts.join(between)
        };
        match self {
            Form::Null => "null".to_owned(),
            Form::Integer => "integer".to_owned(),
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
        }
    }
}

const HEADER: &str = "\
# Every form of reply and the errors in the table of commands (src/commands), with requests that get them on an empty
# server. A unit test writes this file, and the server tests send its requests. A second connection sends the lines with
# `B> `, and then waits. The reply is that of the last line.
";

/// The text of the file: the examples of all commands.
pub(super) fn examples() -> String {
    let mut text = HEADER.to_owned();
    for row in &ROWS {
        for Example {
            shows,
            lines,
            forms: [two, three],
        } in row.examples()
        {
            let (name, lines) = (row.name.as_str(), lines.join("\n"));
            text += &format!("\n# {name}: {shows}\n{lines}\nRESP2 {two}\nRESP3 {three}\n");
        }
    }
    text
}
