//! DONCE: work that is done once. RELEASE, RENEW, CHECK, REVOKE and INFO are in `holding`.

use std::sync::Arc;

use super::acquire::{REQUEST_PROPERTIES, acquire};
use super::arguments::{
    DELAY, EPHEMERAL, KEEP, KEY, LEASE, MAX, OWNER, REASON, RESULT, TOKEN, TOKEN_OPTION, WAITING,
};
use super::grammar::{Flag, Number, Text};
#[cfg(test)]
use super::manual::{Manual, Session};
use super::replies::{
    Form, NO, NO_MEMORY, QUEUE_FULL, ReplyForm, SYNTAX, UNBLOCKED, WRONG_TYPE, YES, queued,
};
use super::row::{Call, CommandName, CommandResult, Properties, Row, Run, User};
use crate::module::redis::docs::KeyUse;
use crate::module::run::{look, run};
use crate::module::{reply, settings};
use dsync_engine::Family;
use dsync_engine::families::once::Keep;
use dsync_engine::types::Claim;

/// The reason of a FAIL without REASON.
const NO_REASON: &[u8] = b"failed";

const STORE_COMPLEXITY: &str = "O(log(N)+S) with N the number of holds and waiters and S the size of the text, for the \
                                run and for each waiter that is served (128 at most)";

/// ```text
/// DONCE.BEGIN key [MAX attempts] [EX seconds | PX milliseconds] [BLOCK milliseconds | QUEUE milliseconds]
///     [TOKEN token] [EPHEMERAL] [OWNER text]
/// ```
pub(super) const BEGIN: Row = Row {
    name: CommandName::of(Family::Once, "BEGIN"),
    summary: "Begins work that must be done once, or returns how it ended, and may wait for either.",
    properties: REQUEST_PROPERTIES,
    args: &[KEY, MAX, LEASE, WAITING, TOKEN_OPTION, EPHEMERAL, OWNER],
    replies: &[
        ReplyForm {
            when: "this request has to do the work",
            form: Form::Array(&[
                ("RUN", Form::Word("RUN")),
                ("token", Form::Bulk),
                ("fence", Form::Id),
                ("attempt", Form::Integer),
            ]),
            before: &[],
            example: "jobs:1 MAX 3 PX 30000 TOKEN a-41",
        },
        ReplyForm {
            when: "the work is done",
            form: IS_DONE,
            before: &["{hold}", "DONCE.DONE jobs:1 a-41 RESULT s3://reports/7.pdf"],
            example: "jobs:1 TOKEN b-72",
        },
        ReplyForm {
            when: "the work is given up: as many attempts as MAX have failed",
            form: Form::Array(&[
                ("FAILED", Form::Word("FAILED")),
                ("reason", Form::Bulk),
                ("attempts", Form::Integer),
            ]),
            before: &["{hold}", "DONCE.FAIL jobs:1 a-41"],
            example: "jobs:1 MAX 1 TOKEN b-72",
        },
        ReplyForm {
            when: "another request runs, or a DELAY lasts, and there is no BLOCK or it ran out",
            form: Form::Null,
            before: &["{hold}"],
            example: "jobs:1 TOKEN b-72",
        },
        queued("jobs:1 TOKEN b-72 QUEUE 30000"),
    ],
    errors: &[SYNTAX, WRONG_TYPE, QUEUE_FULL, NO_MEMORY, UNBLOCKED],
    #[cfg(test)]
    manual: Manual {
        text: "Use it for work that must not be done twice: a nightly report, an import, a payment. The first \
               request is answered RUN and does the work; the others wait with `BLOCK`, or are answered null, \
               until it is done, and then get the result. When the worker fails, or its lease ends, the next in \
               line begins the next attempt.\n\n\
               A run is a hold: send [DONCE.RENEW](donce.renew.md) every third of the lease while you work, then \
               [DONCE.DONE](donce.done.md) or [DONCE.FAIL](donce.fail.md). An attempt of 2 or more says that an \
               earlier worker failed or died: it may have done a part of the work. `MAX` is the request's own: \
               when so many attempts have ended it is answered FAILED, and a later request with a greater `MAX`, \
               or without, runs.\n\n\
               A result is kept for a day (`dsync.once-keep-ms`) unless DONE says otherwise; then the next BEGIN \
               runs again. Send a fresh `TOKEN`, a UUID, with every request that waits. `QUEUE` keeps a place in \
               the queue without occupying the connection: see [waiting](../waiting.md). It needs `TOKEN` and \
               excludes `EPHEMERAL`. \
               In scripts and functions `EPHEMERAL` is an error.",
        sessions: &[
            Session {
                shows: "who waits gets the result",
                lines: &[
                    "{hold}",
                    "B> {request} BLOCK 60000",
                    "DONCE.DONE jobs:1 a-41 RESULT s3://reports/7.pdf",
                    "B",
                ],
            },
            Session {
                shows: "who waits takes over when the worker fails",
                lines: &[
                    "{hold}",
                    "B> {request} BLOCK 60000",
                    "DONCE.FAIL jobs:1 a-41 REASON disk-full",
                    "B",
                ],
            },
        ],
        see_also: &["DONCE.DONE", "DONCE.FAIL", "DONCE.RENEW", "DONCE.GET"],
    },
    run: Run::OnKey(Family::Once, |call| acquire(call, Claim::Run)),
};

