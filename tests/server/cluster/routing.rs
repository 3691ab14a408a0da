//! Where requests go in a cluster.
//!
//! The key is the first argument of every command, and the server knows it, so any client can route any command. A node
//! that does not serve the key answers MOVED. Keys with the same hash tag are served together; the keys of a
//! transaction or script must share a slot. A replica answers reads after READONLY. Commands without a key (`INFO
//! dsync`, DSYNC.CONTENDED, DSYNC.HOLDS) report their own node only.

use crate::cluster::cluster_steps::*;
use crate::commands::documented::documented;
use crate::support::*;

#[test]
fn commands_are_routed_by_their_first_argument() {
    let cluster = Cluster::start();
    let key = cluster.key_of(1, "k");
    let slot = cluster.slot(&key);
    let mut wrong = cluster[0].connect();

    for command in documented(&mut wrong)
        .iter()
        .filter(|command| command.has_key())
    {
        let choices = command.args.iter().filter(|arg| arg.optional);
        let first = choices.map(|choice| choice.alternatives()[0]);
        let options = first.flat_map(|option| option.words(&option.value()));
        let request = [command.bare(&key), options.collect()].concat().join(" ");
        let keys = wrong.ask(format!("COMMAND GETKEYS {request}"));
        assert!(
            matches!(keys.as_array(), [only] if *only == *key),
            "keys of {request:?}: {keys:?}"
        );
        let sent_on = wrong.ask(&request);
        assert_eq!(
            sent_on.error(),
            format!("MOVED {slot} 127.0.0.1:{}", cluster[1].port()),
            "{request}"
        );
    }
    assert_eq!(cluster[0].info_number("dsync", "dsync_holds"), 0);

    // A client that follows MOVED reaches the right node.
    let mut router = cluster.router_from(2);
    let fence = fence_of(LOCK, &router.ask(LOCK.acquire(&key, "t", "")), "t");
    assert!(fence > 0);
    assert_eq!(router.at(), cluster[1].port());
    assert_eq!(router.ask(LOCK.release(&key, "t")), 1);
}

#[test]
fn keys_of_one_hash_tag_are_served_together() {
    let cluster = Cluster::start();
    let mut client = cluster[0].connect();
    let tag = cluster.key_of(0, "tag");
    let elsewhere = cluster.key_of(0, "other");
    let foreign = cluster.key_of(1, "foreign");
    assert_ne!(cluster.slot(&tag), cluster.slot(&elsewhere));

    // Two keys of one slot, in a script and in a transaction.
    let (lock, permit) = (format!("{{{tag}}}:lock"), format!("{{{tag}}}:permit"));
    let both = "return {redis.call('DLOCK.ACQUIRE', KEYS[1], 'TOKEN', 't'), \
                redis.call('DSEM.ACQUIRE', KEYS[2], 'LIMIT', 1, 'TOKEN', 't')}";
    let in_script = call!(client, "EVAL", both, 2, lock, permit);
    assert!(
        in_script
            .as_array()
            .iter()
            .all(|hold| hold.grant().0 == "t")
    );
    let together = [
        "MULTI".to_owned(),
        format!("DLOCK.RELEASE {lock} t"),
        format!("DSEM.RELEASE {permit} t"),
        "EXEC".to_owned(),
    ];
    let done = client.ask_all(&together);
    assert_eq!(done[3], Reply::Array(vec![Reply::Int(1), Reply::Int(1)]));

    // Keys of two slots are refused, although this node serves both.
    let across = call!(client, "EVAL", both, 2, lock, elsewhere);
    assert!(across.error().starts_with("CROSSSLOT"), "{across:?}");
    let apart = [
        "MULTI".to_owned(),
        format!("DLOCK.ACQUIRE {lock}"),
        format!("DLOCK.ACQUIRE {elsewhere}"),
        "EXEC".to_owned(),
    ];
    let refused = client.ask_all(&apart);
    assert!(refused[3].error().starts_with("CROSSSLOT"), "{refused:?}");

    // A key of another node is refused when its command is queued, and so is the transaction.
    let abroad = [
        "MULTI".to_owned(),
        format!("DLOCK.ACQUIRE {lock}"),
        format!("DLOCK.ACQUIRE {foreign}"),
        "EXEC".to_owned(),
    ];
    let refused = client.ask_all(&abroad);
    assert_eq!(refused[1], "QUEUED");
    assert!(refused[2].error().starts_with("MOVED "), "{refused:?}");
    assert!(refused[3].error().starts_with("EXECABORT"), "{refused:?}");
    let script = "return redis.call('DLOCK.ACQUIRE', ARGV[1])";
    let undeclared = call!(client, "EVAL", script, 1, lock, foreign);
    assert!(undeclared.is_error(), "{undeclared:?}");
    assert_eq!(cluster[0].info_number("dsync", "dsync_holds"), 0);
    assert_eq!(cluster[1].info_number("dsync", "dsync_holds"), 0);
}

