//! A primary in a partition that does not know it has been replaced: for a while two primaries grant.
//!
//! Replication is asynchronous, so this can happen. The guarantee is the order of fences: every grant of the promoted
//! replica has a higher fence than every grant of the old primary, earlier or later. A store that checks fences
//! therefore refuses the old side as soon as the new side has written. When the partition ends, the old primary follows
//! the new one and ends its waits.
//!
//! Three hosts, each with a server and a sentinel. The client of the old side runs on the old primary's host.

use crate::support::data_files::rewrite_aof;
use crate::support::steps::*;
use crate::support::*;

/// A resource that checks fences: it refuses a write with a lower fence than an earlier one.
#[derive(Default)]
struct FenceCheckingStore {
    fence: u64,
}

impl FenceCheckingStore {
    fn write(&mut self, fence: u64) -> bool {
        let is_newest = fence >= self.fence;
        if is_newest {
            self.fence = fence;
        }
        is_newest
    }
}

/// Acquires and releases a lock; returns the fence.
#[track_caller]
fn acquire_and_release(client: &mut Client) -> u64 {
    let (token, fence) = client.ask("DLOCK.ACQUIRE passing").grant();
    assert_eq!(client.ask(format!("DLOCK.RELEASE passing {token}")), 1);
    fence
}

#[test]
fn partitioned_primaries_both_grant_and_fences_tell_the_newer() {
    let Some(network) = Network::new() else {
        return;
    };
    let hosts = [network.host(), network.host(), network.host()];
    let old = Server::builder().on(&hosts[0]).start();
    let replicas =
        [&hosts[1], &hosts[2]].map(|host| Server::builder().on(host).replica_of(&old).start());
    let sentinels = Sentinels::watch_from(&hosts.each_ref(), &old, 2);

    // Both replicas have these holds: `lasting` is kept to the end, `lock` is released on both sides.
    let mut beside = old.connect();
    let lasting = "DLOCK.ACQUIRE lasting EX 600 TOKEN lasting";
    let kept = beside.ask(lasting).grant();
    let before = beside.ask("DLOCK.ACQUIRE lock EX 600 TOKEN before");
    let before = before.grant().1;
    for replica in &replicas {
        replica.wait_to_catch_up_with(&old);
    }
    let mut store = FenceCheckingStore::default();
    assert!(store.write(before));

    hosts[0].cut_off();
    // The old side goes on: it passes the lock on, and replicates that to no server.
    assert_eq!(beside.ask("DLOCK.RELEASE lock before"), 1);
    let theirs = beside.ask("DLOCK.ACQUIRE lock EX 600 TOKEN theirs");
    let theirs = theirs.grant().1;
    assert!(store.write(theirs), "the newest so far");
    let waiter = old.waiting("DLOCK.ACQUIRE lock BLOCK 0 TOKEN w");
    let group_waiter = {
        beside.ask("DWG.ADD group EX 600 TOKEN member");
        old.waiting("DWG.WAIT group BLOCK 0")
    };

    let new = sentinels.wait_for_failover(1, &old, &replicas.each_ref());
    assert_eq!(old.info("replication", "role"), "master");
    let mut across = new.connect();
    assert_eq!(across.ask(lasting).grant(), kept, "known to both");
    assert_eq!(across.ask("DLOCK.RELEASE lock before"), 1);
    let ours = across.ask("DLOCK.ACQUIRE lock EX 600 TOKEN ours");
    let ours = ours.grant().1;
    // Two tokens hold the lock, each on its primary.
    assert!(beside.ask("DLOCK.CHECK lock theirs").as_int() > 0);
    assert!(across.ask("DLOCK.CHECK lock ours").as_int() > 0);

    // The store accepts the old side until the new side writes, and refuses it from then on.
    assert!(store.write(theirs));
    assert!(store.write(ours));
    assert!(!store.write(theirs));
    for _ in 0..200 {
        let (late, newer) = (
            acquire_and_release(&mut beside),
            acquire_and_release(&mut across),
        );
        assert!(late > theirs, "the old side's own order holds");
        assert!(!store.write(late), "{late} was granted after {ours}");
        assert!(store.write(newer));
    }

    hosts[0].join();
    sentinels.wait_until_it_follows(&old, new);
    for waiter in [waiter, group_waiter] {
        let end = ended(waiter);
        assert!(matches!(end, Ended::Unblocked | Ended::Closed), "{end:?}");
    }
    let mut beside = old.connect();
    assert_eq!(beside.ask("DLOCK.CHECK lock theirs"), 0);
    assert!(beside.ask("DLOCK.CHECK lock ours").as_int() > 0);
    assert_eq!(beside.ask("EXISTS group"), 0);
    for key in ["lasting", "lock"] {
        assert_eq!(old.digest(key), new.digest(key), "{key}");
    }

    // There is one queue again, on the primary that every sentinel names.
    eventually("sentinels of one mind", SOON * 4, || {
        (0..3).all(|n| sentinels.address_by(n) == (new.ip(), new.port()))
    });
    let mut heir = new.waiting("DLOCK.ACQUIRE lock BLOCK 0 TOKEN w");
    assert_eq!(across.ask("DLOCK.RELEASE lock ours"), 1);
    let heir = heir.granted().1;
    assert!(heir > ours);
    assert!(store.write(heir));
    assert_calm(&old);
    assert_calm(new);
}

/// A restart must not raise the fences of an old primary above those of the promoted replica.
#[test]
fn restarted_old_primary_grants_lower_fences() {
    for appendonly in ["yes", "no"] {
        let builder = || {
            Server::builder()
                .config("appendonly", appendonly)
                .config("appendfsync", "always")
        };
        let mut old = builder().start();
        let new = builder().replica_of(&old).start();
        acquire_and_release(&mut old.connect());
        new.wait_to_catch_up_with(&old);
        if appendonly == "yes" {
            // From Redis 7.2 and Valkey on, an AOF that began before the first fence does not tell who writes it.
            rewrite_aof(&old);
        }
        // As in a partition: the replica is promoted, and the old primary does not learn of it.
        assert_eq!(new.connect().ask("REPLICAOF NO ONE"), "OK");
        let promoted = acquire_and_release(&mut new.connect());
        assert!(promoted > acquire_and_release(&mut old.connect()));

        old.kill9();
        old.start_again();
        let late = acquire_and_release(&mut old.connect());
        let newer = acquire_and_release(&mut new.connect());
        assert!(
            newer > late,
            "appendonly {appendonly}: {late} of the old side outranks {newer} of the new, by {} s",
            (late - newer) / 1_000_000
        );
    }
}
