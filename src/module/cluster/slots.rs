//! The slots of a cluster, as this node sees them: which it serves, which are moving, and which are *known*.
//!
//! A slot is known once this node has put its fences past those that earlier owners of the slot may have given.
//! `node` does that before the node's first decision about a key of a slot, and calls [`Slots::make_known`]. A slot
//! that leaves and comes back is unknown again, and so is one whose move was begun and given up: the importing node may
//! have decided about its keys.

use super::own_line::{OwnSlots, own_slots};
use super::slot_bits::SlotBits;
use super::slot_orders::SlotOrder;
use std::collections::BTreeMap;

/// Where a key is that the server would redirect a client for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Redirected {
    /// Its slot is being imported here. The server serves clients that come with ASKING.
    Importing,
    /// Its slot is still served here, but is migrating, and the key has left already.
    KeyLeft,
    /// Its slot belongs to another node.
    Elsewhere,
}

/// What this node is for a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Owner,
    /// The owner, of a slot that another node imported until the move was given up.
    OwnerAgain,
    Importer,
}

/// How a slot came here that this node has not decided about since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arrival {
    pub(crate) role: Role,
    /// It has come for certain. Otherwise a CLUSTER command ordered it here, which the server may have refused.
    pub(crate) is_certain: bool,
}

pub(crate) struct Slots {
    served: SlotBits,
    importing: SlotBits,
    migrating: SlotBits,
    /// The slots whose keys this node has decided about since they came, see the top of this file.
    known: SlotBits,
    /// The slots that a CLUSTER command has ordered here and that are not known yet.
    ordered: SlotBits,
    /// The slots that came between two updates and are not known yet.
    come: SlotBits,
    /// The slots whose move to another node was given up and that are not known yet.
    returned: SlotBits,
    /// How many moves were given up in the cluster, as far as this node knows.
    given_up: u64,
    /// The slots that are moving, from here or to here, and what `given_up` was when that was first seen. Both nodes of
    /// a move count from there, so a move that is given up counts once, however late one of them hears of it.
    moving: BTreeMap<u16, u64>,
}

impl Slots {
    pub(crate) fn new() -> Slots {
        Slots {
            served: SlotBits::new(),
            importing: SlotBits::new(),
            migrating: SlotBits::new(),
            known: SlotBits::new(),
            ordered: SlotBits::new(),
            come: SlotBits::new(),
            returned: SlotBits::new(),
            given_up: 0,
            moving: BTreeMap::new(),
        }
    }

    /// Updates the slots from the reply of CLUSTER NODES. Slots that are no longer here become unknown.
    pub(crate) fn update(&mut self, nodes: &[u8]) {
        let mut seen = Slots::new();
        for slots in own_slots(nodes) {
            match slots {
                OwnSlots::Served { first, last } => (first..=last).for_each(|slot| {
                    seen.served.add(slot);
                }),
                OwnSlots::Migrating(slot) => {
                    seen.migrating.add(slot);
                }
                OwnSlots::Importing(slot) => {
                    seen.importing.add(slot);
                }
            }
        }
        let here = seen.served.union(&seen.importing);
        let come = seen
            .served
            .difference(&self.served)
            .union(&here.difference(&self.served.union(&self.importing)));
        let back = self.migrating.difference(&seen.migrating);
        let returned = back.intersection(&seen.served);
        self.count_given_up(&seen);
        self.come = self.come.union(&come).intersection(&here);
        self.returned = self.returned.union(&returned).intersection(&seen.served);
        self.known = self
            .known
            .intersection(&here)
            .difference(&come.union(&returned));
        (self.served, self.importing) = (seen.served, seen.importing);
        self.migrating = seen.migrating;
    }

    /// Counts the moves that have ended since the last update and were given up.
    fn count_given_up(&mut self, seen: &Slots) {
        let begun = self.given_up;
        let moving = seen.migrating.union(&seen.importing);
        // The slot is where it was before: at this node, from which it migrated, or not at this node, which imported it.
        let was_given_up = |slot: u16| seen.served.has(slot) == self.migrating.has(slot);
        let mut given_up = begun;
        for (slot, before) in &self.moving {
            if !moving.has(*slot) && was_given_up(*slot) {
                given_up = given_up.max(before.saturating_add(1));
            }
        }
        self.given_up = given_up;
        self.moving.retain(|slot, _| moving.has(*slot));
        for slot in moving.iter() {
            self.moving.entry(slot).or_insert(given_up);
        }
    }

