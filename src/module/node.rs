//! This server as a node of a cluster: which keys are its to decide about, and what the nodes tell each
//! other.
//!
//! The server checks a client's command against the cluster before we see it; what the timer does, nobody
//! checks. So a key is asked about before anything is decided about it outside of a command: granting the lock
//! that was migrated a moment ago would give it two holders.
//!
//! Fences grow along each key, and a key can go from node to node, also while nobody holds it and nothing
//! of it is left to travel. So each node tells all others its last fence, and one that is given a slot
//! goes past all that it has heard before it decides about a key there. To go past it on hearing was
//! rejected: two nodes that both give fences would drive each other ahead of the clock.
//!
//! What is told arrives late: the bus can keep a message for a twentieth of a second, in which a slot moves
//! more than once, and two nodes that both go equally far past what they have heard from a third end up
//! side by side. So the distance grows with the epoch of the node's slots, which the cluster makes greater
//! with every owner of a slot, and what is told is less by the same: then a leap that is not heard of
//! changes nothing.
//!
//! What the node asks of its server shows in MONITOR and commandstats, so it asks when there is reason to:
//! it overhears the commands that change its cluster, and a probe that is sent on tells that a slot has
//! gone. Whether the cluster is up, it learns from a probe of a key of its own, which shows less.

use super::redis::cluster::{self, Epochs, Receiver};
use super::redis::context::Ctx;
use super::redis::filter;
use super::redis::hash_slot::{key_in, slot};
use super::redis::key::{Content, OpenKey};
use super::redis::probe::{WriteState, writes_allowed};
use super::redis::{clock, name::KeyString};
use super::slots::{self, Order, Redirected, Slots};
use super::{SHELL, Shell};
use dsync_engine::types::Fence;

/// How often the node tells its last fence: if there is a new one, or while it is ahead of the clock, for a
/// message can be lost, and a node can be new.
const TELL_US: u64 = 1_000_000;

/// How far apart the owners of a slot are, for each epoch between them: farther than a fence can get from one
/// telling to the next.
const EPOCH_US: u64 = 2 * TELL_US;

/// How often the node looks at its slots without a reason, and at most for the reason that its slots are not
/// what it takes them for.
const LOOK_US: u64 = 10_000_000;
const LOOK_AGAIN_US: u64 = 1_000_000;

/// Kept by a server that is in a cluster.
pub(super) struct Node {
    slots: Slots,
    /// Of its slots, when it last looked. An older one is less than the true one: then what the node tells is
    /// more than it has to be, and others leap farther.
    epoch: u64,
    /// At its next look this node settles all its slots but those ordered here since it took over.
    is_new: bool,
    /// What it knows of its slots may be out of date.
    has_to_look: bool,
    /// As this node sees it, the cluster serves nobody.
    is_down: bool,
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

