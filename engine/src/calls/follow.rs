//! States that are decided elsewhere: by a primary, or in an earlier life of this server. And where
//! states live, as the server moves, renames, swaps and removes keys.
//!
//! A server that follows applies and never decides: see `role`.

use std::fmt;

use crate::change::{Change, End};
use crate::hold::Grant;
use crate::index::spaces::Space;
use crate::types::{Db, Fence, Now, Token};
use crate::undo::Undo;
use crate::{Body, Engine, Family, Key, Misfit, State, StateId};

/// How far ahead of the clock a fence from elsewhere may be: a year.
const FENCE_AHEAD_US: u64 = 366 * 86_400 * 1_000_000;

const MINUTE_US: u64 = 60 * 1_000_000;
const HOUR_US: u64 = 60 * MINUTE_US;

/// Why a server begins to decide. It goes past the fences it knows, for it does not know all: the newest
/// may have been lost, or given by a clock that is ahead of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// It started, with its own data or with none.
    Start,
    /// It took over from another, which may go on, cut off from everybody else, and may even be started
    /// again: so a promotion goes farther than a start.
    Promotion,
}

impl Beginning {
    /// How far past the last fence, and past the clock.
    fn leaps_us(self) -> (u64, u64) {
        match self {
            Beginning::Start => (MINUTE_US, HOUR_US),
            Beginning::Promotion => (10 * MINUTE_US, 2 * HOUR_US),
        }
    }
}

/// Why what happened on another server could not be carried out here: the change, by its place among those of
/// the command, and what was wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfollowed {
    pub at: usize,
    pub misfit: Misfit,
}

/// Why a state from elsewhere was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// A fence more than a year ahead of the clock.
    FenceAhead,
    /// There is no room for another state.
    Full,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unfit::FenceAhead => "a fence in it lies more than a year ahead of this server's clock",
            Unfit::Full => "there is no room for another key",
        })
    }
}

impl Engine {
    /// Carries out what one call on another server, or in an earlier life of this one, did to the key: all of
    /// the changes or none.
    ///
    /// # Errors
    /// For a change that does not fit; nothing has changed then.
    pub fn follow(
        &mut self,
        key: &mut Key<'_>,
        family: Family,
        changes: &[Change],
        now: Now,
    ) -> Result<(), Unfollowed> {
        // VANISH is the last that happens to a key in a call.
        let (changes, vanishes) = match changes.split_last() {
            Some((Change::Vanish, before)) => (before, true),
            _ => (changes, false),
        };
        let misfit = |at, misfit| Unfollowed { at, misfit };
        if self.body(key, family).is_err() {
            return Err(misfit(0, Misfit::Family));
        }
        if !changes.is_empty() {
            let is_new = key.state.is_none();
            let id = match key.state {
                Some(id) => id,
                None => self
                    .create(key, family)
                    .ok_or_else(|| misfit(0, Misfit::Full))?,
            };
            if let Err(unfollowed) = self.apply_all(id, family, changes) {
                if is_new {
                    self.discard(key);
                }
                return Err(unfollowed);
            }
            self.followed(id, changes, now);
        }
        if vanishes {
            self.discard(key);
        }
        Ok(())
    }

    /// What a release by this token was where it ended the only hold of a key and served nobody: the changes
    /// for [`Engine::follow`]. `None` where the key has no hold of the token, or others beside it.
    #[must_use]
    pub fn release_elsewhere(
        &self,
        key: &Key<'_>,
        family: Family,
        token: &Token,
        now: Now,
    ) -> Option<[Change; 2]> {
        let holds = self.body(key, family).ok()??.holds();
        let hold = holds.by_token(token).filter(|_| holds.len() == 1)?;
        let (fence, how, at) = (hold.fence, End::Released, now.unix());
        Some([Change::End { fence, how, at }, Change::Vanish])
    }

    /// Applies all of the changes, or none.
    fn apply_all(
        &mut self,
        id: StateId,
        family: Family,
        changes: &[Change],
    ) -> Result<(), Unfollowed> {
        let Some(state) = self.states.get_mut(id) else {
            let misfit = Misfit::NoHold;
            return Err(Unfollowed { at: 0, misfit });
        };
        let body = &mut state.body;
        // A single change is all or nothing by itself.
        let mut undo = (changes.len() > 1).then(|| Undo::of(body));
        let (mut ended, mut unbound) = (0, Vec::new());
        for (at, change) in changes.iter().enumerate() {
            if let Some(undo) = &mut undo {
                undo.note(body, change);
            }
            let applied = match change {
                Change::Vanish => Err(Misfit::Vanished),
                _ => body.apply(change),
            };
            match applied {
                Ok(None) => {}
                Ok(Some(hold)) => {
                    ended += 1;
                    if hold.ephemeral {
                        unbound.push((hold.client(), hold.fence));
                    }
                }
                Err(misfit) => {
                    if let Some(undo) = undo {
                        undo.roll_back(body);
                    }
                    return Err(Unfollowed { at, misfit });
                }
            }
        }
        let is_grant = |change: &&Change| matches!(change, Change::Grant(_));
        let granted = changes.iter().filter(is_grant).count();
        self.stats.holds_come(family, granted);
        self.stats.holds_go(family, ended);
        for bound in unbound {
            self.ephemeral.remove(&bound);
        }
        Ok(())
    }

