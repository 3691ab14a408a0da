//! A hold whose grant a client has read, a request, and the moments until which they are certain.

use std::time::{Duration, Instant};

use super::meaning::{Claim, Meaning};
use crate::support::Reply;

/// The server counts leases in whole milliseconds.
pub const ROUNDING: Duration = Duration::from_millis(5);

/// The lease of a request without EX and PX: the settings decide it, and they change during a run.
pub const UNKNOWN_LEASE_MS: u64 = 1;

pub const MAX_LEASE_MS: u64 = 86_400_000;

#[derive(Clone, Debug)]
pub struct KnownHold {
    pub claim: Claim,
    /// Set if it was asked for with INDEX.
    pub index: Option<i64>,
    pub token: String,
    pub fence: u64,
    /// When its grant was read.
    pub known: Instant,
    /// It has been at this key since this moment, or earlier.
    pub here_since: Instant,
    pub lane: Option<String>,
    pub lease_end: Instant,
    /// Until when its place stays taken after an early end, if it has a MINHOLD.
    pub rests_until: Option<Instant>,
    /// When a request with its token that could end it was first sent.
    pub ended_from: Option<Instant>,
    /// When anything else that could end it was first sent.
    pub doubted_from: Option<Instant>,
    /// Connections whose end may end it, because of EPHEMERAL.
    pub bound: Vec<u64>,
}

impl KnownHold {
    pub fn certain_until(&self) -> Instant {
        let until = self.but_for_its_token();
        self.ended_from.map_or(until, |ended| ended.min(until))
    }

    pub fn but_for_its_token(&self) -> Instant {
        let until = self.lease_end;
        self.doubted_from.map_or(until, |from| from.min(until))
    }

    /// Until when nobody else can have its place. A rest outlives the lease, the token and the connection, and no
    /// revocation or removal, of which `doubted_from` may tell.
    pub fn taken_until(&self) -> Instant {
        let rests_until = self.rests_until.map(|until| {
            let ended = self.doubted_from;
            ended.map_or(until, |ended| ended.min(until))
        });
        rests_until.map_or(self.certain_until(), |rest| rest.max(self.certain_until()))
    }

    pub fn doubt(&mut self, from: Instant) {
        let earlier = self.doubted_from.map_or(from, |before| before.min(from));
        self.doubted_from = Some(earlier);
    }
}

/// A request as the ledger knows it.
#[derive(Clone, Debug)]
pub struct SentRequest {
    pub meaning: Meaning,
    pub database: usize,
    /// The serial number of its connection, which no other connection of the run has.
    pub connection: u64,
    pub sent: Instant,
    /// It cannot wait, whatever its BLOCK, because it is in a transaction or a script.
    pub is_try: bool,
    pub id: u64,
}

/// A key by its database and name.
pub type KeyId = (usize, String);

/// The earliest end of a lease that starts at `from` or later.
pub fn lease_end(from: Instant, lease_ms: Option<u64>) -> Instant {
    let lease_ms = lease_ms.unwrap_or(UNKNOWN_LEASE_MS).min(MAX_LEASE_MS);
    let lease = Duration::from_millis(lease_ms);
    let end = from + lease;
    end.checked_sub(ROUNDING).unwrap_or(end)
}

/// The token and the fence of a grant or a run.
pub fn granted(reply: &Reply) -> Option<(String, u64)> {
    let Reply::Array(items) = reply else {
        return None;
    };
    let (token, fence) = match items.as_slice() {
        [token @ Reply::Bulk(_), Reply::Int(fence)]
        | [token @ Reply::Bulk(_), Reply::Int(fence), Reply::Int(_)] => (token, fence),
        [
            run,
            token @ Reply::Bulk(_),
            Reply::Int(fence),
            Reply::Int(_),
        ] if *run == "RUN" => (token, fence),
        _ => return None,
    };
    let token = String::from_utf8_lossy(token.as_bytes()).into_owned();
    Some((token, fence.unsigned_abs()))
}

/// The index of a hold that was asked for with INDEX.
pub fn index(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Array(items) => match items.as_slice() {
            [Reply::Bulk(_), Reply::Int(_), Reply::Int(index)] => Some(*index),
            _ => None,
        },
        _ => None,
    }
}

/// The keys whose values a request of another kind changes: those of DEL, RENAME and the like.
pub fn slots(entry: &SentRequest) -> Vec<KeyId> {
    match &entry.meaning {
        Meaning::Remove { keys, .. } => {
            let slots = keys.iter().map(|key| (entry.database, key.clone()));
            slots.collect()
        }
        Meaning::Move { from, to, database } => vec![
            (entry.database, from.clone()),
            (database.unwrap_or(entry.database), to.clone()),
        ],
        _ => Vec::new(),
    }
}

pub fn is_everything(meaning: &Meaning) -> bool {
    matches!(meaning, Meaning::Flush | Meaning::Swap)
}
