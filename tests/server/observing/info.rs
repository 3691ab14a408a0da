//! INFO of a key: what an operator sees of each family, the same in RESP2 and RESP3, and never a token.

use crate::support::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

const SHARED_FIELDS: [&str; 5] = [
    "holders",
    "waiters",
    "longest-wait-ms",
    "first-holders",
    "first-waiters",
];

/// The fields that each family has of its own, all of them, in the order of the reply.
const FAMILIES: [(&str, &str, &str, &[&str]); 4] = [
    ("DLOCK", "DLOCK.ACQUIRE", "lock", &["type", "state"]),
    (
        "DSEM",
        "DSEM.ACQUIRE",
        "semaphore",
        &[
            "type",
            "state",
            "limit",
            "pinned-limit",
            "limit-changes",
            "available",
        ],
    ),
    (
        "DWG",
        "DWG.ADD",
        "group",
        &[
            "type",
            "state",
            "limit",
            "limit-changes",
            "expected",
            "owed",
            "done",
            "lapsed",
            "kept-until-unix-ms",
        ],
    ),
    (
        "DONCE",
        "DONCE.BEGIN",
        "once",
        &[
            "type",
            "state",
            "attempts",
            "last-reason",
            "result-bytes",
            "kept-until-unix-ms",
        ],
    ),
];

/// The token and the fence of a grant, in whichever words the family gives it.
#[track_caller]
fn grant_of(reply: &Reply) -> (String, u64) {
    match reply.as_array() {
        [word, token, fence, _] if *word == "RUN" => {
            (token.as_str().to_owned(), fence.as_int().unsigned_abs())
        }
        _ => reply.grant(),
    }
}

#[track_caller]
fn queue(server: &Server, request: &[&str], count: u64) -> Client {
    let mut client = server.connect();
    client.send(request);
    wait_for_blocked(server, count);
    client
}

/// The names and values of a map, whichever protocol it came by.
#[track_caller]
fn pairs(reply: &Reply) -> Vec<(String, Reply)> {
    match reply {
        Reply::Map(pairs) => pairs
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), value.clone()))
            .collect(),
        Reply::Array(items) => {
            assert!(
                items.len() % 2 == 0,
                "a flat array of names and values: {reply:?}"
            );
            items
                .chunks(2)
                .map(|pair| (pair[0].as_str().to_owned(), pair[1].clone()))
                .collect()
        }
        other => panic!("expected a map, received {other:?}"),
    }
}

#[track_caller]
fn names(reply: &Reply) -> Vec<String> {
    pairs(reply).into_iter().map(|(name, _)| name).collect()
}

/// All that the server sends for one request, as bytes, up to the answer of the ECHO behind it.
fn raw(server: &Server, request: &str) -> Vec<u8> {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    socket
        .set_read_timeout(Some(SOON))
        .expect("a time-out above zero");
    socket
        .write_all(format!("{request}\r\nECHO the-end\r\n").as_bytes())
        .expect("sent");
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    while !bytes.ends_with(b"$7\r\nthe-end\r\n") {
        let length = socket.read(&mut chunk).expect("an answer in time");
        assert!(length > 0, "the server closed the connection");
        bytes.extend_from_slice(&chunk[..length]);
    }
    bytes
}

