//! What the nodes of a cluster tell each other: their last fences.
//!
//! What is told arrives late: the bus can keep a message for a twentieth of a second, in which a slot moves
//! more than once, and two nodes that both go equally far past what they have heard from a third end up
//! side by side. So the distance grows with the epoch of the node's slots, which the cluster makes greater
//! with every owner of a slot, and what is told is less by the same: then a leap that is not heard of
//! changes nothing.

use crate::module::SHELL;
use crate::module::redis::cluster::{self, Receiver};
use crate::module::redis::context::Ctx;
use dsync_engine::types::Fence;

/// How often the node tells its last fence: if there is a new one, or while it is ahead of the clock, for a
/// message can be lost, and a node can be new.
pub(super) const TELL_US: u64 = 1_000_000;

/// How far apart the owners of a slot are, for each epoch between them: farther than a fence can get from one
/// telling to the next.
const EPOCH_US: u64 = 2 * TELL_US;

/// How far past the fences heard of an owner of a slot with this epoch goes.
pub(super) fn distance(epoch: u64) -> u64 {
    epoch.saturating_mul(EPOCH_US)
}

/// `fence:1 <the last fence, less what the epoch adds>`, where 1 is the version of the message.
const LAST_FENCE: &[u8] = b"fence:1 ";

/// Tells all other nodes the last fence of this one. Returns it.
pub(super) fn tell_last_fence(ctx: Ctx<'_>, epoch: u64) -> Fence {
    let (last, told) = SHELL.with(|shell| {
        let (last, now) = (shell.engine.last_fence(), shell.now());
        let told = Fence(last.0.saturating_sub(distance(epoch)));
        // Others go by it, and so must this node, should it be given back what it gave away.
        shell.engine.hear_fence(told, now);
        (last, told)
    });
    cluster::tell_all(ctx, &[LAST_FENCE, told.0.to_string().as_bytes()].concat());
    last
}

/// Hears what the other nodes tell.
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
