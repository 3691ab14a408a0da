//! The states of all keys: where they are, when they come due, and what is freed of them later.
//!
//! A state is found by its id, which is the value in the keyspace, and knows its database and name. Its deadlines are in
//! three indexes: when its earliest lease runs out, when it opens again, and when nobody needs it any more.

pub mod deadlines;
pub mod leftovers;
pub mod slab;
pub mod spaces;
pub mod strays;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use crate::address::Address;
use crate::change::Change;
use crate::heap;
use crate::hold::{Hold, Rest};
use crate::settings::Settings;
use crate::state::{Body, State};
use crate::timetable::Timetable;
use crate::types::{ClientId, Db, Family, Fence, LeaseUs, Moments, UnixMs};
use crate::unasked::Removal;
use deadlines::Wheel;
use leftovers::{Leftovers, Piece, SMALL};
use slab::{Slab, StateId};
use spaces::{Space, Spaces};
use strays::Strays;

/// Invariants:
/// - a state that is in `leases`, `openings` or `retention` belongs to a database, and this server decides about it;
/// - `ephemeral` has only holds that are ephemeral, each under the connection it is bound to now, and holds that
///   `leftovers` has still to drop;
/// - `strays` has exactly the states whose space is `Space::NOWHERE`.
#[derive(Default)]
pub struct Store {
    states: Slab<State>,
    pub spaces: Spaces,
    pub strays: Strays,
    /// For each state, when its earliest lease runs out.
    pub leases: Wheel,
    /// When the queues of closed keys may go on: during a PAUSE, and during a DELAY of work-once. Few keys are closed at a
    /// time, and a field in every state would cost all the others.
    pub openings: Timetable<StateId, UnixMs>,
    /// When groups and work-once keys that nobody uses are forgotten.
    pub retention: BTreeSet<(UnixMs, StateId)>,
    /// The holds that end with a connection, by that connection.
    ephemeral: BTreeMap<(ClientId, Fence), StateId>,
    pub leftovers: Leftovers<Piece>,
    /// The number of live holds, by family. Those that rest are not among them.
    holds: [u64; Family::ALL.len()],
    /// The number of holds that rest.
    resting: u64,
}

impl Store {
    pub fn get(&self, id: StateId) -> Option<&State> {
        self.states.get(id)
    }

    pub fn body_mut(&mut self, id: StateId) -> Option<&mut Body> {
        self.states.get_mut(id).map(|state| &mut state.body)
    }

    /// Returns where the state is; `None` for a stray, and for a state whose database was flushed.
    pub fn db_of(&self, state: &State) -> Option<Db> {
        self.spaces.db(state.address.space())
    }

    /// Stores a state for a key. Returns `None` if all two billion ids are in use.
    pub fn insert(&mut self, body: Body, db: Db, name: &[u8]) -> Option<StateId> {
        let space = self.spaces.of(db);
        let (family, all) = (body.family(), body.holds().len());
        let resting = if all > 0 { body.holds().resting().0 } else { 0 };
        let address = Address::new(space, name);
        let id = self.states.insert(State { body, address })?;
        self.holds[family as usize] += (all - resting) as u64;
        self.resting += resting as u64;
        Some(id)
    }

    /// Counts the hold that a change of a state of this family has brought, if any.
    pub fn count(&mut self, family: Family, change: &Change) {
        match change {
            Change::Grant(grant) if grant.rest != Rest::Now => self.holds[family as usize] += 1,
            Change::Grant(_) | Change::Rest { .. } => self.resting += 1,
            _ => {}
        }
    }

    /// Returns the number of live holds.
    pub fn holds(&self, family: Family) -> u64 {
        self.holds[family as usize]
    }

    /// Returns the number of holds that rest.
    pub fn resting(&self) -> u64 {
        self.resting
    }

    /// Removes the state. Its id stays reserved until [`Store::free`].
    pub fn remove(&mut self, id: StateId) {
        self.unindex(id);
        if let Some(state) = self.states.take(id) {
            self.forget(state);
        }
    }

    /// Frees an id that the keyspace no longer has.
    pub fn free(&mut self, id: StateId) {
        if let Some(chunk) = self.states.free(id) {
            self.leases.forget_chunk(chunk);
        }
    }

