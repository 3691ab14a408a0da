//! A slot moves between two nodes, to and fro, while clients use a key of it.
//!
//! There are never two holders at once, fences rise in the order of the grants over all nodes, and every request is
//! answered. The clients follow redirections and notice nothing else.

use crate::cluster::cluster_steps::*;
use crate::support::steps::*;
use crate::support::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;

const CLIENTS: usize = 6;
const MOVES: usize = 10;

/// The resource that the key protects: it sees which clients use it, and with which fences.
#[derive(Default)]
struct Resource {
    inside: AtomicU64,
    last_fence: Mutex<u64>,
    grants: AtomicU64,
    is_over: AtomicBool,
    /// Broken guarantees. A client that notices one goes on, so that the others do not wait for it.
    complaints: Mutex<Vec<String>>,
}

impl Resource {
    /// The loop of one client: it acquires the key, asserts that it is alone, and releases it.
    fn use_in_turns(&self, family: Family, key: &str, me: usize, mut router: Router) {
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

    /// Waits until this many more grants were made, or a client has failed.
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

/// Moves a slot from one node to another, and calls its last argument between the steps, to let more grants happen.
type MoveSlot = fn(&Cluster, u16, (usize, usize), &dyn Fn());

fn key_by_key(cluster: &Cluster, slot: u16, (from, to): (usize, usize), pause: &dyn Fn()) {
    let opened = cluster.open_move(slot, from, to);
    // The key is still at the source.
    pause();
    opened.send_all();
    // The key is at the target, or was made anew there.
    pause();
    opened.send_all();
    opened.close();
}

fn as_a_whole(cluster: &Cluster, slot: u16, (from, to): (usize, usize), _: &dyn Fn()) {
    cluster.start_migration(slot, from, to);
    cluster.wait_for_owner(&[0, 1, 2], slot, to);
}

/// Moves the slot of a key between the nodes 0 and 1 while clients use the key.
fn assert_exclusive_while_slot_moves(family: Family, move_slot: MoveSlot) {
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
            move_slot(&cluster, slot, (n % 2, (n + 1) % 2), &pause);
        }
        resource.wait_for_more(20, all_well);
        // The clients end only after the last wait, which would miss the grants of one that had failed.
        resource.is_over.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().expect("a client fared as promised");
        }
    });
    assert_eq!(*lock(&resource.complaints), Vec::<String>::new());
    for node in 0..3 {
        assert_eq!(cluster[node].info_number("dsync", "dsync_waiters"), 0);
        assert_eq!(cluster[node].connect().ask("DBSIZE"), 0);
        assert_calm(&cluster[node]);
    }
}

#[test]
fn lock_moved_key_by_key_is_never_held_twice() {
    assert_exclusive_while_slot_moves(LOCK, key_by_key);
}

#[test]
fn semaphore_moved_key_by_key_keeps_its_limit() {
    assert_exclusive_while_slot_moves(SEMAPHORE, key_by_key);
}

#[test]
fn lock_moved_with_whole_slot_is_never_held_twice() {
    if Cluster::can_migrate_atomically() {
        assert_exclusive_while_slot_moves(LOCK, as_a_whole);
    }
}
