//! Fences of slots that come to a node in other ways than by one finished move: moves that are given up, repeated or
//! finished without a new epoch, nodes that were started again, orders that the server refuses, and epochs that no
//! cluster reaches by itself.

use crate::cluster::cluster_steps::*;
use crate::support::steps::*;
use crate::support::*;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::time::{Duration, Instant};

/// How far a node leaps past what it has heard, at the least.
const LEVEL_US: u64 = 2_000_000;
const HALF_YEAR_US: u64 = 183 * 86_400_000_000;

/// The number of refreshes of its slots that a node has in hand for SETSLOT.
const REFRESHES: u64 = 64;

/// A key without a state, and the fence of its last hold.
struct Fenced {
    key: String,
    last: u64,
}

impl Fenced {
    fn new(key: String) -> Fenced {
        Fenced { key, last: 0 }
    }

    /// Acquires and releases the key, at the node that the cluster redirects to; its fence must have risen.
    #[track_caller]
    fn use_once(&mut self, router: &mut Router, story: &str) {
        let granted = router.ask(LOCK.acquire(&self.key, "t", ""));
        let fence = fence_of(LOCK, &granted, "t");
        assert_eq!(router.ask(LOCK.release(&self.key, "t")), 1);
        let last = std::mem::replace(&mut self.last, fence);
        assert!(
            fence > last,
            "{fence} follows {last} of {}: {story}",
            self.key
        );
    }

    #[track_caller]
    fn use_times(&mut self, times: usize, router: &mut Router, story: &str) {
        for _ in 0..times {
            self.use_once(router, story);
        }
    }
}

fn last_fence(node: &Server) -> u64 {
    node.info_number("dsync", "dsync_last_fence")
}

/// Waits until each of these nodes has heard how far the other ones are now.
#[track_caller]
fn wait_until_heard(cluster: &Cluster, nodes: &[usize]) {
    let lasts: Vec<_> = nodes
        .iter()
        .map(|node| (*node, last_fence(&cluster[*node])))
        .collect();
    for hearing in nodes {
        let others = lasts.iter().filter(|(node, _)| node != hearing);
        let greatest = others.map(|(_, last)| *last).max().unwrap_or_default();
        eventually("a node to hear of the others' fences", SOON * 3, || {
            cluster[*hearing].info_number("dsync", "dsync_heard_fence") >= greatest
        });
    }
}

/// Gives a slot without keys to a node that does not import it, as `redis-cli --cluster fix` does: the epoch of the
/// node stays as it is.
#[track_caller]
fn set_without_epoch(cluster: &Cluster, slot: u16, (from, to): (usize, usize), others: &[usize]) {
    // The new owner last: whoever takes the old one for the owner would tell it so.
    for node in [&[from], others, &[to]].concat() {
        let line = format!("CLUSTER SETSLOT {slot} NODE {}", cluster.id(to));
        assert_eq!(cluster[node].connect().ask(&line), "OK", "node {node}");
    }
}

/// The importing node granted a lock. The move was given up, and the owner gave lower fences for the same lock: it had
/// not leapt, because the slot had never left it.
#[test]
fn owner_of_given_up_move_grants_higher_fences() {
    let cluster = Cluster::start();
    let mut fenced = Fenced::new(cluster.key_of(0, "k"));
    let slot = cluster.slot(&fenced.key);
    let mut router = cluster.router_from(0);
    // The other nodes get greater epochs than the owner will have: an importing node leaps by the greatest.
    let other = cluster.slot(&cluster.key_of(2, "k"));
    for (from, to) in [(2, 1), (1, 2), (2, 1), (1, 2), (2, 1), (1, 2)] {
        cluster.move_empty(other, from, to);
    }
    for (target, is_heard) in [(1, true), (2, true), (2, false), (1, false), (1, true)] {
        let story = format!("node {target}, {is_heard}");
        if !is_heard {
            // The importing node leaps past what it has heard, which is not what the owner is at.
            fenced.use_once(&mut router, &story);
        }
        let opened = cluster.open_move(slot, 0, target);
        fenced.use_times(2, &mut router, &story);
        if is_heard {
            wait_until_heard(&cluster, &[0, 1, 2]);
        }
        opened.give_up();
        fenced.use_times(2, &mut router, &story);
        // A third node takes part next, and it cannot know of a move whose messages are still under way.
        wait_until_heard(&cluster, &[0, 1, 2]);
    }
}

