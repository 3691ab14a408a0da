//! The one parser: walks a command's row of the table and fills one [`Parsed`].
//!
//! The first mistake from left to right is the one that is answered. Every error names the option, the value and
//! the bound; none repeats a token. Nothing is allocated but for an error.

use super::grammar::{Arg, Bound, Integer, Kind, Most, Text, Times};
use super::parsed::Parsed;
use super::row::Row;
use crate::module::redis::args::{Args, parse_i64};

/// A request's arguments; number 0 is the command's name.
pub(super) trait Typed<'a> {
    fn count(&self) -> usize;
    fn arg(&self, at: usize) -> Option<&'a [u8]>;
}

impl<'a> Typed<'a> for Args<'a> {
    fn count(&self) -> usize {
        self.len()
    }

    fn arg(&self, at: usize) -> Option<&'a [u8]> {
        self.get(at)
    }
}

/// Fills `parsed`, which is empty. `bound` gives the value of a setting, and is asked only where an argument needs
/// it.
pub(super) fn parse<'a>(
    row: &Row,
    typed: &impl Typed<'a>,
    bound: impl Fn(Bound) -> u64,
    parsed: &mut Parsed<'a>,
) -> Result<(), String> {
    let count = typed.count();
    let mut at = 1;
    let mut options = row.args;
    while let [arg, rest @ ..] = options
        && !arg.is_optional()
    {
        if at >= count {
            return Err(wrong_arity(row));
        }
        options = rest;
        // The server opens the key by its own string.
        if matches!(arg.kind, Kind::Key) {
            at += 1;
            continue;
        }
        loop {
            let value = typed.arg(at).unwrap_or_default();
            parsed.take_positional(arg, value, at, &bound)?;
            at += 1;
            if at == count || arg.times != Times::OnceOrMore {
                break;
            }
        }
    }
    if at == count {
        return Ok(());
    }
    if options.is_empty() {
        return Err(wrong_arity(row));
    }
    // A bit for each option that was given.
    let mut given = 0_u32;
    while let Some(word) = typed.arg(at) {
        let (nth, arg) = find(options, word).ok_or_else(|| unknown(word))?;
        if given & (1 << nth) != 0 {
            return Err(twice(&options[nth]));
        }
        given |= 1 << nth;
        at += 1;
        if let Kind::Flag(flag) = arg.kind {
            parsed.flags[flag as usize] = true;
            continue;
        }
        let value = typed.arg(at).ok_or_else(|| without_value(arg))?;
        parsed.take(arg, value, at, &bound)?;
        at += 1;
    }
    Ok(())
}

impl<'a> Parsed<'a> {
    #[inline]
    fn take_positional(
        &mut self,
        arg: &Arg,
        value: &'a [u8],
        at: usize,
        bound: &impl Fn(Bound) -> u64,
    ) -> Result<(), String> {
        let Kind::OneOf(ways) = arg.kind else {
            return self.take(arg, value, at, bound);
        };
        // A word, or else a value.
        for way in ways {
            if let Kind::Flag(flag) = way.kind
                && begins(way, value)
            {
                self.flags[flag as usize] = true;
                return Ok(());
            }
        }
        if let Some(way) = ways.iter().find(|way| way.word.is_none()) {
            return self.take(way, value, at, bound);
        }
        Err(unknown(value))
    }

    // On the way of every RELEASE: a call of its own costs more than it does.
    #[inline(always)]
    fn take(
        &mut self,
        arg: &Arg,
        value: &'a [u8],
        at: usize,
        bound: &impl Fn(Bound) -> u64,
    ) -> Result<(), String> {
        match &arg.kind {
            Kind::Integer(integer) => {
                let most = value_of(integer.most, bound) / integer.factor;
                let number = parse_i64(value)
                    .and_then(|n| u64::try_from(n).ok())
                    .filter(|n| (integer.least..=most).contains(n))
                    .ok_or_else(|| not_in_bounds(arg, integer, most, value))?;
                self.numbers[integer.into as usize] = number * integer.factor;
                self.has_number |= 1 << integer.into as u32;
            }
            Kind::Text(text) => {
                let most = value_of(text.most, bound);
                if !(text.least..=most).contains(&(value.len() as u64)) {
                    return Err(not_so_long(arg, text, most, value.len()));
                }
                self.texts[text.into as usize].get_or_insert(value);
                if text.is_secret {
                    if self.secrets.is_empty() {
                        self.secrets.start = at;
                    }
                    self.secrets.end = at + 1;
                }
            }
            // The key is the server's to open; the others have no value.
            Kind::Key | Kind::Flag(_) | Kind::OneOf(_) => {}
        }
        Ok(())
    }
}

