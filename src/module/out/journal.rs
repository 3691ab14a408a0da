//! Writes about holds into the server's log: lapses without renewal and revocations at notice, every grant and every
//! end at debug. A line contains the fence and the owner, never a token.
//!
//! The server opens and closes its log file for each line. So only ten lapses of one second get a line each. One more
//! line gives the number of the others, when the second is over, when the server is demoted, or when it shuts down.
//! The limit does not apply to revocations, because an operator asks for each of them, nor at debug, where the operator
//! has asked for every line. Payloads that are refused have a limit of their own, also at debug: any client that may use
//! RESTORE can send as many as it likes.

use crate::module::redis::clock;
use crate::module::redis::config;
use crate::module::redis::context::{Ctx, Level, log};
use crate::module::redis::gil::{GilCell, GilFlag};
use dsync_engine::Misfit;
use dsync_engine::change::{Change, End};
use dsync_engine::effect::Note;
use dsync_engine::types::Fence;

/// How many events of one kind get a line each in one second.
const LINES_A_SECOND: u32 = 10;
const SECOND_US: u64 = 1_000_000;

static JOURNAL: GilCell<Journal> = GilCell::new(Journal::default);

/// Whether the log takes lines at debug. If not, no time is spent on composing them. A flag, because each change asks.
static TAKES_DEBUG: GilFlag = GilFlag::new();

struct Journal {
    /// Whether the log takes lines at notice.
    takes_notice: bool,
    lapses: LineLimit,
    payloads: LineLimit,
    /// How many values could not be loaded.
    refused_values: u64,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal {
            takes_notice: true,
            lapses: LineLimit::default(),
            payloads: LineLimit::default(),
            refused_values: 0,
        }
    }
}

impl Journal {
    /// Counts one lapse, as [`LineLimit::count`] does.
    fn lapse(&mut self, takes_debug: bool, now_us: u64) -> (bool, u64) {
        match takes_debug {
            true => (true, 0),
            false => self.lapses.count(now_us),
        }
    }
}

/// Which events of one kind get a line each, and how many did not.
#[derive(Default)]
struct LineLimit {
    /// The monotonic moment at which the present second began.
    since_us: u64,
    /// The events of that second with a line.
    lines: u32,
    /// The events of that second without a line.
    left_out: u64,
}

impl LineLimit {
    fn is_over(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.since_us) >= SECOND_US
    }

    /// Counts one event. Returns whether it gets a line, and how many events of a second that is over were left out and
    /// still have to be reported.
    fn count(&mut self, now_us: u64) -> (bool, u64) {
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

    /// Returns the number of events that were left out if their second is over.
    fn take_if_over(&mut self, now_us: u64) -> u64 {
        match self.is_over(now_us) {
            true => std::mem::take(&mut self.left_out),
            false => 0,
        }
    }
}

/// Asks the server for its log level, to know which lines it takes.
pub(crate) fn read_log_level(ctx: Ctx<'_>) {
    let level = config::of_server(ctx, "loglevel").unwrap_or_default();
    TAKES_DEBUG.set(level == b"debug");
    JOURNAL.with(|journal| {
        journal.takes_notice = !matches!(&*level, b"warning" | b"nothing");
    });
}

