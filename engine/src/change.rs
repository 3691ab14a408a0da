//! Everything that can happen to a key's state.
//!
//! The server that decides makes [`Change`]s and applies them; a replica and an AOF reload apply the
//! same ones, in the same order, through the same code. So a change carries every value that must
//! come out equal elsewhere (fences, wall-clock moments, who was lost and who was done) and nothing
//! that is only true here (connections, the lease clock, the queue).
//!
//! How they are written down is in [`crate::wire`].

use std::fmt;
use std::sync::Arc;

use crate::families::once::{Completion, Record};
use crate::hold::Grant;
use crate::types::{Fence, LeaseMs, UnixMs};

pub use crate::end::End;
pub use crate::families::group::Tally;
pub use crate::families::semaphore::Limits;

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
    /// The state is at its end and the key goes.
    Vanish,
    Limits(Limits),
    Tally(Tally),
    /// The run has ended, and what for.
    Fail {
        fence: Fence,
        at: UnixMs,
        reason: Arc<[u8]>,
    },
    /// The work is done, by the present run or, without one, by the last.
    Complete {
        fence: Option<Fence>,
        done: Completion,
    },
    /// A request was answered FAILED: the last run that lapsed is not believed any more.
    GiveUp,
    Record(Record),
}

impl Change {
    /// The fence of the hold that the change is about, if it is about one.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        match self {
            Change::Grant(grant) => Some(grant.fence),
            Change::Renew { fence, .. }
            | Change::End { fence, .. }
            | Change::Fail { fence, .. } => Some(*fence),
            Change::Complete { fence, .. } => *fence,
            Change::Limit(_)
            | Change::Pin(_)
            | Change::Expect { .. }
            | Change::Finish { .. }
            | Change::Vanish
            | Change::Limits(_)
            | Change::Tally(_)
            | Change::GiveUp
            | Change::Record(_) => None,
        }
    }

    /// What people call it: in logs, and in [`crate::wire`].
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
        }
    }
}

/// For the server's log: the verb and the fence. Tokens are secret, and results and reasons may be long.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb())?;
        match self.fence() {
            Some(fence) => write!(f, " {}", fence.0),
            None => Ok(()),
        }
    }
}
