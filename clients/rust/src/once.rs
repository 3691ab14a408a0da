//! What has become of work that is done once.

use crate::hold::Run;

/// What has become of work that is done once.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Nobody has done it: it was not begun, is under way, or is to be tried again.
    NotYet,
    /// It is done.
    Done {
        /// The result, `None` when the worker gave none.
        result: Option<Vec<u8>>,
        /// Which attempt succeeded.
        attempt: u64,
    },
    /// It was given up after as many attempts as [`Once::max_attempts`](crate::Once::max_attempts) allows.
    Failed {
        /// The reason of the last failure, as the worker gave it.
        reason: String,
        /// How many attempts were made.
        attempts: u64,
    },
}

/// What beginning work has come to.
#[derive(Debug)]
pub enum Begun<R = Run> {
    /// This process is to do the work.
    Run(R),
    /// The work is done already.
    Done {
        /// The result, `None` when the worker gave none.
        result: Option<Vec<u8>>,
        /// Which attempt succeeded.
        attempt: u64,
    },
}