/// A move was begun, given up, and begun again, faster than the nodes could tell each other: the importing node
/// repeated the very fences that the owner had given in between.
#[test]
fn repeated_moves_give_no_fence_twice() {
    let cluster = Cluster::start();
    let mut fenced = Fenced::new(cluster.key_of(0, "k"));
    let slot = cluster.slot(&fenced.key);
    let mut router = cluster.router_from(0);
    for times in 1..=8 {
        let story = format!("time {times}");
        let opened = cluster.open_move(slot, 0, 1);
        fenced.use_times(times, &mut router, &story);
        opened.give_up();
        fenced.use_times(2 * times, &mut router, &story);
    }
    let opened = cluster.open_move(slot, 0, 1);
    fenced.use_times(20, &mut router, "the last time");
    opened.close();
    fenced.use_times(20, &mut router, "finished");
}

/// Each owner of a slot had a greater epoch, so each leapt farther. But SETSLOT NODE gives a slot to a node that keeps
/// its small epoch, unless that node imports it.
#[test]
fn slot_set_without_new_epoch_keeps_fence_order() {
    let cluster = Cluster::start();
    let mut fenced = Fenced::new(cluster.key_of(2, "k"));
    let slot = cluster.slot(&fenced.key);
    let mut router = cluster.router_from(2);
    for (from, to, other) in [(2, 0, 1), (0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 1, 0)] {
        fenced.use_times(3, &mut router, "before");
        wait_until_heard(&cluster, &[0, 1, 2]);
        set_without_epoch(&cluster, slot, (from, to), &[other]);
        cluster.wait_for_owner(&[0, 1, 2], slot, to);
        fenced.use_times(3, &mut router, &format!("from node {from} to node {to}"));
    }
}

/// While its slot moves, the owner decides about the keys that it still has. It got another slot meanwhile and leapt,
/// and then a key left it that it had decided about: the fences at the importing node were lower ones.
#[test]
fn importing_node_follows_owner_that_leaps_meanwhile() {
    let cluster = Cluster::start();
    let mut fenced = Fenced::new(cluster.key_of(0, "k"));
    let (slot, mut router) = (cluster.slot(&fenced.key), cluster.router_from(0));
    let request = SEMAPHORE
        .acquire(&fenced.key, "stays", "")
        .replace("LIMIT 1", "LIMIT 2");
    router.ask(&request).grant();
    let opened = cluster.open_move(slot, 0, 1);
    // The importing node decides about another key of the slot.
    let other = format!("{{{}}}other", fenced.key);
    fence_of(LOCK, &router.ask(LOCK.acquire(&other, "t", "")), "t");
    // Meanwhile the owner goes far ahead, by the slots of the third node.
    for name in ["x", "y", "z"] {
        let key = cluster.key_of(2, name);
        cluster.move_empty(cluster.slot(&key), 2, 0);
        Fenced::new(key).use_once(&mut router, "a slot of the third node");
    }
    let granted = cluster[0].connect().ask(request.replace("stays", "late"));
    fenced.last = fence_of(SEMAPHORE, &granted, "late");
    let mut owner = cluster[0].connect();
    for token in ["stays", "late"] {
        assert_eq!(owner.ask(SEMAPHORE.release(&fenced.key, token)), 1);
    }
    wait_until_heard(&cluster, &[0, 1, 2]);
    fenced.use_times(3, &mut router, "at the importing node");
    opened.give_up();
}

