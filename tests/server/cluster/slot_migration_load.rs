//! A slot that moves to and fro under load, and what its clients notice: nothing but redirections.
//!
//! The promise: never two holders at once, wherever the key is; fences rise in the order of the grants, over
//! all nodes; every request is answered in the end.

use crate::cluster::steps::*;
use crate::support::steps::*;
use crate::support::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;

const CLIENTS: usize = 6;
const MOVES: usize = 10;

/// What the clients hold together, as one who guards the resource would see it.
#[derive(Default)]
struct Resource {
    inside: AtomicU64,
    last_fence: Mutex<u64>,
    grants: AtomicU64,
    is_over: AtomicBool,
    /// What must not have happened. Who sees it goes on, so that nobody waits for one who gave up.
    complaints: Mutex<Vec<String>>,
}

impl Resource {
    /// One client's life: acquire, be alone, release, all over again.
    fn use_in_turns(&self, family: ClusterFamily, key: &str, me: usize, mut router: Router) {
        for turn in 0.. {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let token = format!("c{me}-{turn}");
            let granted = router.ask(family.acquire(key, &token, "PX 60000 BLOCK 0"));
            let fence = fence_of(family, &granted, &token);
            let others = self.inside.fetch_add(1, Ordering::SeqCst);
            if others > 0 {
                self.complain(format!("{token} has company: {others}"));
            }
            let last = std::mem::replace(&mut *lock(&self.last_fence), fence);
            if fence <= last {
                self.complain(format!("{token} has {fence}, the one before had {last}"));
            }
            self.grants.fetch_add(1, Ordering::SeqCst);
            self.inside.fetch_sub(1, Ordering::SeqCst);
            let released = router.ask(family.release(key, &token));
            if released != 1 {
                self.complain(format!("{token} has lost its hold: {released:?}"));
            }
        }
    }

    fn complain(&self, of: String) {
        lock(&self.complaints).push(of);
    }

    /// Waits until this many more grants were made.
    fn wait_for_more(&self, count: u64, clients_are_well: impl Fn() -> bool) {
        let goal = self.grants.load(Ordering::SeqCst) + count;
        eventually("more grants", SOON * 3, || {
            !clients_are_well() || self.grants.load(Ordering::SeqCst) >= goal
        });
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().expect("nobody panics with it")
}

/// Moves a slot from one node to another; between the steps there is to be time for more grants.
type MoveSlot = fn(&Cluster, u16, (usize, usize), &dyn Fn());

fn key_by_key(cluster: &Cluster, slot: u16, (from, to): (usize, usize), pause: &dyn Fn()) {
    let opened = cluster.open_move(slot, from, to);
    // The key is still at the source.
    pause();
    opened.send_all();
    // At the target, or made anew there.
    pause();
    opened.send_all();
    opened.close();
}

fn as_a_whole(cluster: &Cluster, slot: u16, (from, to): (usize, usize), _: &dyn Fn()) {
    cluster.start_migration(slot, from, to);
    cluster.wait_for_owner(&[0, 1, 2], slot, to);
}

/// Moves the slot of a key between the nodes 0 and 1 while clients use the key.
fn to_and_fro(family: ClusterFamily, way: MoveSlot) {
    let cluster = Cluster::start();
    let key = cluster.key_of(0, "k");
    let slot = cluster.slot(&key);
    let resource = Resource::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|me| {
                let (resource, key, router) = (&resource, &key, cluster.router_from(me % 3));
                scope.spawn(move || resource.use_in_turns(family, key, me, router))
            })
            .collect();
        let all_well = || clients.iter().all(|client| !client.is_finished());
        for n in 0..MOVES {
            if !all_well() {
                break;
            }
            let pause = || resource.wait_for_more(20, all_well);
            pause();
            way(&cluster, slot, (n % 2, (n + 1) % 2), &pause);
        }
        resource.wait_for_more(20, all_well);
        // Only now, so that whoever fails is still missed above. Each is granted once more and goes.
        resource.is_over.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().expect("a client fared as promised");
        }
    });
    assert_eq!(*lock(&resource.complaints), Vec::<String>::new());
    for node in 0..3 {
        assert_eq!(cluster[node].info_number("dsync", "dsync_waiters"), 0);
        assert_eq!(ask(&mut cluster[node].connect(), "DBSIZE"), 0);
        assert_calm(&cluster[node]);
    }
}

#[test]
fn lock_moved_key_by_key_is_never_held_twice() {
    to_and_fro(LOCK, key_by_key);
}

#[test]
fn semaphore_moved_key_by_key_keeps_its_limit() {
    to_and_fro(SEMAPHORE, key_by_key);
}

#[test]
fn lock_moved_with_whole_slot_is_never_held_twice() {
    // Of Valkey from 9.0 on.
    if Cluster::can_migrate_atomically() {
        to_and_fro(LOCK, as_a_whole);
    }
}