fn value_of(most: Most, bound: &impl Fn(Bound) -> u64) -> u64 {
    match most {
        Most::Is(most) => most,
        Most::Setting(setting) => bound(setting),
    }
}

/// The option that this word begins, and its place among the options; that of the whole where it is one of several
/// ways.
fn find<'t>(options: &'t [Arg], word: &[u8]) -> Option<(usize, &'t Arg)> {
    for (nth, option) in options.iter().enumerate() {
        if let Kind::OneOf(ways) = option.kind {
            if let Some(way) = ways.iter().find(|way| begins(way, word)) {
                return Some((nth, way));
            }
        } else if begins(option, word) {
            return Some((nth, option));
        }
    }
    None
}

fn begins(arg: &Arg, word: &[u8]) -> bool {
    arg.word.is_some_and(|own| is(own, word))
}

/// The table has its words in capitals.
fn is(own: &str, word: &[u8]) -> bool {
    own.len() == word.len()
        && own
            .bytes()
            .zip(word)
            .all(|(own, typed)| own == typed.to_ascii_uppercase())
}

/// Where tokens may be in a request that was not understood: each secret positional argument, and every
/// argument behind a word that begins a secret option, for the word may be the value of another option.
pub(super) fn possible_secrets<'a>(row: &Row, typed: &impl Typed<'a>) -> Vec<usize> {
    let is_secret = |arg: &Arg| matches!(&arg.kind, Kind::Text(text) if text.is_secret);
    let required = row.required();
    let (positional, options) = row.args.split_at(required);
    let is_list = |arg: &Arg| arg.times == Times::OnceOrMore;
    let mut found = Vec::new();
    let mut at = 1;
    while let Some(word) = typed.arg(at) {
        let own = positional
            .get(at - 1)
            .or(positional.last().filter(|arg| is_list(arg)));
        if own.is_some_and(is_secret) {
            found.push(at);
        } else if at > required && find(options, word).is_some_and(|(_, arg)| is_secret(arg)) {
            found.push(at + 1);
        }
        at += 1;
    }
    found
}

// The texts of all errors of the grammar.

#[cold]
pub(super) fn wrong_arity(row: &Row) -> String {
    let name = row.name.as_str();
    format!("ERR wrong number of arguments for '{name}' command")
}

#[cold]
fn unknown(word: &[u8]) -> String {
    format!("ERR syntax error: '{}' is not an option here", shown(word))
}

#[cold]
fn twice(option: &Arg) -> String {
    let name = option.words().join(" or ");
    format!("ERR syntax error: {name} is given twice")
}

#[cold]
fn without_value(option: &Arg) -> String {
    format!(
        "ERR syntax error: {} has no value",
        option.word.unwrap_or_default()
    )
}

#[cold]
fn not_in_bounds(arg: &Arg, integer: &Integer, most: u64, value: &[u8]) -> String {
    let Integer { least, unit, .. } = integer;
    let space = if unit.is_empty() { "" } else { " " };
    format!(
        "ERR {} is an integer of {least} to {most}{space}{unit}{}, not '{}'",
        arg.called,
        setting(integer.most),
        shown(value)
    )
}

#[cold]
fn not_so_long(arg: &Arg, text: &Text, most: u64, len: usize) -> String {
    let bounds = match text.least {
        0 => format!("at most {most}"),
        least => format!("{least} to {most}"),
    };
    let (called, setting) = (arg.called, setting(text.most));
    format!("ERR {called} has {bounds} bytes{setting}, not {len}")
}

/// The setting that an upper bound comes from, in an error.
fn setting(most: Most) -> String {
    match most {
        Most::Is(_) => String::new(),
        Most::Setting(bound) => format!(" ({})", bound.setting()),
    }
}

/// An argument as an error repeats it. What is longer than any number or option is only measured: it may
/// be a token in the wrong place.
fn shown(text: &[u8]) -> String {
    const MOST: usize = 20;
    if text.len() > MOST {
        return format!("({} bytes)", text.len());
    }
    text.escape_ascii().to_string()
}
