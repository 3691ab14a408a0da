//! Kept places in a cluster: the turn is announced on a shard channel, and the places stand in their order after a
//! failover and after their slot has moved.

use crate::support::steps::*;
use crate::support::*;

const PRIMARY: usize = 0;
const REPLICA: usize = 3;
const TARGET: usize = 1;

/// Lets `held` hold the lock, and keeps places for `a` and `b`. Returns the channel of the first.
#[track_caller]
fn hold_and_queue(client: &mut Client, key: &str) -> String {
    client
        .ask(format!("DLOCK.ACQUIRE {key} EX 1000 TOKEN held"))
        .grant();
    let request = |token| format!("DLOCK.ACQUIRE {key} EX 1000 TOKEN {token} QUEUE 60000");
    let replies = ["a", "b"].map(|token| client.ask(request(token)));
    assert_eq!(replies[0].as_array()[0], "WAITING", "{replies:?}");
    assert_eq!(replies[1].as_array()[1], 2, "{replies:?}");
    replies[0].as_array()[2].as_str().to_owned()
}

/// Releases `held` and `a`, and checks that `a` and then `b` are granted.
#[track_caller]
fn expect_old_order(client: &mut Client, key: &str) {
    let request = |token| format!("DLOCK.ACQUIRE {key} EX 1000 TOKEN {token} QUEUE 60000");
    assert_eq!(client.ask(request("b")).as_array()[1], 2);
    assert_eq!(client.ask(request("a")).as_array()[1], 1);
    for (holder, next) in [("held", "a"), ("a", "b")] {
        assert_eq!(client.ask(format!("DLOCK.RELEASE {key} {holder}")), 1);
        assert_eq!(client.ask(request(next)).grant().0, next);
    }
}

#[test]
fn turn_is_announced_on_a_channel_in_the_slot_of_the_key() {
    let cluster = Cluster::start();
    // No hash tag can express the slot of the last one.
    for name in ["plain", "{tag}ged", "od}d"] {
        let key = match name.contains('{') {
            true => format!("{{{}}}tagged", cluster.key_of(PRIMARY, "tag")),
            false => cluster.key_of(PRIMARY, name),
        };
        let mut client = cluster[PRIMARY].connect();
        let channel = hold_and_queue(&mut client, &key);
        assert_eq!(cluster.slot(&channel), cluster.slot(&key));
        assert!(channel.starts_with("dsync:"), "{channel}");
        let mut subscriber = cluster[PRIMARY].connect();
        subscriber.ask(format!("SSUBSCRIBE {channel}"));
        assert_eq!(client.ask(format!("DLOCK.RELEASE {key} held")), 1);
        let message = subscriber.reply();
        assert_eq!(message.as_array()[0], "smessage", "{message:?}");
        let granted = client.ask(format!("DLOCK.ACQUIRE {key} TOKEN a QUEUE 60000"));
        assert_eq!(
            message.as_array()[2].as_str(),
            granted.grant().1.to_string()
        );
    }
}

#[test]
fn kept_places_stand_in_order_after_failover() {
    let cluster = Cluster::builder().with_replicas().start();
    let key = cluster.key_of(PRIMARY, "lock");
    hold_and_queue(&mut cluster[PRIMARY].connect(), &key);
    cluster[REPLICA].wait_to_catch_up_with(&cluster[PRIMARY]);
    cluster.fail_over_to(REPLICA, cluster.slot(&key), &[0, 1, 2, 3, 4, 5]);
    expect_old_order(&mut cluster[REPLICA].connect(), &key);
    let old = &cluster[PRIMARY];
    old.wait_to_catch_up_with(&cluster[REPLICA]);
    assert_eq!(old.info_number("dsync", "dsync_unapplied_changes"), 0);
}

#[test]
fn kept_places_move_with_their_slot() {
    let cluster = Cluster::start();
    let key = cluster.key_of(PRIMARY, "lock");
    hold_and_queue(&mut cluster[PRIMARY].connect(), &key);
    let open = cluster.open_move(cluster.slot(&key), PRIMARY, TARGET);
    open.send(&key);
    open.close();
    let mut client = cluster[TARGET].connect();
    expect_old_order(&mut client, &key);
    eventually("no place at the source", SOON, || {
        cluster[PRIMARY].info_number("dsync", "dsync_waiters") == 0
    });
    assert_calm(&cluster[PRIMARY]);
    assert_calm(&cluster[TARGET]);
}

/// The source has no turn of its own between the key's leaving and the slot's: it finds the slot with another node.
#[test]
fn source_that_lost_key_and_slot_at_once_drops_the_kept_places() {
    let cluster = Cluster::start();
    let key = cluster.key_of(PRIMARY, "lock");
    let slot = cluster.slot(&key);
    let mut source = cluster[PRIMARY].connect();
    hold_and_queue(&mut source, &key);
    let _open = cluster.open_move(slot, PRIMARY, TARGET);
    let own = format!("CLUSTER SETSLOT {slot} NODE {}", cluster.id(TARGET));
    let migrate = format!("MIGRATE 127.0.0.1 {} {key} 0 10000", cluster[TARGET].port());
    for reply in source.ask_all([migrate, own.clone()]) {
        assert_eq!(reply, "OK");
    }
    assert_eq!(cluster[TARGET].connect().ask(own), "OK");
    eventually("no place at the source", SOON, || {
        cluster[PRIMARY].info_number("dsync", "dsync_waiters") == 0
    });
    cluster.wait_for_owner(&[0, 1, 2], slot, TARGET);
    expect_old_order(&mut cluster[TARGET].connect(), &key);
    assert_calm(&cluster[PRIMARY]);
}

