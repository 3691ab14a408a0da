//! The slots of a cluster, as this node sees them: which it serves, which are moving, and which are *known*.
//!
//! A slot is known once this node has put its fences past those that earlier owners of the slot may have given.
//! `node` does that before the node's first decision about a key of a slot, and calls [`Slots::make_known`]. A slot
//! that leaves and comes back is unknown again.

use super::own_line::{OwnSlots, own_slots};
use super::slot_bits::SlotBits;
use super::slot_orders::SlotOrder;

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

pub(crate) struct Slots {
    served: SlotBits,
    importing: SlotBits,
    migrating: SlotBits,
    /// The slots whose keys this node has decided about since they came, see the top of this file.
    known: SlotBits,
    /// The slots that a CLUSTER command has ordered here and that are not known yet.
    ordered: SlotBits,
}

impl Slots {
    pub(crate) fn new() -> Slots {
        Slots {
            served: SlotBits::new(),
            importing: SlotBits::new(),
            migrating: SlotBits::new(),
            known: SlotBits::new(),
            ordered: SlotBits::new(),
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
        self.known = self.known.intersection(&here);
        (self.served, self.importing) = (seen.served, seen.importing);
        self.migrating = seen.migrating;
    }

    /// Makes every slot of this node known, except those that were ordered here and are not known yet: an order can
    /// come before this node has read its slots for the first time.
    pub(crate) fn make_all_known(&mut self) {
        let here = self.served.union(&self.importing);
        self.known = here.difference(&self.ordered);
    }

    /// Makes the slot known. Returns whether it was unknown: then the coming decision is the first about one of its
    /// keys since the slot came.
    pub(crate) fn make_known(&mut self, slot: u16) -> bool {
        self.ordered.remove(slot);
        self.known.add(slot)
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

    /// Forgets which slots were ordered here.
    pub(crate) fn forget_orders(&mut self) {
        self.ordered = SlotBits::new();
    }

    pub(crate) fn is_served(&self, slot: u16) -> bool {
        self.served.has(slot)
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

    #[test]
    fn slot_is_unknown_once_until_it_leaves_and_returns() {
        let mut slots = seen(NODES);
        assert!(slots.make_known(5) && !slots.make_known(5), "once");
        assert!(slots.make_known(6000), "also while it is coming");
        slots.update(NODES);
        assert!(
            !slots.make_known(5) && !slots.make_known(6000),
            "and stays known"
        );
        slots.update(b"e7d1 h:1@2 myself,master - 0 0 1 connected 6-16383\n");
        assert!(slots.make_known(5), "gone since");
        assert!(!slots.make_known(6000), "arrived");
        slots.make_all_known();
        assert!(!slots.make_known(6) && slots.make_known(0));
    }

    #[test]
    fn slot_ordered_here_between_two_updates_is_unknown() {
        let mut slots = seen(NODES);
        slots.make_all_known();
        slots.apply_order(SlotOrder::One(5));
        assert!(slots.make_known(5) && !slots.make_known(4));
        slots.apply_order(SlotOrder::Many);
        assert!(slots.make_known(5) && slots.make_known(4));
    }

    #[test]
    fn make_all_known_leaves_out_slots_ordered_since() {
        let mut slots = seen(NODES);
        slots.make_all_known();
        slots.apply_order(SlotOrder::One(5));
        slots.update(NODES);
        slots.make_all_known();
        assert!(slots.make_known(5) && !slots.make_known(4));
        slots.make_all_known();
        assert!(!slots.make_known(5), "known once");
        slots.apply_order(SlotOrder::Many);
        slots.make_all_known();
        assert!(slots.make_known(4));
        slots.forget_orders();
        slots.make_all_known();
        assert!(!slots.make_known(5));
    }
}
