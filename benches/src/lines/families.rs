//! CPU time of the pairs of semaphores, wait groups and work-once keys, beside the pair of a lock.
//!
//! Both sides are one server with the module: the same one. A finished group and a finished work stay for a while, as
//! users have it, so these two pairs leave their keys behind until the slice has ended.

use super::commands::{GROUP, LOCK, ONCE, SEMAPHORE};
use super::throughput::pair_slice;
use crate::bench::{Bench, SLICES, in_order};
use crate::invalid::Result;
use crate::row::{Row, Samples};
use crate::server::Setting;

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let operations = bench.size(5_000, 1_000);
    let families = [
        ("DSEM.ACQUIRE + RELEASE / DLOCK's", SEMAPHORE),
        ("DWG.ADD + DONE / DLOCK's", GROUP),
        ("DONCE.BEGIN + DONE / DLOCK's", ONCE),
    ];
    for setting in [Setting::Plain, Setting::Both] {
        let mut samples = families.each_ref().map(|_| Samples::default());
        for pair in 0..bench.pairs() {
            let mut side = bench.ours(setting)?;
            pair_slice(&mut side, &LOCK, operations)?;
            for ((_, family), samples) in families.iter().zip(&mut samples) {
                let mut slices = Samples::default();
                for slice in 0..SLICES {
                    let (of_family, of_lock) = in_order(pair, slice, |is_family| {
                        let commands = if is_family { family } else { &LOCK };
                        pair_slice(&mut side, commands, operations)
                    })?;
                    slices.push(of_family, of_lock);
                }
                samples.push_slices(&slices);
            }
        }
        for ((name, _), samples) in families.iter().zip(samples) {
            let row = Row::new("families", *name, "ns CPU", samples);
            rows.push(row.setting(setting.name()).speed_at_least(0.9));
        }
    }
    Ok(())
}
