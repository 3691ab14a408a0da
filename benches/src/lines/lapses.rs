//! A million leases that end within one second, beside a million keys that expire within one second.
//!
//! What other clients feel is the longest PING and the 99.9th percentile (see pings.rs for its two kinds), from the
//! first end on until no key is left. The wave is drained when DBSIZE is 0. The ends are spread evenly over the
//! second: each command's PX is what is left until its own end, so that the time that loading takes does not matter.
//!
//! The CPU time of a lapse is that of the server's main thread from the first end on, divided by the keys. So the turns
//! of the event loop and the PINGs count too, on both sides alike.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::commands::{is_granted, is_ok};
use crate::bench::{Bench, Side};
use crate::invalid::{Invalid, Result};
use crate::load::Single;
use crate::pings::Pings;
use crate::row::{Row, Samples};
use crate::server::Setting;
use crate::words::{key, token};
use dsync_testkit::resp::write_request;

/// More would be a server that does not get there.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Wave {
    longest_ms: f64,
    sent_ms: f64,
    due_ms: f64,
    drained_s: f64,
    /// Of each key.
    cpu_ns: f64,
}

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let count = bench.size(1_000_000, 20_000);
    // Microseconds that loading a key takes at most, on a machine that has the time.
    for (setting, loading_us) in [(Setting::Plain, 5), (Setting::Both, 10)] {
        let [mut longest, mut sent, mut due, mut drained, mut cpu] = [Samples::EMPTY; 5];
        // A pair takes more than a minute, and two are enough for figures that differ by factors.
        for pair in 0..bench.pairs().min(2) {
            let (ours, theirs) = bench.in_turn(pair, setting, |side, is_ours| {
                wave(side, is_ours, count, loading_us)
            })?;
            longest.push(ours.longest_ms, theirs.longest_ms);
            sent.push(ours.sent_ms, theirs.sent_ms);
            due.push(ours.due_ms, theirs.due_ms);
            drained.push(ours.drained_s, theirs.drained_s);
            cpu.push(ours.cpu_ns, theirs.cpu_ns);
        }
        let is_plain = matches!(setting, Setting::Plain);
        let setting = format!("{}, {count} keys", setting.name());
        let row = |what: &str, unit, samples| {
            Row::new(
                "lapses",
                format!("leases / SET PX keys: {what}"),
                unit,
                samples,
            )
            .setting(&*setting)
        };
        rows.push(
            row("longest PING", "ms", longest)
                .cost_at_most(0.3)
                .at_most(10.0),
        );
        rows.push(row("99.9 % of PINGs sent", "ms", sent).at_most(2.0));
        rows.push(row("99.9 % of PINGs due", "ms", due));
        rows.push(row("drained after", "s", drained).cost_at_most(1.5));
        let cpu = row("one of them", "ns CPU", cpu);
        // No target with an AOF and a replica: what the server itself does for them takes as long as all the rest.
        rows.push(if is_plain { cpu.at_most(2_000.0) } else { cpu });
    }
    Ok(())
}

fn wave(mut side: Side, is_ours: bool, count: u64, loading_us: u64) -> Result<Wave> {
    let first_end = loaded(&mut side, is_ours, count, loading_us)?;
    let lead = Duration::from_millis(20);
    sleep(first_end.saturating_duration_since(Instant::now() + lead));
    let pings = Pings::start(side.server.port());
    sleep(lead);
    let cpu_before = side.server.cpu_ns()?;
    while side.keys()? > 0 {
        if first_end.elapsed() > PATIENCE {
            return Err(Invalid::new(format!(
                "{} keys are left after {PATIENCE:?}",
                side.keys()?
            )));
        }
        sleep(Duration::from_millis(10));
    }
    let drained_s = first_end.elapsed().as_secs_f64();
    let cpu_ns = (side.server.cpu_ns()? - cpu_before) as f64 / count as f64;
    let waits = pings.finish()?;
    side.server.settle_replica(&mut side.control)?;
    Ok(Wave {
        longest_ms: waits.longest_ms(),
        sent_ms: waits.percentile_of_sent_ms(99.9),
        due_ms: waits.percentile_of_due_ms(99.9),
        drained_s,
        cpu_ns,
    })
}

/// Makes the keys and returns when the first of them ends. Tries again with more time where loading was too slow.
fn loaded(side: &mut Side, is_ours: bool, count: u64, loading_us: u64) -> Result<Instant> {
    let mut allowance = Duration::from_micros(loading_us * count) + Duration::from_secs(1);
    loop {
        let first_end = Instant::now() + allowance;
        let px = |number: u64| {
            let end = first_end + Duration::from_secs(1).mul_f64(number as f64 / count as f64);
            end.saturating_duration_since(Instant::now())
                .as_millis()
                .max(1)
                .to_string()
        };
        if is_ours {
            let write = |number, out: &mut Vec<u8>| {
                write_request(
                    out,
                    &[b"DLOCK.ACQUIRE", &key(number), b"PX", px(number).as_bytes()],
                );
            };
            side.load(&mut Single::new(count, 32, write, is_granted))?;
        } else {
            let write = |number, out: &mut Vec<u8>| {
                let px = px(number);
                let words = [
                    &b"SET"[..],
                    &key(number),
                    &token(number),
                    b"NX",
                    b"PX",
                    px.as_bytes(),
                ];
                write_request(out, &words);
            };
            side.load(&mut Single::new(count, 32, write, is_ok))?;
        }
        side.server.settle_replica(&mut side.control)?;
        if side.keys()? == count && Instant::now() + Duration::from_millis(100) < first_end {
            return Ok(first_end);
        }
        if allowance > PATIENCE {
            return Err(Invalid::new("loading takes longer than the leases last"));
        }
        side.flush()?;
        allowance *= 2;
    }
}