    fn last_looked_before(&self, now_us: u64, period_us: u64) -> bool {
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
pub(super) fn listen(ctx: Ctx<'_>) {
    if is_node() {
        cluster::listen::<Node>(ctx);
    }
}

pub(crate) fn take_back(ctx: Ctx<'_>) {
    filter::stop_overhearing(ctx);
}

fn is_node() -> bool {
    SHELL.with(|shell| shell.node.is_some())
}

/// The cluster serves nobody now, as far as is known.
pub(super) fn is_down(shell: &Shell) -> bool {
    shell.node.as_ref().is_some_and(|node| node.is_down)
}

/// A node that decides looks at its cluster, and tells the others of its fences, from time to time.
pub(super) fn cron(ctx: Ctx<'_>) {
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
        tell(ctx, epoch);
    }
}

/// Asks the server whether it takes writes now, and keeps the answer. No event tells when that changes.
pub(super) fn ask_about_writes(ctx: Ctx<'_>) {
    let mut state = probe(ctx);
    // The slot by which it was asked may have gone: perhaps there is another.
    if state == WriteState::Moved {
        let now_us = clock::monotonic_us();
        if with_node(|node| node.last_looked_before(now_us, LOOK_AGAIN_US)) == Some(true) {
            look(ctx);
            state = probe(ctx);
        }
    }
    keep(state);
}

/// A node asks by a key of its own, for the server does not say of keys elsewhere what it says of those.
fn probe(ctx: Ctx<'_>) -> WriteState {
    let slot = with_node(|node| node.slots.any()).flatten();
    writes_allowed(ctx, &key_in(slot.unwrap_or_default()))
}

fn keep(state: WriteState) {
    SHELL.with(|shell| {
        shell.refused = state == WriteState::Refused;
        if let Some(node) = &mut shell.node {
            node.is_down = state == WriteState::ClusterDown;
        }
    });
}

/// Goes past all fences heard of, because the primary that this node replaces may have been given a slot whose
/// fences this node has not seen: the fence of its first grant there may be lost, or there was none. Then tells
/// the others at once, since this node's fences are far ahead now.
///
/// Looks at its slots later: the server gives a promoted node its slots after this event.
pub(super) fn took_over(ctx: Ctx<'_>) {
    let is_node = with_node(|node| {
        (node.is_new, node.has_to_look) = (true, true);
        node.slots.forget_orders();
    });
    if is_node.is_some() {
        let epoch = cluster::epochs(ctx).own;
        SHELL.with(|shell| shell.engine.leap_past_heard(distance(epoch)));
        tell(ctx, epoch);
    }
}

/// How far past the fences heard of an owner of a slot with this epoch goes.
fn distance(epoch: u64) -> u64 {
    epoch.saturating_mul(EPOCH_US)
}

/// Before a client's command on the key: is its slot new here?
pub(super) fn arrive(ctx: Ctx<'_>, name: &[u8]) {
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

/// Whose it is to decide about a key, outside of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ownership {
    Ours,
    /// The key is on its way to another node while its slot changes hands: whoever asks again is sent there.
    KeyLeft,
    /// The slot is another node's. The server itself turns its clients away.
    Theirs,
    /// Nobody decides about anything for now.
    Down,
}

/// Answers that for one key after another, in one callback: the cluster does not change meanwhile.
#[derive(Default)]
pub(super) struct Ownerships {
    has_looked: bool,
}

impl Ownerships {
    pub(super) fn of(&mut self, ctx: Ctx<'_>, name: &KeyString<'_>) -> Ownership {
        let (in_cluster, held_up) = SHELL.with(|shell| (shell.node.is_some(), shell.is_held_up()));
        if held_up {
            return Ownership::Down;
        }
        if !in_cluster {
            return Ownership::Ours;
        }
        match writes_allowed(ctx, name.bytes()) {
            WriteState::Ok => Ownership::Ours,
            state @ (WriteState::Refused | WriteState::ClusterDown) => {
                keep(state);
                Ownership::Down
            }
            WriteState::Moved => {
                if !std::mem::replace(&mut self.has_looked, true) {
                    look(ctx);
                }
                let slot = slot(name.bytes());
                match with_node(|node| node.slots.of_redirected(slot)) {
                    // Gone while its slot was coming: it may have been sent back, with its holds.
                    Some(Redirected::Importing) if is_absent(ctx, name) => Ownership::KeyLeft,
                    Some(Redirected::Importing) => Ownership::Ours,
                    Some(Redirected::KeyLeft) => Ownership::KeyLeft,
                    Some(Redirected::Elsewhere) | None => Ownership::Theirs,
                }
            }
        }
    }
}

fn is_absent(ctx: Ctx<'_>, name: &KeyString<'_>) -> bool {
    matches!(OpenKey::open_read(ctx, name).content(), Content::Absent)
}

fn with_node<R>(body: impl FnOnce(&mut Node) -> R) -> Option<R> {
    SHELL.with(|shell| shell.node.as_mut().map(body))
}

fn look(ctx: Ctx<'_>) {
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

/// `fence:1 <the last fence, less what the epoch adds>`, where 1 is the version of the message.
const LAST_FENCE: &[u8] = b"fence:1 ";

fn tell(ctx: Ctx<'_>, epoch: u64) {
    let told = SHELL.with(|shell| {
        let (last, now) = (shell.engine.last_fence(), shell.now());
        if let Some(node) = &mut shell.node {
            node.told = last;
        }
        let told = Fence(last.0.saturating_sub(distance(epoch)));
        // Others go by it, and so must this node, should it be given back what it gave away.
        shell.engine.hear_fence(told, now);
        told
    });
    cluster::tell_all(ctx, &[LAST_FENCE, told.0.to_string().as_bytes()].concat());
}

impl Receiver for Node {
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
