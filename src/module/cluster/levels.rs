//! How far a node leaps when it gets a slot: by 2 s for each *level* of the slot's owner.
//!
//! A message between nodes arrives late: the cluster bus can keep it for 50 ms, and in that time a slot can move more
//! than once. Two nodes that both leap equally far past the same message of a third would give equal fences. So
//! everybody who begins to decide about a slot has a greater level than who decided before. An owner's level is its
//! epoch, because each new owner of a slot has a greater one. An importing node has the level that it will have as the
//! owner. If the move is given up, the epochs stay: so a move that is given up raises all levels of the cluster by
//! [`GIVEN_UP`], and the nodes tell each other how many there were.

use super::slots::Role;
use crate::module::redis::cluster::Epochs;

/// The time between two announcements of the last fence, in microseconds. The node announces a new fence, and repeats
/// one that is ahead of the clock, because a message can be lost and a node can be new.
pub(super) const ANNOUNCE_US: u64 = 1_000_000;

/// The distance between two levels: more than a fence can grow between two announcements, also the half of it.
const LEVEL_US: u64 = 2 * ANNOUNCE_US;

/// The levels of a move that is given up: the importing node is one above the greatest epoch, then the owner two above
/// that, and an importing node of the next move again two above that.
const GIVEN_UP: u64 = 4;

/// A greater epoch counts as 0: it would take fences more than half a year ahead. Epochs grow by one with each failover
/// and each node that gets a slot, so no cluster gets there by itself.
const MAX_EPOCH: u64 = 5_000_000;

/// More moves that were given up count as so many, for the same reason.
const MAX_GIVEN_UP: u64 = 500_000;

/// How far an owner of this level leaps past what it has heard.
pub(super) fn distance(level: u64) -> u64 {
    level.saturating_mul(LEVEL_US)
}

/// How far a node in this role leaps past the last fence that it has heard of. Farther than an owner does: a slot can
/// move on before anybody has heard that its owner leapt.
pub(super) fn past_heard(role: Role) -> u64 {
    match role {
        Role::Owner => LEVEL_US / 2,
        Role::OwnerAgain | Role::Importer => LEVEL_US,
    }
}

pub(super) fn is_too_great(epoch: u64) -> bool {
    epoch > MAX_EPOCH
}

/// The level of a node that begins to decide about a slot in this role. `given_up` is the number of moves that were
/// given up.
pub(super) fn level_of(role: Role, epochs: Epochs, given_up: u64) -> u64 {
    let [own, greatest] = [epochs.own, epochs.greatest].map(used_epoch);
    let raised = GIVEN_UP * given_up.min(MAX_GIVEN_UP);
    match role {
        Role::OwnerAgain => (greatest + raised).saturating_sub(1),
        // An importer that has the greatest epoch keeps it when it gets the slot.
        Role::Importer if own < greatest => greatest + 1 + raised,
        Role::Importer | Role::Owner => own + raised,
    }
}

/// The level of a node that serves its slots and has leapt for none of them.
pub(super) fn used_epoch(epoch: u64) -> u64 {
    match is_too_great(epoch) {
        true => 0,
        false => epoch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot was given up by the importing node, went back to its owner, and was imported again, all before a message
    /// had arrived. The importing node repeated the very fences that the owner had given.
    #[test]
    fn each_turn_of_a_repeated_move_has_greater_level() {
        for (own, greatest) in [(1, 2), (1, 9), (8, 9), (2, 2)] {
            let [owner, importing] = [1.min(own), own].map(|own| Epochs { own, greatest });
            for before in [0, 1, 7] {
                let mut last = level_of(Role::Owner, owner, before);
                let mut rises_to = |level: u64| {
                    assert!(
                        level > last,
                        "{level} follows {last}: {importing:?}, {before}"
                    );
                    last = level;
                };
                for given_up in before..before + 5 {
                    rises_to(level_of(Role::Importer, importing, given_up));
                    rises_to(level_of(Role::OwnerAgain, owner, given_up + 1));
                }
                // The move is finished at last: the new owner has an epoch of its own.
                let epoch = greatest + u64::from(own < greatest);
                let finished = Epochs {
                    own: epoch,
                    greatest: epoch,
                };
                rises_to(level_of(Role::Owner, finished, before + 5));
            }
        }
    }

    #[test]
    fn no_level_goes_half_a_year_ahead() {
        let half_a_year_us = 183 * 86_400 * 1_000_000;
        for own in [0, 1, MAX_EPOCH, MAX_EPOCH + 1, (1 << 53) - 1, u64::MAX] {
            for greatest in [own, MAX_EPOCH, MAX_EPOCH + 1, u64::MAX] {
                for role in [Role::Owner, Role::OwnerAgain, Role::Importer] {
                    for given_up in [0, 1, u64::MAX] {
                        let level = level_of(role, Epochs { own, greatest }, given_up);
                        assert!(
                            distance(level) < half_a_year_us,
                            "{own} {greatest} {role:?}"
                        );
                    }
                }
            }
        }
    }
}
