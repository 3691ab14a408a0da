//! A comparison of two modules, the one before a redesign and the one after: the same random requests to both, each in a
//! server of the same program with an AOF and a replica. Everything that a client, a replica or a file sees must be the
//! same, but for tokens, fences, ids of clients and times.
//!
//! - `requests`: the steps, from the fuzzer's plan; `duo`: sends them to both sides and compares what comes back;
//! - `side`: one side, and everything that can be seen of it; `masks`: what may differ, made equal.
//!
//! A run has two kinds of phases. In a burst nothing ends by itself: leases are far longer than the run. Each step is
//! sent when the one before has had its effect, and replies, pushes, events and messages are compared after each; after
//! a burst the stream, INFO dsync and what is held and contended on the primary, the rows of the log, DUMP and INFO of
//! each key on primary and replica, and now and then the AOF, also rewritten. In a phase of lapses everything ends by
//! itself, and is compared when it has.
//!
//! Deliberately absent: failovers, restarts and clusters, changed settings, a replica's INFO dsync and DSYNC.HOLDS, the
//! order of the rows of DSYNC.CONTENDED and DSYNC.HOLDS, how many milliseconds something took, memory, and how often
//! the timer ran.
//!
//! `DSYNC_OLD_MODULE=path` names the module before, `DSYNC_COMPARE_SECONDS=n` (2), `DSYNC_SEED=n`. Without the first the
//! module is compared with itself. `make compare-modules` sets these variables.

mod duo;
mod masks;
mod requests;
mod side;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use duo::Duo;
use masks::{Masks, difference};

use crate::fuzz::plan::{Mix, Plan};
use crate::support::steps::unix_ms;
use crate::support::*;

const CONNECTIONS: usize = 12;
/// How many steps a burst has, and after how many bursts the files are compared.
const BURST: u32 = 250;
const FILES_EVERY: u64 = 4;
/// A burst ends after this time, so that a slow machine moves no time by as much as it is rounded to.
const BURST_WITHIN: Duration = Duration::from_secs(30);
/// How often everything is left to lapse.
const LAPSES_EVERY: Duration = Duration::from_secs(12);
/// How often a phase of lapses is tried: a stall of the machine makes a difference once, a change of the module always.
const LAPSES_TRIED: u32 = 3;

const MIX: Mix = Mix {
    keys: 6,
    ttls: false,
    flushes: true,
    faults: false,
    one_by_one: false,
};

fn compare(old: &Path, new: &Path, seed: u64, seconds: u64) {
    let start = Instant::now();
    let heading = format!("SEED={seed}, {} and {}", old.display(), new.display());
    let mut duo = Duo::start(old, new, CONNECTIONS, heading.clone());
    let (mut bursts, mut steps) = (0, 0);
    let mut lapses = 0;
    loop {
        let mut plan = Plan::new(seed.wrapping_add(bursts), MIX);
        duo.remark(&format!("burst {bursts}"));
        let burst = Instant::now();
        for _ in 0..BURST {
            let (_, step) = plan.next(&duo);
            if let Some(step) = requests::without_clock(step) {
                duo.perform(&step);
                steps += 1;
            }
            if burst.elapsed() > BURST_WITHIN {
                break;
            }
        }
        duo.compare_views();
        if bursts % FILES_EVERY == 0 {
            duo.compare_files();
        }
        duo.clear();
        bursts += 1;
        if start.elapsed() >= LAPSES_EVERY * lapses {
            lapses += 1;
            compare_lapses(old, new, seed.wrapping_add(bursts), &heading);
        }
        if start.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
    }
    eprintln!("{bursts} bursts, {steps} steps and {lapses} phases of lapses were the same");
}

fn compare_lapses(old: &Path, new: &Path, seed: u64, heading: &str) {
    for tried in 1..=LAPSES_TRIED {
        let mut duo = Duo::start(old, new, requests::LAPSING, heading.to_owned());
        let (old, new) = duo.let_lapse(&requests::lapsing(seed));
        if difference(&old, &new).is_none() {
            return;
        }
        if tried == LAPSES_TRIED {
            duo.expect_same("a phase of lapses", &old, &new);
        }
    }
}

#[test]
fn old_and_new_module_show_the_same() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let old = std::env::var_os("DSYNC_OLD_MODULE").map_or_else(module_path, PathBuf::from);
    let old = old.canonicalize();
    let old = old.unwrap_or_else(|error| panic!("no module to compare with: {error}"));
    compare(
        &old,
        &module_path(),
        number("DSYNC_SEED").unwrap_or(1),
        number("DSYNC_COMPARE_SECONDS").unwrap_or(2),
    );
}

/// Shows what was recorded of one side.
fn recorded(show: impl FnOnce(&mut Masks) -> Vec<String>) -> Vec<String> {
    let mut masks = Masks::default();
    masks.begin();
    show(&mut masks)
}

