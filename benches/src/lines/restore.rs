//! The server's CPU time for DUMP and RESTORE of a semaphore with 100,000 holders. Theirs is a sorted set with as many
//! members, which is what semaphores without a module are made of.

use super::stalls::fill_large;
use crate::bench::{Bench, SLICES, Side};
use crate::client::expect;
use crate::invalid::Result;
use crate::row::{Row, Samples};
use crate::server::Setting;
use crate::statistics::median;
use dsync_testkit::resp::Frame;

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let holders = bench.size(100_000, 2_000);
    let [mut dump, mut restore] = [Samples::EMPTY; 2];
    for pair in 0..bench.pairs() {
        let (ours, theirs) = bench.in_turn(pair, Setting::Plain, |side, is_ours| {
            measure(side, is_ours, holders)
        })?;
        dump.push(ours.0, theirs.0);
        restore.push(ours.1, theirs.1);
    }
    for (command, samples) in [("DUMP", dump), ("RESTORE", restore)] {
        let what = format!("{command} of a semaphore / sorted set of {holders}");
        rows.push(Row::new("restore", what, "ms CPU", samples).at_most_or_theirs(40.0));
    }
    Ok(())
}

/// Returns the CPU time of DUMP and of RESTORE, in milliseconds.
fn measure(mut side: Side, is_ours: bool, holders: u64) -> Result<(f64, f64)> {
    fill_large(&mut side, is_ours, holders)?;
    let (mut dumps, mut restores) = (Vec::new(), Vec::new());
    for _ in 0..SLICES / 3 {
        let mut value = Vec::new();
        dumps.push(side.turn_cpu_ms(|control| {
            control.call(&[b"DUMP", b"large"], |reply| {
                value = reply.bulk().unwrap_or_default().to_vec();
                expect(!value.is_empty(), "a value", reply)
            })
        })?);
        side.control.call(&[b"DEL", b"large"], |reply| {
            expect(*reply == Frame::Int(1), "1", reply)
        })?;
        restores.push(side.turn_cpu_ms(|control| {
            control.call(&[b"RESTORE", b"large", b"0", &value], |reply| {
                expect(reply.is_ok(), "OK", reply)
            })
        })?);
    }
    Ok((median(&dumps), median(&restores)))
}