    /// How many moves of slots were given up in the cluster, as far as this node knows.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Notes how many moves were given up, as another node tells.
    pub(crate) fn hear_given_up(&mut self, count: u64) {
        self.given_up = self.given_up.max(count);
    }

    /// Makes every slot of this node known, except those that were ordered here and are not known yet: an order can
    /// come before this node has read its slots for the first time.
    pub(crate) fn make_all_known(&mut self) {
        let here = self.served.union(&self.importing);
        self.known = here.difference(&self.ordered);
        self.come = self.come.intersection(&self.ordered);
        self.returned = self.returned.intersection(&self.ordered);
    }

    pub(crate) fn is_known(&self, slot: u16) -> bool {
        self.known.has(slot)
    }

    pub(crate) fn is_importing(&self, slot: u16) -> bool {
        self.importing.has(slot)
    }

    /// Whether the slot is one of this node's, as far as it has seen.
    pub(crate) fn is_here(&self, slot: u16) -> bool {
        self.served.has(slot) || self.importing.has(slot)
    }

    /// Makes the slot known. Returns how it came, if it was unknown: then the coming decision is the first about one of
    /// its keys since. The server has let a command for the slot pass, so a slot that was not here has come.
    pub(crate) fn make_known(&mut self, slot: u16) -> Option<Arrival> {
        if !self.known.add(slot) {
            return None;
        }
        let is_back = self.returned.has(slot);
        let role = match (is_back, self.served.has(slot)) {
            (true, _) => Role::OwnerAgain,
            (false, true) => Role::Owner,
            (false, false) => Role::Importer,
        };
        let is_certain = is_back || self.come.has(slot) || !self.is_here(slot);
        for unknown in [&mut self.ordered, &mut self.come, &mut self.returned] {
            unknown.remove(slot);
        }
        Some(Arrival { role, is_certain })
    }

    /// Makes the ordered slots unknown, even if they were away only for a moment between two updates.
    pub(crate) fn apply_order(&mut self, order: SlotOrder) {
        match order {
            SlotOrder::One(slot) => {
                self.known.remove(slot);
                self.ordered.add(slot);
            }
            SlotOrder::Many => (self.known, self.ordered) = (SlotBits::new(), SlotBits::all()),
        }
    }

    /// Forgets which slots were ordered here or are moving: this node has decided about none of them yet.
    pub(crate) fn begin_anew(&mut self) {
        self.ordered = SlotBits::new();
        self.moving = BTreeMap::new();
    }

    /// A slot of this node, by which it can probe its cluster: a served one that does not migrate, or else any served
    /// one, or else one that is being imported.
    pub(crate) fn slot_to_probe(&self) -> Option<u16> {
        let migrating = || self.served.difference(&self.importing).first();
        let importing = || self.importing.difference(&self.served).first();
        let staying = self.served.difference(&self.migrating).first();
        staying.or_else(migrating).or_else(importing)
    }

