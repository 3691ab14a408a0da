//! A replica takes over from its primary in a cluster.
//!
//! Every waiter gets exactly one end: its grant, an error, or the end of its connection. The new primary has the same
//! holds with the same fences, and grants higher ones. Leases that end during the failover crash no node, and the other
//! shards are not disturbed.

use crate::cluster::cluster_steps::*;
use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

const PRIMARY: usize = 0;
const REPLICA: usize = 3;
const ALL: [usize; 6] = [0, 1, 2, 3, 4, 5];

struct FailoverNodes {
    cluster: Cluster,
    tag: String,
    slot: u16,
}

impl FailoverNodes {
    fn new(builder: ClusterBuilder) -> FailoverNodes {
        let cluster = builder.with_replicas().start();
        let tag = cluster.key_of(PRIMARY, "tag");
        let slot = cluster.slot(&tag);
        FailoverNodes { cluster, tag, slot }
    }

    fn key(&self, name: &str) -> String {
        format!("{{{}}}{name}", self.tag)
    }
}

/// Returns whether the waiters of a demoted primary end so on this server: Redis and older Valkeys answer UNBLOCKED and
/// close the connection, Valkey from 9.0 on redirects the client.
fn ends_as_this_server_does(server: &Server, end: WaitEnd) -> bool {
    let flavour = server.flavour();
    match end {
        WaitEnd::Moved => flavour.product == Product::Valkey && flavour.version >= (9, 0, 0),
        WaitEnd::UnblockedAndClosed | WaitEnd::Closed => {
            flavour.product == Product::Redis || flavour.version < (9, 0, 0)
        }
        WaitEnd::Granted(_) => false,
    }
}

#[test]
fn manual_failover_ends_every_wait_and_keeps_every_hold() {
    let nodes = FailoverNodes::new(Cluster::builder());
    let (old, new) = (&nodes.cluster[PRIMARY], &nodes.cluster[REPLICA]);
    let mut client = old.connect();
    let held = FAMILIES.map(|family| {
        let request = family.acquire(&nodes.key(family.prefix()), "a", "PX 60000 OWNER o");
        fence_of(family, &client.ask(request), "a")
    });
    let group = nodes.key("group");
    client
        .ask(format!("DWG.ADD {group} PX 60000 TOKEN m"))
        .grant();
    let mut waiting = Vec::new();
    for family in FAMILIES {
        for token in ["b", "c"] {
            let request = family.acquire(&nodes.key(family.prefix()), token, "BLOCK 0");
            waiting.push((family, old.waiting(request)));
        }
    }
    waiting.push((LOCK, old.waiting(format!("DWG.WAIT {group} BLOCK 0"))));
    // A waiter of another shard.
    let other = nodes.cluster.key_of(1, "other");
    nodes.cluster[1]
        .connect()
        .ask(LOCK.acquire(&other, "a", ""));
    let mut undisturbed = nodes.cluster[1].waiting(LOCK.acquire(&other, "b", "BLOCK 0"));

    let keys: Vec<String> = FAMILIES.map(|family| nodes.key(family.prefix())).into();
    let before: Vec<String> = keys.iter().map(|key| old.digest(key)).collect();
    nodes.cluster.fail_over_to(REPLICA, nodes.slot, &ALL);

    for (family, waiter) in &mut waiting {
        let end = end_of(*family, waiter);
        assert!(
            ends_as_this_server_does(old, end),
            "{family:?} ended {end:?}"
        );
    }
    let after: Vec<String> = keys.iter().map(|key| new.digest(key)).collect();
    assert_eq!(after, before);

    let mut router = nodes.cluster.router_from(PRIMARY);
    for (family, held) in FAMILIES.into_iter().zip(held) {
        let key = nodes.key(family.prefix());
        let left = router.ask(family.check(&key, "a")).as_int();
        assert!((1..=65_000).contains(&left), "{left} ms left");
        let mut back = new.waiting(family.acquire(&key, "b", "BLOCK 0"));
        assert_eq!(router.ask(family.release(&key, "a")), 1);
        assert!(fence_of(family, &back.reply(), "b") > held);
    }
    assert_eq!(router.at(), new.port());
    let mut watcher = new.waiting(format!("DWG.WAIT {group} BLOCK 0"));
    assert_eq!(router.ask(format!("DWG.DONE {group} m")), 1);
    assert_eq!(
        watcher.reply(),
        Reply::Array(vec![Reply::Int(1), Reply::Int(0)])
    );

    assert_eq!(nodes.cluster[1].connect().ask(LOCK.release(&other, "a")), 1);
    fence_of(LOCK, &undisturbed.reply(), "b");
    old.wait_for_sync();
    old.wait_to_catch_up_with(new);
    for key in &keys {
        assert_eq!(old.digest(key), new.digest(key), "{key}");
    }
    assert_eq!(old.info_number("dsync", "dsync_waiters"), 0);
    for node in ALL {
        assert_calm(&nodes.cluster[node]);
    }
}

