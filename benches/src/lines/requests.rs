//! Requests that clients send all the time, one by one: what each costs beside the plain command that does nearest.
//!
//! A lock is taken with a TOKEN, as the client helpers do; a try is refused because another holds; a lease is renewed;
//! a place is kept and asked for again. Nothing of the server's own does the last two.

use super::commands::{
    LEASE, acquire, acquire_with_token, is_granted, is_nil, is_ok, is_one, is_waiting, set_nx_px,
};
use crate::bench::{Bench, SLICES, Side, alternate};
use crate::invalid::Result;
use crate::load::Single;
use crate::row::{Row, Samples};
use crate::server::Setting;
use crate::statistics::median;
use crate::words::{key, token};
use dsync_testkit::resp::{Frame, write_request};

/// Held locks, or keys, that refused tries and renewals go round; and places that are kept in one queue.
const HELD: u64 = 1_000;

/// A request, and its peer where there is one.
pub struct Request {
    /// For files.
    pub name: &'static str,
    pub what: &'static str,
    pub ours: One,
    pub theirs: Option<One>,
}

pub struct One {
    /// What a server without keys must have before.
    pub prepare: fn(&mut Side) -> Result<()>,
    /// Writes the request of a number.
    write: fn(u64, &mut Vec<u8>),
    is_right: fn(&Frame<'_>) -> bool,
}

impl One {
    /// So many of them, at pipeline 32.
    pub fn work(&self, count: u64) -> Single<fn(u64, &mut Vec<u8>)> {
        Single::new(count, 32, self.write, self.is_right)
    }
}

pub const ALL: [Request; 6] = [
    Request {
        name: "refused",
        what: "refused ACQUIRE PX / refused SET NX PX",
        ours: One {
            prepare: hold_locks,
            write: |number, out| acquire(number % HELD, out),
            is_right: is_nil,
        },
        theirs: Some(One {
            prepare: hold_keys,
            write: |number, out| set_nx_px(number % HELD, out),
            is_right: is_nil,
        }),
    },
    Request {
        name: "acquire",
        what: "ACQUIRE PX TOKEN / SET NX PX",
        ours: One {
            prepare: |_| Ok(()),
            write: acquire_with_token,
            is_right: is_granted,
        },
        theirs: Some(One {
            prepare: |_| Ok(()),
            write: set_nx_px,
            is_right: is_ok,
        }),
    },
    Request {
        name: "renew",
        what: "RENEW / PEXPIRE",
        ours: One {
            prepare: hold_locks,
            write: |number, out| {
                let (key, token) = (key(number % HELD), token(number % HELD));
                write_request(out, &[b"DLOCK.RENEW", &key, &token]);
            },
            is_right: is_one,
        },
        theirs: Some(One {
            prepare: hold_keys,
            write: |number, out| write_request(out, &[b"PEXPIRE", &key(number % HELD), LEASE]),
            is_right: is_one,
        }),
    },
    Request {
        name: "renew-px",
        what: "RENEW PX / PEXPIRE",
        ours: One {
            prepare: hold_locks,
            write: |number, out| {
                let (key, token) = (key(number % HELD), token(number % HELD));
                write_request(out, &[b"DLOCK.RENEW", &key, &token, b"PX", LEASE]);
            },
            is_right: is_one,
        },
        theirs: Some(One {
            prepare: hold_keys,
            write: |number, out| write_request(out, &[b"PEXPIRE", &key(number % HELD), LEASE]),
            is_right: is_one,
        }),
    },
    Request {
        name: "queue-first",
        what: "QUEUE, the first time, of 1,000 locks",
        ours: One {
            prepare: hold_locks,
            write: |number, out| queue(&key(number % HELD), &token(HELD + number), out),
            is_right: is_waiting,
        },
        theirs: None,
    },
    Request {
        name: "queue",
        what: "QUEUE, asked again, 1,000 places",
        ours: One {
            prepare: keep_places,
            write: ask_again,
            is_right: is_waiting,
        },
        theirs: None,
    },
];

fn hold_locks(side: &mut Side) -> Result<()> {
    side.load(&mut Single::new(HELD, 32, acquire_with_token, is_granted))
}

fn hold_keys(side: &mut Side) -> Result<()> {
    side.load(&mut Single::new(HELD, 32, set_nx_px, is_ok))
}

fn keep_places(side: &mut Side) -> Result<()> {
    hold_locks(side)?;
    side.load(&mut Single::new(HELD, 32, ask_again, is_waiting))
}

/// Asks for the first lock, with one of [`HELD`] tokens that do not hold it.
fn ask_again(number: u64, out: &mut Vec<u8>) {
    queue(&key(0), &token(HELD + number % HELD), out);
}

fn queue(key: &[u8], token: &[u8], out: &mut Vec<u8>) {
    write_request(
        out,
        &[
            b"DLOCK.ACQUIRE",
            key,
            b"PX",
            LEASE,
            b"TOKEN",
            token,
            b"QUEUE",
            b"60000",
        ],
    );
}

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let count = bench.size(10_000, 2_000);
    for request in &ALL {
        let mut samples = Samples::default();
        for pair in 0..bench.pairs() {
            match &request.theirs {
                Some(peer) => {
                    let (mut ours, mut theirs) = bench.both(Setting::Plain)?;
                    let slices = alternate(pair, (&mut ours, &mut theirs), |side, is_ours| {
                        slice(side, if is_ours { &request.ours } else { peer }, count)
                    })?;
                    samples.push_slices(&slices);
                }
                None => {
                    let mut ours = bench.ours(Setting::Plain)?;
                    let slices: Result<Vec<f64>> = (0..SLICES)
                        .map(|_| slice(&mut ours, &request.ours, count))
                        .collect();
                    samples.ours.push(median(&slices?));
                }
            }
        }
        rows.push(Row::new("requests", request.what, "ns CPU", samples).setting("plain"));
    }
    Ok(())
}

/// Returns the CPU time of one request.
fn slice(side: &mut Side, one: &One, count: u64) -> Result<f64> {
    side.flush()?;
    (one.prepare)(side)?;
    Ok(side.cpu_ns(&mut one.work(count))? / count as f64)
}
