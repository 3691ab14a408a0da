//! SET with NX, and a retry after a delay: what most lock libraries do.
//!
//! - Acquire: `SET key token NX PX lease`; where another holds, wait and try again.
//! - Release: delete the key if it still has the token. On Redis that is a script of GET and DEL, on Valkey 9 and later
//!   the command `DELIFEQ key token`.
//!
//! | | delay | source |
//! |---|---|---|
//! | the article | 100 ms, as redis-py has it, for the article's lock does not wait | "Distributed Locks using Golang and Redis", Kyle Banks, 2016, with redigo |
//! | redsync | 50 to 250 ms at random; the release script is also sent after each try that failed | go-redsync/redsync v4, `redsync.go`, `mutex.go` |
//! | DELIFEQ | 100 ms | Valkey's documentation of SET and DELIFEQ |
//!
//! redsync gives up after 32 tries, and its caller asks again; here it goes on. Its lease is 8 s, the others' 30 s.

use std::time::{Duration, Instant};

use super::{Algorithm, KEY, Script, Terms, Tokens, is_one, is_set, pause};
use crate::client::Client;
use crate::invalid::Result;
use crate::words::scramble;

const COMPARE_AND_DELETE: &str = "
    if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    return redis.call('DEL', KEYS[1])";

enum Release {
    Script(Script),
    Delifeq,
}

struct SetNx {
    client: Client,
    tokens: Tokens,
    token: [u8; 36],
    lease_ms: String,
    release: Release,
    /// Whether a try that failed is followed by a release.
    releases_after_failure: bool,
    shortest_delay_ms: u64,
    longest_delay_ms: u64,
    /// How many random numbers were drawn, from the worker's number on.
    drawn: u64,
}

pub fn article(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    let mut client = terms.client()?;
    let script = Script::load(&mut client, COMPARE_AND_DELETE)?;
    Ok(Box::new(SetNx {
        release: Release::Script(script),
        ..native(terms, client)
    }))
}

pub fn redsync(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    let mut client = terms.client()?;
    let script = Script::load(&mut client, COMPARE_AND_DELETE)?;
    Ok(Box::new(SetNx {
        lease_ms: terms.lease_ms.unwrap_or(8_000).to_string(),
        release: Release::Script(script),
        releases_after_failure: true,
        shortest_delay_ms: 50,
        longest_delay_ms: 250,
        ..native(terms, client)
    }))
}

pub fn delifeq(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    Ok(Box::new(native(terms, terms.client()?)))
}

fn native(terms: &Terms, client: Client) -> SetNx {
    SetNx {
        client,
        tokens: terms.tokens(),
        token: [0; 36],
        lease_ms: terms.lease_ms.unwrap_or(30_000).to_string(),
        release: Release::Delifeq,
        releases_after_failure: false,
        shortest_delay_ms: 100,
        longest_delay_ms: 100,
        drawn: terms.worker << 32,
    }
}

impl SetNx {
    fn delay(&mut self) -> Duration {
        self.drawn += 1;
        let choices = self.longest_delay_ms - self.shortest_delay_ms + 1;
        Duration::from_millis(self.shortest_delay_ms + scramble(self.drawn) % choices)
    }

    /// Returns whether the key had the token.
    fn compare_and_delete(&mut self) -> Result<bool> {
        match &self.release {
            Release::Script(script) => {
                script.call(&mut self.client, &[KEY], &[&self.token], is_one)
            }
            Release::Delifeq => self.client.call(&[b"DELIFEQ", KEY, &self.token], is_one),
        }
    }
}

impl Algorithm for SetNx {
    fn acquire(&mut self, until: Instant) -> Result<bool> {
        self.token = self.tokens.draw();
        let lease = self.lease_ms.clone();
        loop {
            let words = [b"SET", KEY, &self.token, b"NX", b"PX", lease.as_bytes()];
            if self.client.call(&words, is_set)? {
                return Ok(true);
            }
            if self.releases_after_failure {
                self.compare_and_delete()?;
            }
            let delay = self.delay();
            if !pause(delay, until) {
                return Ok(false);
            }
        }
    }

    fn release(&mut self) -> Result<()> {
        self.compare_and_delete()?;
        Ok(())
    }
}
