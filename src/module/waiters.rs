//! The clients that wait: from the moment they are parked to the one reply each of them gets.
//!
//! The engine decides a waiter's answer once, and the server's reply callback writes it once. If the connection
//! closes in between, in the turn of the event loop in which a grant was decided, the grant was not delivered: it
//! ends and passes on.
//!
//! Grants that are made at once are not taken back in this way. A client that pipelines QUIT behind its request
//! causes the same event in the same turn, and that client has been told of its grant.
//!
//! The server reports a closed connection in the middle of other work, even of a script. So the handler changes
//! memory only, and the timer touches the keys later.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;

use super::redis::blocked::{self, Hooks, ParkedClient};
use super::redis::context::Ctx;
use super::redis::events;
use super::redis::shadow::shadow_name;
use super::redis::timer::{self, Timer, TimerSlot};
use super::{SHELL, arm, reply};
use dsync_engine::Reply;
use dsync_engine::answer::Answer;
use dsync_engine::effect::{HandedOver, Wake};
use dsync_engine::types::{ClientId, WaiterId};

/// A client between parking and its reply.
struct Parked {
    /// None before the client is parked and after it is released.
    handle: Option<ParkedClient>,
    client: ClientId,
    /// The engine's answer, from its decision until the reply is written.
    answer: Option<Answer>,
}

/// All clients that wait, and the grants that may be undelivered.
#[derive(Default)]
pub(super) struct WaitingClients {
    parked: BTreeMap<WaiterId, Parked>,
    /// The clients whose answers are decided and that are still to be released, in this turn of the event loop.
    answered: VecDeque<ParkedClient>,
    /// The timer that releases them is armed.
    release_is_armed: bool,
    /// The grants of this turn of the event loop whose replies are not written yet. The module watches the turns while
    /// there are any.
    in_flight: BTreeMap<ClientId, HandedOver>,
    /// A waiter was granted since the server's cron last ran.
    was_granted: bool,
}

/// Replies to the running command, or parks its client if the request was queued.
pub(crate) fn respond(ctx: Ctx<'_>, key: &[u8], reply: Reply) {
    match reply {
        Reply::Now(Answer::Waiting { place, number }) => reply::waiting(ctx, key, place, number),
        Reply::Now(answer) => reply::answer(ctx, &answer),
        Reply::Queued(waiter) => {
            // A client that cannot be parked (in MULTI or a script) is answered as a try.
            if !park(ctx, key, waiter) {
                reply::answer(ctx, &Answer::NotGranted);
                arm::arm(ctx);
            }
        }
    }
}

/// Parks the client of the running command until its waiter is woken. Returns false if this client cannot wait; its
/// waiter is removed then.
fn park(ctx: Ctx<'_>, key: &[u8], waiter: WaiterId) -> bool {
    let mut name = Vec::new();
    shadow_name(key, &mut name);
    // Insert it before the server parks the client, because the server may call back at once.
    let client = ClientId(ctx.client_id());
    let parked = Parked {
        handle: None,
        client,
        answer: None,
    };
    SHELL.with(|shell| shell.waiters.parked.insert(waiter, parked));
    let handle = blocked::park::<WaitingClients>(ctx, &name, waiter.0);
    let is_parked = handle.is_some();
    SHELL.with(|shell| {
        if is_parked {
            if let Some(parked) = shell.waiters.parked.get_mut(&waiter) {
                parked.handle = handle;
            }
        } else {
            shell.waiters.parked.remove(&waiter);
            let now = shell.now();
            shell.engine.leave(waiter, now);
        }
    });
    is_parked
}

/// Notes the answers that a call has decided. The waiters' clients stay parked until they are released.
pub(super) fn decided(ctx: Ctx<'_>, wakes: &mut Vec<Wake>) {
    for wake in wakes.drain(..) {
        let grant = wake.grant.filter(|_| events::watch_turns(ctx));
        SHELL.with(|shell| {
            let Some(parked) = shell.waiters.parked.get_mut(&wake.waiter) else {
                return;
            };
            if let Some(grant) = grant {
                shell.waiters.in_flight.insert(parked.client, grant);
                shell.waiters.was_granted = true;
            }
            parked.answer = Some(wake.answer);
            shell.waiters.answered.extend(parked.handle.take());
        });
    }
}

/// Releases all clients whose answers are decided.
pub(super) fn release() {
    SHELL.with(|shell| shell.waiters.release_is_armed = false);
    // Release after the borrow ends, because the server may ask for the answer before this returns.
    while let Some(handle) = SHELL.with(|shell| shell.waiters.answered.pop_front()) {
        handle.release();
    }
}

/// [`release`] for a command that has written its own reply.
///
/// The server writes first to whom it has got something to write last. So the next holder is told of its grant before
/// the former one is told of its release. Replicas get something when the command is over: if there may be any, a timer
/// releases the clients after that, in the same turn of the event loop.
pub(crate) fn release_after_reply(ctx: Ctx<'_>) {
    if SHELL.with(|shell| shell.waiters.answered.is_empty()) {
        return;
    }
    if SHELL.with(|shell| shell.nobody_listens) {
        return release();
    }
    if !SHELL.with(|shell| std::mem::replace(&mut shell.waiters.release_is_armed, true)) {
        timer::start::<Release>(ctx, 0);
    }
}

/// Releases the clients after a command.
struct Release;

impl Timer for Release {
    const SLOT: &'static TimerSlot = {
        static SLOT: TimerSlot = TimerSlot::new();
        &SLOT
    };

    fn fire(_: Ctx<'_>) {
        release();
    }
}

/// Forgets the grants of the last turn, whose replies are written, unless some clients are still to be released.
pub(super) fn turn_is_over() {
    SHELL.with(|shell| {
        if shell.waiters.answered.is_empty() {
            shell.waiters.in_flight.clear();
        }
    });
}

/// Called by the server's cron. Releases clients whose timer is late because the wall clock has stepped back. Stops
/// watching the turns if no waiter was granted since the last call: the grants before that were forgotten in the turns
/// since.
pub(super) fn cron(ctx: Ctx<'_>) {
    release();
    if !SHELL.with(|shell| std::mem::take(&mut shell.waiters.was_granted)) {
        events::stop_watching_turns(ctx);
    }
}

/// Handles a connection that closed: a grant that it was not told of passes on, and its waiters leave their queues.
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

impl Hooks for WaitingClients {
    /// Writes the reply that the server asks for. If no answer is decided, CLIENT UNBLOCK has released the client.
    fn answer(ctx: Ctx<'_>, waiter: NonZeroU64) {
        let waiter = WaiterId(waiter);
        let decided = SHELL.with(|shell| {
            let decided = shell
                .waiters
                .parked
                .get_mut(&waiter)
                .and_then(|parked| parked.answer.take());
            if decided.is_none() {
                let now = shell.now();
                shell.engine.leave(waiter, now);
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

    /// The client stopped waiting without an answer of ours: CLIENT UNBLOCK … ERROR, or the server redirected it or
    /// changed its role. If the connection has closed, [`disconnected`] was called first.
    fn left(waiter: NonZeroU64) {
        let waiter = WaiterId(waiter);
        SHELL.with(|shell| {
            let now = shell.now();
            shell.engine.leave(waiter, now);
            // The request was granted in this turn, but the client was told something else: take the grant back.
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
            let now = shell.now();
            shell.engine.leave(WaiterId(waiter), now);
            shell.waiters.parked.remove(&WaiterId(waiter))
        });
        // Drop the handle after the borrow ends, because that calls the server.
        drop(parked);
    }
}
