//! Where the server forbids blocking a request is a try: transactions, scripts, functions. And what a
//! change of a hold means to those who watch the key: WATCH, and caches on the client's side.
//!
//! Not here: RM_Call from another module, which takes another module; replicas and loading.

use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

#[track_caller]
fn expect_nobody_waits(server: &Server, client: &mut Client, key: &str) {
    assert_eq!(blocked_clients(server), 0);
    assert_eq!(count(client, "DLOCK.INFO", key, "waiters"), 0);
}

#[test]
fn in_a_transaction_block_is_ignored() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut client = server.connect();
    let lines = [
        "MULTI",
        "DLOCK.ACQUIRE lock BLOCK 0",
        "DLOCK.ACQUIRE lock BLOCK 5000 TOKEN t",
        "DLOCK.ACQUIRE free BLOCK 0 TOKEN mine",
        "DSEM.ACQUIRE semaphore LIMIT 1 BLOCK 0",
        "DSEM.ACQUIRE semaphore LIMIT 1 BLOCK 0",
        "DWG.ADD group LIMIT 1 TOKEN member BLOCK 0",
        "DWG.ADD group LIMIT 1 BLOCK 0",
        "DWG.WAIT group BLOCK 0",
        "DLOCK.RELEASE free mine",
        "EXEC",
    ];
    let replies = at_once(&mut client, &lines);
    let results = replies.last().expect("EXEC's").as_array();
    assert!(results[0].is_nil() && results[1].is_nil(), "{results:?}");
    results[2].grant();
    results[3].grant();
    assert!(results[4].is_nil(), "{results:?}");
    results[5].grant();
    assert!(results[6].is_nil() && results[7].is_nil(), "{results:?}");
    assert_eq!(results[8], 1);
    expect_nobody_waits(&server, &mut client, "lock");
    // No place was taken: the release frees the lock.
    assert_eq!(ask(&mut holder, "DLOCK.RELEASE lock held"), 1);
    assert_eq!(ask(&mut holder, "EXISTS lock"), 0);
    expect_no_more(&mut client);
}

#[test]
fn in_a_script_block_is_ignored() {
    let server = Server::start();
    let mut client = server.connect();
    let script = "local a = redis.call('DLOCK.ACQUIRE', KEYS[1], 'BLOCK', 0, 'TOKEN', 'one') \
                  local b = redis.call('DLOCK.ACQUIRE', KEYS[1], 'BLOCK', 0, 'TOKEN', 'two') \
                  local c = redis.call('DWG.ADD', KEYS[2]) \
                  local d = redis.call('DWG.WAIT', KEYS[2], 'BLOCK', 0) \
                  return {a[1], b == false, d == false}";
    let reply = call!(client, "EVAL", script, 2, "lock", "group");
    assert_eq!(reply.as_array()[0], "one", "{reply:?}");
    assert_eq!(reply.as_array()[1], 1, "nil is false in Lua: {reply:?}");
    assert_eq!(reply.as_array()[2], 1, "{reply:?}");
    expect_nobody_waits(&server, &mut client, "lock");
    assert!(
        ask(&mut client, "DLOCK.CHECK lock one").as_int() > 0,
        "the grant stands"
    );
}

#[test]
fn in_a_function_block_is_ignored() {
    let server = Server::start();
    let mut client = server.connect();
    let library = "#!lua name=dsync_story\n\
                   redis.register_function('take', function(keys, args) \
                   local got = redis.call('DLOCK.ACQUIRE', keys[1], 'BLOCK', 0, 'TOKEN', args[1]) \
                   return got and got[1] end)";
    assert_eq!(call!(client, "FUNCTION", "LOAD", library), "dsync_story");
    assert_eq!(call!(client, "FCALL", "take", 1, "lock", "one"), "one");
    assert!(call!(client, "FCALL", "take", 1, "lock", "two").is_nil());
    expect_nobody_waits(&server, &mut client, "lock");
    assert_eq!(ask(&mut client, "DLOCK.RELEASE lock one"), 1);
    assert_eq!(ask(&mut client, "EXISTS lock"), 0);
}

