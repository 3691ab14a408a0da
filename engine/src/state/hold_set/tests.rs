//! The set of holds beside a plain list of them.

use super::*;
use crate::short_bytes::LaneName;
use crate::types::{Claim, LeaseMs, Turn, UnixMs};

/// Returns a hold of so many permits, or one with an index for none.
fn hold(n: u64, permits: u32) -> Hold {
    let claim = match permits {
        0 => Claim::Indexed,
        permits => Claim::Permits(permits),
    };
    let mut hold = Hold::new(&Grant {
        fence: Fence(n),
        token: Token::parse(format!("token-{n}").as_bytes()).expect("legal"),
        claim,
        index: (claim == Claim::Indexed).then_some(n as u32 - 1),
        rest: Rest::None,
        lease: LeaseMs(1_000),
        deadline: UnixMs(5_000),
        granted: UnixMs(4_000),
        renewed: false,
        owner: n.is_multiple_of(2).then(|| b"somebody".as_slice().into()),
        lane: LaneName::default(),
    });
    hold.due = LeaseUs(1_000 * (10 - n));
    hold
}

fn built_at_once(holds: impl IntoIterator<Item = Hold>) -> Result<HoldSet, Misfit> {
    let holds = holds.into_iter();
    HoldSet::of_sorted(holds.map(|hold| (hold.fence(), hold)).collect())
}

fn due(us: u64) -> Moments {
    Moments {
        due: LeaseUs(us),
        ..Moments::default()
    }
}

#[test]
fn hold_set_of_every_small_size_agrees_with_a_list() {
    for size in 0..6 {
        for removed in 0..=size {
            let mut set = HoldSet::default();
            for n in 1..=size {
                set.insert(hold(n, 2));
                set.check_invariants();
            }
            let gone = set.remove(Fence(removed));
            set.check_invariants();
            let case = format!("{size} holds, {removed} removed");
            let left: Vec<u64> = (1..=size).filter(|n| *n != removed).collect();
            assert_eq!(gone.is_some(), removed > 0, "{case}");
            assert_eq!(
                set.iter().map(|h| h.fence().0).collect::<Vec<_>>(),
                left,
                "{case}"
            );
            assert_eq!(set.permits(), 2 * left.len() as u64, "{case}");
            let earliest = left
                .iter()
                .max()
                .map(|n| (LeaseUs(1_000 * (10 - n)), Fence(*n)));
            assert_eq!(set.earliest(LeaseUs(0)), earliest, "{case}");
            let pieces: Vec<Option<Hold>> = set.into_pieces().collect();
            let indexed = if left.len() > 1 || removed > 0 && size > 1 {
                2 * left.len()
            } else {
                0
            };
            assert_eq!(pieces.len(), left.len() + indexed, "{case}");
            let holds = pieces.iter().flatten().map(|hold| hold.fence().0);
            assert_eq!(holds.collect::<Vec<_>>(), left, "{case}");
        }
    }
}

#[test]
fn hold_set_of_every_small_size_continues_after_any_fence() {
    for size in 0..5 {
        let mut set = HoldSet::default();
        (1..=size).for_each(|n| set.insert(hold(n, 1)));
        for fence in 0..=size + 1 {
            let later: Vec<u64> = set.after(Fence(fence)).map(|hold| hold.fence().0).collect();
            let expected: Vec<u64> = (fence + 1..=size).collect();
            assert_eq!(later, expected, "{size} holds, after {fence}");
        }
    }
}

/// After a take-over, `due` values from before it must not count: `since` is the moment of the take-over.
#[test]
fn hold_set_splits_its_holds_at_since() {
    for size in 0..5 {
        let mut set = HoldSet::default();
        (1..=size).for_each(|n| set.insert(hold(n, 1)));
        let dues: Vec<u64> = (1..=size).map(|n| 1_000 * (10 - n)).rev().collect();
        for since in (4_999..=10_001).filter(|us| us % 1_000 <= 1 || us % 1_000 == 999) {
            let case = format!("{size} holds, since {since}");
            let earliest = set.earliest(LeaseUs(since)).map(|(due, _)| due.0);
            let expected = dues.iter().copied().find(|due| *due >= since);
            assert_eq!(earliest, expected, "{case}");
            let before = set.first_before(LeaseUs(since)).map(|hold| hold.due.0);
            let expected = dues.first().copied().filter(|due| *due < since);
            assert_eq!(before, expected, "{case}");
        }
    }
}

