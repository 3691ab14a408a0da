//! What the rule of lanes must not lose again: a story for each.

use std::collections::BTreeMap;

use super::{Ask, Lanes, Semaphore, lane, one};
use crate::types::{Fence, InUse, Rank, Turn};

/// Without this, one lane that asked for 8 of 10 beside a flood was never granted while six permits stood idle.
#[test]
fn chosen_request_that_does_not_fit_stays_chosen() {
    let mut semaphore = Semaphore::new(10);
    let (flood, large) = (lane(1), lane(2));
    semaphore.ask(&large, one(1));
    for _ in 0..30 {
        semaphore.ask(&flood, one(1));
    }
    while semaphore.serve_one().is_some() {}
    let rank = semaphore.ask(&large, one(9));
    // At the end the flood has fewer in use.
    for ended in 1..9 {
        semaphore.end(&flood, 1);
        assert!(semaphore.serve_one().is_none(), "{ended} permits are free");
        assert_eq!(semaphore.lanes.chosen(), Some(rank));
    }
    semaphore.end(&flood, 1);
    assert_eq!(semaphore.serve_one(), Some((rank, large, one(9))));
}

#[test]
fn lane_with_holds_keeps_its_turn_while_nobody_waits_in_it() {
    let mut semaphore = Semaphore::new(3);
    for number in 1..4 {
        semaphore.ask(&lane(number), one(1));
        assert!(semaphore.serve_one().is_some());
    }
    for number in [2, 1] {
        semaphore.ask(&lane(number), one(1));
        assert!(semaphore.serve_one().is_none());
    }
    semaphore.end(&lane(3), 1);
    assert_eq!(
        semaphore.serve_one().map(|(_, lane, _)| lane),
        Some(lane(1))
    );
}

/// Without this, use of the permits fell to a fifth.
#[test]
fn lane_whose_first_request_exceeds_limit_beside_its_own_holds_stands_aside() {
    let mut semaphore = Semaphore::new(10);
    let (own, other) = (lane(1), lane(2));
    semaphore.ask(&own, one(6));
    assert!(semaphore.serve_one().is_some());
    let large = semaphore.ask(&own, one(8));
    let small = semaphore.ask(&own, one(1));
    assert!(semaphore.serve_one().is_none());
    assert!(semaphore.lanes.all_stand_aside(10));
    for _ in 0..4 {
        semaphore.ask(&other, one(1));
        assert!(semaphore.serve_one().is_some(), "it holds up nobody");
    }
    semaphore.limit = 20;
    assert_eq!(semaphore.serve_one(), Some((large, own.clone(), one(8))));
    assert_eq!(semaphore.serve_one(), Some((small, own, one(1))));
}

#[test]
fn lane_limit_bounds_what_a_lane_has_in_use() {
    let mut semaphore = Semaphore::new(10);
    let (paid, other) = (lane(1), lane(2));
    let ask = |lane_limit| Ask {
        lane_limit: Some(lane_limit),
        ..one(2)
    };
    let ranks = [4, 4, 4, 6].map(|limit| semaphore.ask(&paid, ask(limit)));
    for rank in &ranks[..2] {
        assert_eq!(semaphore.serve_one().map(|(rank, ..)| rank), Some(*rank));
    }
    assert!(semaphore.serve_one().is_none(), "judged by the first alone");
    assert!(semaphore.lanes.all_stand_aside(10));
    semaphore.ask(&other, one(6));
    assert!(semaphore.serve_one().is_some());
    semaphore.end(&paid, 2);
    assert_eq!(semaphore.serve_one().map(|(rank, ..)| rank), Some(ranks[2]));
    assert!(semaphore.serve_one().is_none(), "the semaphore is full");
    semaphore.end(&other, 6);
    assert_eq!(semaphore.serve_one().map(|(rank, ..)| rank), Some(ranks[3]));
}

/// A client that resends every 5 s was never served, because its lane came anew each time.
#[test]
fn vacant_place_keeps_the_turn_of_its_lane() {
    let mut semaphore = Semaphore::new(1);
    let flood = [lane(1), lane(2)];
    semaphore.ask(&flood[0], one(1));
    assert!(semaphore.serve_one().is_some());
    let resends = lane(3);
    let rank = semaphore.ask(&resends, one(1));
    for _ in 0..5 {
        for lane in &flood {
            semaphore.ask(lane, one(1));
        }
    }
    for at in 0..2 {
        semaphore.leave(&resends, rank);
        semaphore.join(&resends, rank, None);
        semaphore.end(&flood[at], 1);
        let (_, lane, _) = semaphore.serve_one().expect("somebody is served");
        assert_ne!(lane, resends, "nobody waits at the place");
        semaphore.leave(&resends, rank);
        semaphore.join(&resends, rank, Some(one(1)));
        assert!(semaphore.serve_one().is_none());
        if at == 0 {
            assert_eq!(lane, flood[1]);
        }
    }
    semaphore.end(&flood[0], 1);
    assert_eq!(semaphore.serve_one(), Some((rank, resends, one(1))));
}

