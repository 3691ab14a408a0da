//! Waiting for what a server should do: always for a condition, always with a deadline, and a failure
//! names what did not happen.

use super::Server;
use super::client::call;
use std::thread;
use std::time::{Duration, Instant};

/// Short beside anything a story measures, long beside the cost of asking a server once.
const POLL_EVERY: Duration = Duration::from_millis(2);

/// Asks until the condition holds; panics, naming `what`, if it does not in time. The last question is
/// asked after the deadline, so that a machine that stalled in between is not taken for a server that did.
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
    eventually(
        &format!("{count} blocked clients"),
        Duration::from_secs(10),
        || blocked_clients(server) == count,
    );
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
