//! Places that are kept without a connection (QUEUE): their turn, their time, and how they end.

use crate::fixture::{KEY, MS, OTHER, exclusive, fence, member, permits, shared, word, world};
use crate::long_queues::OneKey;
use crate::model::TICK_US;
use crate::server::Done;
use crate::steps::{Step, ask};
use crate::world::World;
use dsync_engine::LaneName;
use dsync_engine::answer::{Answer, FullQueue, Refusal};
use dsync_engine::change::{Change, End, KeptPlace};
use dsync_engine::types::{Claim, ClientId, Fence, LeaseMs, MonoUs, Rank, Token};
use dsync_engine::unasked::UnaskedEnd;
use dsync_engine::{Family, Reply, Request, Settings, Visit};

pub const KEEP_MS: u32 = 5_000;

/// Returns the place in line of a request that was not granted.
fn place(answer: Option<Answer>) -> u32 {
    match answer {
        Some(Answer::Waiting { position, .. }) => position,
        other => panic!("it does not wait: {other:?}"),
    }
}

fn undelivered(world: &World, family: Family) -> u64 {
    let stats = world.primary.engine.stats();
    stats.counters(family).undelivered
}

fn release(world: &mut World, token: u8) {
    world.step(&Step::Release(KEY, Family::Lock, token));
}

/// A world in which token 0 holds the lock, and tokens 1 and 2 have kept places.
fn two_kept() -> World {
    let mut world = world();
    world.ask(exclusive(0));
    assert_eq!(place(world.ask(exclusive(1).keep(KEEP_MS))), 1);
    assert_eq!(place(world.ask(exclusive(2).keep(KEEP_MS))), 2);
    world
}

#[test]
fn kept_place_is_granted_in_its_turn_and_announced() {
    let mut world = two_kept();
    release(&mut world, 0);
    let [(KEY, _, announced)] = world.announced[..] else {
        panic!("one turn: {:?}", world.announced);
    };
    assert_eq!(world.holders(KEY), 1, "it holds, whoever listens");
    assert_eq!(fence(world.ask(exclusive(1).keep(KEEP_MS))), announced.0);
    world.step(&Step::Pass { us: 9_999 * MS });
    world.tick();
    assert_eq!(world.holders(KEY), 1, "the whole lease, from then");
    assert_eq!(undelivered(&world, Family::Lock), 0);
}

/// A client died in the queue. It must cost the others no more than its own QUEUE ms, and no attempt of the work.
#[test]
fn unheard_hold_ends_as_undelivered_after_its_ms() {
    for (lease_ms, ends_ms) in [(10_000, KEEP_MS), (1_000, 1_000)] {
        let mut world = world();
        let run = |token| ask(KEY, Claim::Run, token).lease(lease_ms);
        world.ask(run(0));
        world.ask(run(1).keep(KEEP_MS));
        world.ask(run(2).block());
        world.step(&Step::Fail(KEY, 0, "broken", 0));
        assert_eq!(world.heard(), [], "the run is token 1's");
        assert_eq!(world.after_ms(u64::from(ends_ms) - 2), []);
        assert_eq!(world.after_ms(4), [(2, "run")]);
        let Some(Answer::Run { attempt, .. }) = world.ask(run(2)) else {
            panic!("it runs");
        };
        assert_eq!(attempt, 2, "the run that nobody heard of does not count");
        assert_eq!(undelivered(&world, Family::Once), 1);
        assert!(world.model.seats(KEY).is_empty(), "it leaves no place");
        let is_lapse = |(_, end): &(_, UnaskedEnd)| end.how == End::Lapsed;
        assert!(!world.ended.iter().any(is_lapse), "no lapse to warn of");
    }
}

#[test]
fn unheard_member_is_not_lost() {
    let mut world = world();
    world.ask(member(0).limit(1));
    world.ask(member(1).keep(KEEP_MS));
    world.step(&Step::Done(KEY, vec![0]));
    world.after_ms(u64::from(KEEP_MS) + 2);
    let finished = world.step(&Step::Wait(KEY, None, 9));
    assert_eq!(finished, Some(Answer::Finished { done: 1, lapsed: 0 }));
}

