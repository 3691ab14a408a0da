//! Keys that are deleted, expired, flushed or evicted while they are held and waited for.
//!
//! Every hold under the name ends, the first waiter is granted afresh with a higher fence (or is told why not), and
//! nothing is left behind.
//!
//! Keys that go elsewhere are in `moved_keys`, thousands of keys in `many_removals`.

use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

/// The key `lock`, held by the token `held`, with two waiters whose tokens are `first` and `second`.
pub(super) struct HeldLock {
    pub server: Server,
    pub admin: Client,
    pub fence: u64,
    pub first: Client,
    pub second: Client,
}

pub(super) fn held_lock() -> HeldLock {
    let server = Server::start();
    let mut admin = server.connect();
    let (_, fence) = admin.ask("DLOCK.ACQUIRE lock EX 600 TOKEN held").grant();
    let first = server.waiting("DLOCK.ACQUIRE lock EX 600 TOKEN first BLOCK 0");
    let second = server.waiting("DLOCK.ACQUIRE lock EX 600 TOKEN second BLOCK 0");
    HeldLock {
        server,
        admin,
        fence,
        first,
        second,
    }
}

impl HeldLock {
    /// Sends a line as the administrator, and asserts that it is no error.
    #[track_caller]
    pub fn run(&mut self, line: &str) {
        let reply = self.admin.ask(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }

    /// Asserts that the hold has ended, that `first` alone was granted, and that `second` follows it.
    #[track_caller]
    pub fn expect_granted_afresh(&mut self) {
        let (_, fence) = self.first.granted();
        assert!(
            fence > self.fence,
            "fences never go back: {} then {fence}",
            self.fence
        );
        for command in ["RELEASE", "RENEW", "CHECK"] {
            assert_eq!(
                self.admin.ask(format!("DLOCK.{command} lock held")),
                0,
                "{command}"
            );
        }
        assert_eq!(count(&mut self.admin, "DLOCK.INFO", "lock", "holders"), 1);
        assert_eq!(self.admin.ask("TTL lock"), -1);
        self.second.expect_silence(A_WHILE);
        assert_eq!(self.admin.ask("DLOCK.RELEASE lock first"), 1);
        self.second.granted();
        assert_eq!(self.admin.ask("DLOCK.RELEASE lock second"), 1);
        assert_eq!(self.admin.ask("EXISTS lock"), 0);
        self.server.wait_for_blocked(0);
    }

    /// Asserts that both waiters are answered WRONGTYPE.
    #[track_caller]
    pub fn expect_wrong_type(&mut self) {
        for client in [&mut self.first, &mut self.second] {
            let told = client.reply();
            assert!(told.error().starts_with("WRONGTYPE "), "{told:?}");
            expect_no_more(client);
        }
        self.server.wait_for_blocked(0);
        let late = self.admin.ask("DLOCK.RELEASE lock held");
        assert!(late.error().starts_with("WRONGTYPE "), "{late:?}");
    }
}

#[test]
fn del_and_unlink_grant_afresh() {
    for line in ["DEL lock", "UNLINK lock", "DEL absent lock other"] {
        let mut held = held_lock();
        held.run(line);
        held.expect_granted_afresh();
    }
}

#[test]
fn expiry_of_key_grants_afresh() {
    for line in ["PEXPIRE lock 1000", "EXPIRE lock 1"] {
        let mut held = held_lock();
        assert_eq!(held.admin.ask(line), 1);
        assert!(held.admin.ask("PTTL lock").as_int() > 0);
        held.expect_granted_afresh();
    }
    // An expiry in the past deletes the key at once.
    for line in ["PEXPIRE lock 0", "EXPIRE lock -1", "EXPIREAT lock 1"] {
        let mut held = held_lock();
        assert_eq!(held.admin.ask(line), 1);
        held.expect_granted_afresh();
    }
}

/// Somebody has set EXPIRE on a held key, which removes it with all holds: CHECK and INFO promised the whole lease.
#[test]
fn check_and_info_promise_no_more_than_the_ttl_of_the_key() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = primary.connect();
    let requests = ["DLOCK.ACQUIRE", "DSEM.ACQUIRE", "DWG.ADD", "DONCE.BEGIN"];
    for request in requests {
        let family = request.split('.').next().expect("a family");
        let limit = if family == "DSEM" { "LIMIT 2" } else { "" };
        client.ask(format!("{request} {family} TOKEN t EX 600 {limit}"));
        let left_ms = |server: &Server| {
            let mut client = server.connect();
            let check = client.ask(format!("{family}.CHECK {family} t")).as_int();
            let info = client.ask(format!("{family}.INFO {family}"));
            let holder = &info.field("first-holders").as_array()[0];
            (check, holder.field("lease-left-ms").as_int())
        };
        for (expiry, expected) in [("PEXPIRE", 30_001..=60_000), ("PERSIST", 500_000..=600_000)] {
            let ms = if expiry == "PEXPIRE" { "60000" } else { "" };
            assert_eq!(client.ask(format!("{expiry} {family} {ms}")), 1);
            replica.wait_to_catch_up_with(&primary);
            for server in [&primary, &replica] {
                let (check, info) = left_ms(server);
                assert!(expected.contains(&check), "{family} {expiry}: {check}");
                assert!(expected.contains(&info), "{family} {expiry}: {info}");
            }
        }
        // A TTL beyond the lease changes nothing.
        assert_eq!(client.ask(format!("EXPIRE {family} 6000")), 1);
        assert!((500_000..=600_000).contains(&left_ms(&primary).0));
        assert_eq!(client.ask(format!("{family}.RENEW {family} t")), 1);
    }
}

