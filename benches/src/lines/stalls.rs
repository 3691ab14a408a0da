//! The longest turn of the event loop, as another client's PING sees it, when something happens to all keys at once
//! or to one large key, on a server with a million holds. Theirs is the same on a server with as many SET PX keys.
//!
//! Where the event has no counterpart, theirs is the nearest thing that a server has: a sorted set with as many
//! members for a semaphore's holders (what semaphores without a module are made of), KEYS over as many keys for
//! CONTENDED.
//!
//! A replica is never needed: the server is told to follow a port where nobody listens (demotion), and then to follow
//! nobody (promotion).

use std::time::Duration;

use super::commands::{acquire, is_granted, is_ok, is_one, set_nx_px};
use crate::bench::{Bench, Side, ours_first};
use crate::client::expect;
use crate::invalid::{Invalid, Result};
use crate::load::{Single, drive};
use crate::pings::longest_during;
use crate::resp::{Reply, write_command};
use crate::row::{Row, Samples};
use crate::server::{Setting, info, info_number};
use crate::words::numbered;

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

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let sizes = Sizes {
        holds: bench.size(1_000_000, 20_000),
        holders: bench.size(200_000, 5_000),
        contended: bench.clients("stalls, CONTENDED", bench.size(20_000, 200)),
    };
    let mut samples = EVENTS.map(|_| Samples::default());
    // A pair takes more than a minute, and two are enough for figures that differ by factors.
    for pair in 0..bench.pairs().min(2) {
        let (ours, theirs) = if ours_first(pair, 0) {
            let ours = stalls(bench, true, sizes)?;
            (ours, stalls(bench, false, sizes)?)
        } else {
            let theirs = stalls(bench, false, sizes)?;
            (stalls(bench, true, sizes)?, theirs)
        };
        for (samples, (ours, theirs)) in samples.iter_mut().zip(ours.into_iter().zip(theirs)) {
            samples.push(ours, theirs);
        }
    }
    for (event, samples) in EVENTS.into_iter().zip(samples) {
        let what = match event {
            "DEL of a semaphore / sorted set" => format!("{event} of {}", sizes.holders),
            "CONTENDED / KEYS" => format!("{event} of {} keys", sizes.contended),
            _ => event.to_owned(),
        };
        let row = Row::new("stalls", what, "ms", samples);
        rows.push(
            row.setting(format!("{} keys", sizes.holds))
                .at_most_or_theirs(10.0),
        );
    }
    Ok(())
}

/// Returns the longest PING of each event, in the order of [`EVENTS`].
fn stalls(bench: &Bench, is_ours: bool, sizes: Sizes) -> Result<[f64; 9]> {
    let mut side = match is_ours {
        true => bench.ours(Setting::Plain)?,
        false => bench.theirs(Setting::Plain)?,
    };
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
        load,
        start,
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

/// Carries out a command that answers OK.
fn command(side: &mut Side, command: &str) -> Result<f64> {
    let control = &mut side.control;
    longest_during(side.server.port(), AFTER, || control.ok(command))
}

fn removal(side: &mut Side, is_ours: bool, holders: u64) -> Result<f64> {
    if is_ours {
        let write = |_, out: &mut Vec<u8>| {
            write_command(
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
        side.load(&mut Single::new(holders, 32, write, is_granted))?;
    } else {
        let write = |number, out: &mut Vec<u8>| {
            let member = crate::words::token(number);
            write_command(
                out,
                &[b"ZADD", b"large", number.to_string().as_bytes(), &member],
            );
        };
        side.load(&mut Single::new(holders, 32, write, is_one))?;
    }
    let control = &mut side.control;
    longest_during(side.server.port(), AFTER, || {
        control.call(&[b"DEL", b"large"], |reply| {
            expect(*reply == Reply::Integer(1), "1", reply)
        })
    })
}

/// The name of a contended key.
pub fn contended(number: usize) -> [u8; 16] {
    numbered(b"contended:", number as u64)
}

/// CONTENDED on a server with so many contended keys, each with a holder and a waiting client.
fn contended_listing(side: &mut Side, count: usize) -> Result<f64> {
    let hold = |number: u64, out: &mut Vec<u8>| {
        let name = contended(number as usize);
        write_command(out, &[b"DLOCK.ACQUIRE", &name, b"PX", b"3600000"]);
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
    let longest = longest_during(side.server.port(), AFTER, || {
        control.call(&[b"DSYNC.CONTENDED", b"COUNT", b"10"], |reply| {
            let listed = reply.array().map_or(0, <[_]>::len);
            expect(listed == 10, "ten contended keys", reply)
        })
    })?;
    drop(waiters);
    side.server.eventually("the waiters to go", || {
        Ok(info(control, "clients", "blocked_clients")? == "0")
    })?;
    let remove =
        |number: u64, out: &mut Vec<u8>| write_command(out, &[b"DEL", &contended(number as usize)]);
    side.load(&mut Single::new(count as u64, 32, remove, is_one))?;
    Ok(longest)
}

/// KEYS of so many keys. They are in a database of their own: KEYS looks at all keys of a database.
fn plain_listing(side: &mut Side, count: usize) -> Result<f64> {
    let control = &mut side.control;
    control.ok("SELECT 1")?;
    let set = |number: u64, out: &mut Vec<u8>| {
        write_command(out, &[b"SET", &contended(number as usize), b"1"]);
    };
    drive(
        std::slice::from_mut(control),
        &mut Single::new(count as u64, 32, set, is_ok),
    )?;
    let longest = longest_during(side.server.port(), AFTER, || {
        control.call(&[b"KEYS", b"contended:*"], |reply| {
            let listed = reply.array().map_or(0, <[_]>::len);
            expect(listed == count, "all keys", reply)
        })
    })?;
    control.ok("FLUSHDB SYNC")?;
    control.ok("SELECT 0")?;
    Ok(longest)
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
    side.server.crash_and_start()?;
    let pings = crate::pings::Pings::start(side.server.port());
    side.reconnect()?;
    std::thread::sleep(AFTER);
    let waits = pings.finish()?;
    assert_keys(side, holds)?;
    Ok((waits.longest_loading_ms(), waits.longest_ms()))
}
