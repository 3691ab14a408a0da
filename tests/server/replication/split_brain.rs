//! A primary that is cut off and does not know it: for a while there are two, and both grant.
//!
//! The promise is not that this cannot happen, for replication is asynchronous and nobody votes on a
//! grant. The promise is that the fence tells: whatever the promoted replica grants outranks whatever the
//! old primary granted and still grants, so that a store that checks fences refuses the old side from the
//! moment the new side has written. And when the cut heals there is one truth again, and nobody waits in
//! vain for the other.
//!
//! Three hosts, on each a server and a sentinel, as one would run them; the client on the old side is
//! beside the primary, for it talks to it over its socket.

use crate::support::steps::*;
use crate::support::*;

/// What a lock protects, if it checks fences: a write by an older holder than the last is refused.
#[derive(Default)]
struct FencedStore {
    fence: u64,
}

impl FencedStore {
    fn write(&mut self, fence: u64) -> bool {
        let is_newest = fence >= self.fence;
        if is_newest {
            self.fence = fence;
        }
        is_newest
    }
}

/// One grant, given back at once.
#[track_caller]
fn grant_in_passing(client: &mut Client) -> u64 {
    let (token, fence) = ask(client, "DLOCK.ACQUIRE passing").grant();
    assert_eq!(ask(client, format!("DLOCK.RELEASE passing {token}")), 1);
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

    // Replicated to all: a hold that lasts through everything, and one that both sides will free.
    let mut beside = old.connect();
    let lasting = "DLOCK.ACQUIRE lasting EX 600 TOKEN lasting";
    let kept = ask(&mut beside, lasting).grant();
    let before = ask(&mut beside, "DLOCK.ACQUIRE lock EX 600 TOKEN before");
    let before = before.grant().1;
    for replica in &replicas {
        replica.wait_to_catch_up_with(&old);
    }
    let mut store = FencedStore::default();
    assert!(store.write(before));

    hosts[0].cut_off();
    // The old side goes on: its lock passes from hand to hand, and nobody else hears of it.
    assert_eq!(ask(&mut beside, "DLOCK.RELEASE lock before"), 1);
    let theirs = ask(&mut beside, "DLOCK.ACQUIRE lock EX 600 TOKEN theirs");
    let theirs = theirs.grant().1;
    assert!(store.write(theirs), "the newest so far");
    let waiter = queued(&old, "DLOCK.ACQUIRE lock BLOCK 0 TOKEN w");
    let group_waiter = {
        ask(&mut beside, "DWG.ADD group EX 600 TOKEN member");
        queued(&old, "DWG.WAIT group BLOCK 0")
    };

    let new = sentinels.wait_for_failover(1, &old, &replicas.each_ref());
    assert_eq!(old.info("replication", "role"), "master");
    let mut across = new.connect();
    assert_eq!(ask(&mut across, lasting).grant(), kept, "known to both");
    assert_eq!(ask(&mut across, "DLOCK.RELEASE lock before"), 1);
    let ours = ask(&mut across, "DLOCK.ACQUIRE lock EX 600 TOKEN ours");
    let ours = ours.grant().1;
    // Two holders of one lock, each by the word of a primary.
    assert!(ask(&mut beside, "DLOCK.CHECK lock theirs").as_int() > 0);
    assert!(ask(&mut across, "DLOCK.CHECK lock ours").as_int() > 0);

    // Until the newer writes, the store cannot know of it; from then on it takes nothing of the old side's.
    assert!(store.write(theirs));
    assert!(store.write(ours));
    assert!(!store.write(theirs));
    for _ in 0..200 {
        let (late, newer) = (grant_in_passing(&mut beside), grant_in_passing(&mut across));
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
    assert_eq!(ask(&mut beside, "DLOCK.CHECK lock theirs"), 0);
    assert!(ask(&mut beside, "DLOCK.CHECK lock ours").as_int() > 0);
    assert_eq!(ask(&mut beside, "EXISTS group"), 0);
    for key in ["lasting", "lock"] {
        assert_eq!(digest(&old, key), digest(new, key), "{key}");
    }

    // One queue, on the one primary that every sentinel names again.
    eventually("sentinels of one mind", SOON * 4, || {
        (0..3).all(|n| sentinels.address_by(n) == (new.ip(), new.port()))
    });
    let mut heir = queued(new, "DLOCK.ACQUIRE lock BLOCK 0 TOKEN w");
    assert_eq!(ask(&mut across, "DLOCK.RELEASE lock ours"), 1);
    let heir = granted(&mut heir).1;
    assert!(heir > ours);
    assert!(store.write(heir));
    assert_calm(&old);
    assert_calm(new);
}

/// Whoever restarts is an old primary still: it was not promoted, and nobody follows it.
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
        grant_in_passing(&mut old.connect());
        new.wait_to_catch_up_with(&old);
        // As after a cut: it is promoted, and nobody tells the old one.
        assert_eq!(ask(&mut new.connect(), "REPLICAOF NO ONE"), "OK");
        let promoted = grant_in_passing(&mut new.connect());
        assert!(promoted > grant_in_passing(&mut old.connect()));

        old.kill9();
        old.start_again();
        let late = grant_in_passing(&mut old.connect());
        let newer = grant_in_passing(&mut new.connect());
        assert!(
            newer > late,
            "appendonly {appendonly}: {late} of the old side outranks {newer} of the new, by {} s",
            (late - newer) / 1_000_000
        );
    }
}
