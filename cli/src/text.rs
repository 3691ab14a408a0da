//! Text for terminals: what other people wrote made harmless, and tables.
//!
//! Everything that is printed as text goes through [`name`], [`printable`] or [`lines`]: keys, owners, and what a server
//! says. JSON does not: it is for programs, which need the exact text, and JSON escapes the control characters by itself.

use std::io::{self, IsTerminal, Write};

use redis::RedisError;
use serde_json::Value as Json;

use crate::paint::{Paint, Tone};

/// Returns bytes as one line of text that shows what is there: control characters must not move the cursor or colour
/// the screen, and characters without a width or that turn the direction must not make one name look like another. They
/// are escaped (`\u{1b}`, `\u{202e}`), and so are bytes that are no text (`\xff`). Escaping twice changes nothing.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_deceptive(c) {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        text.push_str(&escaped(chunk.invalid()));
    }
    text
}

/// Returns a key as it can be given back. One that [`printable`] would escape is written as bash, zsh and ksh read it:
/// `$'a\xff'`. No two keys have the same name.
pub fn name(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.contains(is_deceptive) && !text.starts_with("$'") => text.to_owned(),
        _ => shell_word(key),
    }
}

/// The same for a sentence, in quotes.
pub fn quoted(key: &[u8]) -> String {
    match name(key) {
        word if word.starts_with("$'") => word,
        word => format!("'{word}'"),
    }
}

fn shell_word(key: &[u8]) -> String {
    let mut word = String::from("$'");
    for chunk in key.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' | '\'' => word.extend(['\\', c]),
                c if is_deceptive(c) => {
                    word.push_str(&escaped(c.encode_utf8(&mut [0; 4]).as_bytes()));
                }
                c => word.push(c),
            }
        }
        word.push_str(&escaped(chunk.invalid()));
    }
    word.push('\'');
    word
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

/// Adds a key to what is printed for programs: `key`, and `key_hex` where that is not exact, because the key is no UTF-8.
pub fn with_key(mut fields: Json, key: Option<&[u8]>) -> Json {
    if let Some(key) = key {
        fields["key"] = String::from_utf8_lossy(key).into();
        if std::str::from_utf8(key).is_err() {
            let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            fields["key_hex"] = hex.into();
        }
    }
    fields
}

/// The same for a text of several lines.
pub fn lines(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| printable(line.as_bytes()))
        .collect();
    lines.join("\n")
}

/// Returns the error in the server's own words, without the library's around them.
pub fn plain(error: &RedisError) -> String {
    // Nothing that a server repeats of the command may be shown.
    let without_arguments = |text: &str| -> String {
        let text = text.split(", with args").next().unwrap_or_default();
        text.trim_end().to_owned()
    };
    let text = match (error.code(), error.detail()) {
        (Some("ERR"), Some(detail)) => without_arguments(detail),
        (Some(code), Some(detail)) => format!("{code} {}", without_arguments(detail)),
        (None, Some(detail)) => without_arguments(detail),
        (Some(code), None) => code.to_owned(),
        _ if error.is_timeout() => "no answer in time".to_owned(),
        // The library adds its own name of the kind.
        _ => {
            let text = without_arguments(&error.to_string());
            let kind = format!(" - {:?}", error.kind());
            text.strip_suffix(&kind).unwrap_or(&text).to_owned()
        }
    };
    match text.is_empty() {
        true => error.category().to_owned(),
        false => text,
    }
}

fn is_deceptive(c: char) -> bool {
    let turns_direction = matches!(c,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let has_no_width = matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}');
    c.is_control() || turns_direction || has_no_width
}

/// Says something on stderr. What that does not take is lost: there is nobody else to tell.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "dsync: {}", lines(text));
}

/// Returns how many of something there are: `1 hold`, `2 holds`.
pub fn counted(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}

/// Writes what a command has come to, on one line: for programs, or for people.
pub fn print(out: &mut impl Write, is_json: bool, json: &Json, text: &str) -> io::Result<()> {
    match is_json {
        true => writeln!(out, "{json}"),
        false => writeln!(out, "{text}"),
    }
}

/// Returns text, or a dash where there is none.
pub fn or_dash(bytes: Option<&[u8]>) -> String {
    match bytes {
        Some(bytes) if !bytes.is_empty() => printable(bytes),
        _ => "-".into(),
    }
}