#[test]
fn renewal_hears_of_hold_and_check_does_not() {
    for renews in [true, false] {
        let mut world = two_kept();
        release(&mut world, 0);
        world.step(&Step::Check(KEY, Family::Lock, 1));
        if renews {
            world.step(&Step::Renew(KEY, Family::Lock, 1, None));
        }
        world.after_ms(u64::from(KEEP_MS) + 2);
        assert_eq!(world.announced.len(), usize::from(!renews), "token 2");
    }
}

#[test]
fn kept_place_runs_out_unless_asked_for() {
    let mut world = two_kept();
    world.step(&Step::Pass { us: 4_000 * MS });
    assert_eq!(place(world.ask(exclusive(2).keep(KEEP_MS))), 2);
    world.after_ms(1_002);
    assert_eq!(place(world.ask(exclusive(2).keep(KEEP_MS))), 1, "1 is gone");
    assert_eq!(world.announced, [], "nobody is told");
}

/// A stall of the server must drop nobody whose request waits in the socket.
#[test]
fn stall_drops_no_kept_place() {
    let mut world = two_kept();
    world.steps(&[Step::Stall { us: 90_000 * MS }, Step::Tick]);
    assert_eq!(place(world.ask(exclusive(2).keep(KEEP_MS))), 2);
    world.steps(&[Step::MayWrite(false), Step::Pass { us: 90_000 * MS }]);
    world.steps(&[Step::Tick, Step::MayWrite(true), Step::Tick]);
    assert_eq!(place(world.ask(exclusive(2).keep(KEEP_MS))), 2);
}

#[test]
fn try_by_token_of_kept_place_changes_nothing() {
    let mut world = two_kept();
    assert_eq!(world.ask(exclusive(1)), Some(Answer::NotGranted));
    assert_eq!(place(world.ask(exclusive(2).keep(KEEP_MS))), 2);
    let mismatch = world.ask(shared(1).keep(KEEP_MS));
    assert_eq!(mismatch, Some(Answer::Refused(Refusal::Mismatch)));
    assert_eq!(
        world.ask(exclusive(3)),
        Some(Answer::NotGranted),
        "they wait"
    );
}

#[test]
fn queue_takes_over_waiting_or_vacant_place() {
    for closes in [false, true] {
        let mut world = world();
        world.ask(exclusive(0));
        world.ask(exclusive(1).block());
        world.ask(exclusive(2).keep(KEEP_MS));
        if closes {
            world.step(&Step::Disconnect(1));
        }
        let first = world.ask(exclusive(1).conn(9).keep(KEEP_MS));
        assert_eq!(place(first), 1, "at its old rank");
        let told: &[_] = if closes { &[] } else { &[(1, "superseded")] };
        assert_eq!(world.heard(), told);
        world.after_ms(3_000);
        assert_eq!(
            place(world.ask(exclusive(1).keep(KEEP_MS))),
            1,
            "not vacant"
        );
    }
}

#[test]
fn block_on_kept_place_keeps_it_however_the_wait_ends() {
    let ends: [&[Step]; 3] = [
        &[Step::Pass { us: 7 * MS }, Step::Tick],
        &[Step::Disconnect(1)],
        &[Step::Unblock(1)],
    ];
    for end in ends {
        let mut world = two_kept();
        world.ask(exclusive(1).block_ms(7));
        world.after_ms(1);
        world.steps(end);
        world.after_ms(u64::from(KEEP_MS) - 10);
        release(&mut world, 0);
        assert_eq!(world.announced.len(), 1, "{end:?}: it is the first");
        assert!(matches!(
            world.ask(exclusive(1)),
            Some(Answer::Granted { .. })
        ));
    }
}

#[test]
fn kept_place_lasts_while_its_client_waits() {
    let mut world = two_kept();
    world.ask(exclusive(1).block());
    world.after_ms(9_000);
    release(&mut world, 0);
    assert_eq!(world.heard(), [(1, "granted")]);
    assert_eq!(world.announced, [], "the client itself is told");
}

