//! Changes that another server decided: all changes of a command are applied or none, and a change that does not fit is
//! not recorded. Also the fences that come with them, whatever clock gave them.

use crate::long_queues::{KEY, OneKey};
use crate::server::key_bytes;
use crate::world::START_US;
use dsync_engine::LaneName;
use dsync_engine::answer::Answer;
use dsync_engine::calls::follow::Unfollowed;
use dsync_engine::calls::unfit::Unfit;
use dsync_engine::change::{Change, Completion, Displaced, End, Limits};
use dsync_engine::hold::{Grant, Rest};
use dsync_engine::saved::Loaded;
use dsync_engine::types::{Claim, ClientId, Db, Fence, LeaseMs, LeaseUs, MonoUs, Token, UnixMs};
use dsync_engine::{Body, Family, Misfit, Reply, Request};

const YEAR_US: u64 = 366 * 86_400 * 1_000_000;

fn grant(fence: u64, token: &str, claim: Claim) -> Change {
    Change::Grant(Grant {
        fence: Fence(fence),
        token: Token::parse(token.as_bytes()).expect("legal"),
        claim,
        index: None,
        rest: Rest::None,
        lease: LeaseMs(30_000),
        deadline: UnixMs(START_US / 1_000 + 30_000),
        granted: UnixMs(START_US / 1_000),
        renewed: false,
        owner: None,
        lane: LaneName::default(),
    })
}

fn end(fence: u64) -> Change {
    Change::End {
        fence: Fence(fence),
        how: End::Released,
        at: UnixMs(START_US / 1_000),
    }
}

/// Returns a replica.
fn follower() -> OneKey {
    let mut one_key = OneKey::new();
    one_key.server.engine.stand_down();
    one_key
}

impl OneKey {
    fn follow(&mut self, family: Family, changes: &[Change]) -> Result<(), Unfollowed> {
        let now = self.now;
        let follow = |visit: &mut dsync_engine::Visit<'_>| visit.follow(family, changes);
        let (followed, done) = self.server.call(KEY, family, now, follow);
        assert!(done.changes.is_empty(), "a replica decides nothing");
        self.server.engine.check_invariants(now);
        followed
    }

    fn run(&mut self, token: &str, wait: Option<MonoUs>, client: u64) -> Reply {
        let request = Request {
            claim: Claim::Run,
            limit: None,
            bound: None,
            lease: LeaseMs(30_000),
            wait,
            min_hold: None,
            keep_ms: None,
            token: Token::parse(token.as_bytes()).expect("legal"),
            may_return: true,
            client: ClientId(client),
            ephemeral: false,
            owner: None,
            lane: LaneName::default(),
            may_grow: true,
        };
        let now = self.now;
        let call = |visit: &mut dsync_engine::Visit<'_>| visit.acquire(request);
        let (reply, done) = self.server.call(KEY, Family::Once, now, call);
        self.take(done.wakes);
        reply
    }
}

/// The lease clock must go past every moment that a server gave, and only a server that decides gives any.
#[test]
fn replica_gives_no_moment_to_a_hold_that_it_follows() {
    let mut one_key = follower();
    let changes = [grant(1, "t", Claim::Exclusive)];
    assert_eq!(one_key.follow(Family::Lock, &changes), Ok(()));
    assert_eq!(one_key.server.engine.latest_due(), LeaseUs(0));
}

