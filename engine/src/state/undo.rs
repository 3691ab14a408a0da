//! Several changes, all or none: what one command of another server brings. An [`Undo`] keeps a copy of the body without
//! its holds, and each hold that a change is about to touch. It takes the changes back if one of them does not fit.
//!
//! A copy of all holds was rejected: a semaphore of 200,000 holders would be copied for each command.

use super::body::Body;
use super::hold_set::HoldSet;
use crate::change::{Change, Misfit};
use crate::hold::Hold;
use crate::types::Fence;

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
        // One change needs no undo list: `apply` does all of it or nothing.
        let mut undo = (changes.len() > 1).then(|| Undo::of(self));
        let mut ended = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            if let Some(undo) = &mut undo {
                undo.note(self, change);
            }
            let applied = match change {
                Change::Vanish => Err(Misfit::Vanished),
                _ => self.apply(change),
            };
            match applied {
                Ok(hold) => ended.extend(hold.map(|hold| (change, hold))),
                Err(misfit) => {
                    if let Some(undo) = undo {
                        undo.roll_back(self);
                    }
                    return Err((at, misfit));
                }
            }
        }
        Ok(ended)
    }
}

/// What a body was before some changes.
struct Undo {
    /// Everything but the holds.
    rest: Body,
    /// Oldest first: the hold of each fence that a change was about, as it was before that change.
    holds: Vec<(Fence, Option<Hold>)>,
}

impl Undo {
    fn of(body: &mut Body) -> Undo {
        let live = body.take_holds();
        let (rest, holds) = (body.clone(), Vec::new());
        body.put_holds(live);
        Undo { rest, holds }
    }

    /// Notes what the change will touch. Call it before the change is applied to the body.
    fn note(&mut self, body: &Body, change: &Change) {
        if let Some(fence) = change.fence() {
            self.holds.push((fence, body.holds().get(fence).cloned()));
        }
    }

    /// Takes back all changes that were noted. The body may have refused the last one.
    fn roll_back(self, body: &mut Body) {
        let mut live = body.take_holds();
        for (fence, before) in self.holds.into_iter().rev() {
            // The change may have ended the hold, or added none.
            live.remove(fence);
            if let Some(hold) = before {
                live.insert(hold);
            }
        }
        *body = self.rest;
        body.put_holds(live);
    }
}

impl Body {
    /// Puts back what [`Body::take_holds`] took.
    fn put_holds(&mut self, live: HoldSet) {
        // Without a place for holds there were none.
        if let Some(holds) = self.holds_mut() {
            *holds = live;
        }
    }
}
