//! What a request is told.

use std::sync::Arc;

use crate::types::{Fence, Token};

/// The outcome of a request; each request has exactly one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Granted {
        token: Token,
        fence: Fence,
    },
    /// Do the work: you are at it.
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
    /// As many attempts as the request allows have come to nothing.
    GivenUp {
        reason: Arc<[u8]>,
        attempts: u64,
    },
    /// Held by others, or not finished, and no wait or no longer.
    NotGranted,
    /// The round is over.
    Finished {
        done: u64,
        lost: u64,
    },
    Refused(Refusal),
    /// The token's next request has taken over the place.
    Superseded,
    /// RELEASE with the request's token has withdrawn it.
    Withdrawn,
    /// What was waited for has been removed.
    Removed,
    /// The key has become something else.
    WrongType,
    /// The key is on its way to another node of the cluster.
    KeyLeft,
    /// This server serves nobody any more.
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
