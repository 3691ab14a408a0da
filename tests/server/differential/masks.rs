//! What two servers may answer differently, made equal: tokens and fences that they made get a name by the order in
//! which they first appear, times are rounded to what the run can tell apart, ids of clients become connections.

use std::collections::HashMap;

use crate::lifecycle::payload;
use crate::support::steps::unix_ms;
use crate::support::*;

/// Times are rounded up to a multiple of this. A run asks for multiples of it, and is shorter.
pub const ROUNDED_TO: i64 = 100_000;
/// How far a time may be off because of a slow machine.
const SLACK: i64 = 2_000;
/// Numbers below are counts, unless their field says that they are milliseconds.
const COUNTS_BELOW: i64 = 30_000;

/// The names of one server's tokens and fences, and its connections.
#[derive(Clone, Default)]
pub struct Masks {
    names: HashMap<String, usize>,
    pub clients: HashMap<i64, usize>,
    /// Leases lapse, so fences are made in any order: they all get the same name.
    pub any_order: bool,
    pub now_ms: i64,
}

impl Masks {
    /// Forgets the names, and takes the time.
    pub fn begin(&mut self) {
        self.names.clear();
        self.set_clock();
    }

    pub fn set_clock(&mut self) {
        self.now_ms = unix_ms() as i64;
    }

    fn name(&mut self, kind: &str, value: &str) -> String {
        if self.any_order {
            return format!("<{kind}>");
        }
        let next = self.names.len();
        let number = *self.names.entry(value.to_owned()).or_insert(next);
        format!("<{kind} {number}>")
    }

