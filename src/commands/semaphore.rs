//! DSEM: semaphores. RELEASE, RENEW, CHECK, REVOKE and INFO are in `holding`.

use super::acquire::{REQUEST_COMPLEXITY, REQUEST_PROPERTIES, acquire};
use super::arguments::{
    EPHEMERAL, KEY, LEASE, LIMIT, OWNER, PERMITS, PINNED, TOKEN_OPTION, WAITING,
};
use super::grammar::Number;
#[cfg(test)]
use super::manual::{Manual, Session};
use super::replies::{
    Form, GRANT, MISMATCH, NO_LIMIT, NO_MEMORY, QUEUE_FULL, ReplyForm, SYNTAX, TOO_MANY, UNBLOCKED,
    WRONG_TYPE, queued,
};
use super::row::{Call, CommandName, CommandResult, Properties, Row, Run, User};
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
        NO_MEMORY,
        UNBLOCKED,
    ],
    #[cfg(test)]
    manual: Manual {
        text: "Use it so that at most so many clients at a time do something: calls to an API, heavy queries, \
               large downloads. A hold takes one permit, or `PERMITS`. Requests are served first come, first \
               served: a large request is not passed by small ones behind it. Without `BLOCK` or `QUEUE` the \
               request is a try: it fails while too few permits are free or others wait.\n\n\
               Requests bring the limit along, so that a deploy can change it. It takes force once, when the \
               request is granted at once or enters the queue; without `LIMIT` the limit in force applies. An \
               operator's [DSEM.LIMIT](dsem.limit.md) outranks the limits of requests. A semaphore without holds \
               and waiters forgets its limit, so send `LIMIT` with every request.\n\n\
               Send a fresh `TOKEN`, a UUID, with every request that waits, and [DSEM.RENEW](dsem.renew.md) every \
               third of the lease while you work. `QUEUE` keeps a place in the queue without occupying the \
               connection: see [waiting](../waiting.md). It needs `TOKEN` and excludes `EPHEMERAL`. \
               In scripts and functions `EPHEMERAL` is an error.",
        sessions: &[Session {
            shows: "granted after waiting",
            lines: &[
                "DSEM.ACQUIRE jobs:1 LIMIT 1 TOKEN a-41",
                "B> DSEM.ACQUIRE jobs:1 LIMIT 1 TOKEN b-72 BLOCK 60000",
                "DSEM.RELEASE jobs:1 a-41",
                "B",
            ],
        }],
        see_also: &["DSEM.LIMIT", "DSEM.RENEW", "DSEM.RELEASE", "DSEM.INFO"],
    },
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
    #[cfg(test)]
    manual: Manual {
        text: "For operators: pins the limit of a semaphore, whatever limits the requests bring along; those are \
               only remembered meanwhile. 0 pauses the semaphore without an end: requests queue. `NONE` unpins, \
               and the last remembered limit applies again; where there is none, waiting requests are answered \
               `NOLIMIT`.\n\n\
               Raising the limit serves waiters at once. Lowering it below what is in use ends no hold: the \
               semaphore drains. A queued request for more permits than a limit of 1 or more is answered \
               `TOOMANY`. A pinned semaphore is kept while it is idle.",
        sessions: &[
            Session {
                shows: "a higher limit serves who waits",
                lines: &[
                    "DSEM.ACQUIRE jobs:1 LIMIT 1 TOKEN a-41",
                    "B> DSEM.ACQUIRE jobs:1 LIMIT 1 TOKEN b-72 BLOCK 60000",
                    "DSEM.LIMIT jobs:1 2",
                    "B",
                ],
            },
            Session {
                shows: "paused, and unpinned again",
                lines: &[
                    "DSEM.ACQUIRE jobs:1 LIMIT 2 TOKEN a-41",
                    "DSEM.LIMIT jobs:1 0",
                    "DSEM.ACQUIRE jobs:1 TOKEN b-72",
                    "DSEM.LIMIT jobs:1 NONE",
                    "DSEM.ACQUIRE jobs:1 TOKEN b-72",
                ],
            },
        ],
        see_also: &["DSEM.ACQUIRE", "DSEM.PAUSE", "DSEM.INFO"],
    },
    run: Run::OnKey(Family::Semaphore, pin),
};

fn pin(call: &Call<'_>) -> CommandResult {
    let pinned = call.parsed.number_u32(Number::Limit);
    let before = run(call.ctx, &call.key, |visit| visit.pin_limit(pinned))??;
    call.ctx.integer(before.map_or(-1, i64::from));
    Ok(())
}
