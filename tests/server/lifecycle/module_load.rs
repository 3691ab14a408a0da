//! Loading the module into a running server: refusals, and what they leave behind.
//!
//! A server unloads the library that it refuses. If it still called into that library, by a command filter or the
//! receiver of other nodes' messages, it would crash at the next occasion. So after every refusal these tests give the
//! server each occasion: commands, events, closed connections, cluster messages. Then the module must load.

use crate::support::steps::*;
use crate::support::*;

/// Sends `MODULE LOAD` or `MODULE LOADEX` of the module under test.
#[track_caller]
fn load(server: &Server, how: &str, arguments: &str) -> Reply {
    let path = module_path();
    let line = format!("MODULE {how} {} {arguments}", path.display());
    server.connect().ask(line)
}

#[track_caller]
fn assert_refused(server: &Server, how: &str, arguments: &str) {
    let reply = load(server, how, arguments);
    assert!(
        reply
            .error()
            .starts_with("ERR Error loading the extension."),
        "{how} {arguments}: {reply:?}"
    );
}

#[track_caller]
fn assert_loaded(server: &Server, is_loaded: bool) {
    let modules = server.connect().ask("MODULE LIST");
    let has_name = |module: &Reply| *module.field("name") == "dsync";
    assert_eq!(modules.as_array().iter().any(has_name), is_loaded);
}