/// A semaphore's waiter disconnected, and its vacant place kept the queue with the remembered limit. The key became
/// work-once and was deleted, and the next waiter was granted under the semaphore's limit. So the AOF had a LIMIT for a
/// work-once key, which no server could load.
#[test]
fn remembered_limit_is_not_used_by_another_family() {
    let mut one_key = OneKey::new();
    one_key.acquire(Claim::Permits(1), Some(1), None, 0);
    one_key.acquire(Claim::Permits(1), Some(1), Some(MonoUs::NEVER), 1);
    one_key.server.engine.disconnected(ClientId(1), one_key.now);
    let now = one_key.now;
    let token = Token::parse(b"client 0").expect("legal");
    let (released, _) = one_key.server.call(KEY, Family::Semaphore, now, |visit| {
        visit.release(Family::Semaphore, &token)
    });
    assert_eq!(released, Ok(true));
    let Reply::Now(Answer::Run { .. }) = one_key.run("a", None, 2) else {
        panic!("the key is free");
    };
    one_key.run("b", Some(MonoUs::NEVER), 3);
    one_key.server.delete(KEY);
    let mut budget = 100;
    let (task, ..) = one_key
        .server
        .engine
        .next_task(now, &mut budget)
        .expect("the queue is due");
    let (_, done) = one_key.server.call(KEY, Family::Once, now, |visit| {
        visit.perform(task);
    });
    assert!(
        matches!(done.changes[..], [Change::Grant(_)]),
        "{:?}",
        done.changes
    );
    let mut replica = follower();
    assert_eq!(replica.follow(Family::Once, &done.changes), Ok(()));
    // The token that comes back for its place still gets the semaphore's limit.
    one_key.server.delete(KEY);
    one_key.acquire(Claim::Permits(1), None, Some(MonoUs::NEVER), 1);
    let state = one_key.server.state(KEY).expect("granted");
    assert_eq!(state.body.limit_in_force(), Some(1));
}

/// When one change of a command did not fit, the changes before it stayed applied, but were not passed on to this
/// server's own replicas.
#[test]
fn refused_command_changes_nothing() {
    let shared = |n: u64| grant(n, &format!("token {n}"), Claim::Shared);
    let of_two = |n: u64| grant(n, &format!("token {n}"), Claim::Permits(2));
    let limits = |limit| {
        Change::Limits(Limits {
            limit: Some(limit),
            pinned: None,
            changes: 0,
        })
    };
    let renew = |fence| Change::Renew {
        fence: Fence(fence),
        lease: LeaseMs(7),
        deadline: UnixMs(START_US / 1_000 + 7),
    };
    let complete = |fence| Change::Complete {
        fence: Some(Fence(fence)),
        done: Completion {
            token: Token::parse(b"t").expect("legal"),
            result: None,
            keep_until: UnixMs::NEVER,
        },
    };
    // The changes that made the state, the changes of the command, and the index of the one that does not fit.
    let pause = |until: Option<u64>| Change::Pause {
        until: until.map(UnixMs),
    };
    let cases: [(Family, Vec<Change>, Vec<Change>, usize); 11] = [
        (Family::Lock, vec![], vec![shared(1), shared(1)], 1),
        (Family::Lock, vec![], vec![shared(1), Change::Limit(1)], 1),
        (Family::Lock, vec![shared(1)], vec![end(1), end(1)], 1),
        (
            Family::Lock,
            vec![shared(1), shared(2)],
            vec![renew(1), end(2), shared(3), renew(9)],
            3,
        ),
        (
            Family::Semaphore,
            vec![limits(9), of_two(1)],
            vec![
                limits(4),
                of_two(2),
                end(1),
                Change::Finish {
                    keep_until: UnixMs(1),
                },
            ],
            3,
        ),
        (
            Family::Lock,
            vec![shared(1)],
            vec![grant(2, "token 1", Claim::Shared)],
            0,
        ),
        (
            Family::Lock,
            vec![shared(1)],
            vec![end(1), Change::Vanish, shared(2)],
            1,
        ),
        (Family::Once, vec![], vec![Change::GiveUp, end(4)], 1),
        (
            Family::Once,
            vec![grant(1, "t", Claim::Run)],
            vec![complete(1), end(4)],
            1,
        ),
        (
            Family::Lock,
            vec![shared(1)],
            vec![pause(Some(9)), Change::Limit(1)],
            1,
        ),
        (
            Family::Semaphore,
            vec![limits(9), of_two(1), pause(Some(9))],
            vec![pause(None), pause(Some(8)), end(4)],
            2,
        ),
    ];
    for (family, before, changes, at) in cases {
        let mut one_key = follower();
        if !before.is_empty() {
            assert_eq!(one_key.follow(family, &before), Ok(()), "{before:?}");
        }
        let saved = one_key.server.saved(KEY);
        let holds = one_key.server.engine.holds(family);
        let last = one_key.server.engine.fences().last();
        let refused = one_key
            .follow(family, &changes)
            .expect_err("it does not fit");
        assert_eq!(refused.at, at, "{changes:?}");
        assert_eq!(one_key.server.saved(KEY), saved, "{changes:?}");
        assert_eq!(one_key.server.engine.holds(family), holds, "{changes:?}");
        assert_eq!(one_key.server.engine.fences().last(), last, "{changes:?}");
        if at > 0 {
            let fits = &changes[..1];
            assert_eq!(
                one_key.follow(family, fits),
                Ok(()),
                "alone it fits: {fits:?}"
            );
        }
    }
}

