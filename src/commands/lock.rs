//! DLOCK: locks. RELEASE, RENEW, CHECK, REVOKE and INFO are in `holding`.

use super::acquire::{REQUEST_PROPERTIES, acquire};
use super::arguments::{EPHEMERAL, KEY, LEASE, OWNER, SHARED, TOKEN_OPTION, WAITING};
use super::grammar::Flag;
#[cfg(test)]
use super::manual::{Manual, Session};
use super::replies::{
    Form, GRANT, MISMATCH, NO_MEMORY, QUEUE_FULL, ReplyForm, SYNTAX, UNBLOCKED, WRONG_TYPE, queued,
};
use super::row::{Call, CommandName, CommandResult, Row, Run};
use dsync_engine::Family;
use dsync_engine::types::Claim;

/// ```text
/// DLOCK.ACQUIRE key [SHARED] [EX seconds | PX milliseconds] [BLOCK milliseconds | QUEUE milliseconds]
///     [TOKEN token] [EPHEMERAL] [OWNER text]
/// ```
pub(super) const ACQUIRE: Row = Row {
    name: CommandName::of(Family::Lock, "ACQUIRE"),
    summary: "Acquires a hold of {key}, exclusive or shared, and may wait for it.",
    properties: REQUEST_PROPERTIES,
    args: &[KEY, SHARED, LEASE, WAITING, TOKEN_OPTION, EPHEMERAL, OWNER],
    replies: &[
        ReplyForm {
            when: "granted",
            form: GRANT,
            before: &[],
            example: "jobs:1 PX 30000 TOKEN a-41",
        },
        ReplyForm {
            when: "others hold or wait, and there is no BLOCK or it ran out",
            form: Form::Null,
            before: &["{hold}"],
            example: "jobs:1 SHARED TOKEN b-72",
        },
        queued("jobs:1 TOKEN b-72 QUEUE 30000"),
    ],
    errors: &[
        SYNTAX,
        WRONG_TYPE,
        MISMATCH.by(&["{hold}"], "jobs:1 SHARED TOKEN a-41"),
        QUEUE_FULL,
        NO_MEMORY,
        UNBLOCKED,
    ],
    #[cfg(test)]
    manual: Manual {
        text: "Use it so that one client at a time works on something, or with `SHARED` any number of readers and \
               no writer. With `BLOCK` the request waits in the server, first come, first served. Without, it is \
               a try: it fails while others hold or wait.\n\n\
               Send a fresh `TOKEN`, a UUID, with every request that waits. Client libraries send a command again \
               when its reply is late, and only the token says that both are one request: it gets the place, or \
               the hold, that it had. Keep the fence, and let the resource that you protect refuse a lower one: a \
               client that slept past its lease does not know that it is late. While you work, send \
               [DLOCK.RENEW](dlock.renew.md) every third of the lease.\n\n\
               `QUEUE` keeps a place in the queue without occupying the connection: see [waiting](../waiting.md). \
               It needs `TOKEN` and excludes `EPHEMERAL`. \
               In scripts and functions `EPHEMERAL` is an error.",
        sessions: &[
            Session {
                shows: "granted after waiting",
                lines: &[
                    "{hold}",
                    "B> {request} BLOCK 60000",
                    "DLOCK.RELEASE jobs:1 a-41",
                    "B",
                ],
            },
            Session {
                shows: "the same request again finds its hold",
                lines: &["{hold}", "{hold}"],
            },
            Session {
                shows: "two shared holds",
                lines: &[
                    "DLOCK.ACQUIRE jobs:1 SHARED TOKEN a-41",
                    "DLOCK.ACQUIRE jobs:1 SHARED TOKEN b-72",
                ],
            },
            Session {
                shows: "the same token with QUEUE: its place is kept, and the connection that waits is told",
                lines: &[
                    "{hold}",
                    "B> {request} BLOCK 60000",
                    "{request} QUEUE 30000",
                    "B",
                ],
            },
        ],
        see_also: &["DLOCK.RENEW", "DLOCK.RELEASE", "DLOCK.CHECK", "DLOCK.INFO"],
    },
    run: Run::OnKey(Family::Lock, run),
};

fn run(call: &Call<'_>) -> CommandResult {
    let claim = if call.parsed.has(Flag::Shared) {
        Claim::Shared
    } else {
        Claim::Exclusive
    };
    acquire(call, claim)
}
