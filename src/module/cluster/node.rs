//! This node's view of its slots, and what it does before it decides about a key of a slot that is new to it.
//!
//! The fences of a key must never go back, also when its slot moves to another node, and also when nobody holds the
//! key, so that no value moves with the slot. So each node announces its last fence to all others (see `bus`), and a
//! node that begins to decide about a slot leaps past all fences that it has heard of, and past those that it may not
//! have heard of yet (see `levels`). One rule covers moves that are finished, given up, and begun again. To leap at each
//! announcement was rejected: two nodes that both give fences would drive each other ahead of the clock.
//!
//! The node's questions to its server show in MONITOR and commandstats and take long, so it asks only when there is a
//! reason, and not too often (see `refreshes`): a CLUSTER command that changes something (`redis::filter` sees them), or
//! a probe that the server redirects, because then a slot has gone. The server may refuse the command, also one of a
//! client that may send none: so what was only ordered moves fences no further than what is repeated at will may. The
//! node learns whether the cluster is up from a probe of a key of its own, which shows less.

use super::bus::{self, Heard};
use super::levels::{self, ANNOUNCE_US, distance, level_of, past_heard};
use super::own_line;
use super::refreshes::{MIN_REFRESH_US, Refreshes};
use super::slot_orders::{self, SlotOrder};
use super::slots::{Role, Slots};
use crate::module::out::journal;
use crate::module::redis::clock;
use crate::module::redis::cluster::{self, Epochs, NodeId};
use crate::module::redis::context::Ctx;
use crate::module::redis::events;
use crate::module::redis::filter;
use crate::module::redis::gil::{GilCell, GilFlag};
use crate::module::redis::hash_slot::slot;
use crate::module::shell::SHELL;
use dsync_engine::types::Fence;
use std::collections::BTreeSet;

/// The time between two refreshes of the slots without a reason, in microseconds.
const REFRESH_US: u64 = 10_000_000;

/// Whether this server is in cluster mode. A flag, because each command asks.
static IS_NODE: GilFlag = GilFlag::new();

/// Only a server in cluster mode has a node's state.
static NODE: GilCell<Option<ClusterNode>> = GilCell::new(Option::default);

/// What a server in cluster mode knows of its slots and of the other nodes.
pub(super) struct ClusterNode {
    pub(super) slots: Slots,
    /// The epochs at the last refresh. They can be older, and so less, than the true ones.
    epochs: Epochs,
    /// The greatest level that the node has leapt by. Its base is its last fence less the distance of this level.
    level: u64,
    /// The next refresh makes all slots of this node known, except those ordered here since it took over: at the
    /// take-over it leapt past all fences it had heard of.
    refresh_makes_all_known: bool,
    /// The slots may have changed since the last refresh.
    is_stale: bool,
    /// A SETSLOT came since the last refresh, so a move may have begun or ended.
    is_moving: bool,
    /// The node has to see that move before the next command, which may undo it.
    look_is_due: bool,
    refreshes: Refreshes,
    /// The nodes that this one has heard of fences from, since its start.
    heard_from: BTreeSet<NodeId>,
    /// The log has a warning of an epoch that is too great to be used.
    has_warned: bool,
    /// At the last announcement: the greatest fence that this node knew, and how many moves were given up.
    announced: (Fence, u64),
    announced_us: u64,
    refreshed_us: u64,
}

