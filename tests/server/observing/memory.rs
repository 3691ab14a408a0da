//! What keys cost. MEMORY USAGE tells the truth about it, and a flush gives it back.

use crate::support::steps::*;
use crate::support::*;

fn used_memory(server: &Server) -> f64 {
    server.info_number("memory", "used_memory") as f64
}

/// Makes `keys` keys by these commands, each with KEY for the name of the key, which begins with `prefix`, and NUMBER
/// for its number. Returns the bytes that a key takes by `used_memory`, and by MEMORY USAGE.
fn cost(keys: usize, prefix: &str, commands: &[String]) -> (f64, f64) {
    let server = Server::start();
    let mut client = server.connect();
    let for_all = |client: &mut Client, command: &str| {
        let line = |n: usize| {
            let number = format!("{n:08}");
            let name = format!("{prefix}{number}");
            command.replace("KEY", &name).replace("NUMBER", &number)
        };
        client.ask_all((0..keys).map(line))
    };
    for_all(&mut client, "EXISTS absent:NUMBER");
    let before = used_memory(&server);
    for command in commands {
        let replies = for_all(&mut client, command);
        assert!(!replies[keys - 1].is_error(), "{:?}", replies[keys - 1]);
    }
    // Each command moves a part of the server's table that is being resized: finish that.
    for_all(&mut client, "EXISTS KEY");
    let taken = used_memory(&server) - before;
    assert_eq!(client.ask("DBSIZE"), keys as i64, "{commands:?}");
    let said = for_all(&mut client, "MEMORY USAGE KEY SAMPLES 0");
    let said: i64 = said.iter().map(Reply::as_int).sum();
    (taken / keys as f64, said as f64 / keys as f64)
}

#[test]
fn memory_usage_of_every_kind_is_what_the_server_allocates() {
    let acquire = |rest: &str| format!("DLOCK.ACQUIRE KEY EX 600 {rest}");
    let long = format!("TOKEN {}NUMBER OWNER {}", "t".repeat(120), "o".repeat(128));
    let semaphore = |rest: &str| format!("DSEM.ACQUIRE KEY LIMIT 99 EX 600 {rest}");
    let rests = |count: usize| {
        let held = (0..count).map(|n| semaphore(&format!("MINHOLD 600000 TOKEN t-{n}")));
        let released = (0..count).map(|n| format!("DSEM.RELEASE KEY t-{n}"));
        held.chain(released).collect::<Vec<_>>()
    };
    let once = [
        "DONCE.BEGIN KEY EX 600 TOKEN run-NUMBER",
        "DONCE.DONE KEY run-NUMBER RESULT NUMBER",
    ];
    let places = |count: usize, texts: &str| {
        let held = std::iter::once(acquire(""));
        let place = |n| match texts {
            "" => acquire(&format!("TOKEN t-{n}-NUMBER QUEUE 60000")),
            texts => acquire(&texts.replace("TOKEN t", &format!("TOKEN {n}"))) + " QUEUE 60000",
        };
        held.chain((0..count).map(place)).collect::<Vec<_>>()
    };
    let name = "n".repeat(40);
    let kinds = [
        ("a lock", "key:", vec![acquire("")]),
        (
            "its token has 20 bytes",
            "key:",
            vec![acquire("TOKEN t-2345678901NUMBER")],
        ),
        (
            "its owner has 16 bytes",
            "key:",
            vec![acquire("OWNER web-5678NUMBER")],
        ),
        ("its texts are long", "key:", vec![acquire(&long)]),
        ("its name is long", &name, vec![acquire("")]),
        ("ephemeral", "key:", vec![acquire("EPHEMERAL")]),
        ("two shared holds", "key:", vec![acquire("SHARED"); 2]),
        ("a semaphore", "key:", vec![semaphore("")]),
        ("two permits", "key:", vec![semaphore("PERMITS 2")]),
        ("3 holders", "key:", vec![semaphore(""); 3]),
        ("12 holders", "key:", vec![semaphore(""); 12]),
        ("30 holders", "key:", vec![semaphore(""); 30]),
        (
            "3 holders with an index",
            "key:",
            vec![semaphore("INDEX"); 3],
        ),
        ("a rest", "key:", rests(1)),
        ("3 rests", "key:", rests(3)),
        ("30 rests", "key:", rests(30)),
        ("a group", "key:", vec!["DWG.ADD KEY EX 600".to_owned()]),
        ("a run", "key:", vec!["DONCE.BEGIN KEY EX 600".to_owned()]),
        ("done", "key:", once.map(str::to_owned).to_vec()),
        ("a kept place", "key:", places(1, "")),
        ("3 kept places", "key:", places(3, "")),
        ("its texts are long, of 3", "key:", places(3, &long)),
        ("12 kept places", "key:", places(12, "")),
        ("30 kept places", "key:", places(30, "")),
    ];
    // The server leaves out its table. How much that is, a type of its own shows.
    let (taken, said) = cost(20_000, "key:", &[format!("SET KEY {}", "x".repeat(36))]);
    let table = taken - said;
    for (kind, prefix, commands) in kinds {
        let keys = match commands.len() {
            // Kept places take at most half of `dsync.max-waiters`.
            10.. => 1_500,
            4.. => 10_000,
            _ => 20_000,
        };
        let (taken, said) = cost(keys, prefix, &commands);
        let off = (said + table) / taken - 1.0;
        // Valkey 9 counts the object of a value itself, so there it is counted twice.
        assert!(
            off.abs() < 0.12,
            "{kind}: {taken:.1} bytes taken, {said:.1} said and {table:.1} for the table"
        );
    }
}

#[test]
fn flush_of_many_locks_gives_their_memory_back() {
    let server = Server::start();
    let mut client = server.connect();
    let acquire = |n| format!("DLOCK.ACQUIRE key:{n} EX 600");
    for flush in ["FLUSHALL", "FLUSHALL ASYNC"] {
        client.ask_all((0..1_000).map(acquire));
        client.ask("FLUSHALL");
        let before = used_memory(&server);
        client.ask_all((0..200_000).map(acquire));
        assert_eq!(client.ask(flush), "OK");
        // Some chunks are kept, so that a server does not allocate each time.
        eventually("the memory of the start", SOON, || {
            used_memory(&server) - before < 1_000_000.0
        });
    }
}
