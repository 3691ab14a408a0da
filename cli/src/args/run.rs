//! The options of `dsync run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueHint};

use super::keys::utf8_key;
use super::values::{lane, lease, min_hold, owner};
use crate::duration;

// `requires` alone would not do: clap waives it where the required option conflicts with a given one, as the keys do.
const NOT_HELD: [&str; 2] = ["once", "group"];
const NOT_ONCE: [&str; 3] = ["lock", "semaphore", "group"];

const RUN_AFTER: &str = "\
Examples:
  dsync run --lock nightly --lease 60s ./job.sh
  dsync run --semaphore api --limit 5 --wait 5m ./call.sh
  dsync run --once report:7 --max 3 --delay 1m ./report.sh
  dsync run --lock customer:7 --lock invoice:9 --try ./pay.sh

Exit status:
  the command's own, or 128 + N if signal N ended it
   64  the command line is wrong
   69  the server cannot be reached
   71  this machine refused to start or to watch a process
   75  busy: others hold or wait, and --try or --wait left no more time (-E changes it)
   76  the server answered with an error
   77  the hold was lost, and a process that became another user may not be stopped: it works on
   79  the hold was lost, and the command stopped
   80  given up: the work has failed --max times
  126  the command cannot be executed
  127  there is no such command
With --once, 0 also says that the work was done already.

The command's environment has DSYNC_FENCE, the number of the hold, which only grows: let what the command writes to refuse \
a lower one than it has seen; of several keys, the numbers of the locks and then of the semaphores with commas between \
them. With --once, DSYNC_ATTEMPT is the number of the attempt, from 1; with --index, DSYNC_INDEX is \
the index of the hold, from 0. DSYNC_URL, REDIS_URL and REDISCLI_AUTH are inherited unless --hide-server is given.

A request that waits has a place that the server keeps for 5 s after it last heard of it, so the death of a waiter (kill -9) \
costs the next in line 5 s at most. When the command has ended and the server does not answer, dsync goes on telling it the \
end of the hold for the lease and 5 s (at most 35 s where no success is to be told); SIGTERM ends that within 2 s.";

