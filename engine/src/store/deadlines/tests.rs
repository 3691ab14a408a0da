//! The wheel at every border between its levels, and long histories against a map.

use super::*;
use crate::store::tests::{XorShift, id};
use std::collections::{BTreeMap, BTreeSet};

const DAY_US: u64 = 86_400_000_000;
const YEAR_US: u64 = 365 * DAY_US;

impl Wheel {
    /// Returns the number of ids that are scheduled.
    fn len(&self) -> usize {
        let links = self.chunks.iter().flatten().flat_map(|links| links.iter());
        links.filter(|link| link.prev != Node::NONE).count()
    }

    /// Panics unless the comment of every field holds. Walks over all ids.
    fn check_invariants(&self) {
        let (mut listed, len) = (0, self.len());
        for (slot, ends) in (0..).map(Slot).zip(&self.slots) {
            let (level, digit) = (slot.level(), slot.digit());
            let has_list = self.occupied[level as usize] >> digit & 1 != 0;
            assert_eq!(ends.next.id().is_some(), has_list, "{slot:?}: occupied");

            let shift = DIGIT_BITS * level;
            let under_hand = digit_of(self.hand, level);
            let ahead = (DIGITS + digit - under_hand) % DIGITS;
            let first_tick = ((self.hand >> shift) + u64::from(ahead)) << shift;
            let is_ahead = level == LEVELS - 1 || digit >= under_hand;
            assert!(!has_list || is_ahead, "{slot:?}: the hand has passed");
            let waited = first_tick >= self.hand;
            assert!(!has_list || waited, "{slot:?}: the hand moved on early");

            let mut prev = Node::of_slot(slot);
            let mut node = ends.next;
            while let Some(id) = node.id() {
                let link = self.link_of(id).expect("a linked id has a chunk");
                assert_eq!(link.prev, prev, "{slot:?}: {id:?}: prev");
                let tick_low = u64::from(link.tick_low);
                let tick = first_tick + (tick_low & ((1 << shift) - 1));
                assert_eq!(tick & LOW_BITS, tick_low, "{slot:?}: {id:?}: tick");
                let in_reach = (self.hand..=self.reach()).contains(&tick);
                assert!(in_reach, "{slot:?}: {id:?}: {tick} out of reach");
                assert!(ahead == 0 || self.slot_of(tick) == slot, "{slot:?}: {tick}");
                listed += 1;
                assert!(listed <= len, "{slot:?}: a cycle");
                (prev, node) = (node, link.next);
            }
            assert_eq!(node, Node::of_slot(slot), "{slot:?}: end of the list");
            assert_eq!(ends.prev, prev, "{slot:?}: last");
        }
        assert_eq!(listed, len, "ids in lists, and linked ids");
    }
}

/// Returns the moment from which an id with this deadline comes out.
fn due_us(deadline_us: u64) -> u64 {
    deadline_us.div_ceil(TICK_US) * TICK_US
}

fn pop(wheel: &mut Wheel, now_us: u64) -> Option<StateId> {
    let mut budget = u32::MAX;
    let popped = wheel.pop_due(now_us, &mut budget);
    wheel.check_invariants();
    popped
}

/// Start times on both sides of every border that the hand can be near, and long after the server's start.
fn starts_us() -> Vec<u64> {
    let mut starts = vec![0, 1, 1023, 1024, 100 * YEAR_US, 1000 * YEAR_US + 777];
    for bits in [6, 12, 18, 24, 30, 32, 36, 42] {
        let border_us = (1 << bits) * TICK_US;
        starts.extend([
            border_us - TICK_US,
            border_us - 1,
            border_us,
            border_us + TICK_US,
        ]);
    }
    starts
}

/// Leases that end on both sides of every border between two levels.
fn leases_us() -> Vec<u64> {
    let mut leases = vec![
        0,
        1,
        2,
        1022,
        1023,
        1024,
        1025,
        1026,
        1_000_000,
        DAY_US,
        30 * DAY_US,
        2 * YEAR_US,
    ];
    for bits in [6, 12, 18, 24, 30, 32] {
        let border_us = (1 << bits) * TICK_US;
        leases.extend([
            border_us - TICK_US,
            border_us - 1,
            border_us,
            border_us + 1,
            border_us + TICK_US,
        ]);
    }
    leases
}

