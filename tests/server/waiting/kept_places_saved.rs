//! Kept places are part of what a server saves and replicates: they stand in their order after a restart, on replicas,
//! and after a failover, and they stay with the name when the value leaves it.

use super::kept_places::place;
use crate::support::data_files::rewrite_aof;
use crate::support::steps::*;
use crate::support::*;

const KEEP_LONG: &str = "QUEUE 60000";

/// Lets `held` hold the lock, and keeps places for `a` and `b`.
#[track_caller]
fn hold_and_queue(client: &mut Client) {
    client.ask("DLOCK.ACQUIRE lock EX 1000 TOKEN held").grant();
    for token in ["a", "b"] {
        place(&client.ask(format!(
            "DLOCK.ACQUIRE lock EX 1000 TOKEN {token} OWNER {token} {KEEP_LONG}"
        )));
    }
}

/// The owners of the requests that wait, in order.
#[track_caller]
fn waiting(client: &mut Client) -> Vec<String> {
    let info = client.ask("DLOCK.INFO lock");
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
    let mut late = server.waiting("DLOCK.ACQUIRE lock TOKEN late BLOCK 0");
    let mut holder = "held";
    for token in ["a", "b"] {
        assert_eq!(client.ask(format!("DLOCK.RELEASE lock {holder}")), 1);
        let request = format!("DLOCK.ACQUIRE lock EX 1000 TOKEN {token} OWNER {token} {KEEP_LONG}");
        assert_eq!(client.ask(request).grant().0, token);
        holder = token;
    }
    late.expect_silence(A_WHILE);
    assert_eq!(client.ask("DLOCK.RELEASE lock b"), 1);
    late.granted();
}

#[test]
fn kept_places_survive_a_restart_from_rdb() {
    let mut server = Server::start();
    hold_and_queue(&mut server.connect());
    assert_eq!(server.connect().ask("SAVE"), "OK");
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
            client.ask("BGREWRITEAOF");
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
    assert_eq!(replica.digest("lock"), primary.digest("lock"));
    assert_eq!(
        waiting(&mut replica.connect()),
        ["a", "b"],
        "a replica knows kept places"
    );
    assert_eq!(replica.connect().ask("REPLICAOF NO ONE"), "OK");
    expect_old_order(&replica);
    assert_eq!(replica.info_number("dsync", "dsync_unapplied_changes"), 0);
}

#[test]
fn kept_places_travel_with_a_full_synchronisation() {
    let primary = Server::start();
    hold_and_queue(&mut primary.connect());
    let replica = Server::builder().replica_of(&primary).start();
    replica.wait_for_sync();
    assert_eq!(replica.digest("lock"), primary.digest("lock"));
    assert_eq!(replica.connect().ask("REPLICAOF NO ONE"), "OK");
    expect_old_order(&replica);
}

#[test]
fn asking_again_is_not_replicated() {
    let primary = Server::start();
    let mut client = primary.connect();
    hold_and_queue(&mut client);
    let mut stream = ReplicationStream::attach(&primary);
    for _ in 0..3 {
        place(&client.ask(format!(
            "DLOCK.ACQUIRE lock EX 1000 TOKEN a OWNER a {KEEP_LONG}"
        )));
    }
    assert_eq!(stream.take_so_far(&primary), Vec::<Vec<Vec<u8>>>::new());
}

#[test]
fn places_stay_with_the_name_when_the_lock_is_renamed() {
    let server = Server::start();
    let mut client = server.connect();
    hold_and_queue(&mut client);
    assert_eq!(client.ask("RENAME lock other"), "OK");
    // The name is free now, so the first of its places is granted.
    eventually("the grant", SOON, || {
        client.ask("DLOCK.CHECK lock a").as_int() > 0
    });
    assert_eq!(waiting(&mut client), ["b"]);
    assert!(client.ask("DLOCK.CHECK other held").as_int() > 0);
}

