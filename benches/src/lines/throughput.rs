//! CPU time of the server for an uncontended lock: taking it, and taking and releasing it, in four settings.
//!
//! Each slice begins with an empty server, so both sides pay for the growth of their tables. Theirs is what lock
//! libraries do on a server without a module: SET NX PX, and a script that deletes the key if the token is right.

use super::commands::{
    COMPARE_AND_DELETE, COMPARE_AND_DELETE_SHA, LOCK, SET_AND_SCRIPT, acquire, is_granted, is_ok,
    set_nx_px,
};
use crate::bench::{Bench, Side, alternate};
use crate::client::expect;
use crate::invalid::{Invalid, Result};
use crate::load::{PairOf, Pairs, Single};
use crate::row::{Row, Samples};
use crate::server::Setting;

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let (alone, piped) = (bench.size(3_000, 1_000), bench.size(10_000, 2_000));
    for setting in Setting::ALL {
        let [mut one, mut many, mut pairs] = [Samples::EMPTY; 3];
        for pair in 0..bench.pairs() {
            let (mut ours, mut theirs) = bench.both(setting)?;
            load_script(&mut theirs)?;
            acquire_slice(&mut ours, true, piped, 32)?;
            acquire_slice(&mut theirs, false, piped, 32)?;
            for (samples, operations, depth) in [(&mut one, alone, 1), (&mut many, piped, 32)] {
                let slices = alternate(pair, (&mut ours, &mut theirs), |side, is_ours| {
                    acquire_slice(side, is_ours, operations, depth)
                })?;
                samples.push_slices(&slices);
            }
            let slices = alternate(pair, (&mut ours, &mut theirs), |side, is_ours| {
                pair_slice(
                    side,
                    if is_ours { &LOCK } else { &SET_AND_SCRIPT },
                    piped / 2,
                )
            })?;
            pairs.push_slices(&slices);
        }
        let is_plain = setting == Setting::Plain;
        let targets = match is_plain {
            true => [0.97, 0.95, 1.3],
            false => [0.92, 0.92, 1.2],
        };
        let names = [
            "ACQUIRE / SET NX PX, pipeline 1",
            "ACQUIRE / SET NX PX, pipeline 32",
            "ACQUIRE + RELEASE / SET NX PX + EVALSHA, pipeline 32",
        ];
        for ((name, samples), target) in names.into_iter().zip([one, many, pairs]).zip(targets) {
            let row = Row::new("throughput", name, "ns CPU", samples);
            rows.push(row.setting(setting.name()).speed_at_least(target));
        }
    }
    Ok(())
}

/// Returns the CPU time of one acquisition.
fn acquire_slice(side: &mut Side, is_ours: bool, operations: u64, depth: usize) -> Result<f64> {
    side.flush()?;
    let cpu_ns = match is_ours {
        true => side.cpu_ns(&mut Single::new(operations, depth, acquire, is_granted))?,
        false => side.cpu_ns(&mut Single::new(operations, depth, set_nx_px, is_ok))?,
    };
    let keys = side.keys()?;
    if keys != operations {
        return Err(Invalid::new(format!("{keys} keys instead of {operations}")));
    }
    Ok(cpu_ns / operations as f64)
}

/// Returns the CPU time of one pair, at pipeline 32.
pub fn pair_slice(side: &mut Side, pair: &PairOf, operations: u64) -> Result<f64> {
    side.flush()?;
    let cpu_ns = side.cpu_ns(&mut Pairs::new(pair, operations, 32))?;
    Ok(cpu_ns / operations as f64)
}

/// Loads theirs' script, and checks that its name is the one that is called.
pub fn load_script(side: &mut Side) -> Result<()> {
    side.control
        .call(&[b"SCRIPT", b"LOAD", COMPARE_AND_DELETE], |reply| {
            expect(
                reply.bulk() == Some(COMPARE_AND_DELETE_SHA),
                "the script's name",
                reply,
            )
        })
}
