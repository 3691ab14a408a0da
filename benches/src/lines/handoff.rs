//! From a release to the next waiter's reply, by the clock of one client thread that does both.
//!
//! Clients stand in a ring: one holds, the others wait. The holder releases, the next one's reply is read, the former
//! holder queues again, and the server has parked it before the next release is sent. Theirs is the same ring over
//! LPUSH and BLPOP on a server without the module: the queue that Redis itself has. No client is added or lost, so the
//! number of waiters stays what the row says.

use std::path::Path;
use std::time::Instant;

use super::commands::granted;
use crate::bench::{Bench, Side, alternate};
use crate::client::{Client, expect, wrong};
use crate::invalid::{Invalid, Result};
use crate::row::{Place, Row, Samples};
use crate::server::{Setting, info_number};
use crate::statistics::median;
use crate::words::token;
use dsync_testkit::resp::{Frame, write_request};

const KEY: &[u8] = b"queue";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    Lock,
    /// As `Lock`, and a grant counts when WAIT says that a replica has it.
    Confirmed,
    List,
}

impl Queue {
    pub fn of(is_ours: bool) -> Self {
        if is_ours { Self::Lock } else { Self::List }
    }
}

/// The clients of one queue. The one at `holder` holds, or was served last.
pub struct Ring {
    queue: Queue,
    clients: Vec<Client>,
    holder: usize,
    /// The number of each client's token: every request has a new one.
    tokens: Vec<u64>,
    next_token: u64,
    last_fence: i64,
}

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let waiters = bench.size(1_000, 100);
    let handoffs = bench.size(300, 20);
    for (setting, target) in [(Setting::Plain, 1.1), (Setting::Both, 1.2)] {
        let samples = alternating(bench, &bench.options.server, setting, waiters, handoffs)?;
        let name = format!("RELEASE → grant / LPUSH → BLPOP, {waiters} waiters");
        let row = Row::new("handoff", name, "µs", samples);
        rows.push(row.setting(setting.name()).cost_at_most(target));
    }
    Ok(())
}

/// The hand-offs of ours and of theirs in turns, so many in each slice, on servers of this program.
pub fn alternating(
    bench: &Bench,
    program: &Path,
    setting: Setting,
    waiters: usize,
    handoffs: usize,
) -> Result<Samples> {
    let mut samples = Samples::default();
    for pair in 0..bench.pairs() {
        let (mut ours, mut theirs) = bench.both_of(program, setting, false)?;
        let lock = Ring::new(&mut ours, Queue::Lock, waiters)?;
        let list = Ring::new(&mut theirs, Queue::List, waiters)?;
        let mut sides = ((ours, lock), (theirs, list));
        let slices = alternate(pair, (&mut sides.0, &mut sides.1), |(side, ring), _| {
            Ok(median(&ring.handoffs(&mut side.control, handoffs)?))
        })?;
        for (mut side, _) in [sides.0, sides.1] {
            side.server.settle_replica(&mut side.control)?;
        }
        samples.push_slices(&slices);
    }
    Ok(samples)
}

/// What it costs that a replica confirms each grant. Both sides are servers with the module and a replica.
pub fn run_confirmed(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let (waiters, handoffs) = (16, bench.size(300, 20));
    let mut samples = Samples::default();
    for pair in 0..bench.pairs() {
        let side = |queue| {
            let mut side = bench.ours(Setting::Replica)?;
            let ring = Ring::new(&mut side, queue, waiters)?;
            Ok((side, ring))
        };
        let mut sides = (side(Queue::Confirmed)?, side(Queue::Lock)?);
        let slices = alternate(pair, (&mut sides.0, &mut sides.1), |(side, ring), _| {
            Ok(median(&ring.handoffs(&mut side.control, handoffs)?))
        })?;
        samples.push_slices(&slices);
    }
    let name = format!("RELEASE → confirmed grant / RELEASE → grant, {waiters} waiters");
    let row = Row::new("confirmed", name, "µs", samples);
    rows.push(row.setting(Setting::Replica.name()));
    Ok(())
}

pub fn run_growth(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let many = bench.clients("handoff-growth", bench.size(10_000, 500));
    let mut growth = Samples::default();
    let (mut with_few, mut with_many) = (Samples::default(), Samples::default());
    for pair in 0..bench.pairs() {
        let few = latencies(bench, pair, 10)?;
        let lots = latencies(bench, pair, many)?;
        growth.push(lots.0 / few.0, lots.1 / few.1);
        with_few.push(few.0, few.1);
        with_many.push(lots.0, lots.1);
    }
    for (waiters, samples) in [(10, with_few), (many, with_many)] {
        let name = format!("RELEASE → grant / LPUSH → BLPOP, {waiters} waiters");
        rows.push(Row::new("handoff-growth", name, "µs", samples).at(place(waiters)));
    }
    let name = format!("{many} waiters beside 10 / BLPOP's own growth");
    rows.push(Row::new("handoff-growth", name, "×", growth).cost_at_most(1.25));
    Ok(())
}

pub fn place(waiters: usize) -> Place {
    Place::Curve {
        chart: "hand-off latency",
        x_name: "waiters",
        x: waiters as f64,
    }
}

