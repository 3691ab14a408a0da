//! A contest: workers that want one resource all the time, each a fixed time inside, for a fixed length.
//!
//! A worker asks again as soon as it has released. That is the most that an algorithm can be asked for; it also shows
//! whether a holder that comes back at once overtakes those who wait.

use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::library::Driver;
use super::peer::{How, Peer};
use super::ports::{Algorithm, Make, Terms};
use super::visits::{Figures, Size, Stay, Visit, Visits};
use crate::bench::{Bench, Side};
use crate::client::Client;
use crate::invalid::{Context, Result};

/// From now on until all workers have been started.
const HEAD_START: Duration = Duration::from_millis(30);

#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub peer: &'static str,
    /// `port`, or the library's name and version.
    pub what: String,
    pub waiting: &'static str,
    pub workers: usize,
    /// Null for a lock.
    pub permits: Option<usize>,
    pub inside_ms: u64,
    pub seconds: f64,
    #[serde(flatten)]
    pub figures: Figures,
    /// Commands that the server carried out for each acquisition, those of scripts included.
    pub commands_each: f64,
}

pub fn run(peer: &Peer, side: &mut Side, size: &Size, bench: &Bench) -> Result<Outcome> {
    let (visits, what, commands) = match peer.how {
        How::Port(make) => {
            let (visits, commands) = of_port(make, side, size)?;
            (visits, "port".to_owned(), commands)
        }
        How::Library(language) => {
            let mut driver = Driver::contend(bench, language, peer.name, side.server.port(), size)?;
            let version = driver.await_ready()?;
            side.control.ok("CONFIG RESETSTAT")?;
            driver.go()?;
            let visits = driver.visits(size)?;
            (visits, version, commands(&mut side.control)?)
        }
    };
    let figures = visits.figures(size.workers, size.permits.unwrap_or(1));
    Ok(Outcome {
        peer: peer.name,
        what,
        waiting: peer.waiting,
        workers: size.workers,
        permits: size.permits,
        inside_ms: size.inside.as_millis() as u64,
        seconds: size.length.as_secs_f64(),
        commands_each: commands / figures.acquisitions as f64,
        figures,
    })
}

/// Returns all visits, and how many commands the server carried out for them.
pub fn of_port(make: Make, side: &mut Side, size: &Size) -> Result<(Visits, f64)> {
    let workers = (0..size.workers)
        .map(|worker| make(&terms(side, worker, size)))
        .collect::<Result<Vec<_>>>()?;
    side.control.ok("CONFIG RESETSTAT")?;
    let visits = contend(workers, size)?;
    Ok((visits, commands(&mut side.control)?))
}

fn terms(side: &Side, worker: usize, size: &Size) -> Terms {
    Terms {
        port: side.server.port(),
        worker: worker as u64,
        tenant: 0,
        permits: size.permits,
        lease_ms: None,
    }
}

/// Lets the workers work, each in a thread of its own.
fn contend(workers: Vec<Box<dyn Algorithm>>, size: &Size) -> Result<Visits> {
    let zero = Instant::now();
    let begin = zero + HEAD_START;
    let end = begin + size.length;
    let clock = Clock { zero, end };
    let all = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(number, worker)| {
                scope.spawn(move || {
                    sleep(begin.saturating_duration_since(Instant::now()));
                    work(number, worker, size.inside, clock)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().ok().context("a worker panicked")?)
            .collect::<Result<Vec<_>>>()
    })?;
    Ok(Visits {
        begin_us: clock.us(begin),
        end_us: clock.us(end),
        all: all.concat(),
    })
}

#[derive(Clone, Copy)]
struct Clock {
    zero: Instant,
    end: Instant,
}

impl Clock {
    fn us(&self, moment: Instant) -> u64 {
        moment.saturating_duration_since(self.zero).as_micros() as u64
    }
}

fn work(
    number: usize,
    mut worker: Box<dyn Algorithm>,
    inside: Duration,
    clock: Clock,
) -> Result<Vec<Visit>> {
    let mut visits = Vec::new();
    loop {
        let asked = Instant::now();
        if asked >= clock.end {
            return Ok(visits);
        }
        let mut visit = Visit {
            worker: number,
            asked_us: clock.us(asked),
            stay: None,
        };
        if !worker.acquire(clock.end)? {
            visits.push(visit);
            return Ok(visits);
        }
        let got = Instant::now();
        sleep(inside);
        visit.stay = Some(Stay {
            got_us: clock.us(got),
            left_us: clock.us(Instant::now()),
        });
        visits.push(visit);
        worker.release()?;
    }
}

/// Returns how many commands the server has carried out since the statistics were reset, as INFO commandstats counts
/// them: a script counts once, and each command that it calls counts too. Our own are left out.
fn commands(control: &mut Client) -> Result<f64> {
    Ok(calls(&control.text("INFO commandstats")?))
}

fn calls(commandstats: &str) -> f64 {
    commandstats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
        .filter(|(command, _)| *command != "info" && !command.starts_with("config"))
        .filter_map(|(_, rest)| rest.split(',').next()?.parse::<f64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_counts_all_commands_but_our_own() {
        let text = "# Commandstats\r\n\
            cmdstat_evalsha:calls=3,usec=1,usec_per_call=0.50\r\n\
            cmdstat_config|resetstat:calls=1,usec=1\r\n\
            cmdstat_info:calls=1,usec=1\r\n\
            cmdstat_dlock.acquire:calls=40,usec=1\r\n";
        assert_eq!(calls(text), 43.0);
    }
}
