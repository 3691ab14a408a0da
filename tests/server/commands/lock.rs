//! Locks: what a grant answers, and what ends a hold: its token, or REVOKE.
//!
//! Elsewhere: who gets a lock next (`lock_order`), leases (`lock_leases`), requests that are sent again (`retries`),
//! waiters that leave (`leaving`), keys that are removed (`removal`).

use crate::support::steps::*;
use crate::support::*;
use std::collections::BTreeSet;

#[test]
fn lock_is_held_until_release_and_then_its_key_is_gone() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, fence) = client.ask("DLOCK.ACQUIRE lock").grant();
    assert_eq!(client.ask("EXISTS lock"), 1);
    let left = client.ask(format!("DLOCK.CHECK lock {token}")).as_int();
    assert!(
        (20_000..=30_000).contains(&left),
        "the default lease is 30 s: {left}"
    );
    assert!(
        client.ask("DLOCK.ACQUIRE lock").is_nil(),
        "held, and no BLOCK"
    );
    assert!(client.ask("DLOCK.ACQUIRE lock SHARED").is_nil());

    assert_eq!(client.ask(format!("DLOCK.RELEASE lock {token}")), 1);
    assert_eq!(client.ask("EXISTS lock"), 0);
    assert_eq!(client.ask(format!("DLOCK.CHECK lock {token}")), 0);
    assert_eq!(client.ask(format!("DLOCK.RELEASE lock {token}")), 0);

    let (again, later) = client.ask("DLOCK.ACQUIRE lock").grant();
    assert_ne!(again, token);
    assert!(later > fence, "fences rise: {fence}, then {later}");
}

#[test]
fn token_made_by_the_server_is_a_new_random_uuid() {
    let server = Server::start();
    let mut client = server.connect();
    let lines: Vec<_> = (0..1_000)
        .map(|n| format!("DLOCK.ACQUIRE lock:{n}"))
        .collect();
    let replies = client.ask_all(&lines);
    let tokens: BTreeSet<_> = replies.iter().map(|reply| reply.grant().0).collect();
    assert_eq!(tokens.len(), 1_000);
    for token in &tokens {
        let bytes = token.as_bytes();
        assert_eq!(bytes.len(), 36, "{token}");
        for (at, byte) in bytes.iter().enumerate() {
            let fits = match at {
                8 | 13 | 18 | 23 => *byte == b'-',
                14 => *byte == b'4',
                19 => b"89ab".contains(byte),
                _ => b"0123456789abcdef".contains(byte),
            };
            assert!(fits, "byte {at} of {token}");
        }
    }
    // Random and not a counter: every digit varies.
    for at in (0..36).filter(|at| ![8, 13, 14, 18, 23].contains(at)) {
        let seen: BTreeSet<_> = tokens.iter().map(|token| token.as_bytes()[at]).collect();
        assert!(seen.len() > 1, "digit {at} is always the same");
    }
}

#[test]
fn lock_is_untouched_by_tokens_that_differ_slightly() {
    let server = Server::start();
    let mut client = server.connect();
    let token = "0c9b1f2e-33aa-4f00-8abc-d00dfeedbeef";
    let given = client
        .ask(format!("DLOCK.ACQUIRE lock PX 60000 TOKEN {token}"))
        .grant()
        .0;
    assert_eq!(given, token, "the client's own token is the one it gets");
    let others = [
        token.to_uppercase(),
        token.replace('-', ""),
        token[..35].to_owned(),
        format!("{token}0"),
        "0c9b1f2e-33aa-4f00-8abc-d00dfeedbeee".to_owned(),
        "*".to_owned(),
        "x".repeat(128),
    ];
    for other in &others {
        assert_eq!(
            client.ask(format!("DLOCK.RELEASE lock {other}")),
            0,
            "{other}"
        );
        assert_eq!(
            client.ask(format!("DLOCK.RENEW lock {other} PX 1")),
            0,
            "{other}"
        );
        assert_eq!(
            client.ask(format!("DLOCK.CHECK lock {other}")),
            0,
            "{other}"
        );
    }
    let left = client.ask(format!("DLOCK.CHECK lock {token}")).as_int();
    assert!(left > 30_000, "untouched by all that: {left}");
    // Tokens are compared and returned byte for byte: the upper-case form is another token.
    let upper = token.to_uppercase();
    let shown = client
        .ask(format!("DLOCK.ACQUIRE other TOKEN {upper}"))
        .grant()
        .0;
    assert_eq!(shown, upper);
    assert_eq!(client.ask(format!("DLOCK.RELEASE other {token}")), 0);
    assert_eq!(client.ask(format!("DLOCK.RELEASE lock {token}")), 1);
}

