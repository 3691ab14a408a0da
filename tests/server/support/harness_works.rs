//! Tests of the harness itself, against a server without the module.

use crate::support::data_files::rewrite_aof;
use crate::support::steps::SOON;
use crate::support::*;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

const A_WHILE: Duration = Duration::from_millis(100);

fn plain() -> Builder {
    Server::builder().without_module()
}

#[test]
fn blocked_client_is_counted_and_answered() {
    let server = plain().start();
    let (mut waiter, mut pusher) = (server.connect(), server.connect());
    send!(waiter, "BLPOP", "queue", 0);
    server.wait_for_blocked(1);
    waiter.expect_silence(A_WHILE);

    assert_eq!(pusher.ask("LPUSH queue job"), 1);
    let reply = waiter.recv(SOON).expect("the waiter is answered");
    assert_eq!(reply.field("queue"), &"job");
    server.wait_for_blocked(0);
}

#[test]
fn closed_client_is_not_counted_as_blocked() {
    let server = plain().start();
    let mut waiter = server.connect();
    send!(waiter, "BLPOP", "queue", 0);
    server.wait_for_blocked(1);
    waiter.close();
    server.wait_for_blocked(0);
}

#[test]
fn killed_client_sees_its_connection_close() {
    let server = plain().start();
    let (mut waiter, mut admin) = (server.connect(), server.connect());
    let id = waiter.id();
    send!(waiter, "BLPOP", "queue", 0);
    server.wait_for_blocked(1);
    assert_eq!(admin.ask(format!("CLIENT KILL ID {id}")), 1);
    waiter.expect_closed(SOON);
}

#[test]
fn arguments_and_replies_are_binary_safe_and_errors_are_replies() {
    let server = plain().start();
    let mut client = server.connect();
    let value = b"\0\r\n$5\r\n\xff".to_vec();
    assert_eq!(call!(client, "SET", [0, 255u8], &value), "OK");
    assert_eq!(call!(client, "GET", [0, 255u8]).as_bytes(), value);
    assert!(client.ask("GET absent").is_nil());
    let error = call!(client, "INCR", [0, 255u8]);
    assert!(error.error().starts_with("ERR "), "{error:?}");
    // Two requests in one write, two replies in order.
    client.send_raw(b"PING one\r\nPING two\r\n");
    assert_eq!(client.recv(SOON).expect("the first reply"), "one");
    assert_eq!(client.recv(SOON).expect("the second reply"), "two");
}

#[test]
fn fields_are_read_alike_in_resp2_and_resp3() {
    let server = plain().start();
    for mut client in [server.connect(), server.connect_resp3()] {
        client.ask("HSET map one 1 two 2");
        let map = client.ask("HGETALL map");
        assert_eq!(map.field("two"), &"2");
        assert!(map.find_field("three").is_none());
    }
    let map = server.connect_resp3().ask("HGETALL map");
    assert!(matches!(map, Reply::Map(_)), "{map:?}");
}

#[test]
fn restart_and_kill_keep_the_contents_of_the_aof() {
    let mut server = plain()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start();
    let (port, first) = (server.port(), server.pid());
    server.connect().ask("SET before restart");
    let digested = server.digest("before");

    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), first);
    assert_eq!(server.digest("before"), digested);

    server.connect().ask("SET before kill");
    server.kill9();
    server.start_again();
    assert_eq!(server.connect().ask("GET before"), "kill");
    let starts = server
        .log_text()
        .matches("Ready to accept connections")
        .count();
    assert_eq!(starts, 3, "the log is of all three starts");
}

#[test]
fn server_without_persistence_forgets() {
    let mut server = plain().start();
    server.connect().ask("SET key value");
    server.restart();
    assert!(server.connect().ask("GET key").is_nil());
}

#[test]
fn stopped_server_is_silent_until_continued() {
    let server = plain().start();
    let mut client = server.connect();
    server.stop();
    send!(client, "PING");
    client.expect_silence(A_WHILE);
    server.cont();
    assert_eq!(client.recv(SOON).expect("a reply after SIGCONT"), "PONG");
}

#[test]
fn replication_stream_yields_what_is_replicated() {
    for diskless in ["yes", "no"] {
        let server = plain().config("repl-diskless-sync", diskless).start();
        let mut client = server.connect();
        call!(client, "SET", "snapshot", "is skipped");
        let mut stream = ReplicationStream::attach(&server);

        client.ask("SET key value");
        client.ask("GET key");
        client.ask("MULTI");
        client.ask("SET a 1");
        call!(client, "SET", "b", [0u8]);
        client.ask("EXEC");
        let seen: Vec<_> = stream
            .take_so_far(&server)
            .iter()
            .map(|c| words(c))
            .collect();
        let expected: [&[&str]; 5] = [
            &["SET", "key", "value"],
            &["MULTI"],
            &["SET", "a", "1"],
            &["SET", "b", r"\x00"],
            &["EXEC"],
        ];
        assert_eq!(seen, expected, "diskless {diskless}");
        assert_eq!(stream.take_so_far(&server), Vec::<Vec<Vec<u8>>>::new());

        client.ask("DEL key");
        let next = stream.next(SOON).expect("DEL is replicated");
        assert_eq!(words(&next), ["DEL", "key"]);
        assert!(stream.take_until_quiet(A_WHILE).is_empty());
    }
}

