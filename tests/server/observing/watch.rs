//! Clients that watch a key, by WATCH or by client-side caching: grants, ends and limit changes modify the key;
//! renewals, tries and changes of the queue do not.

use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

/// Watches the key and runs `event`. Returns whether the transaction behind it was executed.
fn goes_through(server: &Server, key: &str, event: impl FnOnce(&mut Client)) -> bool {
    let (mut watching, mut other) = (server.connect(), server.connect());
    assert_eq!(watching.ask(format!("WATCH {key}")), "OK");
    event(&mut other);
    let replies = watching.ask_all(["MULTI", "PING", "EXEC"]);
    !replies[2].is_nil()
}

#[test]
fn watch_aborts_when_a_hold_is_granted_or_ends() {
    let server = Server::start();
    let mut admin = server.connect();
    let through = goes_through(&server, "lock", |other| {
        other.ask("DLOCK.ACQUIRE lock TOKEN held SHARED").grant();
    });
    assert!(!through, "a grant");
    let through = goes_through(&server, "lock", |other| {
        other.ask("DLOCK.ACQUIRE lock TOKEN too SHARED").grant();
    });
    assert!(!through, "a second grant");
    let through = goes_through(&server, "lock", |other| {
        assert_eq!(other.ask("DLOCK.RELEASE lock too"), 1);
    });
    assert!(!through, "a release that leaves another holder");
    let through = goes_through(&server, "lock", |other| {
        assert_eq!(other.ask("DLOCK.RELEASE lock held"), 1);
    });
    assert!(!through, "the last release");

    let (_, fence) = admin.ask("DLOCK.ACQUIRE lock").grant();
    let through = goes_through(&server, "lock", |other| {
        assert_eq!(other.ask(format!("DLOCK.REVOKE lock {fence}")), 1);
    });
    assert!(!through, "a revocation");

    admin.ask("DLOCK.ACQUIRE lock PX 60000 TOKEN held").grant();
    let through = goes_through(&server, "lock", |other| {
        assert_eq!(other.ask("DLOCK.RENEW lock held PX 20"), 1);
        wait_until_gone(other, "lock");
    });
    assert!(!through, "a lapse");

    let ephemeral = {
        let mut client = server.connect();
        client.ask("DLOCK.ACQUIRE lock EPHEMERAL").grant();
        client
    };
    let through = goes_through(&server, "lock", |other| {
        ephemeral.close();
        wait_until_gone(other, "lock");
    });
    assert!(!through, "a connection's end");

    admin.ask("DLOCK.ACQUIRE lock PX 60000 TOKEN held").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock TOKEN next BLOCK 0");
    let through = goes_through(&server, "lock", |other| {
        assert_eq!(other.ask("DLOCK.RELEASE lock held"), 1);
        waiter.granted();
    });
    assert!(!through, "handed over");

    admin.ask("DSEM.ACQUIRE semaphore LIMIT 1").grant();
    let through = goes_through(&server, "semaphore", |other| {
        assert_eq!(other.ask("DSEM.LIMIT semaphore 3"), 1);
    });
    assert!(!through, "a limit");
}

