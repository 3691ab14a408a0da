//! The table of commands (`src/commands`) documents every type of reply and every error. `examples.txt` has requests
//! for each of them; these tests send the requests and compare the replies with the documented types, in RESP2 and
//! RESP3.
//!
//! A unit test of `src/commands` writes the file.

use crate::commands::designed_commands::INTERNAL;
use crate::support::steps::*;
use crate::support::*;

const FILE: &str = include_str!("examples.txt");

/// Requests, and the documented type of the last one's reply.
#[derive(Default)]
struct ReplyExample {
    title: &'static str,
    lines: Vec<&'static str>,
    /// In RESP2 and in RESP3, as the file writes them.
    forms: [&'static str; 2],
}

fn examples() -> Vec<ReplyExample> {
    let read = |block: &'static str| {
        let mut example = ReplyExample::default();
        for line in block.lines() {
            if let Some(title) = line.strip_prefix("# ") {
                example.title = title;
            } else if let Some(form) = line.strip_prefix("RESP2 ") {
                example.forms[0] = form;
            } else if let Some(form) = line.strip_prefix("RESP3 ") {
                example.forms[1] = form;
            } else {
                example.lines.push(line);
            }
        }
        example
    };
    // The first block is the file's header.
    FILE.split("\n\n").skip(1).map(read).collect()
}

/// A type of reply, as the file writes it: `[bulk, integer]`, `null|[integer ...]`, `-WRONGTYPE`.
#[derive(Debug)]
enum ReplyForm {
    Null,
    Integer,
    Is(i64),
    Bulk,
    Word(String),
    Status(String),
    Array(Vec<ReplyForm>),
    List(Box<ReplyForm>),
    Map(Vec<(String, ReplyForm)>),
    Either(Vec<ReplyForm>),
    /// An error with this code.
    Error(&'static str),
}

impl ReplyForm {
    fn fits(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (ReplyForm::Null, Reply::Nil)
            | (ReplyForm::Integer, Reply::Int(_))
            | (ReplyForm::Bulk, Reply::Bulk(_)) => true,
            (ReplyForm::Is(number), Reply::Int(found)) => number == found,
            (ReplyForm::Word(word), Reply::Bulk(found)) => word.as_bytes() == found,
            (ReplyForm::Status(line), Reply::Simple(found)) => line == found,
            (ReplyForm::Array(forms), Reply::Array(found)) => {
                forms.len() == found.len()
                    && forms.iter().zip(found).all(|(form, item)| form.fits(item))
            }
            // An empty list would say nothing about the type of its items.
            (ReplyForm::List(form), Reply::Array(found)) => {
                !found.is_empty() && found.iter().all(|item| form.fits(item))
            }
            (ReplyForm::Map(fields), Reply::Map(found)) => {
                let fits = |((name, form), (found_name, found)): (
                    &(String, ReplyForm),
                    &(Reply, Reply),
                )| { *found_name == **name && form.fits(found) };
                fields.len() == found.len() && fields.iter().zip(found).all(fits)
            }
            (ReplyForm::Error(code), Reply::Error(text)) => text.split(' ').next() == Some(code),
            (ReplyForm::Either(forms), reply) => forms.iter().any(|form| form.fits(reply)),
            _ => false,
        }
    }
}

/// Parses a type of reply; holds the text that is still to be read.
struct Reader(&'static str);

impl Reader {
    fn form(text: &'static str) -> ReplyForm {
        if let Some(code) = text.strip_prefix('-') {
            return ReplyForm::Error(code);
        }
        let mut reader = Reader(text);
        let form = reader.either();
        assert_eq!(reader.0, "", "left over of {text:?}");
        form
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn either(&mut self) -> ReplyForm {
        let mut forms = vec![self.one()];
        while self.take("|") {
            forms.push(self.one());
        }
        if forms.len() == 1 {
            forms.swap_remove(0)
        } else {
            ReplyForm::Either(forms)
        }
    }

    fn one(&mut self) -> ReplyForm {
        for (word, form) in [
            ("null", ReplyForm::Null),
            ("integer", ReplyForm::Integer),
            ("bulk", ReplyForm::Bulk),
        ] {
            if self.take(word) {
                return form;
            }
        }
        if self.take("[") {
            let mut forms = vec![self.either()];
            while self.take(", ") {
                forms.push(self.either());
            }
            if self.take(" ...]") {
                return ReplyForm::List(Box::new(forms.swap_remove(0)));
            }
            assert!(self.take("]"), "no end of an array at {:?}", self.0);
            return ReplyForm::Array(forms);
        }
        if self.take("{") {
            let mut fields = Vec::new();
            loop {
                let name = self.word();
                assert!(self.take(": "), "no value at {:?}", self.0);
                fields.push((name, self.either()));
                if !self.take(", ") {
                    break;
                }
            }
            assert!(self.take("}"), "no end of a map at {:?}", self.0);
            return ReplyForm::Map(fields);
        }
        if self.take("+") {
            // Only a whole reply is a status line.
            return ReplyForm::Status(std::mem::take(&mut self.0).to_owned());
        }
        if self.0.starts_with('"') {
            return ReplyForm::Word(self.word());
        }
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = self.0.split_at(digits);
        self.0 = rest;
        ReplyForm::Is(number.parse().expect("a number"))
    }

    fn word(&mut self) -> String {
        assert!(self.take("\""), "no word at {:?}", self.0);
        let (word, rest) = self.0.split_once('"').expect("the end of a word");
        self.0 = rest;
        word.to_owned()
    }
}

#[test]
fn every_example_gets_the_documented_type_of_reply() {
    let server = Server::start();
    // Without this a waiter of one example would keep a vacant place in the next.
    let kept = ask(&mut server.connect(), "CONFIG SET dsync.rejoin-ms 0");
    assert_eq!(kept, "OK");
    for (protocol, connect) in [Server::connect, Server::connect_resp3]
        .into_iter()
        .enumerate()
    {
        let mut client = connect(&server);
        for example in examples() {
            let mut waiters = Vec::new();
            let mut last = Reply::Nil;
            for line in &example.lines {
                if let Some(line) = line.strip_prefix("B> ") {
                    let mut waiter = connect(&server);
                    queue(&server, &mut waiter, line);
                    waiters.push(waiter);
                    continue;
                }
                let line = line.strip_prefix("> ").expect("a request");
                let line = if line.contains("{fence}") {
                    line.replace("{fence}", &fence_in(&last).expect("a grant").to_string())
                } else {
                    line.to_owned()
                };
                last = ask(&mut client, line);
            }
            let form = Reader::form(example.forms[protocol]);
            let title = example.title;
            assert!(form.fits(&last), "{title}: {last:?} is not {form:?}");
            drop(waiters);
            wait_for_blocked(&server, 0);
            assert_eq!(ask(&mut client, "FLUSHALL"), "OK");
        }
    }
}

#[test]
fn every_command_has_an_example() {
    let server = Server::start();
    let mut client = server.connect();
    let listed = ask(&mut client, "COMMAND LIST FILTERBY MODULE dsync");
    let names = listed
        .as_array()
        .iter()
        .map(|name| name.as_str().to_uppercase());
    let examples = examples();
    let mut without: Vec<_> = names
        .filter(|name| {
            let title = format!("{name}: ");
            !examples
                .iter()
                .any(|example| example.title.starts_with(&title))
        })
        .collect();
    without.retain(|name| !INTERNAL.contains(&name.as_str()));
    assert!(without.is_empty(), "no example of {without:?}");
}
