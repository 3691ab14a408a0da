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
    /// The client is to do the work.
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
    /// Held by others, or not finished yet, and the request does not wait, or has waited long enough.
    NotGranted,
    /// The round has finished.
    Finished {
        done: u64,
        lost: u64,
    },
    Refused(Refusal),
    /// The token's next request has taken over the place.
    Superseded,
    /// RELEASE with the request's token has withdrawn it.
    Withdrawn,
    /// The key that the request waited for was removed.
    Removed,
    /// The key has a value of another type now.
    WrongType,
    /// The key has gone to another node of the cluster, and its slot is moving.
    KeyLeft,
    /// This server does not decide any more.
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
