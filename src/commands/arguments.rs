//! All arguments of all commands, each written once. Rows of the table refer to them.

use super::grammar::{Arg, BoundSetting, Flag, IntegerSpec, Kind, Max, Number, Text, TextSpec};
use dsync_engine::MAX_PAUSE_MS;
use dsync_engine::types::{
    Fence, MAX_KEEP_MS, MAX_LANE_LEN, MAX_OWNER_LEN, MAX_PERMITS, MAX_QUEUE_MS, MIN_QUEUE_MS, Token,
};

/// The longest BLOCK, in milliseconds. A longer one could overflow when it is added to a moment.
const MAX_BLOCK_MS: u64 = (1 << 53) - 1;

/// The largest COUNT: how many holders, waiters or keys a reply lists at most.
const MAX_COUNT: u64 = 1_000;

/// The largest COUNT of LOG: more rows would keep all other clients waiting for more than five milliseconds.
const MAX_LOG_COUNT: u64 = 5_000;

/// The longest cursor: two numbers and a sign between them.
const MAX_CURSOR_LEN: u64 = 32;

/// The longest pattern, in bytes.
const MAX_PATTERN_LEN: u64 = 1_024;

pub(super) const KEY: Arg =
    Arg::positional("key", "the key", Kind::Key).means("The name to coordinate on.");

pub(super) const TOKEN: Arg = Arg::positional("token", "a token", TOKEN_TEXT)
    .means("The secret name of the hold or of the queued request.");

pub(super) const TOKENS: Arg = TOKEN.many();

const TOKEN_TEXT: Kind = Kind::Text(TextSpec {
    into: Text::Token,
    min: 1,
    max: Max::Fixed(Token::MAX_LEN as u64),
    is_secret: true,
});

pub(super) const FENCE: Arg = Arg::positional(
    "fence",
    "a fence",
    Kind::Integer(IntegerSpec::new(Number::Required, "", 1, Fence::MAX.0)),
)
.means("The public number of the hold or of the kept place, as INFO shows it.");

pub(super) const PAUSE_MS: Arg = Arg::positional(
    "milliseconds",
    "the pause",
    Kind::Integer(IntegerSpec::new(
        Number::Required,
        "milliseconds",
        0,
        MAX_PAUSE_MS,
    )),
)
.means("For how long nobody is granted; 0 goes on at once.");

pub(super) const JOBS: Arg = Arg::positional(
    "jobs",
    "the total",
    Kind::Integer(number(Number::Required, "jobs", 1)),
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
        .means("The limit to use instead of the limits of requests; 0 pauses the semaphore."),
        Arg::flag("NONE", "none", Flag::Unpin)
            .once()
            .means("Unpins: the limits of requests count again."),
    ]),
)
.means("The limit to pin, or none.");

/// `[SHARED]`
pub(super) const SHARED: Arg = Arg::flag("SHARED", "shared", Flag::Shared)
    .means("Hold the lock together with other SHARED holds; by default the hold is exclusive.");

/// `[EPHEMERAL]`
pub(super) const EPHEMERAL: Arg = Arg::flag("EPHEMERAL", "ephemeral", Flag::Ephemeral)
    .means("The hold also ends when the connection that got it closes.");

/// `[LIMIT limit]`
pub(super) const LIMIT: Arg = option(
    "LIMIT",
    "limit",
    Kind::Integer(number(Number::Limit, "permits", 1)),
)
.means("The limit to put in force; by default the limit in force is used.");

/// `[PERMITS permits]`
pub(super) const PERMITS: Arg = option(
    "PERMITS",
    "permits",
    Kind::Integer(number(Number::Permits, "permits", 1)),
)
.means("How many permits the hold takes; 1 by default.");

/// `[INDEX]`
pub(super) const INDEX: Arg = Arg::flag("INDEX", "index", Flag::Index).means(
    "Give the hold an index, the lowest number from 0 that no other hold has; for one permit only.",
);

