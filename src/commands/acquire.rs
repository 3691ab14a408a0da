//! The one way in which ACQUIRE and ADD are carried out.

use std::ffi::CStr;

use super::options::{self, Grammar};
use super::{Outcome, leases, wrong_arity};
use crate::module::redis::args::Args;
use crate::module::redis::context::{Ctx, CtxFacts};
use crate::module::{entropy, respond, run};
use dsync_engine::types::{ClientId, Now};
use dsync_engine::{Request, Wait};

pub(super) fn acquire(
    ctx: Ctx<'_>,
    args: &Args<'_>,
    grammar: Grammar,
    name: &'static CStr,
) -> Outcome {
    redact_tokens(ctx, args);
    let Some(key) = args.name(1) else {
        return wrong_arity(name);
    };
    let options = options::parse(args, 2, grammar, leases())?;
    let facts = ctx.facts();
    let client = client(ctx, facts);
    if options.ephemeral && client == ClientId::NONE {
        return Err("ERR EPHEMERAL is not for scripts, functions and modules: \
                    they have no connection whose end could end the hold"
            .to_owned()
            .into());
    }
    let may_block = facts.may_block();
    let reply = run::run(ctx, &key, |engine, key, now| {
        let claim = options.claim(grammar);
        let may_return = options.token.is_some();
        let request = Request {
            claim,
            limit: options.limit,
            most: options.most,
            lease: options.lease,
            // Where the server forbids blocking the request is a try, as with BLPOP.
            wait: options
                .block_ms
                .filter(|_| may_block)
                .map(|ms| wait(ms, now)),
            token: options.token.unwrap_or_else(entropy::new_token),
            may_return,
            client,
            ephemeral: options.ephemeral,
            owner: options.owner,
        };
        engine.acquire(key, request, now)
    })?;
    respond(ctx, key.bytes(), reply);
    Ok(())
}

pub(super) fn wait(block_ms: u64, now: Now) -> Wait {
    match block_ms {
        0 => Wait::Forever,
        ms => Wait::Until(now.mono.after_ms(ms)),
    }
}

/// The connection that asks. A script's calls come from a client of the server's own making.
pub(super) fn client(ctx: Ctx<'_>, facts: CtxFacts) -> ClientId {
    match ctx.client_id() {
        _ if facts.in_lua() => ClientId::NONE,
        u64::MAX => ClientId::NONE,
        id => ClientId(id),
    }
}

/// Keeps the token out of MONITOR and SLOWLOG, whatever is wrong with the rest: every argument behind a
/// word TOKEN, for the word may be the value of another option.
fn redact_tokens(ctx: Ctx<'_>, args: &Args<'_>) {
    for (at, word) in args.iter().enumerate().skip(2) {
        if word.eq_ignore_ascii_case(b"TOKEN") {
            ctx.redact(at + 1);
        }
    }
}