#[test]
fn a_try_in_a_transaction_or_a_script_does_not_pass_those_who_wait() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut first = queued(&server, "DLOCK.ACQUIRE lock TOKEN first BLOCK 0");
    let mut second = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    let lines = [
        "MULTI",
        "DLOCK.RELEASE lock held",
        "DLOCK.ACQUIRE lock BLOCK 0",
        "EXEC",
    ];
    let replies = at_once(&mut holder, &lines);
    let results = replies[3].as_array();
    assert_eq!(results[0], 1);
    assert!(results[1].is_nil(), "{results:?}");
    granted(&mut first);
    second.expect_silence(A_WHILE);
    let script = "redis.call('DLOCK.RELEASE', KEYS[1], 'first') \
                  return redis.call('DLOCK.ACQUIRE', KEYS[1], 'BLOCK', 0)";
    assert!(call!(holder, "EVAL", script, 1, "lock").is_nil());
    granted(&mut second);
}

#[test]
fn ephemeral_is_an_error_in_scripts_and_functions_and_nothing_is_held() {
    let server = Server::start();
    let mut client = server.connect();
    let script = "return redis.call('DLOCK.ACQUIRE', KEYS[1], 'EPHEMERAL')";
    let error = call!(client, "EVAL", script, 1, "lock");
    assert!(error.error().contains("EPHEMERAL"), "{error:?}");
    let library = "#!lua name=dsync_story\n\
                   redis.register_function('take', function(keys) \
                   return redis.call('DSEM.ACQUIRE', keys[1], 'LIMIT', 1, 'EPHEMERAL') end)";
    call!(client, "FUNCTION", "LOAD", library);
    let error = call!(client, "FCALL", "take", 1, "semaphore");
    assert!(error.error().contains("EPHEMERAL"), "{error:?}");
    assert_eq!(ask(&mut client, "DBSIZE"), 0);
}

#[test]
fn in_a_transaction_ephemeral_means_the_connection_that_sent_it() {
    let server = Server::start();
    let mut client = server.connect();
    let lines = ["MULTI", "DLOCK.ACQUIRE lock EPHEMERAL", "EXEC"];
    at_once(&mut client, &lines)[2].as_array()[0].grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    client.close();
    granted(&mut waiter);
}

