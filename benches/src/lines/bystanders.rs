//! What the module costs those who do not use it: their commands on a server that has loaded it and holds no key
//! of its own, beside the same server without it. Alone, and as a cluster node, where the module has a command filter.

use super::commands::{SET_AND_DEL, is_ok, set_nx_px};
use crate::bench::{Bench, Side, alternate};
use crate::invalid::Result;
use crate::load::{Pairs, Single};
use crate::row::{Row, Samples};
use crate::server::Setting;

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let operations = bench.size(12_000, 2_000);
    for is_cluster in [false, true] {
        let (mut set, mut set_and_del) = (Samples::default(), Samples::default());
        for pair in 0..bench.pairs() {
            let (mut ours, mut theirs) =
                bench.both_of(&bench.options.server, Setting::Plain, is_cluster)?;
            for (samples, slice) in [
                (&mut set, set_slice as fn(&mut Side, u64) -> Result<f64>),
                (&mut set_and_del, set_and_del_slice),
            ] {
                slice(&mut ours, operations)?;
                slice(&mut theirs, operations)?;
                let slices = alternate(pair, (&mut ours, &mut theirs), |side, _| {
                    slice(side, operations)
                })?;
                samples.push_slices(&slices);
            }
        }
        for (name, samples) in [("SET NX PX", set), ("SET NX PX + DEL", set_and_del)] {
            let row = Row::new(
                "bystanders",
                format!("{name}, module loaded / not loaded"),
                "ns CPU",
                samples,
            );
            let setting = if is_cluster { "cluster" } else { "plain" };
            rows.push(row.setting(setting).speed_at_least(0.98));
        }
    }
    Ok(())
}

fn set_slice(side: &mut Side, operations: u64) -> Result<f64> {
    side.flush()?;
    let cpu_ns = side.cpu_ns(&mut Single::new(operations, 32, set_nx_px, is_ok))?;
    Ok(cpu_ns / operations as f64)
}

fn set_and_del_slice(side: &mut Side, operations: u64) -> Result<f64> {
    side.flush()?;
    let cpu_ns = side.cpu_ns(&mut Pairs::new(&SET_AND_DEL, operations, 32))?;
    Ok(cpu_ns / operations as f64)
}
