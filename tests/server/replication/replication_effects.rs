//! Every change, in every way in which it comes about, as the primary replicates it: to the letter.
//!
//! How expected commands are written is said in `watched_primary`.
//!
//! | change | comes about by | test, here or in `family_effects` (f) |
//! |---|---|---|
//! | GRANT | a request, at once | `grant_names_…`, `lapsed_by_rival` |
//! | | the end of a hold, in each way | `end_of_hold_…`, `release_grants_…` |
//! | | the first waiter's BLOCK running out, its leaving, unblocking or refusal | `head_that_leaves_…` |
//! | | a limit pinned, unpinned, raised by a queued request | f `limits_and_pins_…`, f `queued_request_…` |
//! | | the key's removal, in each way | `removal_of_key_…` |
//! | | the end of a pause or of a refusal of writes | `end_of_hold_during_pause_…` |
//! | RENEW | RENEW, a repeated request, an overdue one, a queued one that holds | `renewed_lease_…` |
//! | END released, lapsed (by the timer, by a rival), revoked, disconnected, undelivered, done | | `end_of_hold_…` |
//! | LIMIT | a grant, entering the queue | f `limits_and_pins_…`, f `limit_is_…`, f `queued_request_…` |
//! | PIN | pinning, unpinning, on a key or none | f `limits_and_pins_…` |
//! | EXPECT, FINISH | the first, a revision, the next round; the end of the last member | f `round_…`, `end_of_hold_…` |
//! | FAIL, COMPLETE, GIVEUP | of a run, late, to a try, to a waiter | f `work_…` |
//! | PAUSE | PAUSE, PAUSE 0, the end of a pause by the timer and by a request | `pauses` |
//! | VANISH | the last end, unpinning, retention, a handed-back run | all of them |
//! | TALLY, RECORD | the end of an undelivered hold that displaced something | f `what_an_undelivered_…` |
//! | LIMITS, TALLY, RECORD, DISPLACED | the rewriting of an AOF | `rewritten_aof` |

use super::watched_primary::{
    FAMILIES, StreamFamily, WatchedPrimary, assert_replicated, fence_of, grant,
};
use crate::support::steps::unix_ms;
use crate::support::*;
use std::time::Duration;

#[test]
fn grant_names_claim_token_and_owner() {
    let mut primary = WatchedPrimary::start();
    primary.forget();
    let named = [
        (
            r#"DLOCK.ACQUIRE k PX 40000 TOKEN t OWNER "me, \r\n""#,
            "k lock",
            "exclusive 40000",
            r"me, \r\n",
            6,
        ),
        (
            "DLOCK.ACQUIRE e EPHEMERAL TOKEN e",
            "e lock",
            "exclusive 30000",
            "",
            0,
        ),
        (
            "DLOCK.ACQUIRE shared SHARED",
            "shared lock",
            "shared 30000",
            "",
            0,
        ),
        (
            "DSEM.ACQUIRE s LIMIT 9 PERMITS 7",
            "s semaphore | LIMIT 9",
            "7 30000",
            "",
            0,
        ),
        ("DWG.ADD g OWNER o", "g group", "member 30000", "o", 1),
    ];
    for (request, about, claim, owner, owner_len) in named {
        let (token, fence) = primary.ask(request).grant();
        let lease = claim.split(' ').nth(1).expect("a lease");
        let token_len = token.len();
        primary.expect_bare(&[format!(
            "{about} | GRANT {fence} {claim} @+{lease} @ 0 {token_len}:{token} {owner_len}:{owner}"
        )]);
    }
}

#[test]
fn release_grants_shared_waiters_in_the_same_command() {
    let mut primary = WatchedPrimary::start();
    let fence = primary.fence("DLOCK.ACQUIRE k TOKEN a");
    let mut waiters = ["w0", "w1"].map(|token| {
        let request = format!("DLOCK.ACQUIRE k SHARED BLOCK 0 PX 7000 TOKEN {token}");
        primary.server.waiting(request)
    });
    primary.forget();
    assert_eq!(primary.ask("DLOCK.RELEASE k a"), 1);
    // Replicated before a waiter's reply is read.
    let commands = primary.next_commands(1);
    let [first, second] = [0, 1].map(|n: usize| waiters[n].granted().1);
    assert_replicated(
        &format!(
            "k lock | END {fence} released @ | {} | {}",
            grant(first, "shared", 7_000, "w0"),
            grant(second, "shared", 7_000, "w1")
        ),
        &commands[0],
        primary.since,
    );
    primary.expect_nothing();
}

