//! What a call wants done, in the order in which it must be done.
//!
//! First the changes go to the replicas and into the AOF, then the key is announced as modified and
//! the log has its lines, and only then is anybody told: whoever reads a grant may rely on its having
//! been written before.

use crate::answer::Answer;
use crate::change::Change;
use crate::index::slab::StateId;
use crate::queue::wait_queue::Origin;
use crate::state::Misfit;
use crate::types::{Fence, WaiterId};

/// A waiter's answer is decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wake {
    pub waiter: WaiterId,
    pub answer: Answer,
    /// The hold that the answer grants.
    pub grant: Option<HandedOver>,
}

/// A hold that was granted to a waiter, whose reply is not written yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandedOver {
    pub state: StateId,
    pub fence: Fence,
    /// Where its token is to stand again if the reply cannot be delivered; `None` for a token that the
    /// client did not choose.
    pub origin: Option<Origin>,
}

/// A line for the server's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// A hold lapsed that had never been renewed: its client is slow, stuck or gone.
    LapsedUnrenewed {
        fence: Fence,
        owner: Option<Box<[u8]>>,
    },
    Revoked {
        fence: Fence,
        owner: Option<Box<[u8]>>,
    },
    /// The engine decided a change that the state refused: a defect of the engine's. Nothing has changed,
    /// and nobody else is told of the change.
    Refused { change: String, misfit: Misfit },
}

#[derive(Default, Debug)]
pub struct Effects {
    pub changes: Vec<Change>,
    /// Watchers of the key are told: a grant, an end or a limit changed. Renewals and queues do not
    /// count, so that a renewer of one's own never aborts one's MULTI.
    pub modified: bool,
    /// Something has happened by which capacity may have been gained: see [`crate::Engine::free_capacity`].
    pub may_gain: bool,
    pub notes: Vec<Note>,
    pub wakes: Vec<Wake>,
}

impl Effects {
    /// Empties it and keeps its buffers.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.modified = false;
        self.may_gain = false;
        self.notes.clear();
        self.wakes.clear();
    }

    pub(super) fn wake(&mut self, waiter: WaiterId, answer: Answer) {
        self.wakes.push(Wake {
            waiter,
            answer,
            grant: None,
        });
    }

    /// The answer to a request that was decided in the same call in which it queued.
    pub(super) fn answer_to(&mut self, waiter: WaiterId) -> Option<Answer> {
        let at = self.wakes.iter().position(|wake| wake.waiter == waiter)?;
        Some(self.wakes.remove(at).answer)
    }
}
