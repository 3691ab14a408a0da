//! Slots that move as a whole: in Valkey from 9.0 on, in Redis from 8.4 on.
//!
//! Holds arrive unchanged, with the changes that are made during the migration. Waiters are redirected to the new node.
//! The target decides nothing before it owns the slot. Afterwards the source has nothing left; if the migration is
//! cancelled, it still has everything.
//!
//! On other servers the tests are skipped.

use crate::cluster::cluster_steps::*;
use crate::support::steps::*;
use crate::support::*;

const SOURCE: usize = 0;
const TARGET: usize = 1;

struct MigratingNodes {
    cluster: Cluster,
    tag: String,
    slot: u16,
}

impl MigratingNodes {
    /// Returns `None` on servers that cannot do that.
    fn new() -> Option<MigratingNodes> {
        if !Cluster::can_migrate_atomically() {
            return None;
        }
        let cluster = Cluster::start();
        let tag = cluster.key_of(SOURCE, "tag");
        let slot = cluster.slot(&tag);
        Some(MigratingNodes { cluster, tag, slot })
    }

    fn source(&self) -> &Server {
        &self.cluster[SOURCE]
    }

    fn target(&self) -> &Server {
        &self.cluster[TARGET]
    }

    fn key(&self, name: &str) -> String {
        format!("{{{}}}{name}", self.tag)
    }

    /// Starts the migration and holds it where the target receives further changes.
    #[track_caller]
    fn hold_migration(&self) -> HeldMigration<'_> {
        self.cluster.hold_migration(self.slot, SOURCE, TARGET)
    }

    /// Lets the migration go on; returns when all nodes know the slot's new owner.
    #[track_caller]
    fn finish(&self, migration: HeldMigration) {
        migration.go_on();
        self.cluster.wait_for_owner(&[0, 1, 2], self.slot, TARGET);
    }

    /// Asserts that a node has no key, no hold and no waiter.
    #[track_caller]
    fn assert_empty(&self, node: usize) {
        let server = &self.cluster[node];
        eventually("a node without keys and holds", SOON, || {
            server.connect().ask("DBSIZE") == 0 && server.info_number("dsync", "dsync_holds") == 0
        });
        assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
    }
}

/// The number of lapses that this node has carried out.
#[track_caller]
fn lapses(server: &Server) -> u64 {
    ["lock", "sem", "wg", "once"]
        .map(|family| server.info_number("dsync", &format!("dsync_{family}_lapsed")))
        .iter()
        .sum()
}

/// The processor time that this node has taken.
#[track_caller]
fn cpu_ms(server: &Server) -> u64 {
    let seconds = |field| -> f64 {
        let value = server.info("cpu", field);
        value.parse().expect("a number")
    };
    (1_000.0 * (seconds("used_cpu_sys") + seconds("used_cpu_user"))) as u64
}

/// A connection whose client id is this number.
#[track_caller]
fn connection_numbered(server: &Server, number: u64) -> Client {
    loop {
        let mut client = server.connect();
        let id = client.id();
        assert!(id <= number, "{number} is past: {id}");
        if id == number {
            return client;
        }
    }
}

