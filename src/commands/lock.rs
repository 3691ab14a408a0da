//! DLOCK: locks. RELEASE, RENEW, CHECK, REVOKE and INFO are in `holding`.

use super::acquire::{REQUEST_PROPERTIES, acquire};
use super::arguments::{EPHEMERAL, KEY, LEASE, MINHOLD, OWNER, SHARED, TOKEN_OPTION, WAITING};
use super::grammar::Flag;
use super::row::{Call, CommandName, CommandResult, Row, Run};
use dsync_engine::Family;
use dsync_engine::types::Claim;

/// ```text
/// DLOCK.ACQUIRE key [SHARED] [EX seconds | PX milliseconds] [BLOCK milliseconds | QUEUE milliseconds]
///     [TOKEN token] [EPHEMERAL] [OWNER text] [MINHOLD milliseconds]
/// ```
pub(super) const ACQUIRE: Row = Row {
    name: CommandName::of(Family::Lock, "ACQUIRE"),
    summary: "Acquires a hold of {key}, exclusive or shared, and may wait for it.",
    properties: REQUEST_PROPERTIES,
    args: &[
        KEY,
        SHARED,
        LEASE,
        WAITING,
        TOKEN_OPTION,
        EPHEMERAL,
        OWNER,
        MINHOLD,
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
