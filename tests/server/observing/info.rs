//! `<family>.INFO key`: the fields of each family in RESP2 and RESP3, how many holders and waiters are listed, what a
//! replica knows. INFO and CHECK change nothing, and INFO never shows a token.
//!
//! What the fields say in each state is in `info_states`. Their names are compared with docs/commands/info.md by
//! `command_pages`.

use crate::support::steps::*;
use crate::support::*;
use std::io::{Read, Write};
use std::net::TcpStream;

/// As [`any_grant`], with the token as text.
#[track_caller]
fn grant_of(reply: &Reply) -> (String, u64) {
    let (token, fence) = any_grant(reply);
    (String::from_utf8(token).expect("a token of text"), fence)
}

/// The names and values of a RESP3 map or a RESP2 field/value array.
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

/// The bytes that the server sends for a request, with the reply to the ECHO that follows it.
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
fn info_has_the_fields_of_each_family_in_both_protocols() {
    let server = Server::start();
    let (mut resp2, mut resp3) = (server.connect(), server.connect_resp3());
    let mut waiters = Vec::new();
    for family in Family::ALL {
        let kind = family.word();
        let request = family.request(kind);
        grant_of(&resp2.ask(format!("{request} OWNER holder")));
        waiters.push(server.waiting(format!("{request} BLOCK 0 OWNER waiter")));

        let info = format!("{}.INFO", family.prefix());
        let (two, three) = (call!(resp2, &info, kind), call!(resp3, &info, kind));
        assert!(
            matches!((&two, &three), (Reply::Array(_), Reply::Map(_))),
            "{two:?} {three:?}"
        );
        assert_eq!(names(&two), names(&three));
        assert_eq!(*two.field("type"), kind);
        for list in ["first-holders", "first-waiters"] {
            let [two, three] = [&two, &three].map(|reply| &reply.field(list).as_array()[0]);
            assert_eq!(names(two), names(three), "{list}");
        }
        // Fields that have no times are equal in both replies.
        for (name, value) in pairs(&two) {
            if !name.ends_with("-ms") && !name.starts_with("first-") {
                assert_eq!(value, *three.field(&name), "{name}");
            }
        }
    }
}

#[test]
fn info_shows_holder_with_fence_owner_client_and_lease() {
    let server = Server::start();
    let mut client = server.connect();
    let mut holder = server.connect();
    let id = holder.id().cast_signed();
    let mode = |mode: &str| ("mode", Reply::Bulk(mode.into()));
    for (family, request, (claim, value)) in [
        ("DLOCK", "DLOCK.ACQUIRE key SHARED", mode("shared")),
        (
            "DSEM",
            "DSEM.ACQUIRE key LIMIT 9 PERMITS 4",
            ("permits", Reply::Int(4)),
        ),
        ("DWG", "DWG.ADD key", mode("member")),
        ("DONCE", "DONCE.BEGIN key", mode("run")),
    ] {
        let (token, fence) = grant_of(&holder.ask(format!("{request} PX 50000 OWNER host-7")));
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
        // CHECK comes later and answers no more than INFO showed.
        assert!(call!(client, format!("{family}.CHECK"), "key", &token).as_int() <= left);

        // After a renewal and a repeat from another connection the fence is the same and the client is the new one.
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
        let mut other = server.connect();
        let other_id = other.id().cast_signed();
        assert_eq!(
            grant_of(&other.ask(format!("{request} TOKEN {token} PX 50000 OWNER host-7"))),
            (token.clone(), fence)
        );
        let reply = call!(client, &info, "key");
        let hold = &reply.field("first-holders").as_array()[0];
        assert_eq!(
            (hold.field("fence"), hold.field("client")),
            (&Reply::Int(fence.cast_signed()), &Reply::Int(other_id))
        );
        client.ask("DEL key");
    }
}

#[test]
fn info_lists_ten_holders_and_waiters_or_count() {
    let server = Server::start();
    let mut client = server.connect();
    for _ in 0..25 {
        client.ask("DSEM.ACQUIRE key LIMIT 25").grant();
    }
    let waiters: Vec<_> = (0..12)
        .map(|_| server.waiting("DSEM.ACQUIRE key BLOCK 0"))
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
    drop(waiters);
}

#[test]
fn info_never_shows_a_token() {
    let server = Server::start();
    let mut client = server.connect();
    let mut waiters = Vec::new();
    for family in Family::ALL {
        let request = family.request("key");
        grant_of(&client.ask(format!("{request} TOKEN h0lder-s3cret OWNER seen")));
        for more in ["TOKEN wa1ter-s3cret OWNER seen-too", ""] {
            waiters.push(server.waiting(format!("{request} BLOCK 0 {more}")));
        }
        let family = family.prefix();
        for request in [
            format!("{family}.INFO key"),
            format!("HELLO 3\r\n{family}.INFO key COUNT 1000"),
        ] {
            let bytes = raw(&server, &request);
            assert!(has(&bytes, b"seen-too"), "{}", bytes.escape_ascii());
            assert!(!has(&bytes, b"s3cret"), "{}", bytes.escape_ascii());
        }
        // INFO does not show a token that the server made either.
        client.ask("DEL key");
        let [.., named, unnamed] = &mut waiters[..] else {
            panic!("two wait")
        };
        let (made, _) = grant_of(&named.recv(SOON).expect("granted"));
        assert_eq!(made, "wa1ter-s3cret");
        client.ask("DEL key");
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
        client.ask(format!("RENAME key {family}-done"));
    }
}

#[test]
fn info_and_check_change_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    let mut stream = ReplicationStream::attach(&server);
    let (member, _) = client.ask("DWG.ADD group").grant();
    stream.take_so_far(&server);
    let (token, _) = client.ask("DLOCK.ACQUIRE key PX 40").grant();
    let before = server.digest("group");
    for _ in 0..20 {
        client.ask("DWG.INFO group");
        client.ask(format!("DWG.CHECK group {member}"));
        client.ask(format!("DLOCK.CHECK key {token}"));
        client.ask("DLOCK.INFO key");
        client.ask("DSEM.INFO absent");
        client.ask("DSEM.CHECK absent t");
    }
    assert_eq!(server.digest("group"), before);
    // Only the lapse of the lock is replicated.
    eventually("the lapse", SOON, || client.ask("EXISTS key") == 0);
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
fn info_on_replica_shows_holders_and_says_waiters_are_unknown() {
    let primary = Server::start();
    let mut client = primary.connect();
    let (token, fence) = client.ask("DLOCK.ACQUIRE key OWNER me EX 500").grant();
    let replica = Server::builder().replica_of(&primary).start();
    let _waiter = primary.waiting("DLOCK.ACQUIRE key BLOCK 0");
    replica.wait_to_catch_up_with(&primary);
    let mut there = replica.connect();
    let info = there.ask("DLOCK.INFO key");
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
    assert!(there.ask(format!("DLOCK.CHECK key {token}")).as_int() > 0);
}