/// Returns the median hand-off of ours and of theirs, in microseconds.
pub fn latencies(bench: &Bench, pair: usize, waiters: usize) -> Result<(f64, f64)> {
    bench.in_turn(pair, Setting::Plain, |mut side, is_ours| {
        let mut ring = Ring::new(&mut side, Queue::of(is_ours), waiters)?;
        let handoffs = ring.handoffs(&mut side.control, bench.size(2_000, 100))?;
        Ok(median(&handoffs))
    })
}

impl Ring {
    /// Connects `waiters` clients and one that holds. All wait when this returns.
    pub fn new(side: &mut Side, queue: Queue, waiters: usize) -> Result<Self> {
        let mut ring = Self::idle(side, queue, waiters)?;
        ring.enqueue_all()?;
        ring.await_parked(side)?;
        Ok(ring)
    }

    /// The same, and nobody waits yet.
    pub fn idle(side: &mut Side, queue: Queue, waiters: usize) -> Result<Self> {
        let mut ring = Self {
            queue,
            clients: side.server.clients(waiters + 1)?,
            holder: 0,
            tokens: vec![0; waiters + 1],
            next_token: 0,
            last_fence: 0,
        };
        if queue != Queue::List {
            ring.enqueue(0)?;
            ring.receive_grant(0)?;
        }
        Ok(ring)
    }

    /// Sends the request of each client but the one that holds.
    pub fn enqueue_all(&mut self) -> Result<()> {
        (1..self.clients.len()).try_for_each(|client| self.enqueue(client))
    }

    /// Returns when the server has parked them all.
    pub fn await_parked(&self, side: &mut Side) -> Result<()> {
        let (control, waiters) = (&mut side.control, self.clients.len() - 1);
        side.server.eventually("all clients to wait", || {
            Ok(info_number(control, "clients", "blocked_clients")? as usize == waiters)
        })
    }

    /// Returns how long each of `count` hand-offs took, in microseconds.
    pub fn handoffs(&mut self, control: &mut Client, count: usize) -> Result<Vec<f64>> {
        let mut waits = Vec::with_capacity(count);
        for _ in 0..count {
            let (holder, next) = (self.holder, (self.holder + 1) % self.clients.len());
            self.write_release(holder);
            let begin = Instant::now();
            self.clients[holder].flush()?;
            self.receive_grant(next)?;
            waits.push(begin.elapsed().as_secs_f64() * 1e6);
            self.clients[holder].receive(|reply| expect(*reply == Frame::Int(1), "1", reply))?;
            self.enqueue(holder)?;
            control.barrier()?;
            self.holder = next;
        }
        Ok(waits)
    }

    /// Hands on once. Who has held does not queue again, so that there is one command and one fewer waits.
    pub fn hand_down(&mut self) -> Result<()> {
        let (holder, next) = (self.holder, (self.holder + 1) % self.clients.len());
        self.write_release(holder);
        self.clients[holder].flush()?;
        self.receive_grant(next)?;
        self.clients[holder].receive(|reply| expect(*reply == Frame::Int(1), "1", reply))?;
        self.holder = next;
        Ok(())
    }

    fn write_release(&mut self, client: usize) {
        let token = token(self.tokens[client]);
        let words = match self.queue {
            Queue::Lock | Queue::Confirmed => &[&b"DLOCK.RELEASE"[..], KEY, &token],
            Queue::List => &[&b"LPUSH"[..], KEY, b"1"],
        };
        write_request(&mut self.clients[client].out, words);
    }

    fn enqueue(&mut self, client: usize) -> Result<()> {
        self.tokens[client] = self.next_token;
        self.next_token += 1;
        let token = token(self.tokens[client]);
        match self.queue {
            Queue::Lock | Queue::Confirmed => {
                let words = [
                    &b"DLOCK.ACQUIRE"[..],
                    KEY,
                    b"PX",
                    b"3600000",
                    b"BLOCK",
                    b"0",
                    b"TOKEN",
                    &token,
                ];
                write_request(&mut self.clients[client].out, &words);
                if self.queue == Queue::Confirmed {
                    write_request(&mut self.clients[client].out, &[b"WAIT", b"1", b"0"]);
                }
                self.clients[client].flush()
            }
            Queue::List => self.clients[client].send(&[b"BLPOP", KEY, b"0"]),
        }
    }

    /// Reads the reply of the client whose turn it is. A later one's turn would leave this one without a reply.
    fn receive_grant(&mut self, client: usize) -> Result<()> {
        let token = token(self.tokens[client]);
        let (queue, last_fence) = (self.queue, self.last_fence);
        let fence = self.clients[client].receive(|reply| match (queue, reply.array()) {
            (Queue::List, Some([Frame::Bulk(KEY), Frame::Bulk(b"1")])) => Ok(last_fence + 1),
            (_, Some([_, Frame::Int(fence)])) if granted(reply) == Some(&token) => Ok(*fence),
            _ => Err(wrong("a grant", reply)),
        })?;
        if queue == Queue::Confirmed {
            self.clients[client].receive(|reply| expect(*reply == Frame::Int(1), "1", reply))?;
        }
        if fence <= last_fence {
            return Err(Invalid::new(format!("fence {fence} after {last_fence}")));
        }
        self.last_fence = fence;
        Ok(())
    }
}
