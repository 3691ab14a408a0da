//! What ACQUIRE, ADD and BEGIN, the commands that ask for a hold, have in common. WAIT of groups uses parts of it.

use super::grammar::{Flag, Number, Text};
use super::row::{Call, CommandResult, Properties, User};
use crate::module::parking::respond;
use crate::module::redis::context::{Ctx, CtxFacts};
use crate::module::redis::docs::KeyUse;
use crate::module::redis::probe;
use crate::module::{entropy, reply, run, settings};
use dsync_engine::answer::Answer;
use dsync_engine::types::{Claim, ClientId, LeaseMs, MonoUs, Now, Token};
use dsync_engine::{LaneName, Refusal, Reply, Request};

/// The logarithms come from ordered maps: each key has its holds by fence, by token and by deadline, and its queue by
/// rank and by token. The server has all waiters by request, by connection and by deadline, and all EPHEMERAL holds.
pub(super) const REQUEST_COMPLEXITY: &str = "O(log(N)) with N the number of holds and waiters, for the request, \
                                             for each waiter that is served (128 at most) and each overdue hold \
                                             that is ended (1,024 at most)";

/// The properties of the commands that ask for a hold.
pub(super) const REQUEST_PROPERTIES: Properties = Properties {
    since: "0.1.0",
    complexity: REQUEST_COMPLEXITY,
    // Not deny-oom: without memory only a new hold or place is refused, see `may_grow`.
    flags: c"write blocking",
    key: KeyUse::ReadsAndChanges,
    tips: "nondeterministic_output",
    users: &[User::Worker],
};

/// Asks the engine for a hold with this claim, and replies, or parks the client if the request was queued.
pub(super) fn acquire(call: &Call<'_>, claim: Claim) -> CommandResult {
    ask(call, claim, false)
}

/// [`acquire`] where the server's flags say that memory is short, but the server refuses no command for that.
#[cold]
#[inline(never)]
fn ask_with_room(call: &Call<'_>, claim: Claim) -> CommandResult {
    ask(call, claim, true)
}

/// `has_room` says that there is memory for a new hold or place, whatever the server's flags say.
fn ask(call: &Call<'_>, claim: Claim, has_room: bool) -> CommandResult {
    let Call { ctx, parsed, .. } = *call;
    let ephemeral = parsed.has(Flag::Ephemeral);
    if ephemeral && client(ctx, ctx.facts()) == ClientId::NONE {
        return Err("ERR EPHEMERAL is not for scripts, functions and modules: \
                    they have no connection whose end could end the hold"
            .to_owned()
            .into());
    }
    let keep_ms = parsed.number_u32(Number::QueueMs);
    let token = parsed.text(Text::Token);
    if keep_ms.is_some() && token.is_none() {
        return Err(
            "ERR syntax error: QUEUE keeps the place for a TOKEN, and none is given"
                .to_owned()
                .into(),
        );
    }
    if keep_ms.is_some() && ephemeral {
        return Err("ERR syntax error: QUEUE and EPHEMERAL exclude each other: \
                    a place that is kept belongs to no connection"
            .to_owned()
            .into());
    }
    let lease = parsed.number_u32(Number::Duration).map(LeaseMs);
    let lease = lease.unwrap_or_else(settings::default_lease);
    // An empty OWNER means no owner.
    let owner = parsed.text(Text::Owner).filter(|text| !text.is_empty());
    let block_ms = parsed.number(Number::BlockMs);
    let reply = run::run(ctx, &call.key, |visit| {
        let is_try = keep_ms.is_none() && token.is_none();
        // Most tries are refused, so what only a grant needs is found out behind this: the facts, and a new token.
        if is_try && block_ms.is_none() && visit.refuses(claim) {
            return Reply::Now(Answer::NotGranted);
        }
        // The server answers this without calling back, so it may be asked while the engine is borrowed.
        let facts = ctx.facts();
        let own = token.and_then(Token::parse);
        let request = Request {
            claim,
            limit: parsed.number_u32(Number::Limit),
            bound: (parsed.number_u32(Number::Attempts)).or(parsed.number_u32(Number::LaneLimit)),
            lease,
            min_hold: parsed.number_u32(Number::MinHoldMs).map(LeaseMs),
            // Where the server forbids blocking, the request is a try, as with BLPOP.
            wait: block_ms
                .filter(|_| facts.may_block())
                .map(|ms| wait(ms, visit.now())),
            keep_ms,
            may_return: token.is_some(),
            token: own.unwrap_or_else(entropy::new_token),
            client: client(ctx, facts),
            ephemeral,
            owner: owner.map(Into::into),
            lane: LaneName::from(parsed.text(Text::Lane).unwrap_or_default()),
            may_grow: has_room || !facts.out_of_memory(),
        };
        visit.acquire(request)
    })?;
    let lacks_memory = matches!(reply, Reply::Now(Answer::Refused(Refusal::OutOfMemory)));
    // Slow to ask, so not asked unless the server's flags say that memory is short, and the request would grow.
    if lacks_memory && !has_room && !probe::denies_memory(ctx, call.key.bytes()) {
        return ask_with_room(call, claim);
    }
    match (reply, token) {
        // The client has spelled its token itself.
        (Reply::Now(Answer::Granted { fence, index, .. }), Some(token)) => {
            reply::granted(ctx, token, fence, index);
        }
        (reply, _) => respond(ctx, call.key.bytes(), reply),
    }
    Ok(())
}

/// How long a request with this BLOCK waits. 0 means without limit, as with BLPOP.
pub(super) fn wait(block_ms: u64, now: Now) -> MonoUs {
    match block_ms {
        0 => MonoUs::NEVER,
        ms => now.mono.after_ms(ms),
    }
}

/// The connection that sent the command, or `NONE` inside Lua and functions, where the server calls the command with a
/// client of its own, and for calls without a client.
pub(super) fn client(ctx: Ctx<'_>, facts: CtxFacts) -> ClientId {
    match facts.in_lua() {
        true => ClientId::NONE,
        false => ClientId(ctx.client_id()),
    }
}
