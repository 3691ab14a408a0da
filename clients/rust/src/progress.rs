//! What a request learns while it waits: its place, and who holds the key.

use std::collections::HashMap;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::error::Holder;
use crate::request::read;

/// What [`on_progress`](crate::Lock::on_progress) is told about a wait: when it begins, and then every two seconds.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// The place in the queue: 1 is next in line. Exact up to 100; 100 means that or more.
    pub place: u64,
    /// How long the request has waited.
    pub waited: Duration,
    /// What INFO says about the key; empty when the ACL does not allow it.
    pub key: KeyInfo,
}

/// A part of INFO: who holds a key, and how many wait for it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct KeyInfo {
    /// The state as INFO names it, `exclusive`, `full` or `running` for example; empty when it is not known.
    pub state: String,
    /// The first ten of those who hold the key.
    pub holders: Vec<Holder>,
    /// How many hold it.
    pub holder_count: u64,
    /// How many wait for it, this request among them.
    pub waiter_count: u64,
    /// How much longer an operator's PAUSE lasts; zero without one.
    pub paused: Duration,
    /// How much longer nobody begins the work after a failed attempt (`retry_delay`).
    pub delayed: Duration,
    /// The limit in force, of semaphores and groups that have one.
    pub limit: Option<u64>,
    /// How many permits are free, of semaphores that have a limit.
    pub available: Option<u64>,
}

impl KeyInfo {
    /// Reads the reply to INFO. What is missing stays empty.
    pub(crate) fn read(reply: &Value) -> KeyInfo {
        let fields = Fields::of(reply);
        let holders: Vec<Value> = fields.read("first-holders");
        KeyInfo {
            state: fields.read("state"),
            holders: holders.iter().map(holder).collect(),
            holder_count: fields.read("holders"),
            waiter_count: fields.read("waiters"),
            paused: fields.time("paused-ms"),
            delayed: fields.time("delay-left-ms"),
            limit: fields.read("limit"),
            available: fields.read("available"),
        }
    }
}

fn holder(row: &Value) -> Holder {
    let fields = Fields::of(row);
    let is_resting = fields.0.contains_key("resting-ms");
    let owner: Option<Vec<u8>> = fields.read("owner");
    Holder {
        fence: fields.read("fence"),
        // An owner is any bytes; people are shown what is text of it.
        owner: owner.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        lease_left: fields.time("lease-left-ms"),
        held: fields.time("held-ms"),
        resting: is_resting.then(|| fields.time("resting-ms")),
    }
}

/// Values by their names: of a map or, in RESP2, of an array of names and values.
struct Fields(HashMap<String, Value>);

impl Fields {
    fn of(map: &Value) -> Fields {
        Fields(read(map).unwrap_or_default())
    }

    fn read<T: FromRedisValue + Default>(&self, name: &str) -> T {
        let value = self.0.get(name).and_then(|value| read(value).ok());
        value.unwrap_or_default()
    }

    fn time(&self, name: &str) -> Duration {
        Duration::from_millis(self.read(name))
    }
}
