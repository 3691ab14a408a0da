//! What a hand-off of a semaphore in which requests say LANE costs, beside one in which none does: CPU time, and
//! instructions.
//!
//! Both are a server with the module and a queue of kept places, all sent by one connection, so that their order is known.
//! A step releases the hold, which grants the first place, and keeps a new place behind all others: so many places stay.

use std::path::Path;

use super::commands::{LEASE, is_granted, is_one, is_waiting};
use super::instructions::Operation;
use crate::bench::{Bench, Side, alternate};
use crate::client::expect;
use crate::counting;
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

const NO_LANE: LaneOf = |_| None;
const ONE_LANE: LaneOf = |_| Some(numbered(b"lane:", 0));
const A_LANE_EACH: LaneOf = |number| Some(numbered(b"lane:", number));

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
    let many = format!("{places} LANEs");
    for (lanes, lane_of) in [("one LANE", ONE_LANE), (&*many, A_LANE_EACH)] {
        let mut samples = Samples::default();
        for pair in 0..bench.pairs() {
            let mut ours = Queue::new(bench.ours(Setting::Plain)?, lane_of, places)?;
            let mut theirs = Queue::new(bench.ours(Setting::Plain)?, NO_LANE, places)?;
            let sides = (&mut ours, &mut theirs);
            let slices = alternate(pair, sides, |queue, _| {
                Ok(queue.hand_on(steps, Side::cpu_ns)? / steps as f64)
            })?;
            samples.push_slices(&slices);
        }
        let name = format!("DSEM.RELEASE → grant, QUEUE: {lanes} / none");
        let row = Row::new("lanes", name, "ns CPU", samples);
        let row = row.setting(format!("{places} kept places"));
        rows.push(row.cost_at_most(1.3));
    }
    Ok(())
}

pub fn run_instructions(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let places = bench.size(100_000, 1_000);
    let steps = bench.size(300, 50);
    let count = |lane_of: LaneOf, side: Side, kept: &Path| {
        let mut queue = Queue::new(side, lane_of, places)?;
        queue.hand_on(steps, |side, work| side.load(work).map(|()| 0.0))?;
        let count =
            |side: &mut Side, work: &mut Steps| counting::count(side, kept, |side| side.load(work));
        Ok(queue.hand_on(steps, count)? / steps as f64)
    };
    let many = format!("{places} LANEs");
    for (lanes, file, lane_of) in [
        ("no LANE", "lanes-none", NO_LANE),
        ("one LANE", "lanes-one", ONE_LANE),
        (&*many, "lanes-many", A_LANE_EACH),
    ] {
        let operation = Operation {
            line: "lanes-instructions",
            what: format!("DSEM.RELEASE → grant, QUEUE: {lanes}"),
            file,
            setting: Setting::Plain,
            ours: &|side, kept| count(lane_of, side, kept),
            theirs: None,
        };
        rows.push(operation.row(bench)?);
    }
    Ok(())
}

impl Queue {
    fn new(mut side: Side, lane_of: LaneOf, places: u64) -> Result<Self> {
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

    /// Returns what `measure` says of so many steps.
    fn hand_on(
        &mut self,
        steps: u64,
        measure: impl FnOnce(&mut Side, &mut Steps) -> Result<f64>,
    ) -> Result<f64> {
        let mut work = Steps {
            lane_of: self.lane_of,
            holder: self.holder,
            newest: self.newest,
            next: 0,
            commands: 2 * steps,
        };
        let measured = measure(&mut self.side, &mut work)?;
        (self.holder, self.newest) = (self.holder + steps, self.newest + steps);
        // Each release was one of the hold, and not of a place, if the right token holds now.
        let token = token(self.holder);
        (self.side.control).call(&[b"DSEM.CHECK", KEY, &token], |reply| {
            expect(matches!(reply, Frame::Int(1..)), "a lease", reply)
        })?;
        Ok(measured)
    }
}

/// Steps, one command after the other: a hand-off is a turn of the event loop.
struct Steps {
    lane_of: LaneOf,
    holder: u64,
    newest: u64,
    next: u64,
    commands: u64,
}

impl Work for Steps {
    fn fill(&mut self, _lane: usize, out: &mut Vec<u8>) -> usize {
        if self.next == self.commands {
            return 0;
        }
        let step = self.next / 2;
        match self.next.is_multiple_of(2) {
            true => write_request(out, &[b"DSEM.RELEASE", KEY, &token(self.holder + step)]),
            false => ask(self.lane_of, self.newest + 1 + step, out),
        }
        self.next += 1;
        1
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
