//! Applies changes that a primary, or this server before a restart, has decided, and counts those that cannot be
//! applied.

use super::out::{journal, notify};
use super::redis::context::Ctx;
use super::redis::name::KeyString;
use super::{SHELL, run, settings};
use dsync_engine::calls::follow::Unfollowed;
use dsync_engine::change::Change;
use dsync_engine::{Engine, Family, Key, WrongType};

/// The loading of data from files or from a primary: that which is running, or the last one.
#[derive(Default)]
pub(super) struct Load {
    pub(super) is_running: bool,
    /// How many changes of an AOF were applied.
    pub(super) applied: u64,
    /// Changes that were skipped, as `dsync.aof-skip-unapplied` allows.
    pub(super) skipped: u64,
    /// How many changes of an AOF were left out because they remove a kept place that the AOF does not have.
    pub(super) absent_places: u64,
}

/// Applies the changes that one call made to the key elsewhere: all of them or none. While an AOF is loaded, a change
/// that removes a kept place which the name does not have is left out and counted.
///
/// # Errors
/// Why they were not applied, as a sentence for the log.
pub(crate) fn carry_out(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    family: Family,
    mut changes: Vec<Change>,
) -> Result<(), String> {
    let is_leave = |change: &Change| matches!(change, Change::Leave { .. });
    let leaves_only = changes.iter().all(is_leave);
    let loading = ctx.facts().loading();
    let mut absent = 0;
    let mut follow = |engine: &mut Engine, key: &mut Key<'_>, now| {
        if loading {
            absent = engine.leave_out_absent(key, &mut changes);
        }
        let followed = engine.follow(key, family, &changes, now);
        (followed, engine.take_fence_ahead())
    };
    let (followed, fence_ahead) = match run::run_followed(ctx, name, &mut follow) {
        Ok(applied) => applied,
        // Places leave a name whose value has another type now.
        Err(WrongType) if leaves_only => run::run_followed_for_queue(ctx, name, &mut follow),
        Err(WrongType) => return Err("the key holds a value that is not dsync's".to_owned()),
    };
    if let Some(fence) = fence_ahead {
        journal::fence_ahead(fence);
    }
    if let Err(Unfollowed { at, misfit }) = followed {
        let change = changes.get(at).map(Change::to_string).unwrap_or_default();
        return Err(format!("its change '{change}' does not fit: {misfit}"));
    }
    if changes.iter().any(Change::modifies) {
        ctx.signal_modified(name);
    }
    notify::changed(ctx, name, family, &changes);
    SHELL.with(|shell| {
        shell.load.applied += changes.len() as u64;
        shell.load.absent_places += absent as u64;
        shell.unapplied += absent as u64;
    });
    Ok(())
}

/// What this server has to do about changes that it cannot apply.
pub(crate) enum Consequence {
    /// A replica continues with the next command.
    GoOn,
    /// The loading of an AOF skips them, as `dsync.aof-skip-unapplied` allows.
    LeaveOut,
    /// The loading of an AOF stops. `applied` of its changes were carried out before.
    Stop { applied: u64 },
}

/// Counts changes that could not be applied. Returns what to do about them.
pub(crate) fn count_refused(changes: u64, loading: bool) -> Consequence {
    let skips = settings::aof_skips_unapplied();
    SHELL.with(|shell| {
        shell.unapplied += changes;
        match (loading, skips) {
            (false, _) => Consequence::GoOn,
            (true, true) => {
                shell.load.skipped += changes;
                Consequence::LeaveOut
            }
            (true, false) => Consequence::Stop {
                applied: shell.load.applied,
            },
        }
    })
}