/// Gives the server every occasion to call into a library that it still knows. `key` is used for it.
#[track_caller]
fn exercise_server(server: &Server, key: &str) {
    let renamed = format!("{{{key}}}renamed");
    let mut client = server.connect();
    for line in [
        format!("SET {key} value"),
        // Keyspace notifications.
        format!("RENAME {key} {renamed}"),
        format!("DEL {renamed}"),
        "CONFIG SET maxmemory-samples 6".to_owned(),
        "CONFIG SET maxmemory-samples 5".to_owned(),
        "FLUSHALL".to_owned(),
        "DEBUG RELOAD".to_owned(),
        "BGSAVE".to_owned(),
        "INFO everything".to_owned(),
        "COMMAND COUNT".to_owned(),
    ] {
        let reply = client.ask(&line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    client.close();
    let mut client = server.connect();
    let mut victim = server.connect();
    let kill = format!("CLIENT KILL ID {}", victim.id());
    assert_eq!(client.ask(kill), 1);
    // A turn of the server's cron, in which due timers fire.
    let uptime = server.info_number("server", "uptime_in_seconds");
    eventually("the server's cron", SOON, || {
        server.info_number("server", "uptime_in_seconds") > uptime
    });
    eventually("the end of the save", SOON, || {
        server.info_number("persistence", "rdb_bgsave_in_progress") == 0
    });
}

/// The number of module messages that this node has received over the cluster bus.
#[track_caller]
fn bus_messages(server: &Server) -> u64 {
    let info = server.connect().ask("CLUSTER INFO");
    let field = "cluster_stats_messages_module_received:";
    let value = info
        .as_str()
        .lines()
        .find_map(|line| line.strip_prefix(field)?.parse().ok());
    value.unwrap_or(0)
}

/// The same as [`exercise_server`], in a cluster whose other nodes have the module.
#[track_caller]
fn exercise_node(server: &Server, key: &str) {
    let mut client = server.connect();
    for line in ["CLUSTER NODES", "CLUSTER INFO", "CLUSTER SLOTS"] {
        let reply = client.ask(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    // Each node sends its last fence to all others once a second.
    let before = bus_messages(server);
    eventually("messages of both peers", SOON, || {
        bus_messages(server) >= before + 4
    });
    exercise_server(server, key);
}

/// Uses the module: a grant, a hand-off, a lapse.
#[track_caller]
fn use_locks(server: &Server, key: &str) {
    let mut client = server.connect();
    let (token, first) = client.ask(format!("DLOCK.ACQUIRE {key} EX 600")).grant();
    let mut waiter = server.waiting(format!("DLOCK.ACQUIRE {key} PX 1 BLOCK 0"));
    assert_eq!(client.ask(format!("DLOCK.RELEASE {key} {token}")), 1);
    let (_, second) = waiter.granted();
    assert!(second > first);
    wait_until_gone(&mut client, key);
}

/// Returns whether this server refuses a module for an unknown directive of `MODULE LOADEX` and goes on. Redis 7.2 and
/// 7.4 and all Valkeys dereference a null pointer there, and Redis 7.0 answers an error and keeps the module; so on
/// those dsync makes the server forget such directives.
#[track_caller]
fn refuses_unknown_directives(server: &Server) -> bool {
    let flavour = server.flavour();
    flavour.product == Product::Redis && flavour.version >= (8, 0, 0)
}

const REFUSED: [(&str, &str); 4] = [
    ("LOAD", "no-such-setting 1"),
    ("LOAD", "rejoin-ms 5 max-waiters 0"),
    ("LOADEX", "CONFIG dsync.rejoin-ms -1"),
    ("LOADEX", "CONFIG dsync.rejoin-ms 7 ARGS max-waiters many"),
];

const UNKNOWN_DIRECTIVE: (&str, &str) = (
    "LOADEX",
    "CONFIG dsync.rejoin-ms 7 CONFIG dsync.no-such-setting 1",
);

/// Lets a server without the module refuse it for each reason, exercises the server after each refusal, and then loads
/// the module.
#[track_caller]
fn refuse_then_load(server: &Server, key: &str, exercise: fn(&Server, &str)) {
    for (how, arguments) in REFUSED {
        assert_refused(server, how, arguments);
        exercise(server, key);
        assert_loaded(server, false);
    }
    // The library may stay in memory after a refusal, and must work after any number of refusals.
    for _ in 0..20 {
        for (how, arguments) in REFUSED {
            assert_refused(server, how, arguments);
        }
    }
    exercise(server, key);

    let (how, arguments) = UNKNOWN_DIRECTIVE;
    if refuses_unknown_directives(server) {
        for _ in 0..3 {
            assert_refused(server, how, arguments);
        }
        exercise(server, key);
        assert_loaded(server, false);
        assert_eq!(load(server, "LOADEX", "CONFIG dsync.rejoin-ms 7"), "OK");
    } else {
        assert_eq!(load(server, how, arguments), "OK");
    }
    assert_loaded(server, true);
    let mut client = server.connect();
    let rejoin = client.ask("CONFIG GET dsync.*");
    assert_eq!(*rejoin.field("dsync.rejoin-ms"), "7");
    use_locks(server, key);
    exercise(server, key);
    use_locks(server, key);
    assert_calm(server);
}

#[test]
fn refused_load_leaves_a_server_that_serves_and_loads() {
    let server = Server::builder().without_module().start();
    refuse_then_load(&server, "key", exercise_server);
}

#[test]
fn refused_load_of_a_library_that_stays_in_memory_can_be_repeated() {
    let server = Server::builder().without_module().keeping_library().start();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid())).expect("its maps");
    let name = module_path();
    assert!(maps.contains(&*name.to_string_lossy()), "not kept: {maps}");
    refuse_then_load(&server, "key", exercise_server);
}

#[test]
fn refused_load_in_cluster_leaves_a_node_that_serves_and_loads() {
    let cluster = Cluster::builder().without_module_on(0).start();
    let key = cluster.key_of(0, "key");
    refuse_then_load(&cluster[0], &key, exercise_node);
}

/// How many lines of the log say that the module was there already, and what to do about it.
fn told_of_second_loads(server: &Server) -> usize {
    let log = server.log_text();
    let is_told = |line: &&str| {
        let parts = [
            "dsync is loaded already",
            "remove one",
            "loadmodule",
            "CONFIG REWRITE",
        ];
        parts.iter().all(|part| line.contains(part))
    };
    log.lines().filter(is_told).count()
}

/// CONFIG REWRITE, an operator's or Sentinel's at a failover, writes `loadmodule` into the main file, although an
/// included file has it. The next start ended with "initialization failed", and nothing said why.
#[test]
fn loadmodule_line_doubled_by_config_rewrite_stops_the_start_and_is_named() {
    let mut server = Server::builder().without_module().start();
    server.shutdown();
    let included = server.dir().join("modules.conf");
    let line = format!("loadmodule {}\n", module_path().display());
    std::fs::write(&included, line).expect("it is written");
    server.configure("include", included.display());
    server.start_again();
    assert_eq!(server.connect().ask("CONFIG REWRITE"), "OK");
    server.shutdown();
    assert_eq!(told_of_second_loads(&server), 0);

    server.begin_again();
    let ended = server.wait_for_answer().expect_err("it was loaded twice");
    assert_eq!(
        told_of_second_loads(&server),
        1,
        "{ended}: {}",
        server.log_text()
    );

    // The cure that the line names.
    server.kill9();
    std::fs::write(&included, "").expect("it is written");
    server.start_again();
    use_locks(&server, "key");
    assert_calm(&server);
}

#[test]
fn second_load_of_a_loaded_module_is_refused_and_harms_nothing() {
    let cluster = Cluster::start();
    let (server, key) = (&cluster[0], cluster.key_of(0, "key"));
    let mut client = server.connect();
    let held = format!("{{{key}}}held");
    client
        .ask(format!("DLOCK.ACQUIRE {held} EX 600 TOKEN t"))
        .grant();
    let mut waiter = server.waiting(format!("DLOCK.ACQUIRE {held} BLOCK 0"));
    for (how, arguments) in REFUSED.into_iter().chain([("LOAD", ""), ("LOADEX", "")]) {
        assert_refused(server, how, arguments);
    }
    let told = told_of_second_loads(server);
    assert_eq!(told, REFUSED.len() + 2, "{}", server.log_text());
    // A copy of the file is another library with the same module name.
    let copy = server.dir().join("copy.so");
    std::fs::copy(module_path(), &copy).expect("the module is copied");
    let again = client.ask(format!("MODULE LOAD {}", copy.display()));
    assert!(again.is_error(), "{again:?}");
    assert_eq!(told_of_second_loads(server), told + 1);

    assert_eq!(client.ask(format!("DLOCK.RELEASE {held} t")), 1);
    waiter.granted();
    use_locks(server, &key);
    let before = bus_messages(server);
    eventually("messages of both peers", SOON, || {
        bus_messages(server) >= before + 4
    });
    use_locks(server, &key);
    assert_calm(server);
}

/// The server may have had the module before, and have lost what it knew.
#[test]
fn first_fence_behind_load_is_two_hours_ahead() {
    let server = Server::builder().without_module().start();
    let path = module_path();
    let load = format!("MODULE LOAD {}", path.display());
    let replies = server
        .connect()
        .ask_all([&load[..], "DLOCK.ACQUIRE k", "DEBUG RELOAD"]);
    let fence = replies[1].grant().1;
    let ahead_us = fence.saturating_sub(unix_us());
    assert!(ahead_us > 7_140_000_000, "{ahead_us}");
    let next = server.connect().ask("DLOCK.ACQUIRE j").grant().1;
    assert!(
        next - fence < 60_000_000,
        "a reload is no start: {next} follows {fence}"
    );
}

#[test]
fn unload_is_refused_and_harms_nothing() {
    let server = Server::builder().without_module().start();
    assert_eq!(load(&server, "LOAD", ""), "OK");
    let mut client = server.connect();
    let mut waiter = {
        client.ask("DLOCK.ACQUIRE held EX 600 TOKEN t").grant();
        server.waiting("DLOCK.ACQUIRE held BLOCK 0")
    };
    let refused = client.ask("MODULE UNLOAD dsync");
    assert!(refused.error().contains("data type"), "{refused:?}");
    assert_eq!(client.ask("DLOCK.RELEASE held t"), 1);
    waiter.granted();
    use_locks(&server, "key");
    assert_calm(&server);
}