fn ended(fence: u64, how: End) -> Change {
    let at = UnixMs(START_US / 1_000);
    let fence = Fence(fence);
    Change::End { fence, how, at }
}

fn unheard(fence: u64) -> Change {
    let fence = Fence(fence);
    Change::Unheard { fence, keep_ms: 9 }
}

/// A command that is refused leaves what a run or a member displaced as it was, also if it is not saved yet.
#[test]
fn refused_command_leaves_what_was_displaced() {
    let finish = Change::Finish {
        keep_until: UnixMs(START_US / 1_000),
    };
    let of_family = |family| match family {
        Family::Group => (
            Claim::Member,
            vec![
                grant(1, "first", Claim::Member),
                ended(1, End::Done),
                finish.clone(),
            ],
        ),
        _ => (
            Claim::Run,
            vec![grant(1, "first", Claim::Run), ended(1, End::Lapsed)],
        ),
    };
    for family in [Family::Group, Family::Once] {
        let (claim, before) = of_family(family);
        let renew = Change::Renew {
            fence: Fence(2),
            lease: LeaseMs(7),
            deadline: UnixMs(START_US / 1_000),
        };
        let second = || grant(2, "second", claim);
        for changes in [
            vec![renew.clone()],
            vec![ended(2, End::Undelivered)],
            vec![ended(2, End::Released), grant(3, "third", claim)],
        ] {
            let mut one_key = follower();
            assert_eq!(one_key.follow(family, &before), Ok(()));
            assert_eq!(one_key.follow(family, &[second()]), Ok(()));
            let displaced = |one_key: &OneKey| {
                let state = one_key.server.state(KEY).expect("it runs");
                state.body.displaced()
            };
            let was = displaced(&one_key);
            assert!(was.is_some(), "{family:?}");
            let refused = [&changes[..], &[end(9)]].concat();
            assert!(one_key.follow(family, &refused).is_err(), "{refused:?}");
            assert_eq!(displaced(&one_key), was, "{refused:?}");
            // The same, once nobody has heard of the hold: then it is saved.
            assert_eq!(one_key.follow(family, &[unheard(2)]), Ok(()));
            let saved = one_key.server.saved(KEY);
            assert!(one_key.follow(family, &refused).is_err(), "{refused:?}");
            assert_eq!(one_key.server.saved(KEY), saved, "{refused:?}");
        }
        let mut one_key = follower();
        assert_eq!(one_key.follow(family, &before), Ok(()));
        let saved = one_key.server.saved(KEY);
        assert!(one_key.follow(family, &[second(), end(9)]).is_err());
        assert_eq!(one_key.server.saved(KEY), saved, "{family:?}");
        // Once the hold is heard of, nothing is left to give back.
        let heard = [second(), unheard(2), renew];
        assert_eq!(one_key.follow(family, &heard), Ok(()));
        let state = one_key.server.state(KEY).expect("it runs");
        assert_eq!(state.body.displaced(), None, "{family:?}");
    }
}

