//! What the rule of lanes promises as figures, in a simulation without a clock: clients that ask, hold and ask again.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::{Ask, Semaphore, lane, one};
use crate::store::tests::XorShift;
use crate::types::Rank;

const SECOND: u64 = 1_000_000;
/// How long a client takes to ask again.
const THINKS: u64 = 1_000;

/// How the requests of a client follow each other.
#[derive(Clone, Copy)]
struct Client {
    lane: u64,
    permits: u32,
    lane_limit: Option<u32>,
    /// The shortest and the longest job.
    job: (u64, u64),
    /// How many requests it sends, one when the last has ended.
    requests: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ask(usize),
    End(usize),
}

/// What became of a lane.
#[derive(Default)]
struct Served {
    waits: Vec<u64>,
    permit_time: u64,
}

struct Simulation {
    semaphore: Semaphore,
    /// First come, first served, instead of lanes.
    fifo: Option<VecDeque<(usize, u64)>>,
    clients: Vec<Client>,
    events: BinaryHeap<std::cmp::Reverse<(u64, u64, Event)>>,
    now: u64,
    last: u64,
    asked: BTreeMap<Rank, (usize, u64)>,
    served: BTreeMap<u64, Served>,
    free: u64,
    /// Permits times the time for which they were held.
    used: u64,
    random: XorShift,
    ended: u64,
}

fn job(seconds: u64) -> (u64, u64) {
    (seconds * SECOND, seconds * SECOND)
}

/// Jobs of one second on average.
const VARIED: (u64, u64) = (SECOND / 2, SECOND * 3 / 2);

fn always(lane: u64, job: (u64, u64)) -> Client {
    Client {
        lane,
        permits: 1,
        lane_limit: None,
        job,
        requests: u32::MAX,
    }
}

