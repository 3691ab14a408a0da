//! CPU time of a lock's pair beside the newest way without a module: SET NX PX and DELIFEQ, both native C.
//!
//! Only Valkey 9 and later know DELIFEQ. On another server the line is left out, and the report says so.

use super::commands::{LOCK, SET_AND_DELIFEQ};
use super::throughput::pair_slice;
use crate::bench::{Bench, alternate};
use crate::invalid::Result;
use crate::row::{Row, Samples};
use crate::server::Setting;

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let operations = bench.size(5_000, 1_000);
    let program = &bench.options.native_server;
    for setting in Setting::ALL {
        let mut samples = Samples::default();
        for pair in 0..bench.pairs() {
            let (mut ours, mut theirs) = bench.both_of(program, setting, false)?;
            if !theirs.knows_delifeq()? {
                bench.note("native: left out, for the server has no DELIFEQ; name a Valkey 9 in NATIVE_SERVER".into());
                return Ok(());
            }
            pair_slice(&mut ours, &LOCK, operations)?;
            pair_slice(&mut theirs, &SET_AND_DELIFEQ, operations)?;
            let slices = alternate(pair, (&mut ours, &mut theirs), |side, is_ours| {
                pair_slice(
                    side,
                    if is_ours { &LOCK } else { &SET_AND_DELIFEQ },
                    operations,
                )
            })?;
            samples.push_slices(&slices);
        }
        let row = Row::new(
            "native",
            "ACQUIRE + RELEASE / SET NX PX + DELIFEQ, pipeline 32",
            "ns CPU",
            samples,
        );
        rows.push(row.setting(setting.name()).speed_at_least(0.7));
    }
    Ok(())
}
