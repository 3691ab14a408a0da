//! What follows from the places of a queue: found faster here than by a walk over them.

use std::collections::{BTreeMap, BTreeSet};

use crate::queue::place::Place;
use crate::types::{Claim, Family, Rank, Token};

/// The numbers are sums over the places in line.
#[derive(Default, PartialEq, Debug)]
pub(super) struct Index {
    /// The places whose token may come back.
    pub(super) by_token: BTreeMap<Token, Rank>,
    /// The places in line that ask for more than one permit.
    pub(super) heavy: BTreeSet<(u32, Rank)>,
    /// The places in line whose request has a MAX of attempts.
    pub(super) capped: BTreeSet<(u32, Rank)>,
    /// How many of the places in line are kept.
    pub(super) kept: usize,
    /// The sum of [`Place::heap_bytes`] of the kept places, so that MEMORY USAGE does not walk over them.
    pub(super) kept_bytes: usize,
    /// How many clients wait on the places in line.
    pub(super) parked: usize,
    /// The number of places in line by family.
    pub(super) by_family: [usize; Family::ALL.len()],
}

impl Index {
    /// Notes a place that has come to the queue, or that has left it.
    pub(super) fn note(&mut self, place: &Place, comes: bool) {
        let rank = place.rank();
        if place.may_return() {
            match comes {
                true => self.by_token.insert(place.token.clone(), rank),
                false => self.by_token.remove(&place.token),
            };
        }
        if place.is_in_line() {
            self.count(place, comes);
        }
    }

    /// Notes a place in line, but for its token.
    pub(super) fn count(&mut self, place: &Place, comes: bool) {
        let rank = place.rank();
        let list = |set: &mut BTreeSet<(u32, Rank)>, number: u32| match comes {
            true => set.insert((number, rank)),
            false => set.remove(&(number, rank)),
        };
        if place.claim.permits() > 1 {
            list(&mut self.heavy, place.claim.permits());
        }
        if place.claim == Claim::Run
            && let Some(max_attempts) = place.standing.bound()
        {
            list(&mut self.capped, max_attempts);
        }
        let count = |sum: &mut usize, number: usize| match comes {
            true => *sum += number,
            false => *sum -= number,
        };
        if place.is_kept() {
            count(&mut self.kept, 1);
            count(&mut self.kept_bytes, place.heap_bytes());
        }
        count(&mut self.parked, usize::from(place.parked().is_some()));
        count(&mut self.by_family[place.claim.family() as usize], 1);
    }
}
