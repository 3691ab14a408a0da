//! DSYNC.CONTENDED: the keys that have waiters, the longest wait first.
//!
//! It covers all databases and families and is bounded by COUNT. Vacant places are not listed.

use crate::support::steps::*;
use crate::support::*;

/// One entry of the reply of DSYNC.CONTENDED.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ContendedKey {
    db: i64,
    key: String,
    family: String,
    waiters: i64,
    longest_ms: i64,
}

#[track_caller]
fn entries(reply: &Reply) -> Vec<ContendedKey> {
    let entry = |entry: &Reply| match entry.as_array() {
        [db, key, family, waiters, longest] => ContendedKey {
            db: db.as_int(),
            key: key.as_bytes().escape_ascii().to_string(),
            family: family.as_str().to_owned(),
            waiters: waiters.as_int(),
            longest_ms: longest.as_int(),
        },
        _ => panic!("expected [db, key, type, waiters, longest-wait-ms], received {entry:?}"),
    };
    reply.as_array().iter().map(entry).collect()
}

#[track_caller]
fn contended(client: &mut Client) -> Vec<ContendedKey> {
    entries(&client.ask("DSYNC.CONTENDED COUNT 1000"))
}

#[track_caller]
fn names(client: &mut Client, line: &str) -> Vec<String> {
    let keys = entries(&client.ask(line)).into_iter();
    keys.map(|entry| entry.key).collect()
}

/// Waits until all present waits are some milliseconds longer, so that the next waiter's wait is shorter than each of
/// them in whole milliseconds.
#[track_caller]
fn let_them_wait(client: &mut Client) {
    eventually("waits of some length", SOON, || {
        contended(client).iter().all(|entry| entry.longest_ms >= 3)
    });
    let now = contended(client);
    eventually("longer waits", SOON, || {
        let later = contended(client);
        now.iter()
            .zip(&later)
            .all(|(now, later)| later.longest_ms >= now.longest_ms + 3)
    });
}

#[test]
fn contended_is_empty_without_waiters() {
    let server = Server::start();
    for mut client in [server.connect(), server.connect_resp3()] {
        assert_eq!(client.ask("DSYNC.CONTENDED"), Reply::Array(vec![]));
        // A held key without waiters and a failed try are not listed.
        client.ask("DLOCK.ACQUIRE lock EX 1000");
        assert!(client.ask("DLOCK.ACQUIRE lock").is_nil());
        assert_eq!(client.ask("DSYNC.CONTENDED"), Reply::Array(vec![]));
    }
}

#[test]
fn contended_shows_db_key_type_waiters_and_longest_wait() {
    let server = Server::start();
    let mut client = server.connect();
    let mut clients = Vec::new();
    let cases = [
        (
            0,
            "lock",
            "lock",
            "DLOCK.ACQUIRE lock",
            "DLOCK.ACQUIRE lock BLOCK 0",
            3,
        ),
        (
            3,
            "sem",
            "semaphore",
            "DSEM.ACQUIRE sem LIMIT 1",
            "DSEM.ACQUIRE sem BLOCK 0",
            2,
        ),
        (
            0,
            "group",
            "group",
            "DWG.ADD group LIMIT 1",
            "DWG.ADD group BLOCK 0",
            1,
        ),
        (
            9,
            "once",
            "once",
            "DONCE.BEGIN once",
            "DONCE.BEGIN once BLOCK 0",
            2,
        ),
        (
            1,
            "round",
            "group",
            "DWG.ADD round",
            "DWG.WAIT round BLOCK 0",
            4,
        ),
    ];
    for (db, _, _, hold, wait, waiters) in cases {
        let_them_wait(&mut client);
        client.ask(format!("SELECT {db}"));
        client.ask(hold);
        for _ in 0..waiters {
            let mut waiter = server.connect();
            waiter.ask(format!("SELECT {db}"));
            waiter.wait_on(&server, wait);
            clients.push(waiter);
        }
    }
    let_them_wait(&mut client);
    for mut client in [server.connect(), server.connect_resp3()] {
        let found = contended(&mut client);
        assert_eq!(found.len(), cases.len());
        for (entry, (db, key, family, _, _, waiters)) in found.iter().zip(cases) {
            let ContendedKey { longest_ms, .. } = *entry;
            let expected = ContendedKey {
                db,
                key: key.to_owned(),
                family: family.to_owned(),
                waiters,
                longest_ms,
            };
            assert_eq!(*entry, expected);
        }
        assert!(
            found.is_sorted_by(|a, b| a.longest_ms > b.longest_ms),
            "{found:?}"
        );
        let longest = server.info_number("dsync", "dsync_longest_wait_ms");
        assert!(longest >= found[0].longest_ms.unsigned_abs());
        let waiters: i64 = found.iter().map(|entry| entry.waiters).sum();
        assert_eq!(
            server.info_number("dsync", "dsync_waiters"),
            waiters.unsigned_abs()
        );
    }
    // A key of any bytes.
    let mut client = server.connect();
    let mut waiter = server.connect();
    let name = b"a b\r\n\0\xff";
    call!(client, "DLOCK.ACQUIRE", name);
    let before = server.blocked_clients();
    send!(waiter, "DLOCK.ACQUIRE", name, "BLOCK", 0);
    server.wait_for_blocked(before + 1);
    let found = contended(&mut client);
    assert_eq!(found.last().expect("the newest").key, r"a b\r\n\x00\xff");
}