    /// Where a key of this slot is, if the server would redirect clients for it.
    pub(crate) fn classify_redirected(&self, slot: u16) -> Redirected {
        if self.importing.has(slot) {
            Redirected::Importing
        } else if self.served.has(slot) && self.migrating.has(slot) {
            Redirected::KeyLeft
        } else {
            Redirected::Elsewhere
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &[u8] = b"\
07c3 127.0.0.1:30004@31004,host,tls-port=0 slave e7d1 0 1426238317239 4 connected\n\
e7d1 127.0.0.1:30001@31001 myself,master - 0 0 1 connected 0-5460 5462 16383 [93->-292f] [6000-<-67ed]\n\
67ed 127.0.0.1:30002@31002 master - 0 1426238316232 2 connected 5463-10922 [7-<-e7d1]\n";

    fn seen(nodes: &[u8]) -> Slots {
        let mut slots = Slots::new();
        slots.update(nodes);
        slots
    }

    #[test]
    fn node_probes_by_a_slot_that_does_not_migrate() {
        for (line, slot) in [
            ("0-9 [0->-292f] [1->-292f] [100-<-67ed]", Some(2)),
            ("16383", Some(16383)),
            ("7 [7->-292f]", Some(7)),
            ("[100-<-67ed]", Some(100)),
            ("", None),
        ] {
            let nodes = format!("e7d1 h:1@2 myself,master - 0 0 1 connected {line}\n");
            assert_eq!(seen(nodes.as_bytes()).slot_to_probe(), slot, "{line}");
        }
    }

    #[test]
    fn redirected_key_is_importing_or_left_or_elsewhere() {
        let slots = seen(NODES);
        for (slot, where_) in [
            (93, Redirected::KeyLeft),
            (6000, Redirected::Importing),
            (94, Redirected::Elsewhere),
            (5461, Redirected::Elsewhere),
            (7, Redirected::Elsewhere),
        ] {
            assert_eq!(slots.classify_redirected(slot), where_, "{slot}");
        }
    }

    fn certain(role: Role) -> Option<Arrival> {
        Some(Arrival {
            role,
            is_certain: true,
        })
    }

    /// The server may have refused the order.
    const ORDERED: Option<Arrival> = Some(Arrival {
        role: Role::Owner,
        is_certain: false,
    });

    /// What the node sees when its own line ends with these items.
    fn see(slots: &mut Slots, items: &str) {
        slots.update(format!("e7d1 h:1@2 myself,master - 0 0 1 connected {items}\n").as_bytes());
    }

    #[test]
    fn slot_is_unknown_once_until_it_leaves_and_returns() {
        let mut slots = seen(NODES);
        assert_eq!(slots.make_known(5), certain(Role::Owner));
        assert_eq!(slots.make_known(5), None, "once");
        assert_eq!(
            slots.make_known(6000),
            certain(Role::Importer),
            "also while it is coming"
        );
        slots.update(NODES);
        assert_eq!(slots.make_known(5), None, "and stays known");
        assert_eq!(slots.make_known(6000), None);
        see(&mut slots, "6-16383");
        // The server lets a command for the slot pass, so it has come back since.
        assert_eq!(slots.make_known(5), certain(Role::Importer), "gone since");
        assert_eq!(slots.make_known(6000), certain(Role::Owner), "arrived");
        slots.make_all_known();
        assert_eq!(slots.make_known(6), None);
    }

    #[test]
    fn slot_ordered_here_between_two_updates_is_unknown() {
        let mut slots = seen(NODES);
        slots.make_all_known();
        slots.apply_order(SlotOrder::One(5));
        assert_eq!(slots.make_known(5), ORDERED);
        assert_eq!(slots.make_known(4), None);
        slots.apply_order(SlotOrder::Many);
        assert_eq!(slots.make_known(5), ORDERED);
        assert_eq!(slots.make_known(4), ORDERED);
    }

    #[test]
    fn make_all_known_leaves_out_slots_ordered_since() {
        let mut slots = seen(NODES);
        slots.make_all_known();
        slots.apply_order(SlotOrder::One(5));
        slots.update(NODES);
        slots.make_all_known();
        assert_eq!(slots.make_known(5), ORDERED);
        assert_eq!(slots.make_known(4), None);
        slots.make_all_known();
        assert_eq!(slots.make_known(5), None, "known once");
        slots.apply_order(SlotOrder::Many);
        slots.make_all_known();
        assert_eq!(slots.make_known(4), ORDERED);
        slots.begin_anew();
        slots.make_all_known();
        assert_eq!(slots.make_known(5), None);
    }

    #[test]
    fn move_that_is_given_up_makes_slot_unknown_and_counts_once() {
        let (mut owner, mut target) = (Slots::new(), Slots::new());
        see(&mut owner, "0-9");
        see(&mut target, "10-19");
        owner.make_all_known();
        target.make_all_known();
        for count in 0..3 {
            assert_eq!((owner.given_up(), target.given_up()), (count, count));
            see(&mut owner, "0-9 [5->-b]");
            assert_eq!(
                owner.make_known(5),
                None,
                "it still decides about keys here"
            );
            see(&mut target, "10-19 [5-<-a]");
            assert_eq!(target.make_known(5), certain(Role::Importer));
            owner.apply_order(SlotOrder::One(5));
            see(&mut owner, "0-9");
            assert_eq!(owner.given_up(), count + 1);
            // The other node hears of it before it sees it, and counts it no second time.
            target.hear_given_up(owner.given_up());
            see(&mut target, "10-19");
            assert_eq!(owner.make_known(5), certain(Role::OwnerAgain));
            assert_eq!(owner.make_known(5), None);
            assert_eq!(owner.make_known(4), None);
        }
    }

    #[test]
    fn finished_move_is_not_given_up() {
        let (mut owner, mut target) = (Slots::new(), Slots::new());
        see(&mut owner, "0-9 [5->-b]");
        see(&mut target, "10-19 [5-<-a]");
        assert_eq!(target.make_known(5), certain(Role::Importer));
        see(&mut owner, "0-4 6-9");
        see(&mut target, "5 10-19");
        assert_eq!(target.make_known(5), certain(Role::Owner));
        assert_eq!((owner.given_up(), target.given_up()), (0, 0));
    }
}
