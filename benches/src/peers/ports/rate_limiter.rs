//! redis-rate-limiter (joshrendek/redis-rate-limiter, `limiter.go`): a set of those at work, behind a guard.
//!
//! - Acquire: `SETNX guard t`, and once `EXPIRE guard 10`; where the guard is taken, SETNX again every 100 ms. With the
//!   guard: `SCARD set` without pause until there is room; `SET set:id id EX timeout`, `SADD set id`, `DEL guard`. Then
//!   `SMEMBERS set`, an EXISTS for each member, and SREM of those whose key has expired.
//! - Release: `DEL set:id`, `SREM set id`.
//!
//! The 100 ms (`LockWaitDuration`) and the timeout of 5 s are those of the original's README. Dead holders are removed
//! by the one who comes in next, so nobody comes in any more once all who are in have died.

use std::time::{Duration, Instant};

use super::{Algorithm, KEY, Terms, Tokens, is_one, ok, pause};
use crate::client::{Client, wrong};
use crate::invalid::Result;
use dsync_testkit::resp::Frame;

const GUARD: &[u8] = b"shared:lock";
const DELAY: Duration = Duration::from_millis(100);

struct RateLimiter {
    client: Client,
    tokens: Tokens,
    id: [u8; 36],
    limit: i64,
    timeout_s: String,
}

pub fn make(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    Ok(Box::new(RateLimiter {
        client: terms.client()?,
        tokens: terms.tokens(),
        id: [0; 36],
        limit: terms.permits.unwrap_or(1) as i64,
        timeout_s: (terms.lease_ms.unwrap_or(5_000) / 1000).to_string(),
    }))
}

impl RateLimiter {
    fn try_guard(&mut self) -> Result<bool> {
        self.client.call(&[b"SETNX", GUARD, b"t"], is_one)
    }

    /// Returns false where there is no room until `until`.
    fn await_room(&mut self, until: Instant) -> Result<bool> {
        while self.client.call(&[b"SCARD", KEY], count)? >= self.limit {
            if Instant::now() >= until {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes members whose key has expired.
    fn clean(&mut self) -> Result<()> {
        let members = self.client.call(&[b"SMEMBERS", KEY], members)?;
        for id in members {
            if !self.client.call(&[b"EXISTS", &key_of(&id)], is_one)? {
                self.client.call(&[b"SREM", KEY, &id], is_one)?;
            }
        }
        Ok(())
    }
}

impl Algorithm for RateLimiter {
    fn acquire(&mut self, until: Instant) -> Result<bool> {
        let mut has_guard = self.try_guard()?;
        self.client.call(&[b"EXPIRE", GUARD, b"10"], is_one)?;
        while !has_guard {
            if !pause(DELAY, until) {
                return Ok(false);
            }
            has_guard = self.try_guard()?;
        }
        if !self.await_room(until)? {
            return Ok(false);
        }
        self.id = self.tokens.draw();
        let key = key_of(&self.id);
        let words = [b"SET", &key[..], &self.id, b"EX", self.timeout_s.as_bytes()];
        self.client.call(&words, ok)?;
        self.client.call(&[b"SADD", KEY, &self.id], is_one)?;
        self.client.call(&[b"DEL", GUARD], is_one)?;
        self.clean()?;
        Ok(true)
    }

    fn release(&mut self) -> Result<()> {
        self.client.call(&[b"DEL", &key_of(&self.id)], is_one)?;
        self.client.call(&[b"SREM", KEY, &self.id], is_one)?;
        Ok(())
    }
}

fn key_of(id: &[u8]) -> Vec<u8> {
    [KEY, b":", id].concat()
}

fn count(reply: &Frame<'_>) -> Result<i64> {
    reply.integer().ok_or_else(|| wrong("a count", reply))
}

fn members(reply: &Frame<'_>) -> Result<Vec<Vec<u8>>> {
    let items = reply.array().ok_or_else(|| wrong("a set", reply))?;
    items
        .iter()
        .map(|item| match item {
            Frame::Bulk(id) => Ok(id.to_vec()),
            _ => Err(wrong("a set", reply)),
        })
        .collect()
}