#[test]
fn contended_lists_longest_wait_first_and_drops_who_leaves() {
    let server = Server::start();
    let mut client = server.connect();
    let mut waiters = Vec::new();
    for key in ["b", "c", "a", "b"] {
        client.ask(format!("DLOCK.ACQUIRE {key} TOKEN held"));
        let_them_wait(&mut client);
        waiters.push(server.waiting(format!("DLOCK.ACQUIRE {key} BLOCK 0")));
    }
    let_them_wait(&mut client);
    assert_eq!(names(&mut client, "DSYNC.CONTENDED"), ["b", "c", "a"]);
    // The longest waiter of b is granted. The other waiter of b came last, so b moves to the end of the list.
    assert_eq!(client.ask("DLOCK.RELEASE b held"), 1);
    waiters[0].granted();
    assert_eq!(names(&mut client, "DSYNC.CONTENDED"), ["c", "a", "b"]);
    // Waiters leave by the end of their connection, by a grant and by a timeout.
    let last = waiters.pop().expect("the last");
    let mut in_a = waiters.pop().expect("the third");
    last.close();
    eventually("a shorter list", SOON, || {
        names(&mut client, "DSYNC.CONTENDED") == ["c", "a"]
    });
    assert_eq!(client.ask("DLOCK.RELEASE a held"), 1);
    in_a.granted();
    assert_eq!(names(&mut client, "DSYNC.CONTENDED"), ["c"]);
    let mut short = server.waiting("DLOCK.ACQUIRE a BLOCK 1000");
    assert_eq!(names(&mut client, "DSYNC.CONTENDED"), ["c", "a"]);
    assert!(short.reply().is_nil());
    assert_eq!(names(&mut client, "DSYNC.CONTENDED"), ["c"]);
}

#[test]
fn contended_lists_ten_keys_or_count() {
    let server = Server::start();
    let mut client = server.connect();
    let mut waiters = Vec::new();
    for n in 0..12 {
        let_them_wait(&mut client);
        client.ask(format!("DLOCK.ACQUIRE k{n}"));
        waiters.push(server.waiting(format!("DLOCK.ACQUIRE k{n} BLOCK 0")));
    }
    let_them_wait(&mut client);
    let all: Vec<_> = (0..12).map(|n| format!("k{n}")).collect();
    for (line, len) in [
        ("DSYNC.CONTENDED", 10),
        ("DSYNC.CONTENDED COUNT 1", 1),
        ("dsync.contended count 3", 3),
        ("DSYNC.CONTENDED COUNT 12", 12),
        ("DSYNC.CONTENDED COUNT 1000", 12),
    ] {
        assert_eq!(names(&mut client, line), all[..len], "{line}");
    }
}

#[test]
fn contended_does_not_list_vacant_places() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("CONFIG SET dsync.rejoin-ms 60000");
    client.ask("DLOCK.ACQUIRE lock EX 1000 TOKEN held");
    server.waiting("DLOCK.ACQUIRE lock TOKEN t BLOCK 0").close();
    server.wait_for_blocked(0);
    assert_eq!(contended(&mut client), []);
    assert_eq!(server.info_number("dsync", "dsync_longest_wait_ms"), 0);
    let _waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let found = contended(&mut client);
    assert_eq!((found.len(), found[0].waiters), (1, 1));
    // When the token resumes its place, its wait counts from the first request.
    let since_newer = found[0].longest_ms;
    let _back = server.waiting("DLOCK.ACQUIRE lock TOKEN t BLOCK 0");
    let found = contended(&mut client);
    assert_eq!((found.len(), found[0].waiters), (1, 2));
    assert!(found[0].longest_ms >= since_newer);
}

#[test]
fn contended_is_empty_on_a_replica() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = primary.connect();
    client.ask("DLOCK.ACQUIRE lock");
    let _waiter = primary.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(contended(&mut client).len(), 1);
    assert_eq!(contended(&mut replica.connect()), []);
}