impl ClusterNode {
    fn new() -> ClusterNode {
        ClusterNode {
            slots: Slots::new(),
            epochs: Epochs::default(),
            level: 0,
            refresh_makes_all_known: true,
            is_stale: true,
            is_moving: false,
            look_is_due: false,
            refreshes: Refreshes::new(),
            heard_from: BTreeSet::new(),
            has_warned: false,
            announced: (Fence(0), 0),
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
        NODE.with(|node| *node = Some(ClusterNode::new()));
        IS_NODE.set(true);
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
        cluster::listen::<ClusterNode>(ctx);
    }
}

/// Stops watching commands when the server refuses the module.
pub(crate) fn take_back(ctx: Ctx<'_>) {
    filter::stop_watching(ctx);
}

/// Whether this server is in cluster mode.
pub(crate) fn is_node() -> bool {
    IS_NODE.is_set()
}

/// Whether this server is a replica by its own entry in the list of nodes.
pub(crate) fn is_replica_by_its_entry(ctx: Ctx<'_>) -> bool {
    is_node() && cluster::nodes(ctx).is_some_and(|nodes| own_line::is_replica(&nodes))
}

/// Called by the server's cron on a server that decides: refreshes the slots and announces the last fence, each when it
/// is time to.
pub(crate) fn cron(ctx: Ctx<'_>) {
    let now_us = clock::monotonic_us();
    let (is_regular, is_stale) = with_node(|node| {
        let is_regular = node.last_refreshed_before(now_us, REFRESH_US);
        (is_regular, node.is_stale)
    })
    .unwrap_or_default();
    if is_regular {
        refresh_slots(ctx);
    } else if is_stale {
        refresh_if_allowed(ctx);
    }
    let known = SHELL.with(|shell| shell.engine.fences().to_save());
    let announces = with_node(|node| {
        if now_us.saturating_sub(node.announced_us) < ANNOUNCE_US {
            return false;
        }
        node.announced_us = now_us;
        let is_new = node.announced != (known, node.slots.given_up());
        is_new || known.0 > clock::unix_us()
    });
    if announces == Some(true) {
        announce(ctx);
    }
}

fn announce(ctx: Ctx<'_>) {
    let known = SHELL.with(|shell| shell.engine.fences().to_save());
    let numbers = with_node(|node| {
        node.announced = (known, node.slots.given_up());
        let own = node.epochs.own;
        let level = node.level.max(levels::used_epoch(own));
        (level, own, node.slots.given_up())
    });
    if let Some((level, epoch, given_up)) = numbers {
        bus::announce(ctx, level, epoch, given_up);
    }
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
        node.slots.begin_anew();
    });
    if is_node.is_some() {
        read_epochs(ctx);
        leap(Role::Owner, true);
        // What the last fence has been saved with is not known any more: at most one leap by the greatest epoch.
        with_node(|node| node.level = node.level.max(levels::used_epoch(node.epochs.greatest)));
        announce(ctx);
    }
}

/// Called before each client's command on a key. If the key's slot is unknown here, leaps past all fences that the node
/// has heard of.
#[inline]
pub(crate) fn make_slot_known(ctx: Ctx<'_>, name: &[u8]) {
    if is_node() {
        make_known(ctx, slot(name));
    }
}

/// [`make_slot_known`] on a node.
#[inline(never)]
fn make_known(ctx: Ctx<'_>, slot: u16) {
    let (is_known, is_importing) =
        with_node(|node| (node.slots.is_known(slot), node.slots.is_importing(slot)))
            .unwrap_or_default();
    if is_known && !is_importing {
        return;
    }
    // Another server, or this one earlier, decided what comes from a primary or from the AOF.
    let facts = ctx.facts();
    if facts.replicated() || facts.loading() {
        return;
    }
    let (is_serving, is_behind) = SHELL.with(|shell| {
        let engine = &shell.engine;
        (engine.is_serving(), engine.fences().is_behind_heard())
    });
    if !is_serving {
        return;
    }
    if is_known {
        // The owner of the slot decides about the keys that are still there, and may leap meanwhile.
        if is_behind {
            SHELL.with(|shell| {
                let now = shell.now();
                shell
                    .engine
                    .fences_mut()
                    .leap_past_heard(past_heard(Role::Owner), now);
            });
        }
        return;
    }
    // A slot that has come without a command to this node is not among those that it has seen.
    if with_node(|node| node.is_stale || !node.slots.is_here(slot)) == Some(true) {
        refresh_if_allowed(ctx);
    }
    if let Some(Some(arrival)) = with_node(|node| node.slots.make_known(slot))
        && leap(arrival.role, arrival.is_certain)
    {
        announce(ctx);
    }
}

/// Leaps past the fences that the node has heard of, and past those that it may not have heard of, for slots that it has
/// in this role. What is not certain must change nothing if it is repeated. Returns whether the last fence has changed.
fn leap(role: Role, is_certain: bool) -> bool {
    let level = with_node(|node| {
        let level = level_of(role, node.epochs, node.slots.given_up());
        node.level = node.level.max(level);
        level
    });
    let Some(level) = level else { return false };
    SHELL.with(|shell| {
        let now = shell.now();
        let fences = shell.engine.fences_mut();
        let before = fences.last();
        if role == Role::OwnerAgain {
            // The importing node followed the last fence of this one (see `make_slot_known`), half as far past it.
            // First of all, so that this adds nothing to a leap by a greater level.
            fences.leap_past_own(past_heard(role), now);
        }
        fences.leap_past_base(distance(level), now);
        if is_certain {
            fences.leap_past_heard(past_heard(role), now);
        }
        fences.last() > before
    })
}