/// Run a command while holding a lock, permits of a semaphore, a work-once key or a place in a group
///
/// Waits in the server's queue, first come, first served; renews the lease while the command runs; releases when the
/// command and what it left behind in its session have ended. If the hold is lost, because the server cannot be reached
/// or somebody revoked it, the command and all that descends from it get SIGTERM, and SIGKILL before the lease has run
/// out by this machine's clock.
#[derive(Args, Debug)]
#[command(after_help = RUN_AFTER, group = ArgGroup::new("what").required(true).multiple(true).args(["lock", "semaphore", "once", "group"]))]
pub struct Run {
    /// Hold the lock KEY. Locks and semaphores may be given several times: all are held, or none
    #[arg(long, value_name = "KEY", value_parser = utf8_key(), conflicts_with_all = NOT_HELD)]
    pub lock: Vec<String>,
    /// Share the locks with others who say --shared
    #[arg(long, requires = "lock", conflicts_with_all = NOT_HELD)]
    pub shared: bool,
    /// Hold permits of the semaphore KEY
    #[arg(long, value_name = "KEY", value_parser = utf8_key(), conflicts_with_all = NOT_HELD)]
    pub semaphore: Vec<String>,
    /// How many permits there are, or members of a group at a time (1 to 1000000) [default: the limit in force]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), conflicts_with = "once")]
    pub limit: Option<u32>,
    /// How many permits to take (1 to 1000000) [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), requires = "semaphore", conflicts_with_all = NOT_HELD)]
    pub permits: Option<u32>,
    /// Stand in this lane (1 to 128 bytes): free permits go to the lane that has the fewest in use
    #[arg(long, value_name = "TEXT", value_parser = lane, requires = "semaphore", conflicts_with_all = NOT_HELD)]
    pub lane: Option<String>,
    /// How many permits the lane may have in use (1 to 1000000) [default: no bound of its own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), requires = "lane", conflicts_with_all = NOT_HELD)]
    pub lane_limit: Option<u32>,
    /// Take the lowest number from 0 that no other holder of the semaphore has, as DSYNC_INDEX; for one permit
    #[arg(long, conflicts_with = "permits", requires = "semaphore", conflicts_with_all = NOT_HELD)]
    pub index: bool,
    /// How long the lock or the permits stay taken from the grant on, also if the command ends earlier (1ms to 30d)
    #[arg(long, value_name = "TIME", value_parser = min_hold, conflicts_with_all = ["once", "group"])]
    pub min_hold: Option<Duration>,
    /// Do the work KEY once: exit status 0 is done, any other a failed attempt; done already is success
    #[arg(long, value_name = "KEY", value_parser = utf8_key(), conflicts_with = "group")]
    pub once: Option<String>,
    /// How many attempts there may be in all, whoever makes them (1 to 1000000) [default: no bound]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), conflicts_with_all = NOT_ONCE)]
    pub max: Option<u32>,
    /// After a failed attempt nobody begins again for so long
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with_all = NOT_ONCE)]
    pub delay: Option<Duration>,
    /// Remember for so long that the work is done [default: what the server is set to, a day]
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive, conflicts_with = "forever", conflicts_with_all = NOT_ONCE)]
    pub keep: Option<Duration>,
    /// Remember until the key is removed that the work is done
    #[arg(long, conflicts_with_all = NOT_ONCE)]
    pub forever: bool,
    /// Be a member of the group KEY: exit status 0 counts as done, any other does not
    #[arg(long, value_name = "KEY", value_parser = utf8_key())]
    pub group: Option<String>,
    /// How long the hold lasts without renewal; it is renewed each third of it (1s to 24h)
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = lease)]
    pub lease: Duration,
    /// How long the command has between SIGTERM and SIGKILL when the hold is lost, at most two fifths of the lease
    /// [default: a fifth, at most 10s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub grace: Option<Duration>,
    /// Do not wait when others hold or wait
    #[arg(long = "try", conflicts_with = "wait")]
    pub no_wait: bool,
    /// Wait at most so long [default: without limit]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub wait: Option<Duration>,
    /// The hold is lost so long after its grant at the latest, however often it is renewed
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    pub max_hold: Option<Duration>,
    #[command(flatten)]
    pub confirm: Confirm,
    /// Who holds, for others to read (at most 128 bytes) [default: USER@HOST:PID]
    #[arg(long, value_name = "TEXT", value_parser = owner)]
    pub owner: Option<String>,
    /// The exit status for busy, instead of 75
    #[arg(short = 'E', long, value_name = "STATUS", default_value_t = 75)]
    pub conflict_exit_code: u8,
    /// The command does not inherit REDIS_URL, REDISCLI_AUTH and what begins with DSYNC_, apart from what describes its
    /// hold
    #[arg(long)]
    pub hide_server: bool,
    /// Print nothing but errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say on stderr what happens, also where it is no terminal: waiting, granted, the server is back, released
    #[arg(short, long)]
    pub verbose: bool,
    /// The command and its arguments, after -- if it begins with a dash
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

impl Run {
    /// Returns what is wrong with the keys and the options for them, if anything is. Each option is for all keys that take
    /// it; what depends on the semaphore is for one.
    pub fn check(&self) -> Result<(), String> {
        for (option, keys) in [("--lock", &self.lock), ("--semaphore", &self.semaphore)] {
            let mut sorted: Vec<_> = keys.iter().collect();
            sorted.sort();
            if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!("{option} {} is given twice", twice[0]));
            }
        }
        if let Some(both) = self.lock.iter().find(|key| self.semaphore.contains(key)) {
            return Err(format!("{both} can be a lock or a semaphore, not both"));
        }
        if self.limit.is_some() && self.semaphore.is_empty() && self.group.is_none() {
            return Err("--limit is for --semaphore and --group".into());
        }
        let of_one = [
            ("--limit", self.limit.is_some()),
            ("--permits", self.permits.is_some()),
            ("--lane", self.lane.is_some()),
            ("--index", self.index),
        ];
        match of_one.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) if self.semaphore.len() > 1 => Err(format!(
                "{option} is for one semaphore, and there are {}; without --limit the one in force counts",
                self.semaphore.len()
            )),
            _ => Ok(()),
        }
    }
}