    /// The changes have been carried out: what this server keeps besides the state follows.
    fn followed(&mut self, id: StateId, changes: &[Change], now: Now) {
        for change in changes {
            if let Change::Grant(grant) = change {
                self.adopt_fence(grant.fence, now);
            }
        }
        // A server that decides follows another for keys that are still that one's: Valkey moves slots so.
        if self.is_serving() {
            for change in changes {
                if let Change::Grant(Grant { fence, .. }) | Change::Renew { fence, .. } = change {
                    self.take_up(id, *fence, now);
                }
            }
            self.index(id);
        }
    }

    /// Whether no clock that is right to a year can have given this fence.
    fn is_ahead(fence: Fence, now: Now) -> bool {
        fence.0 > now.unix_us.saturating_add(FENCE_AHEAD_US)
    }

    /// Goes past a fence that was given elsewhere. One that is far ahead of the clock is believed as well,
    /// for somebody holds by it: the fences to come lie behind it, and the first of its kind is told of by
    /// [`Engine::take_fence_ahead`].
    fn adopt_fence(&mut self, fence: Fence, now: Now) {
        if Engine::is_ahead(fence, now) && !Engine::is_ahead(self.last_fence, now) {
            self.fence_ahead = Some(fence);
        }
        self.last_fence = self.last_fence.max(fence);
    }

    /// A fence that was believed though it lies more than a year ahead of the clock, once.
    pub fn take_fence_ahead(&mut self) -> Option<Fence> {
        self.fence_ahead.take()
    }

    /// A state that was read from a file or a payload, and will be stored under this name.
    ///
    /// Only a server that decides refuses fences far ahead of its clock, for then the payload comes from a
    /// client or from another node. A server's own files and its primary are believed: were they refused, a
    /// clock that is wrong, on either side, would keep a server from loading its data.
    ///
    /// # Errors
    /// For fences too far ahead, and when there is no room.
    pub fn adopt(&mut self, body: Body, db: Db, name: &[u8], now: Now) -> Result<StateId, Unfit> {
        if let Some(last) = body.holds().iter().last().map(|hold| hold.fence) {
            // What this server has given itself is not bad data, whatever became of its clock.
            if self.is_serving() && Engine::is_ahead(last, now) && last > self.last_fence {
                return Err(Unfit::FenceAhead);
            }
            self.adopt_fence(last, now);
        }
        let (family, holds) = (body.family(), body.holds().len());
        let space = self.spaces.of(db);
        let state = State {
            body,
            space,
            name: name.into(),
        };
        let id = self.states.insert(state).ok_or(Unfit::Full)?;
        self.stats.holds_come(family, holds);
        if self.is_serving() {
            self.take_up_all(id, now);
        }
        Ok(id)
    }

    /// The last fence as it was saved in this server's own file, or by its primary.
    pub fn adopt_last_fence(&mut self, last: Fence, now: Now) {
        self.adopt_fence(last, now);
    }

    /// The fences to come leave room for those that this server does not know of.
    pub fn leap_fences(&mut self, beginning: Beginning, now: Now) {
        let (past_last, past_clock) = beginning.leaps_us();
        let last = (self.last_fence.0 + past_last).max(now.unix_us.saturating_add(past_clock));
        self.last_fence = Fence(last.min(Fence::MAX.0));
    }

    /// A node of the cluster has told of its last fence. Ones too far ahead are not believed.
    pub fn hear_fence(&mut self, fence: Fence, now: Now) {
        if !Engine::is_ahead(fence, now) || fence <= self.last_fence {
            self.heard_fence = self.heard_fence.max(fence);
        }
    }

    /// Keys that another node had are this server's from now on: the fences to come lie this far behind
    /// those that were heard of.
    pub fn leap_past_heard(&mut self, distance_us: u64) {
        if self.heard_fence > Fence(0) {
            let least = self.heard_fence.0.saturating_add(distance_us);
            self.last_fence = self.last_fence.max(Fence(least.min(Fence::MAX.0)));
        }
    }

    /// The value has left its key: deleted, overwritten, moved or renamed away. It may yet turn up
    /// elsewhere, see [`Engine::moved`]; those who wait for the key stay with its name. Says whether
    /// there are any.
    pub fn unlinked(&mut self, id: StateId, db: Db, name: &[u8]) -> bool {
        // Without a state it is the engine that is through with the key.
        let Some(state) = self.states.get_mut(id) else {
            return false;
        };
        state.space = Space::NOWHERE;
        self.unindex(id);
        self.name_changed_hands(db, name)
    }

