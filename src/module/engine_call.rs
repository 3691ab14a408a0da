//! One visit of a key, and all that follows from it: store or delete the key, carry out the effects in their order.
//!
//! The engine is borrowed for its own call only, because every call into the server may call back: deleting a key
//! calls its type's `free`, and releasing a client asks for its reply.
//!
//! Nothing here arms the timer, because the timer's own calls come here too.

use super::out::{announce, ends, journal, notify, replicate};
use super::redis::context::{Ctx, Level};
use super::redis::gil::GilCell;
use super::redis::key::{KeyContent, OpenKey};
use super::redis::name::KeyString;
use super::shell::{SHELL, Shell};
use super::{loading, waiters};
use dsync_engine::effect::Effects;
use dsync_engine::types::{Db, Now};
use dsync_engine::{Engine, Family, Key, StateId, Visit, Visited, WrongType};

/// Buffers that are kept to be used again.
static EFFECTS: GilCell<Option<Box<Effects>>> = GilCell::new(Option::default);

/// The value of an open key, if there is one.
#[derive(Default)]
pub(super) struct Found {
    pub(super) state: Option<StateId>,
    family: Option<Family>,
}

/// Visits an open key in the engine, then carries out all consequences. `visit` is [`Engine::visit`] of that key, whose
/// value is the one that was found.
pub(super) fn run_opened<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    opened: OpenKey<'_>,
    found: Found,
    visit: impl FnOnce(&mut Shell) -> Visited<R>,
) -> Visited<R> {
    let (visited, effects) = with_effects(visit);
    // So most requests end that are refused.
    if effects.is_none() && visited.state == found.state {
        return visited;
    }
    let family = visited.family.or(found.family);
    store(ctx, &opened, found.state, visited.state, family);
    drop(opened);
    if let Some(effects) = effects {
        carry_out(ctx, name, family, visited.is_freed, effects);
    }
    visited
}

/// Runs a call of the timer, which arms itself again when it has made all its calls.
pub(super) fn run_task<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    now: Now,
    call: impl FnOnce(&mut Visit<'_>) -> R,
) -> Result<R, WrongType> {
    let opened = OpenKey::open_write(ctx, name);
    let found = found(&opened)?;
    let key = key_of(ctx, name, found.state);
    let visited = run_opened(ctx, name, opened, found, |shell| {
        shell.engine.visit(key, now, call)
    });
    waiters::release();
    Ok(visited.result)
}

/// Runs a call that concerns the queue of a name only, whatever value the name has.
pub(super) fn run_for_queue<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    call: impl FnOnce(&mut Engine, Key<'_>) -> R,
) -> R {
    let (result, effects) = with_effects(|shell| call(&mut shell.engine, key_of(ctx, name, None)));
    if let Some(effects) = effects {
        carry_out(ctx, name, None, false, effects);
    }
    waiters::release();
    result
}

/// Calls the engine, and takes the effects of the call, if there are any. Their buffers are swapped, to be used again.
fn with_effects<R>(call: impl FnOnce(&mut Shell) -> R) -> (R, Option<Box<Effects>>) {
    let mut taken = None;
    let result = SHELL.with(|shell| {
        let result = call(shell);
        let effects = &mut shell.engine.effects;
        if !effects.is_empty() {
            let empty = EFFECTS.with(Option::take).unwrap_or_default();
            taken = Some(std::mem::replace(effects, empty));
        }
        result
    });
    (result, taken)
}

/// The key as the engine is told of it.
pub(super) fn key_of<'k>(ctx: Ctx<'_>, name: &'k KeyString<'_>, state: Option<StateId>) -> Key<'k> {
    let (db, name) = (Db(ctx.db()), name.bytes());
    Key { db, name, state }
}

/// Returns what value the key has; an error if it is not dsync's.
pub(super) fn found(opened: &OpenKey<'_>) -> Result<Found, WrongType> {
    match opened.content() {
        KeyContent::Absent => Ok(Found::default()),
        KeyContent::Ours { family, id } => Ok(Found {
            state: StateId::from_raw(id.get()),
            family: Family::of_number(family),
        }),
        KeyContent::Other => Err(WrongType),
    }
}

/// Stores or deletes the key, so that the keyspace has what the engine has.
fn store(
    ctx: Ctx<'_>,
    opened: &OpenKey<'_>,
    before: Option<StateId>,
    after: Option<StateId>,
    family: Option<Family>,
) {
    if before == after {
        return;
    }
    let done = match (after, family) {
        (Some(id), Some(family)) => {
            let done = opened.set_value(family.number(), id.into());
            if !done {
                SHELL.with(|shell| shell.engine.freed(id));
            }
            done
        }
        _ => opened.delete(),
    };
    if !done {
        ctx.log(
            Level::Warning,
            "the server refused to store or delete a key that was open for writing",
        );
    }
}

/// Carries out the effects of a call in the order in which the server must see them. The caller releases the waiters
/// that got an answer.
fn carry_out(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    family: Option<Family>,
    is_freed: bool,
    mut effects: Box<Effects>,
) {
    // Without a value there are only changes that are the same for all families: places that leave the name.
    replicate::replicate(ctx, name, family.unwrap_or(Family::Lock), &effects.changes);
    if effects.modified {
        ctx.signal_modified(name);
    }
    if let Some(family) = family {
        notify::changed(ctx, name, family, &effects.changes);
        if is_freed {
            notify::free(ctx, name, family);
        }
    }
    journal::changes(ctx, name.bytes(), &effects.changes);
    if !effects.notes.is_empty() {
        for note in effects.notes.drain(..) {
            journal::note(ctx, name.bytes(), &note);
            if !loading::is_running() {
                ends::note(Db(ctx.db()), name.bytes(), family, note);
            }
        }
    }
    announce::announce(ctx, name.bytes(), &effects.announcements);
    waiters::decided(&mut effects.wakes);
    effects.clear();
    EFFECTS.with(|kept| *kept = Some(effects));
}
