//! What a run has done: how many requests it has sent, and the faults by kind.

use std::collections::BTreeMap;

use super::step::{FuzzRequest, Step};

#[derive(Default)]
pub struct Tally {
    operations: u64,
    faults: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub fn note(&mut self, step: &Step) {
        let fault = match step {
            Step::Send { requests, fin, .. } => {
                self.operations += requests.len() as u64;
                for fault in requests.iter().filter_map(fault_of) {
                    *self.faults.entry(fault).or_default() += 1;
                }
                fin.then_some("connection closed behind a request")
            }
            Step::Close { .. } => Some("connection closed"),
            Step::Failover => Some("server: failover"),
            Step::Switch => Some("server: replica promoted by hand"),
            Step::Kill => Some("server: kill -9 under traffic"),
            Step::Load => Some("server: kill -9 when all is written"),
            Step::Reload => Some("server: data reloaded"),
            Step::Freeze => Some("server: frozen"),
            Step::KillReplica => Some("server: replica kill -9"),
            Step::Upgrade { .. } => Some("server: upgraded"),
            Step::Resync => Some("link: full resynchronisation"),
            Step::PowerLoss {
                everysec: false, ..
            } => Some("disk: power lost"),
            Step::PowerLoss { everysec: true, .. } => Some("disk: power lost, synced each second"),
            Step::Clock { .. } => Some("server: wall clock set"),
            Step::Stray { .. } => Some("write to a replica that takes writes"),
            Step::Cut { hosts } => Some(match hosts.len() {
                1 => "link: a host cut off",
                _ => "link: several hosts cut off",
            }),
            Step::Settle | Step::Compare | Step::Join => None,
        };
        if let Some(fault) = fault {
            *self.faults.entry(fault).or_default() += 1;
        }
    }

    /// Returns a line for programs: `counted: 1234 operations; connection closed=12; …`.
    pub fn line(&self) -> String {
        let mut line = format!("counted: {} operations", self.operations);
        for (fault, count) in &self.faults {
            line.push_str(&format!("; {fault}={count}"));
        }
        line
    }
}

/// Which fault a request is, if it is one.
fn fault_of(request: &FuzzRequest) -> Option<&'static str> {
    let words: Vec<&str> = request.words.iter().map(String::as_str).collect();
    Some(match words.as_slice() {
        ["CLIENT", "KILL", "TYPE", ..] => "link: cut to the replicas",
        ["CLIENT", "KILL", ..] => "CLIENT KILL",
        ["CLIENT", "UNBLOCK", ..] => "CLIENT UNBLOCK",
        ["CLIENT", "PAUSE", ..] => "CLIENT PAUSE",
        ["DEBUG", "SLEEP", ..] => "server: stalled",
        ["EVAL", script, ..] if script.starts_with("$busy") => "slow script",
        ["CONFIG", "SET", "min-replicas-to-write", "9"] => "server: NOREPLICAS",
        ["CONFIG", "SET", "maxmemory", "1"] => "server: memory full",
        ["CONFIG", "SET", name, _] if name.starts_with("dsync.") => "setting changed",
        ["CONFIG", "SET", "notify-keyspace-events", _] => "events turned on or off",
        ["BGSAVE"] => "disk: save",
        ["BGREWRITEAOF"] => "disk: AOF rewritten",
        ["DEL" | "UNLINK", ..] => "key removed",
        ["RENAME" | "RENAMENX", ..] => "key renamed",
        ["MOVE" | "COPY", ..] => "key moved or copied",
        ["SWAPDB", ..] => "databases swapped",
        ["SET", ..] => "key overwritten",
        ["PEXPIRE", ..] => "key expires",
        ["RESTORE", ..] => "key restored",
        ["FLUSHDB" | "FLUSHALL", ..] => "flush",
        _ => return None,
    })
}

#[test]
fn operations_and_faults_are_counted() {
    let mut tally = Tally::default();
    tally.note(&Step::operator(&[
        "SELECT 1",
        "DEL a",
        "CLIENT KILL ID $client:7",
    ]));
    tally.note(&Step::operator(&["CLIENT KILL TYPE replica"]));
    tally.note(&Step::Close { on: 3 });
    tally.note(&Step::Settle);
    assert_eq!(
        tally.line(),
        "counted: 4 operations; CLIENT KILL=1; connection closed=1; key removed=1; link: cut to the replicas=1"
    );
}