/// `[MINHOLD milliseconds]`
pub(super) const MINHOLD: Arg = option(
    "MINHOLD",
    "milliseconds",
    Kind::Integer(IntegerSpec {
        max: Max::Setting(BoundSetting::MaxLeaseMs),
        ..IntegerSpec::new(Number::MinHoldMs, "milliseconds", 1, 0)
    }),
)
.means("How long after the grant the place stays taken, even if the hold ends earlier.");

/// `[LANE text]`
pub(super) const LANE: Arg = option("LANE", "lane", text(Text::Lane, 1, MAX_LANE_LEN as u64)).means(
    "The lane in which the request stands: free permits go to the lane that has the fewest in use.",
);

/// `[LANELIMIT permits]`
pub(super) const LANE_LIMIT: Arg = option(
    "LANELIMIT",
    "lane-limit",
    Kind::Integer(number(Number::LaneLimit, "permits", 1)),
)
.means("How many permits the lane may have in use with this hold; no limit of its own by default.");

/// `[MAX attempts]`
pub(super) const MAX: Arg = option(
    "MAX",
    "attempts",
    Kind::Integer(number(Number::Attempts, "attempts", 1)),
)
.means("After how many failed attempts in all the work is given up; by default never.");

/// `[BLOCK milliseconds]`
pub(super) const BLOCK: Arg = option(
    "BLOCK",
    "milliseconds",
    Kind::Integer(IntegerSpec::new(
        Number::BlockMs,
        "milliseconds",
        0,
        MAX_BLOCK_MS,
    )),
)
.means("Queue and wait at most this long, 0 without limit; by default the reply comes at once.");

/// `[QUEUE milliseconds]`
const QUEUE: Arg = option(
    "QUEUE",
    "milliseconds",
    Kind::Integer(IntegerSpec::new(
        Number::QueueMs,
        "milliseconds",
        MIN_QUEUE_MS,
        MAX_QUEUE_MS,
    )),
)
.means("Take a place in the queue, which is kept this long for the TOKEN, and reply at once.");

/// `[BLOCK milliseconds | QUEUE milliseconds]`
pub(super) const WAITING: Arg = Arg::positional(
    "waiting",
    "BLOCK or QUEUE",
    Kind::OneOf(&[BLOCK.once(), QUEUE.once()]),
)
.optional()
.means("How to wait: with this connection, or with a place in the queue; by default the request is a try.");

/// `[TOKEN token]`
pub(super) const TOKEN_OPTION: Arg = Arg {
    error_name: TOKEN.error_name,
    ..option("TOKEN", "token", TOKEN_TEXT)
}
.means("The caller's own secret name for the request; by default the server makes a UUID.");

/// `[OWNER text]`
pub(super) const OWNER: Arg = option("OWNER", "text", text(Text::Owner, 0, MAX_OWNER_LEN as u64))
    .means("A text that INFO shows to people; none by default.");

/// `[RESULT value]`
pub(super) const RESULT: Arg = option("RESULT", "value", large_text(Text::Result))
    .means("The value that every later BEGIN gets; null by default.");

/// `[REASON text]`
pub(super) const REASON: Arg = option("REASON", "text", large_text(Text::Reason))
    .means("Why the attempt failed; 'failed' by default.");

/// `[DELAY milliseconds]`
pub(super) const DELAY: Arg = option(
    "DELAY",
    "milliseconds",
    Kind::Integer(IntegerSpec {
        max: Max::Setting(BoundSetting::MaxLeaseMs),
        // A caller that computes the delay may compute none.
        ..IntegerSpec::new(Number::DelayMs, "milliseconds", 0, 0)
    }),
)
.means("How long the next attempt must not begin; 0 by default.");

/// `[COUNT count]` of commands that report on one key.
pub(super) const COUNT: Arg = count("holders and waiters")
    .means("How many holders and how many waiters to list; 10 by default.");

/// `[COUNT count]` of commands that report on the whole server.
pub(super) const COUNT_KEYS: Arg = count("keys").means("How many keys to list; 10 by default.");

/// `[COUNT count]` of HOLDS.
pub(super) const COUNT_HOLDS: Arg =
    count("holds").means("How many holds to look at, wanted or not; 10 by default.");

