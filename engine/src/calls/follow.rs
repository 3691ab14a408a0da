//! Changes and states that another server decided, or this one before a restart.
//!
//! A replica applies changes and never decides: see `role`.

use crate::address::Address;
use crate::calls::unfit::Unfit;
use crate::change::{Change, End};
use crate::effect::Note;
use crate::fence;
use crate::hold::{Grant, Hold};
use crate::saved::Loaded;
use crate::types::{Db, Now, Token};
use crate::unasked::UnaskedEnd;
use crate::{Engine, Family, Key, Misfit, State, StateId};

/// Why the changes of another server were refused: which of them did not fit, by its place in the command, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfollowed {
    pub at: usize,
    pub misfit: Misfit,
}

impl Engine {
    /// Applies the changes that one call made to the key elsewhere: all of them or none.
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
        // VANISH can only be the last change of a call.
        let (changes, vanishes) = match changes.split_last() {
            Some((Change::Vanish, before)) => (before, true),
            _ => (changes, false),
        };
        let misfit = |at, misfit| Unfollowed { at, misfit };
        // A place may leave a name whose value is gone, or is of another family.
        let is_leave = |change: &Change| matches!(change, Change::Leave { .. });
        let leaves_only = !vanishes && changes.iter().all(is_leave);
        if !leaves_only && self.body(key, family).is_err() {
            return Err(misfit(0, Misfit::Family));
        }
        self.check_places(key, changes)?;
        if !leaves_only && !changes.is_empty() {
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
        self.follow_places(key, changes, now);
        if vanishes {
            self.discard(key);
        }
        Ok(())
    }

    /// Returns the changes for [`Engine::follow`] that a release by this token made on the primary, where it ended the
    /// only hold of the key and served nobody. `None` if this token is not the only holder here.
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
        let (fence, how, at) = (hold.fence(), End::Released, now.unix());
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
        let ended = state.body.apply_all(changes);
        let ended = ended.map_err(|(at, misfit)| Unfollowed { at, misfit })?;
        for (change, hold) in &ended {
            if let Change::End { how, at, .. } = *change
                && how.is_unasked()
            {
                // Only the server that decided knows its lease clock; the others go by the written deadline.
                let late_ms = at.0.checked_sub(hold.deadline().0);
                let end = UnaskedEnd::of(hold, *how, *at, late_ms);
                self.effects.notes.push(Note::EndedElsewhere(end));
            }
            if hold.is_ephemeral() {
                self.ephemeral.remove(&(hold.client(), hold.fence()));
            }
        }
        let is_grant = |change: &&Change| matches!(change, Change::Grant(_));
        let granted = changes.iter().filter(is_grant).count();
        self.stats.holds_come(family, granted);
        self.stats.holds_go(family, ended.len());
        Ok(())
    }

    /// Brings indexes and counters in line with changes that have been applied.
    fn followed(&mut self, id: StateId, changes: &[Change], now: Now) {
        for change in changes {
            if let Change::Grant(grant) = change {
                self.fences.adopt(grant.fence, now);
            }
        }
        // A primary follows too: Valkey 9 streams the changes of a slot to the node that the slot moves to.
        if self.is_serving() {
            for change in changes {
                if let Change::Grant(Grant { fence, .. })
                | Change::Renew { fence, .. }
                | Change::Unheard { fence, .. } = change
                {
                    self.take_up(id, *fence, now);
                }
            }
            self.index(id);
        }
    }

    /// Takes over a state that was read from a file or a payload, and will be stored under this name.
    ///
    /// Only a primary refuses fences far ahead of its clock, and what is beyond the bounds of commands, because there the
    /// payload comes from a client or from another node. A server believes its own files and its primary; otherwise a
    /// wrong clock on either side, or a bound that was lowered, would keep it from loading its data.
    ///
    /// # Errors
    /// For fences too far ahead, for what is beyond a bound, and when there is no room.
    pub fn adopt(
        &mut self,
        loaded: Loaded,
        db: Db,
        name: &[u8],
        now: Now,
    ) -> Result<StateId, Unfit> {
        if self.is_serving() {
            self.check_bounds(&loaded, db, name, now)?;
        }
        let Loaded { body, places } = loaded;
        let last_hold = body.holds().iter().last().map(Hold::fence);
        let last_place = places.last().map(|place| place.number);
        if let Some(last) = last_hold.max(last_place) {
            // A fence that this server gave itself is accepted, even if its clock was set back since.
            if self.is_serving() && fence::is_ahead(last, now) && last > self.fences.last() {
                return Err(Unfit::FenceAhead);
            }
            self.fences.adopt(last, now);
        }
        let (family, holds) = (body.family(), body.holds().len());
        let limit = body.limit_to_remember();
        let space = self.spaces.of(db);
        let state = State {
            body,
            address: Address::new(space, name),
        };
        let id = self.states.insert(state).ok_or(Unfit::Full)?;
        self.stats.holds_come(family, holds);
        if self.is_serving() {
            self.take_up_all(id, now);
        }
        self.adopt_places_of(id, db, name, places, now);
        if let Some(limit) = limit
            && let Some(queue) = self.queues.find(db, name)
            && let Some(queue) = self.queues.get_mut(queue)
        {
            queue.remember_limit(family, limit);
        }
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Fence, LeaseUs};

    fn at(unix_us: u64) -> Now {
        Now {
            lease: LeaseUs(0),
            mono: crate::types::MonoUs(0),
            unix_us,
            may_write: true,
        }
    }

    /// A replica must end exactly the hold that ended on the primary. If it differs, it refuses the release.
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
}