/// A moment before `since` is one of an earlier term of this server. Such a hold has none yet, so it is not overdue.
#[test]
fn hold_is_overdue_from_its_due_on_unless_that_is_before_since() {
    let (since, now) = (LeaseUs(100), LeaseUs(200));
    for (at, is_overdue) in [(99, false), (100, true), (200, true), (201, false)] {
        for others in 0..3 {
            let mut set = HoldSet::default();
            (1..=1 + others).for_each(|n| set.insert(hold(n, 1)));
            set.set_moments(Fence(1), due(at));
            let overdue = set.overdue(since, now).map(Hold::fence);
            let expected = is_overdue.then_some(Fence(1));
            assert_eq!(overdue, expected, "due at {at}, {others} others");
        }
    }
}

#[test]
fn hold_set_finds_a_hold_under_its_new_due() {
    for size in 1..4 {
        let mut set = HoldSet::default();
        (1..=size).for_each(|n| set.insert(hold(n, 1)));
        assert!(set.set_moments(Fence(1), due(1)), "{size} holds");
        set.check_invariants();
        assert_eq!(
            set.earliest(LeaseUs(0)),
            Some((LeaseUs(1), Fence(1))),
            "{size} holds"
        );
        assert!(!set.set_moments(Fence(9), due(1)), "{size} holds");
    }
}

#[test]
fn hold_set_is_no_larger_than_one_hold() {
    assert_eq!(size_of::<HoldSet>(), size_of::<Hold>());
}

#[test]
fn hold_set_built_at_once_is_that_built_one_by_one() {
    for size in 2..=9 {
        let holds = || (1..=size).map(|n| hold(n, (n % 2) as u32));
        let built = built_at_once(holds()).expect("no token twice");
        built.check_invariants();
        let mut added = HoldSet::default();
        holds().for_each(|hold| added.insert(hold));
        let grants = |set: &HoldSet| set.iter().map(Hold::to_grant).collect::<Vec<_>>();
        assert_eq!(grants(&built), grants(&added), "{size} holds");
        assert_eq!(built.permits(), added.permits(), "{size} holds");
        assert_eq!(built.heap_bytes(), added.heap_bytes(), "{size} holds");
        let earliest = built.earliest(LeaseUs(0));
        assert_eq!(earliest, added.earliest(LeaseUs(0)), "{size} holds");
    }
    let twice = [1, 2, 3, 2].map(|n| hold(n, 1));
    assert_eq!(built_at_once(twice).err(), Some(Misfit::Taken));
}

#[test]
fn hold_set_of_every_small_size_finds_its_lowest_free_index() {
    for size in 0..6 {
        // A bit for each hold: whether it has an index.
        for indexed in 0..1_u64 << size {
            for removed in 0..=size {
                let has_index = |n: &u64| indexed & (1 << (n - 1)) != 0;
                let mut set = HoldSet::default();
                (1..=size).for_each(|n| set.insert(hold(n, u32::from(!has_index(&n)))));
                set.remove(Fence(removed));
                set.check_invariants();
                let is_held = |n: &u64| *n <= size && *n != removed && has_index(n);
                let free = (1..).find(|n| !is_held(n)).map(|n| n as u32 - 1);
                let case = format!("{size} holds, {indexed:b}, {removed} removed");
                assert_eq!(Some(set.free_index()), free, "{case}");
                for index in 0..=size as u32 {
                    let is_free = set.accepts(&Grant {
                        index: Some(index),
                        ..hold(9, 0).to_grant()
                    });
                    assert_eq!(is_free, !is_held(&(u64::from(index) + 1)), "{case}");
                }
            }
        }
    }
    let mut twice = [hold(1, 0), hold(2, 0)];
    twice[1] = Hold::new(&Grant {
        index: Some(0),
        ..twice[1].to_grant()
    });
    assert_eq!(built_at_once(twice).err(), Some(Misfit::Taken));
}

/// The holds with lower indexes have ended before the others were saved.
#[test]
fn only_hold_of_a_loaded_set_takes_its_own_index_alone() {
    for n in 1..6 {
        let mut set = HoldSet::default();
        set.insert(hold(n, 0));
        assert_eq!(set.free_index(), u32::from(n == 1), "index {}", n - 1);
    }
}

