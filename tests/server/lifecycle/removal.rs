//! Keys that go away, move, or turn into something else while they are held and waited for: every hold
//! under the name ends, those who wait are granted afresh or told why not, and nothing is left behind.

use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

/// A lock with a holder and two that wait for it.
struct Scene {
    server: Server,
    admin: Client,
    fence: u64,
    first: Client,
    second: Client,
}

fn scene() -> Scene {
    scene_on(Server::start())
}

fn scene_on(server: Server) -> Scene {
    let mut admin = server.connect();
    let (_, fence) = ask(&mut admin, "DLOCK.ACQUIRE lock EX 600 TOKEN held").grant();
    let first = queued(&server, "DLOCK.ACQUIRE lock EX 600 TOKEN first BLOCK 0");
    let second = queued(&server, "DLOCK.ACQUIRE lock EX 600 TOKEN second BLOCK 0");
    Scene {
        server,
        admin,
        fence,
        first,
        second,
    }
}

impl Scene {
    /// Does what removes the key.
    #[track_caller]
    fn does(&mut self, line: &str) {
        let reply = ask(&mut self.admin, line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }

    /// The hold has ended and the next in line, and only that one, has the lock afresh.
    #[track_caller]
    fn expect_granted_afresh(&mut self) {
        let (_, fence) = granted(&mut self.first);
        assert!(
            fence > self.fence,
            "fences never go back: {} then {fence}",
            self.fence
        );
        for command in ["RELEASE", "RENEW", "CHECK"] {
            assert_eq!(
                ask(&mut self.admin, format!("DLOCK.{command} lock held")),
                0,
                "{command}"
            );
        }
        assert_eq!(count(&mut self.admin, "DLOCK.INFO", "lock", "holders"), 1);
        assert_eq!(ask(&mut self.admin, "TTL lock"), -1);
        self.second.expect_silence(A_WHILE);
        assert_eq!(ask(&mut self.admin, "DLOCK.RELEASE lock first"), 1);
        granted(&mut self.second);
        assert_eq!(ask(&mut self.admin, "DLOCK.RELEASE lock second"), 1);
        assert_eq!(ask(&mut self.admin, "EXISTS lock"), 0);
        wait_for_blocked(&self.server, 0);
    }

    #[track_caller]
    fn expect_wrong_type(&mut self) {
        for client in [&mut self.first, &mut self.second] {
            let told = reply(client);
            assert!(told.error().starts_with("WRONGTYPE "), "{told:?}");
            expect_no_more(client);
        }
        wait_for_blocked(&self.server, 0);
        let late = ask(&mut self.admin, "DLOCK.RELEASE lock held");
        assert!(late.error().starts_with("WRONGTYPE "), "{late:?}");
    }
}

#[test]
fn del_and_unlink_end_the_hold_and_grant_afresh() {
    for line in ["DEL lock", "UNLINK lock", "DEL absent lock other"] {
        let mut scene = scene();
        scene.does(line);
        scene.expect_granted_afresh();
    }
}

#[test]
fn an_expiry_set_by_hand_ends_the_hold_and_grants_afresh() {
    for line in ["PEXPIRE lock 1000", "EXPIRE lock 1"] {
        let mut scene = scene();
        assert_eq!(ask(&mut scene.admin, line), 1);
        assert!(ask(&mut scene.admin, "PTTL lock").as_int() > 0);
        scene.expect_granted_afresh();
    }
    // A moment that has passed deletes at once.
    for line in ["PEXPIRE lock 0", "EXPIRE lock -1", "EXPIREAT lock 1"] {
        let mut scene = scene();
        assert_eq!(ask(&mut scene.admin, line), 1);
        scene.expect_granted_afresh();
    }
}

#[test]
fn an_expiry_set_by_hand_and_taken_back_changes_nothing() {
    let mut scene = scene();
    assert_eq!(ask(&mut scene.admin, "PEXPIRE lock 60000"), 1);
    assert_eq!(ask(&mut scene.admin, "PERSIST lock"), 1);
    scene.first.expect_silence(A_WHILE);
    assert_eq!(ask(&mut scene.admin, "DLOCK.RELEASE lock held"), 1);
    granted(&mut scene.first);
}

#[test]
fn a_flush_ends_the_hold_and_grants_afresh() {
    for line in [
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "FLUSHDB ASYNC",
        "FLUSHALL SYNC",
    ] {
        let mut scene = scene();
        scene.does(line);
        scene.expect_granted_afresh();
    }
}

#[test]
fn a_flush_of_another_database_changes_nothing() {
    let mut scene = scene();
    scene.does("SELECT 3");
    scene.does("FLUSHDB");
    scene.does("SELECT 0");
    scene.first.expect_silence(A_WHILE);
    assert!(ask(&mut scene.admin, "DLOCK.CHECK lock held").as_int() > 0);
}

#[test]
fn removed_in_a_transaction_or_a_script_the_key_is_granted_afresh() {
    let mut one = scene();
    at_once(&mut one.admin, &["MULTI", "DEL lock", "EXEC"]);
    one.expect_granted_afresh();
    let mut two = scene();
    call!(two.admin, "EVAL", "return redis.call('FLUSHALL')", 0);
    two.expect_granted_afresh();
    // And whoever removes it does not thereby pass those who wait.
    let mut three = scene();
    let replies = at_once(
        &mut three.admin,
        &["DEL lock", "DLOCK.ACQUIRE lock TOKEN thief"],
    );
    assert!(replies[1].is_nil(), "{replies:?}");
    three.expect_granted_afresh();
    let mut four = scene();
    let lines = [
        "MULTI",
        "DEL lock",
        "DLOCK.ACQUIRE lock TOKEN thief",
        "EXEC",
    ];
    let replies = at_once(&mut four.admin, &lines);
    assert!(replies[3].as_array()[1].is_nil(), "{replies:?}");
    four.expect_granted_afresh();
}

#[test]
fn renamed_away_the_hold_travels_and_the_waiters_stay_with_the_name() {
    for line in ["RENAME lock moved", "RENAMENX lock moved"] {
        let mut scene = scene();
        scene.does(line);
        assert!(
            ask(&mut scene.admin, "DLOCK.CHECK moved held").as_int() > 0,
            "{line}"
        );
        scene.expect_granted_afresh();
        // Still held under its new name, and released there.
        assert!(ask(&mut scene.admin, "DLOCK.ACQUIRE moved").is_nil());
        assert_eq!(ask(&mut scene.admin, "DLOCK.RENEW moved held EX 500"), 1);
        assert_eq!(ask(&mut scene.admin, "DLOCK.RELEASE moved held"), 1);
        assert_eq!(ask(&mut scene.admin, "DBSIZE"), 0);
    }
}

#[test]
fn renamed_onto_a_name_with_waiters_a_hold_takes_the_place_of_the_one_there() {
    let mut scene = scene();
    let (_, fence) = ask(&mut scene.admin, "DLOCK.ACQUIRE other EX 600 TOKEN others").grant();
    scene.does("RENAME other lock");
    scene.first.expect_silence(A_WHILE);
    assert_eq!(ask(&mut scene.admin, "DLOCK.RELEASE lock held"), 0);
    assert!(ask(&mut scene.admin, "DLOCK.CHECK lock others").as_int() > 0);
    assert_eq!(ask(&mut scene.admin, "DLOCK.RELEASE lock others"), 1);
    scene.fence = scene.fence.max(fence);
    scene.expect_granted_afresh();
}

#[test]
fn a_renamed_hold_lapses_under_its_new_name() {
    let server = Server::start();
    let mut admin = server.connect();
    let lines = [
        "DLOCK.ACQUIRE lock PX 150 TOKEN held",
        "DLOCK.ACQUIRE alone PX 150",
        "RENAME lock moved",
        "MOVE alone 1",
    ];
    let replies = at_once(&mut admin, &lines);
    assert_eq!(replies[2], "OK");
    assert_eq!(replies[3], 1);
    let mut waiter = server.connect();
    tell(&mut waiter, "DLOCK.ACQUIRE moved BLOCK 0");
    granted(&mut waiter);
    assert_eq!(ask(&mut admin, "SELECT 1"), "OK");
    eventually("an empty database", SOON, || ask(&mut admin, "DBSIZE") == 0);
}

#[test]
fn renamed_to_itself_a_lock_stays_as_it_is() {
    let mut scene = scene();
    scene.does("RENAME lock lock");
    scene.first.expect_silence(A_WHILE);
    assert_eq!(ask(&mut scene.admin, "DLOCK.RELEASE lock held"), 1);
    granted(&mut scene.first);
}

#[test]
fn moved_to_another_database_the_hold_travels_and_the_waiters_stay() {
    let mut scene = scene();
    scene.does("MOVE lock 1");
    scene.does("SELECT 1");
    assert!(ask(&mut scene.admin, "DLOCK.CHECK lock held").as_int() > 0);
    let mut elsewhere = scene.server.connect();
    ask(&mut elsewhere, "SELECT 1");
    queue(&scene.server, &mut elsewhere, "DLOCK.ACQUIRE lock BLOCK 0");
    scene.does("DLOCK.RELEASE lock held");
    granted(&mut elsewhere);
    scene.does("SELECT 0");
    scene.expect_granted_afresh();
}

#[test]
fn moved_to_where_others_wait_a_hold_makes_them_wait_for_it() {
    let mut scene = scene();
    scene.does("SELECT 1");
    scene.does("DLOCK.ACQUIRE lock EX 600 TOKEN others");
    scene.does("SELECT 0");
    // Database 0 loses its lock and is given another before anybody could be granted afresh.
    at_once(
        &mut scene.admin,
        &["DEL lock", "SELECT 1", "MOVE lock 0", "SELECT 0"],
    );
    scene.first.expect_silence(A_WHILE);
    assert!(ask(&mut scene.admin, "DLOCK.CHECK lock others").as_int() > 0);
    assert_eq!(ask(&mut scene.admin, "DLOCK.RELEASE lock others"), 1);
    scene.expect_granted_afresh();
}

#[test]
fn swapped_databases_leave_the_waiters_with_the_number() {
    let mut scene = scene();
    scene.does("SELECT 1");
    let (_, fence) = ask(&mut scene.admin, "DLOCK.ACQUIRE lock EX 600 TOKEN others").grant();
    let mut elsewhere = scene.server.connect();
    ask(&mut elsewhere, "SELECT 1");
    queue(
        &scene.server,
        &mut elsewhere,
        "DLOCK.ACQUIRE lock TOKEN elsewhere BLOCK 0",
    );
    scene.does("SWAPDB 0 1");
    // Now each queue waits for the hold that came from the other database.
    scene.first.expect_silence(A_WHILE);
    elsewhere.expect_silence(A_WHILE);
    assert_eq!(
        ask(&mut scene.admin, "DLOCK.RELEASE lock held"),
        1,
        "in database 1 now"
    );
    granted(&mut elsewhere);
    scene.first.expect_silence(A_WHILE);
    scene.does("SELECT 0");
    assert_eq!(ask(&mut scene.admin, "DLOCK.RELEASE lock others"), 1);
    scene.fence = fence;
    scene.expect_granted_afresh();
}

#[test]
fn swapped_with_an_empty_database_the_waiters_are_granted_afresh_and_the_hold_lives_on() {
    let mut scene = scene();
    scene.does("SWAPDB 0 9");
    scene.expect_granted_afresh();
    scene.does("SELECT 9");
    assert!(ask(&mut scene.admin, "DLOCK.CHECK lock held").as_int() > 0);
    // And its lease runs there.
    assert_eq!(ask(&mut scene.admin, "DLOCK.RENEW lock held PX 20"), 1);
    eventually("an empty database", SOON, || {
        ask(&mut scene.admin, "DBSIZE") == 0
    });
}

#[test]
fn overwritten_by_another_type_every_waiter_gets_wrongtype() {
    for lines in [
        &["SET lock text"][..],
        &["SET text x", "RENAME text lock"],
        &["SET text x", "COPY text lock REPLACE"],
        &["SADD a 1", "SADD b 1", "SINTERSTORE lock a b"],
        &["MULTI", "DEL lock", "LPUSH lock x", "EXEC"],
        &["SELECT 1", "SET lock x", "SWAPDB 0 1", "SELECT 0"],
    ] {
        let mut scene = scene();
        for line in lines {
            scene.does(line);
        }
        scene.expect_wrong_type();
    }
}

#[test]
fn overwritten_by_another_family_every_waiter_gets_wrongtype() {
    for (line, release) in [
        (
            "DSEM.ACQUIRE other LIMIT 1 EX 600 TOKEN t",
            "DSEM.RELEASE lock t",
        ),
        ("DWG.ADD other EX 600 TOKEN t", "DWG.DONE lock t"),
    ] {
        let mut scene = scene();
        ask(&mut scene.admin, line).grant();
        scene.does("RENAME other lock");
        scene.expect_wrong_type();
        assert_eq!(
            ask(&mut scene.admin, release),
            1,
            "the other hold is untouched"
        );
    }
}

#[test]
fn semaphore_waiters_of_a_removed_key_are_granted_afresh_up_to_their_limit() {
    let server = Server::start();
    let mut admin = server.connect();
    ask(
        &mut admin,
        "DSEM.ACQUIRE semaphore LIMIT 3 PERMITS 3 TOKEN held",
    )
    .grant();
    let mut waiters: Vec<_> = (0..5)
        .map(|_| queued(&server, "DSEM.ACQUIRE semaphore BLOCK 0"))
        .collect();
    assert_eq!(ask(&mut admin, "DEL semaphore"), 1);
    let tokens: Vec<_> = waiters[..3].iter_mut().map(granted).collect();
    waiters[3].expect_silence(A_WHILE);
    assert_eq!(count(&mut admin, "DSEM.INFO", "semaphore", "limit"), 3);
    assert_eq!(ask(&mut admin, "DSEM.RELEASE semaphore held"), 0);
    assert_eq!(
        ask(
            &mut admin,
            format!("DSEM.RELEASE semaphore {}", tokens[0].0)
        ),
        1
    );
    granted(&mut waiters[3]);
    waiters[4].expect_silence(A_WHILE);
}

#[test]
fn those_who_wait_for_a_removed_group_are_unblocked_and_not_told_it_finished() {
    for line in [
        "DEL group",
        "UNLINK group",
        "FLUSHALL",
        "RENAME group moved",
        "MOVE group 1",
        "PEXPIRE group 300",
    ] {
        let server = Server::start();
        let mut admin = server.connect();
        ask(&mut admin, "DWG.ADD group TOKEN member").grant();
        let mut watcher = queued(&server, "DWG.WAIT group BLOCK 0");
        let done = ask(&mut admin, line);
        assert!(!done.is_error(), "{done:?}");
        let told = reply(&mut watcher);
        assert!(told.error().starts_with("UNBLOCKED "), "{line}: {told:?}");
        expect_no_more(&mut watcher);
    }
    // Those who wait for their turn to be added are granted afresh; those who wait for the end of a group
    // that is now something else are told so.
    let server = Server::start();
    let mut admin = server.connect();
    ask(&mut admin, "DWG.ADD group LIMIT 1 TOKEN member").grant();
    let mut adding = queued(&server, "DWG.ADD group LIMIT 1 TOKEN next BLOCK 0");
    let mut watcher = queued(&server, "DWG.WAIT group BLOCK 0");
    assert_eq!(ask(&mut admin, "DEL group"), 1);
    granted(&mut adding);
    assert!(reply(&mut watcher).error().starts_with("UNBLOCKED "));
    let mut watcher = queued(&server, "DWG.WAIT group BLOCK 0");
    assert_eq!(ask(&mut admin, "SET group text"), "OK");
    assert!(reply(&mut watcher).error().starts_with("WRONGTYPE "));
}

#[test]
fn evicted_a_lock_is_granted_afresh() {
    let mut scene = scene();
    scene.does("CONFIG SET maxmemory-policy allkeys-random");
    // One turn: the lock is evicted by the second command, and there is room again when it ends.
    let lines = ["CONFIG SET maxmemory 1", "PING", "CONFIG SET maxmemory 0"];
    at_once(&mut scene.admin, &lines);
    assert_eq!(scene.server.info_number("stats", "evicted_keys"), 1);
    scene.expect_granted_afresh();
}

#[test]
fn a_volatile_policy_never_evicts_a_held_lock() {
    for policy in [
        "volatile-random",
        "volatile-ttl",
        "volatile-lru",
        "noeviction",
    ] {
        let mut scene = scene();
        scene.does(&format!("CONFIG SET maxmemory-policy {policy}"));
        let lines = [
            "CONFIG SET maxmemory 1",
            "PING",
            "DLOCK.ACQUIRE new",
            "CONFIG SET maxmemory 0",
        ];
        let replies = at_once(&mut scene.admin, &lines);
        assert!(replies[2].error().starts_with("OOM "), "{replies:?}");
        assert_eq!(
            scene.server.info_number("stats", "evicted_keys"),
            0,
            "{policy}"
        );
        scene.first.expect_silence(A_WHILE);
        // What gives room back works without any.
        scene.does("CONFIG SET maxmemory 1");
        assert_eq!(ask(&mut scene.admin, "DLOCK.RENEW lock held"), 1);
        assert_eq!(ask(&mut scene.admin, "DLOCK.RELEASE lock held"), 1);
        scene.does("CONFIG SET maxmemory 0");
        granted(&mut scene.first);
    }
}

#[test]
fn a_copy_is_refused() {
    let mut scene = scene();
    ask(&mut scene.admin, "DSEM.ACQUIRE semaphore LIMIT 1").grant();
    ask(&mut scene.admin, "DWG.ADD group").grant();
    for key in ["lock", "semaphore", "group"] {
        for line in [format!("COPY {key} twin"), format!("COPY {key} {key} DB 1")] {
            let error = ask(&mut scene.admin, &line);
            assert!(error.is_error(), "{line}: {error:?}");
        }
    }
    assert_eq!(ask(&mut scene.admin, "EXISTS twin"), 0);
    scene.does("SELECT 1");
    assert_eq!(ask(&mut scene.admin, "DBSIZE"), 0);
    scene.does("SELECT 0");
    scene.first.expect_silence(A_WHILE);
}

#[test]
fn generic_commands_may_look_at_a_held_key() {
    let mut scene = scene();
    let admin = &mut scene.admin;
    ask(
        admin,
        "DSEM.ACQUIRE semaphore LIMIT 2 OWNER somebody TOKEN a-token",
    )
    .grant();
    ask(admin, "DWG.ADD group").grant();
    for key in ["lock", "semaphore", "group"] {
        for line in [
            format!("TTL {key}"),
            format!("PTTL {key}"),
            format!("EXPIRETIME {key}"),
        ] {
            assert_eq!(ask(admin, &line), -1, "{line}: no ordinary expiry");
        }
        assert_eq!(ask(admin, format!("PERSIST {key}")), 0);
        assert_eq!(ask(admin, format!("TOUCH {key}")), 1);
        let kind = ask(admin, format!("TYPE {key}"));
        assert!(kind.as_str().starts_with("dsync"), "{kind:?}");
        let scan = ask(admin, format!("SCAN 0 COUNT 100 TYPE {}", kind.as_str()));
        assert_eq!(scan.as_array()[1].as_array().len(), 1, "{scan:?}");
        assert!(ask(admin, format!("MEMORY USAGE {key}")).as_int() > 50);
        assert!(ask(admin, format!("MEMORY USAGE {key} SAMPLES 0")).as_int() > 50);
        assert!(ask(admin, format!("OBJECT REFCOUNT {key}")).as_int() > 0);
        assert!(ask(admin, format!("OBJECT IDLETIME {key}")).as_int() >= 0);
        assert!(!ask(admin, format!("OBJECT ENCODING {key}")).is_error());
        assert!(!ask(admin, format!("DEBUG OBJECT {key}")).is_error());
        assert!(!ask(admin, format!("DEBUG DIGEST-VALUE {key}")).is_error());
        assert!(!ask(admin, format!("DUMP {key}")).is_nil());
        for line in [
            format!("GET {key}"),
            format!("APPEND {key} x"),
            format!("LPOP {key}"),
        ] {
            assert!(
                ask(admin, &line).error().starts_with("WRONGTYPE "),
                "{line}"
            );
        }
    }
    assert!(!ask(admin, "DEBUG DIGEST").is_error());
    assert!(!ask(admin, "MEMORY STATS").is_error());
    assert!(!ask(admin, "MEMORY DOCTOR").is_error());
    scene.first.expect_silence(A_WHILE);
    assert_eq!(ask(&mut scene.admin, "DLOCK.RELEASE lock held"), 1);
    granted(&mut scene.first);
}

#[test]
fn waiters_of_two_databases_are_strangers() {
    let mut scene = scene();
    let mut elsewhere = scene.server.connect();
    ask(&mut elsewhere, "SELECT 5");
    let (token, _) = ask(&mut elsewhere, "DLOCK.ACQUIRE lock BLOCK 0").grant();
    assert_eq!(
        ask(&mut scene.admin, format!("DLOCK.RELEASE lock {token}")),
        0
    );
    assert_eq!(ask(&mut elsewhere, "DLOCK.RELEASE lock held"), 0);
    assert_eq!(
        ask(&mut elsewhere, format!("DLOCK.RELEASE lock {token}")),
        1
    );
    scene.first.expect_silence(A_WHILE);
}

fn used_memory(server: &Server) -> i64 {
    i64::try_from(server.info_number("memory", "used_memory")).expect("memory fits")
}

#[test]
fn ten_thousand_keys_come_and_go_and_leave_nothing() {
    const KEYS: usize = 10_000;
    let server = Server::start();
    let mut client = server.connect();
    let all = |client: &mut Client, line: &str| {
        let lines: Vec<_> = (0..KEYS)
            .map(|n| line.replace("{}", &n.to_string()))
            .collect();
        // Small enough for the socket's buffers: nobody reads while this is written.
        for some in lines.chunks(500) {
            at_once(client, some);
        }
    };
    let take =
        "DLOCK.ACQUIRE lock:{} EX 600 TOKEN a-token-that-is-longer-than-a-uuid:{} OWNER owner-{}";
    // The first round makes the room that is then used again.
    all(&mut client, take);
    all(
        &mut client,
        "DLOCK.RELEASE lock:{} a-token-that-is-longer-than-a-uuid:{}",
    );
    assert_eq!(ask(&mut client, "DBSIZE"), 0);
    let before = used_memory(&server);
    for round in 0..2 {
        all(&mut client, take);
        assert_eq!(ask(&mut client, "DBSIZE"), KEYS as i64);
        all(
            &mut client,
            "DLOCK.RELEASE lock:{} a-token-that-is-longer-than-a-uuid:{}",
        );
        assert_eq!(ask(&mut client, "DBSIZE"), 0, "released, round {round}");

        all(&mut client, take);
        all(&mut client, "UNLINK lock:{}");
        assert_eq!(ask(&mut client, "DBSIZE"), 0, "unlinked, round {round}");

        all(&mut client, "DLOCK.ACQUIRE lock:{} PX 20");
        eventually("ten thousand lapses", SOON, || {
            ask(&mut client, "DBSIZE") == 0
        });

        all(&mut client, "DLOCK.ACQUIRE lock:{} EX 600 EPHEMERAL");
        let old = std::mem::replace(&mut client, server.connect());
        old.close();
        eventually("ten thousand ends", SOON, || {
            ask(&mut client, "DBSIZE") == 0
        });

        all(&mut client, "DSEM.ACQUIRE semaphore:{} LIMIT 3 EX 600");
        all(&mut client, "DWG.ADD group:{} EX 600");
        assert_eq!(ask(&mut client, "FLUSHALL ASYNC"), "OK");
        assert_eq!(ask(&mut client, "DBSIZE"), 0);

        all(&mut client, take);
        assert_eq!(ask(&mut client, "FLUSHALL"), "OK");
        assert_eq!(ask(&mut client, "DBSIZE"), 0);
    }
    // A held lock takes above a hundred bytes: a round that stayed would be more than a megabyte.
    eventually("the memory of the start", SOON, || {
        used_memory(&server) - before < 600_000
    });
}

#[test]
fn two_hundred_removed_keys_with_waiters_leave_no_queue_behind() {
    const KEYS: usize = 200;
    let server = Server::start();
    let mut admin = server.connect();
    let lines: Vec<_> = (0..KEYS)
        .map(|n| format!("DLOCK.ACQUIRE lock:{n} EX 600"))
        .collect();
    at_once(&mut admin, &lines);
    let mut waiters: Vec<_> = (0..KEYS).map(|_| server.connect()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        tell(waiter, format!("DLOCK.ACQUIRE lock:{n} EX 600 BLOCK 0"));
    }
    wait_for_blocked(&server, KEYS as u64);
    assert_eq!(ask(&mut admin, "FLUSHALL"), "OK");
    let tokens: Vec<_> = waiters.iter_mut().map(|waiter| granted(waiter).0).collect();
    for (n, token) in tokens.iter().enumerate() {
        assert_eq!(
            ask(&mut admin, format!("DLOCK.RELEASE lock:{n} {token}")),
            1
        );
    }
    assert_eq!(ask(&mut admin, "DBSIZE"), 0);
    wait_for_blocked(&server, 0);
}

#[test]
fn a_key_removed_under_its_overdue_hold_is_granted_once() {
    let server = Server::start();
    let mut admin = server.connect();
    ask(&mut admin, "DLOCK.ACQUIRE lock TOKEN held PX 60000").grant();
    let mut first = queued(&server, "DLOCK.ACQUIRE lock TOKEN first BLOCK 0");
    let mut second = queued(&server, "DLOCK.ACQUIRE lock BLOCK 0");
    let lines = [
        "DLOCK.RENEW lock held PX 20",
        "DEBUG SLEEP 0.15",
        "DEL lock",
    ];
    assert_eq!(at_once(&mut admin, &lines)[2], 1);
    granted(&mut first);
    second.expect_silence(Duration::from_millis(100));
    assert_eq!(count(&mut admin, "DLOCK.INFO", "lock", "holders"), 1);
}
