//! INFO: who holds a key, who waits for it, and since when. It never contains a token.
//!
//! The reply is a map, with the same fields for every key of a family; holders and waiters are maps inside it. In
//! RESP2 each map is a flat array of names and values. Times are durations up to now, in milliseconds.
//!
//! [`of_key`], [`of_hold`] and [`of_waiter`] are the table of the fields: a new one is a row there, and in
//! docs/reference.md, which a test compares with the table.

use std::borrow::Cow;

use Unit::{Count, Id, Ms};
use Value::{Holds, Known, Number, OrNull, Text, Waiters, Word};

use super::row::type_name;
use crate::module::redis::context::Ctx;
use crate::module::reply::{count, or_null};
use dsync_engine::Family;
use dsync_engine::info::{HoldInfo, Info, Particulars, WaiterInfo};
use dsync_engine::types::{Claim, ClientId, UnixMs};

/// How many holders and waiters are listed without COUNT.
pub(super) const DEFAULT_COUNT: u64 = 10;

/// A row of the table: the name, the value, whose variant is its type, and a sentence that says what it is, and when it
/// is null or 0.
pub(super) struct Field<'a>(
    pub(super) &'static str,
    pub(super) Value<'a>,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the documentation"))]
    pub(super)  &'static str,
);

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "units are for the documentation")
)]
pub(super) enum Value<'a> {
    /// One of the words in the field's sentence.
    Word(&'static str),
    /// Null if there is none.
    Text(Option<Cow<'a, [u8]>>),
    Number(Unit, u64),
    OrNull(Unit, Option<u64>),
    /// `None` on a replica, which knows no waiters but the kept places, and says so.
    Known(Unit, Option<u64>),
    Holds(&'a [HoldInfo<'a>]),
    Waiters(&'a [WaiterInfo<'a>]),
}

#[derive(Clone, Copy)]
pub(super) enum Unit {
    Count,
    Ms,
    /// A number that the server chooses.
    Id,
}

#[rustfmt::skip]
pub(super) fn of_key<'a>(info: &'a Info<'a>) -> Vec<Field<'a>> {
    let (family, state, states) = state(info);
    let waiters = Some(&info.waiters).filter(|_| info.knows_waiters);
    let count = waiters.map(|waiters| waiters.count as u64);
    let longest_ms = waiters.map(|waiters| waiters.longest_ms);
    let mut fields = vec![
        Field("type", Word(type_name(family)), "`lock`, `semaphore`, `group` or `once`."),
        Field("state", Word(state), states),
    ];
    fields.extend(of_family(&info.particulars));
    fields.extend([
        Field("paused-ms", Number(Ms, info.paused_ms), "What is left of a PAUSE; 0 without one."),
        Field("holders", Number(Count, info.holders as u64), "How many holds there are."),
        Field("waiters", Known(Count, count), "How many requests wait."),
        Field("longest-wait-ms", Known(Ms, longest_ms), "How long the one that has waited longest has waited."),
        Field("first-holders", Holds(&info.first_holders), "The oldest holds, `COUNT` at most. Of each:"),
        Field("first-waiters", Waiters(&info.waiters.first), "The first in line, `COUNT` at most. Of each:"),
    ]);
    fields
}

/// The family, the state of the key, and which states there are.
fn state(info: &Info<'_>) -> (Family, &'static str, &'static str) {
    let is_paused = info.paused_ms > 0;
    match &info.particulars {
        Particulars::Lock => {
            let state = match info.first_holders.first().map(|hold| hold.claim) {
                _ if is_paused => "paused",
                Some(Claim::Shared) => "shared",
                Some(_) => "exclusive",
                // Its pause is over, and has not been ended yet: on a replica its primary does that.
                None => "free",
            };
            let states =
                "`exclusive`, `shared`, `paused`, or `free` for the moment in which a pause ends.";
            (Family::Lock, state, states)
        }
        Particulars::Semaphore { limits, available } => {
            let state = match (limits.in_force(), available) {
                _ if is_paused => "paused",
                (Some(0), _) => "paused",
                (_, 0) => "full",
                _ => "open",
            };
            let states = "`open` (permits are free), `full`, or `paused` (also with a limit of 0).";
            (Family::Semaphore, state, states)
        }
        Particulars::Group(tally) => {
            let state = match tally.finished {
                _ if is_paused => "paused",
                Some(_) => "finished",
                None => "open",
            };
            (Family::Group, state, "`open`, `finished` or `paused`.")
        }
        Particulars::Once {
            record,
            delay_left_ms,
        } => {
            let state = match (&record.done, info.holders, delay_left_ms) {
                (Some(_), _, _) => "done",
                _ if is_paused => "paused",
                (None, 0, 0) => "idle",
                (None, 0, _) => "delayed",
                (None, _, _) => "running",
            };
            let states =
                "`running`, `idle` (nobody runs), `delayed` (by `DELAY`), `done` or `paused`.";
            (Family::Once, state, states)
        }
    }
}