#[test]
fn migrated_slot_keeps_holds_and_redirects_waiters() {
    let Some(nodes) = MigratingNodes::new() else {
        return;
    };
    let (source, target, mut client) = (nodes.source(), nodes.target(), nodes.source().connect());
    let held = FAMILIES.map(|family| {
        let request = family.acquire(&nodes.key(family.prefix()), "a", "PX 60000 OWNER o");
        fence_of(family, &client.ask(request), "a")
    });
    let [paused, group, done] = ["paused", "group", "done"].map(|name| nodes.key(name));
    assert_eq!(client.ask(format!("DSEM.LIMIT {paused} 0")), -1);
    assert_eq!(client.ask(format!("DWG.EXPECT {group} 2")), 2);
    client.ask(format!("DWG.ADD {group} TOKEN m1")).grant();
    assert_eq!(client.ask(format!("DWG.DONE {group} m1")), 1);
    client.ask(format!("DONCE.BEGIN {done} TOKEN r"));
    assert_eq!(client.ask(format!("DONCE.DONE {done} r RESULT found")), 1);
    let mut waiting = Vec::new();
    for family in FAMILIES {
        for token in ["b", "c"] {
            let request = family.acquire(&nodes.key(family.prefix()), token, "BLOCK 0");
            waiting.push((family, source.waiting(request)));
        }
    }
    waiting.push((LOCK, source.waiting(format!("DWG.WAIT {group} BLOCK 0"))));
    waiting.push((
        SEMAPHORE,
        source.waiting(format!("DSEM.ACQUIRE {paused} BLOCK 0")),
    ));
    let mut keys: Vec<String> = FAMILIES.map(|family| nodes.key(family.prefix())).into();
    keys.extend([paused.clone(), group.clone(), done.clone()]);
    let before: Vec<String> = keys.iter().map(|key| source.digest(key)).collect();

    nodes.cluster.start_migration(nodes.slot, SOURCE, TARGET);
    nodes.cluster.wait_for_owner(&[0, 1, 2], nodes.slot, TARGET);
    for (family, waiter) in &mut waiting {
        assert_eq!(end_of(*family, waiter), WaitEnd::Moved);
    }
    let after: Vec<String> = keys.iter().map(|key| target.digest(key)).collect();
    assert_eq!(after, before);
    nodes.assert_empty(SOURCE);

    let mut router = nodes.cluster.router_from(SOURCE);
    for (family, held) in FAMILIES.into_iter().zip(held) {
        let key = nodes.key(family.prefix());
        assert!(router.ask(family.check(&key, "a")).as_int() > 0);
        let mut next = target.waiting(family.acquire(&key, "b", "PX 100 BLOCK 0"));
        let mut last = target.waiting(family.acquire(&key, "c", "BLOCK 0"));
        assert_eq!(router.ask(family.release(&key, "a")), 1);
        let by_release = fence_of(family, &next.reply(), "b");
        let by_timer = fence_of(family, &last.reply(), "c");
        assert!(held < by_release && by_release < by_timer, "{family:?}");
    }
    let mut resumed = target.waiting(format!("DSEM.ACQUIRE {paused} TOKEN p BLOCK 0"));
    assert_eq!(router.ask(format!("DSEM.LIMIT {paused} 1")), 0);
    assert_eq!(resumed.granted().0, "p");
    router.ask(format!("DWG.ADD {group} TOKEN m2")).grant();
    assert_eq!(router.ask(format!("DWG.DONE {group} m2")), 1);
    assert_eq!(
        router.ask(format!("DWG.WAIT {group}")),
        Reply::Array(vec![Reply::Int(2), Reply::Int(0)])
    );
    let known = router.ask(format!("DONCE.BEGIN {done}"));
    assert_eq!(known.as_array()[1], "found");
    nodes.assert_empty(SOURCE);
    assert_calm(source);
    assert_calm(target);
}

#[test]
fn changes_during_migration_arrive() {
    let Some(nodes) = MigratingNodes::new() else {
        return;
    };
    let (source, target, mut client) = (nodes.source(), nodes.target(), nodes.source().connect());
    let key = |family: Family, what: &str| nodes.key(&format!("{}-{what}", family.prefix()));
    for family in FAMILIES {
        for what in ["renewed", "released", "passed", "lapsed"] {
            let request = family.acquire(&key(family, what), "a", "PX 1000");
            fence_of(family, &client.ask(request), "a");
        }
    }
    let migration = nodes.hold_migration();
    for family in FAMILIES {
        let renew = format!(
            "{}.RENEW {} a PX 60000",
            family.prefix(),
            key(family, "renewed")
        );
        assert_eq!(client.ask(renew), 1);
        assert_eq!(client.ask(family.release(&key(family, "released"), "a")), 1);
        let request = family.acquire(&key(family, "passed"), "b", "BLOCK 0 PX 60000");
        let mut heir = source.waiting(request);
        assert_eq!(client.ask(family.release(&key(family, "passed"), "a")), 1);
        fence_of(family, &heir.reply(), "b");
        let request = family.acquire(&key(family, "new"), "n", "PX 60000");
        fence_of(family, &client.ask(request), "n");
    }
    eventually("the lapses at the source", SOON, || lapses(source) == 4);
    let digests = |server: &Server| {
        let names = ["renewed", "released", "passed", "lapsed", "new"];
        let keys = FAMILIES
            .into_iter()
            .flat_map(|family| names.map(|what| key(family, what)));
        keys.map(|key| (server.digest(&key), key))
            .collect::<Vec<_>>()
    };
    let before = digests(source);
    nodes.finish(migration);
    assert_eq!(digests(target), before);
    assert_eq!(lapses(target), 0);
    let mut router = nodes.cluster.router_from(SOURCE);
    for family in FAMILIES {
        for (what, token, is_held) in [
            ("renewed", "a", true),
            ("released", "a", false),
            ("passed", "a", false),
            ("passed", "b", true),
            ("lapsed", "a", false),
            ("new", "n", true),
        ] {
            let left = router.ask(family.check(&key(family, what), token)).as_int();
            assert_eq!(left > 0, is_held, "{family:?} {what} {token}: {left}");
        }
    }
    nodes.assert_empty(SOURCE);
    assert_calm(source);
    assert_calm(target);
}

