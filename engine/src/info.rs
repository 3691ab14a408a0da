//! What INFO shows about a key: everything but tokens, which are secret.

use crate::change::{Limits, Tally};
use crate::families::once::Record;
use crate::hold::Hold;
use crate::types::{Claim, ClientId, Db, Fence, MonoUs, Now};
use crate::{Body, Engine, Family, Key, WrongType};

pub struct HoldInfo<'e> {
    pub fence: Fence,
    pub owner: Option<&'e [u8]>,
    pub client: ClientId,
    pub claim: Claim,
    pub lease_left_ms: u64,
    pub held_ms: u64,
}

pub struct WaiterInfo<'e> {
    pub owner: Option<&'e [u8]>,
    /// The connection that waits; `NONE` for a kept place on which none does.
    pub client: ClientId,
    /// The number of a kept place.
    pub number: Option<Fence>,
    /// For how long a place is kept if it is not asked for. `None` if it is not kept, while a client waits on it, and on
    /// a replica.
    pub kept_ms: Option<u64>,
    /// `None` for a WAIT, which claims nothing.
    pub claim: Option<Claim>,
    pub age_ms: u64,
}

/// What only this family shows.
pub enum Particulars {
    Lock,
    Semaphore {
        limits: Limits,
        in_force: Option<u32>,
        available: u64,
    },
    Group {
        tally: Tally,
        owed: u64,
    },
    Once {
        record: Record,
        /// How long no run may begin yet, by the wall clock; 0 without a delay.
        delay_left_ms: u64,
    },
}

pub struct Info<'e> {
    pub particulars: Particulars,
    /// What is left of a pause, by the wall clock; 0 if there is none.
    pub paused_ms: u64,
    pub holders: usize,
    pub first_holders: Vec<HoldInfo<'e>>,
    /// On a replica: the kept places.
    pub waiters: KeyWaiters<'e>,
    /// Whether these are all waiters. A replica knows the kept places only.
    pub knows_waiters: bool,
}

pub struct KeyWaiters<'e> {
    pub count: usize,
    pub longest_ms: u64,
    pub first: Vec<WaiterInfo<'e>>,
}

/// A key that has waiters.
pub struct Contended<'e> {
    pub db: Db,
    pub name: &'e [u8],
    pub family: Family,
    pub waiters: usize,
    pub longest_ms: u64,
}

impl Engine {
    /// Returns the key with its first `count` holders and waiters; `None` for an absent key.
    ///
    /// # Errors
    /// If the key is of another family.
    pub fn info(
        &self,
        key: &Key<'_>,
        family: Family,
        count: usize,
        now: Now,
    ) -> Result<Option<Info<'_>>, WrongType> {
        let Some(body) = self.body(key, family)? else {
            return Ok(None);
        };
        let particulars = match body {
            Body::Lock(_) => Particulars::Lock,
            Body::Semaphore(_) => {
                let (limits, permits) = (body.limits(), body.holds().permits());
                let in_force = limits.in_force();
                Particulars::Semaphore {
                    limits,
                    in_force,
                    available: in_force.map_or(0, u64::from).saturating_sub(permits),
                }
            }
            Body::Once(once) => Particulars::Once {
                record: once.record(),
                delay_left_ms: body
                    .delayed_until()
                    .map_or(0, |until| until.ms_left(now.unix())),
            },
            Body::Group(group) => Particulars::Group {
                tally: group.tally(),
                owed: group.owed(),
            },
        };
        let first_holders = body.holds().iter().take(count);
        let first_holders = first_holders.map(|hold| self.hold_info(hold, now));
        let paused = body.paused_until();
        Ok(Some(Info {
            particulars,
            paused_ms: paused.map_or(0, |until| until.ms_left(now.unix())),
            holders: body.holds().len(),
            first_holders: first_holders.collect(),
            waiters: self.waiters_of(key, count, now),
            knows_waiters: self.is_serving(),
        }))
    }

    pub(crate) fn hold_info<'e>(&self, hold: &'e Hold, now: Now) -> HoldInfo<'e> {
        HoldInfo {
            fence: hold.fence(),
            owner: hold.owner(),
            client: hold.client(),
            claim: hold.claim(),
            lease_left_ms: self.lease_left_ms(hold, now),
            held_ms: now.unix().0.saturating_sub(hold.granted().0),
        }
    }

    /// Returns the keys that have waiters, the longest wait first, `count` at most.
    #[must_use]
    pub fn contended(&self, count: usize, now: Now) -> Vec<Contended<'_>> {
        let keys = self.queues.by_longest_wait();
        let keys = keys.filter_map(|(since, db, name, queue)| {
            Some(Contended {
                db,
                name: name.as_bytes(),
                family: queue.family()?,
                waiters: queue.waiters(),
                longest_ms: now.mono.ms_since(since),
            })
        });
        keys.take(count).collect()
    }

    /// Returns the number of requests that wait: those whose client waits for a reply, and kept places.
    #[must_use]
    pub fn waiting(&self, family: Family) -> u64 {
        self.queues.waiting(family)
    }

    /// Returns how long the longest wait of all has lasted.
    #[must_use]
    pub fn longest_wait_ms(&self, now: Now) -> u64 {
        let longest = self.queues.by_longest_wait().next();
        longest.map_or(0, |(since, ..)| now.mono.ms_since(since))
    }

    fn waiters_of(&self, key: &Key<'_>, count: usize, now: Now) -> KeyWaiters<'_> {
        let queue = self
            .queues
            .find(key.db, key.name)
            .and_then(|id| self.queues.get(id));
        let Some(queue) = queue else {
            return KeyWaiters {
                count: 0,
                longest_ms: 0,
                first: Vec::new(),
            };
        };
        let age = |since: MonoUs| now.mono.ms_since(since);
        let waiting = queue.waiting().map(|(place, waiter)| WaiterInfo {
            owner: waiter.request.owner.as_deref(),
            client: waiter.request.client,
            number: waiter.keep.map(|_| place.0),
            kept_ms: (waiter
                .keep
                .filter(|_| self.is_serving() && !waiter.is_parked()))
            .map(|keep| self.keep_left_ms(keep, now)),
            claim: Some(waiter.request.claim),
            age_ms: age(waiter.since),
        });
        let watching = queue.watching().map(|watcher| WaiterInfo {
            owner: None,
            client: watcher.client,
            number: None,
            kept_ms: None,
            claim: None,
            age_ms: age(watcher.since),
        });
        KeyWaiters {
            count: queue.waiters(),
            longest_ms: queue.waiting_since().map_or(0, age),
            first: waiting.chain(watching).take(count).collect(),
        }
    }
}
