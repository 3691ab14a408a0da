//! The arguments that rows of the table take, each written once.

use super::grammar::{Arg, Bound, Flag, Integer, Kind, Most, Number, Text, Words};
use dsync_engine::types::{Fence, MAX_OWNER_LEN, MAX_PERMITS, Token};

/// The longest BLOCK, in milliseconds: past it the arithmetic of moments would saturate.
const MAX_BLOCK_MS: u64 = (1 << 53) - 1;

/// The longest that a result is kept: ten years.
const MAX_KEEP_MS: u64 = 315_360_000_000;

/// How many holders, waiters or keys may be listed.
const MAX_COUNT: u64 = 1_000;

pub(super) const KEY: Arg =
    Arg::positional("key", "the key", Kind::Key).means("The name to coordinate on.");

pub(super) const TOKEN: Arg = Arg::positional("token", "a token", TOKEN_TEXT)
    .means("The secret name of the hold or of the queued request.");

pub(super) const TOKENS: Arg = TOKEN.many();

const TOKEN_TEXT: Kind = Kind::Text(Text {
    into: Words::Token,
    least: 1,
    most: Most::Is(Token::MAX_LEN as u64),
    is_secret: true,
});

pub(super) const FENCE: Arg = Arg::positional(
    "fence",
    "a fence",
    Kind::Integer(Integer::new(Number::Fence, "", 1, Fence::MAX.0)),
)
.means("The public number of the hold, as INFO shows it.");

pub(super) const JOBS: Arg = Arg::positional(
    "jobs",
    "the total",
    Kind::Integer(number(Number::Jobs, "jobs", 1)),
)
.means("How many jobs the round has in all.");

/// `limit | NONE`
pub(super) const PINNED: Arg = Arg::positional(
    "pinned",
    "the limit",
    Kind::OneOf(&[
        Arg::positional(
            "limit",
            "the limit",
            Kind::Integer(number(Number::Limit, "permits, or NONE", 0)),
        )
        .means("The limit that overrules those of requests; 0 pauses the semaphore."),
        Arg::flag("NONE", "none", Flag::Unpin)
            .once()
            .means("Requests bring the limit again."),
    ]),
)
.means("The limit to pin, or none.");

/// `[SHARED]`
pub(super) const SHARED: Arg = Arg::flag("SHARED", "shared", Flag::Shared)
    .means("Hold together with other shared holds; exclusive without it.");

/// `[EPHEMERAL]`
pub(super) const EPHEMERAL: Arg = Arg::flag("EPHEMERAL", "ephemeral", Flag::Ephemeral)
    .means("The hold also ends when the connection that got it closes.");

/// `[LIMIT limit]`
pub(super) const LIMIT: Arg = option(
    "LIMIT",
    "limit",
    Kind::Integer(number(Number::Limit, "permits", 1)),
)
.means("The limit to put in force; the limit in force without it.");

/// `[PERMITS permits]`
pub(super) const PERMITS: Arg = option(
    "PERMITS",
    "permits",
    Kind::Integer(number(Number::Permits, "permits", 1)),
)
.means("How many permits the hold takes; 1 without it.");

/// `[MAX attempts]`
pub(super) const MAX: Arg = option(
    "MAX",
    "attempts",
    Kind::Integer(number(Number::Attempts, "attempts", 1)),
)
.means("After how many attempts in all the work is given up; never without it.");

/// `[BLOCK milliseconds]`
pub(super) const BLOCK: Arg = option(
    "BLOCK",
    "milliseconds",
    Kind::Integer(Integer::new(
        Number::BlockMs,
        "milliseconds",
        0,
        MAX_BLOCK_MS,
    )),
)
.means("Queue and wait so long at most, 0 without limit; answered at once without it.");

/// `[TOKEN token]`
pub(super) const OWN_TOKEN: Arg = Arg {
    called: TOKEN.called,
    ..option("TOKEN", "token", TOKEN_TEXT)
}
.means("The caller's own secret name of the request; the server makes a UUID without it.");

/// `[OWNER text]`
pub(super) const OWNER: Arg = option(
    "OWNER",
    "text",
    text(Words::Owner, Most::Is(MAX_OWNER_LEN as u64)),
)
.means("Shown to people by INFO; none without it.");

/// `[RESULT value]`
pub(super) const RESULT: Arg = option(
    "RESULT",
    "value",
    text(Words::Result, Most::Setting(Bound::MaxResultBytes)),
)
.means("What every later BEGIN is answered; null without it.");

/// `[REASON text]`
pub(super) const REASON: Arg = option(
    "REASON",
    "text",
    text(Words::Reason, Most::Setting(Bound::MaxResultBytes)),
)
.means("Why the attempt failed; 'failed' without it.");

/// `[COUNT count]`, of one key.
pub(super) const COUNT: Arg = count("holders and waiters")
    .means("How many holders and how many waiters to list; 10 without it.");

/// `[COUNT count]`, of the server.
pub(super) const COUNT_KEYS: Arg = count("keys").means("How many keys to list; 10 without it.");

/// `[EX seconds | PX milliseconds]`: how long the hold lasts unless it is renewed.
pub(super) const LEASE: Arg = Arg::positional(
    "duration",
    "EX or PX",
    Kind::OneOf(&[
        seconds(Most::Setting(Bound::MaxLeaseMs)).means("The lease in seconds."),
        milliseconds(Most::Setting(Bound::MaxLeaseMs)).means("The lease in milliseconds."),
    ]),
)
.optional()
.means("The lease; dsync.default-lease-ms without it, for RENEW the hold's last lease.");

/// `[EX seconds | PX milliseconds]`: how long the result is kept.
pub(super) const KEEP: Arg = Arg::positional(
    "duration",
    "EX or PX",
    Kind::OneOf(&[
        seconds(Most::Is(MAX_KEEP_MS)).means("How many seconds the result is kept."),
        milliseconds(Most::Is(MAX_KEEP_MS)).means("How many milliseconds the result is kept."),
    ]),
)
.optional()
.means("How long the result is kept; dsync.once-keep-ms without it.");

const fn option(word: &'static str, name: &'static str, kind: Kind) -> Arg {
    Arg::option(word, name, kind)
}

const fn seconds(most: Most) -> Arg {
    duration("EX", "seconds", 1_000, most)
}

const fn milliseconds(most: Most) -> Arg {
    duration("PX", "milliseconds", 1, most)
}

const fn duration(word: &'static str, unit: &'static str, factor: u64, most: Most) -> Arg {
    let integer = Integer {
        into: Number::Duration,
        unit,
        factor,
        least: 1,
        most,
    };
    option(word, unit, Kind::Integer(integer)).once()
}

const fn number(into: Number, unit: &'static str, least: u64) -> Integer {
    Integer::new(into, unit, least, MAX_PERMITS as u64)
}

const fn text(into: Words, most: Most) -> Kind {
    Kind::Text(Text {
        into,
        least: 0,
        most,
        is_secret: false,
    })
}

const fn count(unit: &'static str) -> Arg {
    let integer = Integer::new(Number::Count, unit, 1, MAX_COUNT);
    option("COUNT", "count", Kind::Integer(integer))
}
