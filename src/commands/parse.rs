//! The only parser: reads a request by its command's row of the table and fills one [`Parsed`].
//!
//! It reports the first mistake from left to right. Every error text names the option, the value and the bound;
//! none contains a token that stands where tokens belong. It allocates memory only for an error text.

use super::grammar::{Arg, BoundSetting, IntegerSpec, Kind, Max, TextSpec, Times};
use super::row::{Parsed, Row};
use crate::module::redis::args::{Args, parse_i64};

/// The words of a request. Number 0 is the command's name. A trait, so that unit tests can parse plain text.
pub(super) trait Argv<'a> {
    fn count(&self) -> usize;
    /// The word at this position, or none behind the last.
    fn arg(&self, at: usize) -> Option<&'a [u8]>;
}

impl<'a> Argv<'a> for Args<'a> {
    fn count(&self) -> usize {
        self.len()
    }

    fn arg(&self, at: usize) -> Option<&'a [u8]> {
        self.get(at)
    }
}

/// Fills `parsed`, which must be empty, or returns the line of the error.
///
/// `bound` returns the value of a setting. It is called only for arguments that this setting bounds, because
/// reading settings for every request would cost time.
#[inline(always)]
pub(super) fn parse<'a>(
    row: &Row,
    argv: &impl Argv<'a>,
    bound: impl Fn(BoundSetting) -> u64,
    parsed: &mut Parsed<'a>,
) -> Result<(), String> {
    let count = argv.count();
    let mut at = 1;
    let mut options = row.args;
    while let [arg, rest @ ..] = options
        && !arg.is_optional()
    {
        if at >= count {
            return Err(wrong_arity(row));
        }
        options = rest;
        // The parser skips the key: commands open it by the server's own string.
        if matches!(arg.kind, Kind::Key) {
            at += 1;
            continue;
        }
        loop {
            let value = argv.arg(at).unwrap_or_default();
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
    // One bit for each option that the request has given so far.
    let mut given = 0_u32;
    while let Some(word) = argv.arg(at) {
        let (nth, arg) = find_option(options, word).ok_or_else(|| unknown_option(options, word))?;
        if given & (1 << nth) != 0 {
            return Err(given_twice(&options[nth]));
        }
        given |= 1 << nth;
        at += 1;
        if let Kind::Flag(flag) = arg.kind {
            parsed.flags[flag as usize] = true;
            continue;
        }
        let value = argv.arg(at).ok_or_else(|| without_value(arg))?;
        parsed.take(arg, value, at, &bound)?;
        at += 1;
    }
    Ok(())
}

impl<'a> Parsed<'a> {
    /// Stores a positional argument, which can be a choice between a word and a value (`limit | NONE`).
    #[inline]
    fn take_positional(
        &mut self,
        arg: &Arg,
        value: &'a [u8],
        at: usize,
        bound: &impl Fn(BoundSetting) -> u64,
    ) -> Result<(), String> {
        let Kind::OneOf(alternatives) = arg.kind else {
            return self.take(arg, value, at, bound);
        };
        // Compare with the words first: what is none of them is the value.
        for alternative in alternatives {
            if let Kind::Flag(flag) = alternative.kind
                && begins(alternative, value)
            {
                self.flags[flag as usize] = true;
                return Ok(());
            }
        }
        if let Some(value_only) = alternatives.iter().find(|arg| arg.word.is_none()) {
            return self.take(value_only, value, at, bound);
        }
        Err(unknown_option(alternatives, value))
    }

    /// Stores one value if it is within its bounds. `at` is its position in the request.
    // Inlined because every RELEASE passes here, and a call would cost more than the function's own work.
    #[inline(always)]
    fn take(
        &mut self,
        arg: &Arg,
        value: &'a [u8],
        at: usize,
        bound: &impl Fn(BoundSetting) -> u64,
    ) -> Result<(), String> {
        match &arg.kind {
            Kind::Integer(integer) => {
                let max = value_of(integer.max, bound) / integer.factor;
                let number = parse_i64(value)
                    .and_then(|n| u64::try_from(n).ok())
                    .filter(|n| (integer.min..=max).contains(n))
                    .ok_or_else(|| out_of_bounds(arg, integer, max, value))?;
                self.numbers[integer.into as usize] = number * integer.factor;
                self.has_number |= 1 << integer.into as u32;
            }
            Kind::Text(text) => {
                let max = value_of(text.max, bound);
                if !(text.min..=max).contains(&(value.len() as u64)) {
                    return Err(wrong_length(arg, text, max, value.len()));
                }
                self.texts[text.into as usize].get_or_insert(value);
                if text.is_secret {
                    if self.secrets.is_empty() {
                        self.secrets.start = at;
                    }
                    self.secrets.end = at + 1;
                }
            }
            // `parse` skips the key; flags and alternatives have no value of their own.
            Kind::Key | Kind::Flag(_) | Kind::OneOf(_) => {}
        }
        Ok(())
    }
}

/// The upper bound as a number.
fn value_of(max: Max, bound: &impl Fn(BoundSetting) -> u64) -> u64 {
    match max {
        Max::Fixed(max) => max,
        Max::Setting(setting) => bound(setting),
    }
}

/// Returns the option that begins with this word, and its place among the options. For one of several alternatives
/// (EX or PX) the place is that of the whole choice, so that only one of them can be given.
#[inline(always)]
fn find_option<'t>(options: &'t [Arg], word: &[u8]) -> Option<(usize, &'t Arg)> {
    for (nth, option) in options.iter().enumerate() {
        if let Kind::OneOf(alternatives) = option.kind {
            if let Some(alternative) = alternatives.iter().find(|arg| begins(arg, word)) {
                return Some((nth, alternative));
            }
        } else if begins(option, word) {
            return Some((nth, option));
        }
    }
    None
}

/// Whether the argument begins with this word.
fn begins(arg: &Arg, word: &[u8]) -> bool {
    arg.word.is_some_and(|own| equals_any_case(own, word))
}

/// Whether the words are equal, in capitals or not. `own` comes from the table, which has capitals only: a byte without
/// the bit of small letters is one of these only if it was that letter.
fn equals_any_case(own: &str, word: &[u8]) -> bool {
    const SMALL: u8 = b'a' ^ b'A';
    own.len() == word.len()
        && own
            .bytes()
            .zip(word)
            .all(|(own, byte)| own == byte & !SMALL)
}

/// Returns the positions at which tokens may be in a request that `parse` refused: each secret positional argument, every
/// argument behind a word that begins a secret option, and every word that is no option and no possible value of the
/// option before it, because a token stands there if the word TOKEN was forgotten. Some of them are no tokens: better one
/// argument too many hidden than a token shown.
pub(super) fn possible_secrets<'a>(row: &Row, argv: &impl Argv<'a>) -> Vec<usize> {
    let (positional, options) = row.args.split_at(row.required());
    let is_list = |arg: &Arg| arg.times == Times::OnceOrMore;
    let mut found = Vec::new();
    // The option that the word before began, if it has a value.
    let mut before = None;
    let mut at = 1;
    while let Some(word) = argv.arg(at) {
        let own = positional
            .get(at - 1)
            .or(positional.last().filter(|arg| is_list(arg)));
        let begun = match own {
            Some(_) => None,
            None => find_option(options, word).map(|(_, arg)| arg),
        };
        let is_hidden = match own.or(before) {
            Some(arg) => may_be_secret(arg, word),
            None => begun.is_none(),
        };
        if is_hidden {
            found.push(at);
        }
        before = begun.filter(|arg| !matches!(arg.kind, Kind::Flag(_)));
        at += 1;
    }
    found
}

