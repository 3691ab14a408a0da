//! MINHOLD on replicas: what is replicated, to the letter, and rests after a failover. What has no MINHOLD is replicated as
//! before.

use super::role_change::pair_with_grace;
use super::watched_primary::WatchedPrimary;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn grant_rest_and_its_end_are_replicated() {
    let mut primary = WatchedPrimary::start();
    primary.forget();
    let ask = "DLOCK.ACQUIRE k SHARED MINHOLD 300 OWNER o TOKEN a";
    let fence = primary.fence(ask);
    primary.expect_bare(&[format!(
        "k lock | GRANT {fence} shared 30000+300 @+30000 @ 0 1:a 1:o"
    )]);
    primary.ask("DLOCK.RELEASE k a");
    primary.expect_bare(&[format!("k lock | REST {fence} released @")]);
    primary.since = unix_ms();
    wait_until_gone(&mut primary.server.connect(), "k");
    primary.expect(&[
        format!("k lock | END {fence} rested @"),
        "k lock | VANISH".to_owned(),
    ]);
}

/// Only what is new is in a command of version 5: an older replica follows all that has no MINHOLD.
#[test]
fn hold_without_min_hold_beside_a_rest_is_replicated_as_before() {
    let mut primary = WatchedPrimary::start();
    primary.ask("DSEM.ACQUIRE s LIMIT 2 MINHOLD 600000 TOKEN a");
    primary.ask("DSEM.RELEASE s a");
    primary.forget();
    let fence = primary.fence("DSEM.ACQUIRE s TOKEN b");
    primary.ask("DSEM.RELEASE s b");
    let commands = primary.stream.take_so_far(&primary.server);
    let versions: Vec<u8> = commands.iter().map(|command| command[2][0]).collect();
    assert_eq!(versions, [2, 2], "{fence}: {commands:?}");
}

/// A kept place keeps the option, and its grant has it.
#[test]
fn kept_place_with_min_hold_is_replicated_as_such() {
    let mut primary = WatchedPrimary::start();
    let held = primary.fence("DLOCK.ACQUIRE k TOKEN a");
    primary.forget();
    let ask = "DLOCK.ACQUIRE k TOKEN q QUEUE 60000 MINHOLD";
    let channel = primary.ask(format!("{ask} 7")).as_array()[2]
        .as_str()
        .to_owned();
    let number = channel.rsplit(':').next().expect("a number").to_owned();
    let place = |ms| format!("k lock | PLACE {number} exclusive 30000+{ms} 60000 NONE @ 1:q 0:");
    primary.expect_bare(&[place(7)]);
    // A new MINHOLD counts. Its place stays, and so does the moment at which it was taken.
    primary.ask(format!("{ask} 600000"));
    let again = primary.next_commands(1).remove(0).join(" ");
    assert!(again.contains("30000+600000 60000 NONE"), "{again}");
    primary.since = unix_ms();
    primary.ask("DLOCK.RELEASE k a");
    let fence = primary.fence(format!("{ask} 600000"));
    primary.expect(&[
        format!("k lock | END {held} released @"),
        format!("k lock | GRANT {fence} exclusive 30000+600000 @+30000 @ 0 1:q 0:"),
        format!("k lock | UNHEARD {fence} 60000"),
        format!("k lock | RENEW {fence} 30000 @+30000"),
    ]);
}

/// The new primary counts what is left by the wall clock, and the grace.
#[test]
fn promoted_replica_keeps_the_rest_and_its_grace() {
    let (old, new) = pair_with_grace(600);
    let mut client = old.connect();
    let line = "MINHOLD 600000 TOKEN a";
    client.ask(format!("DLOCK.ACQUIRE resting {line}")).grant();
    client.ask("DLOCK.RELEASE resting a");
    client.ask(format!("DLOCK.ACQUIRE held {line}")).grant();
    let short = "DLOCK.ACQUIRE short MINHOLD 1500 TOKEN a";
    client.ask(short).grant();
    client.ask("DLOCK.RELEASE short a");
    new.wait_to_catch_up_with(&old);
    for key in ["resting", "held", "short"] {
        assert_eq!(new.digest(key), old.digest(key), "{key}");
    }
    old.stop();
    let mut client = new.connect();
    let left = |client: &mut Client, key: &str| {
        let info = client.ask(format!("DLOCK.INFO {key}"));
        let row = info.field("first-holders").as_array()[0].clone();
        row.field("resting-ms").as_int()
    };
    eventually("a rest that is over by the replica's clock", SOON, || {
        left(&mut client, "short") == 0
    });
    // In one turn, so that the grace cannot end in between.
    let promoted = client.ask_all(["REPLICAOF NO ONE", "DLOCK.ACQUIRE short TOKEN b"]);
    assert_eq!(promoted[0], "OK");
    assert!(promoted[1].is_nil(), "the grace runs");
    let mut waiter = new.waiting("DLOCK.ACQUIRE short TOKEN b BLOCK 0");
    assert_eq!(waiter.granted().0, "b");
    assert_eq!(client.ask("DLOCK.RELEASE held a"), 1);
    for key in ["resting", "held"] {
        let ms = left(&mut client, key);
        assert!((1..=600_000).contains(&ms), "{key}: {ms}");
        assert!(client.ask(format!("DLOCK.ACQUIRE {key} TOKEN b")).is_nil());
    }
    assert_calm(&new);
}