/// Two moves from one owner were given up. For the second it leapt no farther than it had for the first, while the
/// importing node of the second had followed it past that.
#[test]
fn owner_of_two_given_up_moves_grants_higher_fences() {
    let cluster = Cluster::start();
    let mut fenced = ["k", "j"].map(|name| Fenced::new(cluster.key_of(0, name)));
    let mut router = cluster.router_from(0);
    let [first, second] =
        [(0, 2), (1, 1)].map(|(at, to)| cluster.open_move(cluster.slot(&fenced[at].key), 0, to));
    for key in &mut fenced {
        key.use_once(&mut router, "importing");
    }
    first.give_up();
    fenced[0].use_once(&mut router, "the first");
    wait_until_heard(&cluster, &[0, 1, 2]);
    fenced[1].use_once(&mut router, "following");
    second.give_up();
    fenced[1].use_once(&mut router, "the second");
}

/// A promoted node gave fences two hours ahead, and died with its replica. The node that got its slot had been started
/// again meanwhile and had heard of nothing: its fences were an hour lower.
#[test]
fn restarted_node_knows_fences_it_has_heard() {
    let builder = Cluster::builder().with_replicas();
    let builder = builder.config("cluster-require-full-coverage", "no");
    let mut cluster = builder.config("save", "''").node_timeout_ms(10_000).start();
    let key = cluster.key_of(1, "k");
    let mut fenced = Fenced::new(key);
    let slot = cluster.slot(&fenced.key);
    let all: Vec<usize> = (0..cluster.len()).collect();
    cluster.fail_over_to(4, slot, &all);
    fenced.use_times(3, &mut cluster.router_from(4), "promoted");
    wait_until_heard(&cluster, &[0, 2]);
    eventually("both to hear of the promoted node", SOON, || {
        [0, 2].map(|node| cluster[node].info_number("dsync", "dsync_heard_fence") >= fenced.last)
            == [true; 2]
    });
    cluster[4].kill9();
    cluster[1].kill9();
    // This node has saved nothing. It hears of the fences from the third node.
    cluster[0].kill9();
    cluster[0].start_again();
    let heard = |node: usize| cluster[node].info_number("dsync", "dsync_heard_fence");
    eventually("the third node to tell", SOON, || heard(0) >= fenced.last);
    for node in [2, 0] {
        let line = format!("CLUSTER SETSLOT {slot} NODE {}", cluster.id(0));
        assert_eq!(cluster[node].connect().ask(&line), "OK");
    }
    let mut client = cluster[0].connect();
    eventually("the restarted node to serve", SOON, || {
        !client.ask(LOCK.check(&fenced.key, "t")).is_error()
    });
    fenced.use_once(&mut cluster.router_from(0), "started again");

    // The third node has saved what it had heard, and is started again alone.
    assert_eq!(cluster[2].connect().ask("SAVE"), "OK");
    for node in [0, 3, 5] {
        cluster[node].kill9();
    }
    cluster[2].kill9();
    cluster[2].start_again();
    assert!(last_fence(&cluster[2]) > fenced.last, "it was saved");
}

