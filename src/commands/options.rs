//! The options of requests, in any order after the key, each at most once.
//!
//! ```text
//! EX seconds | PX milliseconds      the lease
//! BLOCK milliseconds                queue and wait at most that long; 0 waits without limit
//! TOKEN text                        the caller's own token, 1 to 128 bytes
//! EPHEMERAL                         the hold also ends when the connection closes
//! OWNER text                        shown to people, at most 128 bytes
//! SHARED                            locks: together with other shared holds
//! LIMIT n                           semaphores and groups: 1 to 1000000
//! PERMITS n                         semaphores: 1 to 1000000
//! MAX n                             work-once: attempts in all, 1 to 1000000
//! ```
//!
//! Every error names the option, the value and the bound; none repeats a token.

use crate::module::redis::args::{Args, parse_i64};
use crate::module::settings::{LeaseSettings, OnceSettings};
use dsync_engine::types::{Claim, LeaseMs, MAX_OWNER_LEN, MAX_PERMITS, Token};

/// The longest BLOCK, in milliseconds: past it the arithmetic of moments would saturate.
const MAX_BLOCK_MS: u64 = (1 << 53) - 1;

/// The longest that a result is kept: ten years.
const MAX_KEEP_MS: u64 = 315_360_000_000;

/// Which options a command takes besides the common ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grammar {
    pub(super) shared: bool,
    pub(super) limit: bool,
    pub(super) permits: bool,
    pub(super) most: bool,
}

/// A request as it was typed, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Options {
    pub(super) shared: bool,
    pub(super) limit: Option<u32>,
    pub(super) permits: Option<u32>,
    pub(super) most: Option<u32>,
    pub(super) lease: LeaseMs,
    pub(super) block_ms: Option<u64>,
    pub(super) token: Option<Token>,
    pub(super) ephemeral: bool,
    pub(super) owner: Option<Box<[u8]>>,
}

/// The options from argument `from` on.
pub(super) fn parse(
    args: &Args<'_>,
    from: usize,
    grammar: Grammar,
    leases: LeaseSettings,
) -> Result<Options, String> {
    let mut seen = Seen::default();
    let mut options = Options {
        shared: false,
        limit: None,
        permits: None,
        most: None,
        lease: leases.default_lease(),
        block_ms: None,
        token: None,
        ephemeral: false,
        owner: None,
    };
    let mut at = from;
    while let Some(word) = args.get(at) {
        at += 1;
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let mut value = |name: &'static str| {
            let value = args
                .get(at)
                .ok_or_else(|| format!("ERR syntax error: {name} has no value"));
            at += 1;
            value
        };
        if is("EX") || is("PX") {
            seen.once("EX or PX")?;
            let (name, unit) = if is("EX") {
                ("EX", Unit::Seconds)
            } else {
                ("PX", Unit::Milliseconds)
            };
            options.lease = lease(name, unit, value(name)?, leases)?;
        } else if is("BLOCK") {
            seen.once("BLOCK")?;
            options.block_ms = Some(number(
                "BLOCK",
                "milliseconds",
                value("BLOCK")?,
                0,
                MAX_BLOCK_MS,
            )?);
        } else if is("TOKEN") {
            seen.once("TOKEN")?;
            options.token = Some(token(value("TOKEN")?)?);
        } else if is("EPHEMERAL") {
            seen.once("EPHEMERAL")?;
            options.ephemeral = true;
        } else if is("OWNER") {
            seen.once("OWNER")?;
            options.owner = owner(value("OWNER")?)?;
        } else if grammar.shared && is("SHARED") {
            seen.once("SHARED")?;
            options.shared = true;
        } else if grammar.limit && is("LIMIT") {
            seen.once("LIMIT")?;
            options.limit = Some(limit(value("LIMIT")?)?);
        } else if grammar.permits && is("PERMITS") {
            seen.once("PERMITS")?;
            options.permits = Some(small(
                "PERMITS",
                "permits",
                value("PERMITS")?,
                1,
                MAX_PERMITS,
            )?);
        } else if grammar.most && is("MAX") {
            seen.once("MAX")?;
            options.most = Some(small("MAX", "attempts", value("MAX")?, 1, MAX_PERMITS)?);
        } else {
            return Err(unknown(word));
        }
    }
    Ok(options)
}

