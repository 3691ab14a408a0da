//! What another client feels: PING every half a millisecond, from a thread and connection of its own.
//!
//! A PING that takes long keeps the next ones from being sent, so a percentile of the PINGs that were *sent* counts a
//! stall once, however long it is. A percentile of those that were *due* counts what each of them would have waited
//! (the correction that HdrHistogram makes for an expected interval): this is what clients feel that do not wait for
//! each other. Both are offered, for most published figures are of the first kind. The longest PING is the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::client::{Client, expect};
use crate::invalid::{Context, Result};
use crate::statistics::{largest, percentile};
use dsync_testkit::resp::Frame;

const INTERVAL: Duration = Duration::from_micros(500);

pub struct Pings {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Waits>>,
}

/// How long PINGs took, in milliseconds.
#[derive(Default)]
pub struct Waits {
    /// Those that were sent to a server that served its clients, in order.
    served: Vec<f64>,
    /// Those that were sent to a server that had yet to load its files.
    loading: Vec<f64>,
}

impl Pings {
    /// Begins to ping. A server that starts may refuse the connection for a while, and answers `-LOADING` until it
    /// has read its files, which is an answer.
    pub fn start(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || ping_until(&stopped, port));
        Self { stop, thread }
    }

    pub fn finish(self) -> Result<Waits> {
        self.stop.store(true, Ordering::Relaxed);
        let waits = self
            .thread
            .join()
            .ok()
            .context("the PING thread panicked")??;
        if waits.served.is_empty() {
            return Err(crate::invalid::Invalid::new("no PING was answered"));
        }
        Ok(waits)
    }
}

impl Waits {
    pub fn longest_ms(&self) -> f64 {
        largest(&self.served)
    }

    /// The longest while the server was loading, or of all if it had loaded its files before the first answer.
    pub fn longest_loading_ms(&self) -> f64 {
        if self.loading.is_empty() {
            return self.longest_ms();
        }
        largest(&self.loading)
    }

    pub fn percentile_of_sent_ms(&self, percent: f64) -> f64 {
        percentile(&self.served, percent)
    }

    pub fn percentile_of_due_ms(&self, percent: f64) -> f64 {
        percentile(&with_those_due(&self.served), percent)
    }
}

/// Returns the longest PING, in milliseconds, while `event` is carried out, and for `after` more.
pub fn longest_during(
    port: u16,
    after: Duration,
    event: impl FnOnce() -> Result<()>,
) -> Result<f64> {
    let pings = Pings::start(port);
    sleep(Duration::from_millis(20));
    event()?;
    sleep(after);
    Ok(pings.finish()?.longest_ms())
}

fn ping_until(stop: &AtomicBool, port: u16) -> Result<Waits> {
    let mut waits = Waits::default();
    let mut client = loop {
        match Client::connect(port) {
            Ok(client) => break client,
            Err(error) if stop.load(Ordering::Relaxed) => return Err(error),
            Err(_) => sleep(Duration::from_millis(1)),
        }
    };
    // The first answer is not counted: a server that starts accepts a connection before its event loop runs.
    let mut is_first = true;
    let mut is_loading = false;
    while is_first || !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let was_loading = is_loading;
        client.call(&[b"PING"], |reply| {
            is_loading = matches!(reply, Frame::Error(text) if text.starts_with(b"LOADING"));
            let is_pong = matches!(reply, Frame::Simple(text) if *text == b"PONG");
            expect(is_pong || is_loading, "PONG", reply)
        })?;
        let wait = begin.elapsed();
        let kept = match was_loading || is_loading {
            true => &mut waits.loading,
            false => &mut waits.served,
        };
        if !is_first {
            kept.push(wait.as_secs_f64() * 1e3);
        }
        is_first = false;
        sleep(INTERVAL.saturating_sub(wait));
    }
    Ok(waits)
}

/// The waits, and those of the PINGs that each of them kept from being sent.
fn with_those_due(waits: &[f64]) -> Vec<f64> {
    let interval = INTERVAL.as_secs_f64() * 1e3;
    let mut all = Vec::with_capacity(waits.len());
    for &wait in waits {
        let mut left = wait;
        all.push(wait);
        while left > interval {
            left -= interval;
            all.push(left);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_that_were_due_are_counted() {
        assert_eq!(with_those_due(&[0.25, 2.0]), [0.25, 2.0, 1.5, 1.0, 0.5]);
    }
}