/// `cursor`
pub(super) const CURSOR: Arg =
    Arg::positional("cursor", "a cursor", text(Text::Cursor, 1, MAX_CURSOR_LEN))
        .means("0 to begin, then what the last call returned.");

/// `[OWNER pattern]`
pub(super) const OWNER_PATTERN: Arg = option(
    "OWNER",
    "pattern",
    text(Text::OwnerPattern, 0, MAX_PATTERN_LEN),
)
.means("Only holds whose owner fits this pattern, written as for KEYS; by default all holds.");

/// `[COUNT count | RESET]`
pub(super) const ROWS_OR_RESET: Arg = Arg::positional(
    "what",
    "COUNT or RESET",
    Kind::OneOf(&[
        count_to("rows", MAX_LOG_COUNT)
            .once()
            .means("How many rows to list; 10 by default."),
        Arg::flag("RESET", "reset", Flag::Reset)
            .once()
            .means("Drop all rows."),
    ]),
)
.optional()
.means("How many rows to list, or that all be dropped.");

/// `[EX seconds | PX milliseconds]`: how long the hold lasts unless it is renewed.
pub(super) const LEASE: Arg = Arg::positional(
    "duration",
    "EX or PX",
    Kind::OneOf(&[
        seconds(Max::Setting(BoundSetting::MaxLeaseMs)).means("The lease in seconds."),
        milliseconds(Max::Setting(BoundSetting::MaxLeaseMs)).means("The lease in milliseconds."),
    ]),
)
.optional()
.means("How long the hold lasts unless it is renewed; dsync.default-lease-ms by default.");

/// The same of RENEW.
pub(super) const NEW_LEASE: Arg =
    LEASE.means("How long the hold lasts from now on; by default as long as its last lease.");

/// `[EX seconds | PX milliseconds | PERSIST]`: how long the result is kept.
pub(super) const KEEP: Arg = Arg::positional(
    "duration",
    "EX, PX or PERSIST",
    Kind::OneOf(&[
        seconds(Max::Fixed(MAX_KEEP_MS)).means("How many seconds the result is kept."),
        milliseconds(Max::Fixed(MAX_KEEP_MS)).means("How many milliseconds the result is kept."),
        Arg::flag("PERSIST", "persist", Flag::Persist)
            .once()
            .means("The result is kept until the key is removed."),
    ]),
)
.optional()
.means("How long the result is kept; dsync.once-keep-ms by default.");

const fn option(word: &'static str, name: &'static str, kind: Kind) -> Arg {
    Arg::option(word, name, kind)
}

const fn seconds(max: Max) -> Arg {
    duration("EX", "seconds", 1_000, max)
}

const fn milliseconds(max: Max) -> Arg {
    duration("PX", "milliseconds", 1, max)
}

const fn duration(word: &'static str, unit: &'static str, factor: u64, max: Max) -> Arg {
    let integer = IntegerSpec {
        into: Number::Duration,
        unit,
        factor,
        min: 1,
        max,
    };
    option(word, unit, Kind::Integer(integer)).once()
}

const fn number(into: Number, unit: &'static str, min: u64) -> IntegerSpec {
    IntegerSpec::new(into, unit, min, MAX_PERMITS as u64)
}

const fn text(into: Text, min: u64, max: u64) -> Kind {
    Kind::Text(TextSpec {
        into,
        min,
        max: Max::Fixed(max),
        is_secret: false,
    })
}

/// A text as long as `dsync.max-result-bytes` allows.
const fn large_text(into: Text) -> Kind {
    Kind::Text(TextSpec {
        into,
        min: 0,
        max: Max::Setting(BoundSetting::MaxResultBytes),
        is_secret: false,
    })
}

const fn count(unit: &'static str) -> Arg {
    count_to(unit, MAX_COUNT)
}

const fn count_to(unit: &'static str, max: u64) -> Arg {
    let integer = IntegerSpec::new(Number::Count, unit, 1, max);
    option("COUNT", "count", Kind::Integer(integer))
}
