//! Parks the clients that wait, and handles what the server tells of them.
//!
//! The server reports a closed connection in the middle of other work, even of a script. So the handler changes
//! memory only, and the timer touches the keys later.

use std::num::NonZeroU64;

use super::redis::blocked::{self, Hooks, ParkedClients};
use super::redis::context::Ctx;
use super::redis::shadow::shadow_name;
use super::shell::SHELL;
use super::{reply, tick, waiters};
use dsync_engine::Reply;
use dsync_engine::answer::Answer;
use dsync_engine::types::{ClientId, WaiterId};

/// Replies to the running command, or parks its client if the request was queued.
#[inline]
pub(crate) fn respond(ctx: Ctx<'_>, key: &[u8], reply: Reply) {
    match reply {
        Reply::Now(Answer::Waiting { position, rank }) => {
            reply::waiting(ctx, key, position, rank);
        }
        Reply::Now(answer) => reply::answer(ctx, &answer),
        Reply::Queued(waiter) => {
            // A client that cannot be parked (in MULTI or a script) is answered as a try.
            if !park(ctx, key, waiter) {
                reply::answer(ctx, &Answer::NotGranted);
                tick::arm(ctx);
            }
        }
    }
}

/// Parks the client of the running command until its waiter is woken. Returns false if this client cannot wait; its
/// waiter is removed then.
fn park(ctx: Ctx<'_>, key: &[u8], waiter: WaiterId) -> bool {
    let mut name = Vec::new();
    shadow_name(key, &mut name);
    let is_parked = blocked::park::<Callbacks>(ctx, &name, waiter.0);
    if !is_parked {
        leave(waiter);
    }
    is_parked
}

/// Tells the engine that a waiter waits no more.
fn leave(waiter: WaiterId) {
    SHELL.with(|shell| {
        let now = shell.now();
        shell.engine.leave(waiter, now);
    });
}

/// Handles a connection that closed: a grant that it was not told of passes on, and its waiters leave their queues.
pub(super) fn disconnected(ctx: Ctx<'_>, client: ClientId) {
    let undelivered = waiters::take_undelivered(client, ctx.facts().in_lua());
    let concerned = SHELL.with(|shell| {
        let now = shell.now();
        if let Some(grant) = undelivered {
            shell.engine.undelivered(grant, client, true, now);
        }
        shell.engine.disconnected(client, now) || undelivered.is_some()
    });
    if concerned {
        tick::arm_soon();
    }
}

/// What the server calls for a parked client.
struct Callbacks;

impl Hooks for Callbacks {
    type Answer = Answer;

    const PARKED: &'static ParkedClients<Answer> = &waiters::PARKED;

    /// Writes the reply that the server asks for. If no answer is decided, CLIENT UNBLOCK has released the client.
    fn answer(ctx: Ctx<'_>, waiter: NonZeroU64, decided: Option<Answer>) {
        match decided {
            Some(answer) => reply::answer(ctx, &answer),
            None => {
                leave(WaiterId(waiter));
                ctx.null();
                tick::arm(ctx);
            }
        }
    }

    /// The client stopped waiting without an answer of ours: CLIENT UNBLOCK … ERROR, or the server redirected it or
    /// changed its role. If the connection has closed, [`disconnected`] was called first.
    fn left(waiter: NonZeroU64, client_id: Option<u64>) {
        leave(WaiterId(waiter));
        // The request was granted in this turn, but the client was told something else: take the grant back.
        if let Some(client) = client_id.map(ClientId)
            && let Some(grant) = waiters::take_undelivered(client, false)
        {
            SHELL.with(|shell| {
                let now = shell.now();
                shell.engine.undelivered(grant, client, false, now);
            });
        }
        tick::arm_soon();
    }

    fn gone(waiter: NonZeroU64, decided_for: Option<u64>) {
        match decided_for {
            Some(client_id) => waiters::delivered(ClientId(client_id)),
            None => leave(WaiterId(waiter)),
        }
    }
}
