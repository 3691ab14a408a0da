//! DSYN: the internal command that carries changes into replicas and out of the AOF.
//!
//! ```text
//! DSYN key packed
//! ```
//!
//! It comes only from the primary or from the AOF; clients cannot call it. Its changes are applied all or none. If
//! they cannot be applied (a newer dsync wrote them, or the state differs), a replica logs that and goes on, and
//! the loading of an AOF stops, see [`refuse`]. A kept place that is not there can leave an AOF all the same.
//!
//! DLOCK.RELEASE comes in the same ways, for END and VANISH of the only hold of a lock, see [`release`].
//!
//! `DSYNC.APPLY` is the command that dsync 0.1.0 wrote, in another form. It is registered only to be refused with
//! a sentence that explains it: an unknown command would stop the loading of an AOF without explanation.

use std::ffi::CStr;

use crate::module::followed::{self, Consequence};
use crate::module::out::replicate;
use crate::module::redis::args::Args;
use crate::module::redis::command::{Command, register, register_with_flags};
use crate::module::redis::context::{Ctx, Level};
use crate::module::redis::name::KeyString;
use crate::module::run::look;
use dsync_engine::types::Token;
use dsync_engine::{Family, WrongType, wire};

/// How many bytes of a key a log line shows.
const MAX_SHOWN_KEY_BYTES: usize = 128;

const FLAGS: &CStr = c"write deny-script no-monitor no-slowlog";
/// Redis 8 and later hide commands with the flag `internal` from clients. Other servers do not know the flag, so there
/// [`is_from_server`] alone keeps clients out.
const FLAGS_SINCE_REDIS_8: &CStr = c"write deny-script no-monitor no-slowlog internal";

pub(super) fn register_all(ctx: Ctx<'_>) -> Result<(), String> {
    register_internal::<Apply>(ctx)?;
    register_internal::<ApplyOf010>(ctx)
}

fn register_internal<C: Command>(ctx: Ctx<'_>) -> Result<(), String> {
    if register_with_flags::<C>(ctx, FLAGS_SINCE_REDIS_8) {
        return Ok(());
    }
    register::<C>(ctx)
}

/// DSYN.
struct Apply;

impl Command for Apply {
    const NAME: &'static CStr = replicate::STREAM;
    const FLAGS: &'static CStr = FLAGS;
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        if !is_from_server(ctx) {
            return refuse_client(ctx, Self::NAME);
        }
        match apply(ctx, args) {
            Ok(()) => ctx.simple(c"OK"),
            Err(refusal) => refuse(ctx, Self::NAME, args, &refusal),
        }
    }
}

/// DSYNC.APPLY, the command that dsync 0.1.0 wrote: always refused.
struct ApplyOf010;

impl Command for ApplyOf010 {
    const NAME: &'static CStr = c"DSYNC.APPLY";
    const FLAGS: &'static CStr = FLAGS;
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        if !is_from_server(ctx) {
            return refuse_client(ctx, Self::NAME);
        }
        let refusal = UnappliedCommand {
            changes: (args.len() as u64).saturating_sub(3).max(1),
            reason: concat!(
                "it was written by dsync 0.1.0, and this is dsync ",
                env!("CARGO_PKG_VERSION"),
                ", which does not read what 0.1.0 wrote"
            )
            .to_owned(),
        };
        refuse(ctx, Self::NAME, args, &refusal);
    }
}

