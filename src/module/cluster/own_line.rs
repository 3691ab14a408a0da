//! Reads this node's own line in the reply of CLUSTER NODES: its role and its slots.
//!
//! `<id> <address> myself,master - 0 <pong> <epoch> connected 0-99 200 [300->-<id>] [400-<-<id>]`
//!
//! Items that cannot be read are left out, so such a slot counts as another node's.

use crate::module::redis::hash_slot::SLOTS;

/// One item of the line's list of slots.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum OwnSlots {
    Served { first: u16, last: u16 },
    Migrating(u16),
    Importing(u16),
}

pub(super) fn own_slots(nodes: &[u8]) -> impl Iterator<Item = OwnSlots> {
    own_line(nodes)
        .into_iter()
        .flat_map(|line| line.split_ascii_whitespace().skip(8))
        .filter_map(slots_of_item)
}

/// Whether this node is a replica, as far as it knows.
pub(super) fn is_replica(nodes: &[u8]) -> bool {
    own_line(nodes).is_some_and(|line| has_flag(line, "slave"))
}

fn own_line(nodes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(nodes).ok()?;
    text.lines().find(|line| has_flag(line, "myself"))
}

fn has_flag(line: &str, expected: &str) -> bool {
    let flags = line.split(' ').nth(2).unwrap_or_default();
    flags.split(',').any(|flag| flag == expected)
}

fn slots_of_item(word: &str) -> Option<OwnSlots> {
    let slot = |text: &str| text.parse().ok().filter(|slot| *slot < SLOTS);
    if let Some(open) = word.strip_prefix('[') {
        return match open.split_once("->-") {
            Some((number, _)) => slot(number).map(OwnSlots::Migrating),
            None => slot(open.split_once("-<-")?.0).map(OwnSlots::Importing),
        };
    }
    match word.split_once('-') {
        Some((first, last)) => Some(OwnSlots::Served {
            first: slot(first)?,
            last: slot(last)?,
        }),
        None => slot(word).map(|slot| OwnSlots::Served {
            first: slot,
            last: slot,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &[u8] = b"\
07c3 127.0.0.1:30004@31004,host,tls-port=0 slave e7d1 0 1426238317239 4 connected\n\
e7d1 127.0.0.1:30001@31001 myself,master - 0 0 1 connected 0-5460 5462 16383 [93->-292f] [6000-<-67ed]\n\
67ed 127.0.0.1:30002@31002 master - 0 1426238316232 2 connected 5463-10922 [7-<-e7d1]\n";

    #[test]
    fn own_line_lists_the_nodes_slots() {
        let own: Vec<_> = own_slots(NODES).collect();
        assert_eq!(
            own,
            [
                OwnSlots::Served {
                    first: 0,
                    last: 5460
                },
                OwnSlots::Served {
                    first: 5462,
                    last: 5462
                },
                OwnSlots::Served {
                    first: 16383,
                    last: 16383
                },
                OwnSlots::Migrating(93),
                OwnSlots::Importing(6000),
            ]
        );
        assert_eq!(
            own_slots(b"e7d1 h:1@2 myself,slave 67ed 0 0 1 connected\n").count(),
            0
        );
    }

    #[test]
    fn own_line_tells_the_role_of_no_other_node() {
        assert!(!is_replica(NODES), "the first line is another node's");
        assert!(is_replica(
            b"e7d1 h:1@2 myself,slave 67ed 0 0 1 connected\n"
        ));
        assert!(!is_replica(b""));
    }

    #[test]
    fn unreadable_slots_are_left_out() {
        for bad in [
            "16384", "-", "a-b", "1-", "0-16384", "[", "[x->-y]", "[5-?-y]", "99999999",
        ] {
            assert_eq!(slots_of_item(bad), None, "{bad}");
        }
        assert_eq!(own_slots(b"\xff\xfe myself").count(), 0);
        assert_eq!(own_slots(b"").count(), 0);
    }
}