/// Called at the beginning of a turn of the event loop: looks at the slots if a move may have begun or ended in the last
/// turn.
pub(crate) fn turn_is_over(ctx: Ctx<'_>) {
    if with_node(|node| std::mem::take(&mut node.look_is_due)) == Some(true) {
        refresh_if_allowed(ctx);
    }
}

impl cluster::Receiver for ClusterNode {
    /// Notes what another node tells. At the first message of each node since the start, leaps past all that was heard:
    /// this node may have forgotten fences that it gave, and the others have not. A node sends no second first message,
    /// so this cannot go on.
    fn receive(ctx: Ctx<'_>, sender: NodeId, message: &[u8]) {
        match bus::read(message) {
            Some(Heard::Fences { fences, given_up }) => {
                with_node(|node| node.slots.hear_given_up(given_up));
                SHELL.with(|shell| {
                    let now = shell.now();
                    shell.engine.fences_mut().hear(fences, now);
                });
            }
            Some(Heard::Base(base)) => SHELL.with(|shell| {
                let now = shell.now();
                shell.engine.fences_mut().hear_base(base, now);
            }),
            None => return,
        }
        let is_first = with_node(|node| node.heard_from.insert(sender)) == Some(true);
        let is_serving = || SHELL.with(|shell| shell.engine.is_serving());
        if is_first && is_serving() && leap(Role::Owner, true) {
            announce(ctx);
        }
    }
}

impl filter::CommandListener for ClusterNode {
    /// Called just before the server runs a CLUSTER command. Makes a slot that is ordered here unknown, even if it was
    /// away for less than the time between two refreshes.
    fn on_cluster_command(ctx: Ctx<'_>, words: &[&[u8]]) {
        if !slot_orders::may_change(words) {
            return;
        }
        let is_moving = slot_orders::may_move(words);
        NODE.try_with(|node| {
            let Some(node) = node else { return };
            node.is_stale = true;
            node.is_moving |= is_moving;
            node.look_is_due |= is_moving;
            if let Some(order) = SlotOrder::of(words) {
                node.slots.apply_order(order);
            }
        });
        if is_moving {
            events::await_next_turn(ctx);
        }
    }
}

pub(super) fn with_node<R>(body: impl FnOnce(&mut ClusterNode) -> R) -> Option<R> {
    if !is_node() {
        return None;
    }
    NODE.with(|node| node.as_mut().map(body))
}

/// Refreshes the slots, unless that was done too often. A move needs several refreshes within a moment; whatever else
/// has changed can wait for its turn.
fn refresh_if_allowed(ctx: Ctx<'_>) {
    let now_us = clock::monotonic_us();
    let is_allowed = with_node(|node| match node.is_moving {
        true => node.refreshes.take(now_us),
        false => node.last_refreshed_before(now_us, MIN_REFRESH_US),
    });
    if is_allowed == Some(true) {
        refresh_slots(ctx);
    }
}

/// Reads the node's slots and their epoch from the server. Tells the other nodes at once of a move that was given up.
pub(super) fn refresh_slots(ctx: Ctx<'_>) {
    let nodes = cluster::nodes(ctx);
    let given_up = with_node(|node| node.slots.given_up());
    with_node(|node| {
        (node.is_stale, node.is_moving, node.look_is_due) = (false, false, false);
        node.refreshed_us = clock::monotonic_us();
        let Some(nodes) = nodes else { return };
        node.slots.update(&nodes);
        if std::mem::take(&mut node.refresh_makes_all_known) {
            node.slots.make_all_known();
        }
    });
    read_epochs(ctx);
    if with_node(|node| node.slots.given_up()) > given_up {
        announce(ctx);
    }
}

/// Reads the epochs from the server. Warns of one that is too great.
fn read_epochs(ctx: Ctx<'_>) {
    let epochs = cluster::epochs(ctx);
    let is_too_great = levels::is_too_great(epochs.greatest);
    let had_warned = with_node(|node| {
        node.epochs = epochs;
        std::mem::replace(&mut node.has_warned, is_too_great)
    });
    if is_too_great && had_warned == Some(false) {
        journal::epoch_too_great(epochs.greatest);
    }
}