/// The reply with the grant was lost with its connection, or the client was told something else in the same turn.
#[test]
fn undelivered_grant_of_kept_place_is_kept_again_at_its_rank() {
    let mut world = two_kept();
    world.ask(exclusive(1).block());
    release(&mut world, 0);
    world.step(&Step::FindGone {
        reported_first: false,
    });
    world.tick();
    assert_eq!(world.announced.len(), 1, "and granted again at once");
    assert!(matches!(
        world.ask(exclusive(1)),
        Some(Answer::Granted { .. })
    ));
}

#[test]
fn release_and_revoke_withdraw_kept_place() {
    for revokes in [true, false] {
        let mut world = two_kept();
        let step = match revokes {
            true => Step::RevokePlace(KEY, Family::Lock, 0),
            false => Step::Release(KEY, Family::Lock, 1),
        };
        world.step(&step);
        assert_eq!(place(world.ask(exclusive(2).keep(KEEP_MS))), 1);
        world.ask(exclusive(2).block());
        world.step(&Step::RevokePlace(KEY, Family::Lock, 0));
        assert_eq!(world.heard(), [(2, "withdrawn")], "a client that waits too");
    }
}

#[test]
fn kept_place_is_refused_under_lower_limit_and_announced_as_dropped() {
    let mut world = world();
    world.ask(permits(0, 3).limit(3));
    world.ask(permits(1, 3).keep(KEEP_MS));
    world.step(&Step::Pin(KEY, Some(2)));
    // The model has compared the announcement; only a grant is listed here.
    assert_eq!(world.announced, []);
    assert_eq!(world.model.waiters(KEY), 0);
    let refused = world.ask(permits(1, 3).keep(KEEP_MS));
    assert_eq!(refused.as_ref().map(word), Some("too many"));
}

/// A place was dropped because the work had failed, and 0 was announced. When its token asked why, others still waited,
/// so it was put at the end of the queue instead of being told.
#[test]
fn kept_place_dropped_as_failed_is_told_so_when_it_asks() {
    let run = |token| ask(KEY, Claim::Run, token);
    let mut world = world();
    world.ask(run(0));
    place(world.ask(run(1).max_attempts(1).keep(KEEP_MS)));
    place(world.ask(run(2).max_attempts(9).keep(KEEP_MS)));
    world.after_ms(200);
    world.step(&Step::Fail(KEY, 0, "disk", 0));
    assert_eq!(world.announced.len(), 1, "the next in line runs");
    for late in [
        run(1).max_attempts(1).keep(KEEP_MS),
        run(1).max_attempts(9).block(),
        run(1),
    ] {
        let told = world.ask(late);
        let Some(Answer::GivenUp { reason, attempts }) = told else {
            panic!("{told:?}");
        };
        assert_eq!((&*reason, attempts), (&b"disk"[..], 1));
    }
    // It is no waiter, and nothing to withdraw.
    assert_eq!(world.model.waiters(KEY), 0);
    world.step(&Step::Release(KEY, Family::Once, 1));
    assert_eq!(world.ask(run(1)).as_ref().map(word), Some("given up"));
}

/// A later attempt did the work, and all others were told so: the token of a place that had been dropped as failed was
/// told FAILED for as long as its place would have been kept.
#[test]
fn kept_place_dropped_as_failed_is_told_done_once_the_work_is_done() {
    let run = |token| ask(KEY, Claim::Run, token);
    for late in [
        run(1).max_attempts(1).keep(KEEP_MS),
        run(1).max_attempts(9).block(),
        run(1).max_attempts(1),
    ] {
        let mut world = world();
        world.ask(run(0));
        place(world.ask(run(1).max_attempts(1).keep(KEEP_MS)));
        place(world.ask(run(2).max_attempts(9).keep(KEEP_MS)));
        world.step(&Step::Fail(KEY, 0, "disk", 0));
        let told = world.ask(late.clone());
        assert_eq!(told.as_ref().map(word), Some("given up"), "{late:?}");
        world.step(&Step::Complete(KEY, 2, Some("result"), None));
        let told = world.ask(late.clone());
        assert_eq!(told.as_ref().map(word), Some("done"), "{late:?}");
    }
}

