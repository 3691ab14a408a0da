//! Clients that wait: the memory that each takes, and what they cost others while they only stand there.
//! Theirs are clients in BLPOP on a server without the module.

use std::time::Duration;

use super::commands::is_ok;
use super::handoff::{Queue, Ring};
use super::memory::settled;
use crate::bench::{Bench, SLICES, Side, ours_first};
use crate::invalid::Result;
use crate::load::Single;
use crate::resp::write_command;
use crate::row::{Place, Row, Samples};
use crate::server::Setting;
use crate::statistics::median;
use crate::words::key;

/// Servers take back the buffers of clients that were idle for two seconds.
const BUFFERS_GONE: Duration = Duration::from_millis(3_500);

pub fn run_memory(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let count = bench.clients("waiter-memory", bench.size(10_000, 500));
    let mut samples = Samples::default();
    for pair in 0..bench.pairs() {
        let (ours, theirs) = both(bench, pair, |queue, side| {
            let short = Duration::from_millis(200);
            side.lanes.clear();
            let before = settled(&mut side.control, short)?;
            let _ring = Ring::new(side, queue, count)?;
            let after = settled(&mut side.control, bench.size(BUFFERS_GONE, short))?;
            Ok((after - before) / count as f64)
        })?;
        samples.push(ours, theirs);
    }
    let row = Row::new(
        "waiter-memory",
        "a waiter / a client in BLPOP",
        "B",
        samples,
    );
    let place = Place::Bars {
        chart: "memory of a waiter",
    };
    rows.push(
        row.setting(format!("{count} clients"))
            .cost_at_most(1.05)
            .at(place),
    );
    Ok(())
}

pub fn run_beside(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let count = bench.clients("beside-waiters", bench.size(10_000, 500));
    let operations = bench.size(60_000, 4_000);
    let mut samples = Samples::default();
    for pair in 0..bench.pairs() {
        let (ours, theirs) = both(bench, pair, |queue, side| {
            let _ring = Ring::new(side, queue, count)?;
            let set = |number, out: &mut Vec<u8>| {
                write_command(out, &[b"SET", &key(number % 10_000), b"value"]);
            };
            let work = || Single::new(operations, 32, set, is_ok);
            side.load(&mut work())?;
            let slices: Result<Vec<f64>> = (0..SLICES).map(|_| side.cpu_ns(&mut work())).collect();
            Ok(median(&slices?) / operations as f64)
        })?;
        samples.push(ours, theirs);
    }
    let row = Row::new(
        "beside-waiters",
        "SET beside waiters / beside BLPOP",
        "ns CPU",
        samples,
    );
    rows.push(row.setting(format!("{count} clients")).speed_at_least(1.0));
    Ok(())
}

/// Measures ours and theirs, each on a fresh server, one after the other: both crowds at once would need twice the
/// open files.
fn both(
    bench: &Bench,
    pair: usize,
    measure: impl Fn(Queue, &mut Side) -> Result<f64>,
) -> Result<(f64, f64)> {
    let ours = || measure(Queue::Lock, &mut bench.ours(Setting::Plain)?);
    let theirs = || measure(Queue::List, &mut bench.theirs(Setting::Plain)?);
    if ours_first(pair, 0) {
        Ok((ours()?, theirs()?))
    } else {
        let theirs = theirs()?;
        Ok((ours()?, theirs))
    }
}
