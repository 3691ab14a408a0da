//! The command line: every option, its bounds and its help. What the options mean is carried out elsewhere.

mod keys;
mod run;
mod server;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, Args, Parser, Subcommand};

use crate::duration;
use crate::family::Family;
pub use keys::{Attempt, Group, Info, Once, Pause, Resume};
pub use run::{Confirm, Replicas, Run};
pub use server::Server;
use values::interval;

const AFTER: &str = "\
The server is a Redis or Valkey server that has loaded the dsync module. Its options stand before the subcommand or behind \
it. Durations are written like 500ms, 90 (seconds), 5m, 1h30m or 7d.

Environment:
  DSYNC_URL       where the server is, without -h, -p, --url, --sentinel and --profile
  DSYNC_PROFILE   its name in ~/.config/dsync.toml, without these and DSYNC_URL
  REDIS_URL       where it is, without all of these
  REDISCLI_AUTH   the password, if neither an option nor the URL nor the profile has one
  NO_COLOR        no colours and bold letters, also on a terminal";

/// Run commands under locks of a Redis or Valkey server, and see who holds them
#[derive(Parser, Debug)]
#[command(name = "dsync", version, after_help = AFTER, max_term_width = 100)]
#[command(disable_help_flag = true, arg = help())]
pub struct Cli {
    #[command(flatten)]
    pub server: Server,
    #[command(subcommand)]
    pub command: Command,
}

/// Help without a short option: -h is the host.
fn help() -> Arg {
    let help = Arg::new("help").long("help").action(ArgAction::Help);
    help.help("Print help").help_heading(None).global(true)
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Run(Box<Run>),
    #[command(visible_alias = "status")]
    Info(Info),
    #[command(visible_alias = "holds")]
    Ls(Ls),
    Revoke(Revoke),
    Pause(Pause),
    Resume(Resume),
    #[command(subcommand)]
    Once(Once),
    #[command(subcommand)]
    Group(Group),
    Log(Log),
    #[command(visible_alias = "contended")]
    Top(Top),
    /// Print the completion script of a shell: source <(dsync completions bash)
    Completions {
        shell: clap_complete::Shell,
    },
}

// What other programs call. It is no part of the definition above, so neither pages nor completions name it. This is no
// doc comment, because that would become the description of the tool.
#[derive(Subcommand, Debug)]
pub enum Hidden {
    /// Write the man pages and shell completions into a folder
    #[command(hide = true)]
    Generate { folder: PathBuf },
    /// Print what can stand at the end of the line on stdin
    #[command(hide = true)]
    Complete { shell: clap_complete::Shell },
}

/// List the holds: who holds what, since when, and how long the lease still is
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  dsync ls\n  dsync ls 'job:*' --older-than 1h\n  dsync ls --owner 'web-*' --json"
)]
pub struct Ls {
    /// Only keys that fit the pattern (*, ?, [a-z])
    #[arg(value_name = "KEY-PATTERN")]
    pub pattern: Option<OsString>,
    /// Only keys of this type
    #[arg(long = "type", value_name = "TYPE")]
    pub family: Option<Family>,
    /// Only what has been held for so long
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub older_than: Option<Duration>,
    /// Only holds whose owner fits the pattern (*, ?, [a-z])
    #[arg(long, value_name = "PATTERN")]
    pub owner: Option<String>,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
}

/// End a hold by its fence, or all holds of an owner
///
/// It does not stop the holder's work: a holder that renews learns of it at its next renewal. The fence stands in the
/// lists of `dsync ls` and `dsync top`. A waiter that keeps its place with QUEUE is withdrawn by the number of its
/// place.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  dsync revoke nightly 1795362937611227\n  dsync revoke --owner 'web-3*'"
)]
pub struct Revoke {
    /// The key that is held
    #[arg(
        required_unless_present = "owner",
        conflicts_with = "owner",
        requires = "fence"
    )]
    pub key: Option<OsString>,
    /// The fence of the hold
    pub fence: Option<u64>,
    /// All holds whose owner fits the pattern (*, ?, [a-z]); asks first
    #[arg(long, value_name = "PATTERN")]
    pub owner: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Show the last holds that ended without their holder: lapses, revocations, removed keys
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  dsync log\n  dsync log --follow --json | jq .key")]
pub struct Log {
    /// How many rows of each server (1 to 5000)
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub count: u32,
    /// Go on with new rows as they come
    #[arg(short, long)]
    pub follow: bool,
    /// Print one JSON array, or with --follow an object a line
    #[arg(long)]
    pub json: bool,
}

/// Watch what is contended: who holds, who waits, rates and wait times
#[derive(Args, Debug)]
#[command(
    after_help = "Keys of the live view:\n  s sorts, / filters by a pattern, p pauses, Enter looks into a key and r revokes one of its holds \
                  after a question\n\nExamples:\n  dsync top\n  dsync top --once\n  dsync top --json --interval 10s"
)]
pub struct Top {
    /// Measure for one interval, print and end
    #[arg(long)]
    pub once: bool,
    /// Print JSON, an object for each interval on a line
    #[arg(long)]
    pub json: bool,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// How many contended keys to show of each server (1 to 1000)
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub count: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn revoke_takes_a_hold_or_an_owner() {
        assert!(parse("dsync revoke key 17").is_ok());
        assert!(parse("dsync revoke --owner web-* --yes").is_ok());
        assert!(parse("dsync revoke key").is_err());
        assert!(parse("dsync revoke").is_err());
        assert!(parse("dsync revoke key 17 --owner web").is_err());
    }
}