#[test]
fn watch_does_not_abort_for_renewals_tries_or_queue_changes() {
    let server = Server::start();
    let mut admin = server.connect();
    admin.ask("DLOCK.ACQUIRE lock TOKEN held PX 60000").grant();
    let through = goes_through(&server, "lock", |other| {
        assert_eq!(other.ask("DLOCK.RENEW lock held"), 1);
        assert_eq!(other.ask("DLOCK.RENEW lock held EX 100"), 1);
    });
    assert!(through, "a renewal");
    let through = goes_through(&server, "lock", |other| {
        other.ask("DLOCK.ACQUIRE lock TOKEN held PX 60000").grant();
    });
    assert!(through, "the same hold again");
    let through = goes_through(&server, "lock", |other| {
        assert!(other.ask("DLOCK.ACQUIRE lock").is_nil());
        assert_eq!(other.ask("DLOCK.RELEASE lock another"), 0);
        assert_eq!(other.ask("DLOCK.RENEW lock another"), 0);
        assert_eq!(other.ask("DLOCK.REVOKE lock 1"), 0);
        assert!(other.ask("DLOCK.CHECK lock held").as_int() > 0);
        other.ask("DLOCK.INFO lock");
    });
    assert!(through, "commands without effect");
    let through = goes_through(&server, "lock", |_| {
        let waiter = server.waiting("DLOCK.ACQUIRE lock TOKEN next BLOCK 0");
        waiter.close();
        server.wait_for_blocked(0);
        let mut waiter = server.connect();
        waiter.begin("DLOCK.ACQUIRE lock BLOCK 20");
        assert!(waiter.reply().is_nil());
    });
    assert!(through, "a queue that changed");
}

#[test]
fn watch_by_holder_is_not_aborted_by_its_own_renewals() {
    let server = Server::start();
    let (mut worker, mut renewer) = (server.connect(), server.connect());
    worker.ask("DLOCK.ACQUIRE lock TOKEN mine").grant();
    worker.ask("WATCH lock");
    assert_eq!(renewer.ask("DLOCK.RENEW lock mine"), 1);
    let replies = worker.ask_all(["MULTI", "SET work done", "DLOCK.RELEASE lock mine", "EXEC"]);
    assert_eq!(replies[3].as_array()[1], 1);
}

/// The keys of the next invalidation message.
#[track_caller]
fn invalidated(client: &mut Client) -> Vec<Reply> {
    let push = client.reply();
    assert!(matches!(push, Reply::Push(_)), "{push:?}");
    let parts = push.as_array();
    assert_eq!(parts[0], "invalidate", "{push:?}");
    parts[1].as_array().to_vec()
}

#[test]
fn tracking_tells_of_grants_and_ends_but_not_of_renewals() {
    const QUIET: Duration = Duration::from_millis(100);
    let server = Server::start();
    let mut other = server.connect();
    let mut caching = server.connect_resp3();
    assert_eq!(caching.ask("CLIENT TRACKING ON"), "OK");
    // The server reports one change for each read of a tracked key.
    assert!(caching.ask("DLOCK.INFO lock").is_nil());
    other.ask("DLOCK.ACQUIRE lock TOKEN held PX 60000").grant();
    assert_eq!(invalidated(&mut caching)[0], "lock");

    assert!(caching.ask("DLOCK.CHECK lock held").as_int() > 0);
    assert_eq!(other.ask("DLOCK.RENEW lock held"), 1);
    other.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock TOKEN next PX 30000 BLOCK 0");
    caching.expect_silence(QUIET);

    // A release and the grant to the next waiter are one change.
    assert_eq!(other.ask("DLOCK.RELEASE lock held"), 1);
    waiter.granted();
    assert_eq!(invalidated(&mut caching)[0], "lock");
    caching.expect_silence(QUIET);

    // A lapse, which no command causes.
    assert!(caching.ask("DLOCK.CHECK lock next").as_int() > 0);
    assert_eq!(other.ask("DLOCK.RENEW lock next PX 20"), 1);
    assert_eq!(invalidated(&mut caching)[0], "lock");
    assert_eq!(other.ask("EXISTS lock"), 0);
}

#[test]
fn tracking_by_prefix_tells_of_a_lapse() {
    let server = Server::start();
    let mut other = server.connect();
    let mut caching = server.connect_resp3();
    assert_eq!(caching.ask("CLIENT TRACKING ON BCAST PREFIX lock"), "OK");
    other.ask("DLOCK.ACQUIRE lock PX 150").grant();
    assert_eq!(invalidated(&mut caching)[0], "lock");
    assert_eq!(invalidated(&mut caching)[0], "lock", "the lapse");
    assert_eq!(other.ask("EXISTS lock"), 0);
}
