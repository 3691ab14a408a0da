//! A slot moves from one node to another key by key, with CLUSTER SETSLOT and MIGRATE.
//!
//! As long as a key is at the source, it is served there. When it leaves, its hold moves with it (same token, fence and
//! lease), its waiters are answered TRYAGAIN, and the source grants nothing any more: that would be a second holder.
//! The target serves keys that have arrived, also before it owns the slot. Waiters of a slot that another node owns by
//! now are redirected to that node.

use crate::cluster::cluster_steps::*;
use crate::support::steps::*;
use crate::support::*;

const SOURCE: usize = 0;
const TARGET: usize = 1;
const BYSTANDER: usize = 2;

/// A cluster, and a hash tag whose slot belongs to the source.
struct SlotMoveNodes {
    cluster: Cluster,
    tag: String,
}

impl SlotMoveNodes {
    fn new() -> SlotMoveNodes {
        let cluster = Cluster::start();
        let tag = cluster.key_of(SOURCE, "tag");
        SlotMoveNodes { cluster, tag }
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

    fn open(&self) -> Move<'_> {
        self.cluster
            .open_move(self.cluster.slot(&self.tag), SOURCE, TARGET)
    }

    /// Asserts that the source has no key, no hold and no waiter.
    #[track_caller]
    fn assert_nothing_left(&self) {
        assert_eq!(self.source().connect().ask("DBSIZE"), 0);
        // A value that another thread frees is counted until it is freed.
        eventually("no hold at the source", SOON, || {
            self.source().info_number("dsync", "dsync_holds") == 0
        });
        assert_eq!(self.source().info_number("dsync", "dsync_waiters"), 0);
        assert_calm(self.source());
        assert_calm(self.target());
    }
}

/// The number of grants that this node has made, at once or after a wait.
#[track_caller]
fn grants(server: &Server) -> u64 {
    let grants = ["lock", "sem", "wg", "once"].map(|family| {
        let at_once = format!("dsync_{family}_granted_at_once");
        let after_wait = format!("dsync_{family}_granted_after_wait");
        server.info_number("dsync", &at_once) + server.info_number("dsync", &after_wait)
    });
    grants.iter().sum()
}

#[test]
fn key_not_yet_moved_is_served_at_source() {
    let nodes = SlotMoveNodes::new();
    let (source, mut client) = (nodes.source(), nodes.source().connect());
    for family in FAMILIES {
        let key = nodes.key(family.prefix());
        let first = fence_of(family, &client.ask(family.acquire(&key, "a", "")), "a");
        let mut by_release = source.waiting(family.acquire(&key, "b", "PX 100 BLOCK 0"));
        let opened = nodes.open();
        let mut by_timer = source.waiting(family.acquire(&key, "c", "BLOCK 0"));

        assert_eq!(client.ask(family.release(&key, "a")), 1);
        let second = fence_of(family, &by_release.reply(), "b");
        let third = fence_of(family, &by_timer.reply(), "c");
        assert!(first < second && second < third, "{family:?}");

        let mut after_all = source.waiting(family.acquire(&key, "d", "BLOCK 0 PX 100"));
        let mut last = source.waiting(family.acquire(&key, "e", "BLOCK 0"));
        opened.give_up();
        assert_eq!(client.ask(family.release(&key, "c")), 1);
        let fourth = fence_of(family, &after_all.reply(), "d");
        assert!(fence_of(family, &last.reply(), "e") > fourth && fourth > third);
        assert_eq!(client.ask(family.release(&key, "e")), 1);
    }
    assert_calm(source);
}