#[test]
fn expiry_taken_back_by_persist_changes_nothing() {
    let mut held = held_lock();
    assert_eq!(held.admin.ask("PEXPIRE lock 60000"), 1);
    assert_eq!(held.admin.ask("PERSIST lock"), 1);
    held.first.expect_silence(A_WHILE);
    assert_eq!(held.admin.ask("DLOCK.RELEASE lock held"), 1);
    held.first.granted();
}

#[test]
fn flush_grants_afresh() {
    for line in [
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "FLUSHDB ASYNC",
        "FLUSHALL SYNC",
    ] {
        let mut held = held_lock();
        held.run(line);
        held.expect_granted_afresh();
    }
}

#[test]
fn flush_of_other_database_changes_nothing() {
    let mut held = held_lock();
    held.run("SELECT 3");
    held.run("FLUSHDB");
    held.run("SELECT 0");
    held.first.expect_silence(A_WHILE);
    assert!(held.admin.ask("DLOCK.CHECK lock held").as_int() > 0);
}

#[test]
fn removal_in_multi_or_lua_grants_afresh() {
    let mut one = held_lock();
    one.admin.ask_all(["MULTI", "DEL lock", "EXEC"]);
    one.expect_granted_afresh();
    let mut two = held_lock();
    call!(two.admin, "EVAL", "return redis.call('FLUSHALL')", 0);
    two.expect_granted_afresh();
    // The client that removes the key cannot overtake the waiters.
    let mut three = held_lock();
    let replies = three
        .admin
        .ask_all(["DEL lock", "DLOCK.ACQUIRE lock TOKEN thief"]);
    assert!(replies[1].is_nil(), "{replies:?}");
    three.expect_granted_afresh();
    let mut four = held_lock();
    let lines = [
        "MULTI",
        "DEL lock",
        "DLOCK.ACQUIRE lock TOKEN thief",
        "EXEC",
    ];
    let replies = four.admin.ask_all(lines);
    assert!(replies[3].as_array()[1].is_nil(), "{replies:?}");
    four.expect_granted_afresh();
}

#[test]
fn removed_semaphore_grants_afresh_up_to_its_limit() {
    let server = Server::start();
    let mut admin = server.connect();
    admin
        .ask("DSEM.ACQUIRE semaphore LIMIT 3 PERMITS 3 TOKEN held")
        .grant();
    let mut waiters: Vec<_> = (0..5)
        .map(|_| server.waiting("DSEM.ACQUIRE semaphore BLOCK 0"))
        .collect();
    assert_eq!(admin.ask("DEL semaphore"), 1);
    let tokens: Vec<_> = waiters[..3].iter_mut().map(Client::granted).collect();
    waiters[3].expect_silence(A_WHILE);
    assert_eq!(count(&mut admin, "DSEM.INFO", "semaphore", "limit"), 3);
    assert_eq!(admin.ask("DSEM.RELEASE semaphore held"), 0);
    assert_eq!(
        admin.ask(format!("DSEM.RELEASE semaphore {}", tokens[0].0)),
        1
    );
    waiters[3].granted();
    waiters[4].expect_silence(A_WHILE);
}

#[test]
fn removed_group_answers_its_waits_unblocked() {
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
        admin.ask("DWG.ADD group TOKEN member").grant();
        let mut watcher = server.waiting("DWG.WAIT group BLOCK 0");
        let done = admin.ask(line);
        assert!(!done.is_error(), "{done:?}");
        let told = watcher.reply();
        assert!(told.error().starts_with("UNBLOCKED "), "{line}: {told:?}");
        expect_no_more(&mut watcher);
    }
    // A waiting ADD is granted afresh; a WAIT is answered WRONGTYPE when the name gets a value of another type.
    let server = Server::start();
    let mut admin = server.connect();
    admin.ask("DWG.ADD group LIMIT 1 TOKEN member").grant();
    let mut adding = server.waiting("DWG.ADD group LIMIT 1 TOKEN next BLOCK 0");
    let mut watcher = server.waiting("DWG.WAIT group BLOCK 0");
    assert_eq!(admin.ask("DEL group"), 1);
    adding.granted();
    assert!(watcher.reply().error().starts_with("UNBLOCKED "));
    let mut watcher = server.waiting("DWG.WAIT group BLOCK 0");
    assert_eq!(admin.ask("SET group text"), "OK");
    assert!(watcher.reply().error().starts_with("WRONGTYPE "));
}

