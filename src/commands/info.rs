//! INFO: who holds a key, who waits for it, and since when. It never contains a token.
//!
//! The reply is a map, with the same fields for every key of a family; holders and waiters are maps inside it. Only a
//! holder with an index has that field, only what rests has `resting-ms` and `resting`, and only if somebody says LANE
//! are there `lane`, `lanes` and `first-lanes`. In RESP2 each map is a flat array of names and values. Times are
//! durations up to now, in milliseconds.
//!
//! [`of_key`], [`of_hold`] and [`of_waiter`] are the table of the fields: a new one is a row there, which reads what the
//! key keeps, and on the page docs/commands/info.md, which a test compares with the replies.

use std::borrow::Cow;

use Value::{Holds, Known, Lanes, Number, OrNull, Text, Waiters, Word};

use super::row::type_name;
use crate::module::redis::context::Ctx;
use crate::module::reply::{count, or_null};
use dsync_engine::Family;
use dsync_engine::change::Reason;
use dsync_engine::info::{HoldInfo, Info, LaneInfo, Particulars, WaiterInfo};
use dsync_engine::types::{Claim, ClientId, UnixMs};

/// How many holders and waiters are listed without COUNT.
pub(super) const DEFAULT_COUNT: u64 = 10;

/// A field: its name, and its value, whose variant is its type.
type Field<'a> = (&'static str, Value<'a>);

enum Value<'a> {
    Word(&'static str),
    /// Null if there is none.
    Text(Option<Cow<'a, [u8]>>),
    Number(u64),
    OrNull(Option<u64>),
    /// `None` on a replica, which knows no waiters but the kept places, and says so.
    Known(Option<u64>),
    Holds(&'a [HoldInfo<'a>]),
    Waiters(&'a [WaiterInfo<'a>]),
    Lanes(&'a [LaneInfo<'a>]),
}

fn of_key<'a>(info: &'a Info<'a>) -> Vec<Field<'a>> {
    let (family, state) = state(info);
    let waiters = Some(&info.waiters).filter(|_| info.knows_waiters);
    let mut fields = vec![("type", Word(type_name(family))), ("state", Word(state))];
    fields.extend(of_family(info));
    fields.extend([
        ("paused-ms", Number(info.left_ms(info.body.paused_until()))),
        ("holders", Number(info.holders as u64)),
        ("waiters", Known(waiters.map(|all| all.count as u64))),
        ("longest-wait-ms", Known(waiters.map(|all| all.longest_ms))),
        ("first-holders", Holds(&info.first_holders)),
        ("first-waiters", Waiters(&info.waiters.first)),
    ]);
    if let Some(lanes) = &info.lanes {
        let count = Some(lanes.count as u64).filter(|_| info.knows_waiters);
        fields.extend([
            ("lanes", Known(count)),
            ("first-lanes", Lanes(&lanes.first)),
        ]);
    }
    fields
}

fn state(info: &Info<'_>) -> (Family, &'static str) {
    let is_paused = info.left_ms(info.body.paused_until()) > 0;
    match &info.particulars {
        Particulars::Lock => {
            let state = match info.first_holders.first().map(|hold| hold.claim) {
                _ if is_paused => "paused",
                Some(_) if info.resting == info.holders => "resting",
                Some(Claim::Shared) => "shared",
                Some(_) => "exclusive",
                // Its pause is over, and has not been ended yet: on a replica its primary does that.
                None => "free",
            };
            (Family::Lock, state)
        }
        Particulars::Semaphore {
            limits, available, ..
        } => {
            let state = match (limits.in_force(), available) {
                _ if is_paused => "paused",
                (Some(0), _) => "paused",
                (_, 0) => "full",
                _ => "open",
            };
            (Family::Semaphore, state)
        }
        Particulars::Group(tally) => {
            let state = match tally.finished {
                _ if is_paused => "paused",
                Some(_) => "finished",
                None => "open",
            };
            (Family::Group, state)
        }
        Particulars::Once(record) => {
            let delay_left_ms = info.left_ms(info.body.delayed_until());
            let state = match (&record.done, info.holders, delay_left_ms) {
                (Some(_), _, _) => "done",
                _ if is_paused => "paused",
                (None, 0, 0) => "idle",
                (None, 0, _) => "delayed",
                (None, _, _) => "running",
            };
            (Family::Once, state)
        }
    }
}

