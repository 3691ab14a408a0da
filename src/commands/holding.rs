//! The commands that all families share: RELEASE, RENEW, CHECK, REVOKE, PAUSE and INFO.
//!
//! Each function makes the row of one command for one family. The rows of a command differ in their names, in the
//! words for the key, and in the fields of INFO.

use super::acquire::REQUEST_COMPLEXITY;
use super::apply;
use super::arguments::{COUNT, FENCE, KEY, NEW_LEASE, PAUSE_MS, TOKEN};
use super::grammar::Number;
use super::info;
use super::row::{CommandName, Properties, Row, Run, User};
use crate::module::redis::docs::KeyUse;
use crate::module::reply::count;
use crate::module::run::{look_at_leases, run};
use dsync_engine::types::{Fence, LeaseMs};
use dsync_engine::{Family, WrongType};

/// The properties of RENEW. Those of the other commands here differ from them in a few fields.
const CHANGE: Properties = Properties {
    since: "0.1.0",
    complexity: END_COMPLEXITY,
    flags: c"write fast",
    key: KeyUse::Changes,
    tips: "",
    users: &[User::Worker],
};

/// The properties of commands that end a hold.
const END: Properties = Properties {
    key: KeyUse::Removes,
    ..CHANGE
};

/// The properties of commands that only read.
const LOOK: Properties = Properties {
    flags: c"readonly fast",
    key: KeyUse::Reads,
    tips: "nondeterministic_output",
    ..CHANGE
};

const END_COMPLEXITY: &str = "O(log(N)) with N the number of holds and waiters, for the hold and for each waiter that \
                              is served (128 at most)";

/// ```text
/// <family>.RELEASE key token
/// ```
pub(super) const fn release(family: Family) -> Row {
    Row {
        name: CommandName::of(family, "RELEASE"),
        summary: "Ends a hold of {key} early, or withdraws a queued request, by its token.",
        properties: END,
        args: &[KEY, TOKEN],
        run: Run::OnKey(family, |call| {
            let token = call.token()?;
            // A primary replicates the release of a lock as this very command (see ARCHITECTURE.md).
            if call.family == Family::Lock && apply::is_from_server(call.ctx) {
                apply::release(call.ctx, call.args, &call.key, &token);
                return Ok(());
            }
            let released = run(call.ctx, &call.key, |visit| {
                visit.release(call.family, &token)
            });
            call.ctx.integer(i64::from(released??));
            Ok(())
        }),
    }
}

/// ```text
/// <family>.RENEW key token [EX seconds | PX milliseconds]
/// ```
pub(super) const fn renew(family: Family) -> Row {
    Row {
        name: CommandName::of(family, "RENEW"),
        summary: "Renews the lease of a hold of {key}, by its token.",
        properties: CHANGE,
        args: &[KEY, TOKEN, NEW_LEASE],
        run: Run::OnKey(family, |call| {
            let token = call.token()?;
            let lease = call.parsed.number_u32(Number::Duration).map(LeaseMs);
            let renewed = run(call.ctx, &call.key, |visit| {
                visit.renew(call.family, &token, lease)
            });
            call.ctx.integer(i64::from(renewed??));
            Ok(())
        }),
    }
}

/// ```text
/// <family>.CHECK key token
/// ```
pub(super) const fn check(family: Family) -> Row {
    Row {
        name: CommandName::of(family, "CHECK"),
        summary: "Returns how many milliseconds of lease a token has left on {key}.",
        properties: Properties {
            complexity: "O(log(N)) with N the number of holds of the key",
            users: &[User::Worker, User::Observer],
            ..LOOK
        },
        args: &[KEY, TOKEN],
        run: Run::OnKey(family, |call| {
            let token = call.token()?;
            let left_ms = look_at_leases(call.ctx, &call.key, |look, expires_in_ms| {
                let left_ms = look.check(call.family, &token)?;
                Ok::<_, WrongType>(left_ms.min(expires_in_ms.unwrap_or(u64::MAX)))
            });
            call.ctx.integer(count(left_ms??));
            Ok(())
        }),
    }
}

/// ```text
/// <family>.REVOKE key fence
/// ```
pub(super) const fn revoke(family: Family) -> Row {
    Row {
        name: CommandName::of(family, "REVOKE"),
        summary: "Ends a hold of {key} of any client, by its fence.",
        properties: Properties {
            users: &[User::Operator],
            ..END
        },
        args: &[KEY, FENCE],
        run: Run::OnKey(family, |call| {
            let fence = Fence(call.parsed.required_number());
            let revoked = run(call.ctx, &call.key, |visit| {
                visit.revoke(call.family, fence)
            });
            call.ctx.integer(i64::from(revoked??));
            Ok(())
        }),
    }
}

/// ```text
/// <family>.PAUSE key milliseconds
/// ```
pub(super) const fn pause(family: Family) -> Row {
    Row {
        name: CommandName::of(family, "PAUSE"),
        summary: "Grants nobody a hold of {key} for some time, and returns how much of a pause was left before.",
        properties: Properties {
            since: "0.3.0",
            complexity: REQUEST_COMPLEXITY,
            flags: c"write",
            key: KeyUse::ReadsAndChanges,
            users: &[User::Operator],
            ..CHANGE
        },
        args: &[KEY, PAUSE_MS],
        run: Run::OnKey(family, |call| {
            let ms = call.parsed.required_number();
            if ms > 0 {
                call.need_memory_if_absent()?;
            }
            let left_ms = run(call.ctx, &call.key, |visit| visit.pause(call.family, ms));
            call.ctx.integer(count(left_ms??));
            Ok(())
        }),
    }
}

/// ```text
/// <family>.INFO key [COUNT count]
/// ```
pub(super) const fn info(family: Family) -> Row {
    Row {
        name: CommandName::of(family, "INFO"),
        summary: "Returns who holds {key}, who waits for it, and since when.",
        properties: Properties {
            complexity: "O(log(N)+C) with N the number of holds and waiters and C the COUNT",
            users: &[User::Worker, User::Observer, User::Operator],
            ..LOOK
        },
        args: &[KEY, COUNT],
        run: Run::OnKey(family, |call| {
            let shown = call.parsed.number(Number::Count);
            let shown = usize::try_from(shown.unwrap_or(info::DEFAULT_COUNT)).unwrap_or_default();
            look_at_leases(call.ctx, &call.key, |look, expires_in_ms| {
                let found = look.info(call.family, shown)?;
                let found = found.map(|info| info.at_most_ms(expires_in_ms.unwrap_or(u64::MAX)));
                info::reply(call.ctx, found.as_ref());
                Ok::<_, WrongType>(())
            })??;
            Ok(())
        }),
    }
}