#[test]
fn moved_key_keeps_hold_and_its_waiters_try_again() {
    let nodes = SlotMoveNodes::new();
    let (source, target) = (nodes.source(), nodes.target());
    let mut client = source.connect();
    let held = FAMILIES.map(|family| {
        let request = family.acquire(&nodes.key(family.prefix()), "a", "PX 60000 OWNER o");
        fence_of(family, &client.ask(request), "a")
    });
    let mut waiting = FAMILIES.map(|family| {
        let key = nodes.key(family.prefix());
        ["b", "c"].map(|token| source.waiting(family.acquire(&key, token, "BLOCK 0")))
    });
    let granted_before = grants(source);
    let opened = nodes.open();
    for (n, family) in FAMILIES.into_iter().enumerate() {
        let key = nodes.key(family.prefix());
        let before = source.digest(&key);
        opened.send(&key);
        for waiter in &mut waiting[n] {
            turned_away(waiter, "TRYAGAIN");
        }
        assert_eq!(target.digest(&key), before, "{family:?}");
    }
    assert_eq!(grants(source), granted_before, "granted where the key was");
    nodes.assert_nothing_left();
    // The source has removed the keys, and says so to operators; for the target nothing has ended.
    for (node, ended) in [(source, &["removed"; 4][..]), (target, &[])] {
        let log = node.connect().ask("DSYNC.LOG");
        let rows = log.as_array().iter().map(|row| row.as_array()[2].as_str());
        let found: Vec<_> = rows.filter(|what| *what != "stall").collect();
        assert_eq!(found, ended);
    }

    // The target does not own the slot yet: a retry at the source is answered ASK, and then served at the target.
    let mut there = target.connect();
    for (family, held) in FAMILIES.into_iter().zip(held) {
        let key = nodes.key(family.prefix());
        let left = ask_asking(&mut there, family.check(&key, "a")).as_int();
        assert!((1..=60_000).contains(&left), "{left} ms left");
        let request = family.acquire(&key, "b", "BLOCK 0 PX 100");
        let sent_on = client.ask(&request);
        assert!(sent_on.error().starts_with("ASK "), "{sent_on:?}");
        let mut by_release = waiting_asking(target, &request);
        let mut by_timer = waiting_asking(target, family.acquire(&key, "c", "BLOCK 0"));
        assert_eq!(ask_asking(&mut there, family.release(&key, "a")), 1);
        let second = fence_of(family, &by_release.reply(), "b");
        let third = fence_of(family, &by_timer.reply(), "c");
        assert!(held < second && second < third, "{family:?}");
    }
    nodes.assert_nothing_left();

    // Nothing changes for the holders when the target gets the slot.
    let mut router = nodes.cluster.router_from(BYSTANDER);
    let mut last = FAMILIES.map(|family| {
        let request = family.acquire(&nodes.key(family.prefix()), "d", "BLOCK 0");
        waiting_asking(target, request)
    });
    opened.close();
    for (n, family) in FAMILIES.into_iter().enumerate() {
        let key = nodes.key(family.prefix());
        assert!(router.ask(family.check(&key, "c")).as_int() > 0);
        assert_eq!(router.ask(family.release(&key, "c")), 1);
        fence_of(family, &last[n].reply(), "d");
    }
    assert_eq!(router.at(), target.port());
}

#[test]
fn moved_keys_keep_pin_result_and_round() {
    let nodes = SlotMoveNodes::new();
    let (source, target, mut client) = (nodes.source(), nodes.target(), nodes.source().connect());
    let [paused, group, done] = ["paused", "group", "done"].map(|name| nodes.key(name));
    assert_eq!(client.ask(format!("DSEM.LIMIT {paused} 0")), -1);
    let permits = format!("DSEM.ACQUIRE {paused} PERMITS 2 TOKEN p BLOCK 0");
    assert_eq!(client.ask(format!("DWG.EXPECT {group} 2")), 2);
    client.ask(format!("DWG.ADD {group} TOKEN m1")).grant();
    assert_eq!(client.ask(format!("DWG.DONE {group} m1")), 1);
    client.ask(format!("DWG.ADD {group} TOKEN m2")).grant();
    let watch = format!("DWG.WAIT {group} BLOCK 0");
    client.ask(format!("DONCE.BEGIN {done} TOKEN r1"));
    assert_eq!(client.ask(format!("DONCE.FAIL {done} r1")), 1);
    client.ask(format!("DONCE.BEGIN {done} TOKEN r2"));
    assert_eq!(client.ask(format!("DONCE.DONE {done} r2 RESULT found")), 1);

    let mut waiting = [&permits, &permits.replace(" p ", " q "), &watch, &watch]
        .map(|request| source.waiting(request));
    let opened = nodes.open();
    for key in [&paused, &group, &done] {
        let before = source.digest(key);
        opened.send(key);
        assert_eq!(target.digest(key), before, "{key}");
    }
    for waiter in &mut waiting {
        turned_away(waiter, "TRYAGAIN");
    }
    nodes.assert_nothing_left();

    let mut there = target.connect();
    let mut resumed = waiting_asking(target, &permits);
    let mut watcher = waiting_asking(target, &watch);
    assert_eq!(ask_asking(&mut there, format!("DSEM.LIMIT {paused} 2")), 0);
    assert_eq!(resumed.granted().0, "p");
    assert_eq!(ask_asking(&mut there, format!("DWG.DONE {group} m2")), 1);
    assert_eq!(
        watcher.reply(),
        Reply::Array(vec![Reply::Int(2), Reply::Int(0)])
    );
    let known = ask_asking(&mut there, format!("DONCE.BEGIN {done} BLOCK 0"));
    assert!(
        matches!(known.as_array(), [how, result, attempt]
            if *how == "DONE" && *result == "found" && *attempt == 2),
        "{known:?}"
    );
    opened.close();
    assert_calm(target);
}