/// The stream and the files of dsync 0.3.0, which forgot a late token and a finished round at the next GRANT.
#[test]
fn changes_of_0_3_0_are_followed_and_bring_nothing_back() {
    let finish = Change::Finish {
        keep_until: UnixMs(START_US / 1_000),
    };
    let fail = Change::Fail {
        fence: Fence(2),
        at: UnixMs(START_US / 1_000),
        reason: b"r".as_slice().into(),
    };
    let delay = Change::Delay {
        until: Some(UnixMs(START_US / 1_000)),
    };
    let late = [grant(1, "first", Claim::Run), ended(1, End::Lapsed)];
    let run = grant(2, "second", Claim::Run);
    let over = [
        grant(1, "first", Claim::Member),
        ended(1, End::Done),
        finish.clone(),
    ];
    let member = grant(2, "second", Claim::Member);
    let lost = |how| ended(2, how);
    let since: [(Family, Vec<Change>); 6] = [
        (Family::Once, vec![run.clone(), fail, delay]),
        (
            Family::Once,
            vec![run.clone(), unheard(2), lost(End::Undelivered)],
        ),
        (Family::Once, vec![run, lost(End::Lapsed), Change::GiveUp]),
        (
            Family::Group,
            vec![
                member.clone(),
                unheard(2),
                lost(End::Undelivered),
                finish.clone(),
            ],
        ),
        (
            Family::Group,
            vec![member.clone(), lost(End::Undelivered), finish.clone()],
        ),
        (Family::Group, vec![member, lost(End::Released), finish]),
    ];
    for (family, changes) in since {
        let mut one_key = follower();
        let before = match family {
            Family::Group => &over[..],
            _ => &late[..],
        };
        assert_eq!(one_key.follow(family, before), Ok(()));
        for change in &changes {
            let change = std::slice::from_ref(change);
            assert_eq!(one_key.follow(family, change), Ok(()), "{change:?}");
        }
        let body = &one_key.server.state(KEY).expect("it is kept").body;
        assert_eq!(body.displaced(), None, "{changes:?}");
        match (body.once(), body.group()) {
            (Some(once), _) => assert_eq!(once.late(), None, "{changes:?}"),
            (_, Some(group)) => assert_eq!(group.tally.done, 0, "{changes:?}"),
            _ => panic!("another family"),
        }
    }
}

/// DISPLACED is for saved states, and says nothing that the holds contradict.
#[test]
fn displaced_token_fits_an_unheard_run_only() {
    let late = Change::Displaced(Displaced::Late(Token::parse(b"late").expect("legal")));
    let mut one_key = follower();
    assert_eq!(
        one_key.follow(Family::Once, &[grant(1, "t", Claim::Run)]),
        Ok(())
    );
    let misfit = Misfit::Taken;
    let refused = Err(Unfollowed { at: 0, misfit });
    assert_eq!(
        one_key.follow(Family::Once, std::slice::from_ref(&late)),
        refused
    );
    assert_eq!(one_key.follow(Family::Once, &[unheard(1)]), Ok(()));
    assert_eq!(
        one_key.follow(Family::Once, std::slice::from_ref(&late)),
        Ok(())
    );
    assert_eq!(one_key.follow(Family::Once, &[late]), refused, "twice");
}

#[test]
fn command_for_another_family_is_refused() {
    let mut one_key = follower();
    assert_eq!(
        one_key.follow(Family::Lock, &[grant(1, "t", Claim::Exclusive)]),
        Ok(())
    );
    let refused = one_key.follow(Family::Once, &[grant(2, "u", Claim::Run)]);
    let misfit = Misfit::Family;
    assert_eq!(refused, Err(Unfollowed { at: 0, misfit }));
}

#[test]
fn change_against_rules_of_its_family_is_refused() {
    let finish = Change::Finish {
        keep_until: UnixMs(1),
    };
    let mut group = Body::new(Family::Group);
    assert!(group.apply(&grant(1, "t", Claim::Member)).is_ok());
    let finished = group.clone().apply(&finish);
    assert_eq!(finished.err(), Some(Misfit::Taken), "a member lives");
    assert!(group.apply(&end(1)).is_ok());
    assert!(group.apply(&finish).is_ok());
    let mut tally = group.scalars().expect("a tally");
    assert!(group.apply(&grant(2, "u", Claim::Member)).is_ok());
    assert_eq!(group.apply(&tally).err(), Some(Misfit::Taken));
    if let Change::Tally(tally) = &mut tally {
        tally.finished = None;
    }
    assert!(group.apply(&tally).is_ok());

    let mut once = Body::new(Family::Once);
    let complete = |fence: Option<u64>| Change::Complete {
        fence: fence.map(Fence),
        done: Completion {
            token: Token::parse(b"t").expect("legal"),
            result: None,
            keep_until: UnixMs(1),
        },
    };
    assert!(once.apply(&grant(1, "t", Claim::Run)).is_ok());
    assert_eq!(
        once.apply(&complete(None)).err(),
        Some(Misfit::Taken),
        "it runs"
    );
    assert!(once.clone().apply(&complete(Some(1))).is_ok());
    let mut done = Body::new(Family::Once);
    assert!(done.apply(&complete(None)).is_ok());
    let record = done.scalars().expect("a record");
    assert_eq!(once.apply(&record).err(), Some(Misfit::Taken), "it runs");
    let run = done.apply(&grant(2, "u", Claim::Run));
    assert_eq!(run.err(), Some(Misfit::Taken), "it is done");
}

