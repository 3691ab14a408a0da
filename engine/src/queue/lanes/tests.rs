//! Lanes beside a naive reference, in random histories, and the laws of fair shares.

mod figures;
mod stories;

use std::collections::BTreeMap;

use super::{Ask, Lanes};
use crate::short_bytes::LaneName;
use crate::store::tests::XorShift;
use crate::types::{Fence, InUse, Rank, Turn};

pub fn lane(number: u64) -> LaneName {
    match number {
        0 => LaneName::default(),
        _ => format!("tenant {number}").as_bytes().into(),
    }
}

pub fn one(permits: u32) -> Ask {
    Ask {
        permits,
        lane_limit: None,
        is_kept: false,
    }
}

/// A semaphore that does what the engine does with its lanes.
#[derive(Default)]
pub struct Semaphore {
    pub lanes: Lanes,
    pub limit: u32,
    pub in_use: BTreeMap<LaneName, InUse>,
    pub asks: BTreeMap<Rank, (LaneName, Ask)>,
    last: u64,
    /// How many lanes are sorted at a step; without one, sorting ends at once.
    pub slice: Option<u32>,
}

impl Semaphore {
    pub fn new(limit: u32) -> Semaphore {
        Semaphore {
            limit,
            ..Semaphore::default()
        }
    }

    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub fn ask(&mut self, lane: &LaneName, ask: Ask) -> Rank {
        let rank = Rank(Fence(self.number()));
        self.join(lane, rank, Some(ask));
        rank
    }

    pub fn join(&mut self, lane: &LaneName, rank: Rank, ask: Option<Ask>) {
        let turn = Turn(self.number());
        self.lanes.join(lane, rank, ask, turn);
        if let Some(ask) = ask {
            self.asks.insert(rank, (lane.clone(), ask));
        }
    }

    pub fn leave(&mut self, lane: &LaneName, rank: Rank) {
        self.asks.remove(&rank);
        self.lanes.leave(lane, rank);
    }

    pub fn sort(&mut self) -> bool {
        let in_use = &self.in_use;
        let copy = |lane: &LaneName| in_use.get(lane).copied().unwrap_or_default();
        self.lanes.sort(&mut self.slice.unwrap_or(u32::MAX), copy)
    }

    pub fn taken(&self) -> u64 {
        self.in_use.values().map(|in_use| in_use.permits).sum()
    }

    fn count(&mut self, lane: &LaneName, count: impl FnOnce(&mut u64)) {
        let turn = Turn(self.number());
        let in_use = self.in_use.entry(lane.clone()).or_default();
        count(&mut in_use.permits);
        in_use.turn = turn;
        let in_use = *in_use;
        if in_use.permits == 0 {
            self.in_use.remove(lane);
        }
        self.lanes.note(lane.as_bytes(), in_use);
    }

    pub fn end(&mut self, lane: &LaneName, permits: u32) {
        self.count(lane, |taken| *taken -= u64::from(permits));
    }

    /// Serves one request, if one can be served.
    pub fn serve_one(&mut self) -> Option<(Rank, LaneName, Ask)> {
        if !self.sort() {
            return None;
        }
        let free = u64::from(self.limit).saturating_sub(self.taken());
        self.lanes.choose(self.limit, free > 0);
        let rank = self.lanes.chosen()?;
        let (lane, ask) = self.asks[&rank].clone();
        if u64::from(ask.permits) > free {
            return None;
        }
        self.leave(&lane, rank);
        self.count(&lane, |taken| *taken += u64::from(ask.permits));
        Some((rank, lane, ask))
    }
}

/// A request in the naive reference.
#[derive(Clone, Copy)]
struct Waits {
    rank: u64,
    lane: u64,
    ask: Ask,
}

/// The rule, as it is written, over plain lists.
#[derive(Default)]
struct Naive {
    limit: u32,
    waits: Vec<Waits>,
    vacant: Vec<(u64, u64)>,
    holds: Vec<(u64, u32)>,
    turns: BTreeMap<u64, u64>,
    clock: u64,
    chosen: Option<u64>,
}

impl Naive {
    fn in_use(&self, lane: u64) -> u64 {
        let of_lane = self.holds.iter().filter(|hold| hold.0 == lane);
        of_lane.map(|hold| u64::from(hold.1)).sum()
    }

