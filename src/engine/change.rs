//! Everything that can happen to a key's state.
//!
//! The server that decides makes [`Change`]s and applies them; a replica and an AOF reload apply the
//! same ones, in the same order, through the same code. So a change carries every value that must
//! come out equal elsewhere (fences, wall-clock moments, who was lost and who was done) and nothing
//! that is only true here (connections, the lease clock, the queue).
//!
//! How they are written down is in [`super::wire`].

use std::fmt;
use std::sync::Arc;

use super::hold::Grant;
use super::once::{Completion, Record};
use super::types::{Fence, LeaseMs, UnixMs};

/// How a hold ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// Its token gave it back.
    Released,
    /// Its token declared the member's job done.
    Done,
    /// Its lease ran out.
    Lapsed,
    /// An operator took it.
    Revoked,
    /// It was ephemeral and its connection closed.
    Disconnected,
    /// It was granted to a connection that had closed before the reply was written.
    Undelivered,
}

impl End {
    pub(super) const ALL: [(End, &'static str); 6] = [
        (End::Released, "released"),
        (End::Done, "done"),
        (End::Lapsed, "lapsed"),
        (End::Revoked, "revoked"),
        (End::Disconnected, "disconnected"),
        (End::Undelivered, "undelivered"),
    ];

    #[must_use]
    pub fn word(self) -> &'static str {
        End::ALL
            .iter()
            .find(|(end, _)| *end == self)
            .map_or("", |(_, word)| word)
    }
}

/// The scalars of a semaphore.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// The limit that requests last put in force, or would have but for the pin.
    pub limit: Option<u32>,
    /// The operator's limit; while it is set it is the one in force.
    pub pinned: Option<u32>,
    /// How often the limit in force has become another.
    pub changes: u64,
}

/// The scalars of a wait group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tally {
    pub limit: Option<u32>,
    pub limit_changes: u64,
    pub expected: Option<u32>,
    /// Members of this round that ended by DONE.
    pub done: u64,
    /// Members of this round that were lost: lapsed, revoked, or gone with their connection.
    pub lost: u64,
    /// When something last happened.
    pub touched: UnixMs,
    /// The round is finished, and its tally is kept until then.
    pub finished: Option<UnixMs>,
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
    /// Somebody has been told that there is no hope.
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

    /// What people call it: in logs, and in [`super::wire`].
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
