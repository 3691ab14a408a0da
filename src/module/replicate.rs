//! Changes on their way to replicas and the AOF, and their arrival.
//!
//! ```text
//! DSYNC.APPLY key family:version change [change ...]
//! ```
//!
//! What one call did to one key travels as one command, so that nobody sees half of it: it is carried out
//! whole or not at all. Ordinary clients cannot call it. A change that is not known here comes from a newer
//! version: a replica says so in its log and goes on; the loading of an AOF ends there, see [`refuse`].

use super::redis::args::Args;
use super::redis::command::{self, Command};
use super::redis::context::{Ctx, Level};
use super::redis::io::AofWriter;
use super::{SHELL, journal, listeners, notify, run, settings};
use dsync_engine::change::Change;
use dsync_engine::follow::Unfollowed;
use dsync_engine::wire::{Arguments, Unreadable, WIRE_VERSION};
use dsync_engine::{Body, Family};

const APPLY: &std::ffi::CStr = c"DSYNC.APPLY";

/// How much of a key or a verb a line of the log shows, in bytes.
const SHOWN: usize = 128;

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
            Ok(changes) => {
                SHELL.with(|shell| shell.load.applied += changes);
                // A replica has an AOF, and perhaps replicas, of its own.
                let arguments: Vec<&[u8]> = args.iter().skip(1).collect();
                ctx.replicate(APPLY, &arguments);
                ctx.simple(c"OK");
            }
            Err(reason) => refuse(ctx, args, facts.loading(), &reason),
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

/// Carries out the changes of the command, all or none. Returns how many there were.
fn apply(ctx: Ctx<'_>, args: Args<'_>) -> Result<u64, String> {
    let (Some(name), Some(kind)) = (args.name(1), args.get(2)) else {
        return Err("it has too few arguments".to_owned());
    };
    let family =
        family(kind).ok_or_else(|| format!("'{}' is not known here", kind.escape_ascii()))?;
    let changes: Result<Vec<_>, _> = args.iter().skip(3).map(read).collect();
    let changes = changes?;
    let applied = run::run(ctx, &name, |engine, key, now| {
        let followed = engine.follow(key, family, &changes, now);
        (followed, engine.take_fence_ahead())
    });
    let Ok((followed, fence_ahead)) = applied else {
        return Err("the key holds a value that is not dsync's".to_owned());
    };
    if let Some(fence) = fence_ahead {
        journal::fence_ahead(fence);
    }
    if let Err(Unfollowed { at, misfit }) = followed {
        let change = changes.get(at).map(Change::to_string).unwrap_or_default();
        return Err(format!("its change '{change}' does not fit: {misfit}"));
    }
    ctx.signal_modified(&name);
    notify::changed(ctx, &name, family, &changes);
    Ok(changes.len() as u64)
}

fn read(argument: &[u8]) -> Result<Change, String> {
    Change::read(argument).map_err(|unreadable| {
        // The verb, and no more: a token may follow.
        let verb = argument.split(|byte| *byte == b' ').next();
        let verb = &verb.unwrap_or_default();
        let verb = verb[..verb.len().min(SHOWN)].escape_ascii();
        match unreadable {
            Unreadable::Verb => format!("its change '{verb}' is not known here"),
            Unreadable::Fields(what) => format!("its change '{verb}' is malformed: {what}"),
        }
    })
}

/// The command could not be carried out: this server and the one that wrote it no longer agree.
///
/// A replica counts it and goes on. The loading of an AOF stops the server, for going on would lose holds
/// without a word, unless the operator has said that it may.
fn refuse(ctx: Ctx<'_>, args: Args<'_>, loading: bool, reason: &str) {
    let key = args.get(1).unwrap_or_default();
    let key = key[..key.len().min(SHOWN)].escape_ascii().to_string();
    let changes = (args.len() as u64).saturating_sub(3).max(1);
    let skips = settings::aof_skips_unapplied();
    let applied = SHELL.with(|shell| {
        let load = &mut shell.load;
        if loading && skips {
            load.skipped += changes;
        }
        shell.unapplied += changes;
        load.applied
    });
    let db = ctx.db();
    let what = format!("DSYNC.APPLY failed on key '{key}' of database {db}: {reason}");
    if !loading {
        ctx.log(Level::Warning, &what);
    } else if skips {
        ctx.log(
            Level::Warning,
            &format!("{what}; left out, as dsync.aof-skip-unapplied says"),
        );
        // To the loading client, which would log an error as critical, all is well.
        return ctx.simple(c"OK");
    } else {
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
    ctx.error(&format!("ERR {reason}"));
}
