//! Readers of `INFO dsync` that the tests of metrics share.

use crate::support::steps::*;
use crate::support::*;
use std::collections::{BTreeMap, BTreeSet};

/// The families, as the fields name them.
pub const FAMILIES: [&str; 4] = ["lock", "sem", "wg", "once"];

/// The fields that docs/metrics.md has in its table, without the prefix `dsync_`. `<f>` stands for each family, `<n>`
/// for the bounds that the line tells, and `…` for what the field before has up to its family.
pub fn documented_metrics() -> BTreeSet<String> {
    let page = document("docs/metrics.md");
    let lines = page.lines().filter(|line| line.starts_with("| `dsync_"));
    let codes = lines.flat_map(|line| {
        let (fields, rest) = line.split_once("` | ").expect("cells");
        let bounds = rest.split_once("n = ").map(|(_, list)| list);
        let bounds = bounds
            .and_then(|list| list.split(" ms").next())
            .unwrap_or_default();
        let codes = fields.split('`').skip(1).step_by(2);
        codes.flat_map(move |code| {
            let code = code.replace('…', "dsync_<f>").replace("dsync_", "");
            bounds
                .split(", ")
                .map(move |bound| code.replace("<n>", bound))
                .collect::<Vec<_>>()
        })
    });
    codes
        .flat_map(|code| FAMILIES.map(|family| code.replace("<f>", family)))
        .collect()
}

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
pub fn counters(server: &Server, family: &str) -> BTreeMap<String, u64> {
    let of_family = |name: &str| Some(name.strip_prefix(family)?.strip_prefix('_')?.to_owned());
    let all = metrics(server).into_iter();
    let own = all.filter_map(|(name, count)| Some((of_family(&name)?, count)));
    let is_gauge = |name: &str| ["holds", "waiters"].contains(&name);
    own.filter(|(name, count)| !is_gauge(name) && *count > 0)
        .collect()
}

/// Such counters, as a test states them.
pub fn counts<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    BTreeMap::from(counts.map(|(name, count)| (name.to_owned(), count)))
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
