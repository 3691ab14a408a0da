//! Instructions that the server executes for one operation, counted by valgrind's callgrind.
//!
//! An operation is (what a server executes in its life with 2n of them - with n of them) / n. Start, set-up and end
//! cancel out. The load is 10 connections with 32 commands under way each; of a hand-off one client at a time,
//! who releases; the others wait, fewer each time.
//!
//! What the clock decides would differ from run to run. So the server's cron is paused, and the server sleeps while the
//! 10 connections are written to, so that each turn of its event loop has all of their commands. That costs each
//! operation 1/320 of a DEBUG SLEEP, ours and theirs alike.

use std::thread::sleep;
use std::time::Duration;

use super::commands::{LOCK, SET_AND_SCRIPT};
use super::handoff::{Queue, Ring};
use super::requests;
use super::throughput::load_script;
use crate::bench::{Bench, Side};
use crate::client::expect;
use crate::invalid::Result;
use crate::load::{PairOf, Pairs, Work};
use crate::resp::Reply;
use crate::row::{Row, Samples};
use crate::server::{Server, Setting};

const LANES: usize = 10;
/// Operations: ten batches of 32 on each connection.
const COUNT: u64 = 3_200;
const WAITERS: usize = 1_000;
const UNIT: &str = "instructions";

pub fn run_requests(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    for request in &requests::ALL {
        let mut samples = Samples::default();
        for _ in 0..bench.pairs() {
            let count = |has_module, one: &requests::One| {
                each(bench, has_module, Setting::Plain, COUNT, |side, count| {
                    (one.prepare)(side)?;
                    drive_in_turns(side, &mut one.work(count))
                })
            };
            let ours = count(true, &request.ours)?;
            match &request.theirs {
                Some(peer) => samples.push(ours, count(false, peer)?),
                None => samples.ours.push(ours),
            }
        }
        rows.push(Row::new("requests-instructions", request.what, UNIT, samples).setting("plain"));
    }
    Ok(())
}

pub fn run_pairs(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    for setting in [Setting::Plain, Setting::Aof] {
        let mut samples = Samples::default();
        for _ in 0..bench.pairs() {
            let count = |has_module, pair: &PairOf| {
                each(bench, has_module, setting, COUNT, |side, count| {
                    load_script(side)?;
                    drive_in_turns(side, &mut Pairs::new(pair, count, 32))
                })
            };
            samples.push(count(true, &LOCK)?, count(false, &SET_AND_SCRIPT)?);
        }
        let what = "ACQUIRE PX + RELEASE / SET NX PX + EVALSHA";
        rows.push(Row::new("pairs-instructions", what, UNIT, samples).setting(setting.name()));
    }
    Ok(())
}

pub fn run_handoffs(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let waiters = bench.clients("handoff-instructions", WAITERS);
    // So that some still wait at the end of the longer run.
    let handoffs = waiters as u64 * 9 / 20;
    for setting in [Setting::Plain, Setting::Aof, Setting::Replica] {
        let mut samples = Samples::default();
        for _ in 0..bench.pairs() {
            let count = |has_module, queue| {
                each(bench, has_module, setting, handoffs, |side, count| {
                    let mut ring = Ring::one_by_one(side, queue, waiters)?;
                    ring.hand_down(count as usize)?;
                    Ok(ring)
                })
            };
            samples.push(count(true, Queue::Lock)?, count(false, Queue::List)?);
        }
        let what = format!("RELEASE → grant / LPUSH → BLPOP, {waiters} waiters");
        rows.push(Row::new("handoff-instructions", what, UNIT, samples).setting(setting.name()));
    }
    Ok(())
}

/// Returns when all work is done, a batch of each connection in a turn. An error at the first wrong reply.
fn drive_in_turns(side: &mut Side, work: &mut impl Work) -> Result<()> {
    loop {
        let mut expected = Vec::with_capacity(side.lanes.len());
        for (lane, client) in side.lanes.iter_mut().enumerate() {
            expected.push(work.fill(lane, &mut client.out));
        }
        if expected.iter().all(|&count| count == 0) {
            return Ok(());
        }
        // The server begins to sleep, is written to, and wakes up.
        side.control.send(&[b"DEBUG", b"SLEEP", b"0.06"])?;
        sleep(Duration::from_millis(10));
        for client in &mut side.lanes {
            client.flush()?;
        }
        for (lane, client) in side.lanes.iter_mut().enumerate() {
            for at in 0..expected[lane] {
                client.receive(|reply| work.check(lane, at, reply))?;
            }
        }
        let slept = |reply: &Reply<'_>| expect(reply.is_ok(), "OK", reply);
        side.control.receive(slept)?;
    }
}

/// Returns the instructions of one operation. `run` prepares a server and does so many of them; what it returns is
/// dropped when the server has ended, so that it sees no connection close.
fn each<T>(
    bench: &Bench,
    has_module: bool,
    setting: Setting,
    count: u64,
    run: impl Fn(&mut Side, u64) -> Result<T>,
) -> Result<f64> {
    let life = |count| {
        let mut side = bench.counted(has_module, setting)?;
        side.lanes.truncate(LANES);
        Server::pause_cron(&mut side.control)?;
        let _kept = run(&mut side, count)?;
        side.server.stop_counting(&mut side.control)
    };
    let (once, twice) = (life(count)?, life(2 * count)?);
    Ok((twice as f64 - once as f64) / count as f64)
}