/// What ends a hold, by the word that END has for it.
const ENDS: [&str; 7] = [
    "released",
    "lapsed",
    "lapsed by a rival",
    "revoked",
    "disconnected",
    "undelivered",
    "done",
];

#[test]
fn end_of_hold_and_what_follows_are_one_command() {
    let mut primary = WatchedPrimary::start();
    for family in &FAMILIES {
        for (n, how) in ENDS.into_iter().enumerate() {
            let key = format!("{}:{n}", family.prefix());
            match how {
                "lapsed by a rival" => lapsed_by_rival(&mut primary, family, &key),
                "undelivered" => undelivered(&mut primary, family, &key),
                // DONCE.DONE is another change, COMPLETE; locks and semaphores have no DONE.
                "done" if family.prefix() != "DWG" => {}
                _ => hands_on(&mut primary, family, &key, how),
            }
        }
    }
}

/// Ends the hold once with a waiter in the queue and once without.
fn hands_on(primary: &mut WatchedPrimary, family: &StreamFamily, key: &str, how: &str) {
    for in_line in [true, false] {
        let request = family.request(key, "a");
        let mut holder = primary.server.connect();
        let ephemeral = if how == "disconnected" {
            " EPHEMERAL"
        } else {
            ""
        };
        let fence = fence_of(&holder.ask(format!("{request}{ephemeral}")));
        let heir = in_line.then(|| {
            primary
                .server
                .waiting(format!("{} BLOCK 0", family.request(key, "w")))
        });
        primary.forget();
        let prefix = family.prefix();
        match how {
            "released" => assert_eq!(primary.ask(format!("{prefix}.RELEASE {key} a")), 1),
            "done" => assert_eq!(primary.ask(format!("{prefix}.DONE {key} a")), 1),
            "revoked" => assert_eq!(primary.ask(format!("{prefix}.REVOKE {key} {fence}")), 1),
            "disconnected" => holder.close(),
            _ => {
                let asked = unix_ms();
                assert_eq!(primary.ask(format!("{prefix}.RENEW {key} a PX 150")), 1);
                // After the renewal nothing may be earlier than the end of its lease.
                primary.next_commands(1);
                primary.since = asked + 150;
            }
        }
        let last = match how {
            "released" => family.returned,
            _ => family.lost,
        };
        let end = format!("{} | END {fence} {how} @", family.about(key));
        match heir {
            Some(mut heir) => {
                let next = fence_of(&heir.reply());
                primary.expect_bare(&[format!("{end} | {}", family.grant(next, "w"))]);
            }
            // The command itself says all that happened to the lock, so it is replicated as it came.
            None if how == "released" && family.prefix() == "DLOCK" => {
                primary.expect_bare(&[format!("!DLOCK.RELEASE {key} a")]);
            }
            None => primary.expect_bare(&[format!("{end}{last}")]),
        }
        primary.ask(format!("DEL {key}"));
        primary.forget();
    }
}

/// A competing request ends an overdue hold. The three lines are one turn of the event loop, so no timer comes first.
fn lapsed_by_rival(primary: &mut WatchedPrimary, family: &StreamFamily, key: &str) {
    primary.forget();
    let first = format!("{} PX 1", family.request(key, "a"));
    let rival = family.request(key, "b");
    let replies = primary.client.ask_all([&first, "DEBUG SLEEP 0.03", &rival]);
    let (a, b) = (fence_of(&replies[0]), fence_of(&replies[2]));
    assert!(b > a, "{b} after {a}");
    let about = family.about(key);
    // The last member is lost before the rival is added: that finishes a round.
    let between = if family.prefix() == "DWG" {
        family.lost
    } else {
        ""
    };
    primary.expect_bare(&[
        format!(
            "{about}{} | {}",
            family.limit,
            grant(a, family.claim, 1, "a")
        ),
        format!(
            "{about} | END {a} lapsed @{between} | {}",
            family.grant(b, "b")
        ),
    ]);
}

