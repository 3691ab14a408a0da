//! Waiting for conditions of a server. Every wait has a deadline, and its failure names what did not happen.

use super::Server;
use super::client::call;
use super::steps::SOON;
use std::thread;
use std::time::{Duration, Instant};

/// How long [`eventually`] sleeps between two looks: short beside what tests measure, long beside the cost of one
/// request.
const POLL_EVERY: Duration = Duration::from_millis(2);

/// Checks the condition until it holds; panics with `what` if it does not hold in time. The last check comes after the
/// deadline, so that a stall of the machine between two checks does not fail the test.
#[track_caller]
pub fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    loop {
        let late = Instant::now() >= deadline;
        if holds() {
            return;
        }
        assert!(!late, "not within {within:?}: {what}");
        thread::sleep(POLL_EVERY);
    }
}

/// How many clients are blocked in a command, by the server's own count.
#[track_caller]
pub fn blocked_clients(server: &Server) -> u64 {
    server.info_number("clients", "blocked_clients")
}

/// Waits until exactly `count` clients are blocked.
#[track_caller]
pub fn wait_for_blocked(server: &Server, count: u64) {
    eventually(&format!("{count} blocked clients"), SOON, || {
        blocked_clients(server) == count
    });
}

/// `DEBUG DIGEST-VALUE` of a key in database 0: equal on two servers where the values are equal.
#[track_caller]
pub fn digest(server: &Server, key: impl AsRef<[u8]>) -> String {
    let reply = call!(server.connect(), "DEBUG", "DIGEST-VALUE", key.as_ref());
    match reply.as_array() {
        [digest] => digest.as_str().to_owned(),
        _ => panic!("expected one digest, received {reply:?}"),
    }
}
