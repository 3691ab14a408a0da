//! A server whose next deadline is far away sleeps: the module's timer hardly fires, and no processor time is spent.
//!
//! The loss behind it: Redis 7.0 multiplies the milliseconds to the next timer of a module by 1000 in a 32-bit integer
//! (`ae.c`, processTimeEvents). With 36 to 71 minutes left the product is negative, and the event loop spun until that
//! time was over. Longer times wrap around, so the same happened later.

use crate::support::steps::SOON;
use crate::support::*;
use std::thread;
use std::time::{Duration, Instant};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
const YEAR_MS: u64 = 365 * DAY_MS;

/// How long a server is watched while nothing happens.
const WATCHED_FOR: Duration = Duration::from_secs(1);
/// A server must be found asleep in one of this many such times.
const WATCHED_TIMES: u32 = 5;
/// How often the timer may fire in that time: the lease index moves entries down a few levels.
const MAX_TICKS: u64 = 5;
/// Processor time that may be spent in that time. The server's own cron takes two or three milliseconds.
const MAX_CPU_MS: f64 = 50.0;

/// A server whose deadlines are far away, and the clients that wait there.
struct Sleeper {
    case: String,
    server: Server,
    waiters: Vec<Client>,
}

impl Sleeper {
    #[track_caller]
    fn start(case: impl Into<String>, requests: &[&str]) -> Sleeper {
        let server = Server::builder()
            .module_arg("max-lease-ms")
            .module_arg(30 * DAY_MS)
            .start();
        let mut client = server.connect();
        for request in requests {
            let words: Vec<&str> = request.split(' ').collect();
            let reply = client.call(&words);
            assert!(!reply.is_error(), "{request}: {reply:?}");
        }
        let case = case.into();
        let waiters = Vec::new();
        Sleeper {
            case,
            server,
            waiters,
        }
    }

    #[track_caller]
    fn with_waiter(mut self, request: &str) -> Sleeper {
        let mut client = self.server.connect();
        client.send(&request.split(' ').collect::<Vec<_>>());
        self.waiters.push(client);
        self.server.wait_for_blocked(self.waiters.len() as u64);
        self
    }

    /// Lets the timer fire once, for a waiter whose BLOCK ends. The far deadline is then armed from within the timer,
    /// which is where Redis 7.0 computes it wrongly.
    #[track_caller]
    fn nudge(&self) {
        let mut client = self.server.connect();
        let nudge = ["DLOCK.ACQUIRE", "nudge", "TOKEN", "n", "PX", "86400000"];
        client.call(&nudge).grant();
        let before = self.ticks();
        let waited = client.ask("DLOCK.ACQUIRE nudge BLOCK 1");
        assert!(waited.is_nil(), "{}: {waited:?}", self.case);
        assert_eq!(client.ask("DLOCK.RELEASE nudge n"), 1);
        eventually("the timer has fired", SOON, || self.ticks() > before);
    }

    #[track_caller]
    fn ticks(&self) -> u64 {
        self.server.info_number("dsync", "dsync_timer_ticks")
    }

    #[track_caller]
    fn cpu_ms(&self) -> f64 {
        let cpu = self.server.info_section("cpu");
        let seconds = |name: &str| -> f64 {
            let value = cpu.lines().find_map(|line| line.strip_prefix(name));
            value
                .expect("a field of INFO cpu")
                .parse()
                .expect("a number")
        };
        1_000.0 * (seconds("used_cpu_sys:") + seconds("used_cpu_user:"))
    }
}

/// Watches all of them in the same seconds. A server passes after one second in which it slept: an event loop that
/// spins does so in each, and a server that has just started, or a busy machine, does not.
#[track_caller]
fn assert_they_sleep(sleepers: &[Sleeper]) {
    sleepers.iter().for_each(Sleeper::nudge);
    let mut awake: Vec<&Sleeper> = sleepers.iter().collect();
    let mut restless = Vec::new();
    for _ in 0..WATCHED_TIMES {
        let before: Vec<_> = awake
            .iter()
            .map(|sleeper| (sleeper.ticks(), sleeper.cpu_ms(), Instant::now()))
            .collect();
        thread::sleep(WATCHED_FOR);
        restless.clear();
        let mut still_awake = Vec::new();
        for (sleeper, (ticks, cpu_ms, since)) in awake.into_iter().zip(before) {
            let allowed_ms = MAX_CPU_MS * since.elapsed().as_secs_f64();
            let (ticks, cpu_ms) = (sleeper.ticks() - ticks, sleeper.cpu_ms() - cpu_ms);
            if ticks > MAX_TICKS || cpu_ms > allowed_ms {
                restless.push(format!(
                    "{}: the timer fired {ticks} times, {cpu_ms:.0} ms of processor time",
                    sleeper.case
                ));
                still_awake.push(sleeper);
            }
            sleeper
                .server
                .wait_for_blocked(sleeper.waiters.len() as u64);
        }
        awake = still_awake;
        if awake.is_empty() {
            break;
        }
    }
    assert!(restless.is_empty(), "{restless:#?}");
}

