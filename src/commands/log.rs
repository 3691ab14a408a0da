//! DSYNC.LOG: the last ends of holds that nobody with the token asked for, the newest first. The first question after
//! "why did the job run twice?".
//!
//! It shows the keys of all databases, so only operators may call it. What it shows is kept in
//! [`ends`].

use super::arguments::ROWS_OR_RESET;
use super::grammar::{Flag, Number};
use super::row::{CommandName, CommandResult, Parsed, Properties, Row, Run, User, type_name};
use crate::module::out::ends::{self, LogEvent, LogRow};
use crate::module::redis::context::Ctx;
use crate::module::redis::docs::KeyUse;
use crate::module::reply::{count, or_null};
use dsync_engine::change::End;

/// How many rows are listed without COUNT.
const DEFAULT_COUNT: u64 = 10;

/// ```text
/// DSYNC.LOG [COUNT count | RESET]
/// ```
pub(super) const LOG: Row = Row {
    name: CommandName::new("DSYNC", "LOG"),
    summary: "Returns the last ends of holds that nobody with their token asked for, or drops them.",
    properties: Properties {
        since: "0.3.0",
        complexity: "O(N) with N the number of rows that are returned or dropped",
        flags: c"readonly admin",
        key: KeyUse::NoKey,
        // In a cluster each node has its own. The client must ask all nodes and merge the lists by the second field.
        tips: "nondeterministic_output request_policy:all_nodes response_policy:special",
        // An observer must change nothing, and RESET drops what others still want to read.
        users: &[User::Operator],
    },
    args: &[ROWS_OR_RESET],
    run: Run::OnServer(log),
};

fn log(ctx: Ctx<'_>, parsed: &Parsed<'_>) -> CommandResult {
    if parsed.has(Flag::Reset) {
        ends::reset();
        ctx.simple(c"OK");
        return Ok(());
    }
    let shown = parsed.number(Number::Count).unwrap_or(DEFAULT_COUNT);
    let shown = usize::try_from(shown).unwrap_or_default();
    ends::latest(shown, |rows| ctx.array(rows), |row| write_row(ctx, row));
    Ok(())
}

fn write_row(ctx: Ctx<'_>, row: &LogRow) {
    let key = row.key.as_ref();
    ctx.array(10);
    ctx.integer(count(row.id));
    ctx.integer(count(row.at.0));
    ctx.bulk(word(row.event).as_bytes());
    or_null(ctx, key, |key| ctx.integer(i64::from(key.db.0)));
    or_null(ctx, key, |key| ctx.bulk(&key.name));
    or_null(ctx, key, |key| ctx.bulk(type_name(key.family).as_bytes()));
    or_null(ctx, row.fence, |fence| ctx.integer(count(fence.0)));
    match row.event {
        // No owner is of several holds, so their number is told here.
        LogEvent::Removed { holds } if holds > 1 => ctx.bulk(format!("{holds} holds").as_bytes()),
        _ => or_null(ctx, row.owner.as_ref(), |owner| ctx.bulk(owner)),
    }
    or_null(ctx, row.held_ms, |ms| ctx.integer(count(ms)));
    or_null(ctx, row.late_ms, |ms| ctx.integer(count(ms)));
}

fn word(event: LogEvent) -> &'static str {
    match event {
        LogEvent::Ended(End::Lapsed) => "lapse",
        LogEvent::Ended(End::Revoked) => "revoke",
        LogEvent::Ended(End::Disconnected) => "disconnect",
        LogEvent::Ended(how) => how.word(),
        LogEvent::Removed { .. } => "removed",
        LogEvent::Stall => "stall",
    }
}