#[test]
fn release_by_stale_token_leaves_next_holder() {
    let server = Server::start();
    let mut client = server.connect();
    let (late, fence) = client.ask("DLOCK.ACQUIRE lock PX 40").grant();
    let mut next = server.connect();
    next.begin("DLOCK.ACQUIRE lock PX 60000 BLOCK 0");
    let (token, later) = next.granted();
    assert!(later > fence);
    assert_eq!(client.ask(format!("DLOCK.RELEASE lock {late}")), 0);
    assert_eq!(client.ask(format!("DLOCK.RENEW lock {late}")), 0);
    assert_eq!(client.ask(format!("DLOCK.REVOKE lock {fence}")), 0);
    assert_eq!(client.ask(format!("DLOCK.CHECK lock {late}")), 0);
    assert!(client.ask(format!("DLOCK.CHECK lock {token}")).as_int() > 30_000);
    assert!(
        client.ask("DLOCK.ACQUIRE lock").is_nil(),
        "the next holder still has it"
    );
}

#[test]
fn revoke_ends_the_hold_with_this_fence_and_serves_the_queue() {
    let server = Server::start();
    let mut admin = server.connect();
    let (token, fence) = admin.ask("DLOCK.ACQUIRE lock").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE lock SHARED BLOCK 0");
    for wrong in [fence - 1, fence + 1, 1] {
        assert_eq!(admin.ask(format!("DLOCK.REVOKE lock {wrong}")), 0);
    }
    assert_eq!(admin.ask(format!("DLOCK.REVOKE lock {fence}")), 1);
    let (_, next) = waiter.granted();
    assert_eq!(admin.ask(format!("DLOCK.REVOKE lock {fence}")), 0);
    assert_eq!(admin.ask(format!("DLOCK.RELEASE lock {token}")), 0);
    assert_eq!(admin.ask(format!("DLOCK.RENEW lock {token}")), 0);
    // Of several shared holds only the one with this fence ends.
    let (other, _) = admin.ask("DLOCK.ACQUIRE lock SHARED").grant();
    assert_eq!(admin.ask(format!("DLOCK.REVOKE lock {next}")), 1);
    assert!(admin.ask(format!("DLOCK.CHECK lock {other}")).as_int() > 0);
    assert_eq!(lock_holders(&mut admin, "lock"), 1);
    assert_eq!(admin.ask("DLOCK.REVOKE absent 5"), 0);
}

#[test]
fn pipeline_behind_waiting_request_runs_after_its_grant() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut client = server.connect();
    client.send_raw(
        b"DLOCK.ACQUIRE lock TOKEN mine BLOCK 0\r\nPING inside\r\nDLOCK.RELEASE lock mine\r\n",
    );
    server.wait_for_blocked(1);
    client.expect_silence(A_WHILE);
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    client.granted();
    assert_eq!(client.reply(), "inside");
    assert_eq!(client.reply(), 1);
    assert_eq!(holder.ask("EXISTS lock"), 0);
}

#[test]
fn longest_block_and_resp3_work() {
    let server = Server::start();
    let mut holder = server.connect_resp3();
    let (token, _) = holder.ask("DLOCK.ACQUIRE lock").grant();
    assert!(holder.ask("DLOCK.ACQUIRE lock").is_nil());
    let mut waiter = server.connect_resp3();
    waiter.wait_on(&server, "DLOCK.ACQUIRE lock BLOCK 9007199254740991");
    let mut hasty = server.connect_resp3();
    hasty.begin("DLOCK.ACQUIRE lock BLOCK 20");
    assert!(hasty.reply().is_nil());
    waiter.expect_silence(A_WHILE);
    assert_eq!(holder.ask(format!("DLOCK.RELEASE lock {token}")), 1);
    waiter.granted();
    let info = holder.ask("DLOCK.INFO lock");
    assert!(matches!(info, Reply::Map(_)), "{info:?}");
}
