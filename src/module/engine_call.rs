//! One call of the engine for one key, and all that follows from it: store or delete the key, carry out the effects in
//! their order.
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
use super::shell::SHELL;
use super::{loading, waiters};
use dsync_engine::answer::Answer;
use dsync_engine::effect::Effects;
use dsync_engine::types::{Db, Now};
use dsync_engine::{Engine, Family, Key, StateId, WrongType};

/// A buffer that is kept to be used again.
static EFFECTS: GilCell<Effects> = GilCell::new(Effects::default);

/// Calls the engine for an open key, then carries out all consequences.
pub(super) fn run_opened<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    opened: OpenKey<'_>,
    before: Option<StateId>,
    now: Now,
    call: impl FnOnce(&mut Engine, &mut Key<'_>, Now) -> R,
) -> R {
    let bytes = name.bytes();
    let (result, after, family, is_freed, mut effects) = SHELL.with(|shell| {
        let mut key = shell.engine.open(Db(ctx.db()), bytes, before);
        let before = shell.engine.free_capacity(&key);
        let result = call(&mut shell.engine, &mut key, now);
        let is_freed =
            shell.engine.effects.may_free_capacity && shell.engine.free_capacity(&key) > before;
        // Swap the buffers, so that a call without effects allocates nothing.
        let kept = EFFECTS.with(std::mem::take);
        let effects = std::mem::replace(&mut shell.engine.effects, kept);
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
    EFFECTS.with(|kept| *kept = effects);
    result
}

/// Runs a call of the timer, which arms itself again when it has made all its calls.
pub(super) fn run_task<R>(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    now: Now,
    call: impl FnOnce(&mut Engine, &mut Key<'_>) -> R,
) -> Result<R, WrongType> {
    let opened = OpenKey::open_write(ctx, name);
    let state = found(&opened)?;
    let call = |engine: &mut Engine, key: &mut Key<'_>, _| call(engine, key);
    let result = run_opened(ctx, name, opened, state, now, call);
    waiters::release();
    Ok(result)
}

/// Tells the waiters of this name why they cannot be served any more.
pub(super) fn turn_away(ctx: Ctx<'_>, name: &KeyString<'_>, why: &Answer, now: Now) {
    let mut effects = SHELL.with(|shell| {
        shell.engine.turn_away(Db(ctx.db()), name.bytes(), why, now);
        std::mem::take(&mut shell.engine.effects)
    });
    carry_out(ctx, name, None, false, &mut effects);
    waiters::release();
}

/// Drops the kept places of a name that another node has now.
pub(super) fn forget_places(ctx: Ctx<'_>, name: &KeyString<'_>, now: Now) {
    let mut effects = SHELL.with(|shell| {
        let db = Db(ctx.db());
        shell.engine.forget_places(db, name.bytes(), now);
        std::mem::take(&mut shell.engine.effects)
    });
    carry_out(ctx, name, None, false, &mut effects);
}

/// The state that the key has; an error if its value is not dsync's.
pub(super) fn found(opened: &OpenKey<'_>) -> Result<Option<StateId>, WrongType> {
    match opened.content() {
        KeyContent::Absent => Ok(None),
        KeyContent::Ours { id, .. } => Ok(StateId::from_raw(id.get())),
        KeyContent::Other => Err(WrongType),
    }
}

fn family_of(opened: &OpenKey<'_>) -> Option<Family> {
    match opened.content() {
        KeyContent::Ours { family, .. } => Family::of_number(family),
        KeyContent::Absent | KeyContent::Other => None,
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
    effects: &mut Effects,
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
    for note in effects.notes.drain(..) {
        journal::note(ctx, name.bytes(), &note);
        if !loading::is_running() {
            ends::note(Db(ctx.db()), name.bytes(), family, note);
        }
    }
    announce::announce(ctx, name.bytes(), &effects.announcements);
    waiters::decided(ctx, &mut effects.wakes);
    effects.clear();
}
