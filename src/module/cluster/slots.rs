//! The slots of a cluster, as one node sees them.

use crate::module::redis::hash_slot::SLOTS;

#[derive(Clone, PartialEq, Eq)]
struct SlotSet(Box<[u64; SLOTS as usize / 64]>);

impl SlotSet {
    fn new() -> SlotSet {
        SlotSet(Box::new([0; SLOTS as usize / 64]))
    }

    fn all() -> SlotSet {
        SlotSet(Box::new([u64::MAX; SLOTS as usize / 64]))
    }

    fn place(slot: u16) -> (usize, u64) {
        let slot = slot % SLOTS;
        (usize::from(slot / 64), 1 << (slot % 64))
    }

    fn has(&self, slot: u16) -> bool {
        let (word, bit) = SlotSet::place(slot);
        self.0[word] & bit != 0
    }

    /// False when it is there already.
    fn add(&mut self, slot: u16) -> bool {
        let (word, bit) = SlotSet::place(slot);
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    /// The first that is here and not there.
    fn first_not_in(&self, other: &SlotSet) -> Option<u16> {
        let words = self.0.iter().zip(other.0.iter());
        let (at, word) = words
            .map(|(here, there)| here & !there)
            .enumerate()
            .find(|(_, word)| *word != 0)?;
        u16::try_from(at * 64 + word.trailing_zeros() as usize).ok()
    }

    fn remove(&mut self, slot: u16) {
        let (word, bit) = SlotSet::place(slot);
        self.0[word] &= !bit;
    }
}

/// Where a key may be written that the server would redirect a client for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Redirected {
    /// Its slot is coming here. Clients who are sent here are served.
    Importing,
    /// Its slot is still served here, and it has left already.
    KeyLeft,
    /// Its slot is another node's.
    Elsewhere,
}

pub(crate) struct Slots {
    served: SlotSet,
    importing: SlotSet,
    migrating: SlotSet,
    /// Those whose keys this node has decided about since they came.
    known: SlotSet,
    /// Those that a command has ordered here and that are not known yet.
    ordered: SlotSet,
}

impl Slots {
    pub(crate) fn new() -> Slots {
        Slots {
            served: SlotSet::new(),
            importing: SlotSet::new(),
            migrating: SlotSet::new(),
            known: SlotSet::new(),
            ordered: SlotSet::new(),
        }
    }

    /// Takes in what CLUSTER NODES says now. Slots that have gone will be new when they come back.
    pub(crate) fn see(&mut self, nodes: &[u8]) {
        let mut seen = Slots::new();
        for slots in own_slots(nodes) {
            match slots {
                Own::Served(first, last) => (first..=last).for_each(|slot| {
                    seen.served.add(slot);
                }),
                Own::Migrating(slot) => {
                    seen.migrating.add(slot);
                }
                Own::Importing(slot) => {
                    seen.importing.add(slot);
                }
            }
        }
        let here = seen.served.0.iter().zip(seen.importing.0.iter());
        for (known, (served, importing)) in self.known.0.iter_mut().zip(here) {
            *known &= served | importing;
        }
        (self.served, self.importing) = (seen.served, seen.importing);
        self.migrating = seen.migrating;
    }

    /// Settles every slot of this node, except those that were ordered here and are not known yet: an order
    /// can come before this node has looked at its slots for the first time.
    pub(crate) fn make_all_known(&mut self) {
        let here = self.served.0.iter().zip(self.importing.0.iter());
        let words = self.known.0.iter_mut().zip(self.ordered.0.iter());
        for ((known, ordered), (served, importing)) in words.zip(here) {
            *known = (served | importing) & !ordered;
        }
    }

    /// Settles the slot. Returns whether it was new: this is the first decision about a key of it since it came.
    pub(crate) fn make_known(&mut self, slot: u16) -> bool {
        self.ordered.remove(slot);
        self.known.add(slot)
    }

    /// What comes is new, even if it was away for a moment only.
    pub(crate) fn follow(&mut self, order: Order) {
        match order {
            Order::Comes(slot) => {
                self.known.remove(slot);
                self.ordered.add(slot);
            }
            Order::Several => (self.known, self.ordered) = (SlotSet::new(), SlotSet::all()),
        }
    }

    /// Forgets which slots were ordered here.
    pub(crate) fn forget_orders(&mut self) {
        self.ordered = SlotSet::new();
    }

    pub(crate) fn is_served(&self, slot: u16) -> bool {
        self.served.has(slot)
    }

    /// A slot of this node: by which it can ask about its cluster. Rather one that does not migrate, and
    /// for want of one that is served one that comes.
    pub(crate) fn any(&self) -> Option<u16> {
        let migrating = || self.served.first_not_in(&self.importing);
        let importing = || self.importing.first_not_in(&self.served);
        let staying = self.served.first_not_in(&self.migrating);
        staying.or_else(migrating).or_else(importing)
    }

