//! The lines of the benchmark, a file for each group that shares servers or a way of measuring.
//!
//! To add one: write a function that pushes rows, and name it in [`ALL`].

mod bystanders;
mod cluster;
mod commands;
mod families;
mod floods;
mod growth;
mod handoff;
mod instructions;
mod lanes;
mod lapses;
mod memory;
mod native;
mod paces;
mod requests;
mod restore;
mod servers;
mod stalls;
mod throughput;
mod waiters;
mod workers;

use crate::bench::Bench;
use crate::invalid::Result;
use crate::options::Mode;
use crate::row::Row;

pub struct Line {
    /// What ONLY names.
    pub name: &'static str,
    pub what: &'static str,
    mode: Mode,
    /// Measures, and pushes rows. An error makes the run invalid; rows that were pushed before it stay.
    pub run: Run,
}

impl Line {
    /// A quick run has all lines but those that need valgrind.
    pub fn is_part_of(&self, mode: Mode) -> bool {
        self.mode == mode || (mode == Mode::Quick && self.mode != Mode::Instructions)
    }
}

type Run = fn(&Bench, &mut Vec<Row>) -> Result<()>;

const fn line(mode: Mode, name: &'static str, what: &'static str, run: Run) -> Line {
    Line {
        name,
        what,
        mode,
        run,
    }
}

const fn full(name: &'static str, what: &'static str, run: Run) -> Line {
    line(Mode::Full, name, what, run)
}

const fn growth(name: &'static str, what: &'static str, run: Run) -> Line {
    line(Mode::Growth, name, what, run)
}

const fn instructions(name: &'static str, what: &'static str, run: Run) -> Line {
    line(Mode::Instructions, name, what, run)
}

const fn peers(name: &'static str, what: &'static str, run: Run) -> Line {
    line(Mode::Peers, name, what, run)
}

pub const ALL: &[Line] = &[
    full(
        "throughput",
        "acquire, and acquire + release, in four settings",
        throughput::run,
    ),
    full(
        "families",
        "pairs of the other families beside a lock's",
        families::run,
    ),
    full(
        "requests",
        "acquire with TOKEN, a refused try, RENEW, QUEUE and asking again",
        requests::run,
    ),
    full("parking", "a request that waits", waiters::run_parking),
    full("native", "acquire + release beside DELIFEQ", native::run),
    full(
        "bystanders",
        "others' commands beside the module",
        bystanders::run,
    ),
    full(
        "handoff",
        "from a release to the next waiter's reply",
        handoff::run,
    ),
    full(
        "handoff-growth",
        "the same with 10,000 waiters and with 10",
        handoff::run_growth,
    ),
    full(
        "confirmed",
        "the same, until a replica has the grant",
        handoff::run_confirmed,
    ),
    full(
        "lanes",
        "the hand-off of a semaphore with one lane and with 100,000",
        lanes::run,
    ),
    full("workers", "16 workers on one lock", workers::run),
    full(
        "memory",
        "bytes of a hold, in memory and in files",
        memory::run,
    ),
    full(
        "lapses",
        "a wave of leases that end in one second",
        lapses::run,
    ),
    full("stalls", "the longest turn of the event loop", stalls::run),
    full(
        "restore",
        "DUMP and RESTORE of a semaphore with 100,000 holders",
        restore::run,
    ),
    full(
        "servers",
        "acquire + release, and the hand-off, on other servers",
        servers::run,
    ),
    full(
        "waiter-memory",
        "bytes of a waiting client",
        waiters::run_memory,
    ),
    full(
        "beside-waiters",
        "others' throughput beside idle waiters",
        waiters::run_beside,
    ),
    growth(
        "growth-waiters",
        "hand-off over the number of waiters",
        growth::run_waiters,
    ),
    growth(
        "growth-locks",
        "acquire + release over the number of held locks",
        growth::run_locks,
    ),
    growth(
        "growth-holders",
        "acquire + release over the holders of one semaphore",
        growth::run_holders,
    ),
    growth(
        "growth-keys",
        "hand-off over the number of contended keys",
        growth::run_keys,
    ),
    growth(
        "growth-cluster",
        "acquire + release on one, two and three primaries",
        cluster::run,
    ),
    peers(
        "floods",
        "a tenant's flood, and what the others wait",
        floods::run,
    ),
    peers("paces", "a rate whose callers wait", paces::run),
    instructions(
        "requests-instructions",
        "what the server executes for a request",
        instructions::run_requests,
    ),
    instructions(
        "pairs-instructions",
        "what it executes for acquire + release",
        instructions::run_pairs,
    ),
    instructions(
        "handoff-instructions",
        "what it executes for a hand-off among 1,000 waiters",
        instructions::run_handoffs,
    ),
    instructions(
        "lanes-instructions",
        "what it executes for a hand-off in a semaphore with lanes",
        lanes::run_instructions,
    ),
];