#[test]
fn commands_without_key_report_one_node() {
    let cluster = Cluster::start();
    let keys = [0, 1].map(|node| cluster.key_of(node, "k"));
    let mut waiters = Vec::new();
    for (node, key) in keys.iter().enumerate() {
        cluster[node].connect().ask(LOCK.acquire(key, "a", ""));
        for n in 0..=node {
            let request = LOCK.acquire(key, &format!("w{n}"), "BLOCK 0");
            waiters.push(cluster[node].waiting(request));
        }
    }
    for (node, expected) in [(0, 1), (1, 2), (2, 0)] {
        let contended = cluster[node].connect().ask("DSYNC.CONTENDED");
        let listed: Vec<_> = contended
            .as_array()
            .iter()
            .map(|entry| (entry.as_array()[1].as_str(), entry.as_array()[3].as_int()))
            .collect();
        let walk = cluster[node].connect().ask("DSYNC.HOLDS 0");
        let rows = walk.as_array()[1].as_array();
        let held: Vec<_> = rows.iter().map(|row| row.as_array()[1].as_str()).collect();
        let key = keys.get(node).map(String::as_str);
        assert_eq!(held, key.into_iter().collect::<Vec<_>>(), "node {node}");
        let here: Vec<_> = keys
            .get(node)
            .map(|key| (key.as_str(), expected))
            .into_iter()
            .collect();
        assert_eq!(listed, here, "node {node}");
        assert_eq!(
            cluster[node].info_number("dsync", "dsync_waiters"),
            expected.unsigned_abs(),
            "node {node}"
        );
        let holds = u64::from(node < 2);
        assert_eq!(cluster[node].info_number("dsync", "dsync_holds"), holds);
    }
}

#[test]
fn replica_answers_reads_after_readonly() {
    let cluster = Cluster::builder().with_replicas().start();
    let (primary, replica) = (&cluster[0], &cluster[3]);
    let tag = cluster.key_of(0, "tag");
    let mut writer = primary.connect();
    let key = |family: Family| format!("{{{tag}}}{}", family.prefix());
    let mut fences = Vec::new();
    for family in FAMILIES {
        let granted = writer.ask(family.acquire(&key(family), "t", "OWNER o"));
        fences.push(fence_of(family, &granted, "t"));
    }
    let _waiter = primary.waiting(LOCK.acquire(&key(LOCK), "w", "BLOCK 0"));
    replica.wait_to_catch_up_with(primary);

    let mut reader = replica.connect();
    let moved = format!("MOVED {} 127.0.0.1:{}", cluster.slot(&tag), primary.port());
    for family in FAMILIES {
        assert_eq!(reader.ask(family.check(&key(family), "t")).error(), moved);
    }
    assert_eq!(reader.ask("READONLY"), "OK");
    for (family, fence) in FAMILIES.into_iter().zip(fences) {
        let key = key(family);
        assert!(reader.ask(family.check(&key, "t")).as_int() > 0);
        assert_eq!(reader.ask(family.check(&key, "other")), 0);
        let info = reader.ask(format!("{}.INFO {key}", family.prefix()));
        let holder = &info.field("first-holders").as_array()[0];
        assert_eq!(*holder.field("fence"), fence.cast_signed());
        assert_eq!(*holder.field("owner"), "o");
        // Requests that write, or wait to write, are redirected to the primary.
        for request in [
            family.acquire(&key, "w", "BLOCK 0"),
            family.release(&key, "t"),
            format!("{}.RENEW {key} t", family.prefix()),
            format!("{}.REVOKE {key} {fence}", family.prefix()),
        ] {
            assert_eq!(reader.ask(&request).error(), moved, "{request}");
        }
    }
    assert_eq!(replica.info_number("dsync", "dsync_holds"), 4);
    assert_eq!(replica.info_number("dsync", "dsync_waiters"), 0);
}
