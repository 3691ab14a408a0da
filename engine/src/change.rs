//! Everything that can happen to a key's state.
//!
//! The server that decides makes [`Change`]s and applies them. A replica and an AOF load apply the same changes, in the
//! same order, with the same code. So a change carries every value that must be equal on all servers (fences,
//! wall-clock moments, how a hold ended), and nothing that is true on one server only (connections, the lease clock, and
//! the queue but for its kept places).
//!
//! [`crate::wire`] says how changes are written as bytes.

use std::sync::Arc;

use thiserror::Error;

use crate::hold::{Grant, GrantView};
use crate::short_bytes::LaneName;
use crate::types::{Claim, Fence, LeaseMs, Rank, Token, UnixMs};

/// What is replicated and saved of a kept place, and therefore equal on all servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptPlace {
    /// Its rank, and the name by which clients and operators know it.
    pub rank: Rank,
    pub token: Token,
    pub claim: Claim,
    pub lease: LeaseMs,
    pub min_hold: Option<LeaseMs>,
    /// How long the place is kept from the last request for it.
    pub keep_ms: u32,
    /// See [`Request::bound`](crate::Request::bound).
    pub bound: Option<u32>,
    pub owner: Option<Box<[u8]>>,
    /// When the place was first taken.
    pub since: UnixMs,
    pub lane: LaneName,
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
    /// The hold has ended early, and rests: its place stays taken until its MINHOLD is over, or until an END.
    Rest {
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
        rank: Rank,
    },
    /// What the present holds have displaced, none of which has been heard of. For a saved state: elsewhere the GRANT
    /// itself displaces.
    Displaced(Displaced),
}

/// A change whose texts belong to somebody else if it is a GRANT, of which a saved state may have very many.
pub(crate) enum ChangeView<'a> {
    Grant(GrantView<'a>),
    Other(Change),
}

impl From<ChangeView<'_>> for Change {
    fn from(change: ChangeView<'_>) -> Self {
        match change {
            ChangeView::Grant(grant) => Change::Grant(grant.into()),
            ChangeView::Other(change) => change,
        }
    }
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
    pub fn fence(&self) -> Option<Fence> {
        match self {
            Change::Grant(grant) => Some(grant.fence),
            Change::Renew { fence, .. }
            | Change::End { fence, .. }
            | Change::Rest { fence, .. }
            | Change::Fail { fence, .. }
            | Change::Unheard { fence, .. } => Some(*fence),
            Change::Complete { fence, .. } => *fence,
            _ => None,
        }
    }

    /// Returns the number of the hold or the place that the change is about, if any.
    pub fn number(&self) -> Option<Fence> {
        match self {
            Change::Place(KeptPlace { rank, .. }) | Change::Leave { rank } => Some(rank.0),
            _ => self.fence(),
        }
    }

    /// Whether the change concerns the queue of a name, and not the value under it.
    pub fn is_of_queue(&self) -> bool {
        matches!(self, Change::Place(_) | Change::Leave { .. })
    }

    /// Whether a client that watches the key wants to know of the change: a renewal and a change of the queue leave it
    /// as it was.
    pub fn modifies(&self) -> bool {
        !matches!(self, Change::Renew { .. }) && !self.is_of_queue()
    }

    /// Whether the change may put another limit in force.
    pub fn is_of_limit(&self) -> bool {
        matches!(self, Change::Limit(_) | Change::Pin(_))
    }

    /// Whether the change, unless it ends a hold, may let in more than before.
    pub fn may_free_capacity(&self) -> bool {
        self.is_of_limit() || matches!(self, Change::Delay { until: None } | Change::Pause { .. })
    }
}

/// Why a change does not fit the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Misfit {
    #[error("the key is of another family")]
    Family,
    #[error("its fence or its token is taken, or the key is held otherwise")]
    Taken,
    #[error("no hold of the key has its fence")]
    NoHold,
    #[error("there is no room for another key")]
    Full,
    #[error("the key vanishes, and yet more happens to it")]
    Vanished,
    #[error("another kept place has its token or its number")]
    PlaceTaken,
    #[error("no kept place has its number")]
    NoPlace,
}

