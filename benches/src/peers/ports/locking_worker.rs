//! redis-locking-worker (jcohen/redis-locking-worker, npm, 2012): work that is done once, with a second worker that
//! takes over where the first fails.
//!
//! - Acquire: `SETNX key 1`. Where the key exists, look again after `lockTimeout`: `WATCH key`, `MULTI`, `GET key`,
//!   `EXEC`. A value that has not changed since the last look means that the holder failed: `WATCH key`, `GET key`,
//!   `MULTI`, `SET key count+1`, `EXEC`, and the worker is in if EXEC was carried out, unless the count exceeds five.
//!   DONE is deleted, and the worker's request is over; so it is where the key is gone. Here the worker then asks anew.
//! - Release: `DEL key`, which the original sends after a last attempt. After others it sets DONE, which would keep
//!   everybody out until a refused worker looks; a lock that is used again and again is served better by DEL.
//!
//! `lockTimeout` is 5 s by default. That is longer than a contest, so one worker has the lock all the time: the
//! algorithm is made for jobs that take long, each done once.

use std::time::{Duration, Instant};

use super::{Algorithm, KEY, Terms, executed, is_one, ok, pause, transaction, value};
use crate::client::{Client, wrong};
use crate::invalid::Result;
use dsync_testkit::resp::{Frame, write_request};

const MAX_ATTEMPTS: u64 = 5;

struct LockingWorker {
    client: Client,
    lock_timeout: Duration,
}

/// What a look at the key tells a refused worker.
enum Look {
    /// It has taken over.
    TookOver,
    /// Somebody has finished: the request is over.
    Over,
    /// Look again; this is the value seen.
    Held(Vec<u8>),
}

pub fn make(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    Ok(Box::new(LockingWorker {
        client: terms.client()?,
        lock_timeout: Duration::from_millis(terms.lease_ms.unwrap_or(5_000)),
    }))
}

impl LockingWorker {
    fn look(&mut self, last: &[u8]) -> Result<Look> {
        write_request(&mut self.client.out, &[b"WATCH", KEY]);
        write_request(&mut self.client.out, &[b"MULTI"]);
        write_request(&mut self.client.out, &[b"GET", KEY]);
        self.client.send(&[b"EXEC"])?;
        self.client.receive(ok)?;
        self.client.receive(ok)?;
        self.client.receive(|_| Ok(()))?;
        let seen = self.client.receive(|reply| match reply {
            Frame::Nil => Ok(None),
            Frame::Array(items) if items.len() == 1 => value(&items[0]).map(Some),
            _ => Err(wrong("the value, or nil", reply)),
        })?;
        match seen {
            // The value changed between WATCH and EXEC.
            None => self.held(),
            Some(None) => Ok(Look::Over),
            Some(Some(value)) if value == b"DONE" => {
                self.client.call(&[b"DEL", KEY], is_one)?;
                Ok(Look::Over)
            }
            Some(Some(value)) if value == last => self.take_over(),
            Some(Some(value)) => Ok(Look::Held(value)),
        }
    }

    fn take_over(&mut self) -> Result<Look> {
        self.client.call(&[b"WATCH", KEY], ok)?;
        let Some(count) = self.client.call(&[b"GET", KEY], value)? else {
            return Ok(Look::Over);
        };
        let attempt = String::from_utf8_lossy(&count).parse::<u64>().unwrap_or(0) + 1;
        if attempt > MAX_ATTEMPTS {
            self.client.call(&[b"UNWATCH"], ok)?;
            let seconds = (self.lock_timeout.as_secs() * 2).to_string();
            self.client
                .call(&[b"EXPIRE", KEY, seconds.as_bytes()], is_one)?;
            return Ok(Look::Held(count));
        }
        let attempt = attempt.to_string();
        let set: &[&[u8]] = &[b"SET", KEY, attempt.as_bytes()];
        let is_executed = transaction(&mut self.client, &[set], |reply| match reply {
            Frame::Nil => Ok(false),
            _ => executed(1)(reply).map(|()| true),
        })?;
        if is_executed {
            Ok(Look::TookOver)
        } else {
            self.held()
        }
    }

    fn held(&mut self) -> Result<Look> {
        let value = self.client.call(&[b"GET", KEY], value)?;
        Ok(Look::Held(value.unwrap_or_default()))
    }
}

impl Algorithm for LockingWorker {
    fn acquire(&mut self, until: Instant) -> Result<bool> {
        while !self.client.call(&[b"SETNX", KEY, b"1"], is_one)? {
            let mut last = b"1".to_vec();
            loop {
                if !pause(self.lock_timeout, until) {
                    return Ok(false);
                }
                match self.look(&last)? {
                    Look::TookOver => return Ok(true),
                    Look::Over => break,
                    Look::Held(value) => last = value,
                }
            }
        }
        Ok(true)
    }

    fn release(&mut self) -> Result<()> {
        self.client.call(&[b"DEL", KEY], is_one)?;
        Ok(())
    }
}