/// Whether this value of the argument may be a token: because it should be one, or because it is not what it should be.
fn may_be_secret(arg: &Arg, value: &[u8]) -> bool {
    match arg.kind {
        Kind::Text(TextSpec { is_secret, .. }) => is_secret,
        Kind::Integer(_) => parse_i64(value).is_none(),
        Kind::OneOf(alternatives) => {
            let is_value = |arg: &Arg| arg.word.is_none() && !may_be_secret(arg, value);
            !alternatives
                .iter()
                .any(|arg| begins(arg, value) || is_value(arg))
        }
        Kind::Key | Kind::Flag(_) => false,
    }
}

// The error texts of the grammar, all in one place.

#[cold]
pub(super) fn wrong_arity(row: &Row) -> String {
    let name = row.name.as_str();
    format!("ERR wrong number of arguments for '{name}' command")
}

#[cold]
fn unknown_option(options: &[Arg], word: &[u8]) -> String {
    let words: Vec<_> = options.iter().flat_map(Arg::words).collect();
    let (word, words) = (shown(word), words.join(", "));
    format!("ERR syntax error: '{word}' is not an option here; the options are {words}")
}

#[cold]
fn given_twice(option: &Arg) -> String {
    let words = option.words();
    let name = match words.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => words.concat(),
    };
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
fn out_of_bounds(arg: &Arg, integer: &IntegerSpec, max: u64, value: &[u8]) -> String {
    let IntegerSpec { min, unit, .. } = integer;
    let space = if unit.is_empty() { "" } else { " " };
    let (name, setting) = (arg.error_name, setting_suffix(integer.max));
    let value = shown(value);
    if max < *min {
        // The setting is below one second.
        return format!(
            "ERR {name} is an integer of {unit}, of which not even {min} is allowed{setting}, not '{value}'"
        );
    }
    format!("ERR {name} is an integer of {min} to {max}{space}{unit}{setting}, not '{value}'")
}

#[cold]
fn wrong_length(arg: &Arg, text: &TextSpec, max: u64, len: usize) -> String {
    let bounds = match text.min {
        0 => format!("at most {max}"),
        min => format!("{min} to {max}"),
    };
    let (error_name, setting) = (arg.error_name, setting_suffix(text.max));
    format!("ERR {error_name} has {bounds} bytes{setting}, not {len}")
}

/// ` (dsync.max-lease-ms)` behind an upper bound that comes from this setting; empty behind a fixed one.
fn setting_suffix(max: Max) -> String {
    match max {
        Max::Fixed(_) => String::new(),
        Max::Setting(bound) => format!(" ({})", bound.setting()),
    }
}

/// An argument as an error text repeats it. Of one that is longer than any number or option, the text gives only the
/// length: it may be a token in the wrong place.
fn shown(text: &[u8]) -> String {
    const MAX_SHOWN: usize = 20;
    if text.len() > MAX_SHOWN {
        return format!("({} bytes)", text.len());
    }
    text.escape_ascii().to_string()
}