/// `[EX seconds | PX milliseconds]`, from argument `from` on, and nothing else.
pub(super) fn parse_lease(
    args: &Args<'_>,
    from: usize,
    leases: LeaseSettings,
) -> Result<Option<LeaseMs>, String> {
    let Some(word) = args.get(from) else {
        return Ok(None);
    };
    let (name, unit) = if word.eq_ignore_ascii_case(b"EX") {
        ("EX", Unit::Seconds)
    } else if word.eq_ignore_ascii_case(b"PX") {
        ("PX", Unit::Milliseconds)
    } else {
        return Err(unknown(word));
    };
    let value = args
        .get(from + 1)
        .ok_or_else(|| format!("ERR syntax error: {name} has no value"))?;
    match args.get(from + 2) {
        None => lease(name, unit, value, leases).map(Some),
        Some(word) if word.eq_ignore_ascii_case(b"EX") || word.eq_ignore_ascii_case(b"PX") => {
            Err(twice("EX or PX"))
        }
        Some(word) => Err(unknown(word)),
    }
}

/// What DONE says besides the token.
pub(super) struct Texts<'a> {
    pub(super) text: Option<&'a [u8]>,
    pub(super) keep_ms: Option<u64>,
}

/// `[RESULT value] [EX seconds | PX milliseconds]`, in any order, from argument `from` on.
pub(super) fn parse_result<'a>(
    args: &Args<'a>,
    from: usize,
    settings: OnceSettings,
) -> Result<Texts<'a>, String> {
    let mut seen = Seen::default();
    let mut texts = Texts {
        text: None,
        keep_ms: None,
    };
    let mut at = from;
    while let Some(word) = args.get(at) {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let value = |name: &str| {
            args.get(at + 1)
                .ok_or_else(|| format!("ERR syntax error: {name} has no value"))
        };
        if is("RESULT") {
            seen.once("RESULT")?;
            texts.text = Some(bounded("RESULT", value("RESULT")?, settings)?);
        } else if is("EX") {
            seen.once("EX or PX")?;
            let seconds = number("EX", "seconds", value("EX")?, 1, MAX_KEEP_MS / 1_000)?;
            texts.keep_ms = Some(seconds * 1_000);
        } else if is("PX") {
            seen.once("EX or PX")?;
            texts.keep_ms = Some(number("PX", "milliseconds", value("PX")?, 1, MAX_KEEP_MS)?);
        } else {
            return Err(unknown(word));
        }
        at += 2;
    }
    Ok(texts)
}

/// `[REASON text]`, from argument `from` on, and nothing else.
pub(super) fn parse_reason<'a>(
    args: &Args<'a>,
    from: usize,
    settings: OnceSettings,
) -> Result<Option<&'a [u8]>, String> {
    let Some(word) = args.get(from) else {
        return Ok(None);
    };
    if !word.eq_ignore_ascii_case(b"REASON") {
        return Err(unknown(word));
    }
    let text = args
        .get(from + 1)
        .ok_or("ERR syntax error: REASON has no value")?;
    match args.get(from + 2) {
        None => bounded("REASON", text, settings).map(Some),
        Some(word) if word.eq_ignore_ascii_case(b"REASON") => Err(twice("REASON")),
        Some(word) => Err(unknown(word)),
    }
}

fn bounded<'a>(name: &str, text: &'a [u8], settings: OnceSettings) -> Result<&'a [u8], String> {
    let most = settings.max_result_bytes;
    if text.len() as u64 > most {
        let len = text.len();
        return Err(format!(
            "ERR {name} has at most {most} bytes (dsync.max-result-bytes), not {len}"
        ));
    }
    Ok(text)
}

