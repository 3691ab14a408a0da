//! The reply of INFO: who holds a key, who waits for it, and since when. It never contains a token.
//!
//! The reply is a map, with the same fields for every key of a family; holders and waiters are maps inside it. In
//! RESP2 each map is a flat array of names and values. Times are durations up to now, in milliseconds.

use crate::module::redis::context::Ctx;
use crate::module::reply::count;
use dsync_engine::info::{HoldInfo, Info, Particulars, WaiterInfo};
use dsync_engine::types::{Claim, ClientId, UnixMs};

/// How many holders and waiters are listed without COUNT.
pub(super) const DEFAULT_COUNT: u64 = 10;

/// A replica's value for fields about all waiters, because it knows the kept places only.
const UNKNOWN: &str = "unknown on a replica";

/// Writes the reply; null for a key that does not exist.
pub(super) fn reply(ctx: Ctx<'_>, info: Option<&Info<'_>>) {
    let Some(info) = info else { return ctx.null() };
    // The number of fields that only this family has.
    let family_fields = match &info.particulars {
        Particulars::Lock => 1,
        Particulars::Semaphore { .. } => 5,
        Particulars::Group(_) => 8,
        Particulars::Once { .. } => 6,
    };
    ctx.map(7 + family_fields);
    particulars(ctx, info);
    field(ctx, "paused-ms", info.paused_ms);
    field(ctx, "holders", info.holders as u64);
    if info.knows_waiters {
        field(ctx, "waiters", info.waiters.count as u64);
        field(ctx, "longest-wait-ms", info.waiters.longest_ms);
    } else {
        text(ctx, "waiters", UNKNOWN);
        text(ctx, "longest-wait-ms", UNKNOWN);
    }
    ctx.bulk(b"first-holders");
    ctx.array(info.first_holders.len());
    info.first_holders.iter().for_each(|hold| holder(ctx, hold));
    ctx.bulk(b"first-waiters");
    let waiting = &info.waiters.first;
    ctx.array(waiting.len());
    waiting.iter().for_each(|waiting| waiter(ctx, waiting));
}

fn particulars(ctx: Ctx<'_>, info: &Info<'_>) {
    let is_paused = info.paused_ms > 0;
    match &info.particulars {
        Particulars::Lock => {
            text(ctx, "type", "lock");
            let state = match info.first_holders.first().map(|hold| hold.claim) {
                _ if is_paused => "paused",
                Some(Claim::Shared) => "shared",
                Some(_) => "exclusive",
                // Its pause is over, and has not been ended yet: on a replica its primary does that.
                None => "free",
            };
            text(ctx, "state", state);
        }
        Particulars::Semaphore { limits, available } => {
            text(ctx, "type", "semaphore");
            let in_force = limits.in_force();
            let state = match (in_force, available) {
                _ if is_paused => "paused",
                (Some(0), _) => "paused",
                (_, 0) => "full",
                _ => "open",
            };
            text(ctx, "state", state);
            optional(ctx, "limit", in_force.map(u64::from));
            optional(ctx, "pinned-limit", limits.pinned.map(u64::from));
            field(ctx, "limit-changes", limits.changes);
            field(ctx, "available", *available);
        }
        Particulars::Once {
            record,
            delay_left_ms,
        } => {
            text(ctx, "type", "once");
            let state = match (&record.done, info.holders, delay_left_ms) {
                (Some(_), _, _) => "done",
                _ if is_paused => "paused",
                (None, 0, 0) => "idle",
                (None, 0, _) => "delayed",
                (None, _, _) => "running",
            };
            text(ctx, "state", state);
            field(ctx, "attempts", record.attempts);
            ctx.bulk(b"last-reason");
            match &record.reason {
                Some(reason) => ctx.bulk(&reason.text()),
                None => ctx.null(),
            }
            field(ctx, "delay-left-ms", *delay_left_ms);
            let result = record.done.as_ref().and_then(|done| done.result.as_deref());
            optional(
                ctx,
                "result-bytes",
                result.map(|result| result.len() as u64),
            );
            let kept_until = record.done.as_ref().map(|done| done.keep_until);
            let kept_until = kept_until.filter(|until| *until != UnixMs::NEVER);
            optional(ctx, "kept-until-unix-ms", kept_until.map(|UnixMs(at)| at));
        }
        Particulars::Group(tally) => {
            text(ctx, "type", "group");
            let state = match tally.finished {
                _ if is_paused => "paused",
                Some(_) => "finished",
                None => "open",
            };
            text(ctx, "state", state);
            optional(ctx, "limit", tally.limit.map(u64::from));
            field(ctx, "limit-changes", tally.limit_changes);
            optional(ctx, "expected", tally.expected.map(u64::from));
            field(ctx, "owed", tally.owed());
            field(ctx, "done", tally.done);
            field(ctx, "lapsed", tally.lapsed);
            optional(
                ctx,
                "kept-until-unix-ms",
                tally.finished.map(|UnixMs(at)| at),
            );
        }
    }
}

fn holder(ctx: Ctx<'_>, hold: &HoldInfo<'_>) {
    ctx.map(6);
    field(ctx, "fence", hold.fence.0);
    owner(ctx, hold.owner);
    connection(ctx, hold.client);
    field(ctx, "lease-left-ms", hold.lease_left_ms);
    field(ctx, "held-ms", hold.held_ms);
    claim(ctx, Some(hold.claim));
}

fn waiter(ctx: Ctx<'_>, waiter: &WaiterInfo<'_>) {
    ctx.map(6);
    owner(ctx, waiter.owner);
    connection(ctx, waiter.client);
    field(ctx, "age-ms", waiter.age_ms);
    optional(ctx, "number", waiter.rank.map(|rank| rank.0.0));
    optional(ctx, "kept-ms", waiter.kept_ms);
    claim(ctx, waiter.claim);
}

fn owner(ctx: Ctx<'_>, owner: Option<&[u8]>) {
    ctx.bulk(b"owner");
    match owner {
        Some(owner) => ctx.bulk(owner),
        None => ctx.null(),
    }
}

/// The client's id, as CLIENT LIST shows it; null if the hold was granted on another server or by a script.
fn connection(ctx: Ctx<'_>, client: ClientId) {
    optional(
        ctx,
        "client",
        Some(client.0).filter(|_| client != ClientId::NONE),
    );
}

fn claim(ctx: Ctx<'_>, claim: Option<Claim>) {
    match claim {
        Some(Claim::Exclusive) => text(ctx, "mode", "exclusive"),
        Some(Claim::Shared) => text(ctx, "mode", "shared"),
        Some(Claim::Permits(n)) => field(ctx, "permits", u64::from(n)),
        Some(Claim::Member) => text(ctx, "mode", "member"),
        Some(Claim::Run) => text(ctx, "mode", "run"),
        None => text(ctx, "mode", "wait"),
    }
}

fn text(ctx: Ctx<'_>, name: &str, value: &str) {
    ctx.bulk(name.as_bytes());
    ctx.bulk(value.as_bytes());
}

fn field(ctx: Ctx<'_>, name: &str, value: u64) {
    ctx.bulk(name.as_bytes());
    ctx.integer(count(value));
}

fn optional(ctx: Ctx<'_>, name: &str, value: Option<u64>) {
    ctx.bulk(name.as_bytes());
    match value {
        Some(value) => ctx.integer(count(value)),
        None => ctx.null(),
    }
}
