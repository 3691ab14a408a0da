//! What a request learns while it waits: its place, and who holds the key.

use std::time::Duration;

use redis::Value;

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
    /// Reads the reply to INFO, a map or, in RESP2, an array of names and values. What is missing stays empty.
    pub(crate) fn read(reply: &Value) -> KeyInfo {
        let mut info = KeyInfo::default();
        for (name, value) in fields(reply) {
            match name.as_str() {
                "state" => info.state = read(value).unwrap_or_default(),
                "holders" => info.holder_count = read(value).unwrap_or_default(),
                "waiters" => info.waiter_count = read(value).unwrap_or_default(),
                "paused-ms" => info.paused = duration(value),
                "delay-left-ms" => info.delayed = duration(value),
                "limit" => info.limit = read(value).unwrap_or_default(),
                "available" => info.available = read(value).unwrap_or_default(),
                "first-holders" => info.holders = holders(value),
                _ => {}
            }
        }
        info
    }
}

fn holders(value: &Value) -> Vec<Holder> {
    let Value::Array(rows) = value else {
        return Vec::new();
    };
    rows.iter().map(holder).collect()
}

fn holder(row: &Value) -> Holder {
    let mut holder = Holder {
        fence: 0,
        owner: None,
        lease_left: Duration::ZERO,
        held: Duration::ZERO,
        resting: None,
    };
    for (name, value) in fields(row) {
        match name.as_str() {
            "fence" => holder.fence = read(value).unwrap_or_default(),
            "owner" => holder.owner = owner(value),
            "lease-left-ms" => holder.lease_left = duration(value),
            "held-ms" => holder.held = duration(value),
            "resting-ms" => holder.resting = Some(duration(value)),
            _ => {}
        }
    }
    holder
}

/// An owner is any bytes; people are shown what is text of it.
fn owner(value: &Value) -> Option<String> {
    let bytes: Option<Vec<u8>> = read(value).unwrap_or_default();
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn duration(value: &Value) -> Duration {
    Duration::from_millis(read(value).unwrap_or_default())
}

fn fields(map: &Value) -> Vec<(String, &Value)> {
    let name = |value: &Value| read(value).unwrap_or_default();
    match map {
        Value::Map(pairs) => pairs
            .iter()
            .map(|(key, value)| (name(key), value))
            .collect(),
        Value::Array(items) => items
            .chunks_exact(2)
            .map(|pair| (name(&pair[0]), &pair[1]))
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn map(pairs: &[(&str, Value)]) -> Value {
        Value::Map(
            pairs
                .iter()
                .map(|(key, value)| (text(key), value.clone()))
                .collect(),
        )
    }

    fn flat(pairs: &[(&str, Value)]) -> Value {
        let items = pairs
            .iter()
            .flat_map(|(key, value)| [text(key), value.clone()]);
        Value::Array(items.collect())
    }

    #[test]
    fn info_is_read_in_both_protocols() {
        let row = [
            ("fence", Value::Int(7)),
            ("owner", text("web-1")),
            ("client", Value::Nil),
            ("lease-left-ms", Value::Int(1500)),
            ("held-ms", Value::Int(20)),
        ];
        let info = |row| {
            [
                ("state", text("exclusive")),
                ("holders", Value::Int(1)),
                ("waiters", Value::Int(2)),
                ("paused-ms", Value::Int(0)),
                ("first-holders", Value::Array(vec![row])),
            ]
        };
        let read = KeyInfo::read(&map(&info(map(&row))));
        assert_eq!(read, KeyInfo::read(&flat(&info(flat(&row)))));
        assert_eq!((read.holder_count, read.waiter_count), (1, 2));
        assert_eq!(read.holders[0].owner.as_deref(), Some("web-1"));
        assert_eq!(read.holders[0].lease_left, Duration::from_millis(1500));
        assert_eq!(KeyInfo::read(&Value::Nil), KeyInfo::default());
    }
}
