//! The renewal of all holds of a client.
//!
//! One thread, or one task, renews whatever is due in one write. Two kinds have a write of their own that nobody waits for:
//! the holds of each slot of a cluster, because a node that does not answer would otherwise keep the renewals of holds on
//! healthy nodes waiting until those are lost, too; and confirmed holds, because WAIT would do the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use std::{mem, process};

use redis::Value;

use crate::call::Call;
use crate::clock::Moment;
use crate::confirm::Failure;
use crate::half::{Half, Reply, Shared};
use crate::lease::{Asked, Renewal};
use crate::passing::tells_the_end;
use crate::request::{Command, read};
use crate::server::Slot;
use crate::signal::{Signal, lock};
use crate::times::RENEWAL_WITHIN;

/// How long the worker waits for the next look, where no hold says that it is to be sooner.
const LONGEST_SLICE: Duration = Duration::from_secs(2);

/// The holds of a client and its clones.
pub struct Renewals<H: Half> {
    state: Mutex<State<H>>,
    /// Told when there is another hold, and when a renewal was answered.
    changed: Signal,
}

struct State<H: Half> {
    holds: Vec<Weak<Shared<H>>>,
    /// When the worker looks by itself, by the clock of its wait, which stands still with the machine; `None` while it is at
    /// work.
    next: Option<Instant>,
    /// Whether the worker found no holds. It ends if it finds none again, so that a program which takes one lock after
    /// another does not start a worker for each.
    is_idle: bool,
    /// The number of the process that has the worker, which the worker keeps for as long as it lives. It may end otherwise
    /// than by itself, with its runtime for example; and a child that was forked since has none.
    worker: Weak<u32>,
}

/// The least time for the answer to a renewal.
const SHORTEST: Duration = Duration::from_millis(10);

/// What the worker finds.
struct Look<H: Half> {
    due: Due<H>,
    /// When to look again.
    next: Duration,
    /// The least time that is left of any hold.
    left: Duration,
}

impl<H: Half> Default for Renewals<H> {
    fn default() -> Self {
        let state = State {
            holds: Vec::new(),
            next: None,
            is_idle: false,
            worker: Weak::new(),
        };
        Renewals {
            state: Mutex::new(state),
            changed: Signal::default(),
        }
    }
}

impl<H: Half> Renewals<H> {
    /// Renews a hold for as long as it lives. Without a thread it lasts for one lease, and is then told as lost.
    pub(crate) fn add(self: &Arc<Self>, hold: &Arc<Shared<H>>) {
        let mut state = lock(&self.state);
        // Those that have ended make room, without which a program that takes one lock after another had all of them here.
        if state.holds.len() == state.holds.capacity() {
            state.holds.retain(|hold| hold.strong_count() > 0);
        }
        state.holds.push(Arc::downgrade(hold));
        let process = process::id();
        if state.worker.upgrade().is_none_or(|of| *of != process) {
            let life = Arc::new(process);
            state.worker = Arc::downgrade(&life);
            (state.next, state.is_idle) = (None, false);
            hold.half.in_background(work(Arc::clone(self), life));
        }
        let first = Instant::now() + hold.lease.look_in();
        let is_in_time = state.next.is_some_and(|next| next <= first);
        drop(state);
        if !is_in_time {
            self.look();
        }
    }

    /// Has the worker look again, because something is due earlier.
    pub(crate) fn look(&self) {
        self.changed.tell();
    }