/// The reply of BEGIN and GET when the work is done.
const IS_DONE: Form = Form::Array(&[
    ("DONE", Form::Word("DONE")),
    ("result", Form::Either(&[Form::Bulk, Form::Null])),
    ("attempt", Form::Integer),
]);

/// The properties of DONE and FAIL.
const END: Properties = Properties {
    since: "0.1.0",
    complexity: STORE_COMPLEXITY,
    flags: c"write deny-oom",
    key: KeyUse::Changes,
    tips: "",
    users: &[User::Worker],
};

/// ```text
/// DONCE.DONE key token [RESULT value] [EX seconds | PX milliseconds | PERSIST]
/// ```
pub(super) const DONE: Row = Row {
    name: CommandName::of(Family::Once, "DONE"),
    summary: "Ends a run, by its token, records the work as done, and keeps the result.",
    properties: END,
    args: &[KEY, TOKEN, RESULT, KEEP],
    replies: &[
        ReplyForm {
            when: "1 when the work is recorded as done",
            form: YES,
            before: &["{hold}"],
            example: "jobs:1 a-41 RESULT s3://reports/7.pdf EX 3600",
        },
        ReplyForm {
            when: "0 when the token has no run that can complete the work",
            form: NO,
            before: &["{hold}"],
            example: "jobs:1 b-72",
        },
    ],
    errors: &[SYNTAX, WRONG_TYPE],
    #[cfg(test)]
    manual: Manual {
        text: "Records that the work is done: everybody who waits, and every later BEGIN, is answered DONE with \
               the result. It is kept for `EX` or `PX`, by default for `dsync.once-keep-ms`, a day; then the work \
               may be done again. **For what must never happen twice use `PERSIST`**: the result is kept until \
               the key is removed.\n\n\
               Repeat it with the same token until an answer comes. A repetition is answered 1 and changes \
               nothing, also not the result or its time. After a lapse DONE is still accepted as long as no newer \
               attempt has begun and nobody was told FAILED.",
        sessions: &[Session {
            shows: "a repetition changes nothing",
            lines: &[
                "{hold}",
                "DONCE.DONE jobs:1 a-41 RESULT first",
                "DONCE.DONE jobs:1 a-41 RESULT second",
                "DONCE.GET jobs:1",
            ],
        }],
        see_also: &["DONCE.BEGIN", "DONCE.FAIL", "DONCE.GET"],
    },
    run: Run::OnKey(Family::Once, done),
};

fn done(call: &Call<'_>) -> CommandResult {
    let token = call.token()?;
    let result = call.parsed.text(Text::Result).map(Arc::from);
    let keep = match call.parsed.number(Number::Duration) {
        _ if call.parsed.has(Flag::Persist) => Keep::Forever,
        Some(ms) => Keep::ForMs(ms),
        None => Keep::ForMs(settings::once_keep_ms()),
    };
    let was_accepted = run(call.ctx, &call.key, |visit| {
        visit.complete(&token, result, keep)
    });
    call.ctx.integer(i64::from(was_accepted??));
    Ok(())
}