#[test]
fn moved_ephemeral_hold_lives_by_lease_until_claimed() {
    let nodes = SlotMoveNodes::new();
    let (source, target) = (nodes.source(), nodes.target());
    let (stays, leaves) = (nodes.key("stays"), nodes.key("leaves"));
    let ephemeral = |key: &str| LOCK.acquire(key, "e", "EPHEMERAL PX 60000");
    let mut owner = source.connect();
    let fence = fence_of(LOCK, &owner.ask(ephemeral(&leaves)), "e");
    fence_of(LOCK, &owner.ask(ephemeral(&stays)), "e");
    let mut heir = source.waiting(LOCK.acquire(&stays, "h", "BLOCK 0"));
    let mut sent_away = source.waiting(LOCK.acquire(&leaves, "h", "BLOCK 0"));
    let opened = nodes.open();
    opened.send(&leaves);
    turned_away(&mut sent_away, "TRYAGAIN");
    let mut waiter = waiting_asking(target, LOCK.acquire(&leaves, "h", "BLOCK 0"));

    // The end of the old connection ends only the hold that is still at the source.
    owner.close();
    fence_of(LOCK, &heir.reply(), "h");
    let mut there = target.connect();
    assert!(ask_asking(&mut there, LOCK.check(&leaves, "e")).as_int() > 0);
    assert_eq!(source.info_number("dsync", "dsync_holds"), 1);

    // A connection of the target claims the hold, and its end ends the hold, although the slot is only imported.
    let mut owner = target.connect();
    let same = fence_of(LOCK, &ask_asking(&mut owner, ephemeral(&leaves)), "e");
    assert_eq!(same, fence);
    owner.close();
    assert!(fence_of(LOCK, &waiter.reply(), "h") > fence);
    opened.send(&stays);
    opened.close();
    assert_calm(source);
    assert_calm(target);
}

#[test]
fn key_removed_in_migrating_slot_is_not_granted_at_source() {
    // The source sends new requests for the key to the target, so a grant at the source would be a second holder.
    let nodes = SlotMoveNodes::new();
    let (source, mut client) = (nodes.source(), nodes.source().connect());
    let opened = nodes.open();
    for remove in ["DEL", "UNLINK", "FLUSHALL", "PEXPIRE"] {
        let key = nodes.key(remove);
        let request = LOCK.acquire(&key, "a", "");
        add_key_while_migrating(&nodes, &request);
        let mut waiters =
            ["b", "c"].map(|token| source.waiting(LOCK.acquire(&key, token, "BLOCK 0")));
        let granted_before = grants(source);
        let line = match remove {
            "FLUSHALL" => remove.to_owned(),
            "PEXPIRE" => format!("PEXPIRE {key} 1"),
            _ => format!("{remove} {key}"),
        };
        assert!(!client.ask(&line).is_error(), "{line}");
        for waiter in &mut waiters {
            turned_away(waiter, "TRYAGAIN");
        }
        assert_eq!(grants(source), granted_before, "granted after {remove}");
        nodes.assert_nothing_left();
        let mut router = nodes.cluster.router_from(SOURCE);
        fence_of(LOCK, &router.ask(LOCK.acquire(&key, "b", "")), "b");
        assert_eq!(client.ask("DBSIZE"), 0);
    }
    opened.close();
}

/// Makes a key at the source although its slot migrates: the migration is interrupted for this request.
#[track_caller]
fn add_key_while_migrating(nodes: &SlotMoveNodes, request: &str) {
    let slot = nodes.cluster.slot(&nodes.tag);
    let mut client = nodes.source().connect();
    let migrating = format!(
        "CLUSTER SETSLOT {slot} MIGRATING {}",
        nodes.cluster.id(TARGET)
    );
    let made = client.ask_all([
        format!("CLUSTER SETSLOT {slot} STABLE").as_str(),
        request,
        &migrating,
    ]);
    made[1].grant();
    assert_eq!(made[2], "OK");
}