#[test]
fn replication_stream_counts_as_a_good_replica() {
    let server = plain()
        .config("min-replicas-to-write", 1)
        .config("min-replicas-max-lag", 2)
        .start();
    let mut client = server.connect();
    let refused = client.ask("SET key value");
    assert!(refused.error().starts_with("NOREPLICAS"), "{refused:?}");

    let stream = ReplicationStream::attach(&server);
    eventually("a write with one good replica", SOON, || {
        client.ask("SET key value") == "OK"
    });
    assert_eq!(client.ask("WAIT 1 5000"), 1);

    drop(stream);
    eventually("a refusal without a replica", SOON, || {
        client.ask("SET key value").is_error()
    });
}

#[test]
fn replica_starts_in_sync_and_catches_up() {
    let primary = plain().start();
    primary.connect().ask("SET key value");
    let replica = plain().replica_of(&primary).start();
    assert_eq!(replica.info("replication", "role"), "slave");
    assert_eq!(replica.digest("key"), primary.digest("key"));

    primary.connect().ask("SET key newer");
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(replica.connect().ask("GET key"), "newer");
}

#[test]
fn flavour_is_read_from_the_server() {
    let server = plain().start();
    let flavour = server.flavour();
    let binary = server.log_text();
    match flavour.product {
        Product::Redis => assert!(flavour.version >= (7, 0, 0), "{flavour:?}"),
        Product::Valkey => {
            assert!(flavour.version >= (8, 0, 0), "{flavour:?}");
            assert!(binary.contains("Valkey"), "{binary}");
        }
    }
}

#[test]
fn condition_that_never_holds_is_named() {
    let panic = thread::spawn(|| eventually("pigs fly", Duration::ZERO, || false))
        .join()
        .expect_err("the wait fails");
    let text = panic.downcast_ref::<String>().expect("a formatted panic");
    assert!(text.contains("pigs fly"), "{text}");
}

#[test]
fn server_that_cannot_start_shows_why() {
    let started = thread::spawn(|| plain().config("no-such-setting", 1).start()).join();
    let Err(panic) = started else {
        panic!("a server started with a setting that does not exist");
    };
    let text = panic.downcast_ref::<String>().expect("a formatted panic");
    assert!(text.contains("ended at its start"), "{text}");
}

#[test]
fn servers_started_at_once_get_different_ports() {
    let servers: Vec<Server> = thread::scope(|scope| {
        let starting: Vec<_> = (0..8).map(|_| scope.spawn(|| plain().start())).collect();
        starting
            .into_iter()
            .map(|server| server.join().expect("every server starts"))
            .collect()
    });
    let mut ports: Vec<u16> = servers.iter().map(Server::port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 8, "each has its own port");
}

#[test]
fn server_outlives_the_thread_that_started_it() {
    let server = thread::spawn(|| plain().start()).join().expect("it starts");
    let mut client = server.connect();
    // If that thread had forked the server, the kernel would have killed it when the thread ended.
    assert_eq!(client.ask("PING"), "PONG");
    client.expect_silence(A_WHILE);
}

#[test]
fn dropped_server_is_gone_with_its_directory() {
    let server = plain().start();
    let (dir, port) = (server.dir().to_owned(), server.port());
    drop(server);
    assert!(!dir.exists());
    TcpStream::connect(("127.0.0.1", port)).expect_err("no server listens");
}

/// The name of the test that the next one runs in a process of its own.
const VICTIM: &str = "victim_process";

/// In a normal run it returns at once. As a victim it starts a server and waits to be killed.
#[test]
fn victim_process() {
    let Some(path) = victims_report() else {
        return;
    };
    let server = plain().start();
    let words = [
        server.port().to_string(),
        server.dir().display().to_string(),
    ];
    report_and_wait(path, &words, server.connect());
}

#[test]
fn server_of_a_killed_test_process_is_killed_too() {
    let mut victim = Victim::run(&name_of_test(module_path!(), VICTIM));
    let report = victim.report();
    let [port, dir] = &report[..] else {
        panic!("a port and a directory: {report:?}");
    };
    let port: u16 = port.parse().expect("a port");
    TcpStream::connect(("127.0.0.1", port)).expect("the victim's server listens");

    victim.kill();
    let killed = Instant::now();
    eventually("the death of the victim's server", SOON, || {
        TcpStream::connect(("127.0.0.1", port)).is_err()
    });
    assert!(killed.elapsed() < SOON);
    std::fs::remove_dir_all(dir).expect("the victim's directory is still there");
}

#[test]
fn server_that_loses_power_has_what_was_synced() {
    let Some(disk) = Disk::new() else { return };
    let builder = plain()
        .config("appendonly", "yes")
        .config("appendfsync", "always");
    let mut server = disk.under(builder).start();
    let mut client = server.connect();
    assert_eq!(client.ask("SET synced 1"), "OK");
    // A rewrite makes files with other names, and removes those before it.
    rewrite_aof(&server);
    assert_eq!(client.ask("SET synced 2"), "OK");
    let before = SystemTime::now();
    assert_eq!(client.ask("CONFIG SET appendfsync no"), "OK");
    assert_eq!(client.ask("SET unsynced 1"), "OK");
    server.lose_power(100);
    server.start_again();
    assert_eq!(server.connect().ask("GET unsynced"), "1", "all was kept");

    assert_eq!(server.connect().ask("CONFIG SET appendfsync no"), "OK");
    assert_eq!(server.connect().ask("SET unsynced 2"), "OK");
    server.lose_power(0);
    server.start_again();
    let mut client = server.connect();
    assert_eq!(client.ask("GET synced"), "2");
    assert_eq!(client.ask("GET unsynced"), "1");
    assert!(server.synced_until() <= before);
}
