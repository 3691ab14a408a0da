//! The forms of replies and the errors that several rows of the table have, each written once.

use super::grammar::{ErrorCode, Form, ReplyForm};
use Form::{Array, Bulk, Either, Integer, Is, List, Map, Null, Word};

/// `[token, fence]`
pub(super) const GRANT: Form = Array(&[("token", Bulk), ("fence", Integer)]);

/// The command took effect.
pub(super) const YES: Form = Is(1);

/// The command found nothing to do.
pub(super) const NO: Form = Is(0);

pub(super) const SYNTAX: ErrorCode = ErrorCode::new(
    "ERR",
    "a syntax error or a value out of bounds; the text names the option, the value and the bound",
);

pub(super) const WRONG_TYPE: ErrorCode =
    ErrorCode::new("WRONGTYPE", "the key holds something else");

pub(super) const MISMATCH: ErrorCode = ErrorCode::new(
    "MISMATCH",
    "the token holds or waits for this key with another mode or number of permits",
);

pub(super) const NO_LIMIT: ErrorCode =
    ErrorCode::new("NOLIMIT", "no LIMIT was given and none is in force");

pub(super) const TOO_MANY: ErrorCode =
    ErrorCode::new("TOOMANY", "PERMITS is more than the limit in force");

pub(super) const QUEUE_FULL: ErrorCode = ErrorCode::new(
    "QUEUEFULL",
    "as many requests wait as dsync.max-waiters-per-key or dsync.max-waiters allows",
);

pub(super) const UNBLOCKED: ErrorCode = ErrorCode::new(
    "UNBLOCKED",
    "the request waited, and its own token asked again or released it, or CLIENT UNBLOCK ended the wait, or \
           the server became a replica",
);

/// Of WAIT, which has no token.
pub(super) const ROUND_UNBLOCKED: ErrorCode = ErrorCode::new(
    "UNBLOCKED",
    "the request waited, and the group was removed, or CLIENT UNBLOCK ended the wait, or the server became a \
           replica",
);

/// INFO of an absent key.
pub(super) const ABSENT: ReplyForm = ReplyForm {
    when: "there is no such key",
    form: Null,
    before: &[],
    example: "jobs:1",
};

const OR_NULL_TEXT: Form = Either(&[Bulk, Null]);
const OR_NULL_NUMBER: Form = Either(&[Integer, Null]);
/// A replica knows no waiters and says so in words.
const OR_UNKNOWN: Form = Either(&[Integer, Bulk]);

macro_rules! holders {
    ($claim:expr) => {
        List(&Map(&[
            ("fence", Integer),
            ("owner", OR_NULL_TEXT),
            ("client", OR_NULL_NUMBER),
            ("lease-left-ms", Integer),
            ("held-ms", Integer),
            $claim,
        ]))
    };
}

macro_rules! waiters {
    ($claim:expr) => {
        List(&Map(&[
            ("owner", OR_NULL_TEXT),
            ("client", OR_NULL_NUMBER),
            ("age-ms", Integer),
            $claim,
        ]))
    };
}

const MODE: (&str, Form) = ("mode", Bulk);
const PERMITS: (&str, Form) = ("permits", Integer);
const HOLDERS: (&str, Form) = ("holders", Integer);
const WAITERS: (&str, Form) = ("waiters", OR_UNKNOWN);
const LONGEST_WAIT: (&str, Form) = ("longest-wait-ms", OR_UNKNOWN);
const FIRST_HOLDERS: (&str, Form) = ("first-holders", holders!(MODE));
const FIRST_WAITERS: (&str, Form) = ("first-waiters", waiters!(MODE));

pub(super) const LOCK_INFO: Form = Map(&[
    ("type", Word("lock")),
    ("state", Bulk),
    HOLDERS,
    WAITERS,
    LONGEST_WAIT,
    FIRST_HOLDERS,
    FIRST_WAITERS,
]);

pub(super) const SEMAPHORE_INFO: Form = Map(&[
    ("type", Word("semaphore")),
    ("state", Bulk),
    ("limit", OR_NULL_NUMBER),
    ("pinned-limit", OR_NULL_NUMBER),
    ("limit-changes", Integer),
    ("available", Integer),
    HOLDERS,
    WAITERS,
    LONGEST_WAIT,
    ("first-holders", holders!(PERMITS)),
    ("first-waiters", waiters!(PERMITS)),
]);

pub(super) const GROUP_INFO: Form = Map(&[
    ("type", Word("group")),
    ("state", Bulk),
    ("limit", OR_NULL_NUMBER),
    ("limit-changes", Integer),
    ("expected", OR_NULL_NUMBER),
    ("owed", Integer),
    ("done", Integer),
    ("lapsed", Integer),
    ("kept-until-unix-ms", OR_NULL_NUMBER),
    HOLDERS,
    WAITERS,
    LONGEST_WAIT,
    FIRST_HOLDERS,
    FIRST_WAITERS,
]);

pub(super) const ONCE_INFO: Form = Map(&[
    ("type", Word("once")),
    ("state", Bulk),
    ("attempts", Integer),
    ("last-reason", OR_NULL_TEXT),
    ("result-bytes", OR_NULL_NUMBER),
    ("kept-until-unix-ms", OR_NULL_NUMBER),
    HOLDERS,
    WAITERS,
    LONGEST_WAIT,
    FIRST_HOLDERS,
    FIRST_WAITERS,
]);