/// After a restart with a clock two years behind, a server did not load its own data. And a primary whose clock was 400
/// days ahead could not be followed.
#[test]
fn fence_far_ahead_is_accepted_from_own_files_and_primary() {
    let ahead = START_US + YEAR_US + 1;
    let mut one_key = follower();
    let now = one_key.now;
    let engine = &mut one_key.server.engine;
    engine.fences_mut().adopt(Fence(START_US + YEAR_US), now);
    assert_eq!(
        engine.fences_mut().take_ahead(),
        None,
        "a year ahead is nothing to tell of"
    );
    engine.fences_mut().adopt(Fence(ahead), now);
    assert_eq!(engine.fences_mut().take_ahead(), Some(Fence(ahead)));
    engine.fences_mut().adopt(Fence(ahead + 1), now);
    assert_eq!(engine.fences_mut().take_ahead(), None, "once");
    assert_eq!(engine.fences().last(), Fence(ahead + 1));

    let mut one_key = follower();
    let followed = one_key.follow(Family::Lock, &[grant(ahead, "t", Claim::Exclusive)]);
    assert_eq!(followed, Ok(()));
    let engine = &mut one_key.server.engine;
    assert_eq!(engine.fences_mut().take_ahead(), Some(Fence(ahead)));
    assert_eq!(engine.fences().last(), Fence(ahead));

    let mut one_key = follower();
    assert_eq!(one_key.adopt(ahead), Ok(()));
    assert_eq!(
        one_key.server.engine.fences_mut().take_ahead(),
        Some(Fence(ahead))
    );
}

impl OneKey {
    fn adopt(&mut self, fence: u64) -> Result<(), Unfit> {
        let mut body = Body::new(Family::Lock);
        assert!(body.apply(&grant(fence, "t", Claim::Exclusive)).is_ok());
        let now = self.now;
        let engine = &mut self.server.engine;
        let places = Vec::new();
        let loaded = Loaded { body, places };
        engine.adopt(loaded, Db(0), &key_bytes(KEY), now).map(drop)
    }
}

#[test]
fn restored_fence_far_ahead_is_refused_by_primary() {
    let ahead = START_US + YEAR_US + 1;
    let mut one_key = OneKey::new();
    assert_eq!(one_key.adopt(ahead), Err(Unfit::FenceAhead));
    assert_eq!(one_key.adopt(START_US + YEAR_US), Ok(()));
    // A fence that the server gave or accepted itself is not refused.
    let mut one_key = follower();
    one_key
        .server
        .engine
        .fences_mut()
        .adopt(Fence(ahead + 5), one_key.now);
    one_key.take_over();
    assert_eq!(one_key.adopt(ahead), Ok(()));
}

/// The wrong clock was corrected: the fences continue from the last one, which the wrong clock gave.
#[test]
fn fences_rise_after_clock_is_set_back() {
    let ahead = START_US + 2 * YEAR_US;
    let mut one_key = follower();
    one_key
        .server
        .engine
        .fences_mut()
        .adopt(Fence(ahead), one_key.now);
    one_key.take_over();
    let mut last = ahead;
    // First while the clock is behind that fence, then after it has passed it.
    for now_us in [START_US, START_US + YEAR_US, ahead - 1, ahead + 7, START_US] {
        one_key.now.unix_us = now_us;
        let Reply::Now(Answer::Granted { fence, .. }) =
            one_key.acquire(Claim::Permits(1), Some(9), None, now_us ^ last)
        else {
            panic!("it is free");
        };
        assert!(fence.0 > last, "{} after {last}", fence.0);
        last = fence.0;
    }
}