/// Which side of a column its values stand on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Left,
    Right,
}

/// A table with a line of headings. Columns are as wide as their widest value.
pub struct Table {
    headings: Vec<(String, Side)>,
    rows: Vec<(Tone, Vec<String>)>,
}

impl Table {
    pub fn new<T: ToString>(headings: &[(T, Side)]) -> Table {
        let headings = headings.iter();
        Table {
            headings: headings
                .map(|(text, side)| (text.to_string(), *side))
                .collect(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, tone: Tone, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.headings.len());
        let row = row.iter().map(|value| printable(value.as_bytes()));
        self.rows.push((tone, row.collect()));
    }

    /// Returns the lines, the headings first.
    pub fn lines(&self) -> Vec<(Tone, String)> {
        let headings = self.headings.iter().map(|heading| heading.0.clone());
        let headings = (Tone::Heading, headings.collect());
        let all = || std::iter::once(&headings).chain(&self.rows);
        let width = |nth: usize| {
            let widths = all().map(|(_, row)| row[nth].chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let line = |(tone, row): &(Tone, Vec<String>)| {
            let mut line = String::new();
            for (nth, value) in row.iter().enumerate() {
                let padding = " ".repeat(widths[nth] - value.chars().count());
                match self.headings[nth].1 {
                    Side::Left => line.extend([value.as_str(), &padding]),
                    Side::Right => line.extend([padding.as_str(), value]),
                }
                line.push_str("  ");
            }
            (*tone, line.trim_end().to_owned())
        };
        all().map(line).collect()
    }

    /// Writes the lines, in colours if the stream behind `out` is a terminal.
    pub fn write(&self, out: &mut impl Write, stream: &impl IsTerminal) -> io::Result<()> {
        Paint::of(stream).write(out, &self.lines())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable(b"web-1\x1b[2J\n\xff"), "web-1\\u{1b}[2J\\n\\xff");
        assert_eq!(lines("a\u{9b}\nb\t"), "a\\u{9b}\nb\\t");
    }

    #[test]
    fn keys_have_names_that_a_shell_reads_and_no_two_the_same() {
        for (key, expected) in [
            (&b"jobs:1"[..], "jobs:1"),
            (b"it's a\\xff", "it's a\\xff"),
            (b"a\xff", "$'a\\xff'"),
            (b"a\xfe", "$'a\\xfe'"),
            (b"it's \\\x1b", "$'it\\'s \\\\\\x1b'"),
            ("\u{202e}\u{fffd}".as_bytes(), "$'\\xe2\\x80\\xae\u{fffd}'"),
            (b"$'a\\xff'", "$'$\\'a\\\\xff\\''"),
        ] {
            assert_eq!(name(key), expected);
            assert_eq!(printable(expected.as_bytes()), expected);
        }
        assert_eq!(quoted(b"a"), "'a'");
        assert_eq!(quoted(b"\x1b"), "$'\\x1b'");
    }

    #[test]
    fn characters_that_hide_or_turn_text_are_escaped() {
        for c in "\u{61c}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{202a}\u{202e}\u{2060}\u{2066}\u{2069}\u{feff}".chars() {
            let escaped = printable(format!("a{c}b").as_bytes());
            assert_eq!(escaped, format!("a\\u{{{:x}}}b", u32::from(c)));
            assert_eq!(printable(escaped.as_bytes()), escaped);
        }
        assert_eq!(
            printable("größer \u{2026} \u{2010}".as_bytes()),
            "größer … ‐"
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_value() {
        let mut table = Table::new(&[("KEY", Side::Left), ("HELD", Side::Right)]);
        table.row(Tone::Plain, vec!["a".into(), "10s".into()]);
        table.row(Tone::Bad, vec!["größer".into(), "5m1s".into()]);
        let expected = [
            (Tone::Heading, "KEY     HELD".to_owned()),
            (Tone::Plain, "a        10s".to_owned()),
            (Tone::Bad, "größer  5m1s".to_owned()),
        ];
        assert_eq!(table.lines(), expected);
    }

    #[test]
    fn error_without_a_text_is_not_empty() {
        let error = redis::make_extension_error("ODD".into(), None);
        assert_eq!(plain(&error), "ODD");
        let error = RedisError::from((redis::ErrorKind::UnexpectedReturnType, "not a list"));
        assert_eq!(plain(&error), "not a list");
    }
}
