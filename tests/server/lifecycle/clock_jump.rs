//! The wall clock jumps by an hour, forwards and backwards, while leases and waits run.
//!
//! No lease lapses early, no lapse and no end of a wait is delayed, and fences never go back: leases run on the
//! monotonic clock. A DELAY of work-once runs on the wall clock, as EXPIRE does. A library that is preloaded into the
//! server shifts its wall clock; the tests are skipped without a C compiler.

use super::lease_clock::check;
use crate::support::steps::SOON;
use crate::support::*;
use std::thread;
use std::time::{Duration, Instant};

/// A server whose wall clock the test sets.
struct ShiftedServer {
    server: Server,
    clock: WallClock,
}

impl ShiftedServer {
    /// Returns `None` without a C compiler.
    fn start() -> Option<ShiftedServer> {
        let clock = WallClock::new()?;
        let server = clock.over(Server::builder()).start();
        Some(ShiftedServer { server, clock })
    }

    fn connect(&self) -> Client {
        self.server.connect()
    }
}

const HOUR_US: i64 = 3_600_000_000;

#[test]
fn wall_clock_jump_changes_no_lease_and_no_wait() {
    let Some(server) = ShiftedServer::start() else {
        return;
    };
    let mut client = server.connect();
    let seconds = |client: &mut Client| {
        client.ask("TIME").as_array()[0]
            .as_str()
            .parse::<i64>()
            .expect("a number")
    };
    let (mut last_fence, mut shift) = (0, 0);
    for jump in [-HOUR_US, HOUR_US, HOUR_US, -HOUR_US, -HOUR_US] {
        let mut waiter = server.connect();
        let start = Instant::now();
        let fence = client.ask("DLOCK.ACQUIRE k PX 1200 TOKEN t").grant().1;
        waiter.begin("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
        eventually("the waiter in its queue", SOON, || {
            *client.ask("DLOCK.INFO k").field("waiters") == 1
        });
        let mut impatient = server.connect();
        impatient.begin("DLOCK.ACQUIRE k BLOCK 300");
        let before = seconds(&mut client);
        shift += jump;
        server.clock.shift_by(shift);
        // Valkey 9.1 reads the system clock only once a millisecond.
        eventually("the server's clock to jump", SOON, || {
            let jumped = seconds(&mut client) - before;
            (jumped - jump / 1_000_000).abs() < 60
        });
        assert!(check(&mut client, "k") > 0 || start.elapsed() >= Duration::from_millis(1_200));
        assert!(
            impatient
                .recv(Duration::from_secs(3))
                .expect("its wait runs out")
                .is_nil()
        );
        assert!(start.elapsed() >= Duration::from_millis(300));
        // The lapse comes within one tick of the server's cron; the rest is for a machine under load.
        let next = waiter
            .recv(Duration::from_secs(4))
            .expect("the lapse was held up by the clock")
            .grant()
            .1;
        assert!(
            start.elapsed() >= Duration::from_millis(1_200),
            "lapsed early, after {:?}",
            start.elapsed()
        );
        assert!(
            fence > last_fence && next > fence,
            "fences never go back: {last_fence} {fence} {next}"
        );
        last_fence = next;
        assert_eq!(client.ask("DLOCK.RELEASE k w"), 1);
    }
}

#[test]
fn wall_clock_jump_moves_end_of_delay() {
    const DELAY_MS: i64 = 20_000;
    let Some(server) = ShiftedServer::start() else {
        return;
    };
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN t");
    let mut waiter = server.connect();
    waiter.begin("DONCE.BEGIN job BLOCK 0");
    eventually("the waiter in its queue", SOON, || {
        *client.ask("DONCE.INFO job").field("waiters") == 1
    });
    assert_eq!(
        client.ask(format!("DONCE.FAIL job t DELAY {}", DELAY_MS)),
        1
    );
    server.clock.shift_by(-HOUR_US);
    eventually("an hour more to wait", SOON, || {
        let left_ms = client.ask("DONCE.INFO job");
        left_ms.field("delay-left-ms").as_int() > DELAY_MS
    });
    // The timer was armed for an hour later. The server's cron finds out that the clock has jumped.
    server.clock.shift_by(HOUR_US);
    let begun = waiter.recv(SOON).expect("the waiter begins");
    assert_eq!(begun.as_array()[0], *"RUN");
}

/// The server compares all its timers with the moment at which it began to fire them. If the clock is set back after
/// that moment, a timer that is armed in a timer's callback is due at once, and so is the next one: for an hour here.
#[test]
fn wall_clock_set_back_while_timer_fires_stalls_nobody() {
    const READINGS: i64 = 24;
    let Some(server) = ShiftedServer::start() else {
        return;
    };
    let mut client = server.connect();
    let ticks = |client: &mut Client| {
        let info = client.ask("INFO dsync");
        let line = info
            .as_str()
            .lines()
            .find_map(|line| line.strip_prefix("dsync_timer_ticks:"));
        line.and_then(|ticks| ticks.parse::<i64>().ok())
            .expect("a number")
    };
    client.ask("DLOCK.ACQUIRE far PX 600000");
    let before = ticks(&mut client);
    for reading in 1..=READINGS {
        client.ask("DLOCK.ACQUIRE near PX 3");
        server.clock.shift_from_reading(reading, -HOUR_US);
        thread::sleep(Duration::from_millis(6));
        eventually("the lapse", SOON, || client.ask("DBSIZE") == 1);
        server.clock.shift_by(0);
    }
    let fired = ticks(&mut client) - before;
    assert!((READINGS..READINGS * 5).contains(&fired), "{fired} times");
}
