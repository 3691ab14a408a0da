//! The kinds of random histories, and what a step of each is made of: keys, tokens, limits and times.

use crate::ask::{Ask, Block, lane, token};
use crate::model::Name;
use crate::world::World;
use dsync_engine::types::{Claim, MAX_PERMITS, Token};
use dsync_engine::{Family, Settings};

/// A small random generator: Vigna's xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}

/// One kind of random history.
#[derive(Clone, Copy)]
pub struct HistoryKind {
    pub label: &'static str,
    pub settings: Settings,
    pub keys: u64,
    /// Whether requests of any family go to any key. Otherwise most keys are used by one family only.
    pub mixed: bool,
    /// Whether keys are removed, renamed, swapped and flushed.
    pub keys_move: bool,
    /// Whether servers restart and change roles.
    pub servers_change: bool,
    /// Whether half of the requests for permits are with INDEX.
    pub indexed: bool,
    /// Whether requests for locks and permits may be with MINHOLD.
    pub paced: bool,
    /// Whether requests come with QUEUE.
    pub keeps: bool,
    /// In how many lanes requests for permits stand.
    pub lanes: u64,
    pub tokens: u64,
    pub conns: u64,
    pub steps: usize,
}

fn short(settings: Settings) -> Settings {
    Settings {
        rejoin_ms: 4,
        group_keep_ms: 6,
        takeover_grace_ms: 3,
        ..settings
    }
}

pub fn kinds() -> [HistoryKind; 10] {
    let usual = HistoryKind {
        label: "requests",
        settings: short(Settings::default()),
        keys: 4,
        mixed: false,
        keys_move: false,
        servers_change: false,
        indexed: false,
        paced: false,
        keeps: true,
        lanes: 1,
        tokens: 6,
        conns: 9,
        steps: 500,
    };
    [
        usual,
        HistoryKind {
            label: "keys that move",
            keys_move: true,
            ..usual
        },
        HistoryKind {
            label: "servers that change",
            servers_change: true,
            keys_move: true,
            ..usual
        },
        HistoryKind {
            label: "full queues",
            settings: Settings {
                max_waiters: 6,
                max_waiters_per_key: 3,
                ..usual.settings
            },
            tokens: 12,
            conns: 14,
            ..usual
        },
        // Keys do not move here, so the contract says exactly how long a key was idle.
        HistoryKind {
            label: "idle keys",
            settings: Settings {
                group_idle_ms: 9,
                once_keep_ms: 9,
                ..usual.settings
            },
            ..usual
        },
        // What one family leaves in a queue must not affect the next family that uses the key. Vacant places often
        // outlive their keys here.
        HistoryKind {
            label: "keys that change family",
            settings: Settings {
                rejoin_ms: 12,
                ..usual.settings
            },
            keys: 2,
            mixed: true,
            keys_move: true,
            servers_change: true,
            ..usual
        },
        // Every second key is a semaphore here. Which index is free follows from what happened first, so there are no
        // steps that leave several things to be done at once in any order: keys do not move, and pauses do not end.
        HistoryKind {
            label: "indexed permits",
            keys: 2,
            servers_change: true,
            indexed: true,
            ..usual
        },
        // Every second key is a lock, and the others are semaphores.
        HistoryKind {
            label: "places that rest",
            keys: 2,
            keys_move: true,
            servers_change: true,
            paced: true,
            ..usual
        },
        // What was said of indexed permits holds for the turns of lanes.
        HistoryKind {
            label: "lanes",
            keys: 2,
            servers_change: true,
            lanes: 4,
            paced: true,
            tokens: 9,
            conns: 12,
            ..usual
        },
        // A place keeps the turn of its lane, and the contract does not say in which order vacant and kept places run out
        // that are due at the same tick. So there are no kept ones here.
        HistoryKind {
            label: "full lanes",
            settings: Settings {
                max_waiters_per_key: 7,
                ..usual.settings
            },
            keys: 2,
            keeps: false,
            lanes: 3,
            paced: true,
            tokens: 12,
            conns: 14,
            ..usual
        },
    ]
}

pub struct Chooser {
    pub random: Random,
    pub kind: HistoryKind,
}

impl Chooser {
    pub fn name(&mut self) -> Name {
        let db = if self.kind.keys_move && self.random.one_in(4) {
            1
        } else {
            0
        };
        (db, self.random.below(self.kind.keys) as u8)
    }

    /// Returns a key for a command that only this family has.
    pub fn name_for(&mut self, family: Family) -> Name {
        let name = self.name();
        if self.kind.mixed || self.random.one_in(5) {
            name
        } else {
            (name.0, family as u8)
        }
    }

    /// Returns the family of a request for this key.
    pub fn family(&mut self, world: &World, name: Name) -> Family {
        if self.kind.mixed {
            let content = world.model.content(name).filter(|_| self.random.one_in(2));
            return content
                .map_or_else(|| self.random.pick(&Family::ALL), |content| content.family);
        }
        if self.random.one_in(12) {
            self.random.pick(&Family::ALL)
        } else {
            Family::ALL[name.1 as usize % 4]
        }
    }

    pub fn token(&mut self) -> u8 {
        self.random.below(self.kind.tokens) as u8
    }

    /// Returns a token, mostly one that the key knows: it holds, waits, has done the work, or its run lapsed.
    pub fn token_at(&mut self, world: &World, name: Name) -> u8 {
        let mut known: Vec<Token> = Vec::new();
        if let Some(content) = world.model.content(name) {
            known.extend(content.holds.iter().map(|hold| hold.token.clone()));
            known.extend(content.work.late.clone());
            known.extend(content.work.displaced.clone());
            known.extend(content.work.done.as_ref().map(|done| done.token.clone()));
        }
        let seats = world.model.seats(name).iter();
        known.extend(seats.filter_map(|seat| seat.token.clone()));
        let all = 0..self.kind.tokens as u8;
        let known: Vec<u8> = all.filter(|n| known.contains(&token(*n))).collect();
        if known.is_empty() || self.random.one_in(4) {
            self.token()
        } else {
            self.random.pick(&known)
        }
    }

