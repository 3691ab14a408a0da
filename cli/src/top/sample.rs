//! What `dsync top` looks at: INFO dsync, DSYNC.CONTENDED and INFO of the contended keys, of all primaries.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use crate::connect::Node;
use crate::failure::{Failure, Result, Status};
use crate::family::Family;
use crate::info::{self, Info, rows};

/// How many holders and waiters of a key to ask for.
const FIRST: u32 = 3;

/// What the servers told at one moment.
pub struct Sample {
    pub taken: Instant,
    pub time: SystemTime,
    pub servers: Vec<String>,
    pub counters: Counters,
    /// The longest wait first.
    pub keys: Vec<Key>,
}

/// A key that somebody waits for.
pub struct Key {
    pub server: String,
    pub db: i64,
    pub key: Vec<u8>,
    pub family: String,
    pub waiters: u64,
    pub longest_wait_ms: u64,
    /// Empty when the key was free again before it could be asked for.
    pub info: Info,
}

impl Key {
    /// Returns the first of those who hold it.
    pub fn holder(&self) -> Option<&Info> {
        rows(&self.info, "first_holders").next()
    }
}

/// The numbers of INFO dsync by their names, of several servers added up; the longest wait is the longest of all.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Reads the reply to INFO dsync, and adds it.
    pub fn add(&mut self, info: &str) {
        for line in info.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let Ok(value) = value.trim().parse::<u64>() else {
                continue;
            };
            let sum = self.0.entry(name.to_owned()).or_default();
            *sum = if name == LONGEST_WAIT {
                value.max(*sum)
            } else {
                sum.saturating_add(value)
            };
        }
    }

    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a counter of all four families together: `lapsed` is the sum of `dsync_lock_lapsed` and so on.
    pub fn of_families(&self, name: &str) -> u64 {
        let counters = Family::ALL.map(|family| self.get(&family.counter(name)));
        counters.iter().sum()
    }

    /// Returns the growth since an earlier moment. A server that was started again meanwhile counts from zero.
    pub fn since(&self, before: &Counters) -> Counters {
        let growth =
            |(name, value): (&String, &u64)| (name.clone(), value.saturating_sub(before.get(name)));
        Counters(self.0.iter().map(growth).collect())
    }

    /// Returns the waits that ended in a grant, as (bound in ms, how many took at most so long), the bounds rising.
    pub fn wait_buckets(&self) -> Vec<(u64, u64)> {
        let bound = |name: &str| {
            name.strip_prefix("dsync_wait_le_")?
                .strip_suffix("_ms")?
                .parse()
                .ok()
        };
        let mut buckets: Vec<(u64, u64)> = self
            .0
            .iter()
            .filter_map(|(name, count)| Some((bound(name)?, *count)))
            .collect();
        buckets.sort_unstable();
        buckets
    }
}

pub const LONGEST_WAIT: &str = "dsync_longest_wait_ms";

impl Sample {
    /// Asks all servers.
    pub fn take(nodes: &mut [Node], count: u32) -> Result<Sample> {
        let mut counters = Counters::default();
        let mut keys = Vec::new();
        for node in nodes.iter_mut() {
            let info: String = node.ask(redis::cmd("INFO").arg("dsync"))?;
            counters.add(&info);
            keys.extend(contended(node, count)?);
        }
        if counters.is_empty() {
            let message = "INFO dsync is empty: has the server loaded the dsync module?";
            return Err(Failure::new(Status::Refused, message));
        }
        keys.sort_by_key(|key| std::cmp::Reverse(key.longest_wait_ms));
        Ok(Sample {
            taken: Instant::now(),
            time: SystemTime::now(),
            servers: nodes.iter().map(|node| node.name().to_owned()).collect(),
            counters,
            keys,
        })
    }
}

fn contended(node: &mut Node, count: u32) -> Result<Vec<Key>> {
    type Row = (i64, Vec<u8>, String, u64, u64);
    let rows: Vec<Row> = node.ask(redis::cmd("DSYNC.CONTENDED").arg("COUNT").arg(count))?;
    let mut keys = Vec::with_capacity(rows.len());
    for (db, key, family, waiters, longest_wait_ms) in rows {
        keys.push(Key {
            server: node.name().to_owned(),
            info: info(node, db, &key, &family, FIRST)?.unwrap_or_default(),
            db,
            key,
            family,
            waiters,
            longest_wait_ms,
        });
    }
    Ok(keys)
}

/// Asks for INFO of one key. A key that has another type by now, or that an ACL hides, has none; the list goes on.
pub fn info(
    node: &mut Node,
    db: i64,
    key: &[u8],
    family: &str,
    count: u32,
) -> Result<Option<Info>> {
    let Some(family) = Family::named(family) else {
        return Ok(None);
    };
    node.select(db)?;
    let mut command = family.command("INFO", key);
    match command.arg("COUNT").arg(count).query(&mut node.connection) {
        Ok(reply) => Ok(info::of_reply(node.name(), db, key, &reply)),
        Err(error) if matches!(error.code(), Some("WRONGTYPE" | "NOPERM" | "MOVED" | "ASK")) => {
            Ok(None)
        }
        Err(error) => Err(Failure::of_server(&node.peer, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_servers_are_added_and_the_longest_wait_is_the_longest() {
        let mut counters = Counters::default();
        counters.add("# dsync\r\ndsync_version:0.3.0\r\ndsync_lock_lapsed:2\r\ndsync_longest_wait_ms:500\r\n");
        counters.add("dsync_lock_lapsed:3\r\ndsync_sem_lapsed:1\r\ndsync_longest_wait_ms:70\r\n");
        assert_eq!(counters.of_families("lapsed"), 6);
        assert_eq!(counters.get(LONGEST_WAIT), 500);
    }

    #[test]
    fn growth_of_a_restarted_server_is_not_negative() {
        let (mut before, mut after) = (Counters::default(), Counters::default());
        before.add("dsync_lock_released:100\r\ndsync_sem_released:1\r\n");
        after.add("dsync_lock_released:3\r\ndsync_sem_released:4\r\n");
        assert_eq!(after.since(&before).of_families("released"), 3);
    }

    #[test]
    fn wait_buckets_are_in_the_order_of_their_bounds() {
        let mut counters = Counters::default();
        counters.add("dsync_wait_le_1000_ms:7\r\ndsync_wait_le_1_ms:2\r\ndsync_wait_le_10_ms:5\r\ndsync_wait_count:8\r\n");
        assert_eq!(counters.wait_buckets(), [(1, 2), (10, 5), (1000, 7)]);
    }
}
