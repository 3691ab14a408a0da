//! What must hold for INDEX: an index has one holder, is the lowest that is free, is below the limit of its grant, and is
//! what every request of its token is answered.

use std::collections::BTreeMap;

use crate::model::Name;
use dsync_engine::answer::Answer;
use dsync_engine::change::Change;
use dsync_engine::types::{Claim, Fence};

/// What the changes of one key say about its indexes.
#[derive(Clone, Default)]
pub struct IndexLaws {
    held: BTreeMap<Fence, u32>,
}

impl IndexLaws {
    /// Checks one change, made while this limit is in force, and notes it.
    pub fn written(&mut self, name: Name, change: &Change, limit: Option<u32>) {
        match change {
            Change::Grant(grant) => {
                let is_asked_for = grant.claim == Claim::Indexed;
                assert_eq!(grant.index.is_some(), is_asked_for, "{name:?}: {grant:?}");
                let Some(index) = grant.index else { return };
                let is_held = |n: u32| self.held.values().any(|held| *held == n);
                assert!(!is_held(index), "{name:?}: {index} has one holder");
                assert!((0..index).all(is_held), "{name:?}: {index} is the lowest");
                assert!(limit > Some(index), "{name:?}: {index} of {limit:?}");
                self.held.insert(grant.fence, index);
            }
            Change::End { fence, .. } => drop(self.held.remove(fence)),
            _ => {}
        }
    }

    pub fn told(&self, name: Name, answer: &Answer) {
        if let Answer::Granted { fence, index, .. } = answer {
            assert_eq!(self.held.get(fence), index.as_ref(), "{name:?}: the answer");
        }
    }
}
