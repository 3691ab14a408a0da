//! Fences that were given by a clock far ahead of this server's: one of the two clocks is wrong.
//!
//! The promise: a server's own files and its primary are believed, with a warning, and fences go on from there
//! without ever going back; a payload that a client brings is refused.

use crate::support::data_files::{append_changes, grant_by_hand, with_safe_aof};
use crate::support::steps::*;
use crate::support::*;

const DAY_US: u64 = 86_400_000_000;
const WARNING: &str = "lies more than a year ahead of this server's clock";

/// A server whose AOF has a hold that was granted two years from now, not yet started again; and its fence.
fn from_the_future() -> (Server, u64) {
    let mut server = with_safe_aof(false).start();
    assert_eq!(ask(&mut server.connect(), "SET plain value"), "OK");
    server.kill9();
    let fence = unix_us() + 730 * DAY_US;
    append_changes(&server, "future", "lock", &[&grant_by_hand(fence)]);
    (server, fence)
}

fn warnings(server: &Server) -> usize {
    server.log_text().matches(WARNING).count()
}

/// The clock stood two years back after a reboot, and the server exited while it loaded its own AOF; and
/// then its own RDB.
#[test]
fn server_loads_its_own_files_with_fences_far_ahead() {
    let (mut server, fence) = from_the_future();
    server.start_again();
    assert_eq!(warnings(&server), 1, "{}", server.log_text());
    let mut client = server.connect();
    assert!(ask(&mut client, "DLOCK.CHECK future hand").as_int() > 0);
    let (_, next) = ask(&mut client, "DLOCK.ACQUIRE other TOKEN t EX 600").grant();
    assert!(next > fence, "{next} after {fence}");

    // The same data in an RDB file.
    assert_eq!(ask(&mut client, "CONFIG SET appendonly no"), "OK");
    assert_eq!(ask(&mut client, "SAVE"), "OK");
    server.kill9();
    server.configure("appendonly", "no");
    server.start_again();
    assert_eq!(warnings(&server), 2, "once for each start");
    let mut client = server.connect();
    assert!(ask(&mut client, "DLOCK.CHECK other t").as_int() > 0);
    let (_, last) = ask(&mut client, "DLOCK.ACQUIRE third").grant();
    assert!(last > next, "{last} after {next}");
}

/// A primary's clock was 400 days ahead: its replica exited at each full synchronisation.
#[test]
fn replica_follows_primary_whose_fences_are_far_ahead() {
    let (mut primary, fence) = from_the_future();
    let replica = Server::start();
    primary.start_again();
    call!(replica.connect(), "REPLICAOF", "127.0.0.1", primary.port());
    replica.wait_for_sync();
    let mut client = primary.connect();
    let (_, next) = ask(&mut client, "DLOCK.ACQUIRE streamed EX 600 TOKEN t").grant();
    replica.wait_to_catch_up_with(&primary);
    for key in ["future", "streamed"] {
        assert_eq!(digest(&replica, key), digest(&primary, key), "{key}");
    }
    assert_eq!(replica.info_number("dsync", "dsync_unapplied_changes"), 0);
    assert_eq!(warnings(&replica), 1, "once, however many follow");

    // The replica's clock is right, and it takes over: its fences go on from those of the primary.
    call!(replica.connect(), "REPLICAOF", "NO", "ONE");
    let (_, promoted) = ask(&mut replica.connect(), "DLOCK.ACQUIRE mine").grant();
    assert!(
        promoted > next && next > fence,
        "{promoted}, {next}, {fence}"
    );
}

#[test]
fn restored_payload_with_fence_far_ahead_is_refused() {
    let (mut server, _) = from_the_future();
    server.start_again();
    let mut client = server.connect();
    let dump = call!(client, "DUMP", "future");
    let elsewhere = Server::start();
    let refused = call!(elsewhere.connect(), "RESTORE", "k", 0, dump.as_bytes());
    assert!(refused.error().contains("Bad data format"), "{refused:?}");
    assert!(
        elsewhere
            .log_text()
            .contains("a fence in it lies more than a year ahead")
    );
    // A server that gave such fences itself, or believed them, takes its own values back.
    assert_eq!(call!(client, "DEL", "future"), 1);
    assert_eq!(call!(client, "RESTORE", "future", 0, dump.as_bytes()), "OK");
}