#[test]
fn eviction_grants_afresh() {
    let mut held = held_lock();
    held.run("CONFIG SET maxmemory-policy allkeys-random");
    // One turn: the lock is evicted by the second command, and there is room again when it ends.
    let lines = ["CONFIG SET maxmemory 1", "PING", "CONFIG SET maxmemory 0"];
    held.admin.ask_all(lines);
    assert_eq!(held.server.info_number("stats", "evicted_keys"), 1);
    held.expect_granted_afresh();
    // An operator finds out which lock it was.
    let log = held.admin.ask("DSYNC.LOG COUNT 1");
    let row = log.as_array()[0].as_array();
    let told = (row[2].as_str(), row[4].as_str(), row[6].as_int());
    assert_eq!(told, ("removed", "lock", held.fence as i64));
}

#[test]
fn volatile_policy_never_evicts_held_lock() {
    for policy in [
        "volatile-random",
        "volatile-ttl",
        "volatile-lru",
        "noeviction",
    ] {
        let mut held = held_lock();
        held.run(&format!("CONFIG SET maxmemory-policy {policy}"));
        let lines = [
            "CONFIG SET maxmemory 1",
            "PING",
            "DLOCK.ACQUIRE new",
            "CONFIG SET maxmemory 0",
        ];
        let replies = held.admin.ask_all(lines);
        assert!(replies[2].error().starts_with("OOM "), "{replies:?}");
        assert_eq!(
            held.server.info_number("stats", "evicted_keys"),
            0,
            "{policy}"
        );
        held.first.expect_silence(A_WHILE);
        // RENEW and RELEASE work without free memory.
        held.run("CONFIG SET maxmemory 1");
        assert_eq!(held.admin.ask("DLOCK.RENEW lock held"), 1);
        assert_eq!(held.admin.ask("DLOCK.RELEASE lock held"), 1);
        held.run("CONFIG SET maxmemory 0");
        held.first.granted();
    }
}

#[test]
fn generic_commands_read_held_keys() {
    let mut held = held_lock();
    let admin = &mut held.admin;
    admin
        .ask("DSEM.ACQUIRE semaphore LIMIT 2 OWNER somebody TOKEN a-token")
        .grant();
    admin.ask("DWG.ADD group").grant();
    for key in ["lock", "semaphore", "group"] {
        for line in [
            format!("TTL {key}"),
            format!("PTTL {key}"),
            format!("EXPIRETIME {key}"),
        ] {
            assert_eq!(admin.ask(&line), -1, "{line}: no ordinary expiry");
        }
        assert_eq!(admin.ask(format!("PERSIST {key}")), 0);
        assert_eq!(admin.ask(format!("TOUCH {key}")), 1);
        let kind = admin.ask(format!("TYPE {key}"));
        assert!(kind.as_str().starts_with("dsync"), "{kind:?}");
        let scan = admin.ask(format!("SCAN 0 COUNT 100 TYPE {}", kind.as_str()));
        assert_eq!(scan.as_array()[1].as_array().len(), 1, "{scan:?}");
        assert!(admin.ask(format!("MEMORY USAGE {key}")).as_int() > 50);
        assert!(admin.ask(format!("MEMORY USAGE {key} SAMPLES 0")).as_int() > 50);
        assert!(admin.ask(format!("OBJECT REFCOUNT {key}")).as_int() > 0);
        assert!(admin.ask(format!("OBJECT IDLETIME {key}")).as_int() >= 0);
        assert!(!admin.ask(format!("OBJECT ENCODING {key}")).is_error());
        assert!(!admin.ask(format!("DEBUG OBJECT {key}")).is_error());
        assert!(!admin.ask(format!("DEBUG DIGEST-VALUE {key}")).is_error());
        assert!(!admin.ask(format!("DUMP {key}")).is_nil());
        for line in [
            format!("GET {key}"),
            format!("APPEND {key} x"),
            format!("LPOP {key}"),
        ] {
            assert!(admin.ask(&line).error().starts_with("WRONGTYPE "), "{line}");
        }
    }
    assert!(!admin.ask("DEBUG DIGEST").is_error());
    assert!(!admin.ask("MEMORY STATS").is_error());
    assert!(!admin.ask("MEMORY DOCTOR").is_error());
    held.first.expect_silence(A_WHILE);
    assert_eq!(held.admin.ask("DLOCK.RELEASE lock held"), 1);
    held.first.granted();
}

#[test]
fn key_removed_with_overdue_hold_is_granted_once() {
    let server = Server::start();
    let mut admin = server.connect();
    admin.ask("DLOCK.ACQUIRE lock TOKEN held PX 60000").grant();
    let mut first = server.waiting("DLOCK.ACQUIRE lock TOKEN first BLOCK 0");
    let mut second = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    let lines = [
        "DLOCK.RENEW lock held PX 20",
        "DEBUG SLEEP 0.15",
        "DEL lock",
    ];
    assert_eq!(admin.ask_all(lines)[2], 1);
    first.granted();
    second.expect_silence(Duration::from_millis(100));
    assert_eq!(count(&mut admin, "DLOCK.INFO", "lock", "holders"), 1);
}
