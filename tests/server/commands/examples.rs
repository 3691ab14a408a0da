//! Every form of reply in the table of commands is what servers send, and so are its errors: the file of examples has
//! requests for each, and the form of the reply in RESP2 and in RESP3.

use crate::commands::command_docs::INTERNAL;
use crate::support::steps::*;
use crate::support::*;

const FILE: &str = include_str!("examples.txt");

/// Requests, and the form of the last one's reply in both protocols.
#[derive(Default)]
struct Example {
    title: &'static str,
    lines: Vec<&'static str>,
    forms: [&'static str; 2],
}

fn examples() -> Vec<Example> {
    let read = |block: &'static str| {
        let mut example = Example::default();
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

/// A form of reply, as the file writes it.
#[derive(Debug)]
enum Form {
    Null,
    Integer,
    Is(i64),
    Bulk,
    Word(String),
    Array(Vec<Form>),
    List(Box<Form>),
    Map(Vec<(String, Form)>),
    Either(Vec<Form>),
    /// With this code.
    Error(&'static str),
}

impl Form {
    fn fits(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (Form::Null, Reply::Nil)
            | (Form::Integer, Reply::Int(_))
            | (Form::Bulk, Reply::Bulk(_)) => true,
            (Form::Is(number), Reply::Int(found)) => number == found,
            (Form::Word(word), Reply::Bulk(found)) => word.as_bytes() == found,
            (Form::Array(forms), Reply::Array(found)) => {
                forms.len() == found.len()
                    && forms.iter().zip(found).all(|(form, item)| form.fits(item))
            }
            // An empty list would show nothing.
            (Form::List(form), Reply::Array(found)) => {
                !found.is_empty() && found.iter().all(|item| form.fits(item))
            }
            (Form::Map(fields), Reply::Map(found)) => {
                let fits =
                    |((name, form), (found_name, found)): (&(String, Form), &(Reply, Reply))| {
                        *found_name == **name && form.fits(found)
                    };
                fields.len() == found.len() && fields.iter().zip(found).all(fits)
            }
            (Form::Error(code), Reply::Error(text)) => text.split(' ').next() == Some(code),
            (Form::Either(forms), reply) => forms.iter().any(|form| form.fits(reply)),
            _ => false,
        }
    }
}

/// Reads a form from the left.
struct Reader(&'static str);

impl Reader {
    fn form(text: &'static str) -> Form {
        if let Some(code) = text.strip_prefix('-') {
            return Form::Error(code);
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

    fn either(&mut self) -> Form {
        let mut forms = vec![self.one()];
        while self.take("|") {
            forms.push(self.one());
        }
        if forms.len() == 1 {
            forms.swap_remove(0)
        } else {
            Form::Either(forms)
        }
    }

    fn one(&mut self) -> Form {
        for (word, form) in [
            ("null", Form::Null),
            ("integer", Form::Integer),
            ("bulk", Form::Bulk),
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
                return Form::List(Box::new(forms.swap_remove(0)));
            }
            assert!(self.take("]"), "no end of an array at {:?}", self.0);
            return Form::Array(forms);
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
            return Form::Map(fields);
        }
        if self.0.starts_with('"') {
            return Form::Word(self.word());
        }
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = self.0.split_at(digits);
        self.0 = rest;
        Form::Is(number.parse().expect("a number"))
    }

    fn word(&mut self) -> String {
        assert!(self.take("\""), "no word at {:?}", self.0);
        let (word, rest) = self.0.split_once('"').expect("the end of a word");
        self.0 = rest;
        word.to_owned()
    }
}

#[test]
fn every_example_gets_a_reply_of_its_form_in_resp2_and_in_resp3() {
    let server = Server::start();
    // A waiter of one example keeps no place for the next.
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
                    line.replace("{fence}", &fence_of(&last).to_string())
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

/// The fence in a grant or in a RUN.
fn fence_of(reply: &Reply) -> i64 {
    let is_fence = |item: &&Reply| matches!(item, Reply::Int(_));
    let fence = reply.as_array().iter().find(is_fence);
    fence.expect("a fence").as_int()
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