#[test]
fn far_lease_leaves_server_asleep() {
    let sleepers: Vec<_> = [40 * MINUTE_MS, HOUR_MS, 71 * MINUTE_MS, DAY_MS, 30 * DAY_MS]
        .into_iter()
        .map(|ms| {
            Sleeper::start(
                format!("a lease of {ms} ms"),
                &[&format!("DLOCK.ACQUIRE l PX {ms}")],
            )
        })
        .chain([
            Sleeper::start("permits for an hour", &["DSEM.ACQUIRE s LIMIT 3 EX 3600"]),
            Sleeper::start("a member for an hour", &["DWG.ADD g EX 3600"]),
            Sleeper::start("a run of an hour", &["DONCE.BEGIN o EX 3600"]),
            Sleeper::start(
                "a lease that was renewed",
                &["DLOCK.ACQUIRE l TOKEN t PX 1000", "DLOCK.RENEW l t EX 3600"],
            ),
        ])
        .collect();
    assert_they_sleep(&sleepers);
}

#[test]
fn far_end_of_wait_leaves_server_asleep() {
    let held = ["DLOCK.ACQUIRE l PX 86400000"];
    let sleepers: Vec<_> = [40 * MINUTE_MS, HOUR_MS, DAY_MS, 30 * DAY_MS, YEAR_MS, 0]
        .into_iter()
        .map(|ms| {
            Sleeper::start(format!("a wait of {ms} ms"), &held)
                .with_waiter(&format!("DLOCK.ACQUIRE l BLOCK {ms}"))
        })
        .chain([
            Sleeper::start("a wait for a group", &["DWG.ADD g EX 86400"])
                .with_waiter("DWG.WAIT g BLOCK 3600000"),
            Sleeper::start("a wait for work", &["DONCE.BEGIN o EX 86400"])
                .with_waiter("DONCE.BEGIN o BLOCK 3600000"),
        ])
        .collect();
    assert_they_sleep(&sleepers);
}

#[test]
fn far_end_of_retention_leaves_server_asleep() {
    let done = "DONCE.BEGIN o TOKEN t";
    let once = |what: &str, end: &str| Sleeper::start(what, &[done, end]);
    let group = |what: &str, setting: &str, request: &str| {
        Sleeper::start(what, &[setting, "DWG.ADD g TOKEN t", request])
    };
    let sleepers = [
        once("a result kept for an hour", "DONCE.DONE o t EX 3600"),
        once("a result kept for a day", "DONCE.DONE o t"),
        once("a result kept for ten years", "DONCE.DONE o t EX 315360000"),
        once("attempts kept for a day", "DONCE.FAIL o t"),
        group("a tally kept for a minute", "PING", "DWG.DONE g t"),
        group(
            "a tally kept for an hour",
            "CONFIG SET dsync.group-keep-ms 3600000",
            "DWG.DONE g t",
        ),
        group(
            "a tally kept for thirty days",
            "CONFIG SET dsync.group-keep-ms 2592000000",
            "DWG.DONE g t",
        ),
        Sleeper::start("a group idle for a day", &["DWG.EXPECT g 2"]),
        Sleeper::start(
            "a group idle for an hour",
            &["CONFIG SET dsync.group-idle-ms 3600000", "DWG.EXPECT g 2"],
        ),
        Sleeper::start(
            "a group idle for a year",
            &[
                "CONFIG SET dsync.group-idle-ms 31536000000",
                "DWG.EXPECT g 2",
            ],
        ),
    ];
    assert_they_sleep(&sleepers);
}

#[test]
fn server_without_deadline_is_asleep() {
    let sleepers = [
        Sleeper::start("nothing at all", &[]),
        Sleeper::start("a pinned semaphore", &["DSEM.LIMIT s 3"]),
        Sleeper::start("a paused semaphore that is waited for", &["DSEM.LIMIT s 0"])
            .with_waiter("DSEM.ACQUIRE s BLOCK 0"),
        Sleeper::start(
            "a hold that was released",
            &["DLOCK.ACQUIRE l TOKEN t EX 3600", "DLOCK.RELEASE l t"],
        ),
        Sleeper::start(
            "a lock that was renamed, and was searched for",
            &["DLOCK.ACQUIRE old TOKEN t EX 86400", "RENAME old new"],
        ),
        Sleeper::start(
            "a vacant place",
            &[
                "CONFIG SET dsync.rejoin-ms 600000",
                "DLOCK.ACQUIRE l EX 86400",
            ],
        ),
    ];
    // The last one's waiter leaves, and its place stays.
    let vacant = sleepers.last().expect("six of them");
    let mut waiter = vacant.server.connect();
    waiter.begin("DLOCK.ACQUIRE l BLOCK 0 TOKEN w");
    vacant.server.wait_for_blocked(1);
    waiter.close();
    vacant.server.wait_for_blocked(0);
    assert_they_sleep(&sleepers);
}