    /// Frees the state of a value that the server has freed. Returns what was removed, if the value had left its key
    /// with holds in it: RENAME and MOVE take a value elsewhere and free nothing, and a flush frees values without
    /// taking them from their keys.
    pub fn freed(&mut self, id: StateId) -> Option<Removal> {
        self.unindex(id);
        let left = self.strays.remove(id);
        let state = self.states.take(id);
        self.free(id);
        let state = state?;
        let removal = left.and_then(|db| Removal::of(db, &state));
        self.forget(state);
        removal
    }

    /// Notes that the value has left its key. It is a stray from now on. Returns whether there was a state: without one
    /// the engine itself has removed the key.
    pub fn unlinked(&mut self, id: StateId, db: Db, name: &[u8]) -> bool {
        let Some(state) = self.states.get_mut(id) else {
            return false;
        };
        // The name that it had last, which a stray that is moved again may not have had before.
        state.address = Address::new(Space::NOWHERE, name);
        self.unindex(id);
        self.strays.insert(id, db);
        true
    }

    /// Notes that the value is under this key. Returns whether it was a stray.
    pub fn found(&mut self, id: StateId, db: Db, name: &[u8]) -> bool {
        let was_stray = self.strays.remove(id).is_some();
        if was_stray {
            let space = self.spaces.of(db);
            if let Some(state) = self.states.get_mut(id) {
                state.address = Address::new(space, name);
            }
        }
        was_stray
    }

    /// Indexes the state under its next lease end, the moment at which its queue may go on, and the end of its
    /// retention. Only a server that decides does so. `since` is when it began to. Returns when to look at the index of
    /// leases, and at the others, for this state.
    pub fn index(
        &mut self,
        id: StateId,
        since: LeaseUs,
        settings: &Settings,
    ) -> (Option<LeaseUs>, Option<UnixMs>) {
        let Some(state) = self.states.get_mut(id) else {
            return (None, None);
        };
        if self.spaces.db(state.address.space()).is_none() {
            return (None, None);
        }
        let holds = state.body.holds();
        let lease = match holds.earliest(since) {
            Some((LeaseUs(due), _)) => Some(LeaseUs(self.leases.schedule(id, due))),
            None => {
                self.leases.cancel(id);
                None
            }
        };
        // RENAME moves the state but not its waiters, so index it even while requests wait.
        let idle = holds.is_empty();
        let opens_at = state.body.opens_at();
        match opens_at {
            Some(moment) => self.openings.set(id, moment, ()),
            None => drop(self.openings.remove(id)),
        }
        let until = state.body.retained_until(settings);
        let until = until.filter(|until| idle && *until != UnixMs::NEVER);
        // Most states have none, and had none.
        if until.is_some() || state.body.retention().is_some() {
            self.note_retention(id, until);
        }
        (lease, opens_at.into_iter().chain(until).min())
    }

    /// Removes the state from all deadline indexes.
    pub fn unindex(&mut self, id: StateId) {
        self.leases.cancel(id);
        self.openings.remove(id);
        self.note_retention(id, None);
    }

    /// Notes when nobody needs the state any more, if it is kept until then.
    pub fn note_retention(&mut self, id: StateId, until: Option<UnixMs>) {
        let Some(state) = self.states.get_mut(id) else {
            return;
        };
        if let Some(before) = state.body.note_retention(until) {
            self.retention.remove(&(before, id));
        }
        self.retention.extend(until.map(|until| (until, id)));
    }

    /// Drops all deadlines, because another server decides from now on.
    pub fn drop_deadlines(&mut self) {
        let leftovers = &mut self.leftovers;
        leftovers.drop_entries(take(&mut self.leases).into_chunks());
        leftovers.drop_entries(take(&mut self.openings).into_pieces());
        leftovers.drop_entries(take(&mut self.retention));
        leftovers.drop_entries(take(&mut self.ephemeral));
    }

    /// Sets the moments of a hold on this server's lease clock.
    pub fn set_moments(&mut self, id: StateId, fence: Fence, moments: Moments) {
        if let Some(body) = self.body_mut(id) {
            body.set_moments(fence, moments);
        }
    }

