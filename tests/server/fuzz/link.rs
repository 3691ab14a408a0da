//! One connection of the driver: what was sent on it and is not answered yet.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::doubt::Doubt;
use super::known_hold::SentRequest;
use super::step::FuzzRequest;
use crate::support::*;

/// A request and what the ledger knows of it.
pub struct Part {
    /// The line of the log.
    pub line: u64,
    pub request: FuzzRequest,
    pub entry: SentRequest,
}

/// What is to be answered next, and how.
pub enum Pending {
    Request(Part),
    /// A request of a transaction that has yet to be carried out: QUEUED, or why not.
    Queued {
        request: FuzzRequest,
        sent: Instant,
    },
    /// EXEC with the transaction's requests, or a script with those that it makes.
    All {
        parts: Vec<Part>,
        sent: Instant,
    },
}

impl Pending {
    /// Whether the server may take its time, and how much: `Some(None)` is without limit.
    pub fn waits(&self) -> Option<Option<Duration>> {
        match self {
            Pending::Request(part) => match part.entry.meaning.block_ms()? {
                0 => Some(None),
                ms => Some(Some(Duration::from_millis(ms))),
            },
            Pending::Queued { .. } | Pending::All { .. } => None,
        }
    }

    pub fn parts(&self) -> &[Part] {
        match self {
            Pending::Request(part) => std::slice::from_ref(part),
            Pending::All { parts, .. } => parts,
            Pending::Queued { .. } => &[],
        }
    }
}

pub struct ClientLink {
    pub client: Client,
    /// The server's number of this connection.
    pub id: u64,
    /// A number that no other connection ever has.
    pub serial: u64,
    pub database: usize,
    pub resp3: bool,
    /// It gets messages, so that some servers do not let it wait.
    pub subscribed: bool,
    pub pending: VecDeque<Pending>,
    /// The requests after MULTI.
    pub transaction: Option<Vec<Part>>,
    /// Since when the first of the pending is: when it was sent, or the one before it answered.
    pub first_since: Instant,
    /// When it was last seen that no reply was there.
    pub silent_since: Instant,
    /// CLIENT UNBLOCK is or was under way.
    pub unblocks: Doubt,
    /// The server has a reason to close it.
    pub may_close: bool,
}

impl ClientLink {
    #[track_caller]
    pub fn open(server: &Server, serial: u64) -> ClientLink {
        let mut client = server.connect();
        let id = client.id();
        client.set_nonblocking();
        let now = Instant::now();
        ClientLink {
            client,
            id,
            serial,
            database: 0,
            resp3: false,
            subscribed: false,
            pending: VecDeque::new(),
            transaction: None,
            first_since: now,
            silent_since: now,
            unblocks: Doubt::default(),
            may_close: false,
        }
    }

    pub fn push(&mut self, pending: Pending, now: Instant) {
        if self.pending.is_empty() {
            self.first_since = now;
            self.silent_since = now;
        }
        self.pending.push_back(pending);
    }

    /// Whether the first of the pending may be waiting.
    pub fn is_waiting(&self) -> bool {
        self.pending
            .front()
            .is_some_and(|first| first.waits().is_some())
    }

    /// Everything on its way whose outcome nobody will ever be told.
    pub fn unanswered(&self) -> impl Iterator<Item = &Part> {
        let pending = self.pending.iter().flat_map(Pending::parts);
        pending.chain(self.transaction.iter().flatten())
    }
}
