//! The messages that the nodes of a cluster send each other: their last fences.
//!
//! A node tells its own last fence, what it has heard from the others, so that a node that was started again learns what
//! it has forgotten, and how many moves of slots were given up (see `levels`).
//!
//! The message is `fence:2 <last fence> <heard> <base> <moves given up>`, see [`Announcement`]. dsync 0.3.0 reads and
//! sends only `fence:1 <base>`, where the distance from the last fence is that of the node's epoch.

use super::levels::distance;
use crate::module::redis::cluster;
use crate::module::redis::context::Ctx;
use crate::module::shell::SHELL;
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
    let told = SHELL.with(|shell| shell.engine.fences_mut().announce(distance(level)));
    let Announcement { last, heard, base } = told;
    let numbers = format!("{} {} {} {given_up}", last.0, heard.0, base.0);
    cluster::send_to_all(ctx, &[FENCES, numbers.as_bytes()].concat());
    let base = last.0.saturating_sub(distance(epoch)).to_string();
    cluster::send_to_all(ctx, &[BASE_FOR_0_3_0, FROM_NEWER, base.as_bytes()].concat());
}

/// What a message of another node tells.
pub(super) enum Heard {
    Fences {
        fences: Announcement,
        given_up: u64,
    },
    /// The base of a node that has dsync 0.3.0.
    Base(Fence),
}

/// Reads a message; `None` if it is damaged, or of no use to this version.
pub(super) fn read(message: &[u8]) -> Option<Heard> {
    if let Some(numbers) = message.strip_prefix(FENCES) {
        return read_fences(numbers);
    }
    let base = message.strip_prefix(BASE_FOR_0_3_0)?;
    if base.starts_with(FROM_NEWER) {
        return None;
    }
    read_number(base).map(Fence).map(Heard::Base)
}

fn read_number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads the numbers of a message: the fences, and how many moves were given up.
fn read_fences(text: &[u8]) -> Option<Heard> {
    let mut numbers = text.split(|byte| *byte == b' ').map(read_number);
    let mut number = || numbers.next().flatten();
    let (last, heard, base) = (Fence(number()?), Fence(number()?), Fence(number()?));
    Some(Heard::Fences {
        fences: Announcement { last, heard, base },
        given_up: number()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_announcement_is_not_read() {
        let read_one = read(b"fence:2 4 3 2 1");
        let Some(Heard::Fences { fences, given_up }) = read_one else {
            panic!("four numbers");
        };
        let numbers = [fences.last.0, fences.heard.0, fences.base.0];
        assert_eq!((numbers, given_up), ([4, 3, 2], 1));
        for bad in [
            &b""[..],
            b"4 3 2",
            b"4 3 2 x",
            b"4  2 1",
            b"-4 3 2 1",
            b"\xff 3 2 1",
        ] {
            assert!(read(&[FENCES, bad].concat()).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn base_for_0_3_0_is_read_from_0_3_0_only() {
        for (number, expected) in [(&b"7"[..], Some(7)), (b"+7", None), (b"x", None)] {
            let heard = read(&[BASE_FOR_0_3_0, number].concat());
            let base = heard.map(|heard| match heard {
                Heard::Base(base) => base.0,
                Heard::Fences { .. } => panic!("no fences"),
            });
            assert_eq!(base, expected, "{number:?}");
        }
        assert!(read(b"fence:3 1").is_none());
    }
}
