//! How costs grow with what a server carries: waiters, held locks, holders of one semaphore, contended keys.
//!
//! There are no targets: the plots tell whether a curve is flat, logarithmic or worse, and theirs beside it shows
//! what of it is the server's own.

use std::time::Instant;

use super::commands::{LOCK, SET_AND_SCRIPT, acquire, is_granted, is_ok, is_one, set_nx_px};
use super::handoff::{latencies, place};
use super::memory::bytes_each;
use super::stalls::contended;
use super::throughput::load_script;
use crate::bench::{Bench, Side, alternate};
use crate::client::{Client, expect, wrong};
use crate::invalid::Result;
use crate::load::{PairOf, Pairs, Single};
use crate::row::{Place, Row, Samples};
use crate::server::{Setting, info_number};
use crate::statistics::median;
use crate::words::token;
use dsync_testkit::resp::{Frame, write_request};

pub fn run_waiters(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    for &waiters in bench.size(&[10, 100, 1_000, 10_000][..], &[10, 200]) {
        let waiters = bench.clients("growth-waiters", waiters);
        let mut samples = Samples::default();
        for pair in 0..bench.pairs() {
            let (ours, theirs) = latencies(bench, pair, waiters)?;
            samples.push(ours, theirs);
        }
        let name = format!("RELEASE → grant / LPUSH → BLPOP, {waiters} waiters");
        rows.push(Row::new("growth-waiters", name, "µs", samples).at(place(waiters)));
    }
    Ok(())
}

/// The most locks that are held at once.
const MOST_HELD: u64 = 5_000_000;

pub fn run_locks(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let operations = bench.size(8_000, 1_000);
    for &held in bench.size(
        &[1_000, 10_000, 100_000, 1_000_000, MOST_HELD][..],
        &[1_000, 10_000],
    ) {
        let (mut pairs, mut bytes) = (Samples::default(), Samples::default());
        // The largest size takes minutes and over a gigabyte a side, so one pair is enough.
        let count = if held == MOST_HELD { 1 } else { bench.pairs() };
        for pair in 0..count {
            let (mut ours, mut theirs) = bench.both(Setting::Plain)?;
            load_script(&mut theirs)?;
            bytes.push(
                bytes_each(&mut ours, held, &[(acquire, is_granted)])?,
                bytes_each(&mut theirs, held, &[(set_nx_px, is_ok)])?,
            );
            let slices = alternate(pair, (&mut ours, &mut theirs), |side, is_ours| {
                pairs_beside(
                    side,
                    if is_ours { &BESIDE_LOCKS } else { &BESIDE_KEYS },
                    operations,
                )
            })?;
            pairs.push_slices(&slices);
        }
        let what = format!("ACQUIRE + RELEASE / SET + EVALSHA beside {held} held");
        let curve = |chart| Place::Curve {
            chart,
            x_name: "held locks",
            x: held as f64,
        };
        let row = Row::new("growth-locks", what, "ns CPU", pairs);
        rows.push(row.at(curve("CPU of a lock beside held ones")));
        let row = Row::new(
            "growth-locks",
            format!("bytes of a lock / of a SET PX lock, {held} held"),
            "B",
            bytes,
        );
        rows.push(row.at(curve("bytes of a held lock")));
    }
    Ok(())
}

/// Keys beyond those that are held.
const BEYOND: u64 = 10_000_000;

const BESIDE_LOCKS: PairOf = PairOf {
    first: |number, out| (LOCK.first)(BEYOND + number, out),
    token: LOCK.token,
    second: |number, token, out| (LOCK.second)(BEYOND + number, token, out),
};

const BESIDE_KEYS: PairOf = PairOf {
    first: |number, out| (SET_AND_SCRIPT.first)(BEYOND + number, out),
    token: SET_AND_SCRIPT.token,
    second: |number, token, out| (SET_AND_SCRIPT.second)(BEYOND + number, token, out),
};

fn pairs_beside(side: &mut Side, pair: &PairOf, operations: u64) -> Result<f64> {
    Ok(side.cpu_ns(&mut Pairs::new(pair, operations, 32))? / operations as f64)
}

pub fn run_holders(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let operations = bench.size(8_000, 1_000);
    for &holders in bench.size(
        &[1, 10, 100, 1_000, 10_000, 100_000, 200_000][..],
        &[1, 1_000],
    ) {
        let mut samples = Samples::default();
        for pair in 0..bench.pairs() {
            let (mut ours, mut theirs) = bench.both(Setting::Plain)?;
            ours.load(&mut Single::new(holders, 32, SEAT.first, is_granted))?;
            theirs.load(&mut Single::new(holders, 32, held_member, is_one))?;
            let slices = alternate(pair, (&mut ours, &mut theirs), |side, is_ours| {
                pairs_beside(side, if is_ours { &SEAT } else { &MEMBER }, operations)
            })?;
            samples.push_slices(&slices);
        }
        let what = format!("DSEM.ACQUIRE + RELEASE / ZADD + ZREM beside {holders} holders");
        let place = Place::Curve {
            chart: "CPU of one more holder",
            x_name: "holders of the semaphore",
            x: holders as f64,
        };
        rows.push(Row::new("growth-holders", what, "ns CPU", samples).at(place));
    }
    Ok(())
}

