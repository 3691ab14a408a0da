//! Takes back the changes of one command, because changes from another server are applied all or none. An [`Undo`]
//! keeps what each change is about to touch.
//!
//! A copy of the whole body was rejected: a semaphore of 200,000 holders would be copied for each command.

use crate::Body;
use crate::change::{Change, Displaced};
use crate::hold::Hold;
use crate::types::Fence;

/// What a body was before some changes.
pub struct Undo {
    scalars: Option<Change>,
    later_scalars: Vec<Change>,
    displaced: Option<Displaced>,
    /// Oldest first: the hold of each fence that a change was about, as it was before that change.
    holds: Vec<(Fence, Option<Hold>)>,
}

impl Undo {
    #[must_use]
    pub fn of(body: &Body) -> Undo {
        Undo {
            scalars: body.scalars(),
            later_scalars: body.later_scalars().collect(),
            displaced: body.displaced(),
            holds: Vec::new(),
        }
    }

    /// Notes what the change will touch. Call it before the change is applied to the body.
    pub fn note(&mut self, body: &Body, change: &Change) {
        if let Some(fence) = change.fence() {
            self.holds.push((fence, body.holds().get(fence).cloned()));
        }
    }

    /// Takes back all changes that were noted. The body may have refused the last one.
    pub fn roll_back(self, body: &mut Body) {
        for (fence, before) in self.holds.into_iter().rev() {
            body.remove(fence);
            if let Some(hold) = before {
                body.insert(hold);
            }
        }
        // The changes may have paused a body that was not paused.
        let go_on = Change::Pause { until: None };
        let scalars = [go_on].into_iter().chain(self.scalars);
        for change in scalars.chain(self.later_scalars) {
            let restored = body.apply(&change);
            debug_assert!(restored.is_ok(), "a body takes its own scalars");
        }
        // The scalars have dropped what the changes displaced.
        body.set_displaced(self.displaced);
    }
}