#[test]
fn del_serves_the_first_kept_place_and_flushall_drops_them_all() {
    let server = Server::start();
    let mut client = server.connect();
    hold_and_queue(&mut client);
    assert_eq!(client.ask("DEL lock"), 1);
    eventually("the grant", SOON, || {
        client.ask("DLOCK.CHECK lock a").as_int() > 0
    });
    assert_eq!(client.ask("FLUSHALL"), "OK");
    assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
    assert!(client.ask("DLOCK.ACQUIRE lock TOKEN new").grant().1 > 0);
}

#[test]
fn dump_and_restore_take_places_to_a_name_without_a_queue() {
    let server = Server::start();
    let mut client = server.connect();
    hold_and_queue(&mut client);
    let payload = client.ask("DUMP lock").as_bytes().to_vec();
    assert_eq!(client.ask("FLUSHALL"), "OK");
    let arguments: [&[u8]; 4] = [b"RESTORE", b"lock", b"0", &payload];
    assert_eq!(client.call(&arguments), "OK");
    expect_old_order(&server);
}

/// The waiter was told to do the work of the other key.
#[test]
fn waiter_is_not_given_the_place_that_a_payload_has_for_its_token() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN first EX 60");
    client.ask("DONCE.BEGIN job TOKEN x EX 60 QUEUE 60000");
    let payload = client.ask("DUMP job");
    client.ask("DSEM.ACQUIRE pool LIMIT 1 TOKEN held");
    let mut waiter = server.waiting("DSEM.ACQUIRE pool TOKEN x BLOCK 0");
    let restored = call!(client, "RESTORE", "pool", 0, payload.as_bytes(), "REPLACE");
    assert_eq!(restored, "OK");
    assert!(waiter.reply().error().starts_with("WRONGTYPE"));
    let waiters = client.ask("DONCE.INFO pool").field("waiters").as_int();
    assert_eq!(waiters, 1, "the place of x");
}

#[test]
fn unheard_hold_has_its_time_again_after_promotion() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    replica.wait_for_sync();
    let mut client = primary.connect();
    hold_and_queue(&mut client);
    assert_eq!(client.ask("DLOCK.RELEASE lock held"), 1);
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(replica.digest("lock"), primary.digest("lock"));
    assert_eq!(replica.connect().ask("REPLICAOF NO ONE"), "OK");
    let mut client = replica.connect();
    let left = client.ask("DLOCK.CHECK lock a").as_int();
    assert!((5_001..=60_000).contains(&left), "{left}");
    let request = format!("DLOCK.ACQUIRE lock EX 1000 TOKEN a OWNER a {KEEP_LONG}");
    assert_eq!(client.ask(request).grant().0, "a");
    assert!(client.ask("DLOCK.CHECK lock a").as_int() > 900_000);
}

/// For one turn the name has places and no value. A snapshot that is made then has them beside the keys.
#[test]
fn snapshot_right_after_rename_has_the_places_of_the_old_name() {
    let mut server = Server::start();
    let mut client = server.connect();
    hold_and_queue(&mut client);
    let replies = client.ask_all(["RENAME lock other", "SAVE"]);
    assert!(replies.iter().all(|reply| *reply == "OK"), "{replies:?}");
    server.kill9();
    server.start_again();
    let mut client = server.connect();
    assert!(client.ask("DLOCK.CHECK other held").as_int() > 0);
    eventually("the grant of the first place", SOON, || {
        client.ask("DLOCK.CHECK lock a").as_int() > 0
    });
    assert_eq!(waiting(&mut client), ["b"]);
}

