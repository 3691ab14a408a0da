//! States that come from a file, a payload or another node.

use crate::calls::unfit::Unfit;
use crate::engine::Engine;
use crate::hold::Hold;
use crate::saved::Loaded;
use crate::store::slab::StateId;
use crate::term::TakeOver;
use crate::term::fences::is_ahead;
use crate::types::{Db, Now};

impl Engine {
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
        let last_hold = body.holds().last().map(Hold::fence);
        let last_place = places.last().map(|place| place.rank.0);
        if let Some(last) = last_hold.max(last_place) {
            // A fence that this server gave itself is accepted, even if its clock was set back since.
            if self.is_serving() && is_ahead(last, now) && last > self.term.fences.last() {
                return Err(Unfit::FenceAhead);
            }
            self.term.fences.adopt(last, now);
        }
        let id = self.store.insert(body, db, name).ok_or(Unfit::Full)?;
        if self.is_serving() {
            let from = TakeOver::at(now, self.settings.takeover_grace_ms);
            self.term.take_up_all(&mut self.store, id, from);
            self.index(id);
        }
        self.adopt_places_of(id, db, name, places, now);
        Ok(id)
    }
}
