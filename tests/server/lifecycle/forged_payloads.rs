//! Payloads of RESTORE whose checksums are right and whose contents are wrong, as an attacker makes them.
//!
//! Each is refused or becomes a sound key; the server stays up, and nothing is allocated because a number in a payload
//! says so. Payloads that are damaged by accident are in `bad_payloads`.

use super::payload::{
    PackedHold, Payload, STRING, add_fixtures, dump, good_hold, leb128, opened, others,
    plain_server, strings,
};
use crate::support::steps::{SOON, assert_calm, unix_ms};
use crate::support::{sealed as checked, *};

/// Asserts that the accepted key `bad` can be dumped and restored, and that each of its holds can be revoked.
fn assert_sound(client: &mut Client, family: &str, what: &str) {
    let command = |verb: &str| format!("{family}.{verb}");
    let digested = client.ask("DEBUG DIGEST-VALUE bad");
    let payload = dump(client, "bad");
    assert_eq!(
        call!(client, "RESTORE", "bad", 0, &payload, "REPLACE"),
        "OK",
        "{what}: a second time"
    );
    assert_eq!(client.ask("DEBUG DIGEST-VALUE bad"), digested, "{what}");
    let info = call!(client, command("INFO"), "bad", "COUNT", 1000);
    if info.is_nil() {
        // The key is gone: its lease or its retention had run out.
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
    client.ask("DEL bad");
}

/// The checksum of a packed string protects from damage only: here it is computed anew after each change.
#[test]
fn changed_payload_with_correct_check_is_refused_or_sound() {
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
                    assert_eq!(client.ask("EXISTS bad"), 0, "{what}");
                }
            }
        }
    }
    assert!(
        refused > 500 && accepted > 500,
        "{refused} refused, {accepted} accepted"
    );
    assert_calm(&server);
    client.ask("FLUSHALL");
    assert!(
        !client.ask("DLOCK.ACQUIRE lock").is_nil(),
        "the server still works"
    );
}

#[test]
fn hold_with_field_out_of_bounds_is_refused() {
    let server = Server::start();
    let mut client = server.connect();
    add_fixtures(&mut client);
    let mut restore = |payload: Vec<u8>| {
        let reply = call!(client, "RESTORE", "bad", 0, payload);
        client.ask("DEL bad");
        reply
    };
    let mut client = server.connect();
    let mut one = |hold: &PackedHold| {
        Payload::like(&mut client, "lock")
            .string(&hold.packed())
            .end()
    };
    assert_eq!(
        restore(one(&good_hold())),
        "OK",
        "the hold that the others are made from"
    );

    type Bend = (&'static str, fn(&mut PackedHold));
    let bends: &[Bend] = &[
        ("fence 0", |hold| hold.fence = 0),
        ("fence 2^53", |hold| hold.fence = 1 << 53),
        ("fence 2^64 - 1", |hold| hold.fence = u64::MAX),
        ("fence more than a year ahead", |hold| {
            hold.fence += 367 * 86_400 * 1_000_000;
        }),
        ("a token of 129 bytes", |hold| hold.token = vec![b'x'; 129]),
        ("a token of a megabyte", |hold| {
            hold.token = vec![b'x'; 1 << 20];
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
    // Refused fences are forgotten: the last fence is where it was.
    let mut client = server.connect();
    let fence = client.ask("DLOCK.ACQUIRE fresh").grant().1;
    assert!(fence < (unix_ms() + 2 * 3_600_000) * 1000, "{fence}");
    // A fence less than a year ahead is accepted, and later fences are higher.
    let mut hold = good_hold();
    hold.fence += 300 * 86_400 * 1_000_000;
    let payload = Payload::like(&mut client, "lock")
        .string(&hold.packed())
        .end();
    assert_eq!(restore(payload), "OK");
    let fence = client.ask("DLOCK.ACQUIRE fresher").grant().1;
    assert!(fence > hold.fence, "{fence} after {}", hold.fence);
    assert_calm(&server);
}

#[test]
fn changes_that_contradict_each_other_are_refused() {
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
fn group_with_largest_tally_can_be_used() {
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
        client.ask(format!("DWG.ADD bad LIMIT {limit}"));
    }
    assert_eq!(client.ask("DWG.DONE bad token"), 1);
    let info = client.ask("DWG.INFO bad");
    assert!(info.field("done").as_int() > 0, "{info:?}");
    assert_calm(&server);
}

#[test]
fn huge_length_allocates_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    add_fixtures(&mut client);
    let peak = |server: &Server| server.info_number("memory", "used_memory_peak");
    let before = peak(&server);
    for length in [1 << 20, 1 << 32, 1 << 40, 1 << 53, u64::MAX >> 1, u64::MAX] {
        // The length of a reason, of a late token, of a result, in a RECORD.
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
    // Ten thousand strings that each promise another one.
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

    // The server itself judges the length of a string, and frees what it allocated for it.
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