/// An AOF rewrite without RDB preamble began in the turn of a RENAME or DEL. It wrote none of the places of the name,
/// which had no value to write them with. Then one of them was given up, and no server could load that AOF.
#[test]
fn aof_rewritten_in_the_turn_of_rename_or_del_loads() {
    for takes_the_value in ["RENAME lock other", "DEL lock"] {
        let mut server = Server::builder()
            .config("appendonly", "yes")
            .config("appendfsync", "always")
            .config("aof-use-rdb-preamble", "no")
            .start();
        let mut client = server.connect();
        assert_eq!(client.ask("SET precious data"), "OK");
        hold_and_queue(&mut client);
        let replies = client.ask_all([takes_the_value, "BGREWRITEAOF"]);
        assert!(!replies[1].is_error(), "{replies:?}");
        eventually("the rewritten AOF", SOON, || {
            server.info_number("persistence", "aof_rewrite_in_progress") == 0
                && server.info_number("persistence", "aof_rewrite_scheduled") == 0
        });
        eventually("the grant of the first place", SOON, || {
            client.ask("DLOCK.CHECK lock a").as_int() > 0
        });
        assert_eq!(client.ask("DLOCK.RELEASE lock b"), 1);
        server.kill9();
        server.start_again();
        let mut client = server.connect();
        assert_eq!(client.ask("GET precious"), "data");
        assert!(client.ask("DLOCK.CHECK lock a").as_int() > 0);
        assert_eq!(waiting(&mut client), Vec::<String>::new());
        assert_eq!(server.info_number("dsync", "dsync_unapplied_changes"), 1);
        let log = server.log_text();
        let told = log
            .matches("1 kept places leave their queues in the AOF")
            .count();
        assert_eq!(told, 1, "{log}");
    }
}

/// A file had kept places of names without a value, in a database that the loading server did not have. Its tasks for
/// them had no end, and each wrote a line: 61 MB of log in 15 s.
#[test]
fn places_of_a_database_that_is_gone_are_dropped_at_load() {
    let mut server = Server::start();
    let mut client = server.connect();
    let names = || 0..100;
    for database in [0, 5] {
        assert_eq!(client.ask(format!("SELECT {database}")), "OK");
        for name in names() {
            client.ask(format!("DLOCK.ACQUIRE {name} EX 1000")).grant();
            let request = format!("DLOCK.ACQUIRE {name} EX 1000 TOKEN t {KEEP_LONG}");
            place(&client.ask(request));
        }
    }
    // Save before the names of database 5 have values again.
    let del = names().fold("DEL".to_owned(), |del, name| format!("{del} {name}"));
    let replies = client.ask_all([&del[..], "SAVE"]);
    assert_eq!(replies[1], "OK");
    server.kill9();
    server.configure("databases", 1);
    server.start_again();
    assert_eq!(
        server.info_number("dsync", "dsync_waiters"),
        100,
        "those of database 0"
    );
    let said = || {
        let log = server.log_text();
        log.matches("database 5 are dropped").count()
    };
    assert_eq!(said(), 1);
    let ticks = || server.info_number("dsync", "dsync_timer_ticks");
    eventually("a timer that rests", SOON, || {
        let before = ticks();
        std::thread::sleep(A_WHILE);
        ticks() - before < 5
    });
    assert_eq!(said(), 1);
}

/// The worker of docs/acl.md may not subscribe; with the channels of the places it may hear of its turn, and of nothing
/// else.
#[test]
fn user_with_the_channels_of_places_hears_of_turns_only() {
    let server = Server::start();
    let mut client = server.connect();
    let user = "ACL SETUSER hearer on nopass resetchannels &dsync:* -@all +@connection +subscribe +psubscribe";
    assert_eq!(client.ask(user), "OK");
    let mut hearer = server.connect();
    assert_eq!(hearer.ask("AUTH hearer any"), "OK");
    let refused = hearer.ask("SUBSCRIBE news");
    assert!(refused.error().starts_with("NOPERM"), "{refused:?}");
    hearer.ask("PSUBSCRIBE dsync:*");
    hold_and_queue(&mut client);
    assert_eq!(client.ask("DLOCK.RELEASE lock held"), 1);
    assert_eq!(hearer.reply().as_array()[0], "pmessage");
}

/// A replica does not learn where RENAME has stored a value, because no request opens it there. It has the places of
/// the name all the same.
#[test]
fn replica_has_the_places_of_a_name_that_got_another_value() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    replica.wait_for_sync();
    let mut client = primary.connect();
    hold_and_queue(&mut client);
    client
        .ask("DLOCK.ACQUIRE other EX 1000 TOKEN elsewhere")
        .grant();
    assert_eq!(client.ask("RENAME other lock"), "OK");
    assert_eq!(waiting(&mut client), ["a", "b"]);
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(replica.digest("lock"), primary.digest("lock"));
}

