//! DSYNC.HOLDS: all holds of a server, some at a time, by their owners if asked; and what docs/operations.md does with
//! it.

use crate::support::steps::*;
use crate::support::*;
use std::collections::{BTreeMap, BTreeSet};

/// A row of DSYNC.HOLDS.
#[derive(Clone, Debug, PartialEq)]
struct HeldRow {
    /// The database and the key; `None` while the server does not know where RENAME or MOVE has taken it.
    key: Option<(i64, String)>,
    family: String,
    fence: u64,
    owner: Option<String>,
    client: Option<u64>,
    left_ms: i64,
    held_ms: i64,
}

fn text(reply: &Reply) -> Option<String> {
    let shown = || reply.as_bytes().escape_ascii().to_string();
    (!reply.is_nil()).then(shown)
}

impl HeldRow {
    #[track_caller]
    fn read(reply: &Reply) -> HeldRow {
        let [db, key, family, fence, owner, client, left_ms, held_ms] = reply.as_array() else {
            panic!("no row of DSYNC.HOLDS: {reply:?}");
        };
        assert_eq!(db.is_nil(), key.is_nil(), "{reply:?}");
        HeldRow {
            key: text(key).map(|key| (db.as_int(), key)),
            family: family.as_str().to_owned(),
            fence: fence.as_int().unsigned_abs(),
            owner: text(owner),
            client: (!client.is_nil()).then(|| client.as_int().unsigned_abs()),
            left_ms: left_ms.as_int(),
            held_ms: held_ms.as_int(),
        }
    }
}

/// One call: the next cursor and the rows.
#[track_caller]
fn page(client: &mut Client, cursor: &str, rest: &[&str]) -> (String, Vec<HeldRow>) {
    let reply = client.call(&[&["DSYNC.HOLDS", cursor], rest].concat());
    let [next, rows] = reply.as_array() else {
        panic!("{rest:?}: {reply:?}");
    };
    let rows = rows.as_array().iter().map(HeldRow::read).collect();
    (next.as_str().to_owned(), rows)
}

/// A whole walk: its rows, and how many calls it took.
#[track_caller]
fn walk(client: &mut Client, rest: &[&str]) -> (Vec<HeldRow>, usize) {
    let (mut all, mut cursor) = (Vec::new(), "0".to_owned());
    for calls in 1..=1_000 {
        let (next, rows) = page(client, &cursor, rest);
        all.extend(rows);
        cursor = next;
        if cursor == "0" {
            return (all, calls);
        }
    }
    panic!("the walk has no end")
}

fn fences(rows: &[HeldRow]) -> BTreeSet<u64> {
    rows.iter().map(|row| row.fence).collect()
}

#[test]
fn holds_shows_every_field_of_every_family() {
    let server = Server::start();
    let mut holder = server.connect();
    let id = holder.id();
    let mut fences = Vec::new();
    let cases = [
        (
            0,
            "lock",
            "lock",
            "DLOCK.ACQUIRE lock EX 600 OWNER app@web-1:241",
            Some("app@web-1:241"),
        ),
        (
            3,
            "sem",
            "semaphore",
            "DSEM.ACQUIRE sem LIMIT 5 EX 600",
            None,
        ),
        (
            0,
            "group",
            "group",
            "DWG.ADD group EX 600 OWNER 'a b'",
            Some("a b"),
        ),
        (
            9,
            "once",
            "once",
            "DONCE.BEGIN once EX 600 OWNER web-2",
            Some("web-2"),
        ),
    ];
    for (db, _, _, line, _) in cases {
        holder.ask(format!("SELECT {db}"));
        fences.push(any_grant(&holder.ask(line)).1);
    }
    // A key without holds has no row, nor has one that only waits.
    holder.ask("DSEM.LIMIT pinned 1");
    let _waiter = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    for mut client in [server.connect(), server.connect_resp3()] {
        let (rows, calls) = walk(&mut client, &[]);
        assert_eq!((rows.len(), calls), (4, 1));
        for ((db, key, family, _, owner), fence) in cases.iter().zip(&fences) {
            let row = rows.iter().find(|row| row.fence == *fence).expect("a row");
            assert!((500_000..=600_000).contains(&row.left_ms), "{row:?}");
            assert!((0..100_000).contains(&row.held_ms), "{row:?}");
            let expected = HeldRow {
                key: Some((*db, (*key).to_owned())),
                family: (*family).to_owned(),
                fence: *fence,
                owner: owner.map(str::to_owned),
                client: Some(id),
                ..row.clone()
            };
            assert_eq!(*row, expected);
        }
    }
    // A hold that another server granted has no client here, and a key may have any bytes.
    let mut client = server.connect();
    client.ask("DEBUG RELOAD");
    call!(client, "DLOCK.ACQUIRE", b"a b\r\n\0\xff");
    let (rows, _) = walk(&mut client, &[]);
    let reloaded = rows.iter().filter(|row| row.client.is_none()).count();
    assert_eq!((rows.len(), reloaded), (5, 4), "{rows:?}");
    let odd = (0, r"a b\r\n\x00\xff".to_owned());
    assert!(
        rows.iter().any(|row| row.key == Some(odd.clone())),
        "{rows:?}"
    );
}

