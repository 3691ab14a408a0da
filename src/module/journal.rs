//! What the server's log tells of holds: lapses without renewal and revocations at notice, every grant
//! and every end at debug. Fences and owners, never a token.

use super::SHELL;
use super::redis::context::{Ctx, Level, log};
use super::redis::setting;
use crate::engine::change::Change;
use crate::engine::effect::Note;
use crate::engine::types::Fence;

/// Finds out whether lines at debug are wanted: composing them for nobody would cost every grant.
pub(super) fn look_at_the_level(ctx: Ctx<'_>) {
    let wanted = setting::get(ctx, "loglevel").is_some_and(|level| level == b"debug");
    SHELL.with(|shell| shell.logs_everything = wanted);
}

pub(super) fn note(ctx: Ctx<'_>, key: &[u8], note: &Note) {
    let key = key.escape_ascii();
    let (what, fence, owner) = match note {
        Note::LapsedUnrenewed { fence, owner } => ("lapsed without any renewal", fence, owner),
        Note::Revoked { fence, owner } => ("was revoked", fence, owner),
        Note::Refused { change, misfit } => {
            return ctx.log(
                Level::Warning,
                &format!(
                    "a defect of dsync: '{key}' refused '{change}', because {misfit}. Nothing was \
                     changed. Please report it."
                ),
            );
        }
    };
    let owner = owner.as_deref().unwrap_or_default().escape_ascii();
    let fence = fence.0;
    ctx.log(
        Level::Notice,
        &format!("hold {fence} of '{key}' {what} (owner '{owner}')"),
    );
}

/// A fence from a file or from the primary is far ahead of the clock, and was believed.
pub(super) fn fence_ahead(fence: Fence) {
    log(
        Level::Warning,
        &format!(
            "fence {} lies more than a year ahead of this server's clock: this clock is wrong, or the \
             clock of the server that gave the fence was. It is accepted, and the fences of this server \
             go on from there.",
            fence.0
        ),
    );
}

/// The server has loaded its data: what was left out of an AOF is summed up.
pub(super) fn loaded(ctx: Ctx<'_>) {
    let (applied, skipped) = SHELL.with(|shell| (shell.load.applied, shell.load.skipped));
    if skipped > 0 {
        ctx.log(
            Level::Warning,
            &format!(
                "{skipped} changes of the AOF could not be applied and were left out, beside {applied} \
                 that were applied: holds may be missing, or there may be some that ended"
            ),
        );
    }
}

pub(super) fn changes(ctx: Ctx<'_>, key: &[u8], changes: &[Change]) {
    if !SHELL.with(|shell| shell.logs_everything) {
        return;
    }
    for change in changes {
        let (fence, what) = match change {
            Change::Grant(grant) => (grant.fence, "was granted"),
            Change::End { fence, how, .. } => (*fence, how.word()),
            Change::Fail { fence, .. } => (*fence, "failed"),
            Change::Complete {
                fence: Some(fence), ..
            } => (*fence, "is done"),
            _ => continue,
        };
        let key = key.escape_ascii();
        ctx.log(
            Level::Debug,
            &format!("hold {} of '{key}': {what}", fence.0),
        );
    }
}