    pub(crate) fn of_redirected(&self, slot: u16) -> Redirected {
        if self.importing.has(slot) {
            Redirected::Importing
        } else if self.served.has(slot) && self.migrating.has(slot) {
            Redirected::KeyLeft
        } else {
            Redirected::Elsewhere
        }
    }
}

/// Slots that a command orders here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Comes(u16),
    /// Some may come: which, each of these commands says in its own way. They are rare, and to take a slot for
    /// new costs a leap at most.
    Several,
}

impl Order {
    /// From the words after CLUSTER.
    pub(crate) fn of(words: &[&[u8]]) -> Option<Order> {
        const SEVERAL: [&str; 6] = [
            "addslots",
            "addslotsrange",
            "migrateslots",
            "syncslots",
            "migration",
            "reset",
        ];
        let word = |at: usize| Some(std::str::from_utf8(words.get(at)?).ok()?.to_lowercase());
        let first = word(0)?;
        if first != "setslot" {
            return SEVERAL.contains(&&first[..]).then_some(Order::Several);
        }
        let slot = word(1)?.parse().ok().filter(|slot| *slot < SLOTS)?;
        (word(2)? != "migrating").then_some(Order::Comes(slot))
    }
}

/// Whether a CLUSTER command, by the words after CLUSTER, may change what this node knows of its cluster. A
/// command that is not known here may.
pub(crate) fn may_change(words: &[&[u8]]) -> bool {
    const ASKS: [&[u8]; 16] = [
        b"count-failure-reports",
        b"countkeysinslot",
        b"getkeysinslot",
        b"getslotmigrations",
        b"help",
        b"info",
        b"keyslot",
        b"links",
        b"myid",
        b"myshardid",
        b"nodes",
        b"replicas",
        b"shards",
        b"slaves",
        b"slot-stats",
        b"slots",
    ];
    words
        .first()
        .is_some_and(|word| !ASKS.iter().any(|asks| word.eq_ignore_ascii_case(asks)))
}

/// The epoch in the line of the node itself: the version of what it says of its slots.
pub(crate) fn own_epoch(nodes: &[u8]) -> Option<u64> {
    own_line(nodes)?.split(' ').nth(6)?.parse().ok()
}

#[derive(PartialEq, Eq, Debug)]
enum Own {
    Served(u16, u16),
    Migrating(u16),
    Importing(u16),
}

/// The slots in the line of the node itself. What cannot be read is left out: such a slot is another's.
///
/// `<id> <address> myself,master - 0 <pong> <epoch> connected 0-99 200 [300->-<id>] [400-<-<id>]`
fn own_slots(nodes: &[u8]) -> impl Iterator<Item = Own> {
    own_line(nodes)
        .into_iter()
        .flat_map(|line| line.split_ascii_whitespace().skip(8))
        .filter_map(own)
}

fn own_line(nodes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(nodes).ok()?;
    text.lines().find(|line| {
        let flags = line.split(' ').nth(2).unwrap_or_default();
        flags.split(',').any(|flag| flag == "myself")
    })
}