#[test]
fn id_is_due_exactly_at_the_tick_of_its_deadline() {
    for start_us in starts_us() {
        for lease_us in leases_us() {
            let case = format!("start {start_us}, lease {lease_us}");
            let due_us = due_us(start_us + lease_us);
            assert!(due_us < start_us + lease_us + TICK_US);

            // In one step, as after a long sleep.
            let mut wheel = Wheel::new(start_us);
            wheel.schedule(id(1), start_us + lease_us);
            assert_eq!(wheel.len(), 1, "{case}");
            assert_eq!(pop(&mut wheel, due_us), Some(id(1)), "{case}");
            assert!(!wheel.contains(id(1)), "{case}");
            assert_eq!((pop(&mut wheel, due_us), wheel.len()), (None, 0), "{case}");

            // With a call one microsecond too early first.
            wheel = Wheel::new(start_us);
            wheel.schedule(id(1), start_us + lease_us);
            if due_us > start_us {
                assert_eq!(pop(&mut wheel, due_us - 1), None, "{case}");
            }
            assert_eq!(pop(&mut wheel, due_us), Some(id(1)), "{case}");
        }
    }
}

#[test]
fn caller_of_next_due_pops_on_time_in_few_calls() {
    for start_us in starts_us() {
        for lease_us in leases_us() {
            let case = format!("start {start_us}, lease {lease_us}");
            let mut wheel = Wheel::new(start_us);
            wheel.schedule(id(1), start_us + lease_us);
            let mut now_us = start_us;
            let mut calls = 0;
            loop {
                let next_us = wheel.next_due_us().unwrap();
                assert!(next_us <= due_us(start_us + lease_us), "{case}: late");
                assert!(calls == 0 || next_us > now_us, "{case}: no progress");
                now_us = now_us.max(next_us);
                calls += 1;
                if pop(&mut wheel, now_us).is_some() {
                    break;
                }
            }
            assert_eq!(now_us, due_us(start_us + lease_us).max(start_us), "{case}");
            assert!(calls <= LEVELS, "{case}: {calls} calls");
            assert_eq!(wheel.next_due_us(), None, "{case}");
        }
    }
}

#[test]
fn deadline_in_the_past_is_due_at_once() {
    for deadline_us in [0, 1, YEAR_US - 1, YEAR_US] {
        let mut wheel = Wheel::new(2 * YEAR_US);
        assert_eq!(pop(&mut wheel, 2 * YEAR_US + 5000), None);
        wheel.schedule(id(9), deadline_us);
        assert!(wheel.next_due_us().unwrap() <= 2 * YEAR_US + 5000);
        assert_eq!(
            pop(&mut wheel, 2 * YEAR_US + 5000),
            Some(id(9)),
            "{deadline_us}"
        );
    }
}

#[test]
fn id_scheduled_again_goes_behind_others_due() {
    let mut wheel = Wheel::new(DAY_US);
    for raw in 1..=3 {
        wheel.schedule(id(raw), 0);
    }
    let mut met = BTreeSet::new();
    for _ in 0..3 {
        let popped = pop(&mut wheel, DAY_US).unwrap();
        met.insert(popped);
        wheel.schedule(popped, 0);
    }
    assert_eq!(met.len(), 3);
}

#[test]
fn time_behind_the_hand_finds_nothing_due() {
    let mut wheel = Wheel::new(DAY_US);
    wheel.schedule(id(1), DAY_US);
    assert_eq!(pop(&mut wheel, DAY_US - TICK_US), None);
    assert_eq!(pop(&mut wheel, 0), None);
    assert_eq!(pop(&mut wheel, DAY_US), Some(id(1)));
}

#[test]
fn only_deadline_past_two_years_is_shortened() {
    let now_us = 7 * YEAR_US;
    for deadline_us in [now_us + 2 * YEAR_US + 1, now_us + 3 * YEAR_US, u64::MAX] {
        let mut wheel = Wheel::new(now_us);
        wheel.schedule(id(1), deadline_us);
        assert_eq!(pop(&mut wheel, now_us + 2 * YEAR_US), None, "{deadline_us}");
        assert_eq!(
            pop(&mut wheel, deadline_us - TICK_US).is_some(),
            deadline_us > now_us + 2 * YEAR_US + 1
        );
    }
    // The largest time does not overflow.
    let mut wheel = Wheel::new(u64::MAX);
    wheel.schedule(id(1), u64::MAX);
    assert!(wheel.next_due_us().is_some());
    assert_eq!(pop(&mut wheel, u64::MAX), None);
}

#[test]
fn last_schedule_counts_and_cancel_is_harmless() {
    let mut wheel = Wheel::new(0);
    wheel.cancel(id(5));
    wheel.cancel(id(StateId::MAX));
    assert!(!wheel.contains(id(StateId::MAX)));
    for (first_us, second_us) in [
        (5000, 90_000_000),
        (90_000_000, 5000),
        (5000, 5000),
        (5000, 0),
    ] {
        let mut wheel = Wheel::new(0);
        wheel.schedule(id(1), first_us);
        wheel.schedule(id(1), second_us);
        assert_eq!(wheel.len(), 1);
        let early = due_us(second_us).saturating_sub(1);
        assert_eq!(pop(&mut wheel, early).is_some(), second_us == 0);
        assert_eq!(pop(&mut wheel, due_us(second_us)).is_some(), second_us != 0);
        assert_eq!(pop(&mut wheel, DAY_US), None);
    }
    wheel.schedule(id(1), 5000);
    wheel.cancel(id(1));
    wheel.cancel(id(1));
    assert_eq!(
        (wheel.contains(id(1)), wheel.len(), wheel.next_due_us()),
        (false, 0, None)
    );
    assert_eq!(pop(&mut wheel, DAY_US), None);
}

