//! DSYNC.CONTENDED: where anybody waits, the longest wait first. The first thing to type when something
//! is stuck.
//!
//! It tells of all databases and keys, and is an administrator's command for that.

use super::Outcome;
use super::arguments::COUNT_KEYS;
use super::grammar::Number;
use super::parsed::Parsed;
use super::replies::{Form, ReplyForm, SYNTAX};
use super::row::{Name, Row, Run, Terms, User};
use crate::module::redis::context::Ctx;
use crate::module::redis::docs::KeyUse;
use crate::module::reply::count;
use crate::module::run::survey;
use dsync_engine::Family;

/// How many keys are listed without COUNT.
const DEFAULT_COUNT: u64 = 10;

/// ```text
/// DSYNC.CONTENDED [COUNT count]
/// ```
pub(super) const CONTENDED: Row = Row {
    name: Name::new("DSYNC", "CONTENDED"),
    summary: "Returns the keys that have waiters, the longest wait first.",
    terms: Terms {
        since: "0.1.0",
        complexity: "O(N*log(N)) with N the number of keys that have waiters",
        flags: c"readonly admin",
        key: KeyUse::NoKey,
        // Each node knows its own waiters; merging the lists by their last field is the client's.
        tips: "nondeterministic_output request_policy:all_shards response_policy:special",
        users: &[User::Operator],
    },
    args: &[COUNT_KEYS],
    replies: &[ReplyForm {
        when: "always",
        form: Form::List(&Form::Array(&[
            ("db", Form::Integer),
            ("key", Form::Bulk),
            ("type", Form::Bulk),
            ("waiters", Form::Integer),
            ("longest-wait-ms", Form::Integer),
        ])),
        before: &[
            "DLOCK.ACQUIRE jobs:1 TOKEN a-41",
            "B> DLOCK.ACQUIRE jobs:1 TOKEN b-72 BLOCK 0",
        ],
        example: "COUNT 5",
    }],
    errors: &[SYNTAX],
    run: Run::OnServer(contended),
};

fn contended(ctx: Ctx<'_>, parsed: &Parsed<'_>) -> Outcome {
    let shown = parsed.number(Number::Count).unwrap_or(DEFAULT_COUNT);
    let shown = usize::try_from(shown).unwrap_or_default();
    survey(|engine, now| {
        let keys = engine.contended(shown, now);
        ctx.array(keys.len());
        for key in keys {
            ctx.array(5);
            ctx.integer(i64::from(key.db.0));
            ctx.bulk(key.name);
            ctx.bulk(word(key.family).as_bytes());
            ctx.integer(count(key.waiters as u64));
            ctx.integer(count(key.longest_ms));
        }
    });
    Ok(())
}

/// What the key is, in the word that its INFO uses.
fn word(family: Family) -> &'static str {
    match family {
        Family::Lock => "lock",
        Family::Semaphore => "semaphore",
        Family::Group => "group",
        Family::Once => "once",
    }
}