/// What was decided is told for what was left of the place's time, and not longer.
#[test]
fn decision_about_kept_place_is_told_for_the_rest_of_its_ms() {
    for (passed_ms, expected) in [(1, "too many"), (0, "granted")] {
        let mut world = world();
        world.ask(permits(0, 3).limit(3));
        place(world.ask(permits(1, 3).keep(KEEP_MS)));
        world.after_ms(400);
        world.step(&Step::Pin(KEY, Some(2)));
        world.step(&Step::Pin(KEY, None));
        world.step(&Step::Release(KEY, Family::Semaphore, 0));
        world.after_ms(u64::from(KEEP_MS) - 400 - passed_ms);
        let answer = world.ask(permits(1, 3).limit(3));
        assert_eq!(answer.as_ref().map(word), Some(expected));
    }
}

/// The timer was late, so the work failed when the place's time was over. The token may run if it asks again.
#[test]
fn decision_about_kept_place_that_is_over_is_told_to_nobody() {
    let run = |token| ask(KEY, Claim::Run, token);
    let mut world = world();
    world.ask(run(0));
    place(world.ask(run(1).max_attempts(1).keep(KEEP_MS)));
    let us = u64::from(KEEP_MS) * MS;
    world.steps(&[Step::Pass { us }, Step::Fail(KEY, 0, "disk", 0)]);
    assert_eq!(world.ask(run(1)).as_ref().map(word), Some("run"));
}

/// What a request with QUEUE is told in its own call is not told again to the next one.
#[test]
fn decision_told_at_once_is_not_kept_for_the_token() {
    let run = |token| ask(KEY, Claim::Run, token);
    let mut world = world();
    world.ask(run(0));
    place(world.ask(run(1).max_attempts(9).keep(KEEP_MS)));
    world.step(&Step::Fail(KEY, 0, "disk", 1_000));
    let told = world.ask(run(1).max_attempts(1).keep(KEEP_MS));
    assert_eq!(told.as_ref().map(word), Some("given up"));
    place(world.ask(run(1).max_attempts(9).keep(KEEP_MS)));
}

/// An operator has withdrawn the place: its token may ask again, at the end of the queue.
#[test]
fn revoked_place_leaves_its_token_free_to_ask_again() {
    let mut world = two_kept();
    world.step(&Step::RevokePlace(KEY, Family::Lock, 0));
    assert_eq!(place(world.ask(exclusive(1).keep(KEEP_MS))), 2);
}

#[test]
fn removed_key_is_granted_to_kept_place() {
    let removals = [
        Step::Delete(KEY),
        Step::Rename(KEY, OTHER),
        Step::Swap(0, 1),
    ];
    for removal in removals {
        let mut world = two_kept();
        world.steps(&[removal.clone(), Step::Tick]);
        assert_eq!(world.announced.len(), 1, "{removal:?}");
        assert!(matches!(
            world.ask(exclusive(1)),
            Some(Answer::Granted { .. })
        ));
        assert_eq!(place(world.ask(exclusive(2).keep(KEEP_MS))), 1);
    }
}

#[test]
fn overwritten_key_drops_its_kept_places() {
    let mut world = two_kept();
    world.ask(exclusive(2).block());
    world.steps(&[Step::MayWrite(false), Step::Overwrite(KEY), Step::Tick]);
    assert_eq!(world.model.seats(KEY).len(), 2, "no LEAVE can be written");
    world.steps(&[Step::MayWrite(true), Step::Tick]);
    assert_eq!(world.heard(), [(2, "wrong type")]);
    assert!(world.model.seats(KEY).is_empty());
}

#[test]
fn flush_drops_kept_places_and_leaves_waiting_clients() {
    for db in [None, Some(0)] {
        let mut world = two_kept();
        world.ask(exclusive(2).block());
        world.ask(exclusive(3).block());
        world.steps(&[Step::Flush(db), Step::Tick]);
        assert_eq!(world.heard(), [(2, "granted")], "{db:?}");
        assert_eq!(world.announced, []);
    }
    let mut world = two_kept();
    world.steps(&[Step::Flush(Some(1)), Step::Tick]);
    assert_eq!(place(world.ask(exclusive(2).keep(KEEP_MS))), 2);
}

