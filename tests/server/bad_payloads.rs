//! Payloads and files that no server of ours has written.
//!
//! The promise: whatever RESTORE and an RDB file bring is refused, or is a sound key; the server stays up,
//! and nothing is allocated because a number in a payload says so. Every payload here has a footer that is
//! right, for otherwise the server itself would refuse it and the module would never see it.

use crate::harness::*;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SOON: Duration = Duration::from_secs(10);

/// The CRC-64 of Redis (Jones, reflected, from zero).
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc: u64, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                (crc >> 1) ^ 0x95ac_9329_ac4b_c9b5
            } else {
                crc >> 1
            }
        })
    })
}

const FOOTER: usize = 10;

/// A payload of DUMP without its footer, and the two bytes of the version in that.
fn opened(payload: &[u8]) -> (Vec<u8>, [u8; 2]) {
    let (body, footer) = payload.split_at(payload.len() - FOOTER);
    (body.to_vec(), [footer[0], footer[1]])
}

/// The body with a footer that is right.
fn sealed(body: &[u8], version: [u8; 2]) -> Vec<u8> {
    let mut payload = [body, &version].concat();
    payload.extend_from_slice(&crc64(&payload).to_le_bytes());
    payload
}

fn dump(client: &mut Client, key: &str) -> Vec<u8> {
    call!(client, "DUMP", key).as_bytes().to_vec()
}

/// A key of each family with all that its family can have; returns their names and INFO commands.
fn furnish(client: &mut Client) -> [(&'static str, &'static str); 4] {
    call!(
        client,
        "DLOCK.ACQUIRE",
        "lock",
        "TOKEN",
        "8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59",
        "OWNER",
        "o"
    );
    call!(
        client,
        "DLOCK.ACQUIRE",
        "shared",
        "SHARED",
        "TOKEN",
        "t1",
        "OWNER",
        "one"
    );
    call!(client, "DLOCK.ACQUIRE", "shared", "SHARED", "TOKEN", "t2");
    call!(
        client,
        "DSEM.ACQUIRE",
        "sem",
        "LIMIT",
        9,
        "PERMITS",
        4,
        "TOKEN",
        "t1"
    );
    call!(client, "DSEM.ACQUIRE", "sem", "LIMIT", 8, "PERMITS", 2);
    call!(client, "DSEM.LIMIT", "sem", 7);
    call!(client, "DWG.EXPECT", "group", 5);
    call!(client, "DWG.ADD", "group", "LIMIT", 3, "TOKEN", "t1");
    call!(client, "DWG.DONE", "group", "t1");
    call!(client, "DWG.ADD", "group", "LIMIT", 4, "TOKEN", "t2");
    [
        ("lock", "DLOCK"),
        ("shared", "DLOCK"),
        ("sem", "DSEM"),
        ("group", "DWG"),
    ]
}

#[track_caller]
fn assert_calm(server: &Server) {
    assert_eq!(call!(server.connect(), "PING"), "PONG");
    let log = server.log_text();
    for word in ["panic", "ASSERTION", "crashed by signal", "BUG REPORT"] {
        assert!(!log.contains(word), "{word} in the log:\n{log}");
    }
}

/// Uses a key that was accepted, until nothing of its holds is left.
fn assert_sound(client: &mut Client, family: &str, what: &str) {
    let command = |verb: &str| format!("{family}.{verb}");
    let digested = call!(client, "DEBUG", "DIGEST-VALUE", "bad");
    let payload = dump(client, "bad");
    assert_eq!(
        call!(client, "RESTORE", "bad", 0, &payload, "REPLACE"),
        "OK",
        "{what}: a second time"
    );
    assert_eq!(
        call!(client, "DEBUG", "DIGEST-VALUE", "bad"),
        digested,
        "{what}"
    );
    let info = call!(client, command("INFO"), "bad", "COUNT", 1000);
    if info.is_nil() {
        // It vanished in the meantime: its lease or its retention had run out.
        return;
    }
    for holder in info.field("first-holders").as_array() {
        let fence = holder.field("fence").as_int();
        assert!(fence > 0 && fence < 1 << 53, "{what}: {info:?}");
        let revoked = call!(client, command("REVOKE"), "bad", fence);
        assert!(revoked == 1 || revoked == 0, "{what}: {revoked:?}");
    }
    let info = call!(client, command("INFO"), "bad");
    assert!(
        info.is_nil() || *info.field("holders") == 0,
        "{what}: {info:?}"
    );
    assert!(
        family != "DLOCK" || info.is_nil(),
        "{what}: an empty lock stays: {info:?}"
    );
    call!(client, "DEL", "bad");
}

