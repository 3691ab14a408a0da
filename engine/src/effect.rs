//! What the caller must do after a call, in this order.
//!
//! First the changes go to the replicas and into the AOF. Then the key is signalled as modified, and the notes go to
//! the logs. Clients are answered last, so that a grant is written before its client reads it.

use crate::answer::Answer;
use crate::change::{Change, Misfit};
use crate::queue::place::Standing;
use crate::store::slab::StateId;
use crate::types::{Fence, Rank, WaiterId};
use crate::unasked::UnaskedEnd;

/// The answer to a request that waited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wake {
    pub waiter: WaiterId,
    pub answer: Answer,
    /// The hold, if the answer grants one.
    pub grant: Option<HandedOver>,
}

/// A hold that was granted to a waiter, whose reply is not written yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandedOver {
    pub state: StateId,
    pub fence: Fence,
    /// What the token gets back if the reply cannot be delivered; `None` if the client did not choose the token.
    pub standing: Option<Standing>,
}

/// What operators may want to read about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// This server has ended a hold, and its client did not ask for that.
    Ended(UnaskedEnd),
    /// The same, but another server has decided it.
    EndedElsewhere(UnaskedEnd),
    /// The state has refused a change that the engine decided, which is a defect of the engine. Nothing has changed,
    /// and the change is not replicated.
    Refused { change: String, misfit: Misfit },
}

/// What the token of a kept place must be told, on the channel of the place's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announcement {
    pub rank: Rank,
    /// The hold that was granted to the token; `None` if the place was dropped without a grant.
    pub fence: Option<Fence>,
}

#[derive(PartialEq, Default, Debug)]
pub struct Effects {
    /// Changes of the queue alone ([`Change::is_of_queue`]) may concern a name that has no value, or one of another
    /// family or type.
    pub changes: Vec<Change>,
    /// Whether the key must be signalled as modified: see [`Change::modifies`]. So a client's own renewals never abort
    /// its MULTI.
    pub modified: bool,
    /// The call may have freed capacity: whether it has is in [`Visited::is_freed`](crate::calls::close::Visited).
    pub may_free_capacity: bool,
    pub notes: Vec<Note>,
    pub wakes: Vec<Wake>,
    pub announcements: Vec<Announcement>,
}

impl Effects {
    /// Whether the caller has nothing to do.
    pub fn is_empty(&self) -> bool {
        let Effects {
            changes,
            modified,
            may_free_capacity,
            notes,
            wakes,
            announcements,
        } = self;
        let is_marked = *modified || *may_free_capacity;
        let is_told = !wakes.is_empty() || !announcements.is_empty();
        changes.is_empty() && notes.is_empty() && !is_marked && !is_told
    }

    /// Empties the effects and keeps their buffers.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.modified = false;
        self.may_free_capacity = false;
        self.notes.clear();
        self.wakes.clear();
        self.announcements.clear();
    }

    pub(super) fn wake(&mut self, waiter: WaiterId, answer: Answer) {
        self.wakes.push(Wake {
            waiter,
            answer,
            grant: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    /// The module does nothing after a call whose effects are empty.
    #[test]
    fn effects_are_empty_only_without_any() {
        assert!(Effects::default().is_empty());
        const RANK: Rank = Rank(Fence(7));
        let marks: [fn(&mut Effects); 6] = [
            |effects| effects.changes.push(Change::Leave { rank: RANK }),
            |effects| effects.modified = true,
            |effects| effects.may_free_capacity = true,
            |effects| {
                effects.notes.push(Note::Refused {
                    change: "GRANT 7".to_owned(),
                    misfit: Misfit::Family,
                });
            },
            |effects| effects.wake(WaiterId(NonZeroU64::MIN), Answer::NotGranted),
            |effects| {
                effects.announcements.push(Announcement {
                    rank: RANK,
                    fence: None,
                });
            },
        ];
        for (number, mark) in marks.iter().enumerate() {
            let mut effects = Effects::default();
            mark(&mut effects);
            assert!(!effects.is_empty(), "mark {number}");
            effects.clear();
            assert!(effects.is_empty(), "mark {number}, cleared");
        }
    }
}