/// One turn releases the hold and kills the first waiter, which has just been granted: the next waiter gets the hold.
fn undelivered(primary: &mut WatchedPrimary, family: &StreamFamily, key: &str) {
    for in_line in [true, false] {
        let a = primary.fence(family.request(key, "a"));
        let mut doomed = primary.server.connect();
        let id = doomed.id();
        doomed.wait_on(
            &primary.server,
            format!("{} BLOCK 0", family.request(key, "doomed")),
        );
        let heir = in_line.then(|| {
            primary
                .server
                .waiting(format!("{} BLOCK 0", family.request(key, "w")))
        });
        primary.forget();
        let release = format!("{}.RELEASE {key} a", family.prefix());
        primary
            .client
            .ask_all([&release, &format!("CLIENT KILL ID {id}")]);
        let about = family.about(key);
        let commands = primary.next_commands(1);
        let lost: u64 = commands[0][4]
            .split(' ')
            .nth(1)
            .expect("a fence")
            .parse()
            .expect("a fence");
        let given = family.grant(lost, "doomed");
        assert_replicated(
            &format!("{about} | END {a} released @ | {given}"),
            &commands[0],
            primary.since,
        );
        let end = format!("{about} | END {lost} undelivered @");
        match heir {
            Some(mut heir) => {
                let next = fence_of(&heir.reply());
                primary.expect_bare(&[format!("{end} | {}", family.grant(next, "w"))]);
            }
            None => primary.expect_bare(&[format!("{end}{}", family.returned)]),
        }
        primary.ask(format!("DEL {key}"));
        primary.forget();
    }
}

#[test]
fn head_that_leaves_queue_replicates_only_the_next_grant() {
    let mut primary = WatchedPrimary::start();
    for (n, how) in ["runs out", "closes", "is unblocked", "is refused"]
        .into_iter()
        .enumerate()
    {
        let key = format!("s{n}");
        primary.ask(format!("DSEM.ACQUIRE {key} LIMIT 3 TOKEN a"));
        let mut head = primary.server.connect();
        let id = head.id();
        let block = if how == "runs out" { 150 } else { 0 };
        let greedy = format!("DSEM.ACQUIRE {key} PERMITS 3 TOKEN head BLOCK {block}");
        head.wait_on(&primary.server, greedy);
        let mut next = primary
            .server
            .waiting(format!("DSEM.ACQUIRE {key} TOKEN next BLOCK 0"));
        primary.forget();
        let pin = match how {
            "closes" => {
                head.close();
                ""
            }
            "is unblocked" => {
                assert_eq!(primary.ask(format!("CLIENT UNBLOCK {id}")), 1);
                ""
            }
            "is refused" => {
                primary.ask(format!("DSEM.LIMIT {key} 2"));
                assert!(head.reply().error().starts_with("TOOMANY"));
                " | PIN 2"
            }
            _ => "",
        };
        let (_, fence) = next.granted();
        primary.expect(&[format!(
            "{key} semaphore{pin} | {}",
            grant(fence, "1", 30_000, "next")
        )]);
    }
}

#[test]
fn renewed_lease_is_replicated_however_it_was_renewed() {
    let mut primary = WatchedPrimary::start();
    for family in &FAMILIES {
        let (prefix, key) = (family.prefix(), format!("k{}", family.prefix()));
        let about = family.about(&key);
        let request = family.request(&key, "t");
        let fence = primary.fence(&request);
        primary.forget();
        assert_eq!(primary.ask(format!("{prefix}.RENEW {key} t EX 50")), 1);
        assert_eq!(primary.ask(format!("{prefix}.RENEW {key} t")), 1);
        let renewed = format!("{about} | RENEW {fence} 50000 @+50000");
        primary.expect(&[&renewed, &renewed]);
        // The same request again renews, with and without BLOCK.
        assert_eq!(primary.fence(&request), fence);
        assert_eq!(primary.fence(format!("{request} BLOCK 0 PX 7")), fence);
        primary.expect(&[
            format!("{about} | RENEW {fence} 30000 @+30000"),
            format!("{about} | RENEW {fence} 7 @+7"),
            format!("{about} | END {fence} lapsed @{}", family.lost),
        ]);

        // An overdue hold that nothing has ended can still be renewed.
        primary.ask(format!("DEL {key}"));
        primary.forget();
        let short = format!("{request} PX 1");
        let renew = format!("{prefix}.RENEW {key} t EX 9");
        let replies = primary.client.ask_all([&short, "DEBUG SLEEP 0.03", &renew]);
        let fence = fence_of(&replies[0]);
        assert_eq!(replies[2], 1);
        primary.expect(&[
            format!(
                "{about}{} | {}",
                family.limit,
                grant(fence, family.claim, 1, "t")
            ),
            format!("{about} | RENEW {fence} 9000 @+9000"),
        ]);

        // The waiter for one key holds another key, which is then renamed to the first: its request renews that hold.
        let there = format!("there{prefix}");
        let fence = primary.fence(family.request(&there, "w"));
        let mut waiter = primary
            .server
            .waiting(format!("{} BLOCK 0 PX 8000", family.request(&key, "w")));
        primary.forget();
        assert_eq!(primary.ask(format!("RENAME {there} {key}")), "OK");
        assert_eq!(fence_of(&waiter.reply()), fence);
        primary.expect(&[
            format!("!RENAME {there} {key}"),
            format!("{about} | RENEW {fence} 8000 @+8000"),
        ]);
    }
}

