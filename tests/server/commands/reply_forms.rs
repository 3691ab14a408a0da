//! The forms of replies that the table of commands documents, as `examples.txt` writes them, and whether a reply of a
//! server has one.

use crate::support::*;

/// A type of reply, as the file writes it: `[bulk, integer]`, `null|[integer ...]`, `-WRONGTYPE`.
#[derive(Debug)]
pub enum ReplyForm {
    Null,
    Integer,
    /// An integer that depends on the moment.
    Ms,
    /// An integer that the server chooses.
    Id,
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
    /// Reads a form as the file of examples writes it.
    #[track_caller]
    pub fn read(text: &'static str) -> ReplyForm {
        if let Some(code) = text.strip_prefix('-') {
            return ReplyForm::Error(code);
        }
        let mut reader = Reader(text);
        let form = reader.either();
        assert_eq!(reader.0, "", "left over of {text:?}");
        form
    }

    pub fn fits(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (ReplyForm::Null, Reply::Nil)
            | (ReplyForm::Integer | ReplyForm::Ms | ReplyForm::Id, Reply::Int(_))
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
            ("ms", ReplyForm::Ms),
            ("id", ReplyForm::Id),
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
