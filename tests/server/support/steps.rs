//! Steps that many tests take: read a grant, ask INFO for a number, wait for an end.

use crate::support::*;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use dsync_testkit::SOON;

/// How long a test watches for something that must not happen.
pub const A_WHILE: Duration = Duration::from_millis(60);

/// Asserts that the connection has no unread reply: the next one is PING's.
#[track_caller]
pub fn expect_no_more(client: &mut Client) {
    assert_eq!(client.ask("PING"), "PONG", "one reply too many");
}

/// Reads the token and the fence of a grant of any family: `[token, fence]`, or `["RUN", token, fence, attempt]`.
#[track_caller]
pub fn any_grant(reply: &Reply) -> (Vec<u8>, u64) {
    let grant = match reply.as_array() {
        [word, grant @ .., _] if *word == "RUN" => grant,
        grant => grant,
    };
    match grant {
        [Reply::Bulk(token), Reply::Int(fence)] if *fence > 0 => {
            (token.clone(), fence.unsigned_abs())
        }
        _ => panic!("expected a grant, received {reply:?}"),
    }
}

/// The fence of a grant of any family; `None` for every other reply. Fences are microseconds since 1970, so no other
/// integer in a reply is as large.
pub fn fence_in(reply: &Reply) -> Option<u64> {
    let Reply::Array(items) = reply else {
        return None;
    };
    items.iter().find_map(|item| match item {
        Reply::Int(number) if *number > 1_000_000_000_000_000 => Some(number.unsigned_abs()),
        _ => None,
    })
}

/// A number of a key's INFO, such as `DLOCK.INFO`; 0 where the key does not exist.
#[track_caller]
pub fn count(client: &mut Client, info: &str, key: &str, field: &str) -> i64 {
    let info = client.ask(format!("{info} {key}"));
    if info.is_nil() {
        0
    } else {
        info.field(field).as_int()
    }
}

/// How many hold the lock, by `DLOCK.INFO`.
#[track_caller]
pub fn lock_holders(client: &mut Client, key: &str) -> i64 {
    count(client, "DLOCK.INFO", key, "holders")
}

/// How many requests wait for the lock, by `DLOCK.INFO`.
#[track_caller]
pub fn lock_waiters(client: &mut Client, key: &str) -> i64 {
    count(client, "DLOCK.INFO", key, "waiters")
}

/// Waits until the key is gone.
#[track_caller]
pub fn wait_until_gone(client: &mut Client, key: &str) {
    eventually(&format!("the end of {key}"), SOON, || {
        client.ask(format!("EXISTS {key}")) == 0
    });
}

/// Returns at this moment, or at once if it has passed. For tests that must act at a certain time; to wait for a
/// condition, use [`eventually`].
pub fn at(moment: Instant) {
    while Instant::now() < moment {
        std::thread::yield_now();
    }
}

/// Runs a script on `busy` that ends with `SCRIPT KILL` only. Returns when the server answers BUSY to `other`: from
/// then on it notices connections that close, but carries out no commands.
#[track_caller]
pub fn keep_busy(busy: &mut Client, other: &mut Client) {
    assert_eq!(busy.ask("CONFIG SET busy-reply-threshold 10"), "OK");
    busy.begin("EVAL \"while true do end\" 0");
    wait_until_busy(other);
}

/// Waits until a script has run so long that the server answers BUSY.
#[track_caller]
pub fn wait_until_busy(client: &mut Client) {
    eventually("a busy server", SOON, || {
        let reply = client.ask("PING");
        reply.is_error() && reply.error().starts_with("BUSY")
    });
}

/// How a wait ended.
#[derive(Debug, PartialEq)]
pub enum Ended {
    Granted(u64),
    Nothing,
    Unblocked,
    Closed,
}

/// How the wait of this client ended. Asserts that it got one reply, or that its connection closed.
#[track_caller]
pub fn ended(mut waiter: Client) -> Ended {
    // A blocked client's next commands run after its reply. ECHO's reply comes second, unless the waiter had two.
    let Some(reply) = waiter.try_call(&["ECHO", "next"]) else {
        return Ended::Closed;
    };
    if let Some(next) = waiter.try_call(&["PING"]) {
        assert_eq!(next, "next", "a second reply, after {reply:?}");
    }
    match reply {
        Reply::Nil => Ended::Nothing,
        Reply::Error(text) => {
            assert!(text.starts_with("UNBLOCKED"), "{text}");
            Ended::Unblocked
        }
        reply => Ended::Granted(reply.grant().1),
    }
}

/// Asserts that the server answers and that its log has no defect.
#[track_caller]
pub fn assert_calm(server: &Server) {
    assert_eq!(server.connect().ask("PING"), "PONG");
    assert_clean_log(server);
}

/// Asserts that the server's log has no panic, crash report or report of a defect.
#[track_caller]
pub fn assert_clean_log(server: &Server) {
    let log = server.log_text();
    for word in [
        "panic",
        "ASSERTION",
        "crashed by signal",
        "BUG REPORT",
        "DSYN failed",
        "a defect of dsync",
    ] {
        assert!(!log.contains(word), "{word} in the log:\n{log}");
    }
}

/// The wall clock, in microseconds since 1970.
pub fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is past 1970").as_micros() as u64
}

/// The wall clock, in milliseconds since 1970.
pub fn unix_ms() -> u64 {
    unix_us() / 1000
}
