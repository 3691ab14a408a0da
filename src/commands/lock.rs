//! DLOCK: locks. RELEASE, RENEW, CHECK, REVOKE and INFO are in `holding`.

use super::CommandResult;
use super::acquire::{REQUEST_PROPERTIES, acquire};
use super::arguments::{EPHEMERAL, KEY, LEASE, OWNER, SHARED, TOKEN_OPTION, WAITING};
use super::grammar::Flag;
use super::replies::{
    Form, GRANT, MISMATCH, QUEUE_FULL, ReplyForm, SYNTAX, UNBLOCKED, WRONG_TYPE, queued,
};
use super::row::{Call, CommandName, Row, Run};
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
        UNBLOCKED,
    ],
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
