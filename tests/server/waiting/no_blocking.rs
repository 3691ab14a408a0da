//! Where the server forbids blocking (transactions, scripts, functions, replicas that take writes), BLOCK is ignored
//! and the request is a try.
//!
//! Not here: RM_Call, because only another module can call it; loading.

use crate::support::steps::*;
use crate::support::*;

#[track_caller]
fn expect_nobody_waits(server: &Server, client: &mut Client, key: &str) {
    assert_eq!(server.blocked_clients(), 0);
    assert_eq!(count(client, "DLOCK.INFO", key, "waiters"), 0);
}

#[test]
fn block_is_ignored_in_transactions() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
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
    let replies = client.ask_all(lines);
    let results = replies.last().expect("EXEC's").as_array();
    assert!(results[0].is_nil() && results[1].is_nil(), "{results:?}");
    results[2].grant();
    results[3].grant();
    assert!(results[4].is_nil(), "{results:?}");
    results[5].grant();
    assert!(results[6].is_nil() && results[7].is_nil(), "{results:?}");
    assert_eq!(results[8], 1);
    expect_nobody_waits(&server, &mut client, "lock");
    // The request took no place in the queue: the release frees the lock.
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    assert_eq!(holder.ask("EXISTS lock"), 0);
    expect_no_more(&mut client);
}

#[test]
fn block_is_ignored_in_scripts() {
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
        client.ask("DLOCK.CHECK lock one").as_int() > 0,
        "the grant stands"
    );
}

#[test]
fn block_is_ignored_in_functions() {
    let server = Server::start();
    let mut client = server.connect();
    let library = "#!lua name=dsync_story\n\
                   redis.register_function('take', function(keys, args) \
                   local got = redis.call('DLOCK.ACQUIRE', keys[1], 'BLOCK', 0, 'TOKEN', args[1]) \
                   return got and got[1] end)";
    assert_eq!(call!(client, "FUNCTION", "LOAD", library), "dsync_story");
    assert_eq!(client.ask("FCALL take 1 lock one"), "one");
    assert!(client.ask("FCALL take 1 lock two").is_nil());
    expect_nobody_waits(&server, &mut client, "lock");
    assert_eq!(client.ask("DLOCK.RELEASE lock one"), 1);
    assert_eq!(client.ask("EXISTS lock"), 0);
}

#[test]
fn try_in_transaction_or_script_passes_no_waiter() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut first = server.waiting("DLOCK.ACQUIRE lock TOKEN first BLOCK 0");
    let mut second = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let lines = [
        "MULTI",
        "DLOCK.RELEASE lock held",
        "DLOCK.ACQUIRE lock BLOCK 0",
        "EXEC",
    ];
    let replies = holder.ask_all(lines);
    let results = replies[3].as_array();
    assert_eq!(results[0], 1);
    assert!(results[1].is_nil(), "{results:?}");
    first.granted();
    second.expect_silence(A_WHILE);
    let script = "redis.call('DLOCK.RELEASE', KEYS[1], 'first') \
                  return redis.call('DLOCK.ACQUIRE', KEYS[1], 'BLOCK', 0)";
    assert!(call!(holder, "EVAL", script, 1, "lock").is_nil());
    second.granted();
}

#[test]
fn ephemeral_in_scripts_and_functions_is_an_error() {
    let server = Server::start();
    let mut client = server.connect();
    let script = "return redis.call('DLOCK.ACQUIRE', KEYS[1], 'EPHEMERAL')";
    let error = call!(client, "EVAL", script, 1, "lock");
    assert!(error.error().contains("EPHEMERAL"), "{error:?}");
    let library = "#!lua name=dsync_story\n\
                   redis.register_function('take', function(keys) \
                   return redis.call('DSEM.ACQUIRE', keys[1], 'LIMIT', 1, 'EPHEMERAL') end)";
    call!(client, "FUNCTION", "LOAD", library);
    let error = client.ask("FCALL take 1 semaphore");
    assert!(error.error().contains("EPHEMERAL"), "{error:?}");
    assert_eq!(client.ask("DBSIZE"), 0);
}

#[test]
fn ephemeral_in_transaction_binds_to_its_connection() {
    let server = Server::start();
    let mut client = server.connect();
    let lines = ["MULTI", "DLOCK.ACQUIRE lock EPHEMERAL", "EXEC"];
    client.ask_all(lines)[2].as_array()[0].grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    client.close();
    waiter.granted();
}

#[test]
fn release_in_transaction_or_script_serves_the_queue() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut waiters: Vec<_> = ["one", "two", "three"]
        .iter()
        .map(|token| server.waiting(format!("DLOCK.ACQUIRE lock TOKEN {token} BLOCK 0")))
        .collect();
    holder.ask_all(["MULTI", "DLOCK.RELEASE lock held", "EXEC"]);
    waiters[0].granted();
    call!(
        holder,
        "EVAL",
        "return redis.call('DLOCK.RELEASE', KEYS[1], 'one')",
        1,
        "lock"
    );
    waiters[1].granted();
    call!(
        holder,
        "EVAL",
        "return redis.call('DEL', KEYS[1])",
        1,
        "lock"
    );
    waiters[2].granted();
}
