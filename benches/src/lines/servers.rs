//! The pair and the hand-off on the other servers that OTHER_SERVERS names, such as Redis 8 and Valkey 9. There BLPOP's
//! own hand-off looks at all clients who wait, so it grows with them.

use super::commands::{LOCK, SET_AND_SCRIPT};
use super::handoff;
use super::throughput::{load_script, pair_slice};
use crate::bench::{Bench, alternate};
use crate::invalid::Result;
use crate::machine;
use crate::row::{Row, Samples};
use crate::server::Setting;

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let (waiters, handoffs) = (bench.size(1_000, 100), bench.size(100, 20));
    let operations = bench.size(5_000, 1_000);
    let mut programs = bench.options.other_servers.clone();
    if programs.is_empty() && bench.is_quick() {
        programs.push(bench.options.server.clone());
    }
    if programs.is_empty() {
        bench.note("servers: left out; name a Redis 8 and a Valkey 9 in OTHER_SERVERS".into());
    }
    for program in &programs {
        let version = machine::version(program)?;
        let mut samples = Samples::default();
        for pair in 0..bench.pairs() {
            let (mut ours, mut theirs) = bench.both_of(program, Setting::Plain, false)?;
            load_script(&mut theirs)?;
            let slices = alternate(pair, (&mut ours, &mut theirs), |side, is_ours| {
                let pair = if is_ours { &LOCK } else { &SET_AND_SCRIPT };
                pair_slice(side, pair, operations)
            })?;
            samples.push_slices(&slices);
        }
        let name = "ACQUIRE + RELEASE / SET NX PX + EVALSHA, pipeline 32";
        let row = Row::new("servers", name, "ns CPU", samples);
        rows.push(row.setting(&*version).speed_at_least(1.2));
        let samples = handoff::alternating(bench, program, Setting::Plain, waiters, handoffs)?;
        let name = format!("RELEASE → grant / LPUSH → BLPOP, {waiters} waiters");
        let row = Row::new("servers", name, "µs", samples);
        rows.push(row.setting(version).cost_at_most(1.0));
    }
    Ok(())
}
