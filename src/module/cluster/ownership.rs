//! Whose it is to decide about a key outside of a command, and whether anybody may.
//!
//! The server checks a client's command against the cluster before the module sees it. Nobody checks what the timer
//! does, so it asks about a key before it decides: to grant a lock that was migrated a moment ago would give it two
//! holders.

use super::node::{LOOK_AGAIN_US, look, with_node};
use super::slots::Redirected;
use crate::module::SHELL;
use crate::module::redis::clock;
use crate::module::redis::context::Ctx;
use crate::module::redis::hash_slot::{key_in, slot};
use crate::module::redis::key::{Content, OpenKey};
use crate::module::redis::name::KeyString;
use crate::module::redis::probe::{WriteState, writes_allowed};

/// Whose it is to decide about a key, outside of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ownership {
    Ours,
    /// The key has gone to another node while its slot is moving: clients that ask again are sent there.
    KeyLeft,
    /// The slot is another node's. The server itself turns its clients away.
    Theirs,
    /// Nobody decides about anything for now.
    Down,
}

/// Answers that for one key after another, in one callback: the cluster does not change meanwhile.
#[derive(Default)]
pub(crate) struct Ownerships {
    has_looked: bool,
}

impl Ownerships {
    pub(crate) fn of(&mut self, ctx: Ctx<'_>, name: &KeyString<'_>) -> Ownership {
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

/// Asks the server whether it takes writes now, and keeps the answer. No event tells when that changes.
pub(crate) fn ask_about_writes(ctx: Ctx<'_>) {
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
