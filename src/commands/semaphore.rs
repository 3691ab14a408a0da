//! DSEM: semaphores. RELEASE, RENEW, CHECK, REVOKE and INFO are in `holding`.

use super::acquire::{REQUEST_COMPLEXITY, REQUEST_PROPERTIES, acquire};
use super::arguments::{
    EPHEMERAL, INDEX, KEY, LANE, LANE_LIMIT, LEASE, LIMIT, MINHOLD, OWNER, PERMITS, PINNED,
    TOKEN_OPTION, WAITING,
};
use super::grammar::{Flag, Number, Text};
use super::row::{Call, CommandName, CommandResult, Properties, Row, Run, User};
use crate::module::redis::docs::KeyUse;
use crate::module::run::run;
use dsync_engine::Family;
use dsync_engine::types::Claim;

/// ```text
/// DSEM.ACQUIRE key [LIMIT limit] [PERMITS permits] [EX seconds | PX milliseconds]
///     [BLOCK milliseconds | QUEUE milliseconds] [TOKEN token] [EPHEMERAL] [OWNER text]
///     [LANE lane] [LANELIMIT lane-limit] [MINHOLD milliseconds] [INDEX]
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
        LANE,
        LANE_LIMIT,
        MINHOLD,
        INDEX,
    ],
    run: Run::OnKey(Family::Semaphore, run_acquire),
};

fn run_acquire(call: &Call<'_>) -> CommandResult {
    let permits = call.parsed.number_u32(Number::Permits).unwrap_or(1);
    let lane_limit = call.parsed.number(Number::LaneLimit);
    if lane_limit.is_some() && call.parsed.text(Text::Lane).is_none() {
        let error = "ERR syntax error: LANELIMIT bounds a LANE, and none is given";
        return Err(error.to_owned().into());
    }
    match (call.parsed.has(Flag::Index), permits) {
        (false, permits) => acquire(call, Claim::Permits(permits)),
        (true, 1) => acquire(call, Claim::Indexed),
        (true, permits) => {
            Err(format!("ERR PERMITS is at most 1 with INDEX, not {permits}").into())
        }
    }
}

/// ```text
/// DSEM.LIMIT key limit | NONE
/// ```
pub(super) const PIN: Row = Row {
    name: CommandName::of(Family::Semaphore, "LIMIT"),
    summary: "Pins or unpins the limit of {key}, and returns the limit that was in force before.",
    properties: Properties {
        since: "0.1.0",
        complexity: REQUEST_COMPLEXITY,
        flags: c"write",
        key: KeyUse::ReadsAndChanges,
        tips: "",
        users: &[User::Operator],
    },
    args: &[KEY, PINNED],
    run: Run::OnKey(Family::Semaphore, pin),
};

fn pin(call: &Call<'_>) -> CommandResult {
    let pinned = call.parsed.number_u32(Number::Limit);
    if pinned.is_some() {
        call.need_memory_if_absent()?;
    }
    let before = run(call.ctx, &call.key, |visit| visit.pin_limit(pinned))??;
    call.ctx.integer(before.map_or(-1, i64::from));
    Ok(())
}
