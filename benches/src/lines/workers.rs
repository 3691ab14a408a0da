//! Sixteen workers that share one lock, each a millisecond inside, beside one worker alone.
//!
//! The queue costs nothing where sixteen get as much done as one: the lock is never free for longer than it takes to
//! hand it on. Counted are acquisitions a second, how evenly they fall (Jain's index), and how many commands the
//! server carried out for each. While they run, the workers check that nobody else is inside.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use super::commands::granted;
use crate::bench::{Bench, Side, in_order};
use crate::client::{Client, expect, wrong};
use crate::invalid::{Context, Invalid, Result};
use crate::row::{Row, Samples};
use crate::server::Setting;
use crate::statistics::jain;
use crate::words::token;
use dsync_testkit::resp::Frame;

const WORKERS: usize = 16;
const INSIDE: Duration = Duration::from_millis(1);
const KEY: &[u8] = b"shared";

struct Figures {
    per_second: f64,
    jain: f64,
    commands_each: f64,
}

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let length = Duration::from_millis(bench.size(2_000, 300));
    let (mut rates, mut evenness, mut commands) =
        (Samples::default(), Samples::default(), Samples::default());
    for pair in 0..bench.pairs() {
        let mut side = bench.ours(Setting::Plain)?;
        let (many, alone) = in_order(pair, 0, |is_many| {
            work(&mut side, if is_many { WORKERS } else { 1 }, length)
        })?;
        rates.push(many.per_second, alone.per_second);
        evenness.ours.push(many.jain);
        commands.ours.push(many.commands_each);
    }
    let line = "workers";
    rows.push(
        Row::new(line, "acquisitions, 16 workers / one alone", "/s", rates).ratio_at_least(0.95),
    );
    rows.push(Row::new(line, "Jain's index of 16 workers", "", evenness).at_least(0.999));
    let row = Row::new(line, "commands an acquisition", "", commands);
    rows.push(row.at_least(2.0).at_most(2.0));
    Ok(())
}

fn work(side: &mut Side, workers: usize, length: Duration) -> Result<Figures> {
    side.control.ok("CONFIG RESETSTAT")?;
    let stop = AtomicBool::new(false);
    let inside = AtomicBool::new(false);
    let number = AtomicU64::new(0);
    let ready = Barrier::new(workers + 1);
    let clients = side.server.clients(workers)?;
    let (counts, seconds) = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .map(|client| {
                let (stop, inside, number, ready) = (&stop, &inside, &number, &ready);
                scope.spawn(move || {
                    ready.wait();
                    worker(client, stop, inside, number)
                })
            })
            .collect();
        ready.wait();
        let begin = Instant::now();
        sleep(length);
        stop.store(true, Ordering::Relaxed);
        // Who waits when it stops gets the lock once more, and is counted.
        let counts = threads
            .into_iter()
            .map(|thread| thread.join().ok().context("a worker panicked")?)
            .collect::<Result<Vec<f64>>>();
        (counts, begin.elapsed().as_secs_f64())
    });
    let counts = counts?;
    let acquisitions: f64 = counts.iter().sum();
    Ok(Figures {
        per_second: acquisitions / seconds,
        jain: jain(&counts),
        commands_each: commands(side)? / acquisitions,
    })
}

/// Returns how often the worker was inside.
fn worker(
    mut client: Client,
    stop: &AtomicBool,
    inside: &AtomicBool,
    number: &AtomicU64,
) -> Result<f64> {
    let mut count = 0.0;
    while !stop.load(Ordering::Relaxed) {
        let token = token(number.fetch_add(1, Ordering::Relaxed));
        let words = [
            &b"DLOCK.ACQUIRE"[..],
            KEY,
            b"PX",
            b"30000",
            b"BLOCK",
            b"0",
            b"TOKEN",
            &token,
        ];
        client.call(&words, |reply| match granted(reply) {
            Some(granted) if *granted == token => Ok(()),
            _ => Err(wrong("a grant", reply)),
        })?;
        if inside.swap(true, Ordering::SeqCst) {
            return Err(Invalid::new("two workers were inside at once"));
        }
        sleep(INSIDE);
        inside.store(false, Ordering::SeqCst);
        client.call(&[b"DLOCK.RELEASE", KEY, &token], |reply| {
            expect(*reply == Frame::Int(1), "1", reply)
        })?;
        count += 1.0;
    }
    Ok(count)
}

/// Returns how many of the module's commands the server has carried out since the statistics were reset.
fn commands(side: &mut Side) -> Result<f64> {
    let text = side.control.text("INFO commandstats")?;
    let calls = text
        .lines()
        .filter(|line| line.to_ascii_uppercase().starts_with("CMDSTAT_DLOCK."))
        .filter_map(|line| {
            line.split_once("calls=")?
                .1
                .split(',')
                .next()?
                .parse::<f64>()
                .ok()
        });
    Ok(calls.sum())
}
