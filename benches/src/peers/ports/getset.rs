//! SETNX and GETSET: the lock of the time before SET had NX, from Redis' own documentation of SETNX ("handling
//! deadlocks"), as articles repeat it.
//!
//! - Acquire: `SETNX key stamp`, where the stamp is the second at which the hold ends by the worker's clock: now, the
//!   lease, and one more. Where the key exists: `GET key`; if its stamp has passed, `GETSET key stamp`, and the worker
//!   has the lock if the stamp that it replaced had passed too. Otherwise sleep a second, as articles do, and begin
//!   again.
//! - Release: `DEL key`, unless the worker's own stamp has passed.
//!
//! The lease is 10 s, for the source names none.

use std::time::{Duration, Instant};

use super::{Algorithm, KEY, Terms, is_one, pause, unix_time, value};
use crate::client::Client;
use crate::invalid::{Context, Result};

const DELAY: Duration = Duration::from_secs(1);

struct GetSet {
    client: Client,
    lease_s: u64,
    /// When the worker's hold ends.
    stamp_s: u64,
}

pub fn make(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    Ok(Box::new(GetSet {
        client: terms.client()?,
        lease_s: terms.lease_ms.unwrap_or(10_000) / 1000,
        stamp_s: 0,
    }))
}

impl GetSet {
    /// Returns whether the worker has the lock now, by SETNX or by taking over what has ended.
    fn try_once(&mut self) -> Result<bool> {
        let now_s = unix_time()?.as_secs();
        self.stamp_s = now_s + self.lease_s + 1;
        let stamp = self.stamp_s.to_string();
        if self
            .client
            .call(&[b"SETNX", KEY, stamp.as_bytes()], is_one)?
        {
            return Ok(true);
        }
        let has_ended = |value: Option<Vec<u8>>| -> Result<bool> {
            match value {
                Some(stamp) => Ok(read_stamp(&stamp)? <= now_s),
                // Released since SETNX.
                None => Ok(true),
            }
        };
        if !has_ended(self.client.call(&[b"GET", KEY], value)?)? {
            return Ok(false);
        }
        has_ended(
            self.client
                .call(&[b"GETSET", KEY, stamp.as_bytes()], value)?,
        )
    }
}

impl Algorithm for GetSet {
    fn acquire(&mut self, until: Instant) -> Result<bool> {
        while !self.try_once()? {
            if !pause(DELAY, until) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn release(&mut self) -> Result<()> {
        if unix_time()?.as_secs() < self.stamp_s {
            self.client.call(&[b"DEL", KEY], is_one)?;
        }
        Ok(())
    }
}

fn read_stamp(stamp: &[u8]) -> Result<u64> {
    std::str::from_utf8(stamp)
        .ok()
        .and_then(|text| text.parse().ok())
        .context("the lock's value is no stamp")
}