/// In a cluster each place has a subscription of its own. Beside these, a client sends three commands for an
/// acquisition: QUEUE, QUEUE again when its turn is announced, and RELEASE.
#[test]
fn thirty_clients_on_one_connection_are_served_in_order() {
    const CLIENTS: usize = 30;
    let cluster = Cluster::start();
    let key = cluster.key_of(PRIMARY, "lock");
    let mut shared = cluster[PRIMARY].connect();
    let mut subscriber = cluster[PRIMARY].connect();
    shared
        .ask(format!("DLOCK.ACQUIRE {key} TOKEN held"))
        .grant();
    let request = |n: usize| format!("DLOCK.ACQUIRE {key} EX 600 TOKEN t{n} QUEUE 60000");
    let replies = shared.ask_all((0..CLIENTS).map(request).collect::<Vec<_>>());
    let channels: Vec<_> = replies
        .iter()
        .map(|reply| reply.as_array()[2].as_str())
        .collect();
    for channel in &channels {
        let subscribed = subscriber.ask(format!("SSUBSCRIBE {channel}"));
        assert_eq!(subscribed.as_array()[0], "ssubscribe", "{subscribed:?}");
    }
    assert_eq!(shared.ask(format!("DLOCK.RELEASE {key} held")), 1);
    for (n, channel) in channels.iter().enumerate() {
        let message = subscriber.reply();
        assert_eq!(message.as_array()[1], *channel, "client {n} is next");
        assert_eq!(shared.ask(request(n)).grant().0, format!("t{n}"));
        assert_eq!(shared.ask(format!("DLOCK.RELEASE {key} t{n}")), 1);
    }
}

/// How Redis trims a slot that has left.
#[derive(Clone, Copy)]
enum Trim {
    InOneStep,
    /// As soon as a client tracks keys.
    KeyByKey,
}

/// A cluster in which the slot of a key with two kept places has moved to the target as a whole. `None` on servers that
/// cannot do that.
#[track_caller]
fn migrated(trim: Trim) -> Option<(Cluster, String)> {
    if !Cluster::can_migrate_atomically() {
        return None;
    }
    let cluster = Cluster::builder().with_replicas().start();
    let key = cluster.key_of(PRIMARY, "lock");
    let mut clients = [PRIMARY, REPLICA].map(|node| cluster[node].connect());
    hold_and_queue(&mut clients[0], &key);
    if let Trim::KeyByKey = trim {
        for client in &mut clients {
            client.ask("HELLO 3");
            client.ask("CLIENT TRACKING ON BCAST");
        }
    }
    cluster[REPLICA].wait_to_catch_up_with(&cluster[PRIMARY]);
    let slot = cluster.slot(&key);
    cluster.start_migration(slot, PRIMARY, TARGET);
    cluster.wait_for_owner(&[0, 1, 2], slot, TARGET);
    Some((cluster, key))
}

#[track_caller]
fn assert_places_move(trim: Trim) {
    let Some((cluster, key)) = migrated(trim) else {
        return;
    };
    expect_old_order(&mut cluster[TARGET].connect(), &key);
    for node in [PRIMARY, REPLICA] {
        eventually("no place at the source", SOON, || {
            cluster[node].info_number("dsync", "dsync_waiters") == 0
        });
    }
    for node in [PRIMARY, TARGET] {
        assert_eq!(
            cluster[node].info_number("dsync", "dsync_unapplied_changes"),
            0
        );
    }
    // Only Redis says so.
    let info = cluster[PRIMARY].connect().ask("CLUSTER INFO");
    let mut fields = info.as_str().lines();
    let trims = "cluster_slot_migration_stats_active_trim_started:";
    if let Some(key_by_key) = fields.find_map(|field| field.strip_prefix(trims)) {
        assert_eq!(key_by_key != "0", matches!(trim, Trim::KeyByKey));
    }
}

/// Valkey 9 and Redis 8.4 move a slot as a whole, and the target follows changes until it owns the slot.
#[test]
fn kept_places_move_with_a_slot_that_moves_as_a_whole() {
    assert_places_move(Trim::InOneStep);
}

#[test]
fn kept_places_move_with_a_slot_that_moves_as_a_whole_and_is_trimmed_key_by_key() {
    assert_places_move(Trim::KeyByKey);
}

/// When a slot has left, Redis removes all its keys in one step, and tells the module nothing of each. Their kept places
/// stayed. So when the slot came back, a place that had been withdrawn meanwhile stood in line again, and was granted.
#[test]
fn place_that_was_withdrawn_elsewhere_does_not_come_back() {
    let Some((cluster, key)) = migrated(Trim::InOneStep) else {
        return;
    };
    let withdraw = format!("DLOCK.RELEASE {key} b");
    assert_eq!(cluster[TARGET].connect().ask(withdraw), 1);
    let slot = cluster.slot(&key);
    cluster.start_migration(slot, TARGET, PRIMARY);
    cluster.wait_for_owner(&[0, 1, 2], slot, PRIMARY);
    cluster[REPLICA].wait_to_catch_up_with(&cluster[PRIMARY]);
    for node in [PRIMARY, REPLICA] {
        eventually("one place", SOON, || {
            cluster[node].info_number("dsync", "dsync_waiters") == 1
        });
    }
    let mut client = cluster[PRIMARY].connect();
    for holder in ["held", "a"] {
        assert_eq!(client.ask(format!("DLOCK.RELEASE {key} {holder}")), 1);
    }
    client.ask(format!("DLOCK.ACQUIRE {key} TOKEN c")).grant();
}
