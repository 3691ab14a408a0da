//! CLIENT PAUSE, FAILOVER and SHUTDOWN pause writes in the middle of a wave of lapses.
//!
//! While writes are paused nothing is replicated: neither the replication offset nor the AOF grows by a byte, no
//! key ends and no waiter is granted. When the pause is over every overdue lease lapses, every waiter is served,
//! and the replica holds the same keys.
//!
//! Not here: the lease clock during a pause (`writes_refused`), a failover that succeeds (`failover_command`).

use crate::lifecycle::lapse_wave::{LapseWave, keys};
use crate::support::steps::*;
use crate::support::*;
use std::fs;
use std::time::{Duration, Instant};

const WAITERS: usize = 50;
/// How long a test watches that nothing happens; many leases come due meanwhile.
const PAUSED_FOR: Duration = Duration::from_millis(500);

/// A primary with an AOF and a replica, in the middle of a wave of lapses.
struct PausedPrimary {
    primary: Server,
    replica: Server,
    stream: ReplicationStream,
    wave: LapseWave,
}

impl PausedPrimary {
    fn start() -> PausedPrimary {
        PausedPrimary::with_shutdown_timeout(600)
    }

    /// `seconds`: how long SHUTDOWN waits for a replica that lags behind.
    fn with_shutdown_timeout(seconds: u32) -> PausedPrimary {
        let primary = Server::builder()
            .config("appendonly", "yes")
            // The server writes to the AOF at once, and does not wait for an earlier fsync.
            .config("appendfsync", "no")
            // A primary sends PING to its replicas in this period even while writes are paused.
            .config("repl-ping-replica-period", 3600)
            .config("shutdown-timeout", seconds)
            .start();
        let replica = Server::builder().replica_of(&primary).start();
        let stream = ReplicationStream::attach(&primary);
        let wave = LapseWave::start(&primary, WAITERS);
        LapseWave::wait_for_middle(&primary);
        PausedPrimary {
            primary,
            replica,
            stream,
            wave,
        }
    }

    /// Stops the replica's process and replicates a command that it cannot acknowledge.
    fn stop_replica(&self) {
        self.replica.stop();
        self.primary
            .connect()
            .ask("PUBLISH the-replica cannot-hear-this");
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
            keys(&self.primary),
        )
    }

    /// Asserts that nothing is replicated, written or ended for a while. Writes are paused already.
    #[track_caller]
    fn assert_stands_still(&mut self) {
        // Commands that were replicated before the pause arrive first.
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

    /// Asserts that every waiter is served, every lease ends, and the replica has the same.
    #[track_caller]
    fn assert_ends(self) {
        self.wave.assert_ends(&self.primary);
        self.replica.wait_to_catch_up_with(&self.primary);
        assert_eq!(keys(&self.replica), 0);
        assert_calm(&self.primary);
        assert_calm(&self.replica);
    }
}

#[test]
fn client_pause_replicates_nothing() {
    let mut paused = PausedPrimary::start();
    let mut client = paused.primary.connect();
    assert_eq!(client.ask("CLIENT PAUSE 60000 WRITE"), "OK");
    paused.assert_stands_still();
    assert_eq!(client.ask("CLIENT UNPAUSE"), "OK");
    paused.assert_ends();
}

#[test]
fn client_pauses_that_expire_lose_no_lapse() {
    for kind in ["WRITE", "ALL"] {
        let paused = PausedPrimary::start();
        for _ in 0..3 {
            let mut client = paused.primary.connect();
            assert_eq!(client.ask(format!("CLIENT PAUSE 200 {kind}")), "OK");
            at(Instant::now() + Duration::from_millis(250));
        }
        paused.assert_ends();
    }
}

#[test]
fn client_pause_inside_transaction_still_hands_lock_on() {
    let server = Server::builder().config("appendonly", "yes").start();
    let _replica = Server::builder().replica_of(&server).start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN t").grant();
    client.ask("DLOCK.ACQUIRE short PX 100").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
    client.ask("MULTI");
    client.ask("CLIENT PAUSE 400 WRITE");
    client.ask("DLOCK.RELEASE k t");
    let done = client.ask("EXEC");
    assert_eq!(done.as_array()[1], 1);
    assert_eq!(waiter.granted().0, "w");
    // The lease of `short` ends after the pause.
    wait_until_gone(&mut client, "short");
    assert_calm(&server);
}

#[test]
fn failover_that_waits_for_replica_replicates_nothing() {
    let mut paused = PausedPrimary::start();
    let mut client = paused.primary.connect();
    paused.stop_replica();
    let failover = format!(
        "FAILOVER TO 127.0.0.1 {} TIMEOUT 60000",
        paused.replica.port()
    );
    assert_eq!(client.ask(failover), "OK");
    paused.assert_stands_still();
    assert_eq!(client.ask("FAILOVER ABORT"), "OK");
    assert_eq!(paused.primary.info("replication", "role"), "master");
    paused.replica.cont();
    paused.assert_ends();
}

#[test]
fn shutdown_that_waits_for_replica_replicates_nothing() {
    let mut paused = PausedPrimary::start();
    let mut client = paused.primary.connect();
    paused.stop_replica();
    let mut admin = paused.primary.connect();
    admin.begin("SHUTDOWN");
    eventually("a shutdown that waits", SOON, || {
        let info = paused.primary.info_section("server");
        info.contains("shutdown_in_milliseconds")
    });
    paused.assert_stands_still();
    assert_eq!(client.ask("SHUTDOWN ABORT"), "OK");
    assert!(admin.reply().is_error());
    paused.replica.cont();
    paused.assert_ends();
}

/// The shutdown waits two seconds for the replica, while leases come due, and then closes the waiters' connections.
#[test]
fn shutdown_without_replica_ends_every_wait_and_saves_the_rest() {
    let paused = PausedPrimary::with_shutdown_timeout(2);
    paused.stop_replica();
    let PausedPrimary {
        mut primary,
        replica,
        stream,
        wave,
    } = paused;
    primary.shutdown();
    drop(stream);
    let ends: Vec<Ended> = wave.waiters.into_iter().map(ended).collect();
    assert!(
        ends.iter()
            .all(|end| matches!(end, Ended::Granted(_) | Ended::Closed)),
        "{ends:?}"
    );
    assert_clean_log(&primary);
    replica.cont();
    primary.start_again();
    eventually("the rest of the wave", SOON * 2, || keys(&primary) == 0);
    assert_calm(&primary);
}