#[test]
fn walk_finds_each_hold_once_whatever_the_count() {
    let server = Server::start();
    let mut client = server.connect();
    let locks = (0..90).map(|n| format!("DLOCK.ACQUIRE k{n} EX 600"));
    let permits = (0..110).map(|_| "DSEM.ACQUIRE sem LIMIT 1000 EX 600".to_owned());
    let grants = client.ask_all(locks.chain(permits));
    let expected: BTreeSet<u64> = grants.iter().map(|grant| grant.grant().1).collect();
    for (count, calls) in [("1", 200), ("7", 29), ("199", 2), ("200", 1), ("1000", 1)] {
        let (rows, took) = walk(&mut client, &["COUNT", count]);
        assert_eq!((rows.len(), took), (200, calls), "COUNT {count}");
        assert_eq!(fences(&rows), expected, "COUNT {count}");
    }
    let (rows, took) = walk(&mut client, &[]);
    assert_eq!((rows.len(), took), (200, 20), "ten holds without COUNT");
    // A call without a row also goes on.
    let (rows, took) = walk(&mut client, &["OWNER", "nobody", "COUNT", "50"]);
    assert_eq!((rows.len(), took), (0, 4));
}

#[test]
fn walk_finds_holds_whose_keys_move_meanwhile() {
    let server = Server::start();
    let mut client = server.connect();
    let lines = (0..40).map(|n| format!("DLOCK.ACQUIRE k{n} EX 600"));
    let grants = client.ask_all(lines);
    let mut lasting: BTreeSet<u64> = grants.iter().map(|grant| grant.grant().1).collect();
    let (mut cursor, mut met) = ("0".to_owned(), Vec::new());
    for n in 0.. {
        // Two of the holds end, and all others go elsewhere. New ones come, some of them in places that are free.
        for line in [
            format!("RENAME k{n} renamed{n}"),
            format!("MOVE k{} 1", 39 - n),
            "SWAPDB 0 2".to_owned(),
            "SWAPDB 2 0".to_owned(),
            format!("DLOCK.ACQUIRE new{n} EX 600"),
        ] {
            client.ask(line);
        }
        if n < 2 {
            let key = format!("k{}", 20 + n);
            let (_, rows) = page(&mut client, "0", &["COUNT", "1000"]);
            let at = Some((0, key.clone()));
            let gone = rows.iter().find(|row| row.key == at).expect("held");
            lasting.remove(&gone.fence);
            client.ask(format!("DEL {key}"));
        }
        let (next, rows) = page(&mut client, &cursor, &["COUNT", "3"]);
        met.extend(rows);
        cursor = next;
        if cursor == "0" {
            break;
        }
    }
    let found = fences(&met);
    assert_eq!(found.len(), met.len(), "none twice");
    let missed: Vec<_> = lasting.difference(&found).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn cursor_of_another_form_is_refused_and_named() {
    let server = Server::start();
    let mut client = server.connect();
    for cursor in ["1", "00", "-1", "1-"] {
        let text = format!("ERR a cursor is 0 or what the last call returned, not '{cursor}'");
        let reply = client.ask(format!("DSYNC.HOLDS {cursor}"));
        assert_eq!(reply, Reply::Error(text));
    }
}

#[test]
fn renamed_hold_has_no_place_until_it_is_found() {
    let server = Server::start();
    let mut client = server.connect();
    let (_, fence) = client.ask("DLOCK.ACQUIRE old EX 600").grant();
    // In one turn, so that the timer has not found it yet.
    let replies = client.ask_all(["RENAME old new", "DSYNC.HOLDS 0"]);
    let row = HeldRow::read(&replies[1].as_array()[1].as_array()[0]);
    assert_eq!((row.key, row.fence), (None, fence));
    eventually("the hold under its new name", SOON, || {
        let (rows, _) = walk(&mut client, &[]);
        rows.len() == 1 && rows[0].key == Some((0, "new".to_owned()))
    });
}

#[test]
fn owner_pattern_fits_what_keys_would_list() {
    let server = Server::start();
    let mut client = server.connect();
    let owners = [
        "a",
        "b",
        "ab",
        "abc",
        "web-1",
        "web-11",
        "app@web-1:241",
        "WEB-1",
        "*",
        "[",
        "]",
        "a*c",
        "\\",
        "a-c",
        "^",
        "web-1 web-2",
    ];
    for owner in owners {
        call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 100, "OWNER", owner);
        client.ask("SELECT 1");
        call!(client, "SET", owner, 1);
        client.ask("SELECT 0");
    }
    // These have no owner, and fit no pattern.
    client.ask("DSEM.ACQUIRE sem LIMIT 100");
    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 100, "OWNER", "");
    for pattern in [
        "*", "?", "??", "web-1", "web-1*", "web-?", "*1", "*web*", "[ab]", "[a-b]*", "[^a]",
        "[^a-b]*", "\\*", "[\\]]", "[[]", "a\\*c", "a?c", "[a", "\\", "[^", "[b-a]", "**b**",
        "[a-]", "a[-b]c", "",
    ] {
        let (rows, _) = walk(&mut client, &["OWNER", pattern, "COUNT", "1000"]);
        let found: BTreeSet<_> = rows.into_iter().filter_map(|row| row.owner).collect();
        client.ask("SELECT 1");
        let keys = call!(client, "KEYS", pattern);
        let listed: BTreeSet<_> = keys.as_array().iter().filter_map(text).collect();
        client.ask("SELECT 0");
        assert_eq!(found, listed, "{pattern:?}");
    }
}

