//! DONCE: work that is done once. RELEASE, RENEW, CHECK, REVOKE and INFO are in `holding`.

use std::sync::Arc;

use super::Outcome;
use super::acquire::{REQUEST, acquire};
use super::arguments::{
    BLOCK, EPHEMERAL, KEEP, KEY, LEASE, MAX, OWN_TOKEN, OWNER, REASON, RESULT, TOKEN,
};
use super::grammar::{Number, Words};
use super::replies::{Form, NO, QUEUE_FULL, ReplyForm, SYNTAX, UNBLOCKED, WRONG_TYPE, YES};
use super::row::{Call, Name, Row, Run, Terms, User};
use crate::module::redis::docs::KeyUse;
use crate::module::run::run;
use dsync_engine::Family;
use dsync_engine::types::Claim;

/// What FAIL says where the worker does not.
const NO_REASON: &[u8] = b"failed";

const STORING: &str = "O(log(N)+S) with N the number of holds and waiters and S the size of the text, for the run \
                       and for each waiter that is served (128 at most)";

/// ```text
/// DONCE.BEGIN key [MAX attempts] [EX seconds | PX milliseconds] [BLOCK milliseconds] [TOKEN token]
///     [EPHEMERAL] [OWNER text]
/// ```
pub(super) const BEGIN: Row = Row {
    name: Name::of(Family::Once, "BEGIN"),
    summary: "Begins work that is to be done once, or returns how it ended, and may wait for either.",
    terms: REQUEST,
    args: &[KEY, MAX, LEASE, BLOCK, OWN_TOKEN, EPHEMERAL, OWNER],
    replies: &[
        ReplyForm {
            when: "the work is this request's to do",
            form: Form::Array(&[
                ("RUN", Form::Word("RUN")),
                ("token", Form::Bulk),
                ("fence", Form::Integer),
                ("attempt", Form::Integer),
            ]),
            before: &[],
            example: "jobs:1 MAX 3 PX 30000 TOKEN a-41",
        },
        ReplyForm {
            when: "the work is done",
            form: Form::Array(&[
                ("DONE", Form::Word("DONE")),
                ("result", Form::Either(&[Form::Bulk, Form::Null])),
                ("attempt", Form::Integer),
            ]),
            before: &["{hold}", "DONCE.DONE jobs:1 a-41 RESULT s3://reports/7.pdf"],
            example: "jobs:1 TOKEN b-72",
        },
        ReplyForm {
            when: "the work is given up: as many attempts as MAX failed",
            form: Form::Array(&[
                ("FAILED", Form::Word("FAILED")),
                ("reason", Form::Bulk),
                ("attempts", Form::Integer),
            ]),
            before: &["{hold}", "DONCE.FAIL jobs:1 a-41"],
            example: "jobs:1 MAX 1 TOKEN b-72",
        },
        ReplyForm {
            when: "somebody runs, and there is no BLOCK or it ran out",
            form: Form::Null,
            before: &["{hold}"],
            example: "jobs:1 TOKEN b-72",
        },
    ],
    errors: &[SYNTAX, WRONG_TYPE, QUEUE_FULL, UNBLOCKED],
    run: Run::OnKey(Family::Once, |call| acquire(call, Claim::Run)),
};

/// Of DONE and FAIL.
const END: Terms = Terms {
    since: "0.1.0",
    complexity: STORING,
    flags: c"write deny-oom",
    key: KeyUse::Changes,
    tips: "",
    users: &[User::Worker],
};

/// ```text
/// DONCE.DONE key token [RESULT value] [EX seconds | PX milliseconds]
/// ```
pub(super) const DONE: Row = Row {
    name: Name::of(Family::Once, "DONE"),
    summary: "Ends a run, by its token, with the work done, and keeps the result.",
    terms: END,
    args: &[KEY, TOKEN, RESULT, KEEP],
    replies: &[
        ReplyForm {
            when: "1 when the token was believed",
            form: YES,
            before: &["{hold}"],
            example: "jobs:1 a-41 RESULT s3://reports/7.pdf EX 3600",
        },
        ReplyForm {
            when: "0 when it was not",
            form: NO,
            before: &["{hold}"],
            example: "jobs:1 b-72",
        },
    ],
    errors: &[SYNTAX, WRONG_TYPE],
    run: Run::OnKey(Family::Once, done),
};

fn done(call: &Call<'_>) -> Outcome {
    let token = call.token()?;
    let result = call.parsed.text(Words::Result).map(Arc::from);
    let keep_ms = call.parsed.number(Number::Duration);
    let believed = run(call.ctx, &call.key, |engine, key, now| {
        let keep_ms = keep_ms.unwrap_or(engine.settings.once_keep_ms);
        engine.complete(key, &token, result, keep_ms, now)
    });
    call.ctx.integer(i64::from(believed??));
    Ok(())
}

/// ```text
/// DONCE.FAIL key token [REASON text]
/// ```
pub(super) const FAIL: Row = Row {
    name: Name::of(Family::Once, "FAIL"),
    summary: "Ends a run, by its token, with the work still to be done.",
    terms: END,
    args: &[KEY, TOKEN, REASON],
    replies: &[
        ReplyForm {
            when: "1 when the token was believed",
            form: YES,
            before: &["{hold}"],
            example: "jobs:1 a-41 REASON overload",
        },
        ReplyForm {
            when: "0 when it was not",
            form: NO,
            before: &["{hold}"],
            example: "jobs:1 b-72",
        },
    ],
    errors: &[SYNTAX, WRONG_TYPE],
    run: Run::OnKey(Family::Once, fail),
};

fn fail(call: &Call<'_>) -> Outcome {
    let token = call.token()?;
    let reason = call.parsed.text(Words::Reason).unwrap_or(NO_REASON);
    let reason = Arc::from(reason);
    let ran = run(call.ctx, &call.key, |engine, key, now| {
        engine.fail(key, &token, reason, now)
    });
    call.ctx.integer(i64::from(ran??));
    Ok(())
}
