//! The answers to requests.

use std::sync::Arc;

use crate::types::{Fence, Token};

/// The outcome of a request; each request has exactly one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Granted {
        token: Token,
        fence: Fence,
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
    /// The round has finished.
    Finished {
        done: u64,
        lost: u64,
    },
    Refused(Refusal),
    /// A later request with the same token has taken over the place.
    Superseded,
    /// RELEASE with the request's token has withdrawn it.
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

/// What the caller got wrong, with the bound that was crossed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No limit was given and none is in force.
    NoLimit,
    TooMany {
        permits: u32,
        limit: u32,
    },
    /// The token holds, or waits for, something else.
    Mismatch,
    QueueFull(FullQueue),
}

/// Which bound a queue has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FullQueue {
    Key { bound: u64 },
    Server { bound: u64 },
}