#[test]
fn target_lapses_nothing_before_it_owns_the_slot() {
    // Writes are paused at the source for longer than the leases, so that these end by the target's clock.
    const LEASE_MS: u64 = 500;
    let Some(nodes) = MigratingNodes::new() else {
        return;
    };
    let (source, target, mut client) = (nodes.source(), nodes.target(), nodes.source().connect());
    for family in FAMILIES {
        let request = family.acquire(&nodes.key(family.prefix()), "a", &format!("PX {LEASE_MS}"));
        fence_of(family, &client.ask(request), "a");
    }
    let migration = nodes.hold_migration();
    let renew =
        |family: Family| format!("{}.RENEW {} a", family.prefix(), nodes.key(family.prefix()));
    let mut lines: Vec<String> = FAMILIES.map(renew).into();
    lines.push(format!("CLIENT PAUSE {} WRITE", 3 * LEASE_MS));
    let done = client.ask_all(&lines);
    assert!(done[..4].iter().all(|renewed| *renewed == 1), "{done:?}");
    // The server postpones these requests until the pause is over.
    let last = FAMILIES.map(|family| format!("{} PX 60000", renew(family)));
    for renewed in client.ask_all(&last) {
        assert_eq!(renewed, 1, "the lease ran while writes were paused");
    }
    assert_eq!(lapses(target), 0);
    nodes.finish(migration);
    assert_eq!((lapses(source), lapses(target)), (0, 0));
    let mut router = nodes.cluster.router_from(TARGET);
    for family in FAMILIES {
        let left = router.ask(family.check(&nodes.key(family.prefix()), "a"));
        assert!(left.as_int() > 0, "{family:?}: {left:?}");
    }
    assert_calm(source);
    assert_calm(target);
}

#[test]
fn connection_id_at_target_does_not_end_ephemeral_hold() {
    let Some(nodes) = MigratingNodes::new() else {
        return;
    };
    let (source, target) = (nodes.source(), nodes.target());
    let key = nodes.key("k");
    // Both servers have a connection with this client id; the hold is bound to that of the source.
    let number = target.connect().id().max(source.connect().id()) + 200;
    let mut owner = connection_numbered(source, number);
    let request = LOCK.acquire(&key, "e", "EPHEMERAL PX 60000");
    let fence = fence_of(LOCK, &owner.ask(&request), "e");
    nodes.cluster.start_migration(nodes.slot, SOURCE, TARGET);
    nodes.cluster.wait_for_owner(&[0, 1, 2], nodes.slot, TARGET);

    let stranger = connection_numbered(target, number);
    stranger.close();
    owner.close();
    let mut waiter = target.waiting(LOCK.acquire(&key, "w", "BLOCK 0"));
    waiter.expect_silence(A_WHILE);
    // After a connection of the target has claimed the hold, it ends with that connection.
    let mut owner = target.connect();
    assert_eq!(fence_of(LOCK, &owner.ask(&request), "e"), fence);
    owner.close();
    assert!(fence_of(LOCK, &waiter.reply(), "w") > fence);
    assert_calm(target);
}

