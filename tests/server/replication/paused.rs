//! What goes out while writes are paused: nothing.
//!
//! The promise: CLIENT PAUSE, FAILOVER and SHUTDOWN in the middle of a wave of leases that come due stop
//! it where it is. Neither the replication offset nor the AOF moves by a byte, no key ends and nobody is
//! granted until the pause is over; then all lapse, whoever waits is served, and the replica has the same.
//!
//! (That the server survives such pauses again and again is in `pitfalls`, the lease clock's part of it in
//! `lease_clock`.)

use crate::support::steps::*;
use crate::support::*;
use std::fs;
use std::time::{Duration, Instant};

const LEASES: usize = 2_000;
/// Every so many locks one has a waiter.
const WAITED: usize = 40;
/// For what must not happen, while many leases would have come due.
const PAUSED_FOR: Duration = Duration::from_millis(500);

/// A primary with an AOF, in the middle of a wave of lapses.
struct Wave {
    primary: Server,
    replica: Server,
    stream: ReplicationStream,
    waiters: Vec<Client>,
}

impl Wave {
    fn start() -> Wave {
        let primary = Server::builder()
            .config("appendonly", "yes")
            // What is to be written is written at once, and not when an fsync before it is done.
            .config("appendfsync", "no")
            // Every so often a primary says PING to its replicas, whatever else is paused.
            .config("repl-ping-replica-period", 3600)
            .config("shutdown-timeout", 600)
            .start();
        let replica = Server::builder().replica_of(&primary).start();
        let stream = ReplicationStream::attach(&primary);
        let mut client = primary.connect();
        let grants: Vec<String> = (0..LEASES)
            .map(|n| format!("DLOCK.ACQUIRE k{n} PX {}", 600 + n * 3 / 2))
            .collect();
        for some in grants.chunks(500) {
            for granted in at_once(&mut client, some) {
                granted.grant();
            }
        }
        let waiters = (0..LEASES)
            .step_by(LEASES / WAITED)
            .map(|n| {
                let mut waiter = primary.connect();
                tell(
                    &mut waiter,
                    format!("DLOCK.ACQUIRE k{n} BLOCK 0 PX 200 TOKEN w{n}"),
                );
                waiter
            })
            .collect();
        let wave = Wave {
            primary,
            replica,
            stream,
            waiters,
        };
        eventually("the middle of the wave", SOON, || {
            wave.keys() < LEASES as i64 * 4 / 5
        });
        wave
    }

    fn keys(&self) -> i64 {
        ask(&mut self.primary.connect(), "DBSIZE").as_int()
    }

    /// The replication offset, the length of the AOF and the number of keys.
    fn position(&self) -> (u64, u64, i64) {
        let files = fs::read_dir(self.primary.dir().join("appendonlydir"))
            .expect("the AOF has a directory");
        let length = |file: std::io::Result<fs::DirEntry>| {
            let file = file.expect("an entry of a directory");
            file.metadata().expect("a file of the AOF").len()
        };
        (
            self.primary
                .info_number("replication", "master_repl_offset"),
            files.map(length).sum(),
            self.keys(),
        )
    }

    /// Asserts that nothing moves. Writes are paused already.
    #[track_caller]
    fn assert_stands_still(&mut self) {
        // What was under way when the pause began arrives first.
        self.stream.take_until_quiet(A_WHILE);
        let before = self.position();
        assert!(before.2 > 0, "the pause came too late");
        let until = Instant::now() + PAUSED_FOR;
        while Instant::now() < until {
            if let Some(command) = self.stream.next(A_WHILE) {
                panic!("replicated while writes are paused: {:?}", words(&command));
            }
            assert_eq!(self.position(), before);
        }
    }

    /// Asserts that all of it ends and everybody is served.
    #[track_caller]
    fn assert_ends(mut self) {
        for (n, waiter) in self.waiters.iter_mut().enumerate() {
            let number = n * (LEASES / WAITED);
            assert_eq!(granted(waiter).0, format!("w{number}"));
            expect_no_more(waiter);
        }
        eventually("the end of the wave", SOON, || self.keys() == 0);
        self.replica.wait_to_catch_up_with(&self.primary);
        assert_eq!(ask(&mut self.replica.connect(), "DBSIZE"), 0);
        assert_calm(&self.primary);
        assert_calm(&self.replica);
    }
}

#[test]
fn nothing_goes_out_during_client_pause() {
    let mut wave = Wave::start();
    let mut client = wave.primary.connect();
    assert_eq!(ask(&mut client, "CLIENT PAUSE 60000 WRITE"), "OK");
    wave.assert_stands_still();
    assert_eq!(ask(&mut client, "CLIENT UNPAUSE"), "OK");
    wave.assert_ends();
}

#[test]
fn nothing_goes_out_while_a_failover_waits_for_its_replica() {
    let mut wave = Wave::start();
    let mut client = wave.primary.connect();
    wave.replica.stop();
    ask(&mut client, "PUBLISH the-replica cannot-hear-this");
    let failover = format!(
        "FAILOVER TO 127.0.0.1 {} TIMEOUT 60000",
        wave.replica.port()
    );
    assert_eq!(ask(&mut client, failover), "OK");
    wave.assert_stands_still();
    assert_eq!(ask(&mut client, "FAILOVER ABORT"), "OK");
    wave.replica.cont();
    wave.assert_ends();
}

#[test]
fn nothing_goes_out_while_a_shutdown_waits_for_its_replica() {
    let mut wave = Wave::start();
    let mut client = wave.primary.connect();
    wave.replica.stop();
    ask(&mut client, "PUBLISH the-replica cannot-hear-this");
    let mut admin = wave.primary.connect();
    tell(&mut admin, "SHUTDOWN");
    eventually("a shutdown that waits", SOON, || {
        let info = wave.primary.info_section("server");
        info.contains("shutdown_in_milliseconds")
    });
    wave.assert_stands_still();
    assert_eq!(ask(&mut client, "SHUTDOWN ABORT"), "OK");
    assert!(reply(&mut admin).is_error());
    wave.replica.cont();
    wave.assert_ends();
}
