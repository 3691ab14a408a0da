//! LANE on replicas: what is replicated, to the letter, and lanes after a failover. What names no lane is replicated as
//! before.

use super::role_change::pair;
use super::watched_primary::{WatchedPrimary, grant};
use crate::support::steps::*;

#[test]
fn grant_and_kept_place_in_a_lane_are_replicated_as_such() {
    let mut primary = WatchedPrimary::start();
    primary.forget();
    let fence = primary.fence("DSEM.ACQUIRE s LIMIT 1 LANE a LANELIMIT 2 TOKEN t");
    primary.expect(&[
        "s semaphore | LIMIT 1".to_owned(),
        format!("s semaphore | {} in a", grant(fence, "1", 30_000, "t")),
    ]);
    primary.forget();
    let ask = "DSEM.ACQUIRE s LANE b LANELIMIT";
    let place = primary.ask(format!("{ask} 3 TOKEN q QUEUE 60000"));
    let channel = place.as_array()[2].as_str().to_owned();
    let number = channel.rsplit(':').next().expect("a number").to_owned();
    let place = |most| {
        format!("s semaphore | PLACE {number} 1 30000 60000 NONE @ 1:q 0: in b at most {most}")
    };
    primary.expect_bare(&[place(3)]);
    // A new LANELIMIT counts. The place and its moment stay.
    primary.ask(format!("{ask} 4 TOKEN q QUEUE 60000"));
    let again = primary.next_commands(1).remove(0).join(" ");
    assert!(again.ends_with(" in b at most 4"), "{again}");
}

/// Only what names a lane is in a command of version 5: an older replica follows all else.
#[test]
fn hold_without_lane_beside_a_lane_is_replicated_as_before() {
    let mut primary = WatchedPrimary::start();
    primary.ask("DSEM.ACQUIRE s LIMIT 2 LANE a TOKEN a");
    primary.forget();
    primary.ask("DSEM.ACQUIRE s TOKEN b");
    primary.ask("DSEM.RELEASE s b");
    primary.ask("DSEM.RELEASE s a");
    let commands = primary.stream.take_so_far(&primary.server);
    let versions: Vec<u8> = commands.iter().map(|command| command[2][0]).collect();
    assert_eq!(versions, [2, 2, 2], "{commands:?}");
}

/// What is in use comes with the holds. Turns begin anew, in the order of the first places.
#[test]
fn promoted_replica_serves_kept_places_by_lane() {
    let (old, new) = pair();
    let mut client = old.connect();
    let ask = |lane: &str, n: usize| {
        format!("DSEM.ACQUIRE s LIMIT 3 EX 600 LANE {lane} TOKEN {lane}-{n}")
    };
    for (lane, n) in [("a", 0), ("a", 1), ("b", 0)] {
        client.ask(ask(lane, n));
    }
    let places = [("a", 2), ("c", 0), ("b", 1), ("c", 1)];
    for (lane, n) in places {
        client.ask(format!("{} QUEUE 60000", ask(lane, n)));
    }
    new.wait_to_catch_up_with(&old);
    assert_eq!(new.digest("s"), old.digest("s"));
    let mut client = new.connect();
    let info = client.ask("DSEM.INFO s");
    assert_eq!(*info.field("lanes"), "unknown on a replica");
    let rows = info.field("first-lanes").as_array().iter();
    let names: Vec<_> = rows
        .map(|row| row.as_array()[0].as_str().to_owned())
        .collect();
    assert_eq!(names, ["a", "c", "b"]);
    client.ask("REPLICAOF NO ONE");
    for (released, next) in [
        ("a-0", "c-0"),
        ("a-1", "a-2"),
        ("b-0", "b-1"),
        ("c-0", "c-1"),
    ] {
        assert_eq!(client.ask(format!("DSEM.RELEASE s {released}")), 1);
        let left = client.ask(format!("DSEM.CHECK s {next}")).as_int();
        assert!(left > 0, "{next} after {released}");
    }
    assert_calm(&new);
}
