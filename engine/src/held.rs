//! All holds of the server, a slice at a time: what DSYNC.HOLDS shows.
//!
//! The walk goes by the ids of the states, and within a state by the fences of its holds. Neither changes while a hold
//! lives: RENAME, MOVE and SWAPDB change only where the state is, and a key keeps its id however many holds it gets. So
//! a walk meets every hold that lives from its first slice to its last, and meets it once. It may miss a hold that was
//! granted meanwhile.
//!
//! A server that loads its data anew gives the states other ids. A walk that was begun before must begin again.
//!
//! Rejected: a walk over the keyspace, as SCAN does it. It would visit the keys of everybody, and could not stop inside
//! a key with a million holds.

use crate::engine::Engine;
use crate::info::HoldInfo;
use crate::store::slab::StateId;
use crate::store::spaces::Space;
use crate::types::{Db, Family, Fence, Now};

/// Where a walk continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldCursor {
    /// The walk has passed all states with smaller ids.
    pub state: StateId,
    /// And the holds of this state up to this fence.
    pub fence: Fence,
}

/// A hold, and where it is.
pub struct FoundHold<'e> {
    /// `None` for the hold of a stray, as long as the engine does not know the key that its value has now.
    pub key: Option<(Db, &'e [u8])>,
    pub family: Family,
    pub hold: HoldInfo<'e>,
}

impl Engine {
    /// Continues a walk over all holds, or begins one with `None`. Looks at `looks` holds at most, and returns those that
    /// do not rest and whose owner is wanted; and where to continue, `None` after the last hold. A state without holds
    /// costs a look too, because there may be a million of them.
    pub fn held(
        &self,
        from: Option<HeldCursor>,
        looks: usize,
        now: Now,
        is_wanted: impl Fn(Option<&[u8]>) -> bool,
    ) -> (Vec<FoundHold<'_>>, Option<HeldCursor>) {
        let mut found = Vec::new();
        let mut left = looks;
        let since = from.map_or(StateId::FIRST, |cursor| cursor.state);
        for (id, state) in self.store.states_since(since) {
            let mut fence = match from {
                Some(cursor) if cursor.state == id => cursor.fence,
                _ => Fence(0),
            };
            if left == 0 {
                return (found, Some(HeldCursor { state: id, fence }));
            }
            let before = left;
            let key = self.store.db_of(state).map(|db| (db, state.address.name()));
            // The server has flushed this state's database, and the state is still to be freed.
            let is_dead = key.is_none() && state.address.space() != Space::NOWHERE;
            let first = if is_dead { Fence::MAX } else { fence };
            for hold in state.body.holds().after(first) {
                if left == 0 {
                    return (found, Some(HeldCursor { state: id, fence }));
                }
                left -= 1;
                fence = hold.fence();
                if !hold.is_resting() && is_wanted(hold.owner()) {
                    found.push(FoundHold {
                        key,
                        family: state.body.family(),
                        hold: self.hold_info(hold, now),
                    });
                }
            }
            if left == before {
                left -= 1;
            }
        }
        (found, None)
    }
}