#[test]
fn a_release_in_a_transaction_or_a_script_hands_over() {
    let server = Server::start();
    let mut holder = server.connect();
    ask(&mut holder, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut waiters: Vec<_> = ["one", "two", "three"]
        .iter()
        .map(|token| queued(&server, format!("DLOCK.ACQUIRE lock TOKEN {token} BLOCK 0")))
        .collect();
    at_once(&mut holder, &["MULTI", "DLOCK.RELEASE lock held", "EXEC"]);
    granted(&mut waiters[0]);
    call!(
        holder,
        "EVAL",
        "return redis.call('DLOCK.RELEASE', KEYS[1], 'one')",
        1,
        "lock"
    );
    granted(&mut waiters[1]);
    call!(
        holder,
        "EVAL",
        "return redis.call('DEL', KEYS[1])",
        1,
        "lock"
    );
    granted(&mut waiters[2]);
}

/// Watches the key, lets something happen to it, and says whether the transaction then went through.
fn goes_through(server: &Server, key: &str, event: impl FnOnce(&mut Client)) -> bool {
    let (mut watching, mut other) = (server.connect(), server.connect());
    assert_eq!(ask(&mut watching, format!("WATCH {key}")), "OK");
    event(&mut other);
    let replies = at_once(&mut watching, &["MULTI", "PING", "EXEC"]);
    !replies[2].is_nil()
}

#[test]
fn a_watched_lock_aborts_the_transaction_when_it_is_granted_or_ends() {
    let server = Server::start();
    let mut admin = server.connect();
    let through = goes_through(&server, "lock", |other| {
        ask(other, "DLOCK.ACQUIRE lock TOKEN held SHARED").grant();
    });
    assert!(!through, "a grant");
    let through = goes_through(&server, "lock", |other| {
        ask(other, "DLOCK.ACQUIRE lock TOKEN too SHARED").grant();
    });
    assert!(!through, "a second grant");
    let through = goes_through(&server, "lock", |other| {
        assert_eq!(ask(other, "DLOCK.RELEASE lock too"), 1);
    });
    assert!(!through, "a release that leaves another holder");
    let through = goes_through(&server, "lock", |other| {
        assert_eq!(ask(other, "DLOCK.RELEASE lock held"), 1);
    });
    assert!(!through, "the last release");

    let (_, fence) = ask(&mut admin, "DLOCK.ACQUIRE lock").grant();
    let through = goes_through(&server, "lock", |other| {
        assert_eq!(ask(other, format!("DLOCK.REVOKE lock {fence}")), 1);
    });
    assert!(!through, "a revocation");

    ask(&mut admin, "DLOCK.ACQUIRE lock PX 60000 TOKEN held").grant();
    let through = goes_through(&server, "lock", |other| {
        assert_eq!(ask(other, "DLOCK.RENEW lock held PX 20"), 1);
        wait_until_gone(other, "lock");
    });
    assert!(!through, "a lapse");

    let ephemeral = {
        let mut client = server.connect();
        ask(&mut client, "DLOCK.ACQUIRE lock EPHEMERAL").grant();
        client
    };
    let through = goes_through(&server, "lock", |other| {
        ephemeral.close();
        wait_until_gone(other, "lock");
    });
    assert!(!through, "a connection's end");

    ask(&mut admin, "DLOCK.ACQUIRE lock PX 60000 TOKEN held").grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock TOKEN next BLOCK 0");
    let through = goes_through(&server, "lock", |other| {
        assert_eq!(ask(other, "DLOCK.RELEASE lock held"), 1);
        granted(&mut waiter);
    });
    assert!(!through, "handed over");

    ask(&mut admin, "DSEM.ACQUIRE semaphore LIMIT 1").grant();
    let through = goes_through(&server, "semaphore", |other| {
        assert_eq!(ask(other, "DSEM.LIMIT semaphore 3"), 1);
    });
    assert!(!through, "a limit");
}

#[test]
fn a_watched_lock_does_not_abort_for_renewals_queues_tries_or_looks() {
    let server = Server::start();
    let mut admin = server.connect();
    ask(&mut admin, "DLOCK.ACQUIRE lock TOKEN held PX 60000").grant();
    let through = goes_through(&server, "lock", |other| {
        assert_eq!(ask(other, "DLOCK.RENEW lock held"), 1);
        assert_eq!(ask(other, "DLOCK.RENEW lock held EX 100"), 1);
    });
    assert!(through, "a renewal");
    let through = goes_through(&server, "lock", |other| {
        ask(other, "DLOCK.ACQUIRE lock TOKEN held PX 60000").grant();
    });
    assert!(through, "the same hold again");
    let through = goes_through(&server, "lock", |other| {
        assert!(ask(other, "DLOCK.ACQUIRE lock").is_nil());
        assert_eq!(ask(other, "DLOCK.RELEASE lock another"), 0);
        assert_eq!(ask(other, "DLOCK.RENEW lock another"), 0);
        assert_eq!(ask(other, "DLOCK.REVOKE lock 1"), 0);
        assert!(ask(other, "DLOCK.CHECK lock held").as_int() > 0);
        ask(other, "DLOCK.INFO lock");
    });
    assert!(through, "what took no effect");
    let through = goes_through(&server, "lock", |_| {
        let waiter = queued(&server, "DLOCK.ACQUIRE lock TOKEN next BLOCK 0");
        waiter.close();
        wait_for_blocked(&server, 0);
        let mut waiter = server.connect();
        tell(&mut waiter, "DLOCK.ACQUIRE lock BLOCK 20");
        assert!(reply(&mut waiter).is_nil());
    });
    assert!(through, "a queue that changed");
}

#[test]
fn the_holders_own_renewer_does_not_abort_its_transaction() {
    let server = Server::start();
    let (mut worker, mut renewer) = (server.connect(), server.connect());
    ask(&mut worker, "DLOCK.ACQUIRE lock TOKEN mine").grant();
    ask(&mut worker, "WATCH lock");
    assert_eq!(ask(&mut renewer, "DLOCK.RENEW lock mine"), 1);
    let replies = at_once(
        &mut worker,
        &["MULTI", "SET work done", "DLOCK.RELEASE lock mine", "EXEC"],
    );
    assert_eq!(replies[3].as_array()[1], 1);
}

/// The keys that the server tells a caching client to forget.
#[track_caller]
fn invalidated(client: &mut Client) -> Vec<Reply> {
    let push = reply(client);
    assert!(matches!(push, Reply::Push(_)), "{push:?}");
    let parts = push.as_array();
    assert_eq!(parts[0], "invalidate", "{push:?}");
    parts[1].as_array().to_vec()
}

#[test]
fn a_caching_client_is_told_of_grants_and_ends_and_not_of_renewals() {
    const QUIET: Duration = Duration::from_millis(100);
    let server = Server::start();
    let mut other = server.connect();
    let mut caching = server.connect_resp3();
    assert_eq!(ask(&mut caching, "CLIENT TRACKING ON"), "OK");
    // Every look is remembered for one change.
    assert!(ask(&mut caching, "DLOCK.INFO lock").is_nil());
    ask(&mut other, "DLOCK.ACQUIRE lock TOKEN held PX 60000").grant();
    assert_eq!(invalidated(&mut caching)[0], "lock");

    assert!(ask(&mut caching, "DLOCK.CHECK lock held").as_int() > 0);
    assert_eq!(ask(&mut other, "DLOCK.RENEW lock held"), 1);
    ask(&mut other, "DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut waiter = queued(&server, "DLOCK.ACQUIRE lock TOKEN next PX 30000 BLOCK 0");
    caching.expect_silence(QUIET);

    // One change from one holder to the next.
    assert_eq!(ask(&mut other, "DLOCK.RELEASE lock held"), 1);
    granted(&mut waiter);
    assert_eq!(invalidated(&mut caching)[0], "lock");
    caching.expect_silence(QUIET);

    // An end that no command caused.
    assert!(ask(&mut caching, "DLOCK.CHECK lock next").as_int() > 0);
    assert_eq!(ask(&mut other, "DLOCK.RENEW lock next PX 20"), 1);
    assert_eq!(invalidated(&mut caching)[0], "lock");
    assert_eq!(ask(&mut other, "EXISTS lock"), 0);
}

#[test]
fn a_client_that_tracks_a_prefix_hears_of_the_lapse_itself() {
    let server = Server::start();
    let mut other = server.connect();
    let mut caching = server.connect_resp3();
    assert_eq!(
        ask(&mut caching, "CLIENT TRACKING ON BCAST PREFIX lock"),
        "OK"
    );
    ask(&mut other, "DLOCK.ACQUIRE lock PX 150").grant();
    assert_eq!(invalidated(&mut caching)[0], "lock");
    assert_eq!(invalidated(&mut caching)[0], "lock", "the lapse");
    assert_eq!(ask(&mut other, "EXISTS lock"), 0);
}

/// A replica that takes writes decides nothing by itself: a request that queued there was never answered.
#[test]
fn on_a_replica_that_takes_writes_a_request_is_a_try() {
    let primary = Server::start();
    let replica = Server::builder()
        .config("replica-read-only", "no")
        .replica_of(&primary)
        .start();
    let mut client = replica.connect();
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN a").grant();
    assert_eq!(
        ask(&mut client, "DLOCK.ACQUIRE k TOKEN b BLOCK 0"),
        Reply::Nil
    );
    ask(&mut client, "DWG.ADD g TOKEN a").grant();
    assert_eq!(ask(&mut client, "DWG.WAIT g BLOCK 0"), Reply::Nil);
}