fn own(word: &str) -> Option<Own> {
    let slot = |text: &str| text.parse().ok().filter(|slot| *slot < SLOTS);
    if let Some(open) = word.strip_prefix('[') {
        return match open.split_once("->-") {
            Some((number, _)) => slot(number).map(Own::Migrating),
            None => slot(open.split_once("-<-")?.0).map(Own::Importing),
        };
    }
    match word.split_once('-') {
        Some((first, last)) => Some(Own::Served(slot(first)?, slot(last)?)),
        None => slot(word).map(|slot| Own::Served(slot, slot)),
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
        slots.see(nodes);
        slots
    }

    #[test]
    fn a_node_reads_its_own_line() {
        let own: Vec<_> = own_slots(NODES).collect();
        assert_eq!(
            own,
            [
                Own::Served(0, 5460),
                Own::Served(5462, 5462),
                Own::Served(16383, 16383),
                Own::Migrating(93),
                Own::Importing(6000),
            ]
        );
        assert_eq!(
            own_slots(b"e7d1 h:1@2 myself,slave 67ed 0 0 1 connected\n").count(),
            0
        );
    }

    #[test]
    fn a_node_reads_its_own_epoch() {
        assert_eq!(own_epoch(NODES), Some(1));
        assert_eq!(own_epoch(b"e7d1 h:1@2 myself,master - 0 0 77\n"), Some(77));
        for bad in [
            &b""[..],
            b"e7d1 h:1@2 master - 0 0 1 connected\n",
            b"e7d1 h:1@2 myself,master - 0 0 x connected\n",
            b"e7d1 h:1@2 myself,master - 0\n",
            b"\xff h:1@2 myself,master - 0 0 1 connected\n",
        ] {
            assert_eq!(own_epoch(bad), None);
        }
    }

    #[test]
    fn a_node_asks_by_a_slot_that_stays() {
        for (line, slot) in [
            ("0-9 [0->-292f] [1->-292f] [100-<-67ed]", Some(2)),
            ("16383", Some(16383)),
            ("7 [7->-292f]", Some(7)),
            ("[100-<-67ed]", Some(100)),
            ("", None),
        ] {
            let nodes = format!("e7d1 h:1@2 myself,master - 0 0 1 connected {line}\n");
            assert_eq!(seen(nodes.as_bytes()).any(), slot, "{line}");
        }
    }

    #[test]
    fn a_command_that_only_asks_changes_nothing() {
        for (words, expected) in [
            ("nodes", false),
            ("INFO", false),
            ("CountKeysInSlot 7", false),
            ("setslot 7 node x", true),
            ("DELSLOTS 7", true),
            ("failover", true),
            ("something-new", true),
        ] {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            assert_eq!(may_change(&words), expected, "{words:?}");
        }
        assert!(!may_change(&[]));
    }

    #[test]
    fn what_cannot_be_read_is_another_nodes() {
        for bad in [
            "16384", "-", "a-b", "1-", "0-16384", "[", "[x->-y]", "[5-?-y]", "99999999",
        ] {
            assert_eq!(own(bad), None, "{bad}");
        }
        assert_eq!(own_slots(b"\xff\xfe myself").count(), 0);
        assert_eq!(own_slots(b"").count(), 0);
    }

    #[test]
    fn a_redirected_key_has_come_or_left_or_is_elsewhere() {
        let slots = seen(NODES);
        for (slot, where_) in [
            (93, Redirected::KeyLeft),
            (6000, Redirected::Importing),
            (94, Redirected::Elsewhere),
            (5461, Redirected::Elsewhere),
            (7, Redirected::Elsewhere),
        ] {
            assert_eq!(slots.of_redirected(slot), where_, "{slot}");
        }
    }

    #[test]
    fn a_slot_is_new_once_until_it_has_gone_and_come_back() {
        let mut slots = seen(NODES);
        assert!(slots.make_known(5) && !slots.make_known(5), "once");
        assert!(slots.make_known(6000), "also while it is coming");
        slots.see(NODES);
        assert!(
            !slots.make_known(5) && !slots.make_known(6000),
            "and stays known"
        );
        slots.see(b"e7d1 h:1@2 myself,master - 0 0 1 connected 6-16383\n");
        assert!(slots.make_known(5), "gone since");
        assert!(!slots.make_known(6000), "arrived");
        slots.make_all_known();
        assert!(!slots.make_known(6) && slots.make_known(0));
    }

    #[test]
    fn a_slot_that_was_away_between_two_looks_is_new() {
        let mut slots = seen(NODES);
        slots.make_all_known();
        slots.follow(Order::Comes(5));
        assert!(slots.make_known(5) && !slots.make_known(4));
        slots.follow(Order::Several);
        assert!(slots.make_known(5) && slots.make_known(4));
    }

    #[test]
    fn make_all_known_leaves_out_slots_ordered_since() {
        let mut slots = seen(NODES);
        slots.make_all_known();
        slots.follow(Order::Comes(5));
        slots.see(NODES);
        slots.make_all_known();
        assert!(slots.make_known(5) && !slots.make_known(4));
        slots.make_all_known();
        assert!(!slots.make_known(5), "known once");
        slots.follow(Order::Several);
        slots.make_all_known();
        assert!(slots.make_known(4));
        slots.forget_orders();
        slots.make_all_known();
        assert!(!slots.make_known(5));
    }

    #[test]
    fn orders_are_overheard() {
        let order =
            |words: &str| Order::of(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        for (words, expected) in [
            ("SETSLOT 7 MIGRATING", None),
            ("setslot 7 importing", Some(Order::Comes(7))),
            ("setslot 16383 node", Some(Order::Comes(16383))),
            ("setslot 7 stable", Some(Order::Comes(7))),
            ("setslot 16384 node", None),
            ("setslot x node", None),
            ("setslot 7", None),
            ("AddSlotsRange 0 5", Some(Order::Several)),
            ("addslots 5", Some(Order::Several)),
            ("migrateslots slotsrange 0", Some(Order::Several)),
            ("syncslots establish source", Some(Order::Several)),
            ("migration import 0", Some(Order::Several)),
            ("reset hard", Some(Order::Several)),
            ("slots", None),
            ("nodes", None),
            ("", None),
        ] {
            assert_eq!(order(words), expected, "{words}");
        }
        assert_eq!(Order::of(&[b"\xff"]), None);
        assert_eq!(Order::of(&[]), None);
    }
}