    fn move_turn(&mut self, lane: u64) {
        self.clock += 1;
        self.turns.insert(lane, self.clock);
    }

    fn come(&mut self, lane: u64) {
        if !self.turns.contains_key(&lane) {
            self.move_turn(lane);
        }
    }

    /// A lane keeps its turn while it has a hold, a request or a vacant place.
    fn forget(&mut self) {
        let (waits, vacant, holds) = (&self.waits, &self.vacant, &self.holds);
        self.turns.retain(|lane, _| {
            waits.iter().any(|waits| waits.lane == *lane)
                || vacant.iter().any(|place| place.1 == *lane)
                || holds.iter().any(|hold| hold.0 == *lane)
        });
    }

    fn stands_aside(&self, first: &Waits) -> bool {
        let after = self.in_use(first.lane) + u64::from(first.ask.permits);
        let most = first.ask.lane_limit.unwrap_or(u32::MAX).min(self.limit);
        after > u64::from(most)
    }

    fn firsts(&self) -> Vec<Waits> {
        let is_first = |waits: &&Waits| {
            let mut others = self.waits.iter();
            !others.any(|other| other.lane == waits.lane && other.rank < waits.rank)
        };
        self.waits.iter().filter(is_first).copied().collect()
    }

    fn serve_one(&mut self) -> Option<u64> {
        let mut firsts = self.firsts();
        firsts.retain(|first| !self.stands_aside(first));
        let chosen = firsts.iter().find(|first| Some(first.rank) == self.chosen);
        let taken: u64 = self.holds.iter().map(|hold| u64::from(hold.1)).sum();
        let is_free = taken < u64::from(self.limit);
        let best = firsts
            .iter()
            .min_by_key(|first| (self.in_use(first.lane), self.turns[&first.lane]));
        let next = chosen.or(best.filter(|_| is_free)).copied();
        self.chosen = next.map(|next| next.rank);
        let next = next?;
        if taken + u64::from(next.ask.permits) > u64::from(self.limit) {
            return None;
        }
        self.waits.retain(|waits| waits.rank != next.rank);
        self.holds.push((next.lane, next.ask.permits));
        self.move_turn(next.lane);
        Some(next.rank)
    }

    /// Says that no permit is left idle: who waits is behind somebody of its lane, does not fit, or waits for the one
    /// that was chosen.
    fn check_use(&self) {
        let taken: u64 = self.holds.iter().map(|hold| u64::from(hold.1)).sum();
        for first in self.firsts() {
            let fits = taken + u64::from(first.ask.permits) <= u64::from(self.limit);
            let own = self.in_use(first.lane) + u64::from(first.ask.permits);
            let within = first
                .ask
                .lane_limit
                .is_none_or(|most| own <= u64::from(most));
            let is_held_up = self.chosen.is_some_and(|chosen| chosen != first.rank);
            assert!(
                !fits || !within || is_held_up,
                "rank {} is idle",
                first.rank
            );
        }
    }
}

/// Counts how often each lane that waits with nothing in use is passed by each other.
#[derive(Default)]
struct Passes(BTreeMap<(u64, u64), u32>);

impl Passes {
    fn granted(&mut self, naive: &Naive, lane: u64) {
        self.0.retain(|(passed, _), _| *passed != lane);
        for first in naive.firsts() {
            let waits = first.lane != lane && !naive.stands_aside(&first);
            if waits && naive.in_use(first.lane) == 0 {
                let times = self.0.entry((first.lane, lane)).or_default();
                *times += 1;
                assert!(*times < 2, "lane {} is passed twice by {lane}", first.lane);
            }
        }
    }

    /// What was counted is over for a lane that holds, has gone, or stands aside.
    fn settle(&mut self, naive: &Naive) {
        let firsts = naive.firsts();
        let waits = |lane: u64| {
            let mut firsts = firsts.iter();
            firsts.any(|first| first.lane == lane && !naive.stands_aside(first))
        };
        self.0
            .retain(|(passed, _), _| naive.in_use(*passed) == 0 && waits(*passed));
    }
}