    /// Returns `None` when there are no holds, again. Then the worker is to end.
    fn find(&self) -> Option<Look<H>> {
        let mut state = lock(&self.state);
        let mut look = Look {
            due: Vec::new(),
            next: LONGEST_SLICE,
            left: Duration::MAX,
        };
        state.holds.retain(|hold| {
            let Some(hold) = hold.upgrade() else {
                return false;
            };
            match hold.lease.renewal() {
                Renewal::Not => return false,
                Renewal::In(time) => look.next = look.next.min(time),
                Renewal::Due(asked) => look.due.push((Arc::clone(&hold), asked)),
            }
            look.left = look.left.min(hold.lease.left());
            true
        });
        let is_idle = state.holds.is_empty();
        let is_over = mem::replace(&mut state.is_idle, is_idle) && is_idle;
        if is_over {
            state.worker = Weak::new();
        }
        let is_at_work = is_over || !look.due.is_empty();
        state.next = (!is_at_work).then(|| Instant::now() + look.next);
        (!is_over).then_some(look)
    }
}

async fn work<H: Half>(renewals: Arc<Renewals<H>>, _life: Arc<u32>) {
    loop {
        let seen = renewals.changed.seen();
        let Some(look) = renewals.find() else {
            return;
        };
        let Some(half) = look.due.first().map(|(hold, _)| hold.half.clone()) else {
            H::wait(&renewals.changed, seen, look.next).await;
            continue;
        };
        let mut apart = apart(look.due);
        let here = apart.remove(&(None, false));
        for due in apart.into_values() {
            let half = half.clone();
            half.clone().in_background(async move {
                renew(&half, &due, Duration::MAX).await;
                half.renew_earlier();
            });
        }
        // The last, so that none of the others waits for its answer.
        if let Some(due) = here {
            renew(&half, &due, look.left).await;
        }
    }
}

/// Holds, and the leases to ask for.
type Due<H> = Vec<(Arc<Shared<H>>, Asked)>;

/// Returns together what can go in one write: the holds of a slot, where there are slots, confirmed or not.
fn apart<H: Half>(holds: Due<H>) -> HashMap<(Option<Slot>, bool), Due<H>> {
    let mut apart: HashMap<_, Due<H>> = HashMap::new();
    for (hold, asked) in holds {
        let slot = hold.half.server().slot(&hold.request.key);
        let kind = (slot, hold.request.confirm.is_some());
        apart.entry(kind).or_default().push((hold, asked));
    }
    apart
}

/// Sends renewals. `left` is the least that is left of other holds, which wait for that.
async fn renew<H: Half>(half: &H, due: &Due<H>, left: Duration) {
    let renewals = due.iter();
    let renewals = renewals.map(|(hold, asked)| hold.request.renewal(asked.length));
    let commands: Vec<Command> = renewals.collect();
    let left = due
        .iter()
        .map(|(hold, _)| hold.lease.left())
        .fold(left, Duration::min);
    let mut effort = half.effort().once();
    // Half of what is left, so that another attempt on a new connection can follow.
    effort.response = effort
        .response
        .min(RENEWAL_WITHIN)
        .min((left / 2).max(SHORTEST));
    let call = Call {
        commands: &commands,
        is_renewal: true,
        is_afresh: due.iter().any(|(hold, _)| hold.lease.is_cut_off()),
        ..Call::new(&commands[0], effort)
    };
    let (sent, values) = match half.attempt(&call).await {
        Ok(Reply { sent, values, .. }) => (sent, values),
        Err(failure) => (Moment::now(), vec![Err(failure); due.len()]),
    };
    for ((hold, asked), value) in due.iter().zip(values) {
        note(hold, sent, *asked, value);
    }
}

fn note<H: Half>(hold: &Shared<H>, sent: Moment, asked: Asked, answer: Result<Value, Failure>) {
    match answer.map(|reply| read::<u64>(&reply)) {
        Ok(Ok(0)) => hold.lease.ended(),
        Ok(Ok(_)) => hold.lease.renewed(sent, asked),
        Err(Failure::Redis(error)) if tells_the_end(&error) => hold.lease.ended(),
        Err(why) if !why.may_pass(hold.half.server(), true) => hold.lease.refused(sent, why),
        Err(Failure::Redis(_) | Failure::NotSent(_)) => hold.lease.not_renewed(true),
        _ => hold.lease.not_renewed(false),
    }
}