#[test]
fn the_checksum_is_the_servers() {
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    let server = Server::start();
    let mut client = server.connect();
    for (key, _) in furnish(&mut client) {
        let payload = dump(&mut client, key);
        let (body, version) = opened(&payload);
        assert_eq!(sealed(&body, version), payload, "{key}");
    }
}

#[test]
fn a_payload_that_is_cut_anywhere_is_refused() {
    let server = Server::start();
    let mut client = server.connect();
    for (key, _) in furnish(&mut client) {
        let (body, version) = opened(&dump(&mut client, key));
        for kept in 1..body.len() {
            let reply = call!(client, "RESTORE", "bad", 0, sealed(&body[..kept], version));
            assert!(
                reply.error().starts_with("ERR Bad data format"),
                "{key} cut to {kept}: {reply:?}"
            );
        }
        assert_eq!(call!(client, "EXISTS", "bad"), 0);
        assert_eq!(
            call!(client, "RESTORE", "bad", 0, sealed(&body, version)),
            "OK"
        );
        call!(client, "DEL", "bad");
    }
    assert_calm(&server);
}

#[test]
fn a_payload_with_any_byte_changed_is_refused_or_a_sound_key() {
    let server = Server::start();
    let mut client = server.connect();
    let (mut refused, mut accepted) = (0, 0);
    for (key, family) in furnish(&mut client) {
        let (body, version) = opened(&dump(&mut client, key));
        // The first byte says whose value it is, and most others are the server's own business.
        for at in 1..body.len() {
            let flips = (0..8).map(|bit| body[at] ^ (1 << bit));
            for byte in flips
                .chain([0, 0x7f, 0x80, 0xff])
                .filter(|byte| *byte != body[at])
            {
                let mut bent = body.clone();
                bent[at] = byte;
                let what = format!("{key}, byte {at} of {} made {byte:#04x}", body.len());
                let reply = call!(client, "RESTORE", "bad", 0, sealed(&bent, version));
                if reply == "OK" {
                    accepted += 1;
                    assert_sound(&mut client, family, &what);
                } else {
                    refused += 1;
                    assert!(
                        reply.error().starts_with("ERR Bad data format"),
                        "{what}: {reply:?}"
                    );
                    assert_eq!(call!(client, "EXISTS", "bad"), 0, "{what}");
                }
            }
        }
    }
    assert!(
        refused > 1000 && accepted > 100,
        "{refused} refused, {accepted} accepted"
    );
    assert_calm(&server);
    call!(client, "FLUSHALL");
    assert!(
        !call!(client, "DLOCK.ACQUIRE", "lock").is_nil(),
        "and the server is of use"
    );
}

/// Writes values as a module does: a number or a string, each with its kind before it.
struct Payload {
    body: Vec<u8>,
    version: [u8; 2],
}

const MAGIC: u64 = 0x6473_796e_632e_656f;

impl Payload {
    /// Begins like a genuine payload: the type, and the module's number with the version of its encoding.
    fn like(client: &mut Client, key: &str) -> Payload {
        let (body, version) = opened(&dump(client, key));
        assert_eq!(
            (body[0], body[1]),
            (7, 0x81),
            "a module's value, and a number of eight bytes"
        );
        Payload {
            body: body[..10].to_vec(),
            version,
        }
    }

    fn number(mut self, n: u64) -> Payload {
        self.body.extend_from_slice(&[2, 0x81]);
        self.body.extend_from_slice(&n.to_be_bytes());
        self
    }

    fn numbers(self, numbers: &[u64]) -> Payload {
        numbers.iter().fold(self, |payload, n| payload.number(*n))
    }