/// What only this family shows.
#[rustfmt::skip]
fn of_family<'a>(particulars: &Particulars) -> Vec<Field<'a>> {
    let or_null = |n: Option<u32>| OrNull(Count, n.map(u64::from));
    let limit = |n| Field("limit", or_null(n), "The limit in force; null if there is none.");
    let changes = |n| Field("limit-changes", Number(Count, n), "How often the limit in force has become another one.");
    let kept_until = |until: Option<UnixMs>, means| {
        let until = until.filter(|until| *until != UnixMs::NEVER);
        Field("kept-until-unix-ms", OrNull(Ms, until.map(|UnixMs(at)| at)), means)
    };
    match particulars {
        Particulars::Lock => vec![],
        Particulars::Semaphore { limits, available } => vec![
            limit(limits.in_force()),
            Field("pinned-limit", or_null(limits.pinned), "The limit that DSEM.LIMIT pinned; null if none is."),
            changes(limits.changes),
            Field("available", Number(Count, *available), "How many permits are free."),
        ],
        Particulars::Group(tally) => vec![
            limit(tally.limit),
            changes(tally.limit_changes),
            Field("expected", or_null(tally.expected), "The total that DWG.EXPECT declared; null without one."),
            Field("owed", Number(Count, tally.owed()), "How many jobs are still owed."),
            Field("done", Number(Count, tally.done), "How many members of the round were done."),
            Field("lapsed", Number(Count, tally.lapsed),
                "How many were lost: their lease ran out, they were revoked, or their EPHEMERAL connection closed."),
            kept_until(tally.finished,
                "When the tally of the finished round is forgotten, by the wall clock; null before it is finished."),
        ],
        Particulars::Once { record, delay_left_ms } => {
            let reason = record.reason.as_ref().map(|reason| reason.text().to_vec().into());
            let done = record.done.as_ref();
            let bytes = done.and_then(|done| done.result.as_ref()).map(|result| result.len() as u64);
            vec![
                Field("attempts", Number(Count, record.attempts), "How many attempts have been made."),
                Field("last-reason", Text(reason),
                    "Why the last attempt that was not done ended: its `REASON`, or `failed`, `lapsed` or `revoked`; \
                     null before."),
                Field("delay-left-ms", Number(Ms, *delay_left_ms), "What is left of a `DELAY`; 0 without one."),
                Field("result-bytes", OrNull(Count, bytes), "How long the result is, in bytes; null if there is none."),
                kept_until(done.map(|done| done.keep_until),
                    "When the result is forgotten, by the wall clock; null before it is done, and with `PERSIST`."),
            ]
        }
    }
}

#[rustfmt::skip]
pub(super) fn of_hold<'a>(hold: &HoldInfo<'a>) -> [Field<'a>; 6] {
    [
        Field("fence", Number(Id, hold.fence.0), "The public number of the hold. Fences only ever grow."),
        owner(hold.owner),
        client(hold.client),
        Field("lease-left-ms", Number(Ms, hold.lease_left_ms), "What is left of the lease."),
        Field("held-ms", Number(Ms, hold.held_ms), "How long the hold has lasted."),
        claim(Some(hold.claim)),
    ]
}

#[rustfmt::skip]
pub(super) fn of_waiter<'a>(waiter: &WaiterInfo<'a>) -> [Field<'a>; 6] {
    let number = waiter.rank.map(|rank| rank.0.0);
    [
        owner(waiter.owner),
        client(waiter.client),
        Field("age-ms", Number(Ms, waiter.age_ms), "How long the request has waited."),
        Field("number", OrNull(Id, number), "The number of the kept place, for REVOKE; null if the request has none."),
        Field("kept-ms", OrNull(Ms, waiter.kept_ms), "How long the place is still kept; null if the request has none."),
        claim(waiter.claim),
    ]
}

fn owner(owner: Option<&[u8]>) -> Field<'_> {
    let owner = owner.map(Cow::from);
    Field(
        "owner",
        Text(owner),
        "The text of `OWNER`; null without one.",
    )
}

fn client<'a>(client: ClientId) -> Field<'a> {
    let id = Some(client.0).filter(|_| client != ClientId::NONE);
    let means = "The id of the connection in `CLIENT LIST`; null if it has none on this server.";
    Field("client", OrNull(Id, id), means)
}

fn claim<'a>(claim: Option<Claim>) -> Field<'a> {
    const OF_LOCK: &str = "`exclusive` or `shared`.";
    const OF_GROUP: &str = "`member`, or `wait` for a client in DWG.WAIT.";
    let (mode, modes) = match claim {
        Some(Claim::Permits(n)) => {
            let n = u64::from(n);
            return Field("permits", Number(Count, n), "How many permits it takes.");
        }
        Some(Claim::Exclusive) => ("exclusive", OF_LOCK),
        Some(Claim::Shared) => ("shared", OF_LOCK),
        Some(Claim::Member) => ("member", OF_GROUP),
        None => ("wait", OF_GROUP),
        Some(Claim::Run) => ("run", "`run`."),
    };
    Field("mode", Word(mode), modes)
}

/// Writes the reply; null for a key that does not exist.
pub(super) fn reply(ctx: Ctx<'_>, info: Option<&Info<'_>>) {
    or_null(ctx, info, |info| map(ctx, &of_key(info)));
}

fn map(ctx: Ctx<'_>, fields: &[Field<'_>]) {
    let number = |n| ctx.integer(count(n));
    ctx.map(fields.len());
    for Field(name, value, _) in fields {
        ctx.bulk(name.as_bytes());
        match value {
            Word(word) => ctx.bulk(word.as_bytes()),
            Text(text) => or_null(ctx, text.as_ref(), |text| ctx.bulk(text)),
            Number(_, n) => number(*n),
            OrNull(_, n) => or_null(ctx, *n, number),
            Known(_, Some(n)) => number(*n),
            Known(_, None) => ctx.bulk(b"unknown on a replica"),
            Holds(holds) => {
                ctx.array(holds.len());
                holds.iter().for_each(|hold| map(ctx, &of_hold(hold)));
            }
            Waiters(waiters) => {
                ctx.array(waiters.len());
                waiters
                    .iter()
                    .for_each(|waiter| map(ctx, &of_waiter(waiter)));
            }
        }
    }
}