/// One of many holders of one semaphore.
const SEAT: PairOf = PairOf {
    first: |_, out| {
        write_request(
            out,
            &[
                b"DSEM.ACQUIRE",
                b"seats",
                b"LIMIT",
                b"1000000",
                b"PX",
                b"3600000",
            ],
        );
    },
    token: super::commands::granted,
    second: |_, token, out| write_request(out, &[b"DSEM.RELEASE", b"seats", token]),
};

/// One of many members of a sorted set, scored by the end of its lease as semaphores without a module do it.
const MEMBER: PairOf = PairOf {
    first: |number, out| member(BEYOND + number, out),
    token: |reply| (*reply == Frame::Int(1)).then_some(&[]),
    second: |number, _, out| write_request(out, &[b"ZREM", b"seats", &token(BEYOND + number)]),
};

fn held_member(number: u64, out: &mut Vec<u8>) {
    member(number, out);
}

fn member(number: u64, out: &mut Vec<u8>) {
    let deadline = (1_795_000_000_000 + number).to_string();
    write_request(
        out,
        &[b"ZADD", b"seats", deadline.as_bytes(), &token(number)],
    );
}

pub fn run_keys(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    for &keys in bench.size(&[100, 1_000, 10_000, 20_000][..], &[50, 200]) {
        let keys = bench.clients("growth-keys", keys);
        let mut samples = Samples::default();
        for pair in 0..bench.pairs() {
            let (ours, theirs) = bench.in_turn(pair, Setting::Plain, |side, is_ours| {
                contended_handoff(side, is_ours, keys)
            })?;
            samples.push(ours, theirs);
        }
        let what = format!("RELEASE → grant / LPUSH → BLPOP, {keys} keys with a waiter each");
        let place = Place::Curve {
            chart: "hand-off over contended keys",
            x_name: "contended keys",
            x: keys as f64,
        };
        rows.push(Row::new("growth-keys", what, "µs", samples).at(place));
    }
    Ok(())
}

/// Returns the median hand-off, in microseconds, where each of `keys` keys has one waiter.
fn contended_handoff(mut side: Side, is_ours: bool, keys: usize) -> Result<f64> {
    let mut waiters = side.server.clients(keys)?;
    let control = &mut side.control;
    for (number, waiter) in waiters.iter_mut().enumerate() {
        enqueue(control, waiter, is_ours, number)?;
    }
    side.server.eventually("all clients to wait", || {
        Ok(info_number(control, "clients", "blocked_clients")? as usize == keys)
    })?;
    let mut waits = Vec::new();
    for (number, waiter) in waiters.iter_mut().enumerate().take(1_000) {
        let name = contended(number);
        let begin = Instant::now();
        match is_ours {
            true => control.send(&[b"DLOCK.RELEASE", &name, &token(number as u64 * 2)])?,
            false => control.send(&[b"LPUSH", &name, b"1"])?,
        }
        waiter.receive(|reply| match reply.array() {
            Some([Frame::Bulk(_), Frame::Int(_)]) if is_ours => Ok(()),
            Some([Frame::Bulk(_), Frame::Bulk(b"1")]) if !is_ours => Ok(()),
            _ => Err(wrong("a grant", reply)),
        })?;
        waits.push(begin.elapsed().as_secs_f64() * 1e6);
        control.receive(|reply| expect(*reply == Frame::Int(1), "1", reply))?;
        // The key is contended again before the next is measured.
        if is_ours {
            let held = token(number as u64 * 2 + 1);
            waiter.call(&[b"DLOCK.RELEASE", &name, &held], |reply| {
                expect(*reply == Frame::Int(1), "1", reply)
            })?;
        }
        enqueue(control, waiter, is_ours, number)?;
        control.barrier()?;
    }
    Ok(median(&waits))
}

/// Has `control` hold a key, and a waiter wait for it.
fn enqueue(control: &mut Client, waiter: &mut Client, is_ours: bool, number: usize) -> Result<()> {
    let name = contended(number);
    if !is_ours {
        return waiter.send(&[b"BLPOP", &name, b"0"]);
    }
    let (held, waiting) = (token(number as u64 * 2), token(number as u64 * 2 + 1));
    let words = [
        &b"DLOCK.ACQUIRE"[..],
        &name,
        b"PX",
        b"3600000",
        b"TOKEN",
        &held,
    ];
    control.call(&words, |reply| expect(is_granted(reply), "a grant", reply))?;
    waiter.send(&[
        b"DLOCK.ACQUIRE",
        &name,
        b"PX",
        b"3600000",
        b"BLOCK",
        b"0",
        b"TOKEN",
        &waiting,
    ])
}