#[test]
fn wheel_comes_apart_into_one_chunk_per_1024_ids() {
    let mut wheel = Wheel::new(DAY_US);
    for raw in 1..3000 {
        wheel.schedule(id(raw), u64::from(raw) * DAY_US / 100);
    }
    assert_eq!(wheel.into_chunks().count(), 3_000 / CHUNK + 1);
}

#[test]
fn wheel_forgets_a_chunk_of_the_store_alone() {
    let mut wheel = Wheel::new(0);
    let ids = || (1..=3 * CHUNK as u32).map(id);
    for id in ids() {
        wheel.schedule(id, DAY_US);
    }
    let second = |id: &StateId| id.place().0 == 1;
    ids().filter(second).for_each(|id| wheel.cancel(id));
    wheel.forget_chunk(1);
    wheel.forget_chunk(1);
    wheel.forget_chunk(99);
    wheel.check_invariants();
    for id in ids() {
        let bytes = if second(&id) { 0 } else { 12 };
        assert_eq!(wheel.contains(id), !second(&id), "{id:?}");
        assert_eq!(wheel.bytes_of(id), bytes, "{id:?}");
        wheel.cancel(id);
    }
    for id in ids() {
        wheel.schedule(id, DAY_US);
    }
    assert_eq!(
        (wheel.len(), wheel.bytes_of(id(CHUNK as u32 + 1))),
        (3 * CHUNK, 12)
    );
    wheel.check_invariants();
}

#[test]
fn cost_of_time_jump_depends_on_ids_not_its_size() {
    for jump_us in [3_600_000_000, DAY_US, 40 * DAY_US, 2 * YEAR_US] {
        let mut wheel = Wheel::new(12_345);
        for raw in 1..=100 {
            wheel.schedule(id(raw), 12_345 + jump_us / 100 * u64::from(raw));
        }
        let mut budget = u32::MAX;
        let mut popped = Vec::new();
        while let Some(id) = wheel.pop_due(12_345 + jump_us + TICK_US, &mut budget) {
            popped.push(id.get());
        }
        assert!(popped.iter().copied().eq(1..=100), "{jump_us}: {popped:?}");
        assert!(
            u32::MAX - budget <= 100 * LEVELS,
            "{jump_us}: {}",
            u32::MAX - budget
        );
    }
}

#[test]
fn idle_wheel_follows_the_clock() {
    let mut wheel = Wheel::new(0);
    assert_eq!(pop(&mut wheel, 10 * YEAR_US), None);
    wheel.schedule(id(1), 10 * YEAR_US + DAY_US);
    assert_eq!(pop(&mut wheel, 10 * YEAR_US + DAY_US - TICK_US), None);
    assert_eq!(pop(&mut wheel, 10 * YEAR_US + DAY_US), Some(id(1)));
}

#[test]
fn pop_due_returns_due_id_before_moving_rest_of_its_slot() {
    // One slot of level 1, whose first two ids are due at its first tick.
    let mut wheel = Wheel::new(0);
    for raw in 1..=100 {
        wheel.schedule(id(raw), (64 + u64::from(raw / 3)) * TICK_US);
    }
    let now_us = 200 * TICK_US;
    // (budget, what comes out, what is left of the budget)
    for (budget, popped, left) in [
        (0, None, 0),
        (1, None, 0),
        (3, Some(1), 2),
        (1, None, 0),
        (1, Some(2), 0),
        (98, None, 0),
        (0, None, 0),
        (9, Some(3), 8),
    ] {
        let mut rest = budget;
        let case = wheel.pop_due(now_us, &mut rest).map(StateId::get);
        assert_eq!((case, rest), (popped, left), "budget {budget}");
        wheel.check_invariants();
    }
    assert_eq!(wheel.len(), 97);
}

