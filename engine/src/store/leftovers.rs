//! Large things that are no longer needed, dropped one piece at a time.
//!
//! To drop a map of a million entries takes tens of milliseconds, in which no client is answered. So large things are
//! put here, and [`crate::Engine::background`] drops a bounded number of their pieces in each slice. Small things are
//! dropped at once, which costs less than to put them here.

use std::collections::VecDeque;

use crate::state::HoldSet;
use crate::store::slab::StateId;
use crate::types::{ClientId, Fence};

/// How many pieces may be dropped in one go.
pub const SMALL: usize = 64;

/// A piece that was dropped, and what the engine has still to do for it.
pub enum Piece {
    Dropped,
    /// A hold that had its entry in the index of EPHEMERAL holds.
    Ephemeral(ClientId, Fence),
    /// The server has freed this value on another thread, or during a flush.
    Freed(StateId),
}

/// Iterators that take things apart, the oldest first. Each returns, for each piece that it has dropped, what is still
/// to be done for it.
pub struct Leftovers<P>(VecDeque<Box<dyn Iterator<Item = P> + Send>>);

impl<P> Default for Leftovers<P> {
    fn default() -> Self {
        Leftovers(VecDeque::new())
    }
}

impl<P> Leftovers<P> {
    pub fn push(&mut self, pieces: impl Iterator<Item = P> + Send + 'static) {
        self.0.push_back(Box::new(pieces));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<P> Iterator for Leftovers<P> {
    type Item = P;

    /// Drops one more piece. Returns `None` if nothing is left.
    fn next(&mut self) -> Option<P> {
        loop {
            let piece = self.0.front_mut()?.next();
            if piece.is_some() {
                return piece;
            }
            self.0.pop_front();
        }
    }
}

impl Leftovers<Piece> {
    /// Drops a collection: at once if it has few entries.
    pub fn drop_entries<I>(&mut self, large: I)
    where
        I: IntoIterator,
        I::IntoIter: Send + 'static,
    {
        let entries = large.into_iter();
        if entries.size_hint().0 > SMALL {
            self.push(entries.map(|_| Piece::Dropped));
        }
    }

    /// Drops many holds.
    pub fn drop_holds(&mut self, holds: HoldSet) {
        self.push(holds.into_pieces().map(|hold| match hold {
            Some(hold) if hold.is_ephemeral() => Piece::Ephemeral(hold.client(), hold.fence()),
            _ => Piece::Dropped,
        }));
    }
}