    pub fn claim(&mut self, family: Family) -> Claim {
        match family {
            Family::Lock => self
                .random
                .pick(&[Claim::Exclusive, Claim::Exclusive, Claim::Shared]),
            Family::Semaphore if self.kind.indexed && self.random.one_in(2) => Claim::Indexed,
            Family::Semaphore => {
                Claim::Permits(self.random.pick(&[1, 1, 1, 2, 2, 3, 4, MAX_PERMITS]))
            }
            Family::Group => Claim::Member,
            Family::Once => Claim::Run,
        }
    }

    pub fn block(&mut self) -> Option<Block> {
        match self.random.below(10) {
            0..=2 => None,
            3..=4 => Some(Block::Forever),
            _ => Some(Block::Ms(1 + self.random.below(12))),
        }
    }

    pub fn ask(&mut self, world: &World, conn: usize) -> Ask {
        let name = self.name();
        let family = self.family(world, name);
        let limits: &[Option<u32>] = match family {
            Family::Lock | Family::Once => &[None],
            Family::Semaphore => &[
                None,
                Some(1),
                Some(2),
                Some(2),
                Some(3),
                Some(3),
                Some(MAX_PERMITS),
            ],
            Family::Group => &[None, None, Some(1), Some(2), Some(2)],
        };
        let max_attempts: &[Option<u32>] = match family {
            Family::Once => &[None, Some(1), Some(2), Some(3), Some(6), Some(MAX_PERMITS)],
            _ => &[None],
        };
        // With QUEUE a request has a token, and is neither with BLOCK nor EPHEMERAL.
        let keep_ms = match self.kind.keeps && self.random.one_in(3) {
            true => Some(self.random.pick(&[1, 4, 9, 30])),
            false => None,
        };
        let keeps = keep_ms.is_some();
        let may_rest = self.kind.paced && matches!(family, Family::Lock | Family::Semaphore);
        let min_hold_ms = match may_rest && self.random.one_in(2) {
            true => Some(self.random.pick(&[1, 3, 8, 20, 200])),
            false => None,
        };
        let claim = self.claim(family);
        let lane = match family {
            Family::Semaphore if self.kind.lanes > 1 => self.random.below(self.kind.lanes) as u8,
            _ => 0,
        };
        let lane_limit = match lane > 0 && self.random.one_in(3) {
            true => Some(claim.permits().min(2) + self.random.below(3) as u32),
            false => None,
        };
        Ask {
            name,
            claim,
            lane,
            lane_limit,
            limit: self.random.pick(limits),
            max_attempts: self.random.pick(max_attempts),
            lease_ms: self.random.pick(&[1, 2, 3, 5, 8, 13, 200]),
            min_hold_ms,
            block: self.block().filter(|_| !keeps),
            keep_ms,
            token: if self.random.one_in(6) && !keeps {
                None
            } else {
                Some(self.token())
            },
            conn,
            ephemeral: self.random.one_in(4) && !keeps,
            owner: self.random.pick(&[None, Some("alice"), Some("bob")]),
        }
    }

    /// Returns a request by the token of a vacant or kept place, if the key has one; otherwise any request. A vacant
    /// place may be one of a request that was withdrawn, so the request may come late.
    pub fn return_to(&mut self, world: &World, conn: usize) -> Ask {
        let mut ask = self.ask(world, conn);
        let vacant = world
            .model
            .seats(ask.name)
            .iter()
            .filter(|seat| seat.is_vacant() || seat.keep.is_some());
        let vacant: Vec<_> = vacant.collect();
        if !vacant.is_empty() {
            let seat = vacant[self.random.below(vacant.len() as u64) as usize];
            let number = |n: &u8| seat.token.as_ref() == Some(&token(*n));
            ask.token = (0..self.kind.tokens as u8).find(number);
            ask.claim = seat.claim.expect("a WAIT has no place");
            let may_rest = matches!(ask.claim.family(), Family::Lock | Family::Semaphore);
            ask.min_hold_ms = ask.min_hold_ms.filter(|_| may_rest);
            let same_lane = (0..self.kind.lanes as u8).find(|n| seat.lane == lane(*n));
            ask.lane = same_lane.unwrap_or(0);
            if self.kind.lanes > 1 && self.random.one_in(8) {
                ask.lane = 0;
            }
            ask.lane_limit = ask.lane_limit.filter(|_| ask.lane > 0);
            ask.limit = ask
                .limit
                .filter(|_| matches!(ask.claim.family(), Family::Semaphore | Family::Group));
            ask.max_attempts = ask.max_attempts.filter(|_| ask.claim == Claim::Run);
        }
        ask
    }

    /// Returns a connection that does not wait, if there is one.
    pub fn conn(&mut self, world: &mut World) -> usize {
        let first = self.random.below(self.kind.conns) as usize;
        let all = (0..self.kind.conns as usize).map(|n| (first + n) % self.kind.conns as usize);
        all.into_iter()
            .find(|conn| !world.is_blocked(*conn))
            .unwrap_or(first)
    }

    pub fn time(&mut self) -> u64 {
        match self.random.below(8) {
            0 => self.random.pick(&[1, 999, 1_000, 1_001, 1_023, 1_024]),
            1 => self.random.below(30_000),
            _ => 1_000 * self.random.below(4),
        }
    }
}
