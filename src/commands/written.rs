//! The table as text: the syntax of commands, the forms of replies, and the examples, which a test sends to real
//! servers.

use super::grammar::{Arg, Kind, Times};
use super::replies::Form;
use super::row::Row;
use super::table::ROWS;
use dsync_engine::Family;

impl Row {
    /// The arguments as a manual writes them.
    pub(super) fn syntax(&self) -> String {
        let args: Vec<_> = self.args.iter().map(Arg::syntax).collect();
        args.join(" ")
    }

    /// The requests of the row: what they show, the lines to send, the form of the reply in RESP2 and RESP3. A line of
    /// the second connection begins with `B> `, the others with `> `; the last one gets the reply.
    pub(super) fn examples(&self) -> Vec<Example> {
        let of_replies = self.replies.iter().map(|reply| Example {
            shows: reply.when.to_owned(),
            lines: self.lines(reply.before, reply.example),
            forms: [Resp::Two, Resp::Three].map(|resp| reply.form.text(resp)),
        });
        let of_errors = self.errors.iter().filter_map(|error| {
            let lines = match (error.code, error.example) {
                // Whatever the command, on a string.
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

    fn lines(&self, before: &[&str], example: &str) -> Vec<String> {
        let (hold, request) = self.family().map_or(("", ""), ways_in);
        let whole = |line: &&str| {
            let line = line.replace("{hold}", hold).replace("{request}", request);
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

pub(super) struct Example {
    shows: String,
    pub(super) lines: Vec<String>,
    forms: [String; 2],
}

/// Requests of a family: one that makes `a-41` hold `jobs:1`, and one of `b-72` that then has to wait.
fn ways_in(family: Family) -> (&'static str, &'static str) {
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
            Kind::OneOf(ways) => {
                let ways: Vec<_> = ways.iter().map(Arg::syntax).collect();
                ways.join(" | ")
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
    /// `null`, `integer`, `bulk`, `7`, `"text"`, `[bulk, integer]`, `[integer ...]`, `{"name": bulk}`,
    /// `bulk|null`. A map of RESP3 is a flat array in RESP2.
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
# server. A unit test writes this file, and the server tests send what it says. `B> ` is sent by a second connection,
# which then waits; the reply is that of the last line.
";

/// The examples of all commands.
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
