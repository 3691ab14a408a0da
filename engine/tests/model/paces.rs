//! A semaphore whose requests all say MINHOLD, on a primary with a replica: no grant comes too early, whatever happens
//! to the servers. `callers` are the clients.
//!
//! What happens: the clocks move and the timer does not run; the lease clock stands still; the wall clocks step; the
//! replica is behind, is promoted, and does not know the last changes; a primary restarts, or is demoted and promoted
//! again; the limit changes. Without the model, which would be too slow for a million grants.
//!
//! `DSYNC_GRANTS=n` asks for n grants, and `DSYNC_SEED=n` for other random numbers.

mod callers;

use crate::chooser::Random;
use crate::fixture::{KEY, MS};
use crate::history::number_from_env;
use crate::laws::rests::RestLaws;
use crate::server::{Beginning, Done, Server};
use crate::world::START_US;
use callers::Caller;
use dsync_engine::change::{Change, End};
use dsync_engine::types::{LeaseUs, MonoUs, Now, UnixMs};
use dsync_engine::{Family, Settings, Visit};

/// Any span of so long has at most the highest limit of grants.
const SPAN_MS: u32 = 100;
/// The wall clocks are less than this apart, so a take-over shortens no rest.
const GRACE_MS: u64 = 60;
const CALLERS: usize = 24;
const HIGHEST_LIMIT: u64 = 20;

struct Paced {
    random: Random,
    servers: [Server; 2],
    /// Which of the servers decides.
    primary: usize,
    lease: [LeaseUs; 2],
    /// How far the wall clock of each server is ahead.
    ahead_us: [u64; 2],
    mono: MonoUs,
    may_write: bool,
    /// What the replica has still to follow.
    unsent: Vec<Done>,
    callers: Vec<Caller>,
    last_client: u64,
    /// The limit that new requests bring, and the one in force.
    asked: u32,
    in_force: Option<u32>,
    /// The law by the lease clock of the primary, since it took over.
    since_take_over: RestLaws,
    /// The law by the monotonic clock, over all take-overs.
    over_all: RestLaws,
    grants: u64,
    /// The last microsecond of some grant's span.
    edge: MonoUs,
    /// Grants that a failover has lost.
    lost: u64,
}

impl Paced {
    fn new(seed: u64) -> Paced {
        let settings = Settings {
            takeover_grace_ms: GRACE_MS,
            rejoin_ms: 50,
            ..Settings::default()
        };
        let mut paced = Paced {
            random: Random::new(seed),
            servers: [Server::new(settings), Server::new(settings)],
            primary: 0,
            lease: [LeaseUs(0); 2],
            ahead_us: [0; 2],
            mono: MonoUs(0),
            may_write: true,
            unsent: Vec::new(),
            callers: Vec::new(),
            last_client: 0,
            asked: 1,
            in_force: None,
            since_take_over: RestLaws::default(),
            over_all: RestLaws::default(),
            grants: 0,
            edge: MonoUs(0),
            lost: 0,
        };
        paced.callers = (0..CALLERS).map(Caller::new).collect();
        paced.begin(Beginning::Start);
        paced
    }

    fn now_of(&self, server: usize) -> Now {
        Now {
            lease: self.lease[server],
            mono: self.mono,
            unix_us: START_US + self.mono.0 + self.ahead_us[server],
            may_write: self.may_write,
        }
    }

    fn now(&self) -> Now {
        self.now_of(self.primary)
    }

    fn step(&mut self) {
        match self.random.below(2_000) {
            0 => self.fail_over(),
            1 => self.come_back(),
            2 => self.restart(),
            3..=5 => self.step_wall_clock(),
            6..=20 => self.asked = 1 + self.random.below(HIGHEST_LIMIT) as u32,
            21..=30 => self.stand_still(),
            31..=900 => self.pass(),
            _ => {
                let caller = self.random.below(CALLERS as u64) as usize;
                self.act(caller);
            }
        }
    }

    /// Time passes; the timer may be late.
    fn pass(&mut self) {
        let next = self.servers[self.primary].engine.next_wake(self.now());
        let next = next.unwrap_or(0).min(20 * MS);
        let at_random = self.random.below(10 * MS);
        let to_edge = self.edge.0.saturating_sub(self.mono.0);
        let all = [
            0,
            1,
            next,
            next.saturating_sub(1),
            at_random,
            at_random,
            to_edge,
        ];
        let us = self.random.pick(&all);
        self.mono.0 += us;
        self.lease.iter_mut().for_each(|lease| lease.0 += us);
        if !self.random.one_in(3) {
            self.tick();
        }
        let keeps_up_to = self.random.below(1 + self.unsent.len() as u64) as usize;
        self.send(keeps_up_to);
    }

    /// Time passes, but not for the lease clock: the server takes no writes, or does not run.
    fn stand_still(&mut self) {
        self.may_write = false;
        for _ in 0..3 {
            self.mono.0 += self.random.below(80 * MS);
            self.tick();
        }
        self.may_write = true;
    }

    fn step_wall_clock(&mut self) {
        let server = self.random.below(2) as usize;
        // Deadlines are in milliseconds, which are rounded down.
        let most = (GRACE_MS - 1) * MS;
        let at_random = self.random.below(most);
        self.ahead_us[server] = self.random.pick(&[0, at_random, most]);
    }

