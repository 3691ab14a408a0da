//! The forms of replies and errors in the table, and those that several rows share.

use Form::{Array, Bulk, Either, Id, Integer, Is, Ms, Null, Word};

use dsync_engine::Family;

/// An error of the module's own that a command can reply, with a request that gets it. The example is empty if requests
/// one after the other cannot provoke the error.
#[derive(Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "for the documentation"))]
pub(super) struct ErrorCode {
    pub(super) code: &'static str,
    pub(super) when: &'static str,
    /// As in [`ReplyForm`], like `example`.
    pub(super) before: &'static [&'static str],
    pub(super) example: &'static str,
}

impl ErrorCode {
    pub(super) const fn new(code: &'static str, when: &'static str) -> ErrorCode {
        ErrorCode {
            code,
            when,
            before: &[],
            example: "",
        }
    }

    /// The same error with a request that gets it.
    pub(super) const fn by(
        self,
        before: &'static [&'static str],
        example: &'static str,
    ) -> ErrorCode {
        ErrorCode {
            before,
            example,
            ..self
        }
    }
}

/// One form of reply, when it comes, and a request that gets it.
#[derive(Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "for the documentation"))]
pub(super) struct ReplyForm {
    pub(super) when: &'static str,
    pub(super) form: Form,
    /// The lines to send before, to a server without keys. `{hold}` stands for the family's request that lets the token
    /// `a-41` hold `jobs:1`, and `{family}` for the prefix of its commands. A second connection sends the lines that
    /// begin with `B> `, and then waits.
    pub(super) before: &'static [&'static str],
    /// The arguments of the request. `{fence}` stands for the fence in the reply to the previous line.
    pub(super) example: &'static str,
}

/// The form of a reply. RESP3 has nulls and maps; in RESP2 a null is a null bulk string, and a map is a flat array of
/// names and values.
#[derive(Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "for the documentation"))]
pub(super) enum Form {
    Null,
    /// A number that follows from the requests: a count, a limit, an attempt.
    Integer,
    /// An integer: milliseconds, which depend on the moment of the request.
    Ms,
    /// An integer that the server chooses: a fence, the id of a client.
    Id,
    /// Exactly this number.
    Is(i64),
    Bulk,
    /// Exactly this text.
    Word(&'static str),
    /// Exactly this status line.
    Status(&'static str),
    /// These elements. Their names are for the documentation and are not sent.
    Array(&'static [(&'static str, Form)]),
    /// Any number of elements of this form.
    List(&'static Form),
    Map(&'static [(&'static str, Form)]),
    Either(&'static [Form]),
    /// A map with the fields of INFO, which are in `info`.
    Info(Family),
}

/// `[token, fence]`
pub(super) const GRANT: Form = Array(&[("token", Bulk), ("fence", Id)]);

/// The reply to a request with QUEUE that has to wait. The example is one that `{hold}` keeps waiting.
pub(super) const fn queued(example: &'static str) -> ReplyForm {
    ReplyForm {
        when: "the request waits, and its place is kept",
        form: Array(&[
            ("WAITING", Word("WAITING")),
            ("place", Integer),
            ("channel", Bulk),
        ]),
        before: &["{hold}"],
        example,
    }
}

/// The reply 1: the command took effect.
pub(super) const YES: Form = Is(1);

/// The reply 0: the command found nothing to do.
pub(super) const NO: Form = Is(0);

pub(super) const SYNTAX: ErrorCode = ErrorCode::new(
    "ERR",
    "a syntax error or a value out of bounds; the text names the option, the value and the bound",
);

pub(super) const WRONG_TYPE: ErrorCode =
    ErrorCode::new("WRONGTYPE", "the key has a value of another type");

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
    "as many requests wait as dsync.max-waiters-per-key or dsync.max-waiters allows, or half of that with QUEUE",
);

/// The error of requests for a hold. Commands that are flagged as deny-oom are refused by the server instead.
pub(super) const NO_MEMORY: ErrorCode = ErrorCode::new(
    "OOM",
    "the request needs a new hold or place, and the server has reached `maxmemory`",
);

pub(super) const UNBLOCKED: ErrorCode = ErrorCode::new(
    "UNBLOCKED",
    "the request waited, and its own token asked again or released it, or CLIENT UNBLOCK ended the wait, or \
           the server became a replica; or RELEASE had withdrawn the token shortly before the request came",
);

/// The error of WAIT, which has no token.
pub(super) const ROUND_UNBLOCKED: ErrorCode = ErrorCode::new(
    "UNBLOCKED",
    "the request waited, and the group was removed, or CLIENT UNBLOCK ended the wait, or the server became a \
           replica",
);

/// The reply of INFO if the key does not exist.
pub(super) const ABSENT: ReplyForm = ReplyForm {
    when: "the key does not exist",
    form: Null,
    before: &[],
    example: "jobs:1",
};

pub(super) const OR_NULL_TEXT: Form = Either(&[Bulk, Null]);
pub(super) const OR_NULL_NUMBER: Form = Either(&[Integer, Null]);
pub(super) const OR_NULL_MS: Form = Either(&[Ms, Null]);
pub(super) const OR_NULL_ID: Form = Either(&[Id, Null]);
