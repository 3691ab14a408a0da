//! redis-semaphore-go (GettEngineering/redis-semaphore-go, `semaphore/`): tokens in a list, which BLPOP hands out.
//!
//! - Acquire: `SET name v EX expiration NX`. Where that sets, the semaphore is made: `SET version`, and in MULTI: DEL
//!   of the locked resources and of the available ones, RPUSH of a token for each permit. Otherwise expired holds are
//!   released under a second lock: `SET release_expired v EX 5 NX`; if it sets, `HGETALL locked`, a release of those
//!   that are too old by the worker's clock, and `DEL release_expired`. Then `BLPOP available timeout`, `HSET locked
//!   token:time time`, and PEXPIRE of the four keys in MULTI. Where BLPOP times out, the caller asks again.
//! - Release: `HEXISTS locked token:time`, and in MULTI: HDEL, RPUSH (of the number 0: the original pushes loop
//!   indices), PEXPIRE of the four keys.
//!
//! Expiration is a minute, the timeout of BLPOP 30 s, but no more than the expiration.

use std::time::Instant;

use super::{Algorithm, Terms, Tokens, executed, is_one, is_set, ok, transaction, unix_time};
use crate::client::{Client, wrong};
use crate::invalid::Result;
use dsync_testkit::resp::Frame;

const NAME: &[u8] = b"semaphore:shared";
const AVAILABLE: &[u8] = b"semaphore:shared:available";
const LOCKED: &[u8] = b"semaphore:shared:locked";
const VERSION: &[u8] = b"semaphore:shared:version";
const RELEASE_EXPIRED: &[u8] = b"semaphore:shared:release_expired";

struct SemaphoreGo {
    client: Client,
    tokens: Tokens,
    permits: usize,
    expiration_ms: u64,
    /// The field that stands for the hold: the token and the time.
    resource: Vec<u8>,
}

pub fn make(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    Ok(Box::new(SemaphoreGo {
        client: terms.client()?,
        tokens: terms.tokens(),
        permits: terms.permits.unwrap_or(1),
        expiration_ms: terms.lease_ms.unwrap_or(60_000),
        resource: Vec::new(),
    }))
}

impl SemaphoreGo {
    fn prepare(&mut self) -> Result<()> {
        let seconds = (self.expiration_ms / 1000).to_string();
        let words = [b"SET", NAME, b"v", b"EX", seconds.as_bytes(), b"NX"];
        if !self.client.call(&words, is_set)? {
            return self.release_expired();
        }
        let words = [b"SET", VERSION, b"1.0", b"EX", seconds.as_bytes()];
        self.client.call(&words, ok)?;
        let tokens: Vec<[u8; 36]> = (0..self.permits).map(|_| self.tokens.draw()).collect();
        let mut push: Vec<&[u8]> = vec![b"RPUSH", AVAILABLE];
        push.extend(tokens.iter().map(|token| &token[..]));
        let commands: [&[&[u8]]; 3] = [&[b"DEL", LOCKED], &[b"DEL", AVAILABLE], &push];
        transaction(&mut self.client, &commands, executed(3))
    }

    fn release_expired(&mut self) -> Result<()> {
        let words = [b"SET", RELEASE_EXPIRED, b"v", b"EX", b"5", b"NX"];
        if !self.client.call(&words, is_set)? {
            return Ok(());
        }
        let holds = self.client.call(&[b"HGETALL", LOCKED], holds)?;
        let now_ns = unix_time()?.as_nanos();
        let lease_ns = u128::from(self.expiration_ms) * 1_000_000;
        let expired: Vec<Vec<u8>> = holds
            .into_iter()
            .filter(|(_, since_ns)| since_ns + lease_ns <= now_ns)
            .map(|(resource, _)| resource)
            .collect();
        if !expired.is_empty() {
            self.unlock(&expired)?;
        }
        self.client.call(&[b"DEL", RELEASE_EXPIRED], is_one)?;
        Ok(())
    }

    /// Gives back a token for each of the resources.
    fn unlock(&mut self, resources: &[Vec<u8>]) -> Result<()> {
        let indices: Vec<String> = (0..resources.len()).map(|at| at.to_string()).collect();
        let mut delete: Vec<&[u8]> = vec![b"HDEL", LOCKED];
        delete.extend(resources.iter().map(Vec::as_slice));
        let mut push: Vec<&[u8]> = vec![b"RPUSH", AVAILABLE];
        push.extend(indices.iter().map(String::as_bytes));
        self.with_expiration(&[&delete, &push])
    }

    /// The commands and PEXPIRE of the four keys, in MULTI.
    fn with_expiration(&mut self, commands: &[&[&[u8]]]) -> Result<()> {
        let (once, twice) = (self.expiration_ms, self.expiration_ms * 2);
        let (once, twice) = (once.to_string(), twice.to_string());
        let expire: [[&[u8]; 3]; 4] = [
            [b"PEXPIRE", NAME, once.as_bytes()],
            [b"PEXPIRE", AVAILABLE, once.as_bytes()],
            [b"PEXPIRE", LOCKED, twice.as_bytes()],
            [b"PEXPIRE", VERSION, once.as_bytes()],
        ];
        let expire = expire.iter().map(|words| &words[..]);
        let all: Vec<_> = commands.iter().copied().chain(expire).collect();
        transaction(&mut self.client, &all, executed(all.len()))
    }
}

impl Algorithm for SemaphoreGo {
    fn acquire(&mut self, until: Instant) -> Result<bool> {
        let timeout_s = (self.expiration_ms / 1000).min(30).to_string();
        loop {
            self.prepare()?;
            self.client
                .send(&[b"BLPOP", AVAILABLE, timeout_s.as_bytes()])?;
            match self.client.receive_before(until, popped)? {
                None => return Ok(false),
                Some(Some(token)) => {
                    let now_ns = unix_time()?.as_nanos().to_string();
                    self.resource = [&token, &b":"[..], now_ns.as_bytes()].concat();
                    let words = [b"HSET", LOCKED, &self.resource, now_ns.as_bytes()];
                    self.client.call(&words, is_one)?;
                    self.with_expiration(&[])?;
                    return Ok(true);
                }
                // It timed out.
                Some(None) => {}
            }
        }
    }

    fn release(&mut self) -> Result<()> {
        let words = [b"HEXISTS", LOCKED, &self.resource];
        if self.client.call(&words, is_one)? {
            let resource = std::mem::take(&mut self.resource);
            self.unlock(&[resource])?;
        }
        Ok(())
    }
}

fn popped(reply: &Frame<'_>) -> Result<Option<Vec<u8>>> {
    match reply {
        Frame::Nil => Ok(None),
        Frame::Array(items) => match items.as_slice() {
            [Frame::Bulk(_), Frame::Bulk(token)] => Ok(Some(token.to_vec())),
            _ => Err(wrong("a list's name and element", reply)),
        },
        _ => Err(wrong("a list's name and element", reply)),
    }
}

/// The fields of the hash, and since when each is held.
fn holds(reply: &Frame<'_>) -> Result<Vec<(Vec<u8>, u128)>> {
    let items = reply.array().ok_or_else(|| wrong("a hash", reply))?;
    items
        .chunks(2)
        .map(|pair| match pair {
            [Frame::Bulk(resource), Frame::Bulk(since_ns)] => {
                let since_ns = std::str::from_utf8(since_ns).ok();
                let since_ns = since_ns.and_then(|text| text.parse().ok());
                let since_ns = since_ns.ok_or_else(|| wrong("times", reply))?;
                Ok((resource.to_vec(), since_ns))
            }
            _ => Err(wrong("fields and times", reply)),
        })
        .collect()
}
