//! dsync: a queue in the server.
//!
//! - Acquire: `DLOCK.ACQUIRE key PX lease BLOCK 0 TOKEN token`; for permits `DSEM.ACQUIRE` with `LIMIT`. The server
//!   answers when it is this worker's turn.
//! - Release: `DLOCK.RELEASE key token`, or `DSEM.RELEASE`.
//! - With EPHEMERAL the hold also ends when the worker's connection closes.
//!
//! The lease is the default of the module, 30 seconds.

use std::time::Instant;

use super::{Algorithm, KEY, Terms, Tokens};
use crate::client::{Client, expect, wrong};
use crate::invalid::Result;
use dsync_testkit::resp::Frame;

struct Dsync {
    client: Client,
    tokens: Tokens,
    token: [u8; 36],
    acquire: &'static [u8],
    release: &'static [u8],
    /// What follows the token.
    options: Vec<Vec<u8>>,
}

pub fn leased(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    make(terms, false)
}

pub fn ephemeral(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    make(terms, true)
}

fn make(terms: &Terms, is_ephemeral: bool) -> Result<Box<dyn Algorithm>> {
    let lease_ms = terms.lease_ms.unwrap_or(30_000).to_string();
    let mut options = vec![b"PX".to_vec(), lease_ms.into_bytes()];
    if let Some(permits) = terms.permits {
        options.extend([b"LIMIT".to_vec(), permits.to_string().into_bytes()]);
    }
    if is_ephemeral {
        options.push(b"EPHEMERAL".to_vec());
    }
    let is_lock = terms.permits.is_none();
    Ok(Box::new(Dsync {
        client: terms.client()?,
        tokens: terms.tokens(),
        token: [0; 36],
        acquire: if is_lock {
            b"DLOCK.ACQUIRE"
        } else {
            b"DSEM.ACQUIRE"
        },
        release: if is_lock {
            b"DLOCK.RELEASE"
        } else {
            b"DSEM.RELEASE"
        },
        options,
    }))
}

impl Algorithm for Dsync {
    fn acquire(&mut self, until: Instant) -> Result<bool> {
        self.token = self.tokens.draw();
        let mut words = vec![self.acquire, KEY, b"BLOCK", b"0", b"TOKEN", &self.token];
        words.extend(self.options.iter().map(Vec::as_slice));
        self.client.send(&words)?;
        let granted = self
            .client
            .receive_before(until, |reply| match reply.array() {
                Some([Frame::Bulk(token), Frame::Int(1..)]) if **token == self.token => Ok(()),
                _ => Err(wrong("a grant", reply)),
            })?;
        Ok(granted.is_some())
    }

    fn release(&mut self) -> Result<()> {
        let words = [self.release, KEY, &self.token];
        self.client
            .call(&words, |reply| expect(*reply == Frame::Int(1), "1", reply))
    }
}