/// What only this family shows.
fn of_family<'a>(info: &Info<'a>) -> Vec<Field<'a>> {
    let limit = |limit: Option<u32>| OrNull(limit.map(u64::from));
    let moment = |at: UnixMs| Some(at.0).filter(|_| at != UnixMs::NEVER);
    match &info.particulars {
        Particulars::Lock => vec![],
        Particulars::Semaphore {
            limits,
            available,
            resting,
        } => {
            let mut fields = vec![
                ("limit", limit(limits.in_force())),
                ("pinned-limit", limit(limits.pinned)),
                ("limit-changes", Number(limits.changes)),
                ("available", Number(*available)),
            ];
            fields.extend((*resting > 0).then_some(("resting", Number(*resting))));
            fields
        }
        Particulars::Group(tally) => vec![
            ("limit", limit(tally.limit)),
            ("limit-changes", Number(tally.limit_changes)),
            ("expected", limit(tally.expected)),
            ("owed", Number(tally.owed())),
            ("done", Number(tally.done)),
            ("lapsed", Number(tally.lapsed)),
            (
                "kept-until-unix-ms",
                OrNull(tally.finished.and_then(moment)),
            ),
        ],
        Particulars::Once(record) => {
            let reason = record.reason.as_ref().map(Reason::text);
            let done = record.done.as_ref();
            let result = done.and_then(|done| done.result.as_deref());
            let kept_until = done.and_then(|done| moment(done.keep_until));
            vec![
                ("attempts", Number(record.attempts)),
                ("last-reason", Text(reason.map(|text| text.to_vec().into()))),
                (
                    "delay-left-ms",
                    Number(info.left_ms(info.body.delayed_until())),
                ),
                (
                    "result-bytes",
                    OrNull(result.map(|bytes| bytes.len() as u64)),
                ),
                ("kept-until-unix-ms", OrNull(kept_until)),
            ]
        }
    }
}

fn of_hold<'a>(hold: &HoldInfo<'a>) -> Vec<Field<'a>> {
    let mut fields = vec![
        ("fence", Number(hold.fence.0)),
        ("owner", Text(hold.owner.map(Cow::from))),
        ("client", client(hold.client)),
        ("lease-left-ms", Number(hold.lease_left_ms)),
        ("held-ms", Number(hold.held_ms)),
        claim(Some(hold.claim)),
    ];
    fields.extend(lane(hold.lane));
    fields.extend(hold.index.map(|index| ("index", Number(index.into()))));
    fields.extend(hold.resting_ms.map(|ms| ("resting-ms", Number(ms))));
    fields
}

fn of_waiter<'a>(waiter: &WaiterInfo<'a>) -> Vec<Field<'a>> {
    let mut fields = vec![
        ("owner", Text(waiter.owner.map(Cow::from))),
        ("client", client(waiter.client)),
        ("age-ms", Number(waiter.age_ms)),
        ("number", OrNull(waiter.rank.map(|rank| rank.0.0))),
        ("kept-ms", OrNull(waiter.kept_ms)),
        claim(waiter.claim),
    ];
    fields.extend(lane(waiter.lane));
    fields
}

/// The lane, if it has a name.
fn lane(name: &[u8]) -> Option<Field<'_>> {
    (!name.is_empty()).then_some(("lane", Text(Some(name.into()))))
}

fn client<'a>(client: ClientId) -> Value<'a> {
    OrNull(Some(client.0).filter(|_| client != ClientId::NONE))
}

/// What is claimed; nothing by a WAIT.
fn claim<'a>(claim: Option<Claim>) -> Field<'a> {
    let mode = match claim {
        Some(claim @ (Claim::Permits(_) | Claim::Indexed)) => {
            return ("permits", Number(claim.permits().into()));
        }
        Some(Claim::Exclusive) => "exclusive",
        Some(Claim::Shared) => "shared",
        Some(Claim::Member) => "member",
        Some(Claim::Run) => "run",
        None => "wait",
    };
    ("mode", Word(mode))
}

/// Writes the reply; null for a key that does not exist.
pub(super) fn reply(ctx: Ctx<'_>, info: Option<&Info<'_>>) {
    or_null(ctx, info, |info| map(ctx, &of_key(info)));
}

fn map(ctx: Ctx<'_>, fields: &[Field<'_>]) {
    let number = |n| ctx.integer(count(n));
    ctx.map(fields.len());
    for (name, value) in fields {
        ctx.bulk(name.as_bytes());
        match value {
            Word(word) => ctx.bulk(word.as_bytes()),
            Text(text) => or_null(ctx, text.as_ref(), |text| ctx.bulk(text)),
            Number(n) => number(*n),
            OrNull(n) => or_null(ctx, *n, number),
            Known(Some(n)) => number(*n),
            Known(None) => ctx.bulk(b"unknown on a replica"),
            Holds(holds) => {
                ctx.array(holds.len());
                holds.iter().for_each(|hold| map(ctx, &of_hold(hold)));
            }
            Lanes(lanes) => {
                ctx.array(lanes.len());
                lanes.iter().for_each(|lane| {
                    ctx.array(4);
                    ctx.bulk(lane.name);
                    number(lane.permits);
                    number(lane.waiters as u64);
                    number(lane.longest_ms);
                });
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