/// How a hold ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// RELEASE with its token.
    Released,
    /// DONE with the token of a group's member.
    Done,
    /// Its lease ran out.
    Lapsed,
    /// An operator revoked it.
    Revoked,
    /// It was EPHEMERAL, and its connection closed.
    Disconnected,
    /// Its connection had closed before the grant was written to it, or its place was kept and its token was not heard
    /// from in time.
    Undelivered,
    /// It had ended before, and its rest is over.
    Rested,
}

impl End {
    /// Each with its word, in the order of their numbers in packed strings.
    pub(crate) const ALL: [(End, &'static str); 7] = [
        (End::Released, "released"),
        (End::Done, "done"),
        (End::Lapsed, "lapsed"),
        (End::Revoked, "revoked"),
        (End::Disconnected, "disconnected"),
        (End::Undelivered, "undelivered"),
        (End::Rested, "rested"),
    ];

    /// Whether the hold ended although its client did not ask for that.
    pub fn is_unasked(self) -> bool {
        match self {
            End::Released | End::Done | End::Rested => false,
            End::Lapsed | End::Revoked | End::Disconnected | End::Undelivered => true,
        }
    }

    /// Whether a hold with MINHOLD that ends so keeps its place taken.
    pub fn may_rest(self) -> bool {
        matches!(self, End::Released | End::Lapsed | End::Disconnected)
    }

    /// Returns its name in the event log.
    pub fn word(self) -> &'static str {
        End::ALL[self as usize].1
    }
}

/// What a semaphore keeps besides its holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// The last limit that a request put in force, or would have if no limit were pinned.
    pub limit: Option<u32>,
    /// The limit that an operator pinned. While it is set, it is in force.
    pub pinned: Option<u32>,
    /// How often the limit in force has changed.
    pub changes: u64,
}

impl Limits {
    pub fn in_force(&self) -> Option<u32> {
        self.pinned.or(self.limit)
    }

    /// Sets the limit of a request, or that of an operator. While a limit is pinned, one of a request is only remembered.
    pub(crate) fn set(&mut self, limit: Option<u32>, pinned: Option<u32>) {
        let before = self.in_force();
        (self.limit, self.pinned) = (limit, pinned);
        // The first limit does not count as a change.
        if before.is_some() && before != self.in_force() {
            self.changes = self.changes.saturating_add(1);
        }
    }
}

/// What a wait group keeps besides its members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub limit: Option<u32>,
    pub limit_changes: u64,
    pub expected: Option<u32>,
    /// Members of this round that ended by DONE.
    pub done: u64,
    /// Members of this round that lapsed, were revoked, or went with their connection.
    pub lapsed: u64,
    /// The moment of the last change; 0 before the first, because a replica must not use its own clock.
    pub touched: UnixMs,
    /// Set once the round has finished: until when its tally is kept.
    pub finished: Option<UnixMs>,
}

impl Tally {
    /// Returns how many of the expected jobs are not done yet.
    pub fn owed(&self) -> u64 {
        let expected = self.expected.map_or(0, u64::from);
        expected.saturating_sub(self.done)
    }
}

/// What a finished round leaves, but for the limit, which is the group's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FinishedRound {
    pub expected: Option<u32>,
    pub done: u64,
    pub lapsed: u64,
    pub keep_until: UnixMs,
}

/// Why the last attempt failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    Lapsed,
    Revoked,
    /// The text that FAIL gave.
    Given(Arc<[u8]>),
}

impl Reason {
    /// Returns the reason as clients and INFO show it.
    pub fn text(&self) -> Arc<[u8]> {
        match self {
            Reason::Lapsed => Arc::from(b"lapsed".as_slice()),
            Reason::Revoked => Arc::from(b"revoked".as_slice()),
            Reason::Given(text) => Arc::clone(text),
        }
    }
}

/// The completion of the work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The token that completed the work. Its repeated DONE is accepted.
    pub token: Token,
    pub result: Option<Arc<[u8]>>,
    /// [`UnixMs::NEVER`] if the result is kept until the key is removed.
    pub keep_until: UnixMs,
}

/// What is known of the work besides the current run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Attempts that have begun and were not handed back.
    pub attempts: u64,
    pub reason: Option<Reason>,
    /// The token of the last run, if that run lapsed or lost its connection. Its DONE is still accepted until another
    /// run is heard of or a client is told FAILED.
    pub late: Option<Token>,
    pub done: Option<Completion>,
    /// The moment of the last change, or the end of a delay if that is later.
    pub touched: UnixMs,
}