/// The server tells modules of a command before it checks who sends it. Anybody's refused `CLUSTER ADDSLOTS` before
/// each request made the node ask its server for all slots each time, a third of a millisecond.
#[test]
fn refused_orders_cost_few_looks_and_move_no_fence() {
    let cluster = Cluster::start();
    let keys = [0, 1].map(|node| cluster.key_of(node, "k"));
    let mut clients = [0, 1].map(|node| cluster[node].connect());
    let mut strangers = [0, 1].map(|node| {
        let mut client = cluster[node].connect();
        let user = client.ask("ACL SETUSER stranger on nopass -@all +auth");
        assert_eq!(user, "OK");
        assert_eq!(client.ask("AUTH stranger any"), "OK");
        client
    });
    let addslots = |_: usize| vec!["CLUSTER ADDSLOTS 1 2".to_owned()];
    let setslot = |node: usize| {
        let slot = cluster.slot(&keys[node]);
        let importing = format!("CLUSTER SETSLOT {slot} IMPORTING {}", cluster.id(2));
        vec![importing, format!("CLUSTER SETSLOT {slot} STABLE")]
    };
    type Orders<'a> = &'a dyn Fn(usize) -> Vec<String>;
    let mut refuse_and_ask = |orders: Orders<'_>| {
        for node in [0, 1] {
            for order in orders(node) {
                let refused = strangers[node].ask(order);
                assert!(refused.error().starts_with("NOPERM"), "{refused:?}");
            }
            let client = &mut clients[node];
            let granted = client.ask(LOCK.acquire(&keys[node], "t", ""));
            fence_of(LOCK, &granted, "t");
            assert_eq!(client.ask(LOCK.release(&keys[node], "t")), 1);
        }
    };
    let looks = |node: usize| {
        let stats = cluster[node].info_section("commandstats");
        let calls = |command: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(command));
            let calls = line.and_then(|line| line.split(',').next());
            calls.map_or(0, |calls| calls.parse::<u64>().expect("a number"))
        };
        [
            calls("cmdstat_cluster|nodes:calls="),
            calls("cmdstat_cluster|info:calls="),
        ]
    };
    // Only for SETSLOT has a node looks in hand.
    let phases: [(Orders<'_>, u64); 2] = [(&addslots, 0), (&setslot, REFRESHES)];
    for (orders, in_hand) in phases {
        // The first time a node may leap past what it has heard of the others.
        refuse_and_ask(orders);
        wait_until_heard(&cluster, &[0, 1, 2]);
        refuse_and_ask(orders);
        let before = [0, 1].map(|node| (looks(node), last_fence(&cluster[node])));
        let began = Instant::now();
        // Long enough for the nodes to tell each other of their fences several times.
        let mut rounds = 0;
        while rounds < 500 || began.elapsed() < Duration::from_secs(4) {
            refuse_and_ask(orders);
            rounds += 1;
        }
        let elapsed_s = began.elapsed().as_secs() + 1;
        for (node, (looked, fence)) in before.into_iter().enumerate() {
            for (after, before) in looks(node).into_iter().zip(looked) {
                // One more for each regular look.
                let bound = in_hand + elapsed_s + elapsed_s / 10 + 1;
                assert!(
                    after - before <= bound,
                    "{} looks in {elapsed_s} s at {rounds} orders: {:?}",
                    after - before,
                    orders(node)
                );
            }
            let risen = last_fence(&cluster[node]) - fence;
            assert!(
                risen < LEVEL_US,
                "the fences rose by {risen} µs in {rounds} rounds"
            );
        }
    }
}

/// A node with an epoch near 2^53 leapt as far, so all fences from then on were 9007199254740991, one after the other.
#[test]
fn epoch_near_the_greatest_number_takes_no_fence_ahead() {
    let mut cluster = Cluster::builder().first_epoch((1 << 53) - 3).start();
    let mut fenced = Fenced::new(cluster.key_of(0, "k"));
    let slot = cluster.slot(&fenced.key);
    let mut router = cluster.router_from(0);
    let is_near = |fenced: &Fenced| {
        assert!(
            fenced.last < unix_us() + HALF_YEAR_US,
            "{} is far ahead",
            fenced.last
        );
    };
    fenced.use_times(3, &mut router, "at first");
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        wait_until_heard(&cluster, &[0, 1, 2]);
        cluster.move_empty(slot, from, to);
        fenced.use_times(3, &mut router, "moved");
        is_near(&fenced);
        let (other, story) = ((to + 1) % 3, format!("given up from node {to}"));
        wait_until_heard(&cluster, &[0, 1, 2]);
        let opened = cluster.open_move(slot, to, other);
        fenced.use_times(3, &mut router, &story);
        wait_until_heard(&cluster, &[0, 1, 2]);
        opened.give_up();
        fenced.use_times(3, &mut router, &story);
        is_near(&fenced);
    }
    for node in 0..3 {
        let warned = cluster[node]
            .log_text()
            .matches("has the config epoch 90071992547")
            .count();
        assert_eq!(warned, 1, "node {node}");
    }
    assert_eq!(cluster[0].connect().ask("SAVE"), "OK");
    cluster[0].kill9();
    cluster[0].start_again();
    cluster.wait_until_ok(&[0, 1, 2]);
    fenced.use_times(3, &mut cluster.router_from(0), "started again");
    is_near(&fenced);
}

