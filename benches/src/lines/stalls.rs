//! What it costs when something happens to all keys at once, or to one large key, on a server with a million holds: the
//! longest turn of the event loop, as another client's PING sees it, and the CPU time from the request to its reply.
//! Theirs is the same on a server with as many SET PX keys.
//!
//! Where the event has no counterpart, theirs is the nearest thing that a server has: a sorted set with as many
//! members for a semaphore's holders (what semaphores without a module are made of), KEYS over as many keys for
//! CONTENDED.
//!
//! A replica is never needed: the server is told to follow a port where nobody listens (demotion), and then to follow
//! nobody (promotion).

use std::time::Duration;

use super::commands::{acquire, is_granted, is_ok, is_one, set_nx_px};
use crate::bench::{Bench, Side};
use crate::client::{Client, expect};
use crate::invalid::{Invalid, Result};
use crate::load::{Single, drive};
use crate::pings::longest_during;
use crate::row::{Row, Samples};
use crate::server::{Setting, info, info_number};
use crate::words::numbered;
use dsync_testkit::resp::{Frame, write_request};

/// For how long PINGs go on after an event: several ticks of the server's timer.
const AFTER: Duration = Duration::from_millis(300);

const EVENTS: [&str; 9] = [
    "demotion",
    "promotion",
    "SWAPDB",
    "DEL of a semaphore / sorted set",
    "CONTENDED / KEYS",
    "start, while it loads",
    "start, once it serves",
    "FLUSHALL SYNC",
    "FLUSHALL ASYNC",
];

#[derive(Clone, Copy)]
struct Sizes {
    holds: u64,
    /// Of the one semaphore.
    holders: u64,
    contended: usize,
}

/// What an event costs.
struct Stall {
    longest_ms: f64,
    /// CPU time of the server from the request to its reply. None of a start, which nobody asks for.
    cpu_ms: Option<f64>,
}

impl Stall {
    fn of_start(longest_ms: f64) -> Self {
        Self {
            longest_ms,
            cpu_ms: None,
        }
    }
}

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let sizes = Sizes {
        holds: bench.size(1_000_000, 20_000),
        holders: bench.size(200_000, 5_000),
        contended: bench.clients("stalls, CONTENDED", bench.size(20_000, 200)),
    };
    let mut longest = EVENTS.map(|_| Samples::default());
    let mut cpu = EVENTS.map(|_| Samples::default());
    // A pair takes more than a minute, and two are enough for figures that differ by factors.
    for pair in 0..bench.pairs().min(2) {
        let (ours, theirs) = bench.in_turn(pair, Setting::Plain, |side, is_ours| {
            stalls(side, is_ours, sizes)
        })?;
        for (at, (ours, theirs)) in ours.into_iter().zip(theirs).enumerate() {
            longest[at].push(ours.longest_ms, theirs.longest_ms);
            if let (Some(ours), Some(theirs)) = (ours.cpu_ms, theirs.cpu_ms) {
                cpu[at].push(ours, theirs);
            }
        }
    }
    for (event, (longest, cpu)) in EVENTS.into_iter().zip(longest.into_iter().zip(cpu)) {
        let what = match event {
            "DEL of a semaphore / sorted set" => format!("{event} of {}", sizes.holders),
            "CONTENDED / KEYS" => format!("{event} of {} keys", sizes.contended),
            _ => event.to_owned(),
        };
        for (unit, samples) in [("ms", longest), ("ms CPU", cpu)] {
            if !samples.ours.is_empty() {
                let row = Row::new("stalls", &*what, unit, samples);
                let setting = format!("{} keys", sizes.holds);
                rows.push(row.setting(setting).at_most_or_theirs(10.0));
            }
        }
    }
    Ok(())
}

/// Returns what each event costs, in the order of [`EVENTS`].
fn stalls(mut side: Side, is_ours: bool, sizes: Sizes) -> Result<[Stall; 9]> {
    fill(&mut side, is_ours, sizes.holds)?;
    let demotion = command(&mut side, "REPLICAOF 127.0.0.1 1")?;
    let promotion = command(&mut side, "REPLICAOF NO ONE")?;
    let swap = command(&mut side, "SWAPDB 0 1")?;
    side.control.ok("SWAPDB 0 1")?;
    let removal = removal(&mut side, is_ours, sizes.holders)?;
    let listing = match is_ours {
        true => contended_listing(&mut side, sizes.contended)?,
        false => plain_listing(&mut side, sizes.contended)?,
    };
    let mut side = saved(side, sizes.holds)?;
    let (load, start) = start(&mut side, sizes.holds)?;
    let flush = command(&mut side, "FLUSHALL SYNC")?;
    fill(&mut side, is_ours, sizes.holds)?;
    let flush_async = command(&mut side, "FLUSHALL ASYNC")?;
    Ok([
        demotion,
        promotion,
        swap,
        removal,
        listing,
        Stall::of_start(load),
        Stall::of_start(start),
        flush,
        flush_async,
    ])
}

fn fill(side: &mut Side, is_ours: bool, count: u64) -> Result<()> {
    match is_ours {
        true => side.load(&mut Single::new(count, 32, acquire, is_granted))?,
        false => side.load(&mut Single::new(count, 32, set_nx_px, is_ok))?,
    }
    assert_keys(side, count)
}

