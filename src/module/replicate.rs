//! Changes on their way to replicas and the AOF, and their arrival.
//!
//! ```text
//! DSYNC.APPLY key family:version change [change ...]
//! ```
//!
//! What one call did to one key travels as one command, so that nobody sees half of it. Ordinary clients
//! cannot call it. A change that is not known here comes from a newer version: a replica says so in its
//! log and goes on; the loading of an AOF ends there, for going on would lose holds without a word.

use super::redis::args::Args;
use super::redis::command::{self, Command};
use super::redis::context::{Ctx, Level};
use super::redis::io::AofWriter;
use super::{SHELL, listeners, notify, run};
use crate::engine::change::Change;
use crate::engine::wire::{Arguments, Unreadable, WIRE_VERSION};
use crate::engine::{Body, Family};

const APPLY: &std::ffi::CStr = c"DSYNC.APPLY";

/// How many changes one command of a rewritten AOF carries.
const PER_COMMAND: usize = 128;

/// What precedes the changes: whose they are, and the version they are written in.
fn kind(family: Family) -> &'static [u8] {
    const { assert!(WIRE_VERSION == 1, "the words below name the version") };
    match family {
        Family::Lock => b"lock:1",
        Family::Semaphore => b"semaphore:1",
        Family::Group => b"group:1",
        Family::Once => b"once:1",
    }
}

fn family(kind: &[u8]) -> Option<Family> {
    Family::ALL
        .into_iter()
        .find(|family| self::kind(*family) == kind)
}

pub(super) fn replicate(ctx: Ctx<'_>, key: &[u8], family: Family, changes: &[Change]) {
    if changes.is_empty() {
        return;
    }
    if listeners::is_silent(ctx) {
        return ctx.count_as_change();
    }
    let mut written = SHELL.with(|shell| std::mem::take(&mut shell.written));
    written.clear();
    changes.iter().for_each(|change| change.write(&mut written));
    let sent = with_arguments(key, family, &written, |arguments| {
        ctx.replicate(APPLY, arguments)
    });
    if !sent {
        ctx.log(Level::Warning, "the server refused to replicate a change");
    }
    SHELL.with(|shell| shell.written = written);
}

fn with_arguments<R>(
    key: &[u8],
    family: Family,
    written: &Arguments,
    body: impl FnOnce(&[&[u8]]) -> R,
) -> R {
    let mut changes = written.iter();
    // Nearly every command carries one change or two: a release that hands on.
    match (changes.next(), changes.next(), changes.next()) {
        (Some(one), None, None) => body(&[key, kind(family), one]),
        (Some(one), Some(two), None) => body(&[key, kind(family), one, two]),
        _ => {
            let head = [key, kind(family)];
            body(&head.into_iter().chain(written.iter()).collect::<Vec<_>>())
        }
    }
}

/// Writes a state into an AOF that is being rewritten.
pub(super) fn rewrite(io: &mut AofWriter, body: &Body) {
    let key = io.key_name().to_vec();
    let mut written = Arguments::default();
    let mut changes = body.as_changes().peekable();
    while changes.peek().is_some() {
        written.clear();
        changes
            .by_ref()
            .take(PER_COMMAND)
            .for_each(|change| change.write(&mut written));
        with_arguments(&key, body.family(), &written, |arguments| {
            io.emit(APPLY, arguments)
        });
    }
}

pub(super) struct Apply;

impl Command for Apply {
    const NAME: &'static std::ffi::CStr = APPLY;
    const FLAGS: &'static std::ffi::CStr = c"write deny-script no-monitor no-slowlog";
    const HAS_KEY: bool = true;

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        let facts = ctx.facts();
        // The primary's stream, or the reader of the AOF, which has a number of its own.
        if !facts.replicated() && ctx.client_id() != u64::MAX {
            return ctx.error(
                "ERR DSYNC.APPLY is the server's own way to replicate and cannot be called",
            );
        }
        match apply(ctx, args) {
            Ok(()) => {
                // A replica has an AOF, and perhaps replicas, of its own.
                let arguments: Vec<&[u8]> = args.iter().skip(1).collect();
                ctx.replicate(APPLY, &arguments);
                ctx.simple(c"OK");
            }
            Err(reason) => refuse(ctx, facts.loading(), &reason),
        }
    }
}

pub(super) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    // Since Redis 8 the server itself hides internal commands from clients; elsewhere the flag is
    // unknown and the check above has to do.
    if command::register_with_flags::<Apply>(
        ctx,
        c"write deny-script no-monitor no-slowlog internal",
    ) {
        return Ok(());
    }
    command::register::<Apply>(ctx)
}

fn apply(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), String> {
    let (Some(name), Some(kind)) = (args.name(1), args.get(2)) else {
        return Err("too few arguments".to_owned());
    };
    let family =
        family(kind).ok_or_else(|| format!("'{}' is not known here", kind.escape_ascii()))?;
    let changes: Result<Vec<_>, _> = args.iter().skip(3).map(Change::read).collect();
    let changes = changes.map_err(|unreadable| match unreadable {
        Unreadable::Verb => "a change that is not known here".to_owned(),
        Unreadable::Fields(what) => format!("a malformed change: {what}"),
    })?;
    let applied = run::run(ctx, &name, |engine, key, now| {
        changes
            .iter()
            .try_for_each(|change| engine.follow(key, family, change, now))
    });
    match applied {
        Ok(Ok(())) => {
            ctx.signal_modified(&name);
            notify::changed(ctx, &name, family, &changes);
            Ok(())
        }
        Ok(Err(unfit)) => Err(format!("a change that does not fit: {unfit:?}")),
        Err(_) => Err("the key holds a value that is not dsync's".to_owned()),
    }
}

/// A change could not be carried out: this server and the one that wrote it no longer agree.
fn refuse(ctx: Ctx<'_>, loading: bool, reason: &str) {
    ctx.log(Level::Warning, &format!("DSYNC.APPLY failed: {reason}"));
    if loading {
        ctx.log(
            Level::Warning,
            "the AOF cannot be loaded without losing holds; the server stops",
        );
        std::process::exit(1);
    }
    SHELL.with(|shell| shell.unapplied += 1);
    ctx.error(&format!("ERR {reason}"));
}
