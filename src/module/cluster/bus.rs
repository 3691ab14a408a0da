//! The messages that the nodes of a cluster send each other: their last fences.
//!
//! A node tells its own last fence, what it has heard from the others, so that a node that was started again learns what
//! it has forgotten, and how many moves of slots were given up (see `levels`).
//!
//! The message is `fence:2 <last fence> <heard> <base> <moves given up>`, see [`Announcement`]. dsync 0.3.0 reads and
//! sends only `fence:1 <base>`, where the distance from the last fence is that of the node's epoch.

use super::levels::distance;
use crate::module::SHELL;
use crate::module::redis::cluster::{self, Receiver};
use crate::module::redis::context::Ctx;
use dsync_engine::Announcement;
use dsync_engine::types::Fence;

const FENCES: &[u8] = b"fence:2 ";
const BASE_FOR_0_3_0: &[u8] = b"fence:1 ";

/// Stands before the number in a message for 0.3.0, which reads over it. Nodes of this version leave such a message
/// out, because their bases are lower ones.
const FROM_NEWER: &[u8] = b"+";

/// Announces this node's last fence to all other nodes. `level` is the greatest that the node has leapt by, and `epoch`
/// that of its slots.
pub(super) fn announce(ctx: Ctx<'_>, level: u64, epoch: u64, given_up: u64) {
    let told = SHELL.with(|shell| shell.engine.announce_fences(distance(level)));
    let Announcement { last, heard, base } = told;
    let numbers = format!("{} {} {} {given_up}", last.0, heard.0, base.0);
    cluster::send_to_all(ctx, &[FENCES, numbers.as_bytes()].concat());
    let base = last.0.saturating_sub(distance(epoch)).to_string();
    cluster::send_to_all(ctx, &[BASE_FOR_0_3_0, FROM_NEWER, base.as_bytes()].concat());
}

/// Receives the announcements of the other nodes.
pub(super) struct Bus;

impl Receiver for Bus {
    fn receive(_: Ctx<'_>, message: &[u8]) {
        if let Some((announced, given_up)) = message.strip_prefix(FENCES).and_then(read_fences) {
            SHELL.with(|shell| {
                if let Some(node) = &mut shell.node {
                    node.slots.hear_given_up(given_up);
                }
                let now = shell.now();
                shell.engine.hear_fences(announced, now);
            });
        }
        let base = message.strip_prefix(BASE_FOR_0_3_0);
        let base = base.filter(|number| !number.starts_with(FROM_NEWER));
        if let Some(base) = base.and_then(read_number) {
            SHELL.with(|shell| {
                let now = shell.now();
                shell.engine.hear_base(Fence(base), now);
            });
        }
    }
}

fn read_number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads the numbers of a message: the fences, and how many moves were given up.
fn read_fences(text: &[u8]) -> Option<(Announcement, u64)> {
    let mut numbers = text.split(|byte| *byte == b' ').map(read_number);
    let mut number = || numbers.next().flatten();
    let (last, heard, base) = (Fence(number()?), Fence(number()?), Fence(number()?));
    Some((Announcement { last, heard, base }, number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_announcement_is_not_read() {
        let (announced, given_up) = read_fences(b"4 3 2 1").expect("four numbers");
        let numbers = [announced.last.0, announced.heard.0, announced.base.0];
        assert_eq!((numbers, given_up), ([4, 3, 2], 1));
        for bad in [
            &b""[..],
            b"4 3 2",
            b"4 3 2 x",
            b"4  2 1",
            b"-4 3 2 1",
            b"\xff 3 2 1",
        ] {
            assert!(read_fences(bad).is_none(), "{bad:?}");
        }
    }
}