fn assert_keys(side: &mut Side, count: u64) -> Result<()> {
    let keys = side.keys()?;
    if keys == count {
        Ok(())
    } else {
        Err(Invalid::new(format!("{keys} keys instead of {count}")))
    }
}

/// Sends a request, and PINGs meanwhile.
fn stall(side: &mut Side, request: impl FnOnce(&mut Client) -> Result<()>) -> Result<Stall> {
    let mut cpu_ms = None;
    let longest_ms = longest_during(side.server.port(), AFTER, || {
        cpu_ms = Some(side.turn_cpu_ms(request)?);
        Ok(())
    })?;
    Ok(Stall { longest_ms, cpu_ms })
}

/// Carries out a command that answers OK.
fn command(side: &mut Side, command: &str) -> Result<Stall> {
    stall(side, |control| control.ok(command))
}

fn removal(side: &mut Side, is_ours: bool, holders: u64) -> Result<Stall> {
    fill_large(side, is_ours, holders)?;
    stall(side, |control| {
        control.call(&[b"DEL", b"large"], |reply| {
            expect(*reply == Frame::Int(1), "1", reply)
        })
    })
}

/// Makes a semaphore with so many holders, or a sorted set with as many members.
pub fn fill_large(side: &mut Side, is_ours: bool, holders: u64) -> Result<()> {
    if is_ours {
        let write = |_, out: &mut Vec<u8>| {
            write_request(
                out,
                &[
                    b"DSEM.ACQUIRE",
                    b"large",
                    b"LIMIT",
                    b"1000000",
                    b"PX",
                    b"3600000",
                ],
            );
        };
        side.load(&mut Single::new(holders, 32, write, is_granted))
    } else {
        let write = |number, out: &mut Vec<u8>| {
            let member = crate::words::token(number);
            write_request(
                out,
                &[b"ZADD", b"large", number.to_string().as_bytes(), &member],
            );
        };
        side.load(&mut Single::new(holders, 32, write, is_one))
    }
}

/// The name of a contended key.
pub fn contended(number: usize) -> [u8; 16] {
    numbered(b"contended:", number as u64)
}

/// CONTENDED on a server with so many contended keys, each with a holder and a waiting client.
fn contended_listing(side: &mut Side, count: usize) -> Result<Stall> {
    let hold = |number: u64, out: &mut Vec<u8>| {
        let name = contended(number as usize);
        write_request(out, &[b"DLOCK.ACQUIRE", &name, b"PX", b"3600000"]);
    };
    side.load(&mut Single::new(count as u64, 32, hold, is_granted))?;
    let mut waiters = side.server.clients(count)?;
    for (number, client) in waiters.iter_mut().enumerate() {
        let name = contended(number);
        client.send(&[b"DLOCK.ACQUIRE", &name, b"PX", b"3600000", b"BLOCK", b"0"])?;
    }
    let control = &mut side.control;
    side.server.eventually("all clients to wait", || {
        Ok(info_number(control, "clients", "blocked_clients")? as usize == count)
    })?;
    let stall = stall(side, |control| {
        control.call(&[b"DSYNC.CONTENDED", b"COUNT", b"10"], |reply| {
            let listed = reply.array().map_or(0, <[_]>::len);
            expect(listed == 10, "ten contended keys", reply)
        })
    })?;
    drop(waiters);
    let control = &mut side.control;
    side.server.eventually("the waiters to go", || {
        Ok(info(control, "clients", "blocked_clients")? == "0")
    })?;
    let remove =
        |number: u64, out: &mut Vec<u8>| write_request(out, &[b"DEL", &contended(number as usize)]);
    side.load(&mut Single::new(count as u64, 32, remove, is_one))?;
    Ok(stall)
}

/// KEYS of so many keys. They are in a database of their own: KEYS looks at all keys of a database.
fn plain_listing(side: &mut Side, count: usize) -> Result<Stall> {
    let control = &mut side.control;
    control.ok("SELECT 1")?;
    let set = |number: u64, out: &mut Vec<u8>| {
        write_request(out, &[b"SET", &contended(number as usize), b"1"]);
    };
    drive(
        std::slice::from_mut(control),
        &mut Single::new(count as u64, 32, set, is_ok),
    )?;
    let stall = stall(side, |control| {
        control.call(&[b"KEYS", b"contended:*"], |reply| {
            let listed = reply.array().map_or(0, <[_]>::len);
            expect(listed == count, "all keys", reply)
        })
    })?;
    side.control.ok("FLUSHDB SYNC")?;
    side.control.ok("SELECT 0")?;
    Ok(stall)
}

fn saved(mut side: Side, holds: u64) -> Result<Side> {
    assert_keys(&mut side, holds)?;
    side.control.ok("SAVE")?;
    Ok(side)
}

/// Starts the server again, as after a crash, and returns the longest PINGs: from its first answer on until it serves,
/// and from then on. A server that loads looks at its clients once for every two megabytes of the file, so the first of
/// the two is about the server's own loading.
fn start(side: &mut Side, holds: u64) -> Result<(f64, f64)> {
    side.server.crash_and_start();
    let pings = crate::pings::Pings::start(side.server.port());
    side.reconnect()?;
    std::thread::sleep(AFTER);
    let waits = pings.finish()?;
    assert_keys(side, holds)?;
    Ok((waits.longest_loading_ms(), waits.longest_ms()))
}