/// Lets a run lapse and a round finish, and gives turns to two places whose clients nobody hears of.
#[track_caller]
fn displace(client: &mut Client) {
    client.ask("DONCE.BEGIN job TOKEN worker");
    client.ask("DONCE.BEGIN job TOKEN dead QUEUE 4000");
    assert_eq!(client.ask("DONCE.RENEW job worker PX 1"), 1);
    client.ask("DWG.ADD group TOKEN member").grant();
    assert_eq!(client.ask("DWG.DONE group member"), 1);
    client.ask("DWG.PAUSE group 60000");
    client.ask("DWG.ADD group TOKEN dead QUEUE 4000");
    client.ask("DWG.PAUSE group 0");
    for key in ["DONCE.CHECK job", "DWG.CHECK group"] {
        eventually("the turn of a dead client", SOON, || {
            client.ask(format!("{key} dead")).as_int() > 0
        });
    }
}

/// Checks that the late DONE counts, and that the old tally comes back, after the dead clients' turns.
#[track_caller]
fn expect_given_back(server: &Server) {
    let mut client = server.connect();
    for (family, key) in [("once", "DONCE.CHECK job"), ("wg", "DWG.CHECK group")] {
        let undelivered = format!("dsync_{family}_undelivered");
        eventually("the end of a dead client's turn", SOON, || {
            server.info_number("dsync", &undelivered) == 1
        });
        assert_eq!(client.ask(format!("{key} dead")), 0);
    }
    let tally = client.ask("DWG.WAIT group");
    assert_eq!(tally, Reply::Array(vec![Reply::Int(1), Reply::Int(0)]));
    assert_eq!(client.ask("DONCE.DONE job worker RESULT r"), 1);
    let done = client.ask("DONCE.BEGIN job");
    assert_eq!(
        (&done.as_array()[0], &done.as_array()[2]),
        (&Reply::Bulk(b"DONE".to_vec()), &Reply::Int(1))
    );
}

/// A server with a grace of no time, so that a dead client's turn ends in its time after a restart too.
fn without_grace() -> Builder {
    Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg(0)
}

#[test]
fn displaced_token_and_tally_survive_a_restart() {
    for (aof, rewrite) in [(false, false), (true, false), (true, true)] {
        let mut server = without_grace()
            .config("appendonly", if aof { "yes" } else { "no" })
            .config("appendfsync", "always")
            .config("aof-use-rdb-preamble", "no")
            .start();
        let mut client = server.connect();
        displace(&mut client);
        match (aof, rewrite) {
            (false, _) => drop(client.ask("SAVE")),
            (true, false) => {}
            (true, true) => rewrite_aof(&server),
        }
        let digests = [server.digest("job"), server.digest("group")];
        server.kill9();
        server.start_again();
        assert_eq!([server.digest("job"), server.digest("group")], digests);
        expect_given_back(&server);
    }
}

#[test]
fn displaced_token_and_tally_survive_a_failover() {
    for full_synchronisation in [false, true] {
        let primary = without_grace().start();
        let attach = || {
            let replica = without_grace().replica_of(&primary).start();
            replica.wait_for_sync();
            replica
        };
        let early = (!full_synchronisation).then(attach);
        displace(&mut primary.connect());
        let replica = early.unwrap_or_else(attach);
        replica.wait_to_catch_up_with(&primary);
        for key in ["job", "group"] {
            assert_eq!(replica.digest(key), primary.digest(key), "{key}");
        }
        assert_eq!(replica.connect().ask("REPLICAOF NO ONE"), "OK");
        expect_given_back(&replica);
        assert_eq!(replica.info_number("dsync", "dsync_unapplied_changes"), 0);
    }
}

#[test]
fn late_done_counts_on_a_promoted_server_while_the_run_is_unheard() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    replica.wait_for_sync();
    displace(&mut primary.connect());
    replica.wait_to_catch_up_with(&primary);
    let mut client = replica.connect();
    assert_eq!(client.ask("REPLICAOF NO ONE"), "OK");
    assert_eq!(client.ask("DONCE.DONE job worker RESULT r"), 1);
    let done = client.ask("DONCE.BEGIN job TOKEN dead QUEUE 4000");
    assert_eq!(done.as_array()[1], *"r");
}