/// Applies `DLOCK.RELEASE key token` from the primary or from the AOF. On the server that wrote it, it ended the only
/// hold of the key and granted nothing to a waiter. This server decides nothing: it ends the hold with this token, or
/// refuses the command.
pub(super) fn release(ctx: Ctx<'_>, args: Args<'_>, name: &KeyString<'_>, token: &Token) {
    let changes = look(ctx, name, |look| {
        look.release_elsewhere(Family::Lock, token)
    });
    let released = match changes {
        Err(WrongType) => Err("the key holds a value that is not dsync's".to_owned()),
        Ok(None) => Err("the key has no hold of its token, or others beside it".to_owned()),
        Ok(Some(changes)) => followed::apply(ctx, name, Family::Lock, changes.into()),
    };
    match released {
        Ok(()) => {
            ctx.replicate_as_it_came();
            ctx.integer(1);
        }
        Err(reason) => {
            let refusal = UnappliedCommand { changes: 2, reason };
            refuse(ctx, c"DLOCK.RELEASE", args, &refusal);
        }
    }
}

/// Whether the command comes from another server's replication stream or from the AOF. The server's client that reads
/// the AOF has the id `u64::MAX`.
pub(super) fn is_from_server(ctx: Ctx<'_>) -> bool {
    ctx.client_id() == u64::MAX || followed::may_follow() && ctx.facts().replicated()
}

/// Replies an error to a client that called an internal command.
fn refuse_client(ctx: Ctx<'_>, name: &CStr) {
    ctx.error(&format!(
        "ERR {} is the server's own way to replicate and cannot be called",
        name.to_string_lossy()
    ));
}

/// Why a command could not be applied, and how many changes are lost with it.
struct UnappliedCommand {
    changes: u64,
    reason: String,
}

/// Applies the changes of DSYN, all or none.
fn apply(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), UnappliedCommand> {
    let refusal = |changes: usize, reason| UnappliedCommand {
        changes: (changes as u64).max(1),
        reason,
    };
    let (3, Some(name), Some(packed)) = (args.len(), args.name(1), args.get(2)) else {
        let wrong = "it has another number of arguments than two".to_owned();
        return Err(refusal(1, wrong));
    };
    let unread = |unreadable: wire::Unreadable| refusal(1, unreadable.to_string());
    let unpacked = wire::open(packed).map_err(unread)?;
    let family = unpacked.family;
    let changes: Result<Vec<_>, _> = unpacked.collect();
    let changes = changes.map_err(unread)?;
    let count = changes.len();
    followed::apply(ctx, &name, family, changes).map_err(|reason| refusal(count, reason))?;
    replicate::pass_on(ctx, &name, packed);
    Ok(())
}

/// Reports a command that could not be applied: the states of this server and of the one that wrote it differ.
///
/// A replica logs and counts it, and goes on. While an AOF is loaded the server exits, because going on would lose
/// holds silently, unless the operator has set `dsync.aof-skip-unapplied`.
fn refuse(ctx: Ctx<'_>, command: &CStr, args: Args<'_>, refusal: &UnappliedCommand) {
    let key = args.get(1).unwrap_or_default();
    let key = key[..key.len().min(MAX_SHOWN_KEY_BYTES)].escape_ascii();
    let (command, reason, db) = (command.to_string_lossy(), &refusal.reason, ctx.db());
    let what = format!("{command} failed on key '{key}' of database {db}: {reason}");
    match followed::count_refused(refusal.changes, ctx.facts().loading()) {
        Consequence::GoOn => ctx.log(Level::Warning, &what),
        Consequence::LeaveOut => {
            ctx.log(
                Level::Warning,
                &format!("{what}; left out, as dsync.aof-skip-unapplied says"),
            );
            // Reply OK, because the server logs an error reply to its loading client as critical.
            return ctx.simple(c"OK");
        }
        Consequence::Stop { applied } => {
            ctx.log(
                Level::Warning,
                &format!("{what}; {applied} changes of this AOF were applied before it"),
            );
            ctx.log(
                Level::Warning,
                "The server stops, because going on would silently lose holds. Start it with the version of \
                 dsync that wrote this AOF, or with 'dsync.aof-skip-unapplied yes', which leaves out what \
                 cannot be applied and counts it in dsync_unapplied_changes.",
            );
            std::process::exit(1);
        }
    }
    ctx.error(&format!("ERR {reason}"));
}
