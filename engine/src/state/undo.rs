//! Several changes, all or none: what one command of another server brings. A copy of the body without its
//! holds is kept, and each hold that a change is about to touch, to take the changes back if one of them does not fit.
//!
//! A copy of all holds was rejected: a semaphore of 200,000 holders would be copied for each command.

use super::body::Body;
use super::hold_set::HoldSet;
use crate::change::{Change, Misfit};
use crate::hold::Hold;
use crate::types::Fence;

/// The hold of each fence that a change was about, as it was before that change, oldest first.
type Touched = Vec<(Fence, Option<Hold>)>;

impl Body {
    /// Applies all of the changes, or none. Returns the holds that they ended, each with the change that ended it.
    ///
    /// # Errors
    /// If a change does not fit: which one, and why. VANISH fits never, because the caller removes the state after the
    /// last change.
    pub fn apply_all<'c>(
        &mut self,
        changes: &'c [Change],
    ) -> Result<Vec<(&'c Change, Hold)>, (usize, Misfit)> {
        // One change needs no undo: `apply` does all of it or nothing.
        let mut undo = (changes.len() > 1).then(|| (self.without_holds(), Touched::new()));
        let mut ended = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            if let Some((_, touched)) = &mut undo
                && let Some(fence) = change.fence()
            {
                touched.push((fence, self.holds().get(fence).cloned()));
            }
            let applied = match change {
                Change::Vanish => Err(Misfit::Vanished),
                _ => self.apply(change),
            };
            match applied {
                Ok(hold) => ended.extend(hold.map(|hold| (change, hold))),
                Err(misfit) => {
                    if let Some((rest, touched)) = undo {
                        self.roll_back(rest, touched);
                    }
                    return Err((at, misfit));
                }
            }
        }
        Ok(ended)
    }

    /// Returns a copy of everything but the holds.
    fn without_holds(&mut self) -> Body {
        let live = self.take_holds();
        let rest = self.clone();
        self.put_holds(live);
        rest
    }

    /// Takes back all changes since `rest` was copied. The body may have refused the last one.
    fn roll_back(&mut self, rest: Body, touched: Touched) {
        let mut live = self.take_holds();
        for (fence, before) in touched.into_iter().rev() {
            // The change may have ended the hold, or added none.
            live.remove(fence);
            if let Some(hold) = before {
                live.insert(hold);
            }
        }
        *self = rest;
        self.put_holds(live);
    }

    /// Puts back what [`Body::take_holds`] took.
    fn put_holds(&mut self, live: HoldSet) {
        // Without a place for holds there were none.
        if let Ok(holds) = self.holds_mut() {
            *holds = live;
        }
    }
}