    /// The value is found under this key from now on.
    pub fn moved(&mut self, id: StateId, db: Db, name: &[u8]) {
        let space = self.spaces.of(db);
        let Some(state) = self.states.get_mut(id) else {
            return;
        };
        state.space = space;
        state.name = name.into();
        self.index(id);
        self.name_changed_hands(db, name);
    }

    /// Something else is under this name now, or nothing. Says whether anybody waits for it.
    pub fn name_changed_hands(&mut self, db: Db, name: &[u8]) -> bool {
        let queue = self.queues.find(db, name);
        if let Some(queue) = queue {
            self.queues.set_due(queue);
        }
        queue.is_some()
    }

    /// The keyspace has let go of the value.
    pub fn freed(&mut self, id: StateId) {
        self.unindex(id);
        if let Some(state) = self.states.take(id) {
            self.forget(state);
        }
        self.states.free(id);
    }

    /// The database is empty now; all of them, without a number.
    pub fn flushed(&mut self, db: Option<Db>) {
        match db {
            Some(db) => self.spaces.flush(db),
            None => self.spaces.flush_all(),
        }
        self.queues.set_all_due(db);
    }

    /// The two databases have exchanged their contents; queues stay with the numbers.
    pub fn swapped(&mut self, a: Db, b: Db) {
        self.spaces.swap(a, b);
        self.queues.set_all_due(Some(a));
        self.queues.set_all_due(Some(b));
    }

    /// Bytes the state takes beyond the server's own for a key.
    #[must_use]
    pub fn memory(&self, id: StateId) -> usize {
        self.states.get(id).map_or(0, |state| {
            size_of::<State>() + state.name.heap_bytes() + state.body.heap_bytes()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::LeaseUs;

    fn at(unix_us: u64) -> Now {
        Now {
            lease: LeaseUs(0),
            mono: crate::types::MonoUs(0),
            unix_us,
            may_write: true,
        }
    }

    /// A release that is repeated elsewhere takes nothing with it that it did not end where it was decided.
    #[test]
    fn release_elsewhere_ends_the_only_hold_of_its_token_and_no_other() {
        use crate::types::{Claim, LeaseMs, UnixMs};

        let token = |text: &str| Token::parse(text.as_bytes()).expect("legal");
        let grant = |n: u64, claim| {
            Change::Grant(Grant {
                fence: Fence(n),
                token: token(&format!("t{n}")),
                claim,
                lease: LeaseMs(1_000),
                deadline: UnixMs(2_000),
                granted: UnixMs(1_000),
                renewed: false,
                owner: None,
            })
        };
        let held = |family, grants: &[Change]| {
            let mut engine = Engine::default();
            let mut key = Key::found(Db(0), b"k", None);
            let followed = engine.follow(&mut key, family, grants, at(5_000));
            assert_eq!(followed, Ok(()));
            (engine, key.state)
        };
        let released = |(engine, state): &(Engine, Option<StateId>), text: &str| {
            let key = Key::found(Db(0), b"k", *state);
            engine.release_elsewhere(&key, Family::Lock, &token(text), at(5_000))
        };
        let alone = held(Family::Lock, &[grant(1, Claim::Exclusive)]);
        let end = Change::End {
            fence: Fence(1),
            how: End::Released,
            at: UnixMs(5),
        };
        assert_eq!(released(&alone, "t1"), Some([end, Change::Vanish]));
        assert_eq!(released(&alone, "t2"), None, "another token");
        let shared = held(
            Family::Lock,
            &[grant(1, Claim::Shared), grant(2, Claim::Shared)],
        );
        assert_eq!(released(&shared, "t1"), None, "another hold beside it");
        let permits = held(Family::Semaphore, &[grant(1, Claim::Permits(1))]);
        assert_eq!(released(&permits, "t1"), None, "another family");
        assert_eq!(released(&(Engine::default(), None), "t1"), None, "no key");
    }

    /// Both sides of a cut began an hour ahead of the clock, the old one later: it had been started again,
    /// and what it gave from then on outranked the one that had been promoted in its place.
    #[test]
    fn a_primary_that_starts_again_stays_below_the_one_promoted_in_its_place() {
        // It may itself have been started, or promoted, at any time before.
        for before in [None, Some(Beginning::Start), Some(Beginning::Promotion)] {
            for served_us in [0, MINUTE_US, 3 * HOUR_US] {
                let began = 10_000 * HOUR_US;
                let mut old = Engine::default();
                if let Some(before) = before {
                    old.leap_fences(before, at(began));
                }
                let cut = began + served_us;
                let known = old.next_fence(at(cut));
                let mut new = Engine::default();
                new.adopt_last_fence(known, at(cut));
                new.leap_fences(Beginning::Promotion, at(cut));
                for starts in 1..=9 {
                    old.leap_fences(Beginning::Start, at(cut + starts * 6 * MINUTE_US));
                }
                let late = old.next_fence(at(cut + HOUR_US));
                assert!(
                    late < new.last_fence(),
                    "{before:?}, then {served_us} µs: {late:?} of the old side"
                );
            }
        }
    }
}