struct History {
    ours: Semaphore,
    naive: Naive,
    passes: Passes,
    random: XorShift,
}

impl History {
    fn step(&mut self) {
        let lanes = 1 + self.random.below(6);
        let number = self.random.below(lanes);
        let name = lane(number);
        match self.random.below(20) {
            0..=7 => {
                let permits = 1 + self.random.below(u64::from(self.ours.limit.clamp(1, 5))) as u32;
                let lane_limit = permits + self.random.below(4) as u32;
                let ask = Ask {
                    permits,
                    lane_limit: Some(lane_limit).filter(|_| self.random.below(3) == 0),
                    is_kept: self.random.below(2) == 0,
                };
                let rank = self.ours.ask(&name, ask).0.0;
                self.naive.come(number);
                self.naive.waits.push(Waits {
                    rank,
                    lane: number,
                    ask,
                });
            }
            8..=13 if !self.naive.holds.is_empty() => {
                let nth = self.random.below_usize(self.naive.holds.len());
                let (number, permits) = self.naive.holds.remove(nth);
                self.naive.move_turn(number);
                self.ours.end(&lane(number), permits);
            }
            14 | 15 if !self.naive.waits.is_empty() => self.leave_or_vacate(),
            16 if !self.naive.vacant.is_empty() => self.come_back(),
            17 => {
                let limit = self.random.below(9) as u32;
                (self.ours.limit, self.naive.limit) = (limit, limit);
            }
            18 => self.ours.lanes.sort_anew(),
            _ => {}
        }
    }

    fn leave_or_vacate(&mut self) {
        let nth = self.random.below_usize(self.naive.waits.len());
        let left = self.naive.waits.remove(nth);
        let (name, rank) = (lane(left.lane), Rank(Fence(left.rank)));
        self.ours.leave(&name, rank);
        if self.random.below(2) == 0 {
            self.naive.vacant.push((left.rank, left.lane));
            self.ours.join(&name, rank, None);
        }
    }

    /// A token comes back to its vacant place, or gives it up.
    fn come_back(&mut self) {
        let nth = self.random.below_usize(self.naive.vacant.len());
        let (number, of) = self.naive.vacant.remove(nth);
        let (name, rank) = (lane(of), Rank(Fence(number)));
        self.ours.leave(&name, rank);
        if self.random.below(3) > 0 {
            let ask = one(1);
            self.ours.join(&name, rank, Some(ask));
            self.naive.waits.push(Waits {
                rank: number,
                lane: of,
                ask,
            });
        }
    }

    fn serve(&mut self, case: &str) {
        while !self.ours.sort() {}
        self.naive.forget();
        loop {
            let (ours, theirs) = (self.ours.serve_one(), self.naive.serve_one());
            assert_eq!(ours.as_ref().map(|(rank, ..)| rank.0.0), theirs, "{case}");
            let Some((_, name, _)) = ours else { break };
            let number = (0..6).find(|number| lane(*number) == name).expect("ours");
            self.passes.granted(&self.naive, number);
        }
        let chosen = self.ours.lanes.chosen().map(|rank| rank.0.0);
        assert_eq!(chosen, self.naive.chosen, "{case}: the chosen one");
        self.naive.check_use();
        self.naive.forget();
        self.passes.settle(&self.naive);
        let mut firsts = self.naive.firsts().into_iter();
        let stands_aside = firsts.all(|first| self.naive.stands_aside(&first));
        let ours = &self.ours.lanes;
        let ours = ours.is_sorted() && ours.all_stand_aside(self.ours.limit);
        // A lane that lost its last place is not sorted yet.
        assert!(!ours || stands_aside, "{case}: all stand aside");
    }
}

#[test]
fn lanes_serve_as_the_rule_says_in_random_histories() {
    for seed in 1..400_u64 {
        let limit = 1 + (seed % 10) as u32;
        let mut history = History {
            ours: Semaphore::new(limit),
            naive: Naive {
                limit,
                ..Naive::default()
            },
            passes: Passes::default(),
            random: XorShift(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        };
        history.ours.slice = [None, Some(1), Some(3)][(seed % 3) as usize];
        for step in 0..300 {
            history.step();
            history.serve(&format!("seed {seed}, step {step}"));
        }
    }
}
