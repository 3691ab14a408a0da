//! What this node knows of its slots, and what it does before it decides about a key of a slot that is new to it.
//!
//! Fences grow along each key, and a key can go from node to node, also while nobody holds it and nothing
//! of it is left to travel. So each node tells all others its last fence (see `bus`), and one that is given a slot
//! goes past all that it has heard before it decides about a key there. To go past it on hearing was
//! rejected: two nodes that both give fences would drive each other ahead of the clock.
//!
//! What the node asks of its server shows in MONITOR and commandstats, so it asks when there is reason to:
//! it overhears the commands that change its cluster, and a probe that is sent on tells that a slot has
//! gone. Whether the cluster is up, it learns from a probe of a key of its own, which shows less.

use super::bus::{self, Bus, TELL_US, distance};
use super::slots::{self, Order, Slots};
use crate::module::redis::clock;
use crate::module::redis::cluster::{self, Epochs};
use crate::module::redis::context::Ctx;
use crate::module::redis::filter;
use crate::module::redis::hash_slot::slot;
use crate::module::{SHELL, Shell};
use dsync_engine::types::Fence;

/// How often the node looks at its slots without a reason, and at most for the reason that its slots are not
/// what it takes them for.
const LOOK_US: u64 = 10_000_000;
pub(super) const LOOK_AGAIN_US: u64 = 1_000_000;

/// Kept by a server that is in a cluster.
pub(crate) struct Node {
    pub(super) slots: Slots,
    /// Of its slots, when it last looked. An older one is less than the true one: then what the node tells is
    /// more than it has to be, and others leap farther.
    epoch: u64,
    /// At its next look this node settles all its slots but those ordered here since it took over.
    is_new: bool,
    /// What it knows of its slots may be out of date.
    has_to_look: bool,
    /// As this node sees it, the cluster serves nobody.
    pub(super) is_down: bool,
    /// The last fence that it told of.
    told: Fence,
    told_us: u64,
    looked_us: u64,
}

impl Node {
    fn new() -> Node {
        Node {
            slots: Slots::new(),
            epoch: 0,
            is_new: true,
            has_to_look: true,
            is_down: false,
            told: Fence(0),
            told_us: 0,
            looked_us: 0,
        }
    }

    pub(super) fn last_looked_before(&self, now_us: u64, period_us: u64) -> bool {
        now_us.saturating_sub(self.looked_us) >= period_us
    }
}

pub(crate) fn register(ctx: Ctx<'_>) {
    if ctx.facts().cluster() {
        SHELL.with(|shell| shell.node = Some(Node::new()));
    }
}

pub(crate) fn overhear(ctx: Ctx<'_>) -> Result<(), String> {
    if is_node() {
        filter::overhear_cluster::<Node>(ctx)?;
    }
    Ok(())
}

/// The module is loaded for good: from now on the other nodes are heard. None of their messages has come
/// since the module was loaded, for they come in the event loop, which turns for the first time now.
pub(crate) fn listen(ctx: Ctx<'_>) {
    if is_node() {
        cluster::listen::<Bus>(ctx);
    }
}

pub(crate) fn take_back(ctx: Ctx<'_>) {
    filter::stop_overhearing(ctx);
}

fn is_node() -> bool {
    SHELL.with(|shell| shell.node.is_some())
}

/// The cluster serves nobody now, as far as is known.
pub(crate) fn is_down(shell: &Shell) -> bool {
    shell.node.as_ref().is_some_and(|node| node.is_down)
}

/// A node that decides looks at its cluster, and tells the others of its fences, from time to time.
pub(crate) fn cron(ctx: Ctx<'_>) {
    let now_us = clock::monotonic_us();
    let looks = with_node(|node| node.has_to_look || node.last_looked_before(now_us, LOOK_US));
    if looks == Some(true) {
        look(ctx);
    }
    let tells = SHELL.with(|shell| {
        let last = shell.engine.last_fence();
        let node = shell.node.as_mut()?;
        if now_us.saturating_sub(node.told_us) < TELL_US {
            return None;
        }
        node.told_us = now_us;
        (node.told != last || last.0 > clock::unix_us()).then_some(node.epoch)
    });
    if let Some(epoch) = tells {
        tell_last(ctx, epoch);
    }
}

fn tell_last(ctx: Ctx<'_>, epoch: u64) {
    let told = bus::tell_last_fence(ctx, epoch);
    with_node(|node| node.told = told);
}

/// Goes past all fences heard of, because the primary that this node replaces may have been given a slot whose
/// fences this node has not seen: the fence of its first grant there may be lost, or there was none. Then tells
/// the others at once, since this node's fences are far ahead now.
///
/// Looks at its slots later: the server gives a promoted node its slots after this event.
pub(crate) fn took_over(ctx: Ctx<'_>) {
    let is_node = with_node(|node| {
        (node.is_new, node.has_to_look) = (true, true);
        node.slots.forget_orders();
    });
    if is_node.is_some() {
        let epoch = cluster::epochs(ctx).own;
        SHELL.with(|shell| shell.engine.leap_past_heard(distance(epoch)));
        tell_last(ctx, epoch);
    }
}

/// Before a client's command on the key: is its slot new here?
pub(crate) fn arrive(ctx: Ctx<'_>, name: &[u8]) {
    if !is_node() {
        return;
    }
    // What comes from a primary or from the AOF has been decided; this node has nothing to find out for it.
    let facts = ctx.facts();
    if facts.replicated() || facts.loading() {
        return;
    }
    let slot = slot(name);
    if with_node(|node| node.slots.make_known(slot)) == Some(true) {
        look(ctx);
        let is_served = with_node(|node| node.slots.is_served(slot)) == Some(true);
        let epoch = epoch_of(cluster::epochs(ctx), is_served);
        SHELL.with(|shell| shell.engine.leap_past_heard(distance(epoch)));
    }
}

/// The epoch of a slot that is this node's, or is about to be: then the node will have the greatest.
fn epoch_of(epochs: Epochs, is_served: bool) -> u64 {
    if is_served || epochs.own == epochs.greatest {
        epochs.own
    } else {
        epochs.greatest.saturating_add(1)
    }
}

impl filter::Listener for Node {
    /// A CLUSTER command is about to be carried out. A slot that comes is new, also where it was away for less
    /// than the time between two looks.
    fn overhear(words: &[&[u8]]) {
        if !slots::may_change(words) {
            return;
        }
        SHELL.try_with(|shell| {
            let Some(node) = &mut shell.node else { return };
            node.has_to_look = true;
            if let Some(order) = Order::of(words) {
                node.slots.follow(order);
            }
        });
    }
}

pub(super) fn with_node<R>(body: impl FnOnce(&mut Node) -> R) -> Option<R> {
    SHELL.with(|shell| shell.node.as_mut().map(body))
}

pub(super) fn look(ctx: Ctx<'_>) {
    let nodes = cluster::nodes(ctx);
    with_node(|node| {
        node.has_to_look = false;
        node.looked_us = clock::monotonic_us();
        let Some(nodes) = nodes else { return };
        node.epoch = slots::own_epoch(&nodes).unwrap_or_default();
        node.slots.see(&nodes);
        if std::mem::take(&mut node.is_new) {
            node.slots.make_all_known();
        }
    });
}