/// After each kind of change of servers the kept places stand in their old order, before those who come back.
#[test]
fn kept_places_keep_their_order_across_servers() {
    let (ms, changes) = (10_000, [false, true]);
    let [from_rdb, from_aof] = changes.map(|as_changes| Step::Restart { as_changes, ms });
    for change in [
        from_rdb,
        from_aof,
        Step::Failover { ms },
        Step::Demote { ms },
    ] {
        let mut world = two_kept();
        world.ask(exclusive(2).block());
        world.ask(exclusive(3).block());
        world.step(&change);
        world.ask(exclusive(3).block());
        // Each has as long as QUEUE said, or the grace if that is longer.
        world.after_ms(4_990);
        assert_eq!(
            place(world.ask(exclusive(2).keep(KEEP_MS))),
            2,
            "{change:?}"
        );
        assert_eq!(
            place(world.ask(exclusive(1).keep(KEEP_MS))),
            1,
            "{change:?}"
        );
        release(&mut world, 0);
        assert_eq!(world.announced.len(), 1, "{change:?}");
        world.after_ms(20);
        world.step(&Step::Restart {
            as_changes: false,
            ms: 1_000_000,
        });
        world.after_ms(4_990);
        let held = world.ask(exclusive(1));
        assert_eq!(
            held.as_ref().map(word),
            Some("granted"),
            "unheard of as well"
        );
    }
}

#[test]
fn kept_places_run_out_after_take_over() {
    let mut world = two_kept();
    world.step(&Step::Failover { ms: 60_000 });
    world.after_ms(5_002);
    assert_eq!(place(world.ask(exclusive(3).keep(KEEP_MS))), 1);
}

#[test]
fn kept_places_take_half_of_each_bound() {
    let mut world = World::new(Settings {
        max_waiters: 8,
        max_waiters_per_key: 6,
        ..Settings::default()
    });
    let full = |full| Some(Answer::Refused(Refusal::QueueFull(full)));
    world.ask(exclusive(0));
    world.ask(ask(OTHER, Claim::Exclusive, 0));
    for token in 1..=3 {
        assert_eq!(
            place(world.ask(exclusive(token).keep(KEEP_MS))),
            u32::from(token)
        );
    }
    let bound = 3;
    let refused = world.ask(exclusive(4).keep(KEEP_MS));
    assert_eq!(refused, full(FullQueue::HalfOfKey(bound)));
    world.ask(exclusive(5).block());
    let refused = world.ask(exclusive(5).conn(9).keep(KEEP_MS));
    assert_eq!(refused, full(FullQueue::HalfOfKey(bound)), "nor converted");
    assert_eq!(
        place(world.ask(exclusive(3).keep(KEEP_MS))),
        3,
        "asked again"
    );
    place(world.ask(ask(OTHER, Claim::Exclusive, 4).keep(KEEP_MS)));
    let bound = 4;
    let refused = world.ask(ask(OTHER, Claim::Exclusive, 6).keep(KEEP_MS));
    assert_eq!(refused, full(FullQueue::HalfOfServer(bound)));
}

/// A request with LIMIT lets the first in line in, and itself: it must be told so, and not keep a place.
/// A place that is not to be kept needs no room among those that are.
#[test]
fn wait_goes_on_from_another_connection_beside_all_kept_places() {
    let mut world = World::new(Settings {
        max_waiters_per_key: 4,
        ..Settings::default()
    });
    world.ask(exclusive(0));
    for token in [1, 2] {
        let kept = world.ask(exclusive(token).keep(KEEP_MS)).expect("at once");
        assert_eq!(word(&kept), "waiting");
    }
    assert_eq!(world.ask(exclusive(3).block()), None);
    assert_eq!(world.ask(exclusive(3).conn(5).block()), None);
    assert_eq!(world.heard(), [(3, "superseded")]);
}

#[test]
fn queue_request_granted_in_its_own_call_is_answered_so() {
    let mut world = world();
    world.ask(permits(0, 1).limit(1));
    world.ask(permits(1, 1).keep(KEEP_MS));
    let answer = world.ask(permits(2, 1).limit(3).keep(KEEP_MS));
    assert_eq!(answer.as_ref().map(word), Some("granted"));
    assert_eq!(world.announced.len(), 1, "token 1's turn only");
    world.after_ms(9_990);
    assert_eq!(
        world.holders(KEY),
        2,
        "it has its whole lease, as token 0 has"
    );
}

