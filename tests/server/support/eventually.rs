//! Waiting for clients that are blocked, and comparing values.

use dsync_testkit::{SOON, Server, call, eventually};

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