#[test]
fn failovers_in_wave_of_lapses_end_every_wait() {
    const KEYS: usize = 2_000;
    const WAITERS: usize = 100;
    let grace = ["takeover-grace-ms", "100"];
    let builder = grace
        .into_iter()
        .fold(Cluster::builder(), ClusterBuilder::module_arg);
    let nodes = FailoverNodes::new(builder);
    let old = &nodes.cluster[PRIMARY];
    let mut client = old.connect();
    let requests = (0..KEYS)
        .map(|n| LOCK.acquire(&nodes.key(&n.to_string()), "a", &format!("PX {}", 400 + n)));
    for granted in client.ask_all(requests) {
        granted.grant();
    }
    let mut waiters: Vec<Client> = (0..WAITERS).map(|_| old.connect()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        let key = nodes.key(&(n * KEYS / WAITERS).to_string());
        waiter.begin(LOCK.acquire(&key, "b", "PX 300 BLOCK 0"));
    }
    let middle = |server: &Server, left: usize| {
        eventually("the wave to go on", SOON, || {
            (server.connect().ask("DBSIZE").as_int().unsigned_abs() as usize) < left
        });
    };

    // Each failover finds some leases due while the old primary pauses, and some while the new one takes over.
    // Each server is elected once: one that is elected twice within four node timeouts takes the votes of the first
    // election for those of the second, and loses.
    let mut serving = PRIMARY;
    for (next, left) in [(REPLICA, KEYS * 3 / 4), (PRIMARY, KEYS / 2)] {
        middle(&nodes.cluster[serving], left);
        nodes.cluster.fail_over_to(next, nodes.slot, &ALL);
        nodes.cluster[serving].wait_for_sync();
        serving = next;
    }
    for waiter in &mut waiters {
        let end = end_of(LOCK, waiter);
        assert!(
            matches!(end, WaitEnd::Granted(_)) || ends_as_this_server_does(old, end),
            "{end:?}"
        );
    }
    eventually("the end of the wave", SOON * 2, || {
        old.connect().ask("DBSIZE") == 0
    });
    let replica = &nodes.cluster[REPLICA];
    replica.wait_to_catch_up_with(old);
    assert_eq!(replica.connect().ask("DBSIZE"), 0);
    for node in ALL {
        assert_calm(&nodes.cluster[node]);
    }
}

#[test]
fn replica_takes_over_from_killed_primary() {
    let mut nodes = FailoverNodes::new(Cluster::builder().node_timeout_ms(1_000));
    let key = nodes.key("k");
    let (old, new) = (&nodes.cluster[PRIMARY], &nodes.cluster[REPLICA]);
    let granted = old.connect().ask(LOCK.acquire(&key, "a", "PX 60000"));
    let fence = fence_of(LOCK, &granted, "a");
    let mut waiter = old.waiting(LOCK.acquire(&key, "b", "BLOCK 0"));
    new.wait_to_catch_up_with(old);

    nodes.cluster[PRIMARY].kill9();
    assert_eq!(end_of(LOCK, &mut waiter), WaitEnd::Closed);
    let others = &ALL[1..];
    nodes.cluster.wait_for_owner(others, nodes.slot, REPLICA);
    nodes.cluster.wait_until_ok(others);

    let mut router = nodes.cluster.router_from(1);
    assert!(router.ask(LOCK.check(&key, "a")).as_int() > 0);
    let new = &nodes.cluster[REPLICA];
    let mut back = new.waiting(LOCK.acquire(&key, "b", "BLOCK 0"));
    assert_eq!(router.ask(LOCK.release(&key, "a")), 1);
    let after = fence_of(LOCK, &back.reply(), "b");
    // The killed primary may have granted higher fences that were lost: the promotion leaps past them.
    let ahead = Duration::from_secs(1).as_micros() as u64;
    assert!(after > fence + ahead, "{after} follows {fence}");

    nodes.cluster[PRIMARY].start_again();
    let old = &nodes.cluster[PRIMARY];
    eventually("the old primary to follow the new one", SOON * 3, || {
        old.info("replication", "role") == "slave"
    });
    old.wait_for_sync();
    old.wait_to_catch_up_with(&nodes.cluster[REPLICA]);
    assert_eq!(old.digest(&key), nodes.cluster[REPLICA].digest(&key));
    for node in ALL {
        assert_calm(&nodes.cluster[node]);
    }
}
