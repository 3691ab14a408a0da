//! The answers to requests.

use std::sync::Arc;

use crate::types::{Claim, Fence, Rank, Token};

/// The outcome of a request; each request has exactly one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Granted {
        token: Token,
        fence: Fence,
        /// Set if the request asked for one.
        index: Option<u32>,
    },
    /// The client must do the work now.
    Run {
        token: Token,
        fence: Fence,
        attempt: u64,
    },
    /// The work is done already.
    Done {
        result: Option<Arc<[u8]>>,
        attempt: u64,
    },
    /// All attempts that the request allows have failed.
    GivenUp {
        reason: Arc<[u8]>,
        attempts: u64,
    },
    /// The key is held by others, or the round is not finished; and the request does not wait, or its wait has run out.
    NotGranted,
    /// The request with QUEUE was not granted; its place is kept.
    Waiting {
        /// How many requests are to be served up to and with this one; [`Answer::FARTHEST`] means that or more.
        position: u32,
        rank: Rank,
    },
    /// The round has finished.
    Finished {
        done: u64,
        lapsed: u64,
    },
    Refused(Refusal),
    /// A later request with the same token has taken over the place.
    Superseded,
    /// RELEASE with the request's token has withdrawn it, or had done so before it came.
    Withdrawn,
    /// The key that the request waited for was removed.
    Removed,
    /// The key has a value of another type.
    WrongType,
    /// The key has gone to another node of the cluster, and its slot is moving.
    KeyLeft,
    /// This server was demoted.
    Demoted,
}

impl Answer {
    /// How far the position of a request is counted.
    pub const FARTHEST: u32 = 100;
}

/// What the caller got wrong, with the bound that was crossed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No limit was given and none is in force.
    NoLimit,
    TooMany {
        permits: u32,
        limit: u32,
    },
    /// More permits than the request lets its lane have in use.
    TooManyForLane {
        permits: u32,
        limit: u32,
    },
    /// The token holds, or waits for, something else.
    Mismatch,
    /// The token holds, or waits, in another lane.
    OtherLane,
    QueueFull(FullQueue),
    /// The server has no memory for a new hold or place.
    OutOfMemory,
}

/// Which bound a queue has reached, and that bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FullQueue {
    Key(u64),
    Server(u64),
    /// Kept places have reached half of the key's bound. The number is the half.
    HalfOfKey(u64),
    /// Kept places have reached half of the server's bound. The number is the half.
    HalfOfServer(u64),
    /// The lane has so many places, which are no fewer than those that are still free under a bound.
    Lane(u64),
}

impl Refusal {
    /// Returns how a request is refused whose token has another claim, or the same in another lane.
    pub(crate) fn of_other(asked: (Claim, &[u8]), has: (Claim, &[u8])) -> Option<Refusal> {
        match asked.0 == has.0 {
            _ if asked == has => None,
            true => Some(Refusal::OtherLane),
            false => Some(Refusal::Mismatch),
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Answer {
        Answer::Refused(refusal)
    }
}

impl From<FullQueue> for Answer {
    fn from(full: FullQueue) -> Answer {
        Answer::Refused(Refusal::QueueFull(full))
    }
}
