//! Clients that wait: what it costs to park them, the memory that each takes, and what they cost others meanwhile.
//! Theirs are clients in BLPOP on a server without the module.

use std::time::Duration;

use super::commands::is_ok;
use super::handoff::{Queue, Ring};
use super::memory::settled;
use crate::bench::{Bench, SLICES};
use crate::invalid::Result;
use crate::load::Single;
use crate::row::{Place, Row, Samples};
use crate::server::Setting;
use crate::statistics::median;
use crate::words::key;
use dsync_testkit::resp::write_request;

/// Servers take back the buffers of clients that were idle for two seconds.
const BUFFERS_GONE: Duration = Duration::from_millis(3_500);

pub fn run_memory(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let count = bench.clients("waiter-memory", bench.size(10_000, 500));
    let [mut counted, mut resident] = [Samples::EMPTY; 2];
    for pair in 0..bench.pairs() {
        let (ours, theirs) = bench.in_turn(pair, Setting::Plain, |mut side, is_ours| {
            let short = Duration::from_millis(200);
            side.lanes.clear();
            let before = settled(&mut side.control, short)?;
            let resident_before = side.server.resident_bytes()?;
            let _ring = Ring::new(&mut side, Queue::of(is_ours), count)?;
            let after = settled(&mut side.control, bench.size(BUFFERS_GONE, short))?;
            let resident = side.server.resident_bytes()? - resident_before;
            Ok([after - before, resident].map(|bytes| bytes / count as f64))
        })?;
        counted.push(ours[0], theirs[0]);
        resident.push(ours[1], theirs[1]);
    }
    let what = "a waiter / a client in BLPOP";
    let setting = format!("{count} clients");
    let row = Row::new("waiter-memory", what, "B", counted).setting(&*setting);
    let place = Place::Bars {
        chart: "memory of a waiter",
    };
    rows.push(row.cost_at_most(1.05).at(place));
    let what = format!("{what}, resident");
    rows.push(Row::new("waiter-memory", what, "B", resident).setting(setting));
    Ok(())
}

/// The CPU time of a request that waits, until all wait: each sent alone, by a client of its own.
pub fn run_parking(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let count = bench.clients("parking", bench.size(1_000, 100));
    let mut samples = Samples::default();
    for pair in 0..bench.pairs() {
        let (ours, theirs) = bench.in_turn(pair, Setting::Plain, |mut side, is_ours| {
            let mut ring = Ring::idle(&mut side, Queue::of(is_ours), count)?;
            side.control.barrier()?;
            let before = side.server.cpu_ns()?;
            ring.enqueue_all()?;
            side.control.barrier()?;
            let cpu_ns = (side.server.cpu_ns()? - before) as f64;
            ring.await_parked(&mut side)?;
            Ok(cpu_ns / count as f64)
        })?;
        samples.push(ours, theirs);
    }
    let row = Row::new("parking", "ACQUIRE BLOCK / BLPOP", "ns CPU", samples);
    rows.push(row.setting(format!("{count} clients")));
    Ok(())
}

pub fn run_beside(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let count = bench.clients("beside-waiters", bench.size(10_000, 500));
    let operations = bench.size(60_000, 4_000);
    let mut samples = Samples::default();
    for pair in 0..bench.pairs() {
        let (ours, theirs) = bench.in_turn(pair, Setting::Plain, |mut side, is_ours| {
            let _ring = Ring::new(&mut side, Queue::of(is_ours), count)?;
            let set = |number, out: &mut Vec<u8>| {
                write_request(out, &[b"SET", &key(number % 10_000), b"value"]);
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
