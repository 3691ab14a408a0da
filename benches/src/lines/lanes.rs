//! CPU time of a hand-off of a semaphore in which requests say LANE, beside one in which none does.
//!
//! Both are a server with the module and a queue of kept places, all sent by one connection, so that their order is known.
//! A step releases the hold, which grants the first place, and keeps a new place behind all others: so many places stay.

use super::commands::{LEASE, is_granted, is_one, is_waiting};
use crate::bench::{Bench, Side, alternate};
use crate::client::expect;
use crate::invalid::Result;
use crate::load::{Single, Work};
use crate::row::{Row, Samples};
use crate::server::Setting;
use crate::words::{numbered, token};
use dsync_testkit::resp::{Frame, write_request};

const KEY: &[u8] = b"queue";

/// For how long a place is kept, in milliseconds: no more are allowed. A pair takes less.
const KEEP: &[u8] = b"60000";

/// Returns the lane of a place; `None` if it says no LANE.
type LaneOf = fn(u64) -> Option<[u8; 13]>;

/// A server with its queue.
struct Queue {
    side: Side,
    lane_of: LaneOf,
    /// The place that was granted last, and the newest one.
    holder: u64,
    newest: u64,
}

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let places = bench.size(100_000, 1_000);
    let steps = bench.size(1_000, 200);
    let kinds: [(String, LaneOf); 2] = [
        ("one LANE".to_owned(), |_| Some(numbered(b"lane:", 0))),
        (format!("{places} LANEs"), |n| Some(numbered(b"lane:", n))),
    ];
    for (lanes, lane_of) in kinds {
        let mut samples = Samples::default();
        for pair in 0..bench.pairs() {
            let mut ours = Queue::new(bench, lane_of, places)?;
            let mut theirs = Queue::new(bench, |_| None, places)?;
            let sides = (&mut ours, &mut theirs);
            let slices = alternate(pair, sides, |queue, _| queue.hand_on(steps))?;
            samples.push_slices(&slices);
        }
        let name = format!("DSEM.RELEASE → grant, QUEUE: {lanes} / none");
        let row = Row::new("lanes", name, "ns CPU", samples);
        let row = row.setting(format!("{places} kept places"));
        rows.push(row.cost_at_most(1.3));
    }
    Ok(())
}

impl Queue {
    fn new(bench: &Bench, lane_of: LaneOf, places: u64) -> Result<Self> {
        let mut side = bench.ours(Setting::Plain)?;
        // One lane may have no more places than are still free.
        for setting in ["dsync.max-waiters", "dsync.max-waiters-per-key"] {
            side.control.ok(&format!("CONFIG SET {setting} 1000000"))?;
        }
        side.lanes.truncate(1);
        let place = |number: u64, out: &mut Vec<u8>| ask(lane_of, number, out);
        side.load(&mut Single::new(1, 1, place, is_granted))?;
        let place = |number: u64, out: &mut Vec<u8>| ask(lane_of, number + 1, out);
        side.load(&mut Single::new(places, 32, place, is_waiting))?;
        Ok(Self {
            side,
            lane_of,
            holder: 0,
            newest: places,
        })
    }

    /// Returns the CPU time of a step.
    fn hand_on(&mut self, steps: u64) -> Result<f64> {
        let (lane_of, holder, newest) = (self.lane_of, self.holder, self.newest);
        let write = |command: u64, out: &mut Vec<u8>| match command.is_multiple_of(2) {
            true => {
                let token = token(holder + command / 2);
                write_request(out, &[b"DSEM.RELEASE", KEY, &token]);
            }
            false => ask(lane_of, newest + 1 + command / 2, out),
        };
        let cpu_ns = self.side.cpu_ns(&mut Steps {
            write,
            next: 0,
            commands: 2 * steps,
        })?;
        (self.holder, self.newest) = (holder + steps, newest + steps);
        // Each release was one of the hold, and not of a place, if the right token holds now.
        let token = token(self.holder);
        (self.side.control).call(&[b"DSEM.CHECK", KEY, &token], |reply| {
            expect(matches!(reply, Frame::Int(1..)), "a lease", reply)
        })?;
        Ok(cpu_ns / steps as f64)
    }
}

/// Steps, one command after the other: a hand-off is a turn of the event loop.
struct Steps<W> {
    write: W,
    next: u64,
    commands: u64,
}

impl<W: FnMut(u64, &mut Vec<u8>)> Work for Steps<W> {
    fn fill(&mut self, _lane: usize, out: &mut Vec<u8>) -> usize {
        let is_left = self.next < self.commands;
        if is_left {
            (self.write)(self.next, out);
            self.next += 1;
        }
        usize::from(is_left)
    }

    fn check(&mut self, _lane: usize, _at: usize, reply: &Frame<'_>) -> Result<()> {
        match self.next.is_multiple_of(2) {
            true => expect(is_waiting(reply), "WAITING", reply),
            false => expect(is_one(reply), "1", reply),
        }
    }
}

/// Asks for the semaphore and a place that is kept.
fn ask(lane_of: LaneOf, number: u64, out: &mut Vec<u8>) {
    let (token, lane) = (token(number), lane_of(number));
    let request: [&[u8]; 10] = [
        b"DSEM.ACQUIRE",
        KEY,
        b"LIMIT",
        b"1",
        b"PX",
        LEASE,
        b"TOKEN",
        &token,
        b"QUEUE",
        KEEP,
    ];
    match &lane {
        Some(lane) => write_request(out, &[&request[..], &[b"LANE", lane]].concat()),
        None => write_request(out, &request),
    }
}
