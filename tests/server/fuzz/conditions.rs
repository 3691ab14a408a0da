//! States of the server in which it refuses requests, and since when it is in them.

use std::time::Instant;

use super::doubt::Doubt;

/// The end of a condition: from the reply to its request on, the server refuses no more, unless the condition was set
/// again after the request was sent.
#[derive(Clone, Copy, Debug)]
pub struct Relief {
    condition: usize,
    worse: u64,
}

struct Condition {
    code: &'static str,
    /// How often the condition was set.
    worse: u64,
    lasts: Doubt,
}

pub struct Conditions([Condition; 4]);

const NO_REPLICAS: usize = 0;
const NO_MEMORY: usize = 1;
const REPLICA: usize = 2;
const LOADING: usize = 3;

impl Conditions {
    pub fn new() -> Conditions {
        Conditions(
            ["NOREPLICAS", "OOM", "READONLY", "LOADING"].map(|code| Condition {
                code,
                worse: 0,
                lasts: Doubt::default(),
            }),
        )
    }

    /// A request of the operator is being sent. It may set a condition, from now on; or it ends one with its reply,
    /// which is then returned.
    pub fn sent(&mut self, words: &[String]) -> Option<Relief> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (which, is_worse) = match words.as_slice() {
            ["CONFIG", "SET", "min-replicas-to-write", n] => (NO_REPLICAS, *n != "0"),
            ["CONFIG", "SET", "maxmemory", n] => (NO_MEMORY, *n != "0"),
            // The server loads until it answers.
            ["DEBUG", "RELOAD" | "LOADAOF", ..] => {
                self.begins(LOADING);
                (LOADING, false)
            }
            _ => return None,
        };
        if is_worse {
            self.begins(which);
            return None;
        }
        Some(Relief {
            condition: which,
            worse: self.0[which].worse,
        })
    }

    pub fn answered(&mut self, relief: Relief, now: Instant) {
        let condition = &mut self.0[relief.condition];
        if condition.worse == relief.worse {
            condition.lasts.end(now);
        }
    }

    fn begins(&mut self, which: usize) {
        self.0[which].worse += 1;
        self.0[which].lasts.open();
    }

    /// The server may be a replica from now on.
    pub fn role_changes(&mut self) {
        self.begins(REPLICA);
    }

    /// The driver now talks to a server on which no condition was set.
    pub fn fresh_server(&mut self, now: Instant) {
        self.0
            .iter_mut()
            .for_each(|condition| condition.lasts.end(now));
    }

    /// The error codes by which a request may be refused that was sent at `sent` and is answered now.
    pub fn refusals(&self, sent: Instant) -> Vec<&'static str> {
        let lasting = self
            .0
            .iter()
            .filter(|condition| condition.lasts.covers(sent));
        lasting.map(|condition| condition.code).collect()
    }
}
