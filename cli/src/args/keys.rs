//! The options of the subcommands that are about one key.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};

use crate::duration;
use crate::family::Family;
use crate::text::name;

/// Show who holds a key and who waits for it, of any type
///
/// The fields are those of the server's INFO of the key. Exit status 1: there is no such key.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  dsync info nightly\n  dsync info nightly --watch")]
pub struct Info {
    #[arg(value_parser = key())]
    pub key: OsString,
    /// How many holders, waiters and lanes to list (1 to 1000)
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub count: u32,
    /// Look again each second; where stdout is no terminal, print only when something has changed
    #[arg(short, long)]
    pub watch: bool,
    /// Print a JSON object, with --watch one a line
    #[arg(long)]
    pub json: bool,
}

/// Grant nobody a key for some time: the stop button of an operator
///
/// It ends no hold. When the time is over, the queue goes on by itself; `dsync resume` ends it earlier.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  dsync pause api 10m\n  dsync pause api 10m --type semaphore")]
pub struct Pause {
    #[arg(value_parser = key())]
    pub key: OsString,
    /// For how long (1ms to 30d)
    #[arg(value_parser = duration::parse_positive)]
    pub time: Duration,
    /// The type of a key that does not exist yet
    #[arg(long = "type", value_name = "TYPE")]
    pub family: Option<Family>,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// End the pause of a key now: its queue goes on
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  dsync resume api")]
pub struct Resume {
    #[arg(value_parser = key())]
    pub key: OsString,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Look at work that is done once, and end an attempt by its token
#[derive(Subcommand, Debug)]
#[command(
    after_help = "Examples:\n  dsync once get report:7\n  dsync once done report:7 --token-file token --result ok"
)]
pub enum Once {
    /// Print the result of work that is done; exit status 75 while it is not, 80 when it has failed and nobody is at work
    Get {
        #[arg(value_parser = utf8_key())]
        key: String,
        #[command(flatten)]
        retry: Retry,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Record the work as done, with the token of its attempt
    Done {
        #[arg(value_parser = utf8_key())]
        key: String,
        #[command(flatten)]
        attempt: Attempt,
        /// What everybody who asks for the work is told
        #[arg(long, value_name = "TEXT")]
        result: Option<String>,
        /// Remember for so long that the work is done [default: what the server is set to, a day]
        #[arg(long, value_name = "TIME", value_parser = duration::parse_positive, conflicts_with = "forever")]
        keep: Option<Duration>,
        /// Remember it until the key is removed
        #[arg(long)]
        forever: bool,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// End the attempt as failed, with its token: the next in line begins
    Fail {
        #[arg(value_parser = utf8_key())]
        key: String,
        #[command(flatten)]
        attempt: Attempt,
        /// Why, for those who are told that the work is given up; cut after 1,000 bytes
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Nobody begins again for so long
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        delay: Option<Duration>,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Which attempt ends, and how long its end is told.
#[derive(Args, Debug)]
pub struct Attempt {
    /// File whose first line is the token, with a mode as for --password-file [default: the variable DSYNC_TOKEN]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
    /// How long to repeat it while no server answers: the lease and 5s, which a server that takes over adds
    #[arg(long, value_name = "TIME", default_value = "35s", value_parser = duration::parse)]
    pub retry_for: Duration,
}

/// How long a request is repeated.
#[derive(Args, Debug)]
pub struct Retry {
    /// How long to repeat the request while no server answers
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub retry_for: Duration,
}

/// Declare the jobs of a wait group, and wait until they are done
#[derive(Subcommand, Debug)]
#[command(
    after_help = "Examples:\n  dsync group expect import 100\n  dsync group wait import --wait 1h"
)]
pub enum Group {
    /// Declare how many jobs the round has in all (1 to 1000000), before anybody waits. Prints how many are still owed
    Expect {
        #[arg(value_parser = utf8_key())]
        key: String,
        #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        jobs: u32,
        #[command(flatten)]
        retry: Retry,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show the round: how many members are owed, hold, are done and have lapsed, as `dsync info` does
    Info(Info),
    /// Wait until the round is finished. Prints how many members were done, and how many lapsed
    ///
    /// Exit status 75: the time was over first.
    Wait {
        #[arg(value_parser = utf8_key())]
        key: String,
        /// Wait at most so long [default: without limit]
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        wait: Option<Duration>,
        #[command(flatten)]
        retry: Retry,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
}

/// A key of any bytes.
pub fn key() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|key| match key.is_empty() {
        true => Err("must not be empty"),
        false => Ok(key),
    })
}

/// A key for the client library.
pub fn utf8_key() -> impl TypedValueParser<Value = String> {
    key().try_map(|key| {
        let refused = |key: OsString| {
            let key = name(key.as_bytes());
            format!("{key} is no UTF-8: only info, ls, revoke, pause and resume take such keys")
        };
        key.into_string().map_err(refused)
    })
}
