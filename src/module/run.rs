//! The only way into the engine: open the key, call, store or delete, then the effects in their order,
//! then the timer.
//!
//! The engine is borrowed for the call and no longer: every call into the server may call back (a key
//! that is deleted tells its type so, a client that is released asks for its answer).

use super::cluster::node;
use super::out::{journal, notify, replicate};
use super::redis::context::{Ctx, Level};
use super::redis::key::{Content, OpenKey};
use super::redis::name::KeyString;
use super::{SHELL, arm, waiters};
use dsync_engine::answer::Answer;
use dsync_engine::effect::Effects;
use dsync_engine::types::{Db, Now};
use dsync_engine::{Engine, Family, Key, StateId, WrongType};

/// A command's call, which may change the key. The server has taken the command, so it takes writes now:
/// what was last found out about that may be older than what has changed since.
pub(crate) fn run<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    call: impl FnOnce(&mut Engine, &mut Key<'_>, Now) -> R,
) -> Result<R, WrongType> {
    node::arrive(ctx, name.bytes());
    let mut opened = OpenKey::open_write(ctx, name);
    let mut state = found(&opened)?;
    let (now, overdue) = SHELL.with(|shell| {
        let mut now = shell.now();
        now.may_write = true;
        let key = Key::found(Db(ctx.db()), name.bytes(), state);
        (now, shell.engine.overdue_retirement(&key, now))
    });
    // A step of its own, because the command may make a new key in its place, of another family.
    if let Some(task) = overdue {
        let forget = |engine: &mut Engine, key: &mut Key<'_>, now| engine.perform(task, key, now);
        run_opened(ctx, name, opened, state, now, forget);
        opened = OpenKey::open_write(ctx, name);
        state = found(&opened)?;
    }
    Ok(run_opened(ctx, name, opened, state, now, call))
}

/// The timer's call, which may change the key if the server takes writes and the key is its own.
pub(super) fn run_task<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    is_ours: bool,
    call: impl FnOnce(&mut Engine, &mut Key<'_>, Now) -> R,
) -> Result<R, WrongType> {
    let opened = OpenKey::open_write(ctx, name);
    let state = found(&opened)?;
    let mut now = SHELL.with(|shell| shell.now());
    now.may_write &= is_ours;
    Ok(run_opened(ctx, name, opened, state, now, call))
}

fn run_opened<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    opened: OpenKey<'_>,
    before: Option<StateId>,
    now: Now,
    call: impl FnOnce(&mut Engine, &mut Key<'_>, Now) -> R,
) -> R {
    let bytes = name.bytes();
    let (result, after, family, is_freed, mut effects) = SHELL.with(|shell| {
        let mut key = Key::found(Db(ctx.db()), bytes, before);
        let before = shell.engine.free_capacity(&key);
        let result = call(&mut shell.engine, &mut key, now);
        let is_freed = shell.engine.effects.may_gain && shell.engine.free_capacity(&key) > before;
        // Nothing to do is the common case of a try, and costs nothing.
        let effects = std::mem::replace(
            &mut shell.engine.effects,
            shell.spare_effects.take().unwrap_or_default(),
        );
        let family = key
            .state
            .and_then(|id| shell.engine.state(id))
            .map(|state| state.body.family());
        (result, key.state, family, is_freed, effects)
    });
    let family = family.or_else(|| family_of(&opened));
    store(ctx, &opened, before, after, family);
    drop(opened);
    carry_out(ctx, name, family, is_freed, &mut effects);
    SHELL.with(|shell| shell.spare_effects = Some(effects));
    arm::arm_from(ctx, now);
    result
}

/// A call that looks only.
pub(crate) fn look<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    call: impl FnOnce(&Engine, &Key<'_>, Now) -> R,
) -> Result<R, WrongType> {
    let opened = OpenKey::open_read(ctx, name);
    let state = found(&opened)?;
    drop(opened);
    Ok(SHELL.with(|shell| {
        let now = shell.now();
        call(
            &shell.engine,
            &Key::found(Db(ctx.db()), name.bytes(), state),
            now,
        )
    }))
}

/// A look at everything.
pub(crate) fn survey<R>(look: impl FnOnce(&Engine, Now) -> R) -> R {
    SHELL.with(|shell| look(&shell.engine, shell.now()))
}

/// Nobody can be served under this name any more: its waiters are told why.
pub(super) fn turn_away(ctx: Ctx<'_>, name: &KeyString<'_>, why: &Answer) {
    let mut effects = SHELL.with(|shell| {
        shell.engine.turn_away(Db(ctx.db()), name.bytes(), why);
        std::mem::take(&mut shell.engine.effects)
    });
    carry_out(ctx, name, None, false, &mut effects);
}

fn found(opened: &OpenKey<'_>) -> Result<Option<StateId>, WrongType> {
    match opened.content() {
        Content::Absent => Ok(None),
        Content::Ours { id, .. } => Ok(StateId::from_raw(id.get())),
        Content::Other => Err(WrongType),
    }
}

fn family_of(opened: &OpenKey<'_>) -> Option<Family> {
    match opened.content() {
        Content::Ours { family, .. } => Family::of_number(family),
        Content::Absent | Content::Other => None,
    }
}

/// Leaves the key as the engine has it.
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

fn carry_out(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    family: Option<Family>,
    is_freed: bool,
    effects: &mut Effects,
) {
    if let Some(family) = family {
        replicate::replicate(ctx, name, family, &effects.changes);
    }
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
    for note in &effects.notes {
        journal::note(ctx, name.bytes(), note);
    }
    for wake in effects.wakes.drain(..) {
        waiters::deliver(wake);
    }
    effects.clear();
}