#[test]
fn removal_of_key_is_replicated_before_the_grant_after_it() {
    let mut primary = WatchedPrimary::start();
    let payload = {
        primary.ask("SET string 1");
        let payload = primary.client.ask("DUMP string").as_bytes().to_vec();
        assert_eq!(primary.ask("DEL string"), 1);
        payload
    };
    for family in &FAMILIES {
        let ways: [(&str, &[&str]); 10] = [
            ("DEL k", &["!DEL k"]),
            ("UNLINK k", &["!UNLINK k"]),
            ("RENAME k away", &["!RENAME k away"]),
            ("MOVE k 1", &["!MOVE k 1"]),
            ("FLUSHDB", &["!FLUSHDB"]),
            ("FLUSHALL", &["!FLUSHALL"]),
            ("FLUSHALL ASYNC", &["!FLUSHALL"]),
            ("SWAPDB 0 1", &["!SWAPDB 0 1"]),
            // The server expires the key later, and replicates DEL or UNLINK for it.
            ("PEXPIRE k 20", &["!PEXPIRE", "!"]),
            ("EVAL \"return redis.call('DEL', 'k')\" 1 k", &["!DEL k"]),
        ];
        for (way, removal) in ways {
            primary.ask("FLUSHALL");
            primary.ask(family.request("k", "holder"));
            let mut waiter = primary
                .server
                .waiting(format!("{} BLOCK 0", family.request("k", "w")));
            primary.forget();
            let done = primary.ask(way);
            assert!(!done.is_error(), "{way}: {done:?}");
            let fence = fence_of(&waiter.reply());
            let again = format!(
                "{}{} | {}",
                family.about("k"),
                family.limit,
                family.grant(fence, "w")
            );
            let expected: Vec<_> = removal
                .iter()
                .map(|word| (*word).to_owned())
                .chain([again])
                .collect();
            primary.expect(&expected);
        }
        // A key that is overwritten by another type is granted to nobody.
        primary.ask("FLUSHALL");
        primary.ask(family.request("k", "holder"));
        let mut waiter = primary
            .server
            .waiting(format!("{} BLOCK 0", family.request("k", "w")));
        primary.forget();
        let done = call!(primary.client, "RESTORE", "k", 0, &payload, "REPLACE");
        assert_eq!(done, "OK");
        assert!(waiter.reply().error().starts_with("WRONGTYPE"));
        primary.expect(&["!RESTORE k"]);
    }
}

#[test]
fn end_of_hold_during_pause_is_replicated_after_it() {
    let mut primary = WatchedPrimary::start();
    for (hold_up, go_on) in [
        ("CLIENT PAUSE 60000 WRITE", "CLIENT UNPAUSE"),
        (
            "CONFIG SET min-replicas-to-write 9",
            "CONFIG SET min-replicas-to-write 0",
        ),
    ] {
        let mut holder = primary.server.connect();
        let request = "DLOCK.ACQUIRE k TOKEN a EPHEMERAL";
        let a = fence_of(&holder.ask(request));
        let mut heir = primary.server.waiting("DLOCK.ACQUIRE k TOKEN w BLOCK 0");
        primary.forget();
        assert_eq!(primary.ask(hold_up), "OK");
        holder.close();
        heir.expect_silence(Duration::from_millis(150));
        assert_eq!(primary.ask(go_on), "OK");
        let w = heir.granted().1;
        let given = grant(w, "exclusive", 30_000, "w");
        primary.expect(&[format!("k lock | END {a} disconnected @ | {given}")]);
        primary.ask("DEL k");
        primary.forget();
    }
}
