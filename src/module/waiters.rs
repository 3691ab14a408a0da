//! The clients that wait: from the moment they are parked to the one reply each of them gets.
//!
//! A waiter's answer is decided once, by the engine, and then written once, by the server's callback.
//! In between the connection may turn out to be closed: a grant that was decided in this turn of the
//! event loop, and whose connection is closed before the turn's replies are written, was never
//! delivered and goes back.
//!
//! Grants that are made at once are not looked after in this way: the same event, in the same turn, is what
//! a QUIT behind the request looks like, whose client has been told and may go on from elsewhere.
//!
//! The server tells of closed connections in the middle of whatever it is doing, a script even. So what
//! happens then is memory only; keys are touched from the timer.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::redis::blocked::{self, Hooks, ParkedClient};
use super::redis::context::Ctx;
use super::redis::shadow::shadow_name;
use super::{SHELL, arm, reply};
use dsync_engine::Reply;
use dsync_engine::answer::Answer;
use dsync_engine::effect::{HandedOver, Wake};
use dsync_engine::types::{ClientId, WaiterId};

/// A client between parking and its reply.
struct Parked {
    /// Until it is released.
    handle: Option<ParkedClient>,
    client: ClientId,
    answer: Option<Answer>,
}

#[derive(Default)]
pub(super) struct Waiters {
    parked: BTreeMap<WaiterId, Parked>,
    /// The grants of this turn whose replies are not written yet.
    in_flight: BTreeMap<ClientId, HandedOver>,
}

/// Answers the request of the running command: now, or by letting its client wait.
pub(crate) fn respond(ctx: Ctx<'_>, key: &[u8], reply: Reply) {
    match reply {
        Reply::Now(answer) => reply::answer(ctx, &answer),
        Reply::Queued(waiter) => {
            // Some clients cannot be parked; theirs was a try, then.
            if !park(ctx, key, waiter) {
                reply::answer(ctx, &Answer::NotGranted);
                arm::arm(ctx);
            }
        }
    }
}

/// Parks the client of the running command; its reply comes when its waiter is woken. False when this
/// client cannot wait: it is then no waiter any more, and is told so like a try.
fn park(ctx: Ctx<'_>, key: &[u8], waiter: WaiterId) -> bool {
    let mut name = Vec::new();
    shadow_name(key, &mut name);
    // In the table before the server knows: whatever calls back finds it.
    let client = ClientId(ctx.client_id());
    let parked = Parked {
        handle: None,
        client,
        answer: None,
    };
    SHELL.with(|shell| shell.waiters.parked.insert(waiter, parked));
    let handle = blocked::park::<Waiters>(ctx, &name, waiter.0);
    let is_parked = handle.is_some();
    SHELL.with(|shell| {
        if is_parked {
            if let Some(parked) = shell.waiters.parked.get_mut(&waiter) {
                parked.handle = handle;
            }
        } else {
            shell.waiters.parked.remove(&waiter);
            shell.engine.leave(waiter);
        }
    });
    is_parked
}

/// Gives the waiter its answer.
pub(super) fn deliver(wake: Wake) {
    let handle = SHELL.with(|shell| {
        let parked = shell.waiters.parked.get_mut(&wake.waiter)?;
        if let Some(grant) = wake.grant {
            shell.waiters.in_flight.insert(parked.client, grant);
        }
        parked.answer = Some(wake.answer);
        parked.handle.take()
    });
    // Outside of the borrow: the server may ask for the answer before this returns.
    if let Some(handle) = handle {
        handle.release();
    }
}

/// The replies of the last turn are written.
pub(super) fn turn_is_over() {
    SHELL.with(|shell| shell.waiters.in_flight.clear());
}

/// The connection is gone.
pub(super) fn disconnected(client: ClientId) {
    let concerned = SHELL.with(|shell| {
        let now = shell.now();
        let undelivered = shell.waiters.in_flight.remove(&client);
        if let Some(grant) = undelivered {
            shell.engine.undelivered(grant, client, true, now);
        }
        shell.engine.disconnected(client, now) || undelivered.is_some()
    });
    if concerned {
        arm::arm_soon();
    }
}

impl Hooks for Waiters {
    /// The server asks for the reply. Without a decided answer it is CLIENT UNBLOCK that asks.
    fn answer(ctx: Ctx<'_>, waiter: NonZeroU64) {
        let waiter = WaiterId(waiter);
        let decided = SHELL.with(|shell| {
            let decided = shell
                .waiters
                .parked
                .get_mut(&waiter)
                .and_then(|parked| parked.answer.take());
            if decided.is_none() {
                shell.engine.leave(waiter);
            }
            decided
        });
        match decided {
            Some(answer) => reply::answer(ctx, &answer),
            None => {
                ctx.null();
                arm::arm(ctx);
            }
        }
    }

    /// CLIENT UNBLOCK … ERROR, or the core has turned the client away (MOVED, a change of role): it waits no
    /// more. Where its connection has closed, [`disconnected`] came first.
    fn left(waiter: NonZeroU64) {
        let waiter = WaiterId(waiter);
        SHELL.with(|shell| {
            let now = shell.now();
            shell.engine.leave(waiter);
            // Granted in this very turn, and turned away all the same: the grant was not delivered.
            let client = shell
                .waiters
                .parked
                .get(&waiter)
                .map(|parked| parked.client);
            if let Some(client) = client
                && let Some(grant) = shell.waiters.in_flight.remove(&client)
            {
                shell.engine.undelivered(grant, client, false, now);
            }
        });
        arm::arm_soon();
    }

    fn gone(waiter: NonZeroU64) {
        let parked = SHELL.with(|shell| {
            shell.engine.leave(WaiterId(waiter));
            shell.waiters.parked.remove(&WaiterId(waiter))
        });
        // Outside of the borrow: dropping the handle calls the server.
        drop(parked);
    }
}