/// A hold that rests has no token, so the next of its token may come beside it.
#[test]
fn hold_set_of_every_small_size_keeps_what_rests_without_its_token() {
    let with_min_hold = |n: u64, token: &str| {
        Hold::new(&Grant {
            rest: Rest::After(LeaseMs(7)),
            token: Token::parse(token.as_bytes()).expect("legal"),
            ..hold(n, (n % 3) as u32).to_grant()
        })
    };
    for size in 1..6 {
        // A bit for each hold: whether it rests.
        for resting in 0..1_u64 << size {
            let rests = |n: &u64| resting & (1 << (n - 1)) != 0;
            let mut set = HoldSet::default();
            for n in 1..=size {
                let token = format!("token-{n}");
                set.insert(with_min_hold(n, &token));
                if rests(&n) {
                    let ended = set.rest(Fence(n)).expect("held");
                    assert!(ended.has_token(&Token::parse(token.as_bytes()).expect("legal")));
                }
                assert_eq!(set.rest(Fence(n)).is_err(), rests(&n), "once");
                set.check_invariants();
            }
            assert!(set.rest(Fence(size + 1)).is_err(), "no such hold");
        }
    }
    let mut set = HoldSet::default();
    for n in 1..=4 {
        set.insert(with_min_hold(n, "the same"));
        let _ = set.rest(Fence(n)).expect("held");
        assert_eq!(set.resting().0, n as usize);
        assert!(set.by_token(&Token::Uuid([0; 16])).is_none(), "no token");
        let rests = set.get(Fence(n)).expect("there");
        assert_eq!((rests.lease, rests.deadline()), (LeaseMs(7), UnixMs(4_007)));
    }
    assert_eq!(set.resting().1, set.permits());
    let again = built_at_once(set.iter().cloned()).expect("as they were");
    again.check_invariants();
    assert_eq!(again.resting(), set.resting());
    set.insert(hold(5, 1));
    assert_eq!(set.rest(Fence(5)).err(), Some(Misfit::Taken), "no MINHOLD");
}

#[test]
fn hold_set_finds_all_holds_under_their_new_due() {
    for size in 0..5 {
        let mut set = HoldSet::default();
        (1..=size).for_each(|n| set.insert(hold(n, 1)));
        set.set_all_moments(|hold| due(hold.fence().0));
        set.check_invariants();
        let earliest = (size > 0).then_some((LeaseUs(1), Fence(1)));
        assert_eq!(set.earliest(LeaseUs(0)), earliest, "{size} holds");
    }
}

#[test]
fn hold_set_of_every_small_size_counts_what_each_lane_has_in_use() {
    let names = [b"".as_slice(), b"a", b"b"];
    for size in 0..5_u64 {
        for number in 0..3_u64.pow(size as u32) {
            for removed in 0..=size {
                let lane_of = |n: u64| names[(number / 3_u64.pow(n as u32 - 1) % 3) as usize];
                let laned = |n: u64| {
                    Hold::new(&Grant {
                        lane: lane_of(n).into(),
                        ..hold(n, n as u32).to_grant()
                    })
                };
                let case = format!("{size} holds, {number}, {removed} removed");
                let mut set = HoldSet::default();
                (1..=size).for_each(|n| set.insert(laned(n)));
                if size > 1 {
                    let built = built_at_once((1..=size).map(laned));
                    let built = built.expect("no token twice");
                    names.iter().for_each(|lane| {
                        assert_eq!(built.in_use(lane), set.in_use(lane), "{case}");
                    });
                }
                for lane in names {
                    assert_eq!(set.set_turn(lane, Turn(7)).turn, Turn(7), "{case}");
                }
                set.remove(Fence(removed));
                set.check_invariants();
                let left: Vec<u64> = (1..=size).filter(|n| *n != removed).collect();
                let is_laned = left.iter().any(|n| !lane_of(*n).is_empty());
                assert_eq!(set.has_lanes(), is_laned, "{case}");
                for lane in names {
                    let of_lane = left.iter().filter(|n| lane_of(**n) == lane);
                    let permits = of_lane.sum();
                    let in_use = set.in_use(lane);
                    assert_eq!(in_use.permits, permits, "{case}: {lane:?}");
                    // One hold is in the only lane that has any.
                    let has_turn = size > 1 && is_laned && permits > 0;
                    assert!(!has_turn || in_use.turn == Turn(7), "{case}: {lane:?}");
                }
            }
        }
    }
}
