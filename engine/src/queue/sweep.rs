//! How queues become due that no request has touched, and how flushed places leave them.
//!
//! A queue is *due* after an event outside a request has touched it, for example a flush. As soon as the server can
//! write, the engine visits due queues in the order in which they became due, a bounded slice at a time.
//!
//! An event that concerns all queues of a database, such as a flush, only starts a *sweep*: a walk over the queues that
//! makes a bounded number of them due at a time. There is at most one sweep for each database, and one for all
//! databases together. So many flushes during a sweep need no more memory than one.
//!
//! A flush drops all kept places of its databases at once, however many there are, because it only gives the databases
//! new spaces. A queue with an older space has kept places that count for nothing. When the sweep after the flush comes
//! to the queue, or a request for its name before that, they leave the queue and all numbers in one step, and are taken
//! apart in slices later. Rejected: to remove the places from their queue in slices. A request that comes meanwhile would
//! have to step over them. A flush of single names is noted until the sweep is over, and the queues are asked for their
//! names then, not at once.

use std::ops::Bound::{Excluded, Unbounded};

use crate::queue::place::Place;
use crate::queue::queues::{FlushedNames, Queues, Sweep};
use crate::store::leftovers::SMALL;
use crate::types::{Db, QueueId, Rank};

impl Queues {
    /// Notes that the database is empty now, or all databases if `None`. Its queues lose their kept places and become
    /// due: when they are swept or, before that, when [`Queues::note_flush`] is called for their key.
    pub fn flush(&mut self, db: Option<Db>) {
        if !self.queues.is_empty() {
            self.spaces.flush(db);
        }
        self.set_all_due(db);
    }

    /// Does with the queues of these names what [`Queues::flush`] does with all queues of the database. All others are only
    /// looked at.
    pub fn flush_names(&mut self, db: Db, names: impl Fn(&[u8]) -> bool + Send + 'static) {
        if self.queues.is_empty() {
            return;
        }
        let (number, names) = (self.number(), Box::new(names));
        self.flushed_names.push(FlushedNames { db, number, names });
        self.begin_sweep(Some(db), true);
    }

    /// Drops the kept places of this name if they came before the last flush of its database.
    pub fn note_flush(&mut self, db: Db, name: &[u8]) {
        if self.is_sweeping()
            && let Some(id) = self.find(db, name)
        {
            self.drop_flushed(id);
        }
    }

    /// Makes all queues of the database, or of all databases, due: at once if they are few, otherwise as
    /// [`Queues::sweep`] comes to them.
    pub fn set_all_due(&mut self, db: Option<Db>) {
        self.begin_sweep(db, false);
    }

    /// Begins a sweep, in which only flushed queues become due if `of_flushed` says so.
    fn begin_sweep(&mut self, db: Option<Db>, of_flushed: bool) {
        if !self.queues.is_empty() {
            let begun = Sweep {
                of_flushed,
                ..Sweep::default()
            };
            let sweep = self.sweeps.entry(db).and_modify(|sweep| {
                sweep.again = true;
                sweep.of_flushed &= of_flushed;
            });
            sweep.or_insert(begun);
        }
        if self.queues.len() <= SMALL {
            self.sweep(&mut { 2 * SMALL as u32 });
        }
    }

    /// Continues the sweeps. Each queue that it looks at costs one of the budget.
    pub fn sweep(&mut self, budget: &mut u32) {
        while *budget > 0
            && let Some(mut entry) = self.sweeps.first_entry()
        {
            *budget -= 1;
            let (db, sweep) = (*entry.key(), entry.get_mut());
            let of_flushed = sweep.of_flushed;
            let rest = (sweep.after.map_or(Unbounded, Excluded), Unbounded);
            match self.queues.range(rest).next() {
                Some((id, queue)) => {
                    let id = *id;
                    sweep.after = Some(id);
                    if db.is_none_or(|db| queue.db == db) && (!of_flushed || self.is_flushed(queue))
                    {
                        self.set_due(id);
                        self.drop_flushed(id);
                    }
                }
                None if sweep.again => (sweep.after, sweep.again) = (None, false),
                None => drop(entry.remove()),
            }
        }
        if self.sweeps.is_empty() {
            self.flushed_names.clear();
        }
    }

    pub fn is_sweeping(&self) -> bool {
        !self.sweeps.is_empty()
    }

    /// Drops the kept places of the queue if they came before the last flush of its database. Requests whose client
    /// waits on such a place go on waiting. Drops the queue if nothing else is in it. The places are taken apart later,
    /// see [`Queues::take_apart`].
    pub fn drop_flushed(&mut self, id: QueueId) {
        if !self.get(id).is_some_and(|queue| self.is_flushed(queue)) {
            return;
        }
        self.value_left(id);
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        queue.space = self.spaces.of(queue.db);
        queue.kept_from = self.last_number;
        let (kept, before) = (queue.kept(), queue.by_family());
        if kept == 0 {
            return;
        }
        let parked = self.parked_in(id);
        let dropped = self.change(id, |queue| (queue.drop_kept(&parked), queue.by_family()));
        let Some((pieces, after)) = dropped else {
            return;
        };
        self.kept -= kept as u64;
        for (waiting, (before, after)) in self.waiting.iter_mut().zip(before.iter().zip(after)) {
            let gone = (before - after) as u64;
            *waiting -= gone;
            self.places -= gone;
        }
        self.dropped.push(pieces.map(move |piece| (id, piece)));
        self.drop_if_empty(id);
    }

    /// Returns the places of this queue on which clients wait. Looks for them where less is to look at: among the places
    /// of the queue, or among all requests whose clients wait.
    fn parked_in(&self, id: QueueId) -> Vec<Rank> {
        let Some(queue) = self.get(id).filter(|queue| queue.parked() > 0) else {
            return Vec::new();
        };
        if self.by_waiter.len() < queue.waiters() {
            let places = self.by_waiter.iter().map(|(_, place)| *place);
            let places = places.filter(|(queue, _)| *queue == id);
            return places.map(|(_, rank)| rank).collect();
        }
        let parked = queue.line().filter(|place| place.parked().is_some());
        parked.map(Place::rank).collect()
    }

    /// Whether places were dropped that have still to be taken apart.
    pub fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// Takes places apart that flushes have dropped. Each entry of a map costs one of the budget.
    pub fn take_apart(&mut self, budget: &mut u32) {
        while *budget > 0
            && let Some((id, piece)) = self.dropped.next()
        {
            *budget -= 1;
            // RESTORE may have brought the same place to the same queue again.
            if let Some((until, rank)) = piece
                && !self.is_kept_until(until, id, rank)
            {
                self.unlist_keep(until, id, rank);
            }
        }
    }
}
