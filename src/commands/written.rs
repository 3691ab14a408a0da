//! The table as text: the syntax of commands, the forms of replies, and the examples, which a test sends to real
//! servers.

use super::grammar::{Arg, Form, Kind, ReplyForm, Row, Times};
use super::table::ROWS;
use dsync_engine::Family;

impl Row {
    /// The arguments as a manual writes them.
    pub(super) fn syntax(&self) -> String {
        let args: Vec<_> = self.args.iter().map(Arg::syntax).collect();
        args.join(" ")
    }

    /// The lines that are sent for a reply, the request itself last. A line of the second connection begins with
    /// `B> `, the others with `> `.
    pub(super) fn lines(&self, reply: &ReplyForm) -> Vec<String> {
        let (hold, request) = self.family().map_or(("", ""), ways_in);
        let whole = |line: &str| line.replace("{hold}", hold).replace("{request}", request);
        let before = reply.before.iter().map(|line| {
            let line = whole(line);
            if line.starts_with("B> ") {
                line
            } else {
                format!("> {line}")
            }
        });
        let request = format!("> {} {}", self.name.as_str(), reply.example);
        before.chain([request]).collect()
    }
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
# Every form of reply in the table of commands (src/commands), with requests that get it on an empty server. A unit
# test writes this file, and the server tests send what it says. `B> ` is sent by a second connection, which then
# waits; the reply is that of the last line.
";

/// The examples of all commands.
pub(super) fn examples() -> String {
    let mut text = HEADER.to_owned();
    for row in &ROWS {
        for reply in row.replies {
            let lines = row.lines(reply).join("\n");
            let (two, three) = (reply.form.text(Resp::Two), reply.form.text(Resp::Three));
            let (name, when) = (row.name.as_str(), reply.when);
            text += &format!("\n# {name}: {when}\n{lines}\nRESP2 {two}\nRESP3 {three}\n");
        }
    }
    text
}
