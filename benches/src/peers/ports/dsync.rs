//! dsync: a queue in the server.
//!
//! - Acquire: `DLOCK.ACQUIRE key PX lease BLOCK 0 TOKEN token`; for permits `DSEM.ACQUIRE` with `LIMIT`. The server
//!   answers when it is this worker's turn.
//! - Release: `DLOCK.RELEASE key token`, or `DSEM.RELEASE`.
//! - With EPHEMERAL the hold also ends when the worker's connection closes.
//! - With LANE the tenants share, and with MINHOLD the semaphore is a rate.
//! - A cap for each tenant is a second semaphore.
//!
//! The lease is the default of the module, 30 seconds.

use std::time::Instant;

use super::{Algorithm, KEY, SPAN_MS, Terms, Tokens};
use crate::client::{Client, expect, wrong};
use crate::invalid::Result;
use dsync_testkit::resp::Frame;

struct Dsync {
    client: Client,
    tokens: Tokens,
    token: [u8; 36],
    acquire: &'static [u8],
    release: &'static [u8],
    key: Vec<u8>,
    /// What follows the token.
    options: Vec<Vec<u8>>,
}

pub fn leased(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    Ok(Box::new(connect(terms, &[])?))
}

pub fn ephemeral(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    Ok(Box::new(connect(terms, &[b"EPHEMERAL"])?))
}

/// Each tenant stands in a lane of its own.
pub fn in_lanes(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    let lane = terms.tenant.to_string();
    Ok(Box::new(connect(terms, &[b"LANE", lane.as_bytes()])?))
}

/// The semaphore is a rate.
pub fn paced(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    let span = SPAN_MS.to_string();
    Ok(Box::new(connect(terms, &[b"MINHOLD", span.as_bytes()])?))
}

/// A worker holds at most half of the permits for its tenant: a permit of the tenant's first, then one of all.
pub fn capped(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    let half = terms.permits.map(|permits| permits.div_ceil(2));
    let of_tenant = Terms {
        permits: half,
        ..*terms
    };
    let mut of_tenant = connect(&of_tenant, &[])?;
    of_tenant.key = format!("tenant:{}", terms.tenant).into_bytes();
    let of_all = connect(terms, &[])?;
    Ok(Box::new(Capped { of_tenant, of_all }))
}

fn connect(terms: &Terms, options: &[&[u8]]) -> Result<Dsync> {
    let lease_ms = terms.lease_ms.unwrap_or(30_000).to_string();
    let mut all = vec![b"PX".to_vec(), lease_ms.into_bytes()];
    if let Some(permits) = terms.permits {
        all.extend([b"LIMIT".to_vec(), permits.to_string().into_bytes()]);
    }
    all.extend(options.iter().map(|word| word.to_vec()));
    let is_lock = terms.permits.is_none();
    Ok(Dsync {
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
        key: KEY.to_vec(),
        options: all,
    })
}

impl Algorithm for Dsync {
    fn acquire(&mut self, until: Instant) -> Result<bool> {
        self.token = self.tokens.draw();
        let mut words: Vec<&[u8]> = vec![self.acquire, &self.key, b"BLOCK", b"0", b"TOKEN"];
        words.push(&self.token);
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
        let words = [self.release, &self.key[..], &self.token];
        self.client
            .call(&words, |reply| expect(*reply == Frame::Int(1), "1", reply))
    }
}

struct Capped {
    of_tenant: Dsync,
    of_all: Dsync,
}

impl Algorithm for Capped {
    fn acquire(&mut self, until: Instant) -> Result<bool> {
        Ok(self.of_tenant.acquire(until)? && self.of_all.acquire(until)?)
    }

    fn release(&mut self) -> Result<()> {
        self.of_all.release()?;
        self.of_tenant.release()
    }
}