#[test]
fn holds_on_a_replica_are_those_of_its_primary() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = primary.connect();
    for line in [
        "DLOCK.ACQUIRE lock EX 600 OWNER web-1",
        "DSEM.ACQUIRE sem LIMIT 5 EX 500",
        "DSEM.ACQUIRE sem LIMIT 5 EX 400 OWNER web-2",
    ] {
        client.ask(line).grant();
    }
    replica.wait_to_catch_up_with(&primary);
    let by_fence = |server: &Server| -> BTreeMap<u64, HeldRow> {
        let (rows, _) = walk(&mut server.connect(), &["COUNT", "1"]);
        rows.into_iter().map(|row| (row.fence, row)).collect()
    };
    let (ours, theirs) = (by_fence(&primary), by_fence(&replica));
    assert!(ours.keys().eq(theirs.keys()));
    for (row, there) in ours.values().zip(theirs.values()) {
        assert_eq!(
            (&row.key, &row.family, &row.owner),
            (&there.key, &there.family, &there.owner)
        );
        assert_eq!(there.client, None, "connections are not replicated");
        assert!(
            (row.left_ms - there.left_ms).abs() < 100_000,
            "{row:?}, {there:?}"
        );
    }
}

#[test]
fn script_of_operations_page_ends_everything_of_one_owner() {
    let server = Server::start();
    let mut client = server.connect();
    let users = acl_users("Any server");
    let operator = users.iter().find(|user| user.starts_with("operator "));
    let operator = operator.expect("a ready-made operator");
    assert_eq!(client.ask(format!("ACL SETUSER {operator}")), "OK");
    let mut line = |line: &str| client.ask(line);
    for n in 0..250 {
        line(&format!(
            "DSEM.ACQUIRE sem LIMIT 1000 OWNER app@web-1:{n} EX 600"
        ));
        line(&format!(
            "DLOCK.ACQUIRE k{n} OWNER app@web-{}:9 EX 600",
            n % 25
        ));
    }
    line("SELECT 5");
    line("DWG.ADD 'a group' OWNER app@web-1:7 EX 600");
    line("DONCE.BEGIN once OWNER app@web-1:7 EX 600");
    line("DONCE.BEGIN other OWNER app@web-11:7 EX 600");
    // Otherwise a redis-cli that cannot log in goes on as the default user.
    assert_eq!(client.ask("ACL SETUSER default off"), "OK");
    let blocks = blocks(&document("docs/operations.md"));
    let script = blocks.iter().find(|block| block.starts_with("cursor=0"));
    let output = shell_of(&server)
        .args(["-c", script.expect("a script")])
        .env("REDISCLI_AUTH", "secret")
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{output:?}");
    let (rows, _) = walk(&mut client, &["COUNT", "1000"]);
    let is_ours = |row: &HeldRow| {
        let owner = row.owner.as_deref().unwrap_or_default();
        owner.starts_with("app@web-1:")
    };
    let left: Vec<_> = rows.iter().filter(|row| is_ours(row)).collect();
    assert!(left.is_empty(), "{left:?}");
    // 240 locks of the other 24 owners, and one run.
    assert_eq!(rows.len(), 241);
}