fn has(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

#[test]
fn an_absent_key_answers_nil() {
    let server = Server::start();
    for mut client in [server.connect(), server.connect_resp3()] {
        for (family, ..) in FAMILIES {
            assert!(call!(client, format!("{family}.INFO"), "absent").is_nil());
            assert!(call!(client, format!("{family}.INFO"), "absent", "COUNT", 5).is_nil());
        }
    }
    assert_eq!(call!(server.connect(), "DBSIZE"), 0);
}

#[test]
fn each_family_has_its_fields_in_both_protocols() {
    let server = Server::start();
    let (mut resp2, mut resp3) = (server.connect(), server.connect_resp3());
    let mut waiters = Vec::new();
    for (at, (family, acquire, kind, own)) in FAMILIES.into_iter().enumerate() {
        let mut request = vec![acquire, kind, "OWNER", "holder"];
        if family == "DSEM" || family == "DWG" {
            request.extend(["LIMIT", "1"]);
        }
        grant_of(&resp2.call(&request));
        let mut waiting = vec![acquire, kind, "BLOCK", "0", "OWNER", "waiter"];
        if family == "DWG" {
            waiting.extend(["LIMIT", "1"]);
        }
        waiters.push(queue(&server, &waiting, at as u64 + 1));

        let info = format!("{family}.INFO");
        let (two, three) = (call!(resp2, &info, kind), call!(resp3, &info, kind));
        assert!(
            matches!((&two, &three), (Reply::Array(_), Reply::Map(_))),
            "{two:?} {three:?}"
        );
        let fields: Vec<_> = own
            .iter()
            .chain(&SHARED_FIELDS)
            .map(|name| (*name).to_owned())
            .collect();
        assert_eq!(names(&two), fields);
        assert_eq!(names(&three), fields);
        assert_eq!(*two.field("type"), kind);

        let claim = if family == "DSEM" { "permits" } else { "mode" };
        for reply in [&two, &three] {
            let (holder, waiter) = (
                &reply.field("first-holders").as_array()[0],
                &reply.field("first-waiters").as_array()[0],
            );
            assert_eq!(
                names(holder),
                [
                    "fence",
                    "owner",
                    "client",
                    "lease-left-ms",
                    "held-ms",
                    claim
                ]
            );
            assert_eq!(names(waiter), ["owner", "client", "age-ms", claim]);
        }
        // The same but for the time that passed in between, which is never in both.
        for field in own.iter().chain(&["holders", "waiters"]) {
            assert_eq!(two.field(field), three.field(field), "{field}");
        }
    }
}

#[test]
fn a_holder_is_shown_with_its_fence_owner_connection_lease_and_claim() {
    let server = Server::start();
    let mut client = server.connect();
    let mut holder = server.connect();
    let id = holder.id().cast_signed();
    for (family, acquire, _, _) in FAMILIES {
        let mut request = vec![acquire, "key", "PX", "50000", "OWNER", "host-7"];
        let (claim, value): (_, Reply) = match family {
            "DLOCK" => {
                request.push("SHARED");
                ("mode", Reply::Bulk(b"shared".to_vec()))
            }
            "DSEM" => {
                request.extend(["LIMIT", "9", "PERMITS", "4"]);
                ("permits", Reply::Int(4))
            }
            "DWG" => ("mode", Reply::Bulk(b"member".to_vec())),
            _ => ("mode", Reply::Bulk(b"run".to_vec())),
        };
        let (token, fence) = grant_of(&holder.call(&request));
        let info = format!("{family}.INFO");
        eventually("some time to pass", SOON, || {
            call!(client, &info, "key")
                .field("first-holders")
                .as_array()[0]
                .field("held-ms")
                .as_int()
                > 0
        });
        let reply = call!(client, &info, "key");
        let hold = &reply.field("first-holders").as_array()[0];
        assert_eq!(hold.field("fence").as_int(), fence.cast_signed());
        assert_eq!(*hold.field("owner"), "host-7");
        assert_eq!(*hold.field("client"), id);
        assert_eq!(*hold.field(claim), value);
        let left = hold.field("lease-left-ms").as_int();
        assert!((1..=50_000).contains(&left), "{left}");
        // CHECK tells the same story, later.
        assert!(call!(client, format!("{family}.CHECK"), "key", &token).as_int() <= left);

        // A renewal moves the lease and nothing else; a repeat from another connection, the connection.
        assert_eq!(
            call!(
                client,
                format!("{family}.RENEW"),
                "key",
                &token,
                "PX",
                80_000
            ),
            1
        );
        request.extend(["TOKEN", &token]);
        let mut other = server.connect();
        let other_id = other.id().cast_signed();
        assert_eq!(grant_of(&other.call(&request)), (token.clone(), fence));
        let reply = call!(client, &info, "key");
        let hold = &reply.field("first-holders").as_array()[0];
        assert_eq!(
            (hold.field("fence"), hold.field("client")),
            (&Reply::Int(fence.cast_signed()), &Reply::Int(other_id))
        );
        call!(client, "DEL", "key");
    }
}

#[test]
fn what_a_lock_is_held_as() {
    let server = Server::start();
    let mut client = server.connect();
    for (words, state) in [(&[][..], "exclusive"), (&["SHARED"], "shared")] {
        client
            .call(&[&["DLOCK.ACQUIRE", "key"], words].concat())
            .grant();
        let info = call!(client, "DLOCK.INFO", "key");
        assert_eq!(*info.field("state"), state);
        assert_eq!(
            *info.field("first-holders").as_array()[0].field("mode"),
            state
        );
        call!(client, "DEL", "key");
    }
    // Holders are listed in the order of their grants.
    let fences: Vec<_> = (0..5)
        .map(|_| {
            call!(client, "DLOCK.ACQUIRE", "key", "SHARED")
                .grant()
                .1
                .cast_signed()
        })
        .collect();
    let info = call!(client, "DLOCK.INFO", "key");
    let shown: Vec<_> = info
        .field("first-holders")
        .as_array()
        .iter()
        .map(|hold| hold.field("fence").as_int())
        .collect();
    assert_eq!(shown, fences);
    assert_eq!(*info.field("holders"), 5);
}

#[test]
fn what_a_semaphore_says_of_its_limit() {
    let server = Server::start();
    let mut client = server.connect();
    let mut look = || {
        let info = call!(client, "DSEM.INFO", "key");
        ["state", "limit", "pinned-limit", "available", "holders"]
            .map(|field| info.field(field).clone())
    };
    let text = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
    let mut other = server.connect();
    call!(other, "DSEM.ACQUIRE", "key", "LIMIT", 3, "PERMITS", 2).grant();
    assert_eq!(
        look(),
        [
            text("open"),
            Reply::Int(3),
            Reply::Nil,
            Reply::Int(1),
            Reply::Int(1)
        ]
    );
    call!(other, "DSEM.ACQUIRE", "key").grant();
    assert_eq!(
        look(),
        [
            text("full"),
            Reply::Int(3),
            Reply::Nil,
            Reply::Int(0),
            Reply::Int(2)
        ]
    );
    call!(other, "DSEM.LIMIT", "key", 5);
    assert_eq!(
        look(),
        [
            text("open"),
            Reply::Int(5),
            Reply::Int(5),
            Reply::Int(2),
            Reply::Int(2)
        ]
    );
    call!(other, "DSEM.LIMIT", "key", 1);
    assert_eq!(
        look(),
        [
            text("full"),
            Reply::Int(1),
            Reply::Int(1),
            Reply::Int(0),
            Reply::Int(2)
        ]
    );
    call!(other, "DSEM.LIMIT", "key", 0);
    assert_eq!(
        look(),
        [
            text("paused"),
            Reply::Int(0),
            Reply::Int(0),
            Reply::Int(0),
            Reply::Int(2)
        ]
    );
}

#[test]
fn what_a_group_says_of_its_round() {
    let server = Server::start();
    let mut client = server.connect();
    call!(client, "DWG.EXPECT", "key", 5);
    let (one, _) = call!(client, "DWG.ADD", "key", "LIMIT", 4).grant();
    let (_, fence) = call!(client, "DWG.ADD", "key").grant();
    call!(client, "DWG.ADD", "key").grant();
    call!(client, "DWG.DONE", "key", one);
    call!(client, "DWG.REVOKE", "key", fence);
    let info = call!(client, "DWG.INFO", "key");
    let numbers = ["limit", "expected", "owed", "done", "lapsed", "holders"]
        .map(|field| info.field(field).as_int());
    assert_eq!(numbers, [4, 5, 4, 1, 1, 1]);
    assert_eq!(*info.field("state"), "open");
    assert!(info.field("kept-until-unix-ms").is_nil());

    let _watcher = queue(&server, &["DWG.WAIT", "key", "BLOCK", "0"], 1);
    let info = call!(client, "DWG.INFO", "key");
    assert_eq!(*info.field("waiters"), 1);
    let watcher = &info.field("first-waiters").as_array()[0];
    assert_eq!(*watcher.field("mode"), "wait");
    assert!(watcher.field("owner").is_nil());
}

#[test]
fn what_a_work_once_key_says_of_its_attempts() {
    let server = Server::start();
    let mut client = server.connect();
    let mut look = || {
        let info = call!(client, "DONCE.INFO", "key");
        [
            "state",
            "attempts",
            "last-reason",
            "result-bytes",
            "holders",
        ]
        .map(|field| info.field(field).clone())
    };
    let text = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
    let mut other = server.connect();
    call!(other, "DONCE.BEGIN", "key", "TOKEN", "one");
    assert_eq!(
        look(),
        [
            text("running"),
            Reply::Int(1),
            Reply::Nil,
            Reply::Nil,
            Reply::Int(1)
        ]
    );
    call!(other, "DONCE.FAIL", "key", "one", "REASON", "no disk");
    assert_eq!(
        look(),
        [
            text("idle"),
            Reply::Int(1),
            text("no disk"),
            Reply::Nil,
            Reply::Int(0)
        ]
    );
    call!(other, "DONCE.BEGIN", "key", "TOKEN", "two");
    assert_eq!(
        look(),
        [
            text("running"),
            Reply::Int(2),
            text("no disk"),
            Reply::Nil,
            Reply::Int(1)
        ]
    );
    call!(
        other,
        "DONCE.DONE",
        "key",
        "two",
        "RESULT",
        "secret result",
        "EX",
        100
    );
    let done = look();
    assert_eq!(
        (&done[0], &done[1], &done[3], &done[4]),
        (
            &text("done"),
            &Reply::Int(2),
            &Reply::Int(13),
            &Reply::Int(0)
        )
    );
    let time = call!(other, "TIME").as_array()[0]
        .as_str()
        .parse::<i64>()
        .expect("seconds");
    let until = call!(other, "DONCE.INFO", "key")
        .field("kept-until-unix-ms")
        .as_int();
    assert!(
        (time * 1_000 + 90_000..=time * 1_000 + 101_000).contains(&until),
        "{until} at {time} s"
    );
}

#[test]
fn waiters_are_shown_in_their_order_with_owner_connection_age_and_claim() {
    let server = Server::start();
    let mut client = server.connect();
    call!(client, "DSEM.ACQUIRE", "key", "LIMIT", 9, "PERMITS", 9).grant();
    assert_eq!(
        *call!(client, "DSEM.INFO", "key").field("longest-wait-ms"),
        0
    );
    let mut waiters = Vec::new();
    for (count, permits) in [(1, "3"), (2, "1"), (3, "2")] {
        let mut waiter = server.connect();
        let id = waiter.id().cast_signed();
        let owner = format!("worker {count}");
        waiter.send(&[
            "DSEM.ACQUIRE",
            "key",
            "PERMITS",
            permits,
            "OWNER",
            &owner,
            "BLOCK",
            "0",
        ]);
        wait_for_blocked(&server, count);
        waiters.push((waiter, id, owner, permits));
    }
    eventually("the last to have waited for a while", SOON, || {
        let info = call!(client, "DSEM.INFO", "key");
        info.field("first-waiters").as_array()[2]
            .field("age-ms")
            .as_int()
            > 0
    });
    let info = call!(client, "DSEM.INFO", "key");
    assert_eq!(*info.field("waiters"), 3);
    let shown = info.field("first-waiters").as_array();
    for (waiter, (_, id, owner, permits)) in shown.iter().zip(&waiters) {
        assert_eq!(*waiter.field("owner"), owner.as_str());
        assert_eq!(*waiter.field("client"), *id);
        assert_eq!(waiter.field("permits").as_int().to_string(), *permits);
    }
    let ages: Vec<_> = shown
        .iter()
        .map(|waiter| waiter.field("age-ms").as_int())
        .collect();
    assert!(
        ages.is_sorted_by(|older, younger| older >= younger),
        "{ages:?}"
    );
    assert_eq!(info.field("longest-wait-ms").as_int(), ages[0]);

    // Who leaves is gone from it at once, without a trace for those behind.
    waiters.remove(0).0.close();
    eventually("the head to be gone", SOON, || {
        *call!(client, "DSEM.INFO", "key").field("waiters") == 2
    });
    let info = call!(client, "DSEM.INFO", "key");
    assert_eq!(
        *info.field("first-waiters").as_array()[0].field("client"),
        waiters[0].1
    );
}

#[test]
fn a_vacant_place_is_no_waiter() {
    let server = Server::builder()
        .module_arg("rejoin-ms")
        .module_arg(600_000)
        .start();
    let mut client = server.connect();
    call!(client, "DLOCK.ACQUIRE", "key").grant();
    let waiter = queue(
        &server,
        &["DLOCK.ACQUIRE", "key", "BLOCK", "0", "TOKEN", "t"],
        1,
    );
    eventually("the waiter to have waited for a while", SOON, || {
        call!(client, "DLOCK.INFO", "key")
            .field("longest-wait-ms")
            .as_int()
            >= 60
    });
    waiter.close();
    eventually("the waiter to be gone", SOON, || {
        *call!(client, "DLOCK.INFO", "key").field("waiters") == 0
    });
    let info = call!(client, "DLOCK.INFO", "key");
    assert!(info.field("first-waiters").as_array().is_empty());
    assert_eq!(*info.field("longest-wait-ms"), 0);
    // Resumed, it has waited all along.
    let mut waiter = queue(
        &server,
        &["DLOCK.ACQUIRE", "key", "BLOCK", "0", "TOKEN", "t"],
        1,
    );
    assert_eq!(*call!(client, "DLOCK.INFO", "key").field("waiters"), 1);
    let info = call!(client, "DLOCK.INFO", "key");
    assert!(info.field("longest-wait-ms").as_int() >= 60, "{info:?}");
    call!(client, "DEL", "key");
    assert_eq!(waiter.recv(SOON).expect("granted").grant().0, "t");
}

#[test]
fn count_says_how_many_of_each_are_listed_and_ten_are_without_it() {
    let server = Server::start();
    let mut client = server.connect();
    for _ in 0..25 {
        call!(client, "DSEM.ACQUIRE", "key", "LIMIT", 25).grant();
    }
    let waiters: Vec<_> = (1..=12)
        .map(|count| queue(&server, &["DSEM.ACQUIRE", "key", "BLOCK", "0"], count))
        .collect();
    for (count, holders, shown_waiters) in [
        (&[][..], 10, 10),
        (&["COUNT", "1"], 1, 1),
        (&["COUNT", "11"], 11, 11),
        (&["count", "20"], 20, 12),
        (&["COUNT", "1000"], 25, 12),
    ] {
        let info = client.call(&[&["DSEM.INFO", "key"], count].concat());
        assert_eq!(
            info.field("first-holders").as_array().len(),
            holders,
            "{count:?}"
        );
        assert_eq!(
            info.field("first-waiters").as_array().len(),
            shown_waiters,
            "{count:?}"
        );
        assert_eq!(
            (info.field("holders"), info.field("waiters")),
            (&Reply::Int(25), &Reply::Int(12))
        );
    }
    for count in ["0", "1001", "-1", "ten"] {
        let error = call!(client, "DSEM.INFO", "key", "COUNT", count);
        let text = error.error();
        assert!(
            ["COUNT", "1", "1000", count]
                .iter()
                .all(|part| text.contains(part)),
            "{text}"
        );
    }
    drop(waiters);
}

#[test]
fn no_token_is_ever_shown() {
    let server = Server::start();
    let mut client = server.connect();
    let mut waiters = Vec::new();
    for (at, (family, acquire, _, _)) in FAMILIES.into_iter().enumerate() {
        let limit = if family == "DSEM" || family == "DWG" {
            vec!["LIMIT", "1"]
        } else {
            vec![]
        };
        let mut request = vec![acquire, "key", "TOKEN", "h0lder-s3cret", "OWNER", "seen"];
        request.extend(&limit);
        grant_of(&client.call(&request));
        let mut request = vec![
            acquire,
            "key",
            "BLOCK",
            "0",
            "TOKEN",
            "wa1ter-s3cret",
            "OWNER",
            "seen too",
        ];
        request.extend(&limit);
        waiters.push(queue(&server, &request, at as u64 * 2 + 1));
        let mut request = vec![acquire, "key", "BLOCK", "0"];
        request.extend(&limit);
        waiters.push(queue(&server, &request, at as u64 * 2 + 2));
        for request in [
            format!("{family}.INFO key"),
            format!("HELLO 3\r\n{family}.INFO key COUNT 1000"),
        ] {
            let bytes = raw(&server, &request);
            assert!(has(&bytes, b"seen too"), "{}", bytes.escape_ascii());
            assert!(!has(&bytes, b"s3cret"), "{}", bytes.escape_ascii());
        }
        // Nor one that the server made.
        call!(client, "DEL", "key");
        let [.., named, unnamed] = &mut waiters[..] else {
            panic!("two wait")
        };
        let (made, _) = grant_of(&named.recv(SOON).expect("granted"));
        assert_eq!(made, "wa1ter-s3cret");
        call!(client, "DEL", "key");
        let (made, _) = grant_of(&unnamed.recv(SOON).expect("granted"));
        let bytes = raw(&server, &format!("{family}.INFO key"));
        assert!(
            has(&bytes, b"fence") && !has(&bytes, made.as_bytes()),
            "{}",
            bytes.escape_ascii()
        );
        assert!(
            !has(&bytes, &made.as_bytes()[..8]),
            "{}",
            bytes.escape_ascii()
        );
        call!(client, "RENAME", "key", format!("{family}-done"));
        // Two more are needed as blocked clients in the next round's count.
        for _ in 0..2 {
            let mut idle = server.connect();
            idle.send(&["BLPOP", "nothing", "0"]);
            waiters.push(idle);
        }
        wait_for_blocked(&server, at as u64 * 2 + 2);
    }
}

#[test]
fn owners_come_back_byte_for_byte() {
    let server = Server::start();
    let every: Vec<u8> = (0..=255).collect();
    for mut client in [server.connect(), server.connect_resp3()] {
        for owner in [&every[..128], &every[128..], b"\r\n+OK\r\n", b"*1\r\n"] {
            call!(client, "DLOCK.ACQUIRE", "key", "OWNER", owner).grant();
            let mut waiter = server.connect();
            send!(waiter, "DLOCK.ACQUIRE", "key", "OWNER", owner, "BLOCK", 0);
            wait_for_blocked(&server, 1);
            let info = call!(client, "DLOCK.INFO", "key");
            assert_eq!(
                info.field("first-holders").as_array()[0]
                    .field("owner")
                    .as_bytes(),
                owner
            );
            assert_eq!(
                info.field("first-waiters").as_array()[0]
                    .field("owner")
                    .as_bytes(),
                owner
            );
            waiter.close();
            wait_for_blocked(&server, 0);
            call!(client, "DEL", "key");
        }
    }
}

#[test]
fn info_and_check_change_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    let mut stream = ReplicationStream::attach(&server);
    let (member, _) = call!(client, "DWG.ADD", "group").grant();
    stream.take_so_far(&server);
    let (token, _) = call!(client, "DLOCK.ACQUIRE", "key", "PX", 40).grant();
    let before = digest(&server, "group");
    for _ in 0..20 {
        call!(client, "DWG.INFO", "group");
        call!(client, "DWG.CHECK", "group", &member);
        call!(client, "DLOCK.CHECK", "key", &token);
        call!(client, "DLOCK.INFO", "key");
        call!(client, "DSEM.INFO", "absent");
        call!(client, "DSEM.CHECK", "absent", "t");
    }
    assert_eq!(digest(&server, "group"), before);
    // What ends the lock meanwhile is its lease; nothing else is written down.
    eventually("the lapse", SOON, || call!(client, "EXISTS", "key") == 0);
    let written: Vec<_> = stream
        .take_so_far(&server)
        .iter()
        .map(|command| words(command).join(" "))
        .collect();
    assert!(
        written
            .iter()
            .all(|line| !line.contains("group") && !line.contains("absent")),
        "{written:?}"
    );
    assert_eq!(
        written
            .iter()
            .filter(|line| line.contains("lapsed"))
            .count(),
        1,
        "{written:?}"
    );
}

#[test]
fn a_replica_knows_holders_and_says_that_it_knows_no_waiters() {
    let primary = Server::start();
    let mut client = primary.connect();
    let (token, fence) = call!(client, "DLOCK.ACQUIRE", "key", "OWNER", "me", "EX", 500).grant();
    let replica = Server::builder().replica_of(&primary).start();
    let _waiter = queue(&primary, &["DLOCK.ACQUIRE", "key", "BLOCK", "0"], 1);
    replica.wait_to_catch_up_with(&primary);
    let mut there = replica.connect();
    let info = call!(there, "DLOCK.INFO", "key");
    assert_eq!(*info.field("waiters"), "unknown on a replica");
    assert_eq!(*info.field("longest-wait-ms"), "unknown on a replica");
    assert!(info.field("first-waiters").as_array().is_empty());
    let hold = &info.field("first-holders").as_array()[0];
    assert_eq!(hold.field("fence").as_int(), fence.cast_signed());
    assert_eq!(*hold.field("owner"), "me");
    assert!(
        hold.field("client").is_nil(),
        "a connection of another server"
    );
    assert!((1..=500_000).contains(&hold.field("lease-left-ms").as_int()));
    assert!(call!(there, "DLOCK.CHECK", "key", token).as_int() > 0);
}
