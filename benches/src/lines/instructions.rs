//! Instructions that the server executes for one operation, see [`counting`]. As many operations have gone before, so
//! tables and buffers are as large as they become.
//!
//! The load is 10 connections with 32 commands each, which the server reads in one turn of its event loop. Of a
//! hand-off it is one client at a time, who releases; the server sleeps before the next. The others wait, fewer each
//! time.

use std::fs;
use std::path::Path;

use dsync_testkit::process;

use super::commands::{LOCK, SET_AND_SCRIPT};
use super::handoff::{Queue, Ring};
use super::requests::{self, One};
use super::throughput::load_script;
use crate::bench::{Bench, Side};
use crate::counting::{self, await_sleep};
use crate::invalid::{Context, Result};
use crate::load::{PairOf, Pairs, Work};
use crate::row::{Row, Samples};
use crate::server::Setting;

const LANES: usize = 10;
const DEPTH: usize = 32;
/// Rounds of all lanes.
const ROUNDS: usize = 20;
const COMMANDS: usize = ROUNDS * LANES * DEPTH;
const WAITERS: usize = 1_000;
/// So that some still wait in the end.
const HANDOFFS: usize = 400;

/// Prepares a server and returns the instructions of one operation. callgrind's file is kept at the path.
pub type Count<'a> = &'a dyn Fn(Side, &Path) -> Result<f64>;

/// One row: the operation, its short name for files, and the count of ours and of theirs.
pub struct Operation<'a> {
    pub line: &'static str,
    pub what: String,
    pub file: &'a str,
    pub setting: Setting,
    pub ours: Count<'a>,
    pub theirs: Option<Count<'a>>,
}

pub fn run_requests(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    for request in &requests::ALL {
        let count = |one: &One, mut side: Side, kept: &Path| {
            (one.prepare)(&mut side)?;
            each(&mut side, kept, &mut one.work(2 * COMMANDS as u64), ROUNDS)
        };
        let theirs = |side: Side, kept: &Path| match &request.theirs {
            Some(peer) => count(peer, side, kept),
            None => Ok(f64::NAN),
        };
        let operation = Operation {
            line: "requests-instructions",
            what: request.what.to_owned(),
            file: request.name,
            setting: Setting::Plain,
            ours: &|side, kept| count(&request.ours, side, kept),
            theirs: request.theirs.is_some().then_some(&theirs),
        };
        rows.push(operation.row(bench)?);
    }
    Ok(())
}

pub fn run_pairs(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    for (setting, file) in [(Setting::Plain, "pair"), (Setting::Aof, "pair-aof")] {
        let count = |pair: &PairOf, mut side: Side, kept: &Path| {
            load_script(&mut side)?;
            let mut work = Pairs::new(pair, 2 * COMMANDS as u64, DEPTH);
            // A round of first commands, and one of second ones.
            each(&mut side, kept, &mut work, 2 * ROUNDS)
        };
        let operation = Operation {
            line: "pairs-instructions",
            what: "ACQUIRE PX + RELEASE / SET NX PX + EVALSHA".to_owned(),
            file,
            setting,
            ours: &|side, kept| count(&LOCK, side, kept),
            theirs: Some(&|side, kept| count(&SET_AND_SCRIPT, side, kept)),
        };
        rows.push(operation.row(bench)?);
    }
    Ok(())
}

pub fn run_handoffs(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let waiters = bench.clients("handoff-instructions", WAITERS);
    let handoffs = HANDOFFS.min(waiters / 3);
    for (setting, file) in [
        (Setting::Plain, "handoff"),
        (Setting::Aof, "handoff-aof"),
        (Setting::Replica, "handoff-replica"),
    ] {
        let count = |queue, mut side: Side, kept: &Path| {
            let mut ring = Ring::new(&mut side, queue, waiters)?;
            let mut hand_down = |side: &mut Side| -> Result<()> {
                for _ in 0..handoffs {
                    ring.hand_down()?;
                    await_sleep(side.server.id())?;
                }
                Ok(())
            };
            hand_down(&mut side)?;
            Ok(counting::count(&mut side, kept, hand_down)? / handoffs as f64)
        };
        let operation = Operation {
            line: "handoff-instructions",
            what: format!("RELEASE → grant / LPUSH → BLPOP, {waiters} waiters"),
            file,
            setting,
            ours: &|side, kept| count(Queue::Lock, side, kept),
            theirs: Some(&|side, kept| count(Queue::List, side, kept)),
        };
        rows.push(operation.row(bench)?);
    }
    Ok(())
}

impl Operation<'_> {
    pub fn row(&self, bench: &Bench) -> Result<Row> {
        let out = bench.options.out.join("callgrind");
        fs::create_dir_all(&out).context(out.display())?;
        let count = |module: Option<&Path>, count: Count<'_>, whose: &str| {
            let mut side = bench.counted(module, self.setting)?;
            side.lanes.truncate(LANES);
            counting::mark(&mut side)?;
            count(side, &out.join(format!("{}.{whose}", self.file)))
        };
        let (mut samples, mut old) = (Samples::default(), Vec::new());
        for _ in 0..bench.pairs() {
            let ours = count(Some(&bench.options.module), self.ours, "ours")?;
            match self.theirs {
                Some(theirs) => samples.push(ours, count(None, theirs, "theirs")?),
                None => samples.ours.push(ours),
            }
            if let Some(module) = &bench.options.old_module {
                old.push(count(Some(module), self.ours, "old")?);
            }
        }
        let row = Row::new(self.line, &*self.what, "instructions", samples);
        Ok(row.setting(self.setting.name()).old(old))
    }
}

/// Returns the instructions of one operation of the work's second half: a half takes so many rounds.
fn each(side: &mut Side, kept: &Path, work: &mut impl Work, rounds: usize) -> Result<f64> {
    drive_in_turns(side, work, rounds)?;
    let count = counting::count(side, kept, |side| drive_in_turns(side, work, rounds))?;
    Ok(count / COMMANDS as f64)
}

/// Sends so many rounds of batches, one for each lane, and the server reads a round in one turn. An error at the first
/// wrong reply.
fn drive_in_turns(side: &mut Side, work: &mut impl Work, rounds: usize) -> Result<()> {
    let id = side.server.id();
    for _ in 0..rounds {
        await_sleep(id)?;
        process::stop(id);
        let mut expected = [0; LANES];
        for (lane, client) in side.lanes.iter_mut().enumerate() {
            expected[lane] = work.fill(lane, &mut client.out);
            client.flush()?;
        }
        process::cont(id);
        for (lane, client) in side.lanes.iter_mut().enumerate() {
            for at in 0..expected[lane] {
                client.receive(|reply| work.check(lane, at, reply))?;
            }
        }
    }
    Ok(())
}