impl OneKey {
    /// Sends a request with QUEUE on a connection that all clients share.
    pub fn queue(&mut self, client: u64, owner: Option<&str>) -> (Reply, Done) {
        let request = Request {
            claim: Claim::Exclusive,
            limit: None,
            bound: None,
            lease: LeaseMs(30_000),
            min_hold: None,
            wait: None,
            keep_ms: Some(KEEP_MS),
            token: client_token(client),
            may_return: true,
            client: ClientId(7),
            ephemeral: false,
            owner: owner.map(|owner| owner.as_bytes().into()),
            lane: LaneName::default(),
            may_grow: true,
        };
        let now = self.now;
        self.server
            .call(KEY, Family::Lock, now, |visit| visit.acquire(request))
    }

    fn ask(&mut self, request: Request) -> Done {
        let (family, now) = (request.claim.family(), self.now);
        let acquire = |visit: &mut Visit<'_>| visit.acquire(request);
        self.server.call(KEY, family, now, acquire).1
    }

    /// Takes the lock, and keeps places for these clients.
    pub fn with_places(clients: std::ops::RangeInclusive<u64>) -> OneKey {
        let mut one_key = OneKey::new();
        one_key.acquire(Claim::Exclusive, None, None, 0);
        for client in clients {
            let (reply, _) = one_key.queue(client, None);
            assert!(matches!(reply, Reply::Now(Answer::Waiting { .. })));
        }
        one_key
    }

    pub fn places(&self) -> Vec<KeptPlace> {
        self.server.places(KEY)
    }

    pub fn check(&self) {
        self.server.engine.check_invariants(self.now);
    }

    pub fn later(&mut self, ms: u64) {
        self.now.mono.0 += ms * MS;
        self.now.unix_us += ms * MS;
        self.now.lease.0 += (ms * MS).next_multiple_of(TICK_US);
    }

    pub fn run_tasks(&mut self) -> Vec<Change> {
        let all = self.server.run_tasks(self.now);
        self.check();
        all.into_iter().flat_map(|done| done.changes).collect()
    }
}

pub fn client_token(client: u64) -> Token {
    Token::parse(format!("client {client}").as_bytes()).expect("legal")
}

/// The value under a name with kept places was replaced by another. A request that changes nothing must still note it,
/// because the places are saved with it.
#[test]
fn kept_places_are_saved_with_the_value_that_replaced_theirs() {
    let mut world = two_kept();
    world.ask(ask(OTHER, Claim::Exclusive, 3));
    world.step(&Step::Rename(OTHER, KEY));
    assert_eq!(world.ask(exclusive(4)), Some(Answer::NotGranted));
    assert!(world.primary.engine.unheld_places().is_empty());
}

/// A client waits on its kept place, and asks with QUEUE on another connection: the place runs out again, before all
/// else that is due. `Server::call` checks that the caller is told so.
#[test]
fn place_that_is_kept_again_comes_due_earlier() {
    let mut one_key = OneKey::with_places(1..=1);
    let until = MonoUs(one_key.now.mono.0 + 20_000 * MS);
    one_key.acquire(Claim::Exclusive, None, Some(until), 1);
    assert_eq!(one_key.queue(1, None).1.wakes.len(), 1, "it is superseded");
    let wake = one_key.server.engine.next_wake(one_key.now);
    assert_eq!(wake, Some(u64::from(KEEP_MS) * MS));
}