/// Warns if the server may evict holds to make room: asks it for its policy, and logs at once.
pub(crate) fn warn_of_eviction(ctx: Ctx<'_>) {
    let policy = config::of_server(ctx, "maxmemory-policy").unwrap_or_default();
    if policy.starts_with(b"allkeys") {
        let policy = policy.escape_ascii();
        ctx.log(
            Level::Warning,
            &format!(
                "maxmemory-policy is {policy}: at maxmemory the server may evict a lock that is held, and \
                 somebody else gets it. Use noeviction, or volatile-lru or another volatile policy."
            ),
        );
    }
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
    if !JOURNAL.with(|journal| journal.takes_notice) {
        return;
    }
    if end.how == End::Lapsed {
        let now_us = clock::monotonic_us();
        let (has_line, unreported) =
            JOURNAL.with(|journal| journal.lapse(TAKES_DEBUG.is_set(), now_us));
        report_lapses(ctx, unreported);
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

/// Warns that a node of the cluster has an epoch by which fences cannot go.
pub(crate) fn epoch_too_great(epoch: u64) {
    log(
        Level::Warning,
        &format!(
            "a node of this cluster has the config epoch {epoch}, by which the fences of this server would go more than \
             half a year ahead of the clock. It counts as 0. Fences still rise, but a slot that moves twice before a \
             message arrives may repeat them. Form the cluster anew, and give no such number to CLUSTER \
             SET-CONFIG-EPOCH."
        ),
    );
}

/// What became of the changes of an AOF.
#[derive(Clone, Copy, Default)]
pub(crate) struct AofCounts {
    pub(crate) applied: u64,
    /// Changes that were left out, as `dsync.aof-skip-unapplied` allows.
    pub(crate) skipped: u64,
    /// Changes that were left out because they remove a kept place that the AOF does not have.
    pub(crate) absent_places: u64,
}

/// Called when the server has loaded its data: logs how many changes of an AOF were left out.
pub(crate) fn loaded(ctx: Ctx<'_>, aof: AofCounts) {
    let AofCounts {
        applied,
        skipped,
        absent_places: absent,
    } = aof;
    if absent > 0 {
        ctx.log(
            Level::Warning,
            &format!(
                "{absent} kept places leave their queues in the AOF, which does not have them: it was rewritten while \
                 their names had no value. No hold is missing for that"
            ),
        );
    }
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

/// Called by the server's cron: logs how many events were left out in a second that is over.
pub(crate) fn cron(ctx: Ctx<'_>) {
    let is_waiting =
        JOURNAL.with(|journal| journal.lapses.left_out > 0 || journal.payloads.left_out > 0);
    if is_waiting {
        let now_us = clock::monotonic_us();
        let (lapses, payloads) = JOURNAL.with(|journal| {
            let Journal {
                lapses, payloads, ..
            } = journal;
            (lapses.take_if_over(now_us), payloads.take_if_over(now_us))
        });
        report_lapses(ctx, lapses);
        report_payloads(payloads);
    }
}

/// Logs how many events were left out so far. Called before this server stops deciding.
pub(crate) fn flush(ctx: Ctx<'_>) {
    let (lapses, payloads) = JOURNAL.with(|journal| {
        let Journal {
            lapses, payloads, ..
        } = journal;
        let left_out = |limit: &mut LineLimit| std::mem::take(&mut limit.left_out);
        (left_out(lapses), left_out(payloads))
    });
    report_lapses(ctx, lapses);
    report_payloads(payloads);
}

fn report_lapses(ctx: Ctx<'_>, left_out: u64) {
    if left_out > 0 {
        let text = format!(
            "{left_out} more holds lapsed without any renewal; {LINES_A_SECOND} a second have a line each"
        );
        ctx.log(Level::Notice, &text);
    }
}

fn report_payloads(left_out: u64) {
    if left_out > 0 {
        let text = format!(
            "{left_out} more values were refused; {LINES_A_SECOND} a second have a line each"
        );
        log(Level::Warning, &text);
    }
}

/// Counts and logs a value that could not be loaded. A server that loads its own data, or its primary's, stops at the
/// first one, so that always has its line.
pub(crate) fn value_refused(why: &str, key: &[u8], is_loading: bool) {
    let (has_line, unreported) = JOURNAL.with(|journal| {
        journal.refused_values += 1;
        match is_loading {
            true => (true, 0),
            false => journal.payloads.count(clock::monotonic_us()),
        }
    });
    report_payloads(unreported);
    if has_line {
        let key = key.escape_ascii();
        log(
            Level::Warning,
            &format!("a value is refused: {why} (key '{key}')"),
        );
    }
}

/// How many values could not be loaded since the server started.
pub(crate) fn refused_values() -> u64 {
    JOURNAL.with(|journal| journal.refused_values)
}

/// Logs each grant and each end at debug.
pub(crate) fn changes(ctx: Ctx<'_>, key: &[u8], changes: &[Change]) {
    if !TAKES_DEBUG.is_set() {
        return;
    }
    for change in changes {
        let (fence, what) = match change {
            Change::Grant(grant) => (grant.fence, "was granted"),
            Change::End { fence, how, .. } | Change::Rest { fence, how, .. } => {
                (*fence, how.word())
            }
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
            let (has_line, unreported) = journal.lapse(false, 7 + n);
            lines += u32::from(has_line);
            assert_eq!((has_line, unreported), (n < 10, 0), "lapse {n}");
        }
        assert_eq!((lines, journal.lapses.left_out), (10, 15));
        assert_eq!(journal.lapse(false, SECOND_US - 1), (false, 0));
        assert_eq!(journal.lapse(false, SECOND_US), (true, 16));
        assert_eq!(journal.lapses.left_out, 0);
    }

    #[test]
    fn journal_at_debug_leaves_no_lapse_out() {
        let mut journal = Journal::default();
        assert!((0..100).all(|n| journal.lapse(true, n) == (true, 0)));
        assert_eq!(journal.lapses.left_out, 0);
    }
}
