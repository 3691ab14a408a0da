//! DSYNC.CONTENDED: the keys that have waiters, the longest wait first. It is the first command to try when
//! something is stuck.
//!
//! It shows the keys of all databases, so only operators may call it.

use super::arguments::COUNT_KEYS;
use super::grammar::Number;
use super::row::{CommandName, CommandResult, Parsed, Properties, Row, Run, User, type_name};
use crate::module::redis::context::Ctx;
use crate::module::redis::docs::KeyUse;
use crate::module::reply::count;
use crate::module::run::survey;

/// How many keys are listed without COUNT.
const DEFAULT_COUNT: u64 = 10;

/// ```text
/// DSYNC.CONTENDED [COUNT count]
/// ```
pub(super) const CONTENDED: Row = Row {
    name: CommandName::new("DSYNC", "CONTENDED"),
    summary: "Returns the keys that have waiters, the longest wait first.",
    properties: Properties {
        since: "0.1.0",
        complexity: "O(N*log(N)) with N the number of keys that have waiters",
        flags: c"readonly admin",
        key: KeyUse::NoKey,
        // In a cluster each node knows its own waiters only. The client must ask all nodes and merge the lists by the
        // last field.
        tips: "nondeterministic_output request_policy:all_shards response_policy:special",
        users: &[User::Observer, User::Operator],
    },
    args: &[COUNT_KEYS],
    run: Run::OnServer(contended),
};

fn contended(ctx: Ctx<'_>, parsed: &Parsed<'_>) -> CommandResult {
    let shown = parsed.number(Number::Count).unwrap_or(DEFAULT_COUNT);
    let shown = usize::try_from(shown).unwrap_or_default();
    survey(|engine, now| {
        let keys = engine.contended(shown, now);
        ctx.array(keys.len());
        for key in keys {
            ctx.array(5);
            ctx.integer(i64::from(key.db.0));
            ctx.bulk(key.name);
            ctx.bulk(type_name(key.family).as_bytes());
            ctx.integer(count(key.waiters as u64));
            ctx.integer(count(key.longest_ms));
        }
    });
    Ok(())
}
