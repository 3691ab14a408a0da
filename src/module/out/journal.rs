//! Writes about holds into the server's log: lapses without renewal and revocations at notice, every grant and every
//! end at debug. A line contains the fence and the owner, never a token.
//!
//! The server opens and closes its log file for each line. So only ten lapses of one second get a line each. One more
//! line gives the number of the others, when the second is over, when the server is demoted, or when it shuts down.
//! The limit does not apply to revocations, because an operator asks for each of them, nor to warnings, nor at debug,
//! where the operator has asked for every line.

use crate::module::SHELL;
use crate::module::redis::clock;
use crate::module::redis::context::{Ctx, Level, log};
use crate::module::redis::setting;
use dsync_engine::Misfit;
use dsync_engine::change::{Change, End};
use dsync_engine::effect::Note;
use dsync_engine::types::Fence;

/// How many lapses of one second get a line each.
const LINES_A_SECOND: u32 = 10;
const SECOND_US: u64 = 1_000_000;

pub(crate) struct Journal {
    /// Whether the log takes lines at debug, and at notice. If not, no time is spent on composing them.
    takes_debug: bool,
    takes_notice: bool,
    /// The monotonic moment at which the present second of lapses began.
    since_us: u64,
    /// The lapses of that second with a line.
    lines: u32,
    /// The lapses of that second without a line.
    left_out: u64,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal {
            takes_debug: false,
            takes_notice: true,
            since_us: 0,
            lines: 0,
            left_out: 0,
        }
    }
}

impl Journal {
    /// Whether the second of lapses is over.
    fn is_over(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.since_us) >= SECOND_US
    }

    /// Counts one lapse. Returns whether it gets a line, and how many lapses of a second that is over were left out and
    /// still have to be reported.
    fn lapse(&mut self, now_us: u64) -> (bool, u64) {
        if self.takes_debug {
            return (true, 0);
        }
        let mut unreported = 0;
        if self.is_over(now_us) {
            unreported = std::mem::take(&mut self.left_out);
            self.since_us = now_us;
            self.lines = 0;
        }
        let has_line = self.lines < LINES_A_SECOND;
        if has_line {
            self.lines += 1;
        } else {
            self.left_out += 1;
        }
        (has_line, unreported)
    }
}

/// Asks the server for its log level, to know which lines it takes.
pub(crate) fn read_log_level(ctx: Ctx<'_>) {
    let level = setting::get(ctx, "loglevel").unwrap_or_default();
    SHELL.with(|shell| {
        shell.journal.takes_debug = level == b"debug";
        shell.journal.takes_notice = !matches!(&*level, b"warning" | b"nothing");
    });
}

/// Logs what the engine noted for the log.
pub(crate) fn note(ctx: Ctx<'_>, key: &[u8], note: &Note) {
    let end = match note {
        Note::Refused { change, misfit } => return refused(ctx, key, change, *misfit),
        // The server that decided has the line.
        Note::EndedElsewhere(_) => return,
        Note::Ended(end) => end,
    };
    let what = match end.how {
        // Its client is slow, stuck or gone.
        End::Lapsed if !end.is_renewed => "lapsed without any renewal",
        End::Revoked => "was revoked",
        _ => return,
    };
    if !SHELL.with(|shell| shell.journal.takes_notice) {
        return;
    }
    if end.how == End::Lapsed {
        let now_us = clock::monotonic_us();
        let (has_line, unreported) = SHELL.with(|shell| shell.journal.lapse(now_us));
        report_left_out(ctx, unreported);
        if !has_line {
            return;
        }
    }
    let key = key.escape_ascii();
    let owner = end.owner.as_deref().unwrap_or_default().escape_ascii();
    let fence = end.fence.0;
    ctx.log(
        Level::Notice,
        &format!("hold {fence} of '{key}' {what} (owner '{owner}')"),
    );
}

/// Logs a change that the engine made and then refused to apply.
fn refused(ctx: Ctx<'_>, key: &[u8], change: &str, misfit: Misfit) {
    let key = key.escape_ascii();
    ctx.log(
        Level::Warning,
        &format!(
            "a defect of dsync: '{key}' refused '{change}', because {misfit}. Nothing was changed. \
             Please report it."
        ),
    );
}

/// Warns that a fence from a file or from the primary is far ahead of the clock. It was accepted.
pub(crate) fn fence_ahead(fence: Fence) {
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

/// Called when the server has loaded its data: logs how many changes of an AOF were skipped.
pub(crate) fn loaded(ctx: Ctx<'_>) {
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

/// Called by the server's cron: logs how many lapses were left out in a second that is over.
pub(crate) fn cron(ctx: Ctx<'_>) {
    let left_out = SHELL.with(|shell| shell.journal.left_out);
    if left_out > 0 && SHELL.with(|shell| shell.journal.is_over(clock::monotonic_us())) {
        flush(ctx);
    }
}

/// Logs how many lapses were left out so far. Called before this server stops deciding.
pub(crate) fn flush(ctx: Ctx<'_>) {
    let left_out = SHELL.with(|shell| std::mem::take(&mut shell.journal.left_out));
    report_left_out(ctx, left_out);
}

fn report_left_out(ctx: Ctx<'_>, left_out: u64) {
    if left_out > 0 {
        let text = format!(
            "{left_out} more holds lapsed without any renewal; {LINES_A_SECOND} a second have a line each"
        );
        ctx.log(Level::Notice, &text);
    }
}

/// Logs each grant and each end at debug.
pub(crate) fn changes(ctx: Ctx<'_>, key: &[u8], changes: &[Change]) {
    if !SHELL.with(|shell| shell.journal.takes_debug) {
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

#[cfg(test)]
mod tests {
    use super::{Journal, SECOND_US};

    #[test]
    fn journal_limits_lapse_lines_and_reports_the_rest_next_second() {
        let mut journal = Journal::default();
        let mut lines = 0;
        for n in 0..25 {
            let (has_line, unreported) = journal.lapse(7 + n);
            lines += u32::from(has_line);
            assert_eq!((has_line, unreported), (n < 10, 0), "lapse {n}");
        }
        assert_eq!((lines, journal.left_out), (10, 15));
        assert_eq!(journal.lapse(SECOND_US - 1), (false, 0));
        assert_eq!(journal.lapse(SECOND_US), (true, 16));
        assert_eq!(journal.left_out, 0);
    }

    #[test]
    fn journal_at_debug_leaves_no_lapse_out() {
        let mut journal = Journal {
            takes_debug: true,
            ..Journal::default()
        };
        assert!((0..100).all(|n| journal.lapse(n) == (true, 0)));
        assert_eq!(journal.left_out, 0);
    }
}