/// Who has to know of a grant, of a renewal, and that the work is done, before it counts.
#[derive(Args, Clone, Debug, Default)]
pub struct Confirm {
    /// Run the command only while so many replicas (1 to 1000000), or all that there are, have confirmed the hold
    #[arg(long, value_name = "N|all", value_parser = replicas)]
    pub replicas: Option<Replicas>,
    /// Run it only while the hold is on the disk of the server, and of the replicas; Redis 7.2 or Valkey, with an AOF
    #[arg(long)]
    pub disk: bool,
    /// How long a confirmation may take until it is asked for again, at most the lease [default: a tenth of the lease, at
    /// most 500ms]
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive)]
    pub within: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replicas {
    Count(u32),
    All,
}

fn replicas(text: &str) -> Result<Replicas, String> {
    match text.parse() {
        _ if text == "all" => Ok(Replicas::All),
        Ok(count @ 1..=1_000_000) => Ok(Replicas::Count(count)),
        _ => Err("must be 1 to 1000000, or all".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    fn run(line: &str) -> Run {
        match parse(line).map(|cli| cli.command) {
            Ok(Command::Run(run)) => *run,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_after_the_dashes_belong_to_the_command() {
        let run = run("dsync run --lock nightly -- ./job.sh --lock x -v");
        assert_eq!(run.command, ["./job.sh", "--lock", "x", "-v"]);
        assert!(!run.verbose);
        assert_eq!(run.lease, Duration::from_secs(30));
    }

    #[test]
    fn command_begins_at_the_first_word_that_is_no_option() {
        let run = run("dsync run --lock nightly -q ./job.sh --lock x -v -- -y");
        assert_eq!(run.command, ["./job.sh", "--lock", "x", "-v", "--", "-y"]);
        assert!(run.quiet && !run.verbose);
        assert!(parse("dsync run --lock nightly -job").is_err());
    }

    #[test]
    fn exactly_one_key_is_named() {
        assert!(parse("dsync run -- true").is_err());
        assert!(parse("dsync run --lock a --once b -- true").is_err());
        assert!(parse("dsync run --lock a").is_err());
        assert!(parse("dsync run --lock= -- true").is_err());
    }

    #[test]
    fn options_of_other_families_are_refused() {
        for options in [
            "--lock a --limit 5",
            "--lock a --permits 2",
            "--lock a --max 3",
            "--lock a --forever",
            "--once a --limit 5",
            "--once a --shared",
            "--once a --keep 1d --forever",
            "--group a --permits 2",
            "--group a --lane t",
            "--lock a --index",
            "--once a --min-hold 1s",
            "--semaphore a --limit 5 --lane-limit 2",
            "--semaphore a --limit 5 --lane=",
            "--semaphore a --limit 5 --permits 2 --index",
            "--semaphore a --limit 5 --min-hold 0",
            "--semaphore a --limit 5 --min-hold 31d",
            "--semaphore a --delay 1s",
            "--lock a --try --wait 5m",
            "--lock a --lease 0.9s",
            "--lock a --lease 2d",
            "--lock a --replicas 0",
            "--lock a --replicas every",
            "--lock a --max-hold 0",
            "--lock a --lock a",
            "--lock a --semaphore b --semaphore a",
            "--lock a --group b",
            "--semaphore a --once b",
            "--semaphore a --shared",
            "--once a --shared",
            "--semaphore a --semaphore b --limit 5",
            "--semaphore a --semaphore b --index",
        ] {
            let line = format!("dsync run {options} -- true");
            let refused = match parse(&line).map(|cli| cli.command) {
                Ok(Command::Run(run)) => run.check().is_err(),
                _ => true,
            };
            assert!(refused, "{options}");
        }
        for options in [
            "--lock a --shared --try",
            "--semaphore a --limit 5 --permits 2 --wait 5m",
            "--semaphore a",
            "--semaphore a --limit 5 --lane t --lane-limit 2 --index --min-hold 200ms",
            "--lock a --shared --min-hold 55",
            "--once a --max 3 --delay 1s --keep 7d",
            "--once a --forever",
            "--group a --limit 3 --lease 60",
            "--lock a --lock b --semaphore c --limit 5 --shared --min-hold 1s",
            "--semaphore a --semaphore b --try",
            "--lock a --replicas 2 --within 200ms --max-hold 1h",
            "--once a --replicas all --disk",
        ] {
            assert!(
                run(&format!("dsync run {options} -- true")).check().is_ok(),
                "{options}"
            );
        }
    }
}
