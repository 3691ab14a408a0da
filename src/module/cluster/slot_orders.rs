//! What CLUSTER commands mean for this node's slots. `node` gets the commands from the server's command filter, just
//! before the server runs them.
//!
//! Commands that are not known here count as changes: to treat a slot as unknown costs one leap of the fences at
//! most, but to miss that a slot came could give a fence below that of its last owner.

use crate::module::redis::hash_slot::SLOTS;

/// The slots that a command orders here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotOrder {
    One(u16),
    /// Several may come. Each of these commands has its own syntax for them, so all slots count as ordered.
    Many,
}

impl SlotOrder {
    /// Reads the words after CLUSTER. None if the command orders no slot here.
    pub(crate) fn of(words: &[&[u8]]) -> Option<SlotOrder> {
        const MANY: [&str; 6] = [
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
            return MANY.contains(&&first[..]).then_some(SlotOrder::Many);
        }
        let slot = word(1)?.parse().ok().filter(|slot| *slot < SLOTS)?;
        (word(2)? != "migrating").then_some(SlotOrder::One(slot))
    }
}

/// Returns whether a CLUSTER command may begin, finish or give up the move of one slot, by the words after CLUSTER. The
/// node must see what is between two of them: the slot may be away, or be moving.
pub(crate) fn may_move(words: &[&[u8]]) -> bool {
    words
        .first()
        .is_some_and(|word| word.eq_ignore_ascii_case(b"setslot"))
}

/// Returns whether a CLUSTER command may change the cluster, by the words after CLUSTER.
pub(crate) fn may_change(words: &[&[u8]]) -> bool {
    const READ_ONLY: [&[u8]; 16] = [
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
    words.first().is_some_and(|word| {
        !READ_ONLY
            .iter()
            .any(|read_only| word.eq_ignore_ascii_case(read_only))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_commands_change_nothing() {
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
    fn orders_are_read_from_commands() {
        let order =
            |words: &str| SlotOrder::of(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        for (words, expected) in [
            ("SETSLOT 7 MIGRATING", None),
            ("setslot 7 importing", Some(SlotOrder::One(7))),
            ("setslot 16383 node", Some(SlotOrder::One(16383))),
            ("setslot 7 stable", Some(SlotOrder::One(7))),
            ("setslot 16384 node", None),
            ("setslot x node", None),
            ("setslot 7", None),
            ("AddSlotsRange 0 5", Some(SlotOrder::Many)),
            ("addslots 5", Some(SlotOrder::Many)),
            ("migrateslots slotsrange 0", Some(SlotOrder::Many)),
            ("syncslots establish source", Some(SlotOrder::Many)),
            ("migration import 0", Some(SlotOrder::Many)),
            ("reset hard", Some(SlotOrder::Many)),
            ("slots", None),
            ("nodes", None),
            ("", None),
        ] {
            assert_eq!(order(words), expected, "{words}");
        }
        assert_eq!(SlotOrder::of(&[b"\xff"]), None);
        assert_eq!(SlotOrder::of(&[]), None);
    }
}
