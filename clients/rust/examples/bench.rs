//! What this client costs in CPU time, beside redis-rs' own commands. `make bench-clients` runs it with the port of a
//! server that has the module: `DSYNC_BENCH_PORT=6379 cargo run --release --example bench`
//!
//! Prints a line of JSON for threads and one for tasks. A cycle takes a lock and releases it; its raw form is SET NX PX
//! and EVALSHA. A renewal is one of many holds that are due in the background; its raw form is one PEXPIRE. Both forms
//! take turns, so that what else the machine does meets both.

#![allow(clippy::print_stdout, reason = "an example shows its results")]

use std::error::Error;
use std::time::Duration;

use dsync_client::{Client, aio};
use nix::time::{ClockId, clock_gettime};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 20;
const CALLS: usize = 500;
const HOLDS: usize = 300;
const LEASE: Duration = Duration::from_secs(3);
/// For how long the holds are renewed while that is measured.
const RENEWING: Duration = Duration::from_secs(6);
const UNLOCK: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// The CPU time of this process so far, in microseconds.
fn cpu_us() -> Outcome<f64> {
    let time = Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?);
    Ok(time.as_secs_f64() * 1e6)
}

fn words(verb: &str, more: &[&str]) -> redis::Cmd {
    let mut command = redis::cmd(verb);
    command.arg(more);
    command
}

fn set(key: &str) -> redis::Cmd {
    words("SET", &[key, "token", "NX", "PX", "30000"])
}

fn unlock(script: &str) -> redis::Cmd {
    words("EVALSHA", &[script, "1", "bench:raw", "token"])
}

fn extend() -> redis::Cmd {
    words("PEXPIRE", &["bench:held", "30000"])
}

/// Adds up what `CALLS` calls of the work cost. The work may await.
macro_rules! add_cost {
    ($sum:expr, $work:expr) => {
        let before = cpu_us()?;
        for _ in 0..CALLS {
            $work;
        }
        $sum += cpu_us()? - before;
    };
}

/// How many renewals the server has carried out, by its INFO.
fn renewed(info: &str) -> f64 {
    let calls = info.to_lowercase();
    let calls = calls.split("cmdstat_dlock.renew:calls=").nth(1);
    let digits = calls.and_then(|calls| calls.split(',').next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0.0)
}

/// The sums of all rounds, in microseconds, and what one renewal costs.
#[derive(Default)]
struct Found {
    raw: f64,
    helper: f64,
    command: f64,
    renewal: f64,
}

impl Found {
    fn print(&self, client: &str) {
        let calls = (ROUNDS * CALLS) as f64;
        println!(
            r#"{{"client": "{client}", "cycle": {:.2}, "renewal": {:.2}, "raw_us": {:.1}, "helper_us": {:.1}, "renewal_us": {:.1}, "cycles": {calls}}}"#,
            self.helper / self.raw,
            self.renewal * calls / self.command,
            self.raw / calls,
            self.helper / calls,
            self.renewal,
        );
    }
}

fn threads(url: &str) -> Outcome<Found> {
    let mut theirs = redis::Client::open(url)?.get_connection()?;
    let ours = Client::open(url)?;
    let script: String = words("SCRIPT", &["LOAD", UNLOCK]).query(&mut theirs)?;
    let mut found = Found::default();
    // The first ones connect.
    ours.lock("bench:helper").acquire()?.release()?;
    for _ in 0..ROUNDS {
        add_cost!(found.raw, {
            set("bench:raw").exec(&mut theirs)?;
            unlock(&script).exec(&mut theirs)?;
        });
        add_cost!(
            found.helper,
            ours.lock("bench:helper").acquire()?.release()?
        );
        add_cost!(found.command, extend().exec(&mut theirs)?);
    }
    let keys = (0..HOLDS).map(|n| ours.lock(format!("bench:{n}")).lease(LEASE).acquire());
    let holds = keys.collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(LEASE / 2);
    let (before, cpu) = (
        renewed(&words("INFO", &["commandstats"]).query::<String>(&mut theirs)?),
        cpu_us()?,
    );
    std::thread::sleep(RENEWING);
    let cost = cpu_us()? - cpu;
    found.renewal =
        cost / (renewed(&words("INFO", &["commandstats"]).query::<String>(&mut theirs)?) - before);
    for hold in holds {
        hold.release()?;
    }
    Ok(found)
}

async fn tasks(url: &str) -> Outcome<Found> {
    let mut theirs = redis::Client::open(url)?
        .get_multiplexed_async_connection()
        .await?;
    let ours = aio::Client::open(url)?;
    let script: String = words("SCRIPT", &["LOAD", UNLOCK])
        .query_async(&mut theirs)
        .await?;
    let mut found = Found::default();
    ours.lock("bench:helper").acquire().await?.release().await?;
    for _ in 0..ROUNDS {
        add_cost!(found.raw, {
            set("bench:raw").exec_async(&mut theirs).await?;
            unlock(&script).exec_async(&mut theirs).await?;
        });
        add_cost!(
            found.helper,
            ours.lock("bench:helper").acquire().await?.release().await?
        );
        add_cost!(found.command, extend().exec_async(&mut theirs).await?);
    }
    let mut holds = Vec::new();
    for n in 0..HOLDS {
        holds.push(
            ours.lock(format!("bench:{n}"))
                .lease(LEASE)
                .acquire()
                .await?,
        );
    }
    tokio::time::sleep(LEASE / 2).await;
    let info = words("INFO", &["commandstats"]);
    let (before, cpu) = (
        renewed(&info.query_async::<String>(&mut theirs).await?),
        cpu_us()?,
    );
    tokio::time::sleep(RENEWING).await;
    let cost = cpu_us()? - cpu;
    found.renewal = cost / (renewed(&info.query_async::<String>(&mut theirs).await?) - before);
    for hold in holds {
        hold.release().await?;
    }
    Ok(found)
}

fn main() -> Outcome<()> {
    let url = format!("redis://127.0.0.1:{}", std::env::var("DSYNC_BENCH_PORT")?);
    threads(&url)?.print("redis-rs");
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(tasks(&url))?.print("redis-rs, tokio");
    Ok(())
}