    /// Notes which connection the hold was given to, and whether it ends with that connection.
    #[inline(always)]
    pub fn bind(&mut self, id: StateId, fence: Fence, client: ClientId, ephemeral: bool) {
        let Some(state) = self.states.get_mut(id) else {
            return;
        };
        if let Some(before) = state.body.bind(fence, client, ephemeral) {
            self.ephemeral.remove(&(before, fence));
        }
        if ephemeral {
            self.ephemeral.insert((client, fence), id);
        }
    }

    /// Notes that a hold of a state of this family has ended.
    pub fn ended(&mut self, family: Family, hold: &Hold) {
        match hold.is_resting() {
            true => self.resting -= 1,
            false => self.holds[family as usize] -= 1,
        }
        if hold.is_ephemeral() {
            self.ephemeral.remove(&(hold.client(), hold.fence()));
        }
    }

    /// Returns the oldest hold that ends with this connection.
    pub fn ephemeral_of(&self, client: ClientId) -> Option<(Fence, StateId)> {
        let held = (client, Fence(0))..=(client, Fence::MAX);
        let ((_, fence), state) = self.ephemeral.range(held).next()?;
        Some((*fence, *state))
    }

    /// Removes and returns the oldest hold that ends with this connection.
    pub fn take_ephemeral_of(&mut self, client: ClientId) -> Option<(Fence, StateId)> {
        let (fence, state) = self.ephemeral_of(client)?;
        self.ephemeral.remove(&(client, fence));
        Some((fence, state))
    }

    /// Notes that the state's holds are gone, and takes them out of the gauges at once.
    fn forget(&mut self, state: State) {
        let holds = state.body.holds();
        let gone = holds.len();
        if gone > 0 {
            let (resting, _) = holds.resting();
            self.holds[state.body.family() as usize] -= (gone - resting) as u64;
            self.resting -= resting as u64;
        }
        if gone > SMALL {
            self.leftovers.drop_holds(state.body.into_holds());
        } else {
            for hold in holds.iter().filter(|hold| hold.is_ephemeral()) {
                self.forget_ephemeral(hold.client(), hold.fence());
            }
        }
    }

    /// Removes the index entry of an EPHEMERAL hold that is gone, unless the same hold has come back from a file and
    /// was bound to the same connection again.
    fn forget_ephemeral(&mut self, client: ClientId, fence: Fence) {
        if let Some(id) = self.ephemeral.get(&(client, fence))
            && (self.get(*id)).is_none_or(|state| state.body.holds().get(fence).is_none())
        {
            self.ephemeral.remove(&(client, fence));
        }
    }

    /// Drops pieces of large things that are no longer needed. Each costs one of the budget.
    pub fn drop_leftovers(&mut self, budget: &mut u32) {
        while *budget > 0
            && let Some(piece) = self.leftovers.next()
        {
            *budget -= 1;
            match piece {
                Piece::Dropped => {}
                Piece::Ephemeral(client, fence) => self.forget_ephemeral(client, fence),
                // These were freed by a flush, which is no removal of a key.
                Piece::Freed(id) => drop(self.freed(id)),
            }
        }
    }

    /// Returns the states from this id on: see [`Slab::values_since`].
    pub fn states_since(&self, id: StateId) -> impl Iterator<Item = (StateId, &State)> {
        self.states.values_since(id)
    }

    /// Returns the bytes that the state takes, with its entries in the indexes, beside what the server itself takes for
    /// a key.
    pub fn memory(&self, id: StateId) -> usize {
        let Some(State { address, body }) = self.get(id) else {
            return 0;
        };
        let entry = heap::tree_share(size_of::<(UnixMs, StateId)>());
        let retained = body.retention().map_or(0, |_| entry);
        let opening = Timetable::<StateId, UnixMs>::entry_bytes();
        let closed = body.opens_at().map_or(0, |_| opening);
        let own = size_of::<State>() + address.heap_bytes() + body.heap_bytes();
        own + self.leases.bytes_of(id) + closed + retained
    }

    /// Returns the holds that end with a connection: the connection, the fence and the state.
    #[cfg(debug_assertions)]
    pub fn ephemeral(&self) -> impl Iterator<Item = (ClientId, Fence, StateId)> {
        let all = self.ephemeral.iter();
        all.map(|((client, fence), id)| (*client, *fence, *id))
    }
}
