//! DSEM: semaphores. RELEASE, RENEW, CHECK, REVOKE and INFO are in `holding`.

use super::CommandResult;
use super::acquire::{REQUEST_COMPLEXITY, REQUEST_PROPERTIES, acquire};
use super::arguments::{
    EPHEMERAL, KEY, LEASE, LIMIT, OWNER, PERMITS, PINNED, TOKEN_OPTION, WAITING,
};
use super::grammar::Number;
use super::replies::{
    Form, GRANT, MISMATCH, NO_LIMIT, QUEUE_FULL, ReplyForm, SYNTAX, TOO_MANY, UNBLOCKED,
    WRONG_TYPE, queued,
};
use super::row::{Call, CommandName, Properties, Row, Run, User};
use crate::module::redis::docs::KeyUse;
use crate::module::run::run;
use dsync_engine::Family;
use dsync_engine::types::Claim;

/// ```text
/// DSEM.ACQUIRE key [LIMIT limit] [PERMITS permits] [EX seconds | PX milliseconds]
///     [BLOCK milliseconds | QUEUE milliseconds] [TOKEN token] [EPHEMERAL] [OWNER text]
/// ```
pub(super) const ACQUIRE: Row = Row {
    name: CommandName::of(Family::Semaphore, "ACQUIRE"),
    summary: "Acquires a hold of permits of {key}, and may wait for it.",
    properties: REQUEST_PROPERTIES,
    args: &[
        KEY,
        LIMIT,
        PERMITS,
        LEASE,
        WAITING,
        TOKEN_OPTION,
        EPHEMERAL,
        OWNER,
    ],
    replies: &[
        ReplyForm {
            when: "granted",
            form: GRANT,
            before: &[],
            example: "jobs:1 LIMIT 2 TOKEN a-41",
        },
        ReplyForm {
            when: "too few permits are available or others wait, and there is no BLOCK or it ran out",
            form: Form::Null,
            before: &["{hold}"],
            example: "jobs:1 LIMIT 2 PERMITS 2 TOKEN b-72",
        },
        queued("jobs:1 LIMIT 2 PERMITS 2 TOKEN b-72 QUEUE 30000"),
    ],
    errors: &[
        SYNTAX,
        WRONG_TYPE,
        MISMATCH.by(&["{hold}"], "jobs:1 PERMITS 2 TOKEN a-41"),
        NO_LIMIT.by(&[], "jobs:1 TOKEN a-41"),
        TOO_MANY.by(&["{hold}"], "jobs:1 PERMITS 3 TOKEN b-72"),
        QUEUE_FULL,
        UNBLOCKED,
    ],
    run: Run::OnKey(Family::Semaphore, |call| {
        let permits = call.parsed.number_u32(Number::Permits).unwrap_or(1);
        acquire(call, Claim::Permits(permits))
    }),
};

/// ```text
/// DSEM.LIMIT key limit | NONE
/// ```
pub(super) const PIN: Row = Row {
    name: CommandName::of(Family::Semaphore, "LIMIT"),
    summary: "Pins or unpins the limit of {key}, and returns the limit that was in force before.",
    properties: Properties {
        since: "0.1.0",
        complexity: REQUEST_COMPLEXITY,
        flags: c"write deny-oom",
        key: KeyUse::ReadsAndChanges,
        tips: "",
        users: &[User::Operator],
    },
    args: &[KEY, PINNED],
    replies: &[ReplyForm {
        when: "always: the limit in force before, -1 where there was none",
        form: Form::Integer,
        before: &["{hold}"],
        example: "jobs:1 3",
    }],
    errors: &[SYNTAX, WRONG_TYPE],
    run: Run::OnKey(Family::Semaphore, pin),
};

fn pin(call: &Call<'_>) -> CommandResult {
    let pinned = call.parsed.number_u32(Number::Limit);
    let before = run(call.ctx, &call.key, |engine, key, now| {
        engine.pin_limit(key, pinned, now)
    })??;
    call.ctx.integer(before.map_or(-1, i64::from));
    Ok(())
}