impl Simulation {
    fn new(limit: u32) -> Simulation {
        Simulation {
            semaphore: Semaphore::new(limit),
            fifo: None,
            clients: Vec::new(),
            events: BinaryHeap::new(),
            now: 0,
            last: 0,
            asked: BTreeMap::new(),
            served: BTreeMap::new(),
            free: u64::from(limit),
            used: 0,
            random: XorShift(42),
            ended: 0,
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.last += 1;
        self.events
            .push(std::cmp::Reverse((time, self.last, event)));
    }

    fn add(&mut self, count: usize, client: Client) {
        for _ in 0..count {
            self.clients.push(client);
            self.at(0, Event::Ask(self.clients.len() - 1));
        }
    }

    fn grant(&mut self, client: usize, asked_at: u64) {
        let Client {
            lane, permits, job, ..
        } = self.clients[client];
        let takes = job.0 + self.random.below(job.1 - job.0 + 1);
        let served = self.served.entry(lane).or_default();
        served.waits.push(self.now - asked_at);
        served.permit_time += takes * u64::from(permits);
        self.free -= u64::from(permits);
        self.at(self.now + takes, Event::End(client));
    }

    fn serve(&mut self) {
        if let Some(mut line) = self.fifo.take() {
            while let Some((client, asked_at)) = line.front().copied()
                && u64::from(self.clients[client].permits) <= self.free
            {
                line.pop_front();
                self.grant(client, asked_at);
            }
            self.fifo = Some(line);
        }
        while let Some((rank, ..)) = self.semaphore.serve_one() {
            let (client, asked_at) = self.asked.remove(&rank).expect("it asked");
            self.grant(client, asked_at);
        }
    }

    /// Runs until this moment, or until nobody asks any more.
    fn run(mut self, until: u64) -> Simulation {
        while let Some(std::cmp::Reverse((time, _, event))) = self.events.pop()
            && time <= until
        {
            let taken = u64::from(self.semaphore.limit) - self.free;
            self.used += taken * (time - self.now);
            self.now = time;
            match event {
                Event::Ask(client) => {
                    let asks = &mut self.clients[client];
                    asks.requests -= 1;
                    let (name, permits) = (lane(asks.lane), asks.permits);
                    let ask = Ask {
                        lane_limit: asks.lane_limit,
                        ..one(permits)
                    };
                    match &mut self.fifo {
                        Some(line) => line.push_back((client, time)),
                        None => {
                            let rank = self.semaphore.ask(&name, ask);
                            self.asked.insert(rank, (client, time));
                        }
                    }
                }
                Event::End(client) => {
                    let ends = self.clients[client];
                    self.free += u64::from(ends.permits);
                    if self.fifo.is_none() {
                        self.semaphore.end(&lane(ends.lane), ends.permits);
                    }
                    self.ended = time;
                    if ends.requests > 0 {
                        self.at(time + THINKS, Event::Ask(client));
                    }
                }
            }
            self.serve();
        }
        self
    }

    /// Returns the share of the permits that the lane had, of all that were used.
    fn share(&self, lane: u64) -> f64 {
        let all: u64 = self.served.values().map(|served| served.permit_time).sum();
        self.served[&lane].permit_time as f64 / all as f64
    }

    /// Returns Jain's index of the shares: 1 if all lanes have had the same.
    fn jain(&self) -> f64 {
        let shares: Vec<f64> = self.served.keys().map(|lane| self.share(*lane)).collect();
        let squares: f64 = shares.iter().map(|share| share * share).sum();
        1.0 / (shares.len() as f64 * squares)
    }

    /// Returns how much of the permits was in use.
    fn in_use(&self) -> f64 {
        self.used as f64 / (self.now * u64::from(self.semaphore.limit)) as f64
    }

    fn median_wait(&self, lane: u64) -> u64 {
        let mut waits = self.served[&lane].waits.clone();
        waits.sort_unstable();
        waits[waits.len() / 2]
    }
}

/// A tenant sends 1,000 jobs of a second at once, and then three others 20 each, to a semaphore of 10.
fn flood(others: (usize, u32), fifo: bool) -> Simulation {
    let mut simulation = Simulation::new(10);
    simulation.fifo = fifo.then(VecDeque::new);
    let once = Client {
        requests: 1,
        ..always(1, job(1))
    };
    simulation.add(1_000, once);
    for lane in 2..5 {
        let (clients, requests) = others;
        let client = Client {
            lane,
            requests,
            ..once
        };
        simulation.add(clients, client);
    }
    simulation.run(u64::MAX)
}

#[test]
fn flood_of_one_tenant_does_not_delay_others() {
    for (clients, requests, jobs) in [(1, 20, 1), (4, 5, 2), (20, 1, 5)] {
        let fair = flood((clients, requests), false);
        let fifo = flood((clients, requests), true);
        for lane in 2..5 {
            let wait = fair.median_wait(lane);
            // 20 at once wait for a quarter of 10 permits each, behind the jobs that run.
            assert!(wait <= jobs * SECOND, "{clients} clients: {wait} us");
        }
        let (fair, fifo) = (fair.ended, fifo.ended);
        assert!(fair * 100 <= fifo * 103, "{fair} us in all, {fifo} by FIFO");
    }
}

#[test]
fn lanes_that_always_want_more_have_equal_shares() {
    for (limit, lanes) in [(1, 3), (4, 4), (10, 3), (10, 7), (50, 8)] {
        let mut simulation = Simulation::new(limit);
        for lane in 1..=lanes {
            simulation.add(20 * lane as usize + 50, always(lane, VARIED));
        }
        let simulation = simulation.run(2_000 * SECOND);
        let (jain, in_use) = (simulation.jain(), simulation.in_use());
        assert!(jain >= 0.99, "LIMIT {limit}, {lanes} lanes: {jain}");
        assert!(in_use >= 0.99, "LIMIT {limit}, {lanes} lanes: {in_use}");
    }
}

#[test]
fn lanes_share_permits_whatever_their_jobs_take() {
    for lanes in [2, 3, 4] {
        let mut simulation = Simulation::new(5 * lanes as u32);
        simulation.add(100, always(1, (10 * SECOND, 30 * SECOND)));
        (2..=lanes).for_each(|lane| simulation.add(100, always(lane, VARIED)));
        let jain = simulation.run(2_000 * SECOND).jain();
        assert!(jain >= 0.99, "{lanes} lanes: {jain}");
    }
}

/// The turn moves when a hold ends, too: otherwise such a client had two thirds of its share.
#[test]
fn client_that_sends_one_request_at_a_time_has_its_share_beside_floods() {
    for (limit, floods) in [(1, 1), (1, 2), (1, 5), (2, 3), (5, 9)] {
        let mut simulation = Simulation::new(limit);
        (2..2 + floods).for_each(|lane| simulation.add(200, always(lane, job(1))));
        simulation.add(1, always(1, job(1)));
        let share = simulation.run(2_000 * SECOND).share(1) * (floods + 1) as f64;
        assert!(share >= 0.98, "LIMIT {limit}, {floods} floods: {share}");
    }
}

#[test]
fn permits_are_used_beside_large_requests_and_lane_limits() {
    let mut simulation = Simulation::new(10);
    simulation.add(100, always(1, VARIED));
    let limited = Client {
        lane_limit: Some(3),
        ..always(2, VARIED)
    };
    simulation.add(100, limited);
    // Beside the three in use, the first request of this lane never fits.
    let mixed = Client {
        permits: 8,
        ..always(3, VARIED)
    };
    simulation.add(2, mixed);
    let simulation = simulation.run(2_000 * SECOND);
    let large = &simulation.served[&3];
    assert!(
        large.waits.len() > 100,
        "{} times 8 permits",
        large.waits.len()
    );
    assert!(large.waits.iter().all(|wait| *wait < 20 * SECOND));
}