#[test]
fn cancelled_migration_leaves_everything_at_source() {
    let Some(nodes) = MigratingNodes::new() else {
        return;
    };
    let (source, mut client) = (nodes.source(), nodes.source().connect());
    let mut waiting = Vec::new();
    for family in FAMILIES {
        let key = nodes.key(family.prefix());
        fence_of(family, &client.ask(family.acquire(&key, "a", "")), "a");
        waiting.push([
            source.waiting(family.acquire(&key, "b", "PX 100 BLOCK 0")),
            source.waiting(family.acquire(&key, "c", "PX 60000 BLOCK 0")),
        ]);
    }
    nodes.hold_migration().cancel();
    nodes.assert_empty(TARGET);
    for (family, [by_release, by_timer]) in FAMILIES.into_iter().zip(&mut waiting) {
        let key = nodes.key(family.prefix());
        assert_eq!(client.ask(family.release(&key, "a")), 1);
        let second = fence_of(family, &by_release.reply(), "b");
        assert!(fence_of(family, &by_timer.reply(), "c") > second);
        assert!(client.ask(family.check(&key, "c")).as_int() > 0);
    }
    assert_eq!(lapses(nodes.target()), 0);
    nodes.assert_empty(TARGET);
    assert_calm(source);
    assert_calm(nodes.target());
}

/// The target applied a run a moment after the retention of the failed attempt before it had ended by the clock. It
/// forgot that attempt first, so the run was attempt 2 at the source and attempt 1 at the target.
#[test]
fn late_target_keeps_attempts_that_source_counted() {
    const KEPT_MS: u64 = 1_000;
    let Some(nodes) = MigratingNodes::new() else {
        return;
    };
    let (source, target, mut client) = (nodes.source(), nodes.target(), nodes.source().connect());
    let job = nodes.key("job");
    for node in [source, target] {
        let setting = format!("CONFIG SET dsync.once-keep-ms {KEPT_MS}");
        assert_eq!(node.connect().ask(setting), "OK");
    }
    client.ask(LOCK.acquire(&nodes.key("k"), "h", ""));
    let migration = nodes.hold_migration();
    target.stop();
    client.ask(format!("DONCE.BEGIN {job} TOKEN a PX 60000"));
    assert_eq!(client.ask(format!("DONCE.FAIL {job} a")), 1);
    let second = client.ask(format!("DONCE.BEGIN {job} TOKEN b PX 60000"));
    assert_eq!(second.as_array()[3], 2, "the second attempt");
    let decided = source.digest(&job);
    // The clock must have passed the time at which a failed attempt is forgotten.
    std::thread::sleep(std::time::Duration::from_millis(2 * KEPT_MS));
    target.cont();
    nodes.finish(migration);
    assert_eq!(target.digest(&job), decided);
}

/// The target followed thousands of changes to one place. Each of them made the queue due there, and was tried again
/// every 50 ms until the slot had moved.
#[test]
fn target_rests_while_it_follows_a_place_that_often_changes() {
    const CHANGES: u64 = 3_000;
    /// Processor time in a second. A node of a cluster takes some 10 ms by itself.
    const MAX_CPU_MS: u64 = 50;
    let Some(nodes) = MigratingNodes::new() else {
        return;
    };
    let (source, target, mut client) = (nodes.source(), nodes.target(), nodes.source().connect());
    let key = nodes.key("k");
    fence_of(LOCK, &client.ask(LOCK.acquire(&key, "h", "EX 600")), "h");
    let queue = |px: u64| format!("DLOCK.ACQUIRE {key} PX {px} TOKEN p QUEUE 60000");
    assert_eq!(client.ask(queue(1_000)).as_array()[0], "WAITING");
    let migration = nodes.hold_migration();
    let mut watcher = target.connect();
    let mut ticks = || -> u64 {
        let info = watcher.ask("INFO dsync");
        let line = info
            .as_str()
            .lines()
            .find_map(|line| line.strip_prefix("dsync_timer_ticks:"));
        line.expect("a field").parse().expect("a number")
    };
    for n in 1..=CHANGES {
        let before = ticks();
        let waiting = client.ask(queue(30_000 + n));
        assert_eq!(waiting.as_array()[0], "WAITING");
        // Each change is a task of its own: let the target try it before the next one comes.
        (0..100).find(|_| ticks() > before);
    }
    let busy_ms = cpu_ms(target);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let busy_ms = cpu_ms(target) - busy_ms;
    assert!(busy_ms <= MAX_CPU_MS, "{busy_ms} ms");
    let before = source.digest(&key);
    nodes.finish(migration);
    assert_eq!(target.digest(&key), before);
    let mut router = nodes.cluster.router_from(TARGET);
    assert_eq!(router.ask(LOCK.release(&key, "h")), 1);
    assert!(router.ask(LOCK.check(&key, "p")).as_int() > 0, "its turn");
    nodes.assert_empty(SOURCE);
    assert_calm(source);
    assert_calm(target);
}
