//! Slots that move as a whole: `CLUSTER MIGRATESLOTS`, of Valkey from 9.0 on.
//!
//! The promise: holds arrive as they are, with what changes while they are on their way; waiters are told
//! where the slot has gone; the target decides nothing before the slot is its own; the source has nothing
//! left, or, when the migration is cancelled, everything.
//!
//! Servers without this command are told nothing: there is no story then.

use crate::cluster::steps::*;
use crate::support::steps::*;
use crate::support::*;

const SOURCE: usize = 0;
const TARGET: usize = 1;

struct Stage {
    cluster: Cluster,
    tag: String,
    slot: u16,
}

impl Stage {
    /// `None` on servers that cannot do this.
    fn new() -> Option<Stage> {
        if !Cluster::can_migrate_atomically() {
            return None;
        }
        let cluster = Cluster::start();
        let tag = cluster.key_of(SOURCE, "tag");
        let slot = cluster.slot(&tag);
        Some(Stage { cluster, tag, slot })
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

    /// Starts the migration and holds it at the point where the target has all, and hears of changes.
    #[track_caller]
    fn on_the_way(&self) {
        self.prevent_the_end(true);
        self.cluster.start_migration(self.slot, SOURCE, TARGET);
        self.wait_for_state("waiting-to-pause");
    }

    #[track_caller]
    fn prevent_the_end(&self, prevent: bool) {
        let line = format!("DEBUG SLOTMIGRATION PREVENT-PAUSE {}", u8::from(prevent));
        assert_eq!(ask(&mut self.source().connect(), line), "OK");
    }

    /// Lets the migration that was held go on; returns when all know the slot's new node.
    #[track_caller]
    fn arrive(&self) {
        self.prevent_the_end(false);
        self.cluster.wait_for_owner(&[0, 1, 2], self.slot, TARGET);
    }

    #[track_caller]
    fn wait_for_state(&self, state: &str) {
        eventually(&format!("a migration that is {state}"), SOON, || {
            let jobs = ask(&mut self.source().connect(), "CLUSTER GETSLOTMIGRATIONS");
            matches!(jobs.as_array(), [job] if *job.field("state") == *state)
        });
    }

    /// Asserts that a node has no key and no hold, and that nobody waits there.
    #[track_caller]
    fn assert_empty(&self, node: usize) {
        let server = &self.cluster[node];
        eventually("a node without keys and holds", SOON, || {
            ask(&mut server.connect(), "DBSIZE") == 0
                && server.info_number("dsync", "dsync_holds") == 0
        });
        assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
    }
}

/// All lapses that this node has carried out.
#[track_caller]
fn lapses(server: &Server) -> u64 {
    ["lock", "sem", "wg", "once"]
        .map(|family| server.info_number("dsync", &format!("dsync_{family}_lapsed")))
        .iter()
        .sum()
}

/// A connection that has this number.
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
fn holds_arrive_as_they_are_and_waiters_are_told_where() {
    let Some(stage) = Stage::new() else { return };
    let (source, target, mut client) = (stage.source(), stage.target(), stage.source().connect());
    let held = FAMILIES.map(|family| {
        let request = family.acquire(&stage.key(family.name), "a", "PX 60000 OWNER o");
        fence_of(family, &ask(&mut client, request), "a")
    });
    let [paused, group, done] = ["paused", "group", "done"].map(|name| stage.key(name));
    assert_eq!(ask(&mut client, format!("DSEM.LIMIT {paused} 0")), -1);
    assert_eq!(ask(&mut client, format!("DWG.EXPECT {group} 2")), 2);
    ask(&mut client, format!("DWG.ADD {group} TOKEN m1")).grant();
    assert_eq!(ask(&mut client, format!("DWG.DONE {group} m1")), 1);
    ask(&mut client, format!("DONCE.BEGIN {done} TOKEN r"));
    assert_eq!(
        ask(&mut client, format!("DONCE.DONE {done} r RESULT found")),
        1
    );
    let mut waiting = Vec::new();
    for family in FAMILIES {
        for token in ["b", "c"] {
            let request = family.acquire(&stage.key(family.name), token, "BLOCK 0");
            waiting.push((family, queued(source, request)));
        }
    }
    waiting.push((LOCK, queued(source, format!("DWG.WAIT {group} BLOCK 0"))));
    waiting.push((
        SEMAPHORE,
        queued(source, format!("DSEM.ACQUIRE {paused} BLOCK 0")),
    ));
    let mut keys: Vec<String> = FAMILIES.map(|family| stage.key(family.name)).into();
    keys.extend([paused.clone(), group.clone(), done.clone()]);
    let before: Vec<String> = keys.iter().map(|key| digest(source, key)).collect();

    stage.cluster.start_migration(stage.slot, SOURCE, TARGET);
    stage.cluster.wait_for_owner(&[0, 1, 2], stage.slot, TARGET);
    for (family, waiter) in &mut waiting {
        assert_eq!(end_of(*family, waiter), End::Moved);
    }
    let after: Vec<String> = keys.iter().map(|key| digest(target, key)).collect();
    assert_eq!(after, before);
    stage.assert_empty(SOURCE);

    let mut router = stage.cluster.router_from(SOURCE);
    for (family, held) in FAMILIES.into_iter().zip(held) {
        let key = stage.key(family.name);
        assert!(router.ask(family.check(&key, "a")).as_int() > 0);
        let mut next = queued(target, family.acquire(&key, "b", "PX 100 BLOCK 0"));
        let mut last = queued(target, family.acquire(&key, "c", "BLOCK 0"));
        assert_eq!(router.ask(family.release(&key, "a")), 1);
        let by_release = fence_of(family, &reply(&mut next), "b");
        let by_timer = fence_of(family, &reply(&mut last), "c");
        assert!(held < by_release && by_release < by_timer, "{family:?}");
    }
    let mut resumed = queued(target, format!("DSEM.ACQUIRE {paused} TOKEN p BLOCK 0"));
    assert_eq!(router.ask(format!("DSEM.LIMIT {paused} 1")), 0);
    assert_eq!(granted(&mut resumed).0, "p");
    router.ask(format!("DWG.ADD {group} TOKEN m2")).grant();
    assert_eq!(router.ask(format!("DWG.DONE {group} m2")), 1);
    assert_eq!(
        router.ask(format!("DWG.WAIT {group}")),
        Reply::Array(vec![Reply::Int(2), Reply::Int(0)])
    );
    let known = router.ask(format!("DONCE.BEGIN {done}"));
    assert_eq!(known.as_array()[1], "found");
    stage.assert_empty(SOURCE);
    assert_calm(source);
    assert_calm(target);
}

#[test]
fn what_changes_on_the_way_arrives_too() {
    let Some(stage) = Stage::new() else { return };
    let (source, target, mut client) = (stage.source(), stage.target(), stage.source().connect());
    let key = |family: Family, what: &str| stage.key(&format!("{}-{what}", family.name));
    for family in FAMILIES {
        for what in ["renewed", "released", "passed", "lapsed"] {
            let request = family.acquire(&key(family, what), "a", "PX 1000");
            fence_of(family, &ask(&mut client, request), "a");
        }
    }
    stage.on_the_way();
    for family in FAMILIES {
        let renew = format!(
            "{}.RENEW {} a PX 60000",
            family.name,
            key(family, "renewed")
        );
        assert_eq!(ask(&mut client, renew), 1);
        assert_eq!(
            ask(&mut client, family.release(&key(family, "released"), "a")),
            1
        );
        let request = family.acquire(&key(family, "passed"), "b", "BLOCK 0 PX 60000");
        let mut heir = queued(source, request);
        assert_eq!(
            ask(&mut client, family.release(&key(family, "passed"), "a")),
            1
        );
        fence_of(family, &reply(&mut heir), "b");
        let request = family.acquire(&key(family, "new"), "n", "PX 60000");
        fence_of(family, &ask(&mut client, request), "n");
    }
    eventually("the lapses at the source", SOON, || lapses(source) == 4);
    let digests = |server: &Server| {
        let names = ["renewed", "released", "passed", "lapsed", "new"];
        let keys = FAMILIES
            .into_iter()
            .flat_map(|family| names.map(|what| key(family, what)));
        keys.map(|key| (digest(server, &key), key))
            .collect::<Vec<_>>()
    };
    let before = digests(source);
    stage.arrive();
    assert_eq!(digests(target), before);
    assert_eq!(lapses(target), 0);
    let mut router = stage.cluster.router_from(SOURCE);
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
    stage.assert_empty(SOURCE);
    assert_calm(source);
    assert_calm(target);
}

#[test]
fn the_target_ends_no_lease_before_the_slot_is_its_own() {
    // The source stands still for longer than the leases, so that they are over by the target's clock.
    const LEASE_MS: u64 = 500;
    let Some(stage) = Stage::new() else { return };
    let (source, target, mut client) = (stage.source(), stage.target(), stage.source().connect());
    for family in FAMILIES {
        let request = family.acquire(&stage.key(family.name), "a", &format!("PX {LEASE_MS}"));
        fence_of(family, &ask(&mut client, request), "a");
    }
    stage.on_the_way();
    let renew = |family: Family| format!("{}.RENEW {} a", family.name, stage.key(family.name));
    let mut lines: Vec<String> = FAMILIES.map(renew).into();
    lines.push(format!("CLIENT PAUSE {} WRITE", 3 * LEASE_MS));
    let done = at_once(&mut client, &lines);
    assert!(done[..4].iter().all(|renewed| *renewed == 1), "{done:?}");
    // These wait for the end of the pause.
    for renewed in at_once(&mut client, &FAMILIES.map(renew)) {
        assert_eq!(renewed, 1, "the lease ran while writes were paused");
    }
    assert_eq!(lapses(target), 0);
    for family in FAMILIES {
        let line = format!(
            "{}.RENEW {} a PX 60000",
            family.name,
            stage.key(family.name)
        );
        assert_eq!(ask(&mut client, line), 1);
    }
    stage.arrive();
    assert_eq!((lapses(source), lapses(target)), (0, 0));
    let mut router = stage.cluster.router_from(TARGET);
    for family in FAMILIES {
        let left = router.ask(family.check(&stage.key(family.name), "a"));
        assert!(left.as_int() > 0, "{family:?}: {left:?}");
    }
    assert_calm(source);
    assert_calm(target);
}

#[test]
fn a_connection_of_the_target_is_not_taken_for_the_one_that_stayed_behind() {
    let Some(stage) = Stage::new() else { return };
    let (source, target) = (stage.source(), stage.target());
    let key = stage.key("k");
    // The same number at both servers: the hold was bound to the source's.
    let number = target.connect().id().max(source.connect().id()) + 200;
    let mut owner = connection_numbered(source, number);
    let request = LOCK.acquire(&key, "e", "EPHEMERAL PX 60000");
    let fence = fence_of(LOCK, &ask(&mut owner, &request), "e");
    stage.cluster.start_migration(stage.slot, SOURCE, TARGET);
    stage.cluster.wait_for_owner(&[0, 1, 2], stage.slot, TARGET);

    let stranger = connection_numbered(target, number);
    stranger.close();
    owner.close();
    let mut waiter = queued(target, LOCK.acquire(&key, "w", "BLOCK 0"));
    waiter.expect_silence(A_WHILE);
    // Claimed by a connection of the target's, it ends with that.
    let mut owner = target.connect();
    assert_eq!(fence_of(LOCK, &ask(&mut owner, &request), "e"), fence);
    owner.close();
    assert!(fence_of(LOCK, &reply(&mut waiter), "w") > fence);
    assert_calm(target);
}

#[test]
fn a_migration_that_is_cancelled_leaves_everything_where_it_was() {
    let Some(stage) = Stage::new() else { return };
    let (source, mut client) = (stage.source(), stage.source().connect());
    let mut waiting = Vec::new();
    for family in FAMILIES {
        let key = stage.key(family.name);
        fence_of(
            family,
            &ask(&mut client, family.acquire(&key, "a", "")),
            "a",
        );
        waiting.push([
            queued(source, family.acquire(&key, "b", "PX 100 BLOCK 0")),
            queued(source, family.acquire(&key, "c", "PX 60000 BLOCK 0")),
        ]);
    }
    stage.on_the_way();
    assert_eq!(ask(&mut client, "CLUSTER CANCELSLOTMIGRATIONS"), "OK");
    stage.wait_for_state("cancelled");
    stage.assert_empty(TARGET);
    for (family, [by_release, by_timer]) in FAMILIES.into_iter().zip(&mut waiting) {
        let key = stage.key(family.name);
        assert_eq!(ask(&mut client, family.release(&key, "a")), 1);
        let second = fence_of(family, &reply(by_release), "b");
        assert!(fence_of(family, &reply(by_timer), "c") > second);
        assert!(ask(&mut client, family.check(&key, "c")).as_int() > 0);
    }
    assert_eq!(lapses(stage.target()), 0);
    stage.assert_empty(TARGET);
    assert_calm(source);
    assert_calm(stage.target());
}

/// The target applied a run a moment after the failed attempt before it was over by the clock. It forgot that
/// attempt first, so the run was attempt 2 at the source and attempt 1 at the target.
#[test]
fn work_once_attempts_arrive_though_target_applies_them_too_late() {
    const KEPT_MS: u64 = 1_000;
    let Some(stage) = Stage::new() else { return };
    let (source, target, mut client) = (stage.source(), stage.target(), stage.source().connect());
    let job = stage.key("job");
    for node in [source, target] {
        let setting = format!("CONFIG SET dsync.once-keep-ms {KEPT_MS}");
        assert_eq!(ask(&mut node.connect(), setting), "OK");
    }
    stage.on_the_way();
    target.stop();
    ask(&mut client, format!("DONCE.BEGIN {job} TOKEN a PX 60000"));
    assert_eq!(ask(&mut client, format!("DONCE.FAIL {job} a")), 1);
    let second = ask(&mut client, format!("DONCE.BEGIN {job} TOKEN b PX 60000"));
    assert_eq!(second.as_array()[3], 2, "the second attempt");
    let decided = digest(source, &job);
    // The clock must have passed the time at which a failed attempt is forgotten.
    std::thread::sleep(std::time::Duration::from_millis(2 * KEPT_MS));
    target.cont();
    stage.arrive();
    assert_eq!(digest(target, &job), decided);
}
