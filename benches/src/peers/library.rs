//! Drivers: programs in `benches/peers/` that use a real lock library, in its language.
//!
//! A driver writes `ready`, with the library's name and version, when all its workers are connected, and begins when it
//! reads a line. Its `contend` writes `from`, with the begin and the end, and then a line for each visit: worker,
//! asked, got, left, in microseconds of the monotonic clock; got and left are `-` where the worker still waited at the
//! end. Its `hold` acquires once, writes `in`, and stays inside until its input ends or it is killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::visits::{Size, Stay, Visit, Visits};
use crate::bench::Bench;
use crate::invalid::{Context, Invalid, Result};

/// A driver that is silent for longer makes its figures invalid.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Python,
    Node,
}

impl Language {
    fn driver(self) -> &'static str {
        match self {
            Self::Python => "benches/peers/locks.py",
            Self::Node => "benches/peers/locks.js",
        }
    }

    fn program(self, bench: &Bench) -> Option<&std::path::Path> {
        match self {
            Self::Python => bench.options.python.as_deref(),
            Self::Node => bench.options.node.as_deref(),
        }
    }

    /// Why the peers of this language cannot run.
    pub fn missing(self, bench: &Bench) -> Option<&'static str> {
        match (self.program(bench), self) {
            (Some(_), _) => None,
            (None, Self::Python) => Some("no PYTHON that has the libraries was named"),
            (None, Self::Node) => Some("no NODE that has the libraries was named"),
        }
    }
}

/// A driver that runs. It is killed when this is dropped.
pub struct Driver {
    child: Child,
    lines: Receiver<String>,
}

impl Driver {
    pub fn contend(
        bench: &Bench,
        language: Language,
        peer: &str,
        port: u16,
        size: &Size,
    ) -> Result<Self> {
        let numbers = [
            u128::from(port),
            size.permits.unwrap_or(0) as u128,
            size.workers as u128,
            size.inside.as_micros(),
            size.length.as_millis(),
        ];
        Self::start(bench, language, ["contend", peer], &numbers)
    }

    pub fn hold(
        bench: &Bench,
        language: Language,
        peer: &str,
        port: u16,
        lease_ms: u64,
    ) -> Result<Self> {
        let numbers = [u128::from(port), u128::from(lease_ms)];
        Self::start(bench, language, ["hold", peer], &numbers)
    }

    fn start(
        bench: &Bench,
        language: Language,
        words: [&str; 2],
        numbers: &[u128],
    ) -> Result<Self> {
        let program = language
            .program(bench)
            .context("the language is not installed")?;
        let mut child = Command::new(program)
            .arg(language.driver())
            .args(words)
            .args(numbers.iter().map(u128::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(format!("cannot start {}", program.display()))?;
        let output = child.stdout.take().context("a driver has no output")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output)
                .lines()
                .map_while(std::result::Result::ok)
            {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Returns the library's name and version.
    pub fn await_ready(&mut self) -> Result<String> {
        let line = self.line()?.context("a driver ended before it was ready")?;
        let version = line.strip_prefix("ready ");
        let version = version.context(format!("a driver said '{line}' instead of 'ready'"))?;
        Ok(version.to_owned())
    }

    pub fn go(&mut self) -> Result<()> {
        let input = self.child.stdin.as_mut();
        let input = input.context("a driver has no input")?;
        input.write_all(b"go\n").context("a driver does not read")
    }

    /// Returns whether the driver's worker is in.
    pub fn is_in_before(&mut self, deadline: Instant) -> Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) if line == "in" => Ok(true),
            Ok(line) => Err(Invalid::new(format!("a driver said '{line}'"))),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => Err(Invalid::new("a driver ended")),
        }
    }

    /// Returns all visits, when the driver has ended well.
    pub fn visits(mut self, size: &Size) -> Result<Visits> {
        let from = self.line()?.context("a driver ended")?;
        let mut words = from.split(' ').skip(1);
        let mut visits = Visits {
            begin_us: number(words.next())?,
            end_us: number(words.next())?,
            all: Vec::new(),
        };
        while let Some(line) = self.line()? {
            let visit = parse(&line).map_err(|error| error.during(&line))?;
            if visit.worker >= size.workers {
                return Err(Invalid::new(format!("there is no such worker: {line}")));
            }
            visits.all.push(visit);
        }
        let status = self.child.wait().context("cannot wait for a driver")?;
        if status.success() {
            Ok(visits)
        } else {
            Err(Invalid::new(format!("a driver failed: {status}")))
        }
    }

    /// The next line, or None where the driver has ended.
    fn line(&mut self) -> Result<Option<String>> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Err(Invalid::new("a driver is silent")),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse(line: &str) -> Result<Visit> {
    let mut words = line.split(' ');
    let worker = number(words.next())?;
    let asked_us = number(words.next())?;
    let stay = match words.next() {
        Some("-") => None,
        got => Some(Stay {
            got_us: number(got)?,
            left_us: number(words.next())?,
        }),
    };
    Ok(Visit {
        worker,
        asked_us,
        stay,
    })
}

fn number<T: std::str::FromStr>(word: Option<&str>) -> Result<T> {
    word.and_then(|word| word.parse().ok())
        .context("a driver's line lacks a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_reads_stays_and_open_waits() {
        let stay = Stay {
            got_us: 7,
            left_us: 9,
        };
        let visit = parse("3 5 7 9").unwrap();
        assert_eq!(
            (visit.worker, visit.asked_us, visit.stay),
            (3, 5, Some(stay))
        );
        assert_eq!(parse("3 5 - -").unwrap().stay, None);
        for line in ["", "3", "3 5", "3 5 7", "x 5 7 9"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
