//! DONCE: work that is done once. RELEASE, RENEW, CHECK, REVOKE and INFO are in `holding`.

use std::sync::Arc;

use super::acquire::{REQUEST_PROPERTIES, acquire};
use super::arguments::{
    DELAY, EPHEMERAL, KEEP, KEY, LEASE, MAX, OWNER, REASON, RESULT, TOKEN, TOKEN_OPTION, WAITING,
};
use super::grammar::{Flag, Number, Text};
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
    run: Run::OnKey(Family::Once, |call| acquire(call, Claim::Run)),
};

/// The properties of DONE and FAIL.
const END: Properties = Properties {
    since: "0.1.0",
    complexity: STORE_COMPLEXITY,
    flags: c"write",
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
    run: Run::OnKey(Family::Once, done),
};

fn done(call: &Call<'_>) -> CommandResult {
    let token = call.token()?;
    call.need_memory_for(Text::Result)?;
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
    run: Run::OnKey(Family::Once, fail),
};

fn fail(call: &Call<'_>) -> CommandResult {
    let token = call.token()?;
    call.need_memory_for(Text::Reason)?;
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
    run: Run::OnKey(Family::Once, get),
};

fn get(call: &Call<'_>) -> CommandResult {
    look(call.ctx, &call.key, |look| {
        look.result().map(|answer| reply::answer(call.ctx, &answer))
    })??;
    Ok(())
}
