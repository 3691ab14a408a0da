//! Applies changes that a primary, or this server before a restart, has decided, and counts those that cannot be
//! applied.

use super::cluster::node;
use super::engine_call::key_of;
use super::out::journal::{self, AofCounts};
use super::out::notify;
use super::redis::context::Ctx;
use super::redis::gil::GilCell;
use super::redis::name::KeyString;
use super::shell::SHELL;
use super::{loading, run, settings};
use dsync_engine::calls::follow::Unfollowed;
use dsync_engine::change::Change;
use dsync_engine::{Family, Visit, WrongType};

static COUNTS: GilCell<Counts> = GilCell::new(Counts::default);

#[derive(Default)]
struct Counts {
    /// The changes that could not be applied, since the server started.
    unapplied: u64,
    /// The changes of the AOF that is being loaded, or was loaded last.
    aof: AofCounts,
}

/// Whether commands of other servers may come here: to a server that does not decide, and in a cluster, where a primary
/// imports slots.
pub(crate) fn may_follow() -> bool {
    node::is_node() || !SHELL.with(|shell| shell.engine.is_serving())
}

/// Counts from 0 when the server begins to load.
pub(super) fn loading_started() {
    COUNTS.with(|counts| counts.aof = AofCounts::default());
}

/// Logs how many changes of an AOF were left out, when the server has loaded its data.
pub(super) fn loaded(ctx: Ctx<'_>) {
    journal::loaded(ctx, COUNTS.with(|counts| counts.aof));
}

/// How many changes could not be applied since the server started.
pub(super) fn unapplied() -> u64 {
    COUNTS.with(|counts| counts.unapplied)
}

/// Applies the changes that one call made to the key elsewhere: all of them or none. While an AOF is loaded, a change
/// that removes a kept place which the name does not have is left out and counted.
///
/// # Errors
/// Why they were not applied, as a sentence for the log.
pub(crate) fn apply(
    ctx: Ctx<'_>,
    name: &KeyString<'_>,
    family: Family,
    mut changes: Vec<Change>,
) -> Result<(), String> {
    let is_leave = |change: &Change| matches!(change, Change::Leave { .. });
    let leaves_only = changes.iter().all(is_leave);
    let absent = match ctx.facts().loading() {
        true => SHELL.with(|shell| {
            let key = key_of(ctx, name, None);
            shell.engine.leave_out_absent(key, &mut changes)
        }),
        false => 0,
    };
    let follow = |visit: &mut Visit<'_>| visit.follow(family, &changes);
    let followed = match run::run_followed(ctx, name, follow) {
        Ok(followed) => followed,
        // Places leave a name whose value has another type now.
        Err(WrongType) if leaves_only => run::run_followed_for_queue(ctx, name, follow),
        Err(WrongType) => return Err("the key holds a value that is not dsync's".to_owned()),
    };
    loading::warn_of_fence_ahead();
    if let Err(Unfollowed { at, misfit }) = followed {
        let change = changes.get(at).map(Change::to_string).unwrap_or_default();
        return Err(format!("its change '{change}' does not fit: {misfit}"));
    }
    if changes.iter().any(Change::modifies) {
        ctx.signal_modified(name);
    }
    notify::changed(ctx, name, family, &changes);
    COUNTS.with(|counts| {
        counts.aof.applied += changes.len() as u64;
        counts.aof.absent_places += absent as u64;
        counts.unapplied += absent as u64;
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
    COUNTS.with(|counts| {
        counts.unapplied += changes;
        match (loading, skips) {
            (false, _) => Consequence::GoOn,
            (true, true) => {
                counts.aof.skipped += changes;
                Consequence::LeaveOut
            }
            (true, false) => Consequence::Stop {
                applied: counts.aof.applied,
            },
        }
    })
}