/// `[NAME n]`, from argument `from` on, and nothing else.
pub(super) fn parse_single(
    args: &Args<'_>,
    from: usize,
    (name, unit): (&'static str, &str),
    (least, most): (u64, u64),
) -> Result<Option<u64>, String> {
    let Some(word) = args.get(from) else {
        return Ok(None);
    };
    if !word.eq_ignore_ascii_case(name.as_bytes()) {
        return Err(unknown(word));
    }
    let value = args
        .get(from + 1)
        .ok_or_else(|| format!("ERR syntax error: {name} has no value"))?;
    match args.get(from + 2) {
        None => number(name, unit, value, least, most).map(Some),
        Some(word) if word.eq_ignore_ascii_case(name.as_bytes()) => Err(twice(name)),
        Some(word) => Err(unknown(word)),
    }
}

/// `[BLOCK milliseconds]`
pub(super) fn parse_block(args: &Args<'_>, from: usize) -> Result<Option<u64>, String> {
    parse_single(args, from, ("BLOCK", "milliseconds"), (0, MAX_BLOCK_MS))
}

pub(super) fn token(text: &[u8]) -> Result<Token, String> {
    let refusal = || {
        format!(
            "ERR a token has 1 to {} bytes, not {}",
            Token::MAX_LEN,
            text.len()
        )
    };
    Token::parse(text).ok_or_else(refusal)
}

pub(super) fn limit(text: &[u8]) -> Result<u32, String> {
    small("LIMIT", "permits", text, 1, MAX_PERMITS)
}

/// A number within its bounds, or an error that names option, value and bound.
pub(super) fn number(
    name: &str,
    unit: &str,
    text: &[u8],
    least: u64,
    most: u64,
) -> Result<u64, String> {
    parse_i64(text)
        .and_then(|n| u64::try_from(n).ok())
        .filter(|n| (least..=most).contains(n))
        .ok_or_else(|| {
            let space = if unit.is_empty() { "" } else { " " };
            format!(
                "ERR {name} is an integer of {least} to {most}{space}{unit}, not '{}'",
                shown(text)
            )
        })
}

pub(super) fn small(
    name: &str,
    unit: &str,
    text: &[u8],
    least: u32,
    most: u32,
) -> Result<u32, String> {
    let n = number(name, unit, text, u64::from(least), u64::from(most))?;
    Ok(u32::try_from(n).unwrap_or(most))
}

enum Unit {
    Seconds,
    Milliseconds,
}

fn lease(name: &str, unit: Unit, text: &[u8], leases: LeaseSettings) -> Result<LeaseMs, String> {
    let (unit, factor) = match unit {
        Unit::Seconds => ("seconds", 1_000),
        Unit::Milliseconds => ("milliseconds", 1),
    };
    let most = leases.max_ms / factor;
    let ms = parse_i64(text)
        .and_then(|n| u64::try_from(n).ok())
        .filter(|n| (1..=most).contains(n))
        .and_then(|n| u32::try_from(n * factor).ok());
    ms.map(LeaseMs).ok_or_else(|| {
        let shown = shown(text);
        format!(
            "ERR {name} is an integer of 1 to {most} {unit} (dsync.max-lease-ms), not '{shown}'"
        )
    })
}

fn owner(text: &[u8]) -> Result<Option<Box<[u8]>>, String> {
    if text.len() > MAX_OWNER_LEN {
        return Err(format!(
            "ERR OWNER has at most {MAX_OWNER_LEN} bytes, not {}",
            text.len()
        ));
    }
    // No text is no owner.
    Ok(Some(text).filter(|text| !text.is_empty()).map(Into::into))
}

fn unknown(word: &[u8]) -> String {
    format!("ERR syntax error: '{}' is not an option here", shown(word))
}

fn twice(name: &str) -> String {
    format!("ERR syntax error: {name} is given twice")
}

/// An argument as an error repeats it. What is longer than any number or option is only measured: it may
/// be a token in the wrong place.
pub(super) fn shown(text: &[u8]) -> String {
    const MOST: usize = 20;
    if text.len() > MOST {
        return format!("({} bytes)", text.len());
    }
    text.escape_ascii().to_string()
}

/// Which options have been given, a bit each: a request is parsed without allocating.
#[derive(Default)]
struct Seen(u16);

const OPTIONS: [&str; 10] = [
    "EX or PX",
    "BLOCK",
    "TOKEN",
    "EPHEMERAL",
    "OWNER",
    "SHARED",
    "LIMIT",
    "PERMITS",
    "MAX",
    "RESULT",
];

impl Seen {
    fn once(&mut self, name: &str) -> Result<(), String> {
        let at = OPTIONS
            .iter()
            .position(|option| *option == name)
            .unwrap_or_default();
        if self.0 & (1 << at) != 0 {
            return Err(twice(name));
        }
        self.0 |= 1 << at;
        Ok(())
    }
}

const NOTHING: Grammar = Grammar {
    shared: false,
    limit: false,
    permits: false,
    most: false,
};
pub(super) const LOCK: Grammar = Grammar {
    shared: true,
    ..NOTHING
};
pub(super) const SEMAPHORE: Grammar = Grammar {
    limit: true,
    permits: true,
    ..NOTHING
};
pub(super) const GROUP: Grammar = Grammar {
    limit: true,
    ..NOTHING
};
pub(super) const ONCE: Grammar = Grammar {
    most: true,
    ..NOTHING
};

impl Options {
    /// What the options ask for, in a family with this grammar.
    pub(super) fn claim(&self, grammar: Grammar) -> Claim {
        if grammar.most {
            Claim::Run
        } else if grammar.permits {
            Claim::Permits(self.permits.unwrap_or(1))
        } else if grammar.limit {
            Claim::Member
        } else if self.shared {
            Claim::Shared
        } else {
            Claim::Exclusive
        }
    }
}
