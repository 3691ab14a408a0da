//! What INFO shows about a key: everything but tokens, which are secret.

use crate::calls::look::Look;
use crate::change::{Limits, Record, Tally};
use crate::engine::Engine;
use crate::hold::Hold;
use crate::queue::lanes::Lanes;
use crate::queue::place::{Parked, Place};
use crate::queue::wait_queue::WaitQueue;
use crate::state::{Body, Value};
use crate::types::{Claim, ClientId, Db, Family, Fence, MonoUs, Now, Rank, UnixMs};
use crate::visit::WrongType;

pub struct HoldInfo<'e> {
    pub fence: Fence,
    pub owner: Option<&'e [u8]>,
    pub client: ClientId,
    pub claim: Claim,
    /// Empty for the nameless lane.
    pub lane: &'e [u8],
    /// Set if the hold was asked for with one.
    pub index: Option<u32>,
    pub lease_left_ms: u64,
    /// How long its place stays taken, if the hold has ended and rests.
    pub resting_ms: Option<u64>,
    pub held_ms: u64,
}

#[derive(Default)]
pub struct WaiterInfo<'e> {
    pub owner: Option<&'e [u8]>,
    /// The connection that waits; `NONE` for a kept place on which none does.
    pub client: ClientId,
    /// Set if the place is kept.
    pub rank: Option<Rank>,
    /// For how long a place is kept if it is not asked for. `None` if it is not kept, while a client waits on it, and on
    /// a replica.
    pub kept_ms: Option<u64>,
    /// `None` for a WAIT, which claims nothing.
    pub claim: Option<Claim>,
    /// Empty for the nameless lane.
    pub lane: &'e [u8],
    pub age_ms: u64,
}

/// What only this family shows.
pub enum Particulars {
    Lock,
    Semaphore {
        limits: Limits,
        available: u64,
        /// How many permits are taken by holds that rest.
        resting: u64,
    },
    Group(Tally),
    Once(Record),
}

pub struct Info<'e> {
    pub particulars: Particulars,
    /// What the key keeps: see [`Info::left_ms`].
    pub body: &'e Body,
    /// The wall clock.
    pub now: UnixMs,
    /// With those that rest.
    pub holders: usize,
    /// How many of the holders rest.
    pub resting: usize,
    pub first_holders: Vec<HoldInfo<'e>>,
    /// On a replica: the kept places.
    pub waiters: KeyWaiters<'e>,
    /// Set if a hold or a place of the semaphore names a lane.
    pub lanes: Option<KeyLanes<'e>>,
    /// Whether these are all waiters. A replica knows the kept places only.
    pub knows_waiters: bool,
}

#[derive(Default)]
pub struct KeyWaiters<'e> {
    pub count: usize,
    pub longest_ms: u64,
    pub first: Vec<WaiterInfo<'e>>,
}

/// The lanes in which requests wait, the longest wait first.
pub struct KeyLanes<'e> {
    pub count: usize,
    pub first: Vec<LaneInfo<'e>>,
}

pub struct LaneInfo<'e> {
    /// Empty for the nameless lane.
    pub name: &'e [u8],
    /// How many permits its holds take.
    pub permits: u64,
    pub waiters: usize,
    pub longest_ms: u64,
}

/// A key that has waiters.
pub struct Contended<'e> {
    pub db: Db,
    pub name: &'e [u8],
    pub family: Family,
    pub waiters: usize,
    pub longest_ms: u64,
}

impl Info<'_> {
    /// The same of a key that is removed in so many milliseconds: no hold lasts longer.
    #[must_use]
    pub fn at_most_ms(mut self, ms: u64) -> Self {
        for hold in &mut self.first_holders {
            hold.lease_left_ms = hold.lease_left_ms.min(ms);
        }
        self
    }

    /// Returns what is left until this moment of the body; 0 if it has none.
    pub fn left_ms(&self, until: Option<UnixMs>) -> u64 {
        until.map_or(0, |until| until.ms_left(self.now))
    }
}

