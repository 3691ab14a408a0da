//! Bytes of a hold: in memory, in an RDB file, and in a rewritten AOF that consists of commands.
//!
//! Memory is what the server says it has allocated (`used_memory`), after minus before, a million keys named
//! `lock:00000000` and on, each on a fresh server. Before it is read, every key is looked up once: that finishes the
//! resizing of the server's tables, which would otherwise be there twice, and shows that every key exists.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use super::commands::{is_granted, is_ok, is_one, is_run, set_nx_px};
use crate::bench::{Bench, Side};
use crate::client::Client;
use crate::invalid::{Context, Invalid, Result};
use crate::load::Single;
use crate::row::{Place, Row, Samples};
use crate::server::{Setting, info, info_number};
use crate::words::{key, numbered, short_token, token};
use dsync_testkit::resp::{Frame, write_request};

type Write = fn(u64, &mut Vec<u8>);

/// A command that is sent once for each key, and whether a reply to it is right.
type Step = (Write, fn(&Frame<'_>) -> bool);

struct Kind {
    name: &'static str,
    steps: &'static [Step],
    at_most: Option<f64>,
}

const LEASE: &[u8] = b"3600000";

const KINDS: [Kind; 6] = [
    Kind {
        name: "a held lock",
        steps: &[(super::commands::acquire, is_granted)],
        at_most: Some(1.15),
    },
    Kind {
        name: "with a 20-byte TOKEN",
        steps: &[(
            |number, out| acquire_with(out, number, b"TOKEN", &short_token(number)),
            is_granted,
        )],
        at_most: Some(1.35),
    },
    Kind {
        name: "with an OWNER of 16 bytes",
        steps: &[(
            |number, out| acquire_with(out, number, b"OWNER", &numbered::<16>(b"web-", number)),
            is_granted,
        )],
        at_most: Some(1.35),
    },
    Kind {
        name: "a semaphore with one holder",
        steps: &[(
            |number, out| {
                write_request(
                    out,
                    &[b"DSEM.ACQUIRE", &key(number), b"LIMIT", b"1", b"PX", LEASE],
                );
            },
            is_granted,
        )],
        at_most: Some(1.5),
    },
    Kind {
        name: "a group with one member",
        steps: &[(
            |number, out| write_request(out, &[b"DWG.ADD", &key(number), b"PX", LEASE]),
            is_granted,
        )],
        at_most: None,
    },
    Kind {
        name: "work that is done",
        steps: &[
            (
                |number, out| {
                    write_request(
                        out,
                        &[
                            b"DONCE.BEGIN",
                            &key(number),
                            b"PX",
                            LEASE,
                            b"TOKEN",
                            &token(number),
                        ],
                    );
                },
                is_run,
            ),
            (
                |number, out| {
                    write_request(out, &[b"DONCE.DONE", &key(number), &token(number)]);
                },
                is_one,
            ),
        ],
        at_most: None,
    },
];

fn acquire_with(out: &mut Vec<u8>, number: u64, option: &[u8], text: &[u8]) {
    write_request(
        out,
        &[b"DLOCK.ACQUIRE", &key(number), b"PX", LEASE, option, text],
    );
}

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let count = bench.size(1_000_000, 20_000);
    let mut samples = KINDS.each_ref().map(|_| Samples::default());
    let (mut rdb, mut aof) = (Samples::default(), Samples::default());
    // Once, whatever PAIRS says: the same keys take the same bytes again.
    let mut theirs = bench.theirs(Setting::Plain)?;
    let their_bytes = bytes_each(&mut theirs, count, &[(set_nx_px, is_ok)])?;
    let their_files = files(&mut theirs, count)?;
    drop(theirs);
    for (at, kind) in KINDS.iter().enumerate() {
        let mut ours = bench.ours(Setting::Plain)?;
        samples[at].push(bytes_each(&mut ours, count, kind.steps)?, their_bytes);
        if at == 0 {
            let our_files = files(&mut ours, count)?;
            rdb.push(our_files.0, their_files.0);
            aof.push(our_files.1, their_files.1);
        }
    }
    let setting = format!("{count} keys");
    for (kind, samples) in KINDS.iter().zip(samples) {
        let row = Row::new(
            "memory",
            format!("{} / SET PX lock", kind.name),
            "B",
            samples,
        );
        let place = Place::Bars { chart: "memory" };
        let row = row.setting(&*setting).at(place);
        rows.push(match kind.at_most {
            Some(at_most) => row.cost_at_most(at_most),
            None => row,
        });
    }
    for (name, samples, at_most) in [("RDB", rdb, 1.4), ("AOF rewrite", aof, 1.2)] {
        let row = Row::new(
            "memory",
            format!("a held lock / SET PX lock, {name}"),
            "B",
            samples,
        );
        let place = Place::Bars { chart: "memory" };
        rows.push(row.setting(&*setting).cost_at_most(at_most).at(place));
    }
    Ok(())
}

/// Makes `count` keys and returns the bytes of memory that each takes.
pub fn bytes_each(side: &mut Side, count: u64, steps: &[Step]) -> Result<f64> {
    // The server's buffers for its clients must not count: there is one client before and after.
    side.lanes.clear();
    let before = settled(&mut side.control, Duration::from_millis(200))?;
    side.connect_lanes()?;
    for (write, is_right) in steps {
        side.load(&mut Single::new(count, 32, write, *is_right))?;
    }
    let look = |number, out: &mut Vec<u8>| write_request(out, &[b"EXISTS", &key(number)]);
    side.load(&mut Single::new(count, 32, look, is_one))?;
    side.lanes.clear();
    let after = settled(&mut side.control, Duration::from_millis(300))?;
    side.connect_lanes()?;
    Ok((after - before) / count as f64)
}

/// Returns `used_memory` once it has stood still for so long, but for the buffers of the question itself.
pub fn settled(client: &mut Client, still: Duration) -> Result<f64> {
    const STEP: Duration = Duration::from_millis(50);
    const NOISE: f64 = 8192.0;
    let (mut last, mut still_for) = (0.0_f64, Duration::ZERO);
    for _ in 0..600 {
        let used = info_number(client, "memory", "used_memory")?;
        if (used - last).abs() <= NOISE {
            still_for += STEP;
            if still_for > still {
                return Ok(used);
            }
        } else {
            (last, still_for) = (used, Duration::ZERO);
        }
        sleep(STEP);
    }
    Err(Invalid::new("used_memory does not stand still"))
}

/// Returns the bytes of a key in an RDB file and in a rewritten AOF.
fn files(side: &mut Side, count: u64) -> Result<(f64, f64)> {
    side.control.ok("SAVE")?;
    let directory = side.server.directory();
    let rdb = fs::metadata(directory.join("dump.rdb"))
        .context("dump.rdb")?
        .len();
    side.control.call(&[b"BGREWRITEAOF"], |_| Ok(()))?;
    let control = &mut side.control;
    side.server.eventually("the AOF rewrite", || {
        let is_over =
            |field: &str, control: &mut Client| Ok(info(control, "persistence", field)? == "0");
        Ok(is_over("aof_rewrite_scheduled", control)?
            && is_over("aof_rewrite_in_progress", control)?)
    })?;
    if info(control, "persistence", "aof_last_bgrewrite_status")? != "ok" {
        return Err(Invalid::new("the AOF rewrite failed"));
    }
    let aof = fs::read_dir(directory.join("appendonlydir"))
        .context("appendonlydir")?
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().ends_with(".base.aof"))
        .context("no rewritten AOF")?;
    let aof = aof.metadata().context("the rewritten AOF")?.len();
    Ok((rdb as f64 / count as f64, aof as f64 / count as f64))
}
