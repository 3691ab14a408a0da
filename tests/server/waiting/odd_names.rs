//! Waiting for keys with odd names: empty, with lone braces, or like the names that dsync itself uses.
//!
//! The module blocks a client on a shadow name, which lies in the slot of the key by way of a hash tag
//! (`src/module/redis/shadow.rs`). Where no hash tag can express that slot, the client is blocked on the key itself;
//! waiting must work there just the same.

use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

#[test]
fn odd_key_names_are_waited_for_like_any_other() {
    let server = Server::start();
    let mut client = server.connect();
    for key in [
        "}",
        "a}b",
        "{}",
        "{}a",
        "",
        "{tag}k",
        "\0dsync:waiting:{k}",
        "k",
    ] {
        let mut waiters: Vec<_> = (0..3).map(|_| server.connect()).collect();
        call!(client, "DLOCK.ACQUIRE", key, "TOKEN", "t");
        for (n, waiter) in waiters.iter_mut().enumerate() {
            send!(
                waiter,
                "DLOCK.ACQUIRE",
                key,
                "BLOCK",
                0,
                "TOKEN",
                format!("w{n}")
            );
            server.wait_for_blocked(n as u64 + 1);
        }
        // After the removal the first waiter is granted, and the others stay in the queue.
        assert_eq!(call!(client, "DEL", key), 1);
        assert_eq!(waiters[0].granted().0, "w0", "{key:?}");
        waiters[1].expect_silence(Duration::from_millis(30));
        assert_eq!(call!(client, "DLOCK.RELEASE", key, "w0"), 1);
        assert_eq!(waiters[1].granted().0, "w1", "{key:?}");
        // A string replaces the lock.
        assert_eq!(call!(client, "SET", key, "other"), "OK");
        let told = waiters[2].recv(SOON).expect("the last is told");
        assert!(told.error().starts_with("WRONGTYPE"), "{key:?}: {told:?}");
        client.ask("FLUSHALL");
    }
    assert_calm(&server);
}

/// The turn for a key such as `api:}deploy` was announced on a channel with the name of the key alone. A worker whose
/// ACL permits the channels of its keys did not hear of it, and a subscriber to `api:*` did.
#[test]
fn turn_of_odd_key_is_announced_under_the_prefix() {
    let server = Server::start();
    let mut client = server.connect();
    let rules = "resetchannels &dsync:{api:* -@all +@connection +subscribe";
    let user = format!("ACL SETUSER hearer on nopass {rules}");
    assert_eq!(client.ask(user), "OK");
    for (key, head) in [
        ("api:}deploy", "dsync:{api:}deploy}:"),
        ("api:{}", "dsync:{api:{}}:"),
        ("}", "dsync:{}}:"),
        ("", "dsync:{}:"),
    ] {
        call!(client, "DLOCK.ACQUIRE", key, "TOKEN", "held").grant();
        let waits = call!(client, "DLOCK.ACQUIRE", key, "TOKEN", "t", "QUEUE", 60000);
        let channel = waits.as_array()[2].as_str().to_owned();
        assert!(channel.starts_with(head), "{key:?}: {channel}");
        let mut hearer = server.connect();
        if key.starts_with("api:") {
            assert_eq!(hearer.ask("AUTH hearer any"), "OK");
        }
        let heard = hearer.ask(format!("SUBSCRIBE {channel}"));
        assert_eq!(heard.as_array()[0], "subscribe", "{key:?}: {heard:?}");
        assert_eq!(call!(client, "DLOCK.RELEASE", key, "held"), 1);
        let message = hearer.reply();
        assert_eq!(message.as_array()[1], *channel.as_str(), "{message:?}");
    }
    assert_calm(&server);
}
