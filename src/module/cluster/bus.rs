//! The messages that the nodes of a cluster send each other: their last fences.
//!
//! A message arrives late: the cluster bus can keep it for 50 ms, and in that time a slot can move more than once.
//! Two nodes that both leap equally far past the same message of a third would give equal fences. So a node leaps
//! farther the greater the epoch of its slots is: each new owner of a slot has a greater epoch. And each node
//! announces its last fence less the same distance, so that a leap that others have not heard of does no harm.

use crate::module::SHELL;
use crate::module::redis::cluster::{self, Receiver};
use crate::module::redis::context::Ctx;
use dsync_engine::types::Fence;

/// The time between two announcements of the last fence, in microseconds. The node announces a new fence, and repeats
/// one that is ahead of the clock, because a message can be lost and a node can be new.
pub(super) const ANNOUNCE_US: u64 = 1_000_000;

/// The distance between the fences of two owners of a slot, for each epoch between them: more than a fence can grow
/// between two announcements.
const EPOCH_US: u64 = 2 * ANNOUNCE_US;

/// How far an owner of slots with this epoch leaps past the fences that it has heard.
pub(super) fn distance(epoch: u64) -> u64 {
    epoch.saturating_mul(EPOCH_US)
}

/// The message is `fence:1 <the last fence less the distance>`, where 1 is the version of the message.
const LAST_FENCE: &[u8] = b"fence:1 ";

/// Announces this node's last fence to all other nodes. Returns that fence.
pub(super) fn announce_last_fence(ctx: Ctx<'_>, epoch: u64) -> Fence {
    let (last, announced) = SHELL.with(|shell| {
        let (last, now) = (shell.engine.last_fence(), shell.now());
        let announced = Fence(last.0.saturating_sub(distance(epoch)));
        // This node must leap past it as well if a slot that it gave away comes back.
        shell.engine.hear_fence(announced, now);
        (last, announced)
    });
    cluster::send_to_all(
        ctx,
        &[LAST_FENCE, announced.0.to_string().as_bytes()].concat(),
    );
    last
}

/// Receives the announcements of the other nodes.
pub(super) struct Bus;

impl Receiver for Bus {
    fn receive(_: Ctx<'_>, message: &[u8]) {
        let fence = message.strip_prefix(LAST_FENCE);
        let fence = fence.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
        if let Some(fence) = fence {
            SHELL.with(|shell| {
                let now = shell.now();
                shell.engine.hear_fence(Fence(fence), now);
            });
        }
    }
}
