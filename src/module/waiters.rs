//! The answers of the clients that wait, from their decision to the one reply that each of them gets.
//!
//! The engine decides a waiter's answer once, and the server's reply callback writes it once. From its decision until its
//! reply is delivered (`redis::blocked` says when that is) a grant is *in flight*. If the connection closes in between,
//! the client was not told of its grant: the hold ends, and the next waiter is served. A delivered grant lives until its
//! lease ends, whatever closes the connection then: a client that has sent QUIT behind its request has read it.
//!
//! Grants that are made at once are never in flight: a client that sends QUIT behind its request is told of those too.
//!
//! How clients are parked, and what the server tells of them, is in `parking`.

use std::collections::{BTreeMap, VecDeque};

use super::listeners;
use super::redis::blocked::{self, ParkedClients};
use super::redis::context::Ctx;
use super::redis::events;
use super::redis::gil::{GilCell, GilFlag};
use super::redis::timer::{self, Timer, TimerSlot};
use dsync_engine::answer::Answer;
use dsync_engine::effect::{HandedOver, Wake};
use dsync_engine::types::{ClientId, WaiterId};

/// The clients that wait, with the answers that were decided for them.
pub(super) static PARKED: ParkedClients<Answer> = ParkedClients::new();

static WAITERS: GilCell<Waiters> = GilCell::new(Waiters::default);

/// Whether clients are to be released: a flag, because each command asks.
static HAS_ANSWERED: GilFlag = GilFlag::new();

/// The answers of this turn of the event loop.
#[derive(Default)]
struct Waiters {
    /// Those whose answers are decided and that are still to be released.
    answered: VecDeque<WaiterId>,
    /// The timer that releases them is armed.
    release_is_armed: bool,
    /// The grants that are decided and not delivered yet. A client waits for one at a time.
    in_flight: BTreeMap<ClientId, InFlight>,
}

struct InFlight {
    waiter: WaiterId,
    grant: HandedOver,
}

/// Takes the client's grant if it was not delivered before the connection closed or the server replied an error. During a
/// script (`in_lua`) an answered grant was written before the server noticed that the connection had closed.
pub(super) fn take_undelivered(client: ClientId, in_lua: bool) -> Option<HandedOver> {
    let in_flight = WAITERS.with(|waiters| waiters.in_flight.remove(&client))?;
    let is_written = in_lua && PARKED.is_answered(in_flight.waiter.0);
    (!is_written).then_some(in_flight.grant)
}

/// Notes that the server delivers the client's reply.
pub(super) fn delivered(client: ClientId) {
    WAITERS.with(|waiters| waiters.in_flight.remove(&client));
}

/// Notes the answers that a call has decided. The waiters' clients stay parked until they are released.
#[inline(always)]
pub(super) fn decided(wakes: &mut Vec<Wake>) {
    if !wakes.is_empty() {
        wakes.drain(..).for_each(note);
    }
}

fn note(wake: Wake) {
    let waiter = wake.waiter;
    let Some(client) = PARKED.decide(waiter.0, wake.answer) else {
        return;
    };
    WAITERS.with(|waiters| {
        if let Some(grant) = wake.grant {
            let in_flight = InFlight { waiter, grant };
            waiters.in_flight.insert(ClientId(client), in_flight);
        }
        waiters.answered.push_back(waiter);
    });
    HAS_ANSWERED.set(true);
}

/// Releases all clients whose answers are decided.
pub(super) fn release() {
    if !HAS_ANSWERED.set(false) {
        return;
    }
    let next = |waiters: &mut Waiters| {
        waiters.release_is_armed = false;
        waiters.answered.pop_front()
    };
    // Release after the borrow ends, because the server may ask for the answer before this returns.
    while let Some(waiter) = WAITERS.with(next) {
        if !PARKED.release(waiter.0) {
            WAITERS.with(|waiters| waiters.answered.push_front(waiter));
            HAS_ANSWERED.set(true);
            return;
        }
    }
}

/// [`release`] for a command that has written its own reply.
///
/// The server writes first to whom it has got something to write last. So the next holder is told of its grant before
/// the former one is told of its release. Replicas get something when the command is over: if there may be any, the
/// clients get their replies after that, in the same turn of the event loop. Some servers do so by themselves. Elsewhere
/// the end of the turn releases the clients, or a timer where that end is not reported in time. An AOF counts as a replica:
/// the later a client is released, the fewer commands of others can meet the defect that `redis::blocked` tells of.
// Inlined because every command passes here, and hardly one has answered a client that waits.
#[inline(always)]
pub(crate) fn release_after_reply(ctx: Ctx<'_>) {
    if HAS_ANSWERED.is_set() {
        release_in_time(ctx);
    }
}

#[inline(never)]
fn release_in_time(ctx: Ctx<'_>) {
    if listeners::is_silent() || blocked::answers_at_end_of_turn() {
        return release();
    }
    let is_armed = |waiters: &mut Waiters| std::mem::replace(&mut waiters.release_is_armed, true);
    if !events::await_end_of_turn(ctx) && !WAITERS.with(is_armed) {
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

/// Called by the server's cron. Releases clients whose timer is late because the wall clock has stepped back, and those
/// that the end of the turn would release, because it may not be watched any more.
pub(super) fn cron(ctx: Ctx<'_>) {
    release();
    events::stop_watching_if_unused(ctx);
}
