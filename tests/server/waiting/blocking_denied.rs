//! Clients that the server does not let block: in Lua, in functions, in MULTI, and, on some servers, RESP3 clients with
//! a subscription. There a request with BLOCK is a try: it is granted at once or answered nil, and takes no place in
//! the queue.
//!
//! `no_blocking` says what such a request may do beside that; this file asks every command in every context.

use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

#[test]
fn block_in_lua_function_or_multi_is_a_try() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN t");
    client.ask("DSEM.ACQUIRE s LIMIT 1 TOKEN t");
    client.ask("DWG.ADD g LIMIT 1 TOKEN t");
    let library = "#!lua name=l\nredis.register_function('ask', function(keys, args) \
                   return redis.call(args[1], keys[1], 'BLOCK', '0') end)";
    call!(client, "FUNCTION", "LOAD", library);
    for (command, key) in [
        ("DLOCK.ACQUIRE", "k"),
        ("DSEM.ACQUIRE", "s"),
        ("DWG.ADD", "g"),
        ("DWG.WAIT", "g"),
    ] {
        let script = "return redis.call(ARGV[1], KEYS[1], 'BLOCK', '0')";
        assert!(
            call!(client, "EVAL", script, 1, key, command).is_nil(),
            "{command} in Lua"
        );
        assert!(
            client.ask(format!("FCALL ask 1 {key} {command}")).is_nil(),
            "{command} in a function"
        );
        client.ask("MULTI");
        call!(client, command, key, "BLOCK", 0);
        let done = client.ask("EXEC");
        assert!(done.as_array()[0].is_nil(), "{command} in MULTI: {done:?}");
        client.ask("CLIENT TRACKING OFF");
    }
    // A free lock is granted in Lua.
    let script = "return redis.call('DLOCK.ACQUIRE', KEYS[1], 'BLOCK', '0', 'TOKEN', 'lua')";
    assert_eq!(call!(client, "EVAL", script, 1, "free").grant().0, "lua");
    server.wait_for_blocked(0);
    // No request took a place in a queue.
    for (info, key) in [("DLOCK.INFO", "k"), ("DSEM.INFO", "s"), ("DWG.INFO", "g")] {
        assert_eq!(*call!(client, info, key).field("waiters"), 0);
    }
    assert_calm(&server);
}

#[test]
fn subscribed_resp3_client_waits_or_is_answered_nil() {
    let server = Server::start();
    let (mut client, mut waiter) = (server.connect(), server.connect_resp3());
    client.ask("DLOCK.ACQUIRE k TOKEN t");
    waiter.begin("SUBSCRIBE channel");
    waiter.recv(SOON).expect("a subscription");
    waiter.begin("DLOCK.ACQUIRE k BLOCK 1500 TOKEN w");
    // Some servers cannot block such a client: the module answers nil at once.
    let at_once = waiter.recv(Duration::from_millis(150));
    client.ask("DLOCK.RELEASE k t");
    match at_once {
        Some(reply) => assert!(reply.is_nil(), "{reply:?}"),
        None => assert_eq!(waiter.granted().0, "w"),
    }
    assert_calm(&server);
}