#[test]
fn abandoned_move_brings_hold_back() {
    let nodes = SlotMoveNodes::new();
    let (source, target, mut client) = (nodes.source(), nodes.target(), nodes.source().connect());
    let (gone, stays) = (nodes.key("gone"), nodes.key("stays"));
    let fence = fence_of(LOCK, &client.ask(LOCK.acquire(&gone, "a", "")), "a");
    fence_of(LOCK, &client.ask(LOCK.acquire(&stays, "a", "")), "a");
    let mut turned = source.waiting(LOCK.acquire(&gone, "b", "BLOCK 0"));
    let mut patient = source.waiting(LOCK.acquire(&stays, "b", "BLOCK 0"));
    let opened = nodes.open();
    opened.send(&gone);
    turned_away(&mut turned, "TRYAGAIN");
    let mut followed = waiting_asking(target, LOCK.acquire(&gone, "b", "BLOCK 0"));

    // On the way back the target, which only imports the slot, answers its waiters too.
    opened.take_back(&gone);
    turned_away(&mut followed, "TRYAGAIN");
    opened.give_up();
    assert_eq!(target.connect().ask("DBSIZE"), 0);
    assert_eq!(target.info_number("dsync", "dsync_holds"), 0);

    let mut again = source.waiting(LOCK.acquire(&gone, "b", "BLOCK 0"));
    for (key, waiter) in [(&gone, &mut again), (&stays, &mut patient)] {
        assert!(client.ask(LOCK.check(key, "a")).as_int() > 0);
        assert_eq!(client.ask(LOCK.release(key, "a")), 1);
        assert!(fence_of(LOCK, &waiter.reply(), "b") > fence);
    }
    assert_calm(source);
    assert_calm(target);
}

#[test]
fn waiters_of_taken_slot_are_redirected_to_new_owner() {
    // The server drops keys that were not sent before the slot was given away. The old node must not grant them to the
    // waiters afterwards.
    let nodes = SlotMoveNodes::new();
    let (source, mut client) = (nodes.source(), nodes.source().connect());
    let mut waiting = Vec::new();
    for family in FAMILIES {
        let key = nodes.key(family.prefix());
        fence_of(family, &client.ask(family.acquire(&key, "a", "")), "a");
        for token in ["b", "c"] {
            waiting.push(source.waiting(family.acquire(&key, token, "BLOCK 0")));
        }
    }
    let group = nodes.key("group");
    client.ask(format!("DWG.ADD {group} TOKEN m")).grant();
    waiting.push(source.waiting(format!("DWG.WAIT {group} BLOCK 0")));
    // A waiter for another slot of the same node is not disturbed.
    let other = nodes.cluster.key_of(SOURCE, "other");
    assert_ne!(nodes.cluster.slot(&other), nodes.cluster.slot(&nodes.tag));
    fence_of(LOCK, &client.ask(LOCK.acquire(&other, "a", "")), "a");
    let mut undisturbed = source.waiting(LOCK.acquire(&other, "b", "BLOCK 0"));
    let granted_before = grants(source);

    let opened = nodes.open();
    opened.close_at_target();
    let slot = nodes.cluster.slot(&nodes.tag);
    let moved = format!("MOVED {slot} 127.0.0.1:{}", nodes.target().port());
    for waiter in &mut waiting {
        turned_away(waiter, &moved);
    }
    assert_eq!(
        grants(source),
        granted_before,
        "granted after the slot was lost"
    );
    assert_eq!(client.ask("DBSIZE"), 1);
    assert_eq!(client.ask(LOCK.release(&other, "a")), 1);
    fence_of(LOCK, &undisturbed.reply(), "b");
    assert_eq!(client.ask(LOCK.release(&other, "b")), 1);
    nodes.assert_nothing_left();

    let mut router = nodes.cluster.router_from(SOURCE);
    for family in FAMILIES {
        let key = nodes.key(family.prefix());
        let granted = router.ask(family.acquire(&key, "b", ""));
        fence_of(family, &granted, "b");
    }
}

/// A pause leaves with its key. It ends at the target when that has the slot, also if no command opens the key there.
#[test]
fn pause_moves_with_its_key_and_ends_at_the_target() {
    let nodes = SlotMoveNodes::new();
    let (source, target) = (nodes.source(), nodes.target());
    let mut client = source.connect();
    let (long, short) = (nodes.key("long"), nodes.key("short"));
    client.ask(format!("DLOCK.PAUSE {long} 600000"));
    client.ask(format!("DONCE.PAUSE {short} 700"));
    let mut waiter = source.waiting(format!("DLOCK.ACQUIRE {long} BLOCK 0 TOKEN w"));
    let before = source.digest(&long);
    let opened = nodes.open();
    opened.send(&long);
    opened.send(&short);
    turned_away(&mut waiter, "TRYAGAIN");
    assert_eq!(target.digest(&long), before);
    opened.close();
    let mut there = target.connect();
    let mut waiter = target.waiting(format!("DLOCK.ACQUIRE {long} BLOCK 0 TOKEN w"));
    assert!(there.ask(format!("DLOCK.PAUSE {long} 0")).as_int() > 500_000);
    assert_eq!(waiter.granted().0, "w");
    wait_until_gone(&mut there, &short);
    assert_eq!(there.ask(format!("DLOCK.RELEASE {long} w")), 1);
    nodes.assert_nothing_left();
}
