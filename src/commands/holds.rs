//! DSYNC.HOLDS: all holds of this server, some at a time, as SCAN lists keys. What does web-1 hold? What has been held
//! for an hour?
//!
//! It shows the holds of all databases, so only operators may call it.

use super::arguments::{COUNT_HOLDS, CURSOR, OWNER_PATTERN};
use super::glob::Glob;
use super::grammar::{Number, Text};
use super::row::{CommandName, CommandResult, Parsed, Properties, Row, Run, User, type_name};
use crate::module::redis::args::parse_i64;
use crate::module::redis::context::Ctx;
use crate::module::redis::docs::KeyUse;
use crate::module::reply::{count, or_null};
use crate::module::run::survey;
use dsync_engine::StateId;
use dsync_engine::held::{FoundHold, HeldCursor};
use dsync_engine::types::{ClientId, Fence};

/// How many holds a call looks at without COUNT.
const DEFAULT_COUNT: u64 = 10;

/// The cursor that begins, and that the last call returns.
const START: &[u8] = b"0";

/// ```text
/// DSYNC.HOLDS cursor [OWNER pattern] [COUNT count]
/// ```
pub(super) const HOLDS: Row = Row {
    name: CommandName::new("DSYNC", "HOLDS"),
    summary: "Returns the holds of all keys, some at a time.",
    properties: Properties {
        since: "0.3.0",
        complexity: "O(C) for each call with C the COUNT, O(N) for all calls with N the number of holds and idle keys",
        flags: c"readonly admin",
        key: KeyUse::NoKey,
        // In a cluster each node knows its own holds only, and its cursors mean nothing to the others.
        tips: "nondeterministic_output request_policy:special response_policy:special",
        users: &[User::Observer, User::Operator],
    },
    args: &[CURSOR, OWNER_PATTERN, COUNT_HOLDS],
    run: Run::OnServer(holds),
};

fn holds(ctx: Ctx<'_>, parsed: &Parsed<'_>) -> CommandResult {
    let text = parsed.text(Text::Cursor).unwrap_or_default();
    let from = read_cursor(text).ok_or_else(|| wrong_cursor(text))?;
    let looks = parsed.number(Number::Count).unwrap_or(DEFAULT_COUNT);
    let looks = usize::try_from(looks).unwrap_or_default();
    let pattern = parsed.text(Text::OwnerPattern).map(Glob::new);
    let is_wanted = |owner: Option<&[u8]>| match &pattern {
        Some(pattern) => owner.is_some_and(|owner| pattern.fits(owner)),
        None => true,
    };
    survey(|engine, now| {
        let (found, next) = engine.held(from, looks, now, is_wanted);
        ctx.array(2);
        ctx.bulk(&written_cursor(next));
        ctx.array(found.len());
        found.iter().for_each(|found| row(ctx, found));
    });
    Ok(())
}

fn row(ctx: Ctx<'_>, found: &FoundHold<'_>) {
    let hold = &found.hold;
    ctx.array(8);
    or_null(ctx, found.key, |(db, _)| ctx.integer(i64::from(db.0)));
    or_null(ctx, found.key, |(_, name)| ctx.bulk(name));
    ctx.bulk(type_name(found.family).as_bytes());
    ctx.integer(count(hold.fence.0));
    or_null(ctx, hold.owner, |owner| ctx.bulk(owner));
    let client = Some(hold.client).filter(|client| *client != ClientId::NONE);
    or_null(ctx, client, |client| ctx.integer(count(client.0)));
    ctx.integer(count(hold.lease_left_ms));
    ctx.integer(count(hold.held_ms));
}

/// The cursor as text: `0`, or the numbers of the state and of the fence.
fn written_cursor(cursor: Option<HeldCursor>) -> Vec<u8> {
    match cursor {
        None => START.to_vec(),
        Some(HeldCursor { state, fence }) => format!("{}-{}", state.get(), fence.0).into_bytes(),
    }
}

/// Reads what [`written_cursor`] wrote; `None` for anything else.
fn read_cursor(text: &[u8]) -> Option<Option<HeldCursor>> {
    if text == START {
        return Some(None);
    }
    let sign = text.iter().position(|byte| *byte == b'-')?;
    let number = |digits| parse_i64(digits).and_then(|number| u64::try_from(number).ok());
    let state = number(&text[..sign]).and_then(|number| u32::try_from(number).ok());
    let state = StateId::from_raw(state?)?;
    let fence = number(&text[sign + 1..]).map(Fence);
    let fence = fence.filter(|fence| *fence <= Fence::MAX)?;
    Some(Some(HeldCursor { state, fence }))
}

#[cold]
fn wrong_cursor(text: &[u8]) -> String {
    let shown = text.escape_ascii();
    format!("ERR a cursor is 0 or what the last call returned, not '{shown}'")
}

#[cfg(test)]
mod tests {
    use super::{read_cursor, written_cursor};

    #[test]
    fn cursor_is_read_as_it_was_written_and_no_other_way() {
        for text in [
            "0",
            "1-0",
            "2147483647-9007199254740991",
            "17-1795272958977831",
        ] {
            let read = read_cursor(text.as_bytes());
            let written = read.map(written_cursor);
            assert_eq!(written.as_deref(), Some(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "1",
            "00",
            "-1",
            "0-0",
            "0-1",
            "01-1",
            "1-01",
            "1--1",
            "1-",
            "-",
            "+1-1",
            "1-1 ",
            "1-1-1",
            "2147483648-1",
            "1-9007199254740992",
            "9223372036854775808-1",
            "x-1",
            "1-x",
        ] {
            assert_eq!(read_cursor(text.as_bytes()), None, "{text:?}");
        }
    }
}
