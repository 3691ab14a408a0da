//! INDEX on replicas: what is replicated, to the letter, and the indexes after a failover. What was not asked for with INDEX
//! is replicated as before.

use super::role_change::pair;
use super::watched_primary::{WatchedPrimary, grant};
use crate::support::steps::*;
use crate::support::*;

#[test]
fn grant_with_index_is_replicated_behind_the_end_before_it() {
    let mut primary = WatchedPrimary::start();
    primary.forget();
    let ask = |token: &str| format!("DSEM.ACQUIRE s LIMIT 1 INDEX TOKEN {token}");
    let fence = fence_in(&primary.ask(ask("a"))).expect("a grant");
    primary.expect(&[
        "s semaphore | LIMIT 1".to_owned(),
        format!("s semaphore | {}", grant(fence, "index-0", 30_000, "a")),
    ]);
    let mut waiter = primary.server.waiting(format!("{} BLOCK 0", ask("w")));
    primary.forget();
    primary.ask("DSEM.RELEASE s a");
    let next = fence_in(&waiter.reply()).expect("a grant");
    primary.expect(&[
        format!("s semaphore | END {fence} released @"),
        format!("s semaphore | {}", grant(next, "index-0", 30_000, "w")),
    ]);
    // Asked again, only the lease is new.
    primary.ask(ask("w"));
    primary.expect(&[format!("s semaphore | RENEW {next} 30000 @+30000")]);
}

/// An END and the GRANT behind it are in one transaction, so nobody sees the one without the other.
#[test]
fn hand_over_of_an_index_is_one_transaction() {
    let mut primary = WatchedPrimary::start();
    primary.ask("DSEM.ACQUIRE s LIMIT 1 INDEX TOKEN a");
    let mut waiter = primary
        .server
        .waiting("DSEM.ACQUIRE s INDEX TOKEN w BLOCK 0");
    primary.forget();
    primary.ask("DSEM.RELEASE s a");
    waiter.reply();
    let commands = primary.stream.take_so_far(&primary.server);
    let names = commands
        .iter()
        .map(|command| words(command)[0].to_uppercase());
    let names: Vec<_> = names.collect();
    assert_eq!(names, ["MULTI", "DSYN", "DSYN", "EXEC"]);
}

#[test]
fn kept_place_with_index_is_replicated_as_such() {
    let mut primary = WatchedPrimary::start();
    let held = fence_in(&primary.ask("DSEM.ACQUIRE s LIMIT 1 TOKEN a")).expect("a grant");
    primary.forget();
    let ask = "DSEM.ACQUIRE s INDEX TOKEN q QUEUE 60000";
    let channel = primary.ask(ask).as_array()[2].as_str().to_owned();
    let number = channel.rsplit(':').next().expect("a number").to_owned();
    primary.expect_bare(&[format!(
        "s semaphore | PLACE {number} index 30000 60000 NONE @ 1:q 0:"
    )]);
    primary.ask("DSEM.RELEASE s a");
    let fence = fence_in(&primary.ask(ask)).expect("a grant");
    let grant = format!("GRANT {fence} index-0 30000 @+30000 @ 0 1:q 0:");
    primary.expect(&[
        format!("s semaphore | END {held} released @"),
        format!("s semaphore | {grant}"),
        format!("s semaphore | UNHEARD {fence} 60000"),
        format!("s semaphore | RENEW {fence} 30000 @+30000"),
    ]);
}

#[test]
fn promoted_replica_has_the_same_indexes() {
    let (old, new) = pair();
    let mut client = old.connect();
    for token in ["a", "b", "c"] {
        client.ask(format!("DSEM.ACQUIRE s LIMIT 3 EX 600 INDEX TOKEN {token}"));
    }
    client.ask("DSEM.ACQUIRE s EX 600 INDEX TOKEN kept QUEUE 60000");
    client.ask("DSEM.ACQUIRE s EX 600 INDEX TOKEN behind QUEUE 60000");
    client.ask("DSEM.RELEASE s b");
    new.wait_to_catch_up_with(&old);
    assert_eq!(new.digest("s"), old.digest("s"));
    let mut client = new.connect();
    let on_replica = client.ask("DSEM.INFO s");
    let holders = on_replica.field("first-holders").as_array().iter();
    let indexes = holders.map(|holder| holder.field("index").as_int());
    assert_eq!(indexes.collect::<Vec<_>>(), [0, 2, 1]);
    client.ask("REPLICAOF NO ONE");
    client.ask("DSEM.RELEASE s a");
    for (token, index) in [("c", 2), ("kept", 1), ("behind", 0)] {
        let held = client.ask(format!("DSEM.ACQUIRE s EX 600 INDEX TOKEN {token}"));
        assert_eq!(held.as_array()[2], index, "{token}");
    }
    assert_calm(&new);
}