    /// A reply as one line.
    pub fn reply(&mut self, reply: &Reply) -> String {
        match reply {
            Reply::Nil => "nil".to_owned(),
            Reply::Int(number) => self.number(*number),
            Reply::Double(number) => format!("{number:?}"),
            Reply::Bool(truth) => truth.to_string(),
            Reply::Simple(text) => format!("+{}", self.text(text)),
            Reply::Error(text) => format!("-{}", self.text(text)),
            Reply::Bulk(bytes) => format!("\"{}\"", self.bytes(bytes)),
            Reply::Array(items) => format!("[{}]", self.items(items)),
            Reply::Set(items) => format!("~[{}]", self.items(items)),
            Reply::Push(items) => format!(">[{}]", self.items(items)),
            Reply::Map(pairs) => {
                let pairs = pairs.iter().map(|(name, value)| {
                    format!("{}: {}", self.reply(name), self.field(name, value))
                });
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The items of an array: a row of DSYNC.CONTENDED, DSYNC.HOLDS or DSYNC.LOG, fields and values, or neither.
    fn items(&mut self, items: &[Reply]) -> String {
        let is_family = |at: usize| {
            items
                .get(at)
                .is_some_and(|item| Family::ALL.iter().any(|family| *item == family.word()))
        };
        let ms: &[usize] = match items.len() {
            5 if is_family(2) => &[4],
            8.. if is_family(2) => &[6, 7],
            9.. if is_family(5) => &[8, 9, 10],
            _ => &[],
        };
        let client = (items.len() >= 8 && is_family(2)).then_some(5);
        let mut shown = Vec::new();
        for (at, item) in items.iter().enumerate() {
            shown.push(if ms.contains(&at) {
                self.ms(item)
            } else if client == Some(at) {
                self.client(item)
            } else {
                match at.checked_sub(1).map(|before| &items[before]) {
                    Some(name) => self.field(name, item),
                    None => self.reply(item),
                }
            });
        }
        shown.join(", ")
    }

    fn field(&mut self, name: &Reply, value: &Reply) -> String {
        let name = match name {
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Simple(text) => text.clone(),
            _ => String::new(),
        };
        match name.as_str() {
            "client" | "id" => self.client(value),
            // HELLO names the modules.
            "path" | "ver" => format!("<{name}>"),
            name if name.ends_with("-ms") => self.ms(value),
            _ => self.reply(value),
        }
    }

    fn client(&mut self, value: &Reply) -> String {
        match value {
            Reply::Int(id) => match self.clients.get(id) {
                Some(on) => format!("<c{on}>"),
                None => "<client>".to_owned(),
            },
            other => self.reply(other),
        }
    }

    fn ms(&mut self, value: &Reply) -> String {
        match value {
            Reply::Int(ms) if (0..COUNTS_BELOW).contains(ms) => "<ms>".to_owned(),
            other => self.reply(other),
        }
    }

    /// A number: a fence, a moment, a duration or a count, told apart by their size.
    fn number(&mut self, number: i64) -> String {
        let up = |ms: i64| (ms - SLACK + ROUNDED_TO - 1).div_euclid(ROUNDED_TO) * ROUNDED_TO;
        let day = 86_400_000;
        match number {
            _ if (number / 1_000 - self.now_ms).abs() < day => {
                self.name("fence", &number.to_string())
            }
            _ if (number - self.now_ms).abs() < 30 * day => {
                if self.any_order {
                    "<time>".to_owned()
                } else {
                    format!("<now{:+}>", up(number - self.now_ms))
                }
            }
            COUNTS_BELOW..1_000_000_000 => format!("<{}>", up(number)),
            _ => number.to_string(),
        }
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> String {
        self.text(&bytes.escape_ascii().to_string())
    }

    /// Masks the numbers and tokens in a text.
    pub fn text(&mut self, text: &str) -> String {
        let mut shown = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(token) = rest.get(..36).filter(|text| is_made_token(text)) {
                shown += &self.name("token", token);
                rest = &rest[36..];
                continue;
            }
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let length = if digits > 0 {
                digits
            } else {
                rest.chars().next().map_or(1, char::len_utf8)
            };
            let (first, after) = rest.split_at(length);
            shown += &match first.parse() {
                Ok(number) => self.number(number),
                Err(_) => first.to_owned(),
            };
            rest = after;
        }
        shown
    }

    /// The payload of DUMP: every packed string spelled, every other byte as it is, without the check at its end.
    pub fn dump(&mut self, payload: &[u8]) -> String {
        if payload.first() != Some(&7) || payload.len() < 2 * payload::FOOTER {
            return self.bytes(payload);
        }
        let (body, version) = payload::opened(payload);
        let strings = payload::strings(&body);
        let spelled = strings.into_iter().map(|(_, packed)| {
            let text = words(&[STREAM.into(), Vec::new(), packed]).join("; ");
            self.text(&text)
        });
        let spelled: Vec<String> = spelled.collect();
        let head = body[..10].escape_ascii();
        format!("{head} {} {version:?}", spelled.join(" | "))
    }

    /// A command of the replication stream or of an AOF.
    pub fn command(&mut self, command: &[Vec<u8>]) -> String {
        let name = command.first().map(|name| name.to_ascii_uppercase());
        if let ([restore, key, ttl, payload, options @ ..], Some(b"RESTORE")) =
            (command, name.as_deref())
        {
            let options: Vec<String> = options.iter().map(|word| self.bytes(word)).collect();
            let (restore, key, ttl) = (self.bytes(restore), self.bytes(key), self.bytes(ttl));
            let payload = self.dump(payload);
            return format!("{restore} {key} {ttl} {payload} {}", options.join(" "));
        }
        let words: Vec<String> = words(command).iter().map(|word| self.text(word)).collect();
        words.join(" ")
    }

    /// The lines of INFO dsync. What a clock or the build decides is masked; the name stays.
    pub fn info(&mut self, info: &str) -> Vec<String> {
        let lines = info.lines().map(|line| {
            let name = line.split(':').next().unwrap_or_default();
            let by_clock = ["_ms", "timer_ticks", "_version", "_commit"];
            if by_clock.iter().any(|end| name.ends_with(end)) {
                format!("{name}:<masked>")
            } else {
                self.text(line)
            }
        });
        lines.collect()
    }
}

/// Returns whether the text is a token as servers make them: a random UUID of version 4.
fn is_made_token(text: &str) -> bool {
    let is_dash = |at: usize| [8, 13, 18, 23].contains(&at);
    let fits = |(at, byte): (usize, u8)| {
        if is_dash(at) {
            byte == b'-'
        } else {
            byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
        }
    };
    // The only token of this form that requests bring along.
    text != "8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59" && text.bytes().enumerate().all(fits)
}

/// The first line that differs, with both sides.
pub fn difference(old: &[String], new: &[String]) -> Option<String> {
    let missing = "(nothing)".to_owned();
    let at = (0..old.len().max(new.len())).find(|at| old.get(*at) != new.get(*at))?;
    let (old, new) = (
        old.get(at).unwrap_or(&missing),
        new.get(at).unwrap_or(&missing),
    );
    Some(format!("old: {old}\nnew: {new}"))
}