    fn text(mut self, text: &[u8]) -> Payload {
        self.body.extend_from_slice(&[5, 0x80]);
        self.body
            .extend_from_slice(&(text.len() as u32).to_be_bytes());
        self.body.extend_from_slice(text);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Payload {
        self.body.extend_from_slice(bytes);
        self
    }

    fn hold(self, hold: &Hold) -> Payload {
        self.number(hold.fence)
            .text(&hold.token)
            .numbers(&[
                hold.claim,
                hold.lease,
                hold.deadline,
                hold.granted,
                hold.renewed,
            ])
            .text(&hold.owner)
    }

    /// The end of our value, and the server's.
    fn end(self) -> Vec<u8> {
        self.number(MAGIC).raw(&[0]).sealed()
    }

    fn sealed(&self) -> Vec<u8> {
        sealed(&self.body, self.version)
    }
}

#[derive(Clone)]
struct Hold {
    fence: u64,
    token: Vec<u8>,
    claim: u64,
    lease: u64,
    deadline: u64,
    granted: u64,
    renewed: u64,
    owner: Vec<u8>,
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is past 1970").as_millis() as u64
}

fn good_hold(claim: u64) -> Hold {
    let now = unix_ms();
    Hold {
        fence: now * 1000,
        token: b"token".to_vec(),
        claim,
        lease: 30_000,
        deadline: now + 30_000,
        granted: now,
        renewed: 0,
        owner: b"owner".to_vec(),
    }
}

#[test]
fn every_field_of_a_hold_is_held_against_its_bounds() {
    let server = Server::start();
    let mut client = server.connect();
    furnish(&mut client);
    let mut restore = |payload: Vec<u8>| {
        let reply = call!(client, "RESTORE", "bad", 0, payload);
        call!(client, "DEL", "bad");
        reply
    };
    let mut client = server.connect();
    let mut one = |hold: &Hold| {
        Payload::like(&mut client, "lock")
            .number(1)
            .hold(hold)
            .end()
    };
    assert_eq!(
        restore(one(&good_hold(0))),
        "OK",
        "the one they all differ from"
    );

    type Bend = (&'static str, fn(&mut Hold));
    let bends: &[Bend] = &[
        ("fence 0", |hold| hold.fence = 0),
        ("fence 2^53", |hold| hold.fence = 1 << 53),
        ("fence 2^64 - 1", |hold| hold.fence = u64::MAX),
        ("fence more than a year ahead", |hold| {
            hold.fence += 367 * 86_400 * 1_000_000
        }),
        ("no token", |hold| hold.token.clear()),
        ("a token of 129 bytes", |hold| hold.token = vec![b'x'; 129]),
        ("a token of a megabyte", |hold| {
            hold.token = vec![b'x'; 1 << 20]
        }),
        ("an owner of 129 bytes", |hold| hold.owner = vec![b'x'; 129]),
        ("a claim of no kind", |hold| hold.claim = 2),
        ("no lease", |hold| hold.lease = 0),
        ("a lease of 31 days", |hold| hold.lease = 31 * 86_400_000),
        ("a lease of 2^32 + 1 ms", |hold| hold.lease = (1 << 32) + 1),
        ("a deadline of 2^63", |hold| hold.deadline = 1 << 63),
        ("granted at 2^63", |hold| hold.granted = 1 << 63),
        ("renewed twice", |hold| hold.renewed = 2),
    ];
    for (what, bend) in bends {
        let mut hold = good_hold(0);
        bend(&mut hold);
        let reply = restore(one(&hold));
        assert!(
            reply.error().starts_with("ERR Bad data format"),
            "{what}: {reply:?}"
        );
    }
    // Nothing of what was refused is remembered: the last fence is where it was.
    let mut client = server.connect();
    let fence = call!(client, "DLOCK.ACQUIRE", "fresh").grant().1;
    assert!(fence < (unix_ms() + 2 * 3_600_000) * 1000, "{fence}");
    // A fence within the year is taken, and outranked from then on.
    let mut hold = good_hold(0);
    hold.fence += 300 * 86_400 * 1_000_000;
    let payload = Payload::like(&mut client, "lock")
        .number(1)
        .hold(&hold)
        .end();
    assert_eq!(restore(payload), "OK");
    let fence = call!(client, "DLOCK.ACQUIRE", "fresher").grant().1;
    assert!(fence > hold.fence, "{fence} after {}", hold.fence);
    assert_calm(&server);
}

#[test]
fn holds_that_cannot_be_together_are_refused() {
    let server = Server::start();
    let mut client = server.connect();
    furnish(&mut client);
    let pair = |claim, change: fn(&mut Hold)| {
        let (one, mut other) = (good_hold(claim), good_hold(claim));
        other.fence = one.fence + 1;
        other.token = b"other".to_vec();
        change(&mut other);
        (one, other)
    };
    let lock = |client: &mut Client, (one, other): (Hold, Hold)| {
        let payload = Payload::like(client, "lock")
            .number(2)
            .hold(&one)
            .hold(&other)
            .end();
        call!(client, "RESTORE", "bad", 0, payload, "REPLACE")
    };
    assert_eq!(
        lock(&mut client, pair(1, |_| {})),
        "OK",
        "two shared ones are fine"
    );
    let impossible = [
        ("two exclusive", pair(0, |_| {})),
        ("exclusive beside shared", pair(1, |hold| hold.claim = 0)),
        ("one fence twice", pair(1, |hold| hold.fence -= 1)),
        ("a falling fence", pair(1, |hold| hold.fence -= 2)),
        (
            "one token twice",
            pair(1, |hold| hold.token = b"token".to_vec()),
        ),
    ];
    for (what, holds) in impossible {
        let reply = lock(&mut client, holds);
        assert!(
            reply.error().starts_with("ERR Bad data format"),
            "{what}: {reply:?}"
        );
    }
    // None is 0, and everything else one more than it is: limit, pinned, changes.
    let sem = |client: &mut Client, scalars: &[u64], permits| {
        let payload = Payload::like(client, "sem")
            .numbers(scalars)
            .number(1)
            .hold(&good_hold(permits))
            .end();
        call!(client, "RESTORE", "bad", 0, payload, "REPLACE")
    };
    assert_eq!(sem(&mut client, &[6, 0, 0], 5), "OK");
    for (scalars, permits) in [
        ([1, 0, 0], 1),
        ([1_000_002, 0, 0], 1),
        ([6, 1_000_002, 0], 1),
        ([u64::MAX, 0, 0], 1),
        ([6, 0, 0], 0),
        ([6, 0, 0], 1_000_001),
    ] {
        let reply = sem(&mut client, &scalars, permits);
        assert!(
            reply.error().starts_with("ERR Bad data format"),
            "{scalars:?} {permits}: {reply:?}"
        );
    }
    // limit, changes, expected, done, lost, touched, finished
    let group = |client: &mut Client, scalars: &[u64], members: &[Hold]| {
        let payload = Payload::like(client, "group")
            .numbers(scalars)
            .number(members.len() as u64);
        let payload = members.iter().fold(payload, Payload::hold).end();
        call!(client, "RESTORE", "bad", 0, payload, "REPLACE")
    };
    let now = unix_ms();
    assert_eq!(
        group(&mut client, &[3, 0, 5, 1, 0, now, 0], &[good_hold(1)]),
        "OK"
    );
    assert_eq!(
        group(&mut client, &[3, 0, 5, 1, 0, now, now + 60_000], &[]),
        "OK"
    );
    let reply = group(
        &mut client,
        &[3, 0, 5, 1, 0, now, now + 60_000],
        &[good_hold(1)],
    );
    assert!(
        reply.error().starts_with("ERR Bad data format"),
        "a finished round with a member: {reply:?}"
    );
    let reply = group(&mut client, &[3, 0, 1_000_002, 1, 0, now, 0], &[]);
    assert!(
        reply.error().starts_with("ERR Bad data format"),
        "too many expected: {reply:?}"
    );
    let reply = group(&mut client, &[3, 0, 5, 1, 0, u64::MAX, 0], &[]);
    assert!(
        reply.error().starts_with("ERR Bad data format"),
        "touched beyond all time: {reply:?}"
    );
    assert_calm(&server);
}

#[test]
fn a_group_with_the_largest_of_all_tallies_is_of_use() {
    let server = Server::start();
    let mut client = server.connect();
    furnish(&mut client);
    let now = unix_ms();
    let mut member = good_hold(1);
    member.deadline = now + 600_000;
    member.lease = 600_000;
    let payload = Payload::like(&mut client, "group")
        .numbers(&[0, u64::MAX, 0, u64::MAX, u64::MAX, now, 0])
        .number(1)
        .hold(&member)
        .end();
    assert_eq!(call!(client, "RESTORE", "bad", 0, &payload), "OK");
    for limit in [1, 2, 3] {
        call!(client, "DWG.ADD", "bad", "LIMIT", limit);
    }
    assert_eq!(call!(client, "DWG.DONE", "bad", "token"), 1);
    let info = call!(client, "DWG.INFO", "bad");
    assert!(info.field("done").as_int() > 0, "{info:?}");
    assert_calm(&server);
}

#[test]
fn a_huge_count_allocates_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    furnish(&mut client);
    let peak = |server: &Server| server.info_number("memory", "used_memory_peak");
    let before = peak(&server);
    for count in [1 << 20, 1 << 32, 1 << 40, 1 << 53, u64::MAX >> 1, u64::MAX] {
        for holds in 0..3 {
            let mut payload = Payload::like(&mut client, "shared").number(count);
            for n in 0..holds {
                let mut hold = good_hold(1);
                hold.fence += n;
                hold.token = format!("t{n}").into_bytes();
                payload = payload.hold(&hold);
            }
            let reply = call!(client, "RESTORE", "bad", 0, payload.end());
            assert!(
                reply.error().starts_with("ERR Bad data format"),
                "{count}: {reply:?}"
            );
        }
    }
    let grown = peak(&server) - before;
    assert!(grown < 8 << 20, "used_memory_peak grew by {grown}");

    // The length of a string is the server's to judge; what it took it gives back.
    let used = server.info_number("memory", "used_memory");
    for length in [1u64 << 31, 1 << 40, 1 << 62, u64::MAX] {
        let mut huge = vec![5, 0x81];
        huge.extend_from_slice(&length.to_be_bytes());
        let now = unix_ms() * 1000;
        let payload = Payload::like(&mut client, "lock")
            .number(1)
            .number(now)
            .raw(&huge)
            .raw(b"short");
        let reply = call!(client, "RESTORE", "bad", 0, payload.sealed());
        assert!(
            reply.error().starts_with("ERR Bad data format"),
            "{length}: {reply:?}"
        );
    }
    eventually("the memory to come back", SOON, || {
        server.info_number("memory", "used_memory") < used + (8 << 20)
    });
    assert_calm(&server);
}

#[test]
fn a_refused_payload_leaves_the_key_and_its_waiters_alone() {
    let server = Server::start();
    let mut client = server.connect();
    furnish(&mut client);
    let before = digest(&server, "lock");
    let mut waiter = server.connect();
    send!(
        waiter,
        "DLOCK.ACQUIRE",
        "lock",
        "BLOCK",
        0,
        "TOKEN",
        "waiter"
    );
    wait_for_blocked(&server, 1);
    let (body, version) = opened(&dump(&mut client, "lock"));
    let cut = sealed(&body[..body.len() - 3], version);
    assert!(call!(client, "RESTORE", "lock", 0, cut, "REPLACE").is_error());
    assert_eq!(digest(&server, "lock"), before);
    waiter.expect_silence(Duration::from_millis(100));
    assert_eq!(
        call!(
            client,
            "DLOCK.RELEASE",
            "lock",
            "8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59"
        ),
        1
    );
    assert_eq!(
        waiter.recv(SOON).expect("the waiter is granted").grant().0,
        "waiter"
    );
}

#[test]
fn a_damaged_rdb_file_stops_the_start_and_says_so_without_a_crash() {
    let mut server = Server::builder().config("rdbcompression", "no").start();
    furnish(&mut server.connect());
    let digested = call!(server.connect(), "DEBUG", "DIGEST");
    assert_eq!(call!(server.connect(), "SAVE"), "OK");
    server.kill9();
    let file = server.dir().join("dump.rdb");
    let good = fs::read(&file).expect("the file is read");
    let places: Vec<usize> = good
        .windows(8)
        .enumerate()
        .filter(|(_, bytes)| *bytes == MAGIC.to_be_bytes())
        .map(|(at, _)| at)
        .collect();
    assert_eq!(places.len(), 4, "the end of each value is found");
    let token = good
        .windows(36)
        .position(|text| text == b"8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59");
    let token = token.expect("the token is found");
    // The end of a value, the length of a token, and the fence before it.
    for (at, byte) in [
        (places[0] + 7, 0),
        (places[3], 0xff),
        (token - 1, 35),
        (token - 1, 0),
        (token - 5, 0xff),
    ] {
        let mut bad = good[..good.len() - 8].to_vec();
        bad[at] = byte;
        let sum = crc64(&bad);
        bad.extend_from_slice(&sum.to_le_bytes());
        fs::write(&file, bad).expect("the file is written");
        let seen = server.log_text().len();
        let started = catch_unwind(AssertUnwindSafe(|| server.start_again()));
        let log = server.log_text()[seen..].to_owned();
        assert!(
            !log.contains("panic") && !log.contains("crashed by signal"),
            "byte {at}: {log}"
        );
        if started.is_ok() {
            // Only the fence may come out as another that is legal.
            assert_eq!((at, byte), (token - 5, 0xff), "{log}");
            server.kill9();
        }
    }
    fs::write(&file, &good).expect("the file is restored");
    server.start_again();
    assert_eq!(call!(server.connect(), "DEBUG", "DIGEST"), digested);
}
