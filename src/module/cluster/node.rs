//! This node's view of its slots, and what it does before it decides about a key of a slot that is new to it.
//!
//! The fences of a key must never go back, also when its slot moves to another node, and also when nobody holds the
//! key, so that no value moves with the slot. So each node announces its last fence to all others (see `bus`), and a
//! node that gets a slot leaps past all fences that it has heard of before it decides about a key there. To leap at
//! each announcement was rejected: two nodes that both give fences would drive each other ahead of the clock.
//!
//! The node's questions to its server show in MONITOR and commandstats, so it asks only when there is a reason: a
//! CLUSTER command that changes something (`redis::filter` sees them), or a probe that the server redirects, because
//! then a slot has gone. It learns whether the cluster is up from a probe of a key of its own, which shows less.

use super::bus::{self, ANNOUNCE_US, Bus, distance};
use super::own_line;
use super::slot_orders::{self, SlotOrder};
use super::slots::Slots;
use crate::module::redis::clock;
use crate::module::redis::cluster::{self, Epochs};
use crate::module::redis::context::Ctx;
use crate::module::redis::filter;
use crate::module::redis::hash_slot::slot;
use crate::module::{SHELL, Shell};
use dsync_engine::types::Fence;

/// The time between two refreshes of the slots without a reason, in microseconds.
const REFRESH_US: u64 = 10_000_000;
/// The shortest time between two refreshes because a probe was redirected, in microseconds.
pub(super) const MIN_REFRESH_US: u64 = 1_000_000;

/// The state of a server in cluster mode; other servers have none.
pub(crate) struct ClusterNode {
    pub(super) slots: Slots,
    /// The epoch of its slots at the last refresh. It can be older, and so less, than the true one. Then the node
    /// announces a greater fence than it has to, and others leap farther, which does no harm.
    epoch: u64,
    /// The next refresh makes all slots of this node known, except those ordered here since it took over: at the
    /// take-over it leapt past all fences it had heard of.
    refresh_makes_all_known: bool,
    /// The slots may have changed since the last refresh.
    is_stale: bool,
    /// The cluster was down at the last probe, so it serves nobody.
    pub(super) is_down: bool,
    /// The last fence at the last announcement.
    announced: Fence,
    announced_us: u64,
    refreshed_us: u64,
}

impl ClusterNode {
    fn new() -> ClusterNode {
        ClusterNode {
            slots: Slots::new(),
            epoch: 0,
            refresh_makes_all_known: true,
            is_stale: true,
            is_down: false,
            announced: Fence(0),
            announced_us: 0,
            refreshed_us: 0,
        }
    }

    pub(super) fn last_refreshed_before(&self, now_us: u64, period_us: u64) -> bool {
        now_us.saturating_sub(self.refreshed_us) >= period_us
    }
}

/// Makes the state of a node if this server is in cluster mode.
pub(crate) fn register(ctx: Ctx<'_>) {
    if ctx.facts().cluster() {
        SHELL.with(|shell| shell.node = Some(ClusterNode::new()));
    }
}

/// Begins to watch the CLUSTER commands that clients send.
pub(crate) fn watch_commands(ctx: Ctx<'_>) -> Result<(), String> {
    if is_node() {
        filter::watch_cluster_commands::<ClusterNode>(ctx)?;
    }
    Ok(())
}

/// Begins to receive the other nodes' messages. Called in the first turn of the event loop, when the server can no
/// longer refuse the module, because the receiver cannot be taken back. No message was missed: the server reads them
/// in the event loop.
pub(crate) fn listen(ctx: Ctx<'_>) {
    if is_node() {
        cluster::listen::<Bus>(ctx);
    }
}

/// Stops watching commands when the server refuses the module.
pub(crate) fn take_back(ctx: Ctx<'_>) {
    filter::stop_watching(ctx);
}

fn is_node() -> bool {
    SHELL.with(|shell| shell.node.is_some())
}

/// Returns whether this server is in a cluster that was down at the last probe.
pub(crate) fn is_down(shell: &Shell) -> bool {
    shell.node.as_ref().is_some_and(|node| node.is_down)
}

