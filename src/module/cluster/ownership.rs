//! Which server decides about a key, and whether any may decide now. The timer asks before each task.
//!
//! The server checks a client's command against the cluster before the module sees it, but nothing checks what the
//! timer does. If the timer granted a lock that was migrated a moment ago, the lock would have two holders.

use super::node::{is_node, refresh_slots, with_node};
use super::refreshes::MIN_REFRESH_US;
use super::slots::Redirected;
use crate::module::redis::clock;
use crate::module::redis::context::Ctx;
use crate::module::redis::hash_slot::{key_in, slot};
use crate::module::redis::key::{KeyContent, OpenKey};
use crate::module::redis::name::KeyString;
use crate::module::redis::probe::{WriteState, writes_allowed};
use crate::module::shell::SHELL;

/// Which server decides about a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ownership {
    /// This server.
    Ours,
    /// Another node: the key has gone there while its slot is migrating. The module must tell waiters to ask again, and
    /// the server then redirects them.
    KeyLeft,
    /// Another node, which has the slot. The server itself redirects the waiters.
    Theirs,
    /// No server for now: the cluster is down, or writes are paused or refused.
    Down,
}

/// Finds out the [`Ownership`] of one key after another within one callback, during which the cluster cannot change.
#[derive(Default)]
pub(crate) struct Ownerships {
    /// The slots were refreshed in this callback.
    has_refreshed: bool,
}

impl Ownerships {
    pub(crate) fn of(&mut self, ctx: Ctx<'_>, name: &KeyString<'_>) -> Ownership {
        if SHELL.with(|shell| shell.is_held_up()) {
            return Ownership::Down;
        }
        if !is_node() {
            return Ownership::Ours;
        }
        match writes_allowed(ctx, name.bytes()) {
            WriteState::Ok => Ownership::Ours,
            state @ (WriteState::Refused | WriteState::ClusterDown) => {
                keep(state);
                Ownership::Down
            }
            WriteState::Moved => {
                if !std::mem::replace(&mut self.has_refreshed, true) {
                    refresh_slots(ctx);
                }
                let slot = slot(name.bytes());
                match with_node(|node| node.slots.classify_redirected(slot)) {
                    // An absent key of a slot that is being imported may have been sent back, with its holds.
                    Some(Redirected::Importing) if is_absent(ctx, name) => Ownership::KeyLeft,
                    Some(Redirected::Importing) => Ownership::Ours,
                    Some(Redirected::KeyLeft) => Ownership::KeyLeft,
                    Some(Redirected::Elsewhere) | None => Ownership::Theirs,
                }
            }
        }
    }
}

/// Whether the keyspace has no value under this name.
pub(crate) fn is_absent(ctx: Ctx<'_>, name: &KeyString<'_>) -> bool {
    matches!(OpenKey::open_read(ctx, name).content(), KeyContent::Absent)
}

/// Asks the server whether it accepts writes now, and keeps the answer in the shell. No event tells when that changes.
pub(crate) fn ask_about_writes(ctx: Ctx<'_>) {
    let mut state = probe(ctx);
    // The slot of the probe's key may have gone: refresh, and probe by another slot.
    if state == WriteState::Moved {
        let now_us = clock::monotonic_us();
        if with_node(|node| node.last_refreshed_before(now_us, MIN_REFRESH_US)) == Some(true) {
            refresh_slots(ctx);
            state = probe(ctx);
        }
    }
    keep(state);
}

/// Probes by a key of one of the node's own slots, because for others the server only says that the slot has moved.
fn probe(ctx: Ctx<'_>) -> WriteState {
    let slot = with_node(|node| node.slots.slot_to_probe()).flatten();
    writes_allowed(ctx, &key_in(slot.unwrap_or_default()))
}

/// Keeps what a probe has found out.
fn keep(state: WriteState) {
    SHELL.with(|shell| {
        shell.refused = state == WriteState::Refused;
        shell.cluster_is_down = state == WriteState::ClusterDown;
    });
}