/// A request that differs from its place in anything must change the place, here and on the replicas.
#[test]
fn asking_again_replicates_only_what_is_new() {
    let mut one_key = OneKey::new();
    let first = Request {
        claim: Claim::Run,
        limit: None,
        bound: Some(3),
        lease: LeaseMs(30_000),
        min_hold: None,
        wait: None,
        keep_ms: Some(KEEP_MS),
        token: client_token(1),
        may_return: true,
        client: ClientId(7),
        ephemeral: false,
        owner: None,
        lane: LaneName::default(),
        may_grow: true,
    };
    let holder = Request {
        token: client_token(0),
        ..first.clone()
    };
    one_key.ask(holder);
    let began = one_key.now.unix();
    one_key.ask(first.clone());
    one_key.later(1_000);
    let others = [
        Request {
            keep_ms: Some(KEEP_MS + 1),
            ..first.clone()
        },
        Request {
            lease: LeaseMs(30_001),
            ..first.clone()
        },
        Request {
            bound: None,
            ..first.clone()
        },
        Request {
            owner: Some(b"web-1".as_slice().into()),
            ..first.clone()
        },
    ];
    // Each request differs in one thing at most from the one before.
    let again = others.into_iter().flat_map(|other| [other, first.clone()]);
    for request in [first.clone()].into_iter().chain(again) {
        let known = one_key.places();
        let done = one_key.ask(request.clone());
        let [place] = &one_key.places()[..] else {
            panic!("one place");
        };
        let as_asked = KeptPlace {
            rank: place.rank,
            token: request.token,
            claim: request.claim,
            lease: request.lease,
            min_hold: request.min_hold,
            keep_ms: request.keep_ms.expect("QUEUE"),
            bound: request.bound,
            owner: request.owner,
            since: began,
            lane: request.lane,
        };
        assert_eq!(*place, as_asked);
        let new = (known != [as_asked.clone()]).then_some(Change::Place(as_asked));
        assert_eq!(done.changes, Vec::from_iter(new));
    }
}

#[test]
fn place_in_line_is_counted_up_to_100() {
    let mut one_key = OneKey::with_places(1..=98);
    for (client, expected) in [(99, 99), (100, 100), (101, 100), (500, 100), (1, 1)] {
        let (reply, _) = one_key.queue(client, None);
        let Reply::Now(Answer::Waiting { position, .. }) = reply else {
            panic!("{client}: {reply:?}");
        };
        assert_eq!(position, expected, "client {client}");
    }
}

#[test]
fn grant_takes_place_away_without_leave() {
    let mut one_key = OneKey::with_places(1..=2);
    let now = one_key.now;
    let (_, done) = one_key.server.call(KEY, Family::Lock, now, |visit| {
        visit.release(Family::Lock, &client_token(0))
    });
    let [
        Change::End { .. },
        Change::Grant(grant),
        Change::Unheard { fence, keep_ms },
    ] = &done.changes[..]
    else {
        panic!("{:?}", done.changes);
    };
    assert_eq!((*fence, *keep_ms), (grant.fence, KEEP_MS));
    assert_eq!(
        grant.lease,
        LeaseMs(30_000),
        "the lease as it was asked for"
    );
    assert_eq!(grant.deadline, now.unix().after_ms(u64::from(KEEP_MS)));
    assert_eq!(one_key.places().len(), 1);
    one_key.later(u64::from(KEEP_MS) + 2);
    let changes = one_key.run_tasks();
    let [
        Change::End { how, .. },
        Change::Leave { .. } | Change::Grant(_),
        ..,
    ] = &changes[..]
    else {
        panic!("{changes:?}");
    };
    assert_eq!(*how, End::Undelivered);
}

#[test]
fn key_with_kept_places_does_not_vanish() {
    let mut one_key = OneKey::with_places(1..=1);
    one_key.later(u64::from(KEEP_MS) + 2);
    let changes = one_key.run_tasks();
    let number = match &changes[..] {
        [Change::Leave { rank }] => *rank,
        other => panic!("{other:?}"),
    };
    assert!(number > Rank(Fence(0)));
    assert!(one_key.server.state(KEY).is_some(), "it is held");
}

/// After a take-over a kept place may have no moment yet when the timer comes. It is over all the same, and holds up
/// nobody: the grant behind it wins over the time-out.
#[test]
fn place_over_before_its_moment_was_given_lets_next_in() {
    let mut world = world();
    fence(world.ask(shared(0)));
    world.ask(exclusive(1).keep(9));
    world.step(&Step::Demote { ms: 5 });
    assert_eq!(world.ask(shared(2).block_ms(1)), None);
    world.ask(shared(3).keep(6_000));
    assert_eq!(world.after_ms(7_000), [(2, "granted")]);
    assert_eq!(world.announced.len(), 1, "and the kept one");
}
