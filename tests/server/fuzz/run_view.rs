//! What a plan knows of the run that it makes steps for.

use std::collections::VecDeque;

use super::driver::{SeenGrant, Waiting};

pub trait RunView {
    /// The number of connections without the operator's.
    fn connections(&self) -> usize;

    /// Returns whether the connection has no unanswered request.
    fn is_idle(&self, on: usize) -> bool {
        self.load(on) == 0
    }

    /// The number of unanswered requests of this connection.
    fn load(&self, on: usize) -> usize;

    fn is_resp3(&self, on: usize) -> bool;

    fn database(&self, on: usize) -> usize;

    /// The latest grants that were read, the oldest first.
    fn seen_grants(&self) -> &VecDeque<SeenGrant>;

    /// The requests that may be waiting in a queue.
    fn waiting(&self) -> Vec<Waiting>;
}
