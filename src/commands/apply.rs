//! DSYN: what another server, or this one in an earlier life, has decided.
//!
//! ```text
//! DSYN key packed
//! ```
//!
//! DLOCK.RELEASE comes in the same ways, for END and VANISH of the only hold of a lock: see [`release`].
//!
//! It comes from the primary and from the AOF; ordinary clients cannot call it. Its changes are carried out
//! all or none. What is not known here comes from another version: a replica says so in its log and goes on;
//! the loading of an AOF ends there, see [`refuse`].
//!
//! `DSYNC.APPLY` is what dsync 0.1.0 wrote, in a form of its own. It is here to be refused with a sentence
//! that says what is wrong: a command that nobody knows ends the loading of an AOF without one.

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

/// How much of a key a line of the log shows, in bytes.
const SHOWN: usize = 128;

const FLAGS: &CStr = c"write deny-script no-monitor no-slowlog";
/// Since Redis 8 the server itself hides internal commands from clients; elsewhere the flag is unknown and
/// [`is_from_server`] has to do.
const FLAGS_SINCE_REDIS_8: &CStr = c"write deny-script no-monitor no-slowlog internal";

pub(super) fn register_all(ctx: Ctx<'_>) -> Result<(), String> {
    register_internal::<Apply>(ctx)?;
    register_internal::<ApplyOfTheFirst>(ctx)
}

fn register_internal<C: Command>(ctx: Ctx<'_>) -> Result<(), String> {
    if register_with_flags::<C>(ctx, FLAGS_SINCE_REDIS_8) {
        return Ok(());
    }
    register::<C>(ctx)
}

struct Apply;

impl Command for Apply {
    const NAME: &'static CStr = replicate::STREAM;
    const FLAGS: &'static CStr = FLAGS;
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        if !is_from_server(ctx) {
            return turn_away(ctx, Self::NAME);
        }
        match apply(ctx, args) {
            Ok(()) => ctx.simple(c"OK"),
            Err(refusal) => refuse(ctx, Self::NAME, args, &refusal),
        }
    }
}

struct ApplyOfTheFirst;

impl Command for ApplyOfTheFirst {
    const NAME: &'static CStr = c"DSYNC.APPLY";
    const FLAGS: &'static CStr = FLAGS;
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        if !is_from_server(ctx) {
            return turn_away(ctx, Self::NAME);
        }
        let refusal = Refusal {
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

/// `DLOCK.RELEASE key token` from the primary or from the AOF: there it ended the only hold of the key, and
/// nobody was served. Nothing is decided here: the hold with this token ends, or the command is refused.
pub(super) fn release(ctx: Ctx<'_>, args: Args<'_>, name: &KeyString<'_>, token: &Token) {
    let changes = look(ctx, name, |engine, key, now| {
        engine.release_elsewhere(key, Family::Lock, token, now)
    });
    let released = match changes {
        Err(WrongType) => Err("the key holds a value that is not dsync's".to_owned()),
        Ok(None) => Err("the key has no hold of its token, or others beside it".to_owned()),
        Ok(Some(changes)) => followed::carry_out(ctx, name, Family::Lock, &changes),
    };
    match released {
        Ok(()) => {
            ctx.replicate_as_it_came();
            ctx.integer(1);
        }
        Err(reason) => {
            let refusal = Refusal { changes: 2, reason };
            refuse(ctx, c"DLOCK.RELEASE", args, &refusal);
        }
    }
}

/// Whether the command comes in the primary's stream or from the AOF, whose reader has a number of its own.
pub(super) fn is_from_server(ctx: Ctx<'_>) -> bool {
    ctx.facts().replicated() || ctx.client_id() == u64::MAX
}

fn turn_away(ctx: Ctx<'_>, name: &CStr) {
    ctx.error(&format!(
        "ERR {} is the server's own way to replicate and cannot be called",
        name.to_string_lossy()
    ));
}

/// Why a command could not be carried out, and how many changes are lost with it.
struct Refusal {
    changes: u64,
    reason: String,
}

/// Carries out the changes of the command, all or none.
fn apply(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), Refusal> {
    let refusal = |changes: usize, reason| Refusal {
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
    followed::carry_out(ctx, &name, family, &changes)
        .map_err(|reason| refusal(changes.len(), reason))?;
    replicate::pass_on(ctx, &name, packed);
    Ok(())
}

/// The command could not be carried out: this server and the one that wrote it no longer agree.
///
/// A replica counts it and goes on. The loading of an AOF stops the server, for going on would lose holds
/// without a word, unless the operator has said that it may.
fn refuse(ctx: Ctx<'_>, command: &CStr, args: Args<'_>, refusal: &Refusal) {
    let key = args.get(1).unwrap_or_default();
    let key = key[..key.len().min(SHOWN)].escape_ascii();
    let (command, reason, db) = (command.to_string_lossy(), &refusal.reason, ctx.db());
    let what = format!("{command} failed on key '{key}' of database {db}: {reason}");
    match followed::count_refused(refusal.changes, ctx.facts().loading()) {
        Consequence::GoOn => ctx.log(Level::Warning, &what),
        Consequence::LeaveOut => {
            ctx.log(
                Level::Warning,
                &format!("{what}; left out, as dsync.aof-skip-unapplied says"),
            );
            // To the loading client, which would log an error as critical, all is well.
            return ctx.simple(c"OK");
        }
        Consequence::Stop { applied } => {
            ctx.log(
                Level::Warning,
                &format!("{what}; {applied} changes of this AOF were applied before it"),
            );
            ctx.log(
                Level::Warning,
                "The server stops: to go on would lose holds without a word. Start it with the version of \
                 dsync that wrote this AOF, or with 'dsync.aof-skip-unapplied yes', which leaves out what \
                 cannot be applied and counts it in dsync_unapplied_changes.",
            );
            std::process::exit(1);
        }
    }
    ctx.error(&format!("ERR {reason}"));
}
