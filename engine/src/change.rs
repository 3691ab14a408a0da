//! Everything that can happen to a key's state.
//!
//! The server that decides makes [`Change`]s and applies them. A replica and an AOF load apply the same changes, in the
//! same order, with the same code. So a change carries every value that must be equal on all servers (fences,
//! wall-clock moments, how a hold ended), and nothing that is true on one server only (connections, the lease clock, and
//! the queue but for its kept places).
//!
//! [`crate::wire`] says how changes are written as bytes.

use std::fmt;
use std::sync::Arc;

use crate::families::once::{Completion, Record};
use crate::hold::Grant;
use crate::types::{Claim, Fence, LeaseMs, Token, UnixMs};

pub use crate::end::End;
pub use crate::families::group::{FinishedRound, Tally};
pub use crate::families::semaphore::Limits;

/// What is replicated and saved of a kept place, and therefore equal on all servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptPlace {
    /// Its rank, and the name by which clients and operators know it.
    pub number: Fence,
    pub token: Token,
    pub claim: Claim,
    pub lease: LeaseMs,
    /// How long the place is kept from the last request for it.
    pub keep_ms: u32,
    /// For a run: how many attempts the request allows in all.
    pub max_attempts: Option<u32>,
    pub owner: Option<Box<[u8]>>,
    /// When the place was first taken.
    pub since: UnixMs,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Grant(Grant),
    Renew {
        fence: Fence,
        lease: LeaseMs,
        deadline: UnixMs,
    },
    End {
        fence: Fence,
        how: End,
        at: UnixMs,
    },
    Limit(u32),
    Pin(Option<u32>),
    Expect {
        jobs: u32,
        at: UnixMs,
    },
    Finish {
        keep_until: UnixMs,
    },
    /// The key is removed, because nothing keeps its state any more.
    Vanish,
    Limits(Limits),
    Tally(Tally),
    /// The run has failed, with the reason that its client gave.
    Fail {
        fence: Fence,
        at: UnixMs,
        reason: Arc<[u8]>,
    },
    /// The work is done: by the current run, or, if `fence` is `None`, by the last run that lapsed.
    Complete {
        fence: Option<Fence>,
        done: Completion,
    },
    /// A request was answered FAILED, so a DONE by the last run that lapsed is refused from then on.
    GiveUp,
    Record(Record),
    /// No run may begin before this moment. It follows the FAIL that asked for it; without a moment, the delay is over.
    Delay {
        until: Option<UnixMs>,
    },
    /// Nobody is granted before this moment, by the order of an operator; `None` ends the pause.
    Pause {
        until: Option<UnixMs>,
    },
    /// The hold was granted to a kept place, and its token has not been heard from. It follows the GRANT; a RENEW ends
    /// it.
    Unheard {
        fence: Fence,
        /// How long the place was kept.
        keep_ms: u32,
    },
    /// The name has a kept place. A place with the same number is replaced.
    Place(KeptPlace),
    /// The kept place with this number is gone. A GRANT to its token takes a place away without it.
    Leave {
        number: Fence,
    },
    /// What the present holds have displaced, none of which has been heard of. For a saved state: elsewhere the GRANT
    /// itself displaces.
    Displaced(Displaced),
}

/// What a GRANT has taken the place of, and what comes back if its hold ends undelivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Displaced {
    /// The token of the run before, whose DONE is still accepted: see [`Record::late`].
    Late(Token),
    /// The finished round before this one.
    Round(FinishedRound),
}

impl Change {
    /// Returns the fence of the hold that the change is about, if any.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        match self {
            Change::Grant(grant) => Some(grant.fence),
            Change::Renew { fence, .. }
            | Change::End { fence, .. }
            | Change::Fail { fence, .. }
            | Change::Unheard { fence, .. } => Some(*fence),
            Change::Complete { fence, .. } => *fence,
            Change::Limit(_)
            | Change::Pin(_)
            | Change::Expect { .. }
            | Change::Finish { .. }
            | Change::Vanish
            | Change::Limits(_)
            | Change::Tally(_)
            | Change::GiveUp
            | Change::Record(_)
            | Change::Delay { .. }
            | Change::Pause { .. }
            | Change::Place(_)
            | Change::Leave { .. }
            | Change::Displaced(_) => None,
        }
    }

    /// Whether the change concerns the queue of a name, and not the value under it.
    #[must_use]
    pub fn is_of_queue(&self) -> bool {
        matches!(self, Change::Place(_) | Change::Leave { .. })
    }

    /// Whether a client that watches the key wants to know of the change: a renewal and a change of the queue leave it
    /// as it was.
    #[must_use]
    pub fn modifies(&self) -> bool {
        !matches!(self, Change::Renew { .. }) && !self.is_of_queue()
    }

    /// Returns the name of the change in logs and in [`crate::wire`].
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Change::Grant(_) => "GRANT",
            Change::Renew { .. } => "RENEW",
            Change::End { .. } => "END",
            Change::Limit(_) => "LIMIT",
            Change::Pin(_) => "PIN",
            Change::Expect { .. } => "EXPECT",
            Change::Finish { .. } => "FINISH",
            Change::Vanish => "VANISH",
            Change::Limits(_) => "LIMITS",
            Change::Tally(_) => "TALLY",
            Change::Fail { .. } => "FAIL",
            Change::Complete { .. } => "COMPLETE",
            Change::GiveUp => "GIVEUP",
            Change::Record(_) => "RECORD",
            Change::Delay { .. } => "DELAY",
            Change::Pause { .. } => "PAUSE",
            Change::Unheard { .. } => "UNHEARD",
            Change::Place(_) => "PLACE",
            Change::Leave { .. } => "LEAVE",
            Change::Displaced(_) => "DISPLACED",
        }
    }
}

/// For the server's log: the verb and the fence or number only, because tokens are secret, and results and reasons may be long.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb())?;
        let number = match self {
            Change::Place(place) => Some(place.number),
            Change::Leave { number } => Some(*number),
            _ => self.fence(),
        };
        match number {
            Some(number) => write!(f, " {}", number.0),
            None => Ok(()),
        }
    }
}