/// A grant as a server answers it, `ago` microseconds ago.
fn grant(token: &str, ago: i64) -> Reply {
    let fence = unix_ms() as i64 * 1_000 - ago;
    Reply::Array(vec![Reply::Bulk(token.into()), Reply::Int(fence)])
}

const MADE: [&str; 2] = [
    "1e97e7cf-554a-4ab5-88ab-9aa931fb75f2",
    "a3f1c0de-0b5a-4c1d-9f77-5a0d5a4b1c22",
];

#[test]
fn comparison_finds_a_difference_in_a_reply() {
    let [one, other] = MADE;
    let replies = |replies: &[Reply]| {
        recorded(|masks| replies.iter().map(|reply| masks.reply(reply)).collect())
    };
    let old = replies(&[grant(one, 5), grant("t1", 9), grant(one, 5)]);
    assert_eq!(
        difference(
            &old,
            &replies(&[grant(other, 70), grant("t1", 90), grant(other, 70)])
        ),
        None
    );
    // Another token of a client, other fences that are equal, another type, one reply less.
    for new in [
        replies(&[grant(other, 70), grant("t2", 90), grant(other, 70)]),
        replies(&[grant(other, 70), grant("t1", 70), grant(other, 70)]),
        replies(&[grant(other, 70), Reply::Nil, grant(other, 70)]),
        replies(&[grant(other, 70), grant("t1", 90)]),
    ] {
        assert!(difference(&old, &new).is_some(), "{new:?}");
    }
    let error = |text: &str| replies(&[Reply::Error(text.to_owned())]);
    assert_eq!(
        difference(&error("ERR one"), &error("ERR two")),
        Some("old: -ERR one\nnew: -ERR two".to_owned())
    );
    let left = |field: &str, ms: i64| {
        replies(&[Reply::Array(vec![
            Reply::Bulk(field.into()),
            Reply::Int(ms),
        ])])
    };
    assert_eq!(
        difference(
            &left("lease-left-ms", 599_000),
            &left("lease-left-ms", 598_000)
        ),
        None
    );
    assert_eq!(difference(&left("age-ms", 3), &left("age-ms", 9)), None);
    assert!(
        difference(
            &left("lease-left-ms", 599_000),
            &left("lease-left-ms", 699_000)
        )
        .is_some()
    );
    assert!(difference(&left("holders", 3), &left("holders", 9)).is_some());
}

/// A lock's state as DSYN carries it.
fn lock(ago: i64, lease: i64, token: &str) -> Vec<u8> {
    let now = unix_ms() as i64 - ago;
    let fence = now * 1_000 + ago;
    let length = token.len();
    let grant = format!(
        "GRANT {fence} exclusive {lease} {} {now} 0 {length}:{token} 0:",
        now + lease
    );
    packed("lock", &[&grant])
}

#[test]
fn comparison_finds_a_difference_in_the_stream() {
    let stream = |packed: Vec<u8>| {
        recorded(|masks| vec![masks.command(&[STREAM.into(), b"key".to_vec(), packed])])
    };
    let old = stream(lock(0, 600_000, "t"));
    assert_eq!(difference(&old, &stream(lock(500, 600_000, "t"))), None);
    for new in [
        lock(0, 700_000, "t"),
        lock(0, 600_000, "u"),
        packed("lock", &["VANISH"]),
    ] {
        assert!(difference(&old, &stream(new)).is_some());
    }
    let expire = |option: &[&str]| {
        let words = ["PEXPIREAT", "key", "9"].iter().chain(option);
        let command: Vec<Vec<u8>> = words.map(|word| word.as_bytes().to_vec()).collect();
        recorded(|masks| vec![masks.command(&command)])
    };
    assert!(difference(&expire(&["GT"]), &expire(&[])).is_some());
}

#[test]
fn comparison_finds_a_difference_in_a_dump() {
    use crate::lifecycle::payload::{STRING, sealed};
    let dump = |encoding: u8, packed: &[u8]| {
        let mut body = vec![7, 0x81, 1, 2, 3, 4, 5, 6, 7, encoding, STRING, 0x80];
        body.extend_from_slice(&(packed.len() as u32).to_be_bytes());
        body.extend_from_slice(packed);
        body.push(0);
        recorded(|masks| vec![masks.dump(&sealed(&body, [10, 0]))])
    };
    let old = dump(2, &lock(0, 600_000, "t"));
    assert_eq!(difference(&old, &dump(2, &lock(500, 600_000, "t"))), None);
    assert!(difference(&old, &dump(3, &lock(0, 600_000, "t"))).is_some());
    assert!(difference(&old, &dump(2, &lock(0, 600_000, "u"))).is_some());
}
