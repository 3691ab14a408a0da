//! DWG: wait groups. RELEASE, RENEW, CHECK, REVOKE and INFO are in `holding`.

use super::acquire::{REQUEST_COMPLEXITY, REQUEST_PROPERTIES, acquire, client, wait};
use super::arguments::{
    BLOCK, EPHEMERAL, JOBS, KEY, LEASE, LIMIT, OWNER, TOKEN_OPTION, TOKENS, WAITING,
};
use super::grammar::Number;
use super::row::{Call, CommandName, CommandResult, Properties, Row, Run, User};
use crate::module::parking::respond;
use crate::module::redis::docs::KeyUse;
use crate::module::reply::count;
use crate::module::run::run;
use dsync_engine::Family;
use dsync_engine::types::{Claim, Token};

/// ```text
/// DWG.ADD key [LIMIT limit] [EX seconds | PX milliseconds] [BLOCK milliseconds | QUEUE milliseconds]
///     [TOKEN token] [EPHEMERAL] [OWNER text]
/// ```
pub(super) const ADD: Row = Row {
    name: CommandName::of(Family::Group, "ADD"),
    summary: "Adds a member to {key}, and may wait until there is room.",
    properties: REQUEST_PROPERTIES,
    args: &[KEY, LIMIT, LEASE, WAITING, TOKEN_OPTION, EPHEMERAL, OWNER],
    run: Run::OnKey(Family::Group, |call| acquire(call, Claim::Member)),
};

/// ```text
/// DWG.DONE key token [token ...]
/// ```
pub(super) const DONE: Row = Row {
    name: CommandName::of(Family::Group, "DONE"),
    summary: "Ends members of {key}, by their tokens, and counts their jobs as done.",
    properties: Properties {
        since: "0.1.0",
        complexity: "O(M*log(N)) with M the number of tokens and N the number of holds and waiters, and O(log(N)) \
                 for each waiter that is served (128 at most)",
        flags: c"write fast",
        key: KeyUse::Removes,
        tips: "",
        users: &[User::Worker],
    },
    args: &[KEY, TOKENS],
    run: Run::OnKey(Family::Group, done),
};

fn done(call: &Call<'_>) -> CommandResult {
    let tokens: Vec<Token> = call.args.iter().skip(2).filter_map(Token::parse).collect();
    let ended = run(call.ctx, &call.key, |visit| visit.done(&tokens))??;
    call.ctx.integer(count(ended));
    Ok(())
}

/// ```text
/// DWG.WAIT key [BLOCK milliseconds]
/// ```
///
/// Flagged as a write because it ends overdue holds that it finds, and their end is replicated. So replicas refuse it.
pub(super) const WAIT: Row = Row {
    name: CommandName::of(Family::Group, "WAIT"),
    summary: "Returns how many members were done and lapsed once the round of {key} is finished, and may wait for that.",
    properties: Properties {
        since: "0.1.0",
        complexity: REQUEST_COMPLEXITY,
        flags: c"write blocking",
        key: KeyUse::ReadsAndChanges,
        tips: "",
        users: &[User::Worker],
    },
    args: &[KEY, BLOCK],
    run: Run::OnKey(Family::Group, wait_for_all),
};

fn wait_for_all(call: &Call<'_>) -> CommandResult {
    let facts = call.ctx.facts();
    let block_ms = call
        .parsed
        .number(Number::BlockMs)
        .filter(|_| facts.may_block());
    let client = client(call.ctx, facts);
    let reply = run(call.ctx, &call.key, |visit| {
        visit.wait(block_ms.map(|ms| wait(ms, visit.now())), client)
    })?;
    respond(call.ctx, call.key.bytes(), reply);
    Ok(())
}

/// ```text
/// DWG.EXPECT key jobs
/// ```
pub(super) const EXPECT: Row = Row {
    name: CommandName::of(Family::Group, "EXPECT"),
    summary: "Declares how many jobs the round of {key} has, and returns how many are still owed.",
    properties: Properties {
        since: "0.1.0",
        complexity: REQUEST_COMPLEXITY,
        flags: c"write",
        key: KeyUse::ReadsAndChanges,
        tips: "",
        users: &[User::Worker],
    },
    args: &[KEY, JOBS],
    run: Run::OnKey(Family::Group, expect),
};

fn expect(call: &Call<'_>) -> CommandResult {
    let jobs = call.parsed.required_number();
    let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
    call.need_memory_if_absent()?;
    let owed = run(call.ctx, &call.key, |visit| visit.expect(jobs))??;
    call.ctx.integer(count(owed));
    Ok(())
}
