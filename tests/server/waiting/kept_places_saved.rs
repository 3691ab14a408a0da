//! Kept places are part of what a server saves and replicates: they stand in their order after a restart, on replicas,
//! and after a failover, and they stay with the name when the value leaves it.

use super::kept_places::place;
use crate::support::steps::*;
use crate::support::*;

const KEEP_LONG: &str = "QUEUE 60000";

/// Lets `held` hold the lock, and keeps places for `a` and `b`.
#[track_caller]
fn hold_and_queue(client: &mut Client) {
    ask(client, "DLOCK.ACQUIRE lock EX 1000 TOKEN held").grant();
    for token in ["a", "b"] {
        place(&ask(
            client,
            format!("DLOCK.ACQUIRE lock EX 1000 TOKEN {token} OWNER {token} {KEEP_LONG}"),
        ));
    }
}

/// The owners of the requests that wait, in order.
#[track_caller]
fn waiting(client: &mut Client) -> Vec<String> {
    let info = ask(client, "DLOCK.INFO lock");
    let waiters = info.field("first-waiters").as_array().iter();
    waiters
        .map(|waiter| waiter.field("owner").as_str().to_owned())
        .collect()
}

/// Releases in turn, and checks that `a` comes before `b`, and `b` before a request that comes later.
#[track_caller]
fn expect_old_order(server: &Server) {
    let mut client = server.connect();
    assert_eq!(waiting(&mut client), ["a", "b"]);
    let mut late = queued(server, "DLOCK.ACQUIRE lock TOKEN late BLOCK 0");
    let mut holder = "held";
    for token in ["a", "b"] {
        assert_eq!(ask(&mut client, format!("DLOCK.RELEASE lock {holder}")), 1);
        let request = format!("DLOCK.ACQUIRE lock EX 1000 TOKEN {token} OWNER {token} {KEEP_LONG}");
        assert_eq!(ask(&mut client, request).grant().0, token);
        holder = token;
    }
    late.expect_silence(A_WHILE);
    assert_eq!(ask(&mut client, "DLOCK.RELEASE lock b"), 1);
    granted(&mut late);
}

#[test]
fn kept_places_survive_a_restart_from_rdb() {
    let mut server = Server::start();
    hold_and_queue(&mut server.connect());
    assert_eq!(ask(&mut server.connect(), "SAVE"), "OK");
    server.kill9();
    server.start_again();
    expect_old_order(&server);
}

#[test]
fn kept_places_survive_a_restart_from_aof_and_its_rewrite() {
    for rewrite in [false, true] {
        let mut server = Server::builder()
            .config("appendonly", "yes")
            .config("appendfsync", "always")
            .config("aof-use-rdb-preamble", "no")
            .start();
        let mut client = server.connect();
        hold_and_queue(&mut client);
        if rewrite {
            ask(&mut client, "BGREWRITEAOF");
            eventually("the rewritten AOF", SOON, || {
                server.info_number("persistence", "aof_rewrite_in_progress") == 0
                    && server.info_number("persistence", "aof_rewrite_scheduled") == 0
            });
        }
        server.kill9();
        server.start_again();
        expect_old_order(&server);
    }
}

#[test]
fn kept_places_are_replicated_and_served_after_promotion() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    replica.wait_for_sync();
    let mut client = primary.connect();
    hold_and_queue(&mut client);
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(digest(&replica, "lock"), digest(&primary, "lock"));
    assert_eq!(
        waiting(&mut replica.connect()),
        ["a", "b"],
        "a replica knows kept places"
    );
    assert_eq!(ask(&mut replica.connect(), "REPLICAOF NO ONE"), "OK");
    expect_old_order(&replica);
    assert_eq!(replica.info_number("dsync", "dsync_unapplied_changes"), 0);
}

#[test]
fn kept_places_travel_with_a_full_synchronisation() {
    let primary = Server::start();
    hold_and_queue(&mut primary.connect());
    let replica = Server::builder().replica_of(&primary).start();
    replica.wait_for_sync();
    assert_eq!(digest(&replica, "lock"), digest(&primary, "lock"));
    assert_eq!(ask(&mut replica.connect(), "REPLICAOF NO ONE"), "OK");
    expect_old_order(&replica);
}

#[test]
fn asking_again_is_not_replicated() {
    let primary = Server::start();
    let mut client = primary.connect();
    hold_and_queue(&mut client);
    let mut stream = ReplicationStream::attach(&primary);
    for _ in 0..3 {
        place(&ask(
            &mut client,
            format!("DLOCK.ACQUIRE lock EX 1000 TOKEN a OWNER a {KEEP_LONG}"),
        ));
    }
    assert_eq!(stream.take_so_far(&primary), Vec::<Vec<Vec<u8>>>::new());
}