#[test]
fn server_that_takes_over_serves_lanes_in_the_order_of_their_first_places() {
    let mut semaphore = Semaphore::new(3);
    for number in [2, 1, 3] {
        semaphore.ask(&lane(number), one(1));
        assert!(semaphore.serve_one().is_some());
    }
    for number in [3, 1, 2] {
        semaphore.ask(&lane(number), one(1));
    }
    assert!(semaphore.serve_one().is_none());
    // Lane 2 was granted first, so it would be the next among equals.
    let turns_from = Turn(semaphore.number());
    semaphore.lanes.belong_to((None, turns_from), turns_from);
    semaphore.limit = 6;
    let mut served = Vec::new();
    while let Some((_, lane, _)) = semaphore.serve_one() {
        served.push(lane);
    }
    assert_eq!(served, [lane(3), lane(1), lane(2)]);
}

/// As many permits in use as there are, and the most groups that can stand aside.
#[test]
fn at_most_1414_groups_of_lanes_stand_aside_by_limit() {
    let limit = 1_000_000;
    let mut semaphore = Semaphore::new(limit);
    let mut number = 0;
    // The cheapest way: a lane with n permits in use that asks for all but n - 1 of the limit.
    while semaphore.taken() + number < u64::from(limit) {
        number += 1;
        semaphore.ask(&lane(number), one(number as u32));
        assert!(semaphore.serve_one().is_some());
        semaphore.ask(&lane(number), one(limit + 1 - number as u32));
    }
    assert!(semaphore.sort() && semaphore.lanes.all_stand_aside(limit));
    assert_eq!(
        (semaphore.lanes.seating.heads.len(), number),
        (1_413, 1_413)
    );
}

#[test]
fn lane_counts_its_places_in_line() {
    let mut semaphore = Semaphore::new(1);
    let (own, other) = (lane(0), lane(1));
    let kept = Ask {
        is_kept: true,
        ..one(1)
    };
    let ranks = [one(1), kept, kept].map(|ask| {
        semaphore.ask(&other, one(1));
        semaphore.ask(&own, ask)
    });
    semaphore.join(&own, ranks[0], None);
    let lanes = &mut semaphore.lanes;
    assert_eq!(lanes.places(&own), (3, 2));
    let positions = |lanes: &Lanes| ranks.map(|rank| lanes.position(&own, rank, 2));
    assert_eq!(positions(lanes), [1, 2, 2]);
    lanes.join(&own, ranks[2], Some(one(1)), Turn::default());
    assert_eq!(lanes.places(&own), (3, 1));
    lanes.leave(&own, ranks[1]);
    lanes.leave(&own, ranks[0]);
    assert_eq!(lanes.places(&own), (1, 0));
    assert_eq!(positions(lanes), [0, 0, 1]);
    assert_eq!(lanes.places(&other), (3, 0));
    lanes.leave(&own, ranks[2]);
    assert_eq!(lanes.places(&own), (0, 0));
}

/// When the first place comes that names a lane, those before it are in the nameless one.
#[test]
fn places_before_the_first_lane_are_in_the_nameless_one() {
    let rank = |number| Rank(Fence(number));
    let kept = Ask {
        is_kept: true,
        ..one(1)
    };
    let line = BTreeMap::from([(rank(1), one(1)), (rank(2), kept)]);
    let lanes = Lanes::of_nameless(line, 0);
    assert_eq!(lanes.places(&lane(0)), (2, 1));
    assert_eq!(lanes.into_pieces().count(), 3, "each, and the first");
    let vacant = Lanes::of_nameless(BTreeMap::new(), 1);
    assert!(!vacant.is_sorted(), "the lane has come");
    assert_eq!(vacant.into_pieces().count(), 0);
    assert!(Lanes::of_nameless(BTreeMap::new(), 0).is_sorted());
}

#[test]
fn lanes_are_nameless_once_the_last_place_that_names_one_has_left() {
    let mut semaphore = Semaphore::new(1);
    semaphore.ask(&lane(0), one(1));
    assert!(semaphore.lanes.are_nameless());
    let rank = semaphore.ask(&lane(1), one(1));
    assert!(!semaphore.lanes.are_nameless());
    semaphore.leave(&lane(1), rank);
    assert!(semaphore.lanes.are_nameless(), "before they are sorted");
}

#[test]
fn each_lane_that_is_sorted_costs_one_of_the_budget() {
    let mut semaphore = Semaphore::new(1);
    for number in 0..3 {
        semaphore.ask(&lane(number), one(1));
    }
    let none = |_: &_| InUse::default();
    for are_sorted in [false, false, true] {
        assert_eq!(semaphore.lanes.sort(&mut 1, none), are_sorted);
    }
}

/// A lane changed before its turn to be sorted had come. What it had in use before would have counted.
#[test]
fn lane_that_changes_before_it_is_sorted_has_one_seat() {
    let mut semaphore = Semaphore::new(10);
    let first = semaphore.ask(&lane(1), one(1));
    let left = semaphore.ask(&lane(2), one(1));
    semaphore.ask(&lane(2), one(1));
    assert!(semaphore.sort());
    let turns_from = Turn(semaphore.number());
    semaphore.lanes.belong_to((None, turns_from), turns_from);
    let copy = |lane_of: &_| InUse {
        permits: 1 + u64::from(*lane_of == lane(2)),
        turn: Turn(0),
    };
    assert!(!semaphore.lanes.sort(&mut 1, copy), "lane 1 is sorted");
    semaphore.leave(&lane(2), left);
    assert!(semaphore.lanes.sort(&mut 1, copy));
    semaphore.lanes.choose(10, true);
    assert_eq!(semaphore.lanes.chosen(), Some(first));
}
