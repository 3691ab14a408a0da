//! Payloads and files that no server of ours has written.
//!
//! The promise: whatever RESTORE and an RDB file bring is refused, or is a sound key; the server stays up,
//! and nothing is allocated because a number in a payload says so. Every payload here has a footer that is
//! right, for otherwise the server itself would refuse it and the module would never see it.

use crate::support::{sealed as checked, *};
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
fn add_fixtures(client: &mut Client) -> [(&'static str, &'static str); 5] {
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
    call!(client, "DONCE.BEGIN", "once", "TOKEN", "t1");
    call!(client, "DONCE.FAIL", "once", "t1", "REASON", "no disk");
    call!(client, "DONCE.BEGIN", "once", "TOKEN", "t2");
    [
        ("lock", "DLOCK"),
        ("shared", "DLOCK"),
        ("sem", "DSEM"),
        ("group", "DWG"),
        ("once", "DONCE"),
    ]
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is past 1970").as_millis() as u64
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
    for (key, _) in add_fixtures(&mut client) {
        let payload = dump(&mut client, key);
        let (body, version) = opened(&payload);
        assert_eq!(sealed(&body, version), payload, "{key}");
    }
}

#[test]
fn a_payload_that_is_cut_anywhere_is_refused() {
    let server = Server::start();
    let mut client = server.connect();
    for (key, _) in add_fixtures(&mut client) {
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

/// The packed strings of a payload, each with the place of its first byte. The server does not compress them.
fn strings(body: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut strings = Vec::new();
    let mut at = 10;
    while body[at] == STRING {
        let (len, start) = match body[at + 1] {
            len @ 0..0x40 => (usize::from(len), at + 2),
            high @ 0x40..0x80 => {
                let len = usize::from(high & 0x3f) << 8 | usize::from(body[at + 2]);
                (len, at + 3)
            }
            other => panic!("a length that begins with {other:#04x}"),
        };
        strings.push((start, body[start..start + len].to_vec()));
        at = start + len;
    }
    assert_eq!(body[at..], [0], "the end of a module's value");
    strings
}

/// All values that differ from the byte by a bit, and some more.
fn others(byte: u8) -> impl Iterator<Item = u8> {
    let flips = (0..8).map(move |bit| byte ^ (1 << bit));
    let more = [0, 0x7f, 0x80, 0xff];
    flips.chain(more).filter(move |other| *other != byte)
}

/// A server whose payloads have their strings as they are.
fn plain_server() -> Server {
    Server::builder().config("rdbcompression", "no").start()
}

#[test]
fn a_payload_with_any_byte_changed_is_refused() {
    let server = plain_server();
    let mut client = server.connect();
    for (key, _) in add_fixtures(&mut client) {
        let (body, version) = opened(&dump(&mut client, key));
        // The first byte says whose value it is.
        for at in 1..body.len() {
            for byte in others(body[at]) {
                let mut bent = body.clone();
                bent[at] = byte;
                let reply = call!(client, "RESTORE", "bad", 0, sealed(&bent, version));
                assert!(
                    reply.error().starts_with("ERR Bad data format"),
                    "{key}, byte {at} of {} made {byte:#04x}: {reply:?}",
                    body.len()
                );
            }
        }
        assert_eq!(call!(client, "EXISTS", "bad"), 0);
    }
    assert_calm(&server);
}

/// The check at the end of a packed string keeps out damage. Who means harm computes it.
#[test]
fn a_payload_with_any_byte_changed_and_its_check_made_right_is_refused_or_a_sound_key() {
    let server = plain_server();
    let mut client = server.connect();
    let (mut refused, mut accepted) = (0, 0);
    for (key, family) in add_fixtures(&mut client) {
        let (body, _) = opened(&dump(&mut client, key));
        let [(_, packed)] = &strings(&body)[..] else {
            panic!("{key} has one string");
        };
        let written = &packed[..packed.len() - 4];
        for at in 0..written.len() {
            for byte in others(written[at]) {
                let mut bent = written.to_vec();
                bent[at] = byte;
                let what = format!("{key}, byte {at} of {} made {byte:#04x}", written.len());
                let payload = Payload::like(&mut client, key)
                    .string(&checked(&bent))
                    .end();
                let reply = call!(client, "RESTORE", "bad", 0, payload);
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
        refused > 500 && accepted > 500,
        "{refused} refused, {accepted} accepted"
    );
    assert_calm(&server);
    call!(client, "FLUSHALL");
    assert!(
        !call!(client, "DLOCK.ACQUIRE", "lock").is_nil(),
        "and the server is of use"
    );
}

/// The opcode of a string in a module's value.
const STRING: u8 = 5;

/// Writes values as a module does: strings, each with its opcode before it.
struct Payload {
    body: Vec<u8>,
    version: [u8; 2],
}

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

    fn string(mut self, text: &[u8]) -> Payload {
        self.body.extend_from_slice(&[STRING, 0x80]);
        self.body
            .extend_from_slice(&(text.len() as u32).to_be_bytes());
        self.body.extend_from_slice(text);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Payload {
        self.body.extend_from_slice(bytes);
        self
    }

    /// The end of a module's value.
    fn end(self) -> Vec<u8> {
        self.raw(&[0]).sealed()
    }

    fn sealed(&self) -> Vec<u8> {
        sealed(&self.body, self.version)
    }
}

/// A hold as a packed string has it, with whatever numbers.
#[derive(Clone)]
struct Hold {
    kind: u8,
    fence: u64,
    token: Vec<u8>,
    lease: u64,
    deadline: u64,
    granted: u64,
    owner: Vec<u8>,
}

impl Hold {
    fn packed(&self) -> Vec<u8> {
        let mut bytes = vec![2, 0, self.kind];
        let zigzag = |difference: i64| ((difference << 1) ^ (difference >> 63)).cast_unsigned();
        let difference = |a: u64, b: u64| zigzag(a.wrapping_sub(b).cast_signed());
        leb128(self.fence, &mut bytes);
        leb128(difference(self.granted, self.fence / 1_000), &mut bytes);
        leb128(self.lease, &mut bytes);
        let end = self.granted.wrapping_add(self.lease);
        leb128(difference(self.deadline, end), &mut bytes);
        for text in [&self.token, &self.owner] {
            leb128(text.len() as u64, &mut bytes);
            bytes.extend_from_slice(text);
        }
        checked(&bytes)
    }
}

fn leb128(mut n: u64, to: &mut Vec<u8>) {
    while n >= 0x80 {
        to.push(n.to_le_bytes()[0] | 0x80);
        n >>= 7;
    }
    to.push(n.to_le_bytes()[0]);
}

fn good_hold() -> Hold {
    let now = unix_ms();
    Hold {
        kind: 0x82,
        fence: now * 1000,
        token: b"token".to_vec(),
        lease: 30_000,
        deadline: now + 30_000,
        granted: now,
        owner: b"owner".to_vec(),
    }
}

#[test]
fn every_field_of_a_hold_is_held_against_its_bounds() {
    let server = Server::start();
    let mut client = server.connect();
    add_fixtures(&mut client);
    let mut restore = |payload: Vec<u8>| {
        let reply = call!(client, "RESTORE", "bad", 0, payload);
        call!(client, "DEL", "bad");
        reply
    };
    let mut client = server.connect();
    let mut one = |hold: &Hold| {
        Payload::like(&mut client, "lock")
            .string(&hold.packed())
            .end()
    };
    assert_eq!(
        restore(one(&good_hold())),
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
        ("a token of 129 bytes", |hold| hold.token = vec![b'x'; 129]),
        ("a token of a megabyte", |hold| {
            hold.token = vec![b'x'; 1 << 20]
        }),
        ("no owner where one is announced", |hold| hold.owner.clear()),
        ("an owner of 129 bytes", |hold| hold.owner = vec![b'x'; 129]),
        ("a flag of no meaning", |hold| hold.kind |= 0x08),
        ("a change of no kind", |hold| hold.kind = 0x70),
        ("no lease", |hold| hold.lease = 0),
        ("a lease of 31 days", |hold| hold.lease = 31 * 86_400_000),
        ("a lease of 2^32 + 1 ms", |hold| hold.lease = (1 << 32) + 1),
        ("a deadline of 2^48", |hold| hold.deadline = 1 << 48),
        ("a deadline of 2^63", |hold| hold.deadline = 1 << 63),
        ("granted at 2^48", |hold| hold.granted = 1 << 48),
        ("granted at 2^63", |hold| hold.granted = 1 << 63),
    ];
    for (what, bend) in bends {
        let mut hold = good_hold();
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
    let mut hold = good_hold();
    hold.fence += 300 * 86_400 * 1_000_000;
    let payload = Payload::like(&mut client, "lock")
        .string(&hold.packed())
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
    add_fixtures(&mut client);
    let now = unix_ms();
    let grant = |fence: u64, claim: &str, token: &str| {
        format!(
            "GRANT {} {claim} 30000 {} {now} 0 {}:{token} 0:",
            now * 1000 + fence,
            now + 30_000,
            token.len()
        )
    };
    let mut restore = |like: &str, family: &str, changes: &[&str]| {
        let payload = Payload::like(&mut client, like)
            .string(&packed(family, changes))
            .end();
        call!(client, "RESTORE", "bad", 0, payload, "REPLACE")
    };
    let (a, b) = (&grant(1, "shared", "a"), &grant(2, "shared", "b"));
    let (alone, next) = (&grant(1, "exclusive", "a"), &grant(2, "exclusive", "b"));
    let permit = &grant(1, "5", "a");
    let member = &grant(1, "member", "a");
    let (limits, open) = ("LIMITS 5 NONE 0", &format!("TALLY 3 0 5 1 0 {now} NONE"));
    let over = &format!("TALLY 3 0 5 1 0 {now} {}", now + 60_000);
    let possible: [(&str, &str, &[&str]); 4] = [
        ("shared", "lock", &[a, b]),
        ("sem", "semaphore", &[limits, permit]),
        ("group", "group", &[member, open]),
        ("group", "group", &[over]),
    ];
    for (like, family, changes) in possible {
        assert_eq!(restore(like, family, changes), "OK", "{changes:?}");
    }
    let huge_tally = &format!("TALLY 3 0 1000001 1 0 {now} NONE");
    let endless = &format!("TALLY 3 0 5 1 0 {} NONE", u64::MAX);
    let impossible: [(&str, &str, &[&str]); 18] = [
        ("lock", "lock", &[alone, next]),
        ("lock", "lock", &[a, next]),
        ("lock", "lock", &[a, &grant(1, "shared", "b")]),
        ("lock", "lock", &[a, &grant(0, "shared", "b")]),
        ("lock", "lock", &[a, &grant(2, "shared", "a")]),
        ("lock", "lock", &[a, "VANISH"]),
        ("lock", "lock", &[limits]),
        ("lock", "semaphore", &[limits, permit]),
        ("sem", "semaphore", &[permit]),
        ("sem", "semaphore", &[permit, limits]),
        ("sem", "semaphore", &["LIMITS 0 NONE 0", permit]),
        ("sem", "semaphore", &["LIMITS 1000001 NONE 0", permit]),
        ("sem", "semaphore", &["LIMITS 5 1000001 0", permit]),
        ("sem", "semaphore", &[limits, &grant(1, "0", "a")]),
        ("sem", "semaphore", &[limits, &grant(1, "1000001", "a")]),
        ("group", "group", &[member, over]),
        ("group", "group", &[huge_tally]),
        ("group", "group", &[endless]),
    ];
    for (like, family, changes) in impossible {
        let reply = restore(like, family, changes);
        assert!(
            reply.error().starts_with("ERR Bad data format"),
            "{changes:?}: {reply:?}"
        );
    }
    assert_calm(&server);
}

#[test]
fn a_group_with_the_largest_of_all_tallies_is_of_use() {
    let server = Server::start();
    let mut client = server.connect();
    add_fixtures(&mut client);
    let now = unix_ms();
    let changes = [
        format!(
            "GRANT {} member 600000 {} {now} 0 5:token 0:",
            now * 1000,
            now + 600_000
        ),
        format!("TALLY NONE {0} NONE {0} {0} {now} NONE", u64::MAX),
    ];
    let payload = Payload::like(&mut client, "group")
        .string(&packed("group", &[&changes[0], &changes[1]]))
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
fn a_huge_length_allocates_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    add_fixtures(&mut client);
    let peak = |server: &Server| server.info_number("memory", "used_memory_peak");
    let before = peak(&server);
    for length in [1 << 20, 1 << 32, 1 << 40, 1 << 53, u64::MAX >> 1, u64::MAX] {
        // The length of a reason, of a late token, of a result.
        for record in [
            &[13, 1, 1, 3][..],
            &[13, 1, 1, 0, 1],
            &[13, 1, 1, 0, 0, 1, 1, 1, b't'],
        ] {
            let mut bytes = [&[2, 3], record].concat();
            leb128(length, &mut bytes);
            let payload = Payload::like(&mut client, "once")
                .string(&checked(&bytes))
                .end();
            let reply = call!(client, "RESTORE", "bad", 0, payload);
            assert!(
                reply.error().starts_with("ERR Bad data format"),
                "{length}: {reply:?}"
            );
        }
    }
    // Strings that promise others, and no last one.
    let more = checked(&[2, 0x80]);
    let endless = (0..10_000).fold(Payload::like(&mut client, "lock"), |payload, _| {
        payload.string(&more)
    });
    let reply = call!(client, "RESTORE", "bad", 0, endless.end());
    assert!(
        reply.error().starts_with("ERR Bad data format"),
        "{reply:?}"
    );
    let grown = peak(&server) - before;
    assert!(grown < 8 << 20, "used_memory_peak grew by {grown}");

    // The length of a string is the server's to judge; what it took it gives back.
    let used = server.info_number("memory", "used_memory");
    for length in [1u64 << 31, 1 << 40, 1 << 62, u64::MAX] {
        let mut huge = vec![STRING, 0x81];
        huge.extend_from_slice(&length.to_be_bytes());
        let payload = Payload::like(&mut client, "lock").raw(&huge).raw(b"short");
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
fn a_payload_of_another_format_version_is_refused_and_the_log_names_both() {
    let server = Server::start();
    let mut client = server.connect();
    let this = concat!("this is dsync ", env!("CARGO_PKG_VERSION"));
    for (key, _) in add_fixtures(&mut client) {
        let (body, version) = opened(&dump(&mut client, key));
        // The lowest ten bits of the module's number are the version of its encoding.
        assert_eq!((body[8] & 3, body[9]), (0, 2), "{key}");
        for (encoding, was) in [
            (1, "it was written by dsync 0.1.0, in format version 1"),
            (3, "it is of format version 3"),
        ] {
            let mut other = body.clone();
            other[9] = encoding;
            let seen = server.log_text().len();
            let reply = call!(client, "RESTORE", "bad", 0, sealed(&other, version));
            assert!(
                reply.error().starts_with("ERR Bad data format"),
                "{key}: {reply:?}"
            );
            let said =
                format!("a value is refused: {was}, and {this}, which reads format version 2");
            let log = server.log_text()[seen..].to_owned();
            assert!(log.contains(&said), "{said}: {log}");
        }
    }
    assert_calm(&server);
}

#[test]
fn a_refused_payload_leaves_the_key_and_its_waiters_alone() {
    let server = Server::start();
    let mut client = server.connect();
    add_fixtures(&mut client);
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
    add_fixtures(&mut server.connect());
    let digested = call!(server.connect(), "DEBUG", "DIGEST");
    assert_eq!(call!(server.connect(), "SAVE"), "OK");
    server.kill9();
    let file = server.dir().join("dump.rdb");
    let good = fs::read(&file).expect("the file is read");
    let token = uuid::Uuid::parse_str("8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59").expect("a UUID");
    let token = good.windows(16).position(|bytes| bytes == token.as_bytes());
    let token = token.expect("the token is found");
    // The token, the mark that it is a UUID, the lease before that, the owner behind it, and the check.
    for (at, byte) in [
        (token, good[token] ^ 1),
        (token - 1, 16),
        (token - 3, 0),
        (token + 16, 0xff),
        (token + 18, good[token + 18] ^ 0x80),
    ] {
        let mut bad = good[..good.len() - 8].to_vec();
        bad[at] = byte;
        let sum = crc64(&bad);
        bad.extend_from_slice(&sum.to_le_bytes());
        fs::write(&file, bad).expect("the file is written");
        let seen = server.log_text().len();
        let started = catch_unwind(AssertUnwindSafe(|| server.start_again()));
        let log = server.log_text()[seen..].to_owned();
        assert!(started.is_err(), "byte {at}: {log}");
        assert!(
            log.contains("a value is refused: its checksum is wrong"),
            "byte {at}: {log}"
        );
        assert!(
            !log.contains("panic") && !log.contains("crashed by signal"),
            "byte {at}: {log}"
        );
    }
    fs::write(&file, &good).expect("the file is restored");
    server.start_again();
    assert_eq!(call!(server.connect(), "DEBUG", "DIGEST"), digested);
}