#[test]
fn places_stay_with_the_name_when_the_lock_is_renamed() {
    let server = Server::start();
    let mut client = server.connect();
    hold_and_queue(&mut client);
    assert_eq!(ask(&mut client, "RENAME lock other"), "OK");
    // The name is free now, so the first of its places is granted.
    eventually("the grant", SOON, || {
        ask(&mut client, "DLOCK.CHECK lock a").as_int() > 0
    });
    assert_eq!(waiting(&mut client), ["b"]);
    assert!(ask(&mut client, "DLOCK.CHECK other held").as_int() > 0);
}

#[test]
fn del_serves_the_first_kept_place_and_flushall_drops_them_all() {
    let server = Server::start();
    let mut client = server.connect();
    hold_and_queue(&mut client);
    assert_eq!(ask(&mut client, "DEL lock"), 1);
    eventually("the grant", SOON, || {
        ask(&mut client, "DLOCK.CHECK lock a").as_int() > 0
    });
    assert_eq!(ask(&mut client, "FLUSHALL"), "OK");
    assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
    assert!(ask(&mut client, "DLOCK.ACQUIRE lock TOKEN new").grant().1 > 0);
}

#[test]
fn dump_and_restore_take_places_to_a_name_without_a_queue() {
    let server = Server::start();
    let mut client = server.connect();
    hold_and_queue(&mut client);
    let payload = client.call(&["DUMP", "lock"]).as_bytes().to_vec();
    assert_eq!(ask(&mut client, "FLUSHALL"), "OK");
    let arguments: [&[u8]; 4] = [b"RESTORE", b"lock", b"0", &payload];
    assert_eq!(client.call(&arguments), "OK");
    expect_old_order(&server);
}

#[test]
fn unheard_hold_has_its_time_again_after_promotion() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    replica.wait_for_sync();
    let mut client = primary.connect();
    hold_and_queue(&mut client);
    assert_eq!(ask(&mut client, "DLOCK.RELEASE lock held"), 1);
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(digest(&replica, "lock"), digest(&primary, "lock"));
    assert_eq!(ask(&mut replica.connect(), "REPLICAOF NO ONE"), "OK");
    let mut client = replica.connect();
    let left = ask(&mut client, "DLOCK.CHECK lock a").as_int();
    assert!((5_001..=60_000).contains(&left), "{left}");
    let request = format!("DLOCK.ACQUIRE lock EX 1000 TOKEN a OWNER a {KEEP_LONG}");
    assert_eq!(ask(&mut client, request).grant().0, "a");
    assert!(ask(&mut client, "DLOCK.CHECK lock a").as_int() > 900_000);
}

/// For one turn the name has places and no value. A snapshot that is made then has them beside the keys.
#[test]
fn snapshot_right_after_rename_has_the_places_of_the_old_name() {
    let mut server = Server::start();
    let mut client = server.connect();
    hold_and_queue(&mut client);
    let replies = at_once(&mut client, &["RENAME lock other", "SAVE"]);
    assert!(replies.iter().all(|reply| *reply == "OK"), "{replies:?}");
    server.kill9();
    server.start_again();
    let mut client = server.connect();
    assert!(ask(&mut client, "DLOCK.CHECK other held").as_int() > 0);
    eventually("the grant of the first place", SOON, || {
        ask(&mut client, "DLOCK.CHECK lock a").as_int() > 0
    });
    assert_eq!(waiting(&mut client), ["b"]);
}

/// The worker of docs/acl.md may not subscribe; with the channels of the places it may hear of its turn, and of nothing
/// else.
#[test]
fn user_with_the_channels_of_places_hears_of_turns_only() {
    let server = Server::start();
    let mut client = server.connect();
    let user = "ACL SETUSER hearer on nopass resetchannels &dsync:* -@all +@connection +subscribe +psubscribe";
    assert_eq!(ask(&mut client, user), "OK");
    let mut hearer = server.connect();
    assert_eq!(ask(&mut hearer, "AUTH hearer any"), "OK");
    let refused = ask(&mut hearer, "SUBSCRIBE news");
    assert!(refused.error().starts_with("NOPERM"), "{refused:?}");
    ask(&mut hearer, "PSUBSCRIBE dsync:*");
    hold_and_queue(&mut client);
    assert_eq!(ask(&mut client, "DLOCK.RELEASE lock held"), 1);
    assert_eq!(reply(&mut hearer).as_array()[0], "pmessage");
}

/// A replica does not learn where RENAME has stored a value, because no request opens it there. It has the places of the
/// name all the same.
#[test]
fn replica_has_the_places_of_a_name_that_got_another_value() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    replica.wait_for_sync();
    let mut client = primary.connect();
    hold_and_queue(&mut client);
    ask(&mut client, "DLOCK.ACQUIRE other EX 1000 TOKEN elsewhere").grant();
    assert_eq!(ask(&mut client, "RENAME other lock"), "OK");
    assert_eq!(waiting(&mut client), ["a", "b"]);
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(digest(&replica, "lock"), digest(&primary, "lock"));
}
