//! One connection of the driver, and the requests that were sent on it and are not answered yet.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::doubt::Doubt;
use super::known_hold::SentRequest;
use super::step::FuzzRequest;
use crate::support::*;

/// A request, and the ledger's record of it.
pub struct Part {
    /// The number of its log line.
    pub line: u64,
    pub request: FuzzRequest,
    pub entry: SentRequest,
}

/// A reply that has yet to come.
#[allow(clippy::large_enum_variant, reason = "a connection has one or a few")]
pub enum Pending {
    Request(Part),
    /// The reply to a request after MULTI: QUEUED or an error.
    Queued {
        request: FuzzRequest,
        sent: Instant,
    },
    /// The reply to EXEC or to a script, which has the replies to all these requests.
    All {
        parts: Vec<Part>,
        sent: Instant,
    },
}

impl Pending {
    /// How long the request may wait in a queue: `None` if it cannot wait, `Some(None)` without limit.
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
    /// The server's client id of this connection.
    pub id: u64,
    /// A number that no other connection of the run has.
    pub serial: u64,
    pub database: usize,
    pub resp3: bool,
    /// It has a subscription, so some servers do not let it wait.
    pub subscribed: bool,
    pub pending: VecDeque<Pending>,
    /// The requests since MULTI, if a transaction is open.
    pub transaction: Option<Vec<Part>>,
    /// Since when the first pending reply is due: when its request was sent, or the reply before it was read.
    pub first_since: Instant,
    /// When the driver last saw that no reply had arrived.
    pub silent_since: Instant,
    /// When a CLIENT UNBLOCK for this connection may have taken effect.
    pub unblocks: Doubt,
    /// Whether the server has a reason to close it.
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

    /// Returns whether the first unanswered request may be waiting in a queue.
    pub fn is_waiting(&self) -> bool {
        self.pending
            .front()
            .is_some_and(|first| first.waits().is_some())
    }

    /// All unanswered requests, also those of an open transaction.
    pub fn unanswered(&self) -> impl Iterator<Item = &Part> {
        let pending = self.pending.iter().flat_map(Pending::parts);
        pending.chain(self.transaction.iter().flatten())
    }
}