impl<'e> Look<'e> {
    /// Returns the key with its first `count` holders and waiters; `None` for an absent key.
    ///
    /// # Errors
    /// If the key is of another family.
    pub fn info(&self, family: Family, count: usize) -> Result<Option<Info<'e>>, WrongType> {
        let (engine, now) = (self.engine, self.now);
        let Some(body) = self.body_of(family)? else {
            return Ok(None);
        };
        let particulars = match body.value() {
            Value::Lock(_) => Particulars::Lock,
            Value::Semaphore(semaphore) => Particulars::Semaphore {
                limits: body.limits(),
                available: semaphore.available(),
                resting: body.holds().resting().1,
            },
            Value::Once(once) => Particulars::Once(once.record()),
            Value::Group(group) => Particulars::Group(group.tally),
        };
        let first_holders = body.holds().iter().take(count);
        let first_holders = first_holders.map(|hold| engine.hold_info(hold, now));
        Ok(Some(Info {
            particulars,
            body,
            now: now.unix(),
            holders: body.holds().len(),
            resting: body.holds().resting().0,
            first_holders: first_holders.collect(),
            waiters: self.waiters(count),
            lanes: self.lanes(body, count),
            knows_waiters: engine.is_serving(),
        }))
    }

    fn lanes(&self, body: &Body, count: usize) -> Option<KeyLanes<'e>> {
        let queue = self.queue();
        let lanes = queue.and_then(WaitQueue::lanes);
        let lanes = lanes.filter(|lanes| !lanes.are_nameless());
        if lanes.is_none() && !body.holds().has_lanes() {
            return None;
        }
        let waiting = || lanes.into_iter().flat_map(Lanes::waiting);
        let first = waiting().take(count).map(|(name, rank, waiters)| LaneInfo {
            name: name.as_bytes(),
            permits: body.holds().in_use(name.as_bytes()).permits,
            waiters,
            longest_ms: (queue.and_then(|queue| queue.place(rank)))
                .map_or(0, |place| self.now.mono.ms_since(place.standing.since)),
        });
        Some(KeyLanes {
            count: lanes.map_or(0, |lanes| lanes.waiting().len()),
            first: first.collect(),
        })
    }

    fn waiters(&self, count: usize) -> KeyWaiters<'e> {
        let now = self.now;
        let Some(queue) = self.queue() else {
            return KeyWaiters::default();
        };
        let age = |since: MonoUs| now.mono.ms_since(since);
        let client = |parked: Parked| parked.client;
        let in_line = queue.line().map(|place| WaiterInfo {
            owner: place.owner.as_deref(),
            client: place.parked().map_or(ClientId::NONE, client),
            rank: place.is_kept().then(|| place.rank()),
            kept_ms: self.kept_ms(place),
            claim: Some(place.claim),
            lane: place.lane.as_bytes(),
            age_ms: age(place.standing.since),
        });
        let watching = queue.watching().map(|watcher| WaiterInfo {
            client: watcher.parked.client,
            age_ms: age(watcher.since),
            ..WaiterInfo::default()
        });
        KeyWaiters {
            count: queue.waiters(),
            longest_ms: queue.waiting_since().map_or(0, age),
            first: in_line.chain(watching).take(count).collect(),
        }
    }

    fn kept_ms(&self, place: &Place) -> Option<u64> {
        let (keep_ms, until) = place.kept_until().filter(|_| self.engine.is_serving())?;
        Some(self.engine.term.keep_left_ms(keep_ms, until, self.now))
    }
}

impl Engine {
    pub(crate) fn hold_info<'e>(&self, hold: &'e Hold, now: Now) -> HoldInfo<'e> {
        let left_ms = self.term.lease_left_ms(hold, now);
        HoldInfo {
            fence: hold.fence(),
            owner: hold.owner(),
            client: hold.client(),
            claim: hold.claim(),
            lane: hold.lane(),
            index: hold.index(),
            lease_left_ms: if hold.is_resting() { 0 } else { left_ms },
            resting_ms: hold.is_resting().then_some(left_ms),
            held_ms: now.unix().0.saturating_sub(hold.granted().0),
        }
    }

    /// Returns the keys that have waiters, the longest wait first, `count` at most.
    pub fn contended(&self, count: usize, now: Now) -> Vec<Contended<'_>> {
        let keys = self.queues.by_longest_wait();
        let keys = keys.filter_map(|(since, queue)| {
            Some(Contended {
                db: queue.db,
                name: queue.name.as_bytes(),
                family: queue.family()?,
                waiters: queue.waiters(),
                longest_ms: now.mono.ms_since(since),
            })
        });
        keys.take(count).collect()
    }

    /// Returns the number of requests that wait: those whose client waits for a reply, and kept places.
    pub fn waiting(&self, family: Family) -> u64 {
        self.queues.waiting(family)
    }

    /// Returns how long the longest wait of all has lasted.
    pub fn longest_wait_ms(&self, now: Now) -> u64 {
        let longest = self.queues.by_longest_wait().next();
        longest.map_or(0, |(since, _)| now.mono.ms_since(since))
    }
}