    fn tick(&mut self) {
        for done in self.servers[self.primary].run_tasks(self.now()) {
            self.take(done);
        }
    }

    fn call<R>(&mut self, call: impl FnOnce(&mut Visit<'_>) -> R) -> R {
        let (now, server) = (self.now(), &mut self.servers[self.primary]);
        let (result, done) = server.call(KEY, Family::Semaphore, now, call);
        self.take(done);
        result
    }

    /// Checks what the primary did.
    fn take(&mut self, mut done: Done) {
        let now = self.now();
        for change in &done.changes {
            match change {
                Change::Limit(limit) => self.in_force = Some(*limit),
                Change::Vanish => self.in_force = None,
                Change::Grant(_) => {
                    self.grants += 1;
                    if self.edge <= now.mono {
                        self.edge = MonoUs(now.mono.after_ms(SPAN_MS.into()).0 - 1);
                    }
                }
                _ => {}
            }
            let (limit, mono) = (self.in_force, LeaseUs(now.mono.0));
            (self.since_take_over).written(KEY, change, limit, now.lease);
            self.over_all.written(KEY, change, limit, mono);
        }
        for wake in std::mem::take(&mut done.wakes) {
            self.told(&wake);
        }
        self.unsent.push(done);
    }

    /// The replica follows so many of the calls.
    fn send(&mut self, calls: usize) {
        let replica = 1 - self.primary;
        let now = self.now_of(replica);
        for done in self.unsent.drain(..calls) {
            self.servers[replica].follow(&done, now);
        }
    }

    /// The replica is promoted. What it has not followed is lost: such a grant does not count, and one of which it has not
    /// heard that the token has heard of it ends without a rest.
    fn fail_over(&mut self) {
        let is_whole = self.random.one_in(2);
        if is_whole {
            self.send(self.unsent.len());
        }
        let (unix, none) = (UnixMs(0), LeaseUs(0));
        for change in self.unsent.drain(..).flat_map(|done| done.changes) {
            if let Change::Grant(grant) = change {
                self.lost += 1;
                let (fence, how, at) = (grant.fence, End::Undelivered, unix);
                let end = Change::End { fence, how, at };
                self.over_all.written(KEY, &end, None, none);
            }
        }
        let known = self.servers[1 - self.primary].state(KEY);
        let known = known.into_iter().flat_map(|state| state.body.as_changes());
        for change in known.filter(|change| matches!(change, Change::Unheard { .. })) {
            self.over_all.written(KEY, &change, None, none);
        }
        self.stand_down();
        let old = self.primary;
        self.primary = 1 - old;
        self.begin(Beginning::Promotion);
        // The old primary follows on with what it has; or, at least if it had more, with a full copy.
        if !is_whole || self.random.one_in(2) {
            self.servers[old] = self.copy(old);
        }
    }

    /// The primary is demoted, and promoted again.
    fn come_back(&mut self) {
        self.stand_down();
        self.begin(Beginning::Promotion);
    }

    /// The primary starts anew from its file, with another lease clock.
    fn restart(&mut self) {
        self.stand_down();
        self.servers[self.primary] = self.copy(self.primary);
        self.lease[self.primary] = LeaseUs(0);
        self.begin(Beginning::Start);
    }

    fn copy(&mut self, of: usize) -> Server {
        let as_changes = self.random.one_in(2);
        let now = self.now_of(of);
        self.servers[self.primary].reloaded(as_changes, now, now)
    }

    /// The primary decides no more. Some time passes without one.
    fn stand_down(&mut self) {
        let server = &mut self.servers[self.primary];
        server.engine.dismiss_all();
        server.engine.effects.clear();
        server.engine.stand_down();
        server.finish_background();
        let ms = self.random.pick(&[0, 1, 10, 50, 300]);
        self.mono.0 += self.random.below(ms * MS + 1);
    }

    fn begin(&mut self, beginning: Beginning) {
        let latest = self.servers[self.primary].engine.latest_due();
        let lease = &mut self.lease[self.primary];
        *lease = LeaseUs(latest.0 + 1).max(*lease);
        let (now, server) = (self.now(), &mut self.servers[self.primary]);
        server.begin(beginning, now);
        server.engine.take_over(now);
        let limit = server.state(KEY).map(|state| state.body.limit_in_force());
        self.in_force = limit.flatten();
        self.since_take_over = RestLaws::default();
        self.lose_connections();
    }
}

/// Returns what has happened until there were so many grants.
fn run(seed: u64, grants: u64) -> Paced {
    let mut paced = Paced::new(seed);
    for step in 0..200 * grants {
        if paced.grants >= grants {
            return paced;
        }
        paced.step();
        if step % 1_000 == 0 {
            for server in 0..2 {
                let now = paced.now_of(server);
                paced.servers[server].engine.check_invariants(now);
            }
        }
    }
    panic!("{} grants of {grants}", paced.grants);
}

#[test]
fn no_grant_comes_too_early_under_stalls_and_failovers() {
    let seed = number_from_env("DSYNC_SEED").unwrap_or(1);
    let grants = number_from_env("DSYNC_GRANTS").unwrap_or(50_000);
    println!("DSYNC_SEED={seed} DSYNC_GRANTS={grants}");
    let paced = run(seed, grants);
    assert!(paced.lost < grants / 10, "{} are lost", paced.lost);
}
