//! Fences of a clock that is far ahead of this server's clock: one of the two clocks is wrong.
//!
//! A server believes its own files and its primary, with a warning, and its fences go on from there without going back.
//! It refuses such a payload when a client restores it.

use crate::support::data_files::{append_changes, grant_by_hand, with_safe_aof};
use crate::support::steps::*;
use crate::support::*;

const DAY_US: u64 = 86_400_000_000;
const WARNING: &str = "lies more than a year ahead of this server's clock";

/// A stopped server whose AOF has a hold that was granted two years ahead of the clock, and the fence of that hold.
fn server_with_future_fence() -> (Server, u64) {
    let mut server = with_safe_aof(false).start();
    assert_eq!(server.connect().ask("SET plain value"), "OK");
    server.kill9();
    let fence = unix_us() + 730 * DAY_US;
    append_changes(&server, "future", "lock", &[&grant_by_hand(fence)]);
    (server, fence)
}

fn warnings(server: &Server) -> usize {
    server.log_text().matches(WARNING).count()
}

/// After a reboot the clock was two years behind, and the server exited while it loaded its own AOF or RDB file.
#[test]
fn server_loads_its_own_files_with_fences_far_ahead() {
    let (mut server, fence) = server_with_future_fence();
    server.start_again();
    assert_eq!(warnings(&server), 1, "{}", server.log_text());
    let mut client = server.connect();
    assert!(client.ask("DLOCK.CHECK future hand").as_int() > 0);
    let (_, next) = client.ask("DLOCK.ACQUIRE other TOKEN t EX 600").grant();
    assert!(next > fence, "{next} after {fence}");

    // The same data in an RDB file.
    assert_eq!(client.ask("CONFIG SET appendonly no"), "OK");
    assert_eq!(client.ask("SAVE"), "OK");
    server.kill9();
    server.configure("appendonly", "no");
    server.start_again();
    assert_eq!(warnings(&server), 2, "once for each start");
    let mut client = server.connect();
    assert!(client.ask("DLOCK.CHECK other t").as_int() > 0);
    let (_, last) = client.ask("DLOCK.ACQUIRE third").grant();
    assert!(last > next, "{last} after {next}");
}

/// The clock of a primary was 400 days ahead, and its replica exited at each full synchronisation.
#[test]
fn replica_follows_primary_whose_fences_are_far_ahead() {
    let (mut primary, fence) = server_with_future_fence();
    let replica = Server::start();
    primary.start_again();
    replica
        .connect()
        .ask(format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    replica.wait_for_sync();
    let mut client = primary.connect();
    let (_, next) = client.ask("DLOCK.ACQUIRE streamed EX 600 TOKEN t").grant();
    replica.wait_to_catch_up_with(&primary);
    for key in ["future", "streamed"] {
        assert_eq!(replica.digest(key), primary.digest(key), "{key}");
    }
    assert_eq!(replica.info_number("dsync", "dsync_unapplied_changes"), 0);
    assert_eq!(warnings(&replica), 1, "once, however many follow");

    // The replica, whose clock is right, is promoted: its fences go on from those of the primary.
    replica.connect().ask("REPLICAOF NO ONE");
    let (_, promoted) = replica.connect().ask("DLOCK.ACQUIRE mine").grant();
    assert!(
        promoted > next && next > fence,
        "{promoted}, {next}, {fence}"
    );
}

#[test]
fn restored_payload_with_fence_far_ahead_is_refused() {
    let (mut server, _) = server_with_future_fence();
    server.start_again();
    let mut client = server.connect();
    let dump = client.ask("DUMP future");
    let elsewhere = Server::start();
    let refused = call!(elsewhere.connect(), "RESTORE", "k", 0, dump.as_bytes());
    assert!(refused.error().contains("Bad data format"), "{refused:?}");
    assert!(
        elsewhere
            .log_text()
            .contains("a fence in it lies more than a year ahead")
    );
    // A server that granted such fences, or believed them, accepts its own payloads.
    assert_eq!(client.ask("DEL future"), 1);
    assert_eq!(call!(client, "RESTORE", "future", 0, dump.as_bytes()), "OK");
}
