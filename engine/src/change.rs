//! Everything that can happen to a key's state.
//!
//! The server that decides makes [`Change`]s and applies them. A replica and an AOF load apply the same changes, in the
//! same order, with the same code. So a change carries every value that must be equal on all servers (fences,
//! wall-clock moments, how a hold ended), and nothing that is true on one server only (connections, the lease clock,
//! the queue).
//!
//! [`crate::wire`] says how changes are written as bytes.

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
}

impl Change {
    /// Returns the fence of the hold that the change is about, if any.
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
            | Change::Record(_)
            | Change::Delay { .. }
            | Change::Pause { .. } => None,
        }
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
        }
    }
}

/// For the server's log: the verb and the fence only, because tokens are secret, and results and reasons may be long.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb())?;
        match self.fence() {
            Some(fence) => write!(f, " {}", fence.0),
            None => Ok(()),
        }
    }
}
