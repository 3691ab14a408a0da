//! The answers of the clients that wait, from their decision to the one reply that each of them gets.
//!
//! The engine decides a waiter's answer once, and the server's reply callback writes it once. If the connection
//! closes in between, in the turn of the event loop in which a grant was decided, the grant was not delivered: it
//! ends and passes on.
//!
//! Grants that are made at once are not taken back in this way. A client that pipelines QUIT behind its request
//! causes the same event in the same turn, and that client has been told of its grant.
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
    /// The grants whose replies are not written yet. The module watches the turns while there are any.
    in_flight: BTreeMap<ClientId, HandedOver>,
    /// A waiter was granted since the server's cron last ran.
    was_granted: bool,
}

/// Takes the grant of this turn that a client was not told of.
pub(super) fn take_undelivered(client: ClientId) -> Option<HandedOver> {
    WAITERS.with(|waiters| waiters.in_flight.remove(&client))
}

/// Notes the answers that a call has decided. The waiters' clients stay parked until they are released.
#[inline(always)]
pub(super) fn decided(ctx: Ctx<'_>, wakes: &mut Vec<Wake>) {
    if !wakes.is_empty() {
        wakes.drain(..).for_each(|wake| note(ctx, wake));
    }
}

fn note(ctx: Ctx<'_>, wake: Wake) {
    let Some(client) = PARKED.decide(wake.waiter.0, wake.answer) else {
        return;
    };
    let grant = wake.grant.filter(|_| events::watch_turns(ctx));
    WAITERS.with(|waiters| {
        if let Some(grant) = grant {
            waiters.in_flight.insert(ClientId(client), grant);
            waiters.was_granted = true;
        }
        waiters.answered.push_back(wake.waiter);
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
    if !events::await_end_of_turn() && !WAITERS.with(is_armed) {
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
pub(super) fn turn_is_over(ctx: Ctx<'_>) {
    if HAS_ANSWERED.is_set() {
        events::watch_turns(ctx);
    } else {
        // `clear` would free the memory that the next grant takes again.
        WAITERS.with(|waiters| while waiters.in_flight.pop_first().is_some() {});
    }
}

/// Called by the server's cron. Releases clients whose timer is late because the wall clock has stepped back, and those
/// that the end of the turn would release, because it may not be watched any more: that stops if no waiter was granted since
/// the last call. The grants before that were forgotten in the turns since.
pub(super) fn cron(ctx: Ctx<'_>) {
    release();
    if !WAITERS.with(|waiters| std::mem::take(&mut waiters.was_granted)) {
        events::stop_watching_turns(ctx);
    }
}