/// Slots of a cluster that move at random. One key of each is used between the steps.
struct RandomMoves<'c> {
    cluster: &'c Cluster,
    rng: StdRng,
    router: Router,
    slots: Vec<MovedSlot<'c>>,
}

struct MovedSlot<'c> {
    fenced: Fenced,
    slot: u16,
    owner: usize,
    /// The move that is under way, and to which node.
    open: Option<(Move<'c>, usize)>,
}

impl RandomMoves<'_> {
    /// One step: begins a move, gives it up, finishes it, or gives the slot away without a new epoch. All nodes have
    /// heard of the step before: only moves of one slot between two nodes may be faster, which have stories of their
    /// own.
    fn step(&mut self) -> String {
        let cluster = self.cluster;
        let at = self.rng.random_range(0..self.slots.len());
        let (choice, offset) = (self.rng.random_range(0..10), self.rng.random_range(1..3));
        let moved = &mut self.slots[at];
        let (slot, owner) = (moved.slot, moved.owner);
        let to = (owner + offset) % 3;
        wait_until_heard(cluster, &[0, 1, 2]);
        match moved.open.take() {
            Some((opened, target)) if choice < 7 => {
                opened.give_up();
                format!("{slot} stays at {owner}, not {target}")
            }
            Some((opened, target)) => {
                moved.owner = target;
                opened.close();
                format!("{slot} has moved from {owner} to {target}")
            }
            None if choice < 8 => {
                moved.open = Some((cluster.open_move(slot, owner, to), to));
                format!("{slot} moves from {owner} to {to}")
            }
            None => {
                set_without_epoch(cluster, slot, (owner, to), &[3 - owner - to]);
                cluster.wait_for_owner(&[0, 1, 2], slot, to);
                moved.owner = to;
                format!("{slot} is set from {owner} to {to}")
            }
        }
    }

    fn use_keys(&mut self, story: &str) {
        for moved in &mut self.slots {
            let times = self.rng.random_range(0..4);
            moved.fenced.use_times(times, &mut self.router, story);
        }
    }
}

/// Runs random moves, and asserts that the fences of each key rise. DSYNC_SEED chooses the seed.
#[test]
fn random_moves_keep_fence_order() {
    let seed = std::env::var("DSYNC_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(11);
    let cluster = Cluster::start();
    let slots = ["k", "j"].map(|name| {
        let key = cluster.key_of(0, name);
        MovedSlot {
            slot: cluster.slot(&key),
            fenced: Fenced::new(key),
            owner: 0,
            open: None,
        }
    });
    let mut moves = RandomMoves {
        cluster: &cluster,
        rng: StdRng::seed_from_u64(seed),
        router: cluster.router_from(0),
        slots: slots.into(),
    };
    let mut stories = format!("seed {seed}");
    // The steps come faster than in an operator's cluster, and the nodes have so many refreshes in hand.
    for _ in 0..40 {
        stories = format!("{stories}\n{}", moves.step());
        moves.use_keys(&stories);
    }
    for node in 0..3 {
        assert_calm(&cluster[node]);
    }
}