/// With any budget all ids come out, none twice, the earlier first; and what is scheduled or cancelled between two
/// calls is treated as if there had been no break. A million leases can lapse in one second, which takes many calls.
#[test]
fn pop_due_with_any_budget_returns_all_ids_in_order() {
    for budget_each in [1, 2, 3, 7, 64, 1000] {
        let mut random = XorShift(77);
        let mut wheel = Wheel::new(5 * DAY_US);
        let mut ticks = BTreeMap::new();
        for raw in 1..=2000 {
            let deadline_us = 5 * DAY_US + random.magnitude(40);
            wheel.schedule(id(raw), deadline_us);
            ticks.insert(id(raw), deadline_us.div_ceil(TICK_US));
        }
        let now_us = 5 * DAY_US + (1 << 40);
        let mut last_tick = 0;
        let mut calls: u32 = 0;
        while !ticks.is_empty() {
            calls += 1;
            assert!(
                wheel.next_due_us().unwrap() <= now_us,
                "nothing to do, but {} left",
                ticks.len()
            );
            let mut budget = budget_each;
            if let Some(popped) = wheel.pop_due(now_us, &mut budget) {
                let tick = ticks.remove(&popped).expect("popped twice");
                assert!(
                    tick >= last_tick,
                    "budget {budget_each}: {tick} after {last_tick}"
                );
                last_tick = tick;
            } else {
                assert_eq!(budget, 0, "budget {budget_each}: gave up");
            }
            if calls.is_multiple_of(16) {
                wheel.check_invariants();
                let other = id(1 + u32::try_from(random.below(2000)).unwrap());
                if random.below(2) == 0 {
                    wheel.cancel(other);
                    ticks.remove(&other);
                } else if let Some(tick) = ticks.get_mut(&other) {
                    // The hand may have moved only part of a slot; no id may be put behind it.
                    let deadline_us = last_tick * TICK_US + random.magnitude(30);
                    let deadline_us = deadline_us.min(now_us);
                    wheel.schedule(other, deadline_us);
                    *tick = deadline_us.div_ceil(TICK_US).max(wheel.hand);
                }
            }
        }
        wheel.check_invariants();
        assert_eq!((wheel.len(), wheel.next_due_us()), (0, None));
        assert!(calls >= 1000);
    }
}

#[test]
fn wheel_histories_agree_with_a_map() {
    for seed in 1..=24 {
        let mut random = XorShift(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let start_us = random.pick(&[0, 3 * DAY_US, 50 * YEAR_US, (1 << 46) - 5_000_000]);
        let mut now_us = start_us;
        // The longest leases and time jumps of this history: some histories have crowded ticks, others jumps of years.
        let bits = random.pick(&[14, 22, 30, 41, 47]);
        let mut wheel = Wheel::new(start_us);
        let mut ticks: BTreeMap<StateId, u64> = BTreeMap::new();
        for step in 0..4000 {
            let raw = id(1 + u32::try_from(random.below(150)).unwrap() * 41);
            match random.below(10) {
                0..4 => {
                    let deadline_us = if random.below(8) == 0 {
                        now_us.saturating_sub(random.magnitude(bits))
                    } else {
                        now_us + random.magnitude(bits)
                    };
                    wheel.schedule(raw, deadline_us);
                    ticks.insert(raw, deadline_us.div_ceil(TICK_US).min(wheel.reach()));
                }
                4 => {
                    wheel.cancel(raw);
                    ticks.remove(&raw);
                }
                5 => now_us += random.magnitude(bits),
                _ => {
                    let mut budget = u32::try_from(random.magnitude(7)).unwrap();
                    let given = budget;
                    let now = now_us / TICK_US;
                    if let Some(popped) = wheel.pop_due(now_us, &mut budget) {
                        let tick = ticks.remove(&popped).expect("popped, but not scheduled");
                        assert!(tick <= now, "seed {seed}, step {step}: early");
                        // A deadline that had passed when it was scheduled counts from the hand at that time.
                        let first = ticks.values().min().copied().unwrap_or(u64::MAX);
                        assert!(
                            tick.max(wheel.hand) <= first.max(wheel.hand),
                            "seed {seed}, step {step}: out of order"
                        );
                    } else if budget > 0 {
                        assert!(
                            ticks.values().all(|tick| *tick > now),
                            "seed {seed}, step {step}: forgotten"
                        );
                    }
                    assert!(budget <= given);
                }
            }
            wheel.check_invariants();
            assert_eq!(wheel.len(), ticks.len(), "seed {seed}, step {step}");
            assert_eq!(
                wheel.contains(raw),
                ticks.contains_key(&raw),
                "seed {seed}, step {step}"
            );
            match (wheel.next_due_us(), ticks.values().min()) {
                (Some(next_us), Some(first)) => {
                    let due = (first * TICK_US).max(wheel.hand * TICK_US);
                    assert!(
                        next_us <= due,
                        "seed {seed}, step {step}: {next_us} after {due}"
                    );
                }
                (next_us, first) => {
                    assert_eq!(next_us, first.copied(), "seed {seed}, step {step}");
                }
            }
        }
    }
}
