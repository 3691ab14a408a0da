//! Readers of `INFO dsync` that the tests of metrics share.

use crate::support::steps::*;
use crate::support::*;
use std::collections::BTreeMap;

/// The families, as the fields name them.
pub const FAMILIES: [&str; 4] = ["lock", "sem", "wg", "once"];

/// The counters that each family has.
pub const COUNTERS: [&str; 11] = [
    "granted_at_once",
    "granted_after_wait",
    "released",
    "lapsed",
    "lapsed_unrenewed",
    "revoked",
    "disconnected",
    "undelivered",
    "wait_timeouts",
    "wait_disconnects",
    "limit_changes",
];

/// The upper bounds of the histogram of waits.
pub const BOUNDS_MS: [u64; 7] = [1, 10, 100, 1_000, 10_000, 60_000, 600_000];

/// The fields that are no numbers.
pub const TEXTS: [&str; 2] = ["dsync_version", "dsync_commit"];

/// All fields of `INFO dsync` that are numbers, without the prefix `dsync_`.
#[track_caller]
pub fn metrics(server: &Server) -> BTreeMap<String, u64> {
    let section = server.info_section("dsync");
    let fields = section.lines().filter_map(|line| line.split_once(':'));
    fields
        .filter(|(name, _)| !TEXTS.contains(name))
        .map(|(name, value)| {
            let name = name.strip_prefix("dsync_").expect("the prefix");
            (name.to_owned(), value.parse().expect("a whole number"))
        })
        .collect()
}

/// One field of `INFO dsync`, by its name without the prefix.
#[track_caller]
pub fn metric(server: &Server, name: &str) -> u64 {
    server.info_number("dsync", &format!("dsync_{name}"))
}

/// The counters of a family that are not zero.
#[track_caller]
pub fn counters(server: &Server, family: &str) -> Vec<(&'static str, u64)> {
    let all = metrics(server);
    let each = COUNTERS
        .iter()
        .map(|name| (*name, all[&format!("{family}_{name}")]));
    each.filter(|(_, count)| *count > 0).collect()
}

/// Holds and waiters, each by family. Asserts that the sums over all families agree with them.
#[track_caller]
pub fn gauges(server: &Server) -> ([u64; 4], [u64; 4]) {
    let all = metrics(server);
    let holds = FAMILIES.map(|family| all[&format!("{family}_holds")]);
    let waiters = FAMILIES.map(|family| all[&format!("{family}_waiters")]);
    assert_eq!(all["holds"], holds.iter().sum::<u64>(), "{all:?}");
    assert_eq!(all["waiters"], waiters.iter().sum::<u64>(), "{all:?}");
    (holds, waiters)
}

/// Waits until no hold and no waiter is left.
#[track_caller]
pub fn wait_until_all_is_quiet(server: &Server) {
    eventually("gauges of zero", SOON, || {
        gauges(server) == ([0; 4], [0; 4]) && metric(server, "longest_wait_ms") == 0
    });
}