/// ```text
/// DONCE.FAIL key token [REASON text] [DELAY milliseconds]
/// ```
pub(super) const FAIL: Row = Row {
    name: CommandName::of(Family::Once, "FAIL"),
    summary: "Ends a run, by its token, as failed: the work remains to be done.",
    properties: END,
    args: &[KEY, TOKEN, REASON, DELAY],
    replies: &[
        ReplyForm {
            when: "1 when the run ended as failed",
            form: YES,
            before: &["{hold}"],
            example: "jobs:1 a-41 REASON overload DELAY 1000",
        },
        ReplyForm {
            when: "0 when the token has no run",
            form: NO,
            before: &["{hold}"],
            example: "jobs:1 b-72",
        },
    ],
    errors: &[SYNTAX, WRONG_TYPE],
    #[cfg(test)]
    manual: Manual {
        text: "Ends an attempt that failed: the next in line begins the next attempt at once. The reason is what \
               a BEGIN that finds its `MAX` reached is told, and what INFO shows.\n\n\
               A job that fails at once is begun again at once, thousands of times a second. With `DELAY` the \
               server lets nobody begin before so long has passed: requests with `BLOCK` wait, tries are answered \
               null, and who has reached `MAX` is answered FAILED at once. For a delay that grows, compute it \
               from the attempt that BEGIN answered. A worker that merely shuts down uses \
               [DONCE.RELEASE](donce.release.md), which does not count the attempt.",
        sessions: &[Session {
            shows: "nobody begins before the delay is over",
            lines: &[
                "{hold}",
                "DONCE.FAIL jobs:1 a-41 REASON overload DELAY 60000",
                "DONCE.BEGIN jobs:1 TOKEN b-72",
            ],
        }],
        see_also: &["DONCE.BEGIN", "DONCE.DONE", "DONCE.RELEASE"],
    },
    run: Run::OnKey(Family::Once, fail),
};

fn fail(call: &Call<'_>) -> CommandResult {
    let token = call.token()?;
    let reason = call.parsed.text(Text::Reason).unwrap_or(NO_REASON);
    let reason = Arc::from(reason);
    let delay_ms = call.parsed.number(Number::DelayMs).unwrap_or_default();
    let was_running = run(call.ctx, &call.key, |visit| {
        visit.fail(&token, reason, delay_ms)
    });
    call.ctx.integer(i64::from(was_running??));
    Ok(())
}

/// ```text
/// DONCE.GET key
/// ```
pub(super) const GET: Row = Row {
    name: CommandName::of(Family::Once, "GET"),
    summary: "Returns the result of {key}, if the work is done, and changes nothing.",
    properties: Properties {
        since: "0.3.0",
        complexity: "O(N) with N the number of bytes of the result",
        flags: c"readonly fast",
        key: KeyUse::Reads,
        tips: "",
        users: &[User::Worker, User::Observer],
    },
    args: &[KEY],
    replies: &[
        ReplyForm {
            when: "the work is done",
            form: IS_DONE,
            before: &[
                "{hold}",
                "DONCE.DONE jobs:1 a-41 RESULT s3://reports/7.pdf PERSIST",
            ],
            example: "jobs:1",
        },
        ReplyForm {
            when: "the work is not done, or its result is not kept any more",
            form: Form::Null,
            before: &["{hold}"],
            example: "jobs:1",
        },
    ],
    errors: &[SYNTAX, WRONG_TYPE],
    #[cfg(test)]
    manual: Manual {
        text: "Looks up a result without beginning the work, also on a replica, in transactions and in scripts. A \
               result whose time is up is not told, although its key may still be there for a moment. Null does \
               not say whether somebody is at work: that is in [DONCE.INFO](donce.info.md).",
        sessions: &[],
        see_also: &["DONCE.BEGIN", "DONCE.DONE", "DONCE.INFO"],
    },
    run: Run::OnKey(Family::Once, get),
};

fn get(call: &Call<'_>) -> CommandResult {
    look(call.ctx, &call.key, |look| {
        look.result().map(|answer| reply::answer(call.ctx, &answer))
    })??;
    Ok(())
}