/// Called by the server's cron on a server that decides: refreshes the slots and announces the last fence, each when it
/// is time to.
pub(crate) fn cron(ctx: Ctx<'_>) {
    let now_us = clock::monotonic_us();
    let has_to_refresh =
        with_node(|node| node.is_stale || node.last_refreshed_before(now_us, REFRESH_US));
    if has_to_refresh == Some(true) {
        refresh_slots(ctx);
    }
    let announces = SHELL.with(|shell| {
        let last = shell.engine.last_fence();
        let node = shell.node.as_mut()?;
        if now_us.saturating_sub(node.announced_us) < ANNOUNCE_US {
            return None;
        }
        node.announced_us = now_us;
        (node.announced != last || last.0 > clock::unix_us()).then_some(node.epoch)
    });
    if let Some(epoch) = announces {
        announce(ctx, epoch);
    }
}

fn announce(ctx: Ctx<'_>, epoch: u64) {
    let announced = bus::announce_last_fence(ctx, epoch);
    with_node(|node| node.announced = announced);
}

/// Leaps past all fences that the node has heard of, and announces its last fence at once, because it is far ahead now.
///
/// The leap is needed because the primary that this node replaces may have got a slot whose earlier fences this node
/// has not seen: the primary's first grant there may be lost, or there was none.
///
/// The slots are refreshed later, because the server gives a promoted node its slots after this event.
pub(crate) fn took_over(ctx: Ctx<'_>) {
    let is_node = with_node(|node| {
        (node.refresh_makes_all_known, node.is_stale) = (true, true);
        node.slots.forget_orders();
    });
    if is_node.is_some() {
        let epoch = cluster::epochs(ctx).own;
        SHELL.with(|shell| shell.engine.leap_past_heard(distance(epoch)));
        announce(ctx, epoch);
    }
}

/// Called before each client's command on a key. If the key's slot is unknown here, leaps past all fences that the node
/// has heard of.
pub(crate) fn make_slot_known(ctx: Ctx<'_>, name: &[u8]) {
    if !is_node() {
        return;
    }
    // Another server, or this one earlier, decided what comes from a primary or from the AOF.
    let facts = ctx.facts();
    if facts.replicated() || facts.loading() {
        return;
    }
    let slot = slot(name);
    if with_node(|node| node.slots.make_known(slot)) == Some(true) {
        refresh_slots(ctx);
        let is_served = with_node(|node| node.slots.is_served(slot)) == Some(true);
        let epoch = epoch_of(cluster::epochs(ctx), is_served);
        SHELL.with(|shell| shell.engine.leap_past_heard(distance(epoch)));
    }
}

/// The epoch of a slot: this node's own, or if the slot is about to become this node's, the one after the greatest,
/// which the node will then get.
fn epoch_of(epochs: Epochs, is_served: bool) -> u64 {
    if is_served || epochs.own == epochs.greatest {
        epochs.own
    } else {
        epochs.greatest.saturating_add(1)
    }
}

impl filter::CommandListener for ClusterNode {
    /// Called just before the server runs a CLUSTER command. Makes a slot that is ordered here unknown, even if it was
    /// away for less than the time between two refreshes.
    fn on_cluster_command(words: &[&[u8]]) {
        if !slot_orders::may_change(words) {
            return;
        }
        SHELL.try_with(|shell| {
            let Some(node) = &mut shell.node else { return };
            node.is_stale = true;
            if let Some(order) = SlotOrder::of(words) {
                node.slots.apply_order(order);
            }
        });
    }
}

pub(super) fn with_node<R>(body: impl FnOnce(&mut ClusterNode) -> R) -> Option<R> {
    SHELL.with(|shell| shell.node.as_mut().map(body))
}

/// Reads the node's slots and their epoch from the server.
pub(super) fn refresh_slots(ctx: Ctx<'_>) {
    let nodes = cluster::nodes(ctx);
    with_node(|node| {
        node.is_stale = false;
        node.refreshed_us = clock::monotonic_us();
        let Some(nodes) = nodes else { return };
        node.epoch = own_line::own_epoch(&nodes).unwrap_or_default();
        node.slots.update(&nodes);
        if std::mem::take(&mut node.refresh_makes_all_known) {
            node.slots.make_all_known();
        }
    });
}
