//! The steps of a run: those of the fuzzer's plan with times in which nothing ends, and phases in which everything ends.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};

use super::masks::ROUNDED_TO;
use crate::fuzz::step::{FuzzRequest, Step};

/// The step with times in which nothing ends by itself during a burst; `None` for a step that depends on the clock, or
/// on what only some servers do. `is_ephemeral` says which connections have asked for EPHEMERAL holds.
pub fn without_clock(step: Step, is_ephemeral: impl Fn(usize) -> bool) -> Option<Step> {
    let Step::Send {
        on,
        mut requests,
        fin,
    } = step
    else {
        return matches!(step, Step::Close { .. }).then_some(step);
    };
    // The next tick ends the holds of the killed connection: before or after what else the same turn has set off.
    let kills = |request: &FuzzRequest| match request.words.as_slice() {
        [client, kill, _, whom] if client == "CLIENT" && kill == "KILL" => {
            let on = whom.strip_prefix("$client:").and_then(|on| on.parse().ok());
            on.is_some_and(&is_ephemeral)
        }
        _ => false,
    };
    if requests.iter().any(kills) {
        requests.retain(kills);
    }
    let depends = |request: &FuzzRequest| {
        // A walk from a cursor: which holds are behind it depends on a secret of the server.
        if request
            .words
            .iter()
            .any(|word| word == "3-1700000000000000")
        {
            return true;
        }
        let first = request
            .words
            .iter()
            .take(2)
            .map(String::as_str)
            .collect::<Vec<_>>();
        matches!(
            first.as_slice(),
            ["CLIENT", "PAUSE"]
                | ["DEBUG", _]
                | ["PSUBSCRIBE", _]
                | [
                    "EVAL",
                    "$busy:1" | "$busy:2" | "$busy:3" | "$busy:4" | "$busy:5"
                ]
        )
    };
    let requests = requests.into_iter().filter(|request| !depends(request));
    let requests: Vec<FuzzRequest> = requests.map(lengthened).collect();
    (!requests.is_empty()).then_some(Step::Send { on, requests, fin })
}

fn lengthened(mut request: FuzzRequest) -> FuzzRequest {
    let words = &mut request.words;
    for at in 1..words.len() {
        let Some(number) = words[at]
            .parse::<i64>()
            .ok()
            .filter(|n| (1..100_000).contains(n))
        else {
            continue;
        };
        let longer = 6 * ROUNDED_TO + ROUNDED_TO * (number % 7);
        let is_pause = at >= 2 && words[at - 2].ends_with(".PAUSE");
        let longer = match words[at - 1].as_str() {
            "PX" | "BLOCK" | "DELAY" => longer,
            "EX" => longer / 1_000,
            // The longest that is allowed.
            "QUEUE" => 60_000,
            // Its rows are compared in another order, so all of them must be there.
            "COUNT" => 1_000,
            _ if is_pause => longer,
            _ => continue,
        };
        words[at] = longer.to_string();
    }
    request
}

/// How many connections [`lapsing`] uses.
pub const LAPSING: usize = 24;

/// Requests of which each ends by itself within some seconds: holds that lapse, waiters that are served then or time
/// out, pauses, delays and a TTL that run out. Leases, pauses and delays end at multiples of 500 ms from now on, waits and
/// the TTL between them.
pub fn lapsing(seed: u64) -> Vec<Step> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut steps = Vec::new();
    for on in 1..=LAPSING - 2 {
        let lease = 1_000 + 500 * rng.random_range(0..3);
        let wait = 1_250 + 500 * rng.random_range(0..4);
        let permits = rng.random_range(1..3);
        let shared = if rng.random_range(0..2) == 0 {
            " SHARED"
        } else {
            ""
        };
        let ask = match on % 6 {
            0 => "DLOCK.ACQUIRE a".to_owned(),
            1 => format!("DSEM.ACQUIRE b LIMIT 2 PERMITS {permits}"),
            2 => "DWG.ADD d LIMIT 2".to_owned(),
            3 => "DONCE.BEGIN e MAX 3".to_owned(),
            4 => format!("DLOCK.ACQUIRE g{shared}"),
            _ => "DLOCK.ACQUIRE h".to_owned(),
        };
        let how = match rng.random_range(0..6) {
            0 => String::new(),
            1 => " BLOCK 0".to_owned(),
            2 => format!(" QUEUE {wait}"),
            _ => format!(" BLOCK {wait}"),
        };
        let ask = format!("{ask} PX {lease} TOKEN t{on}{how}");
        steps.push(Step::one(on, FuzzRequest::line(&ask)));
    }
    for (on, line) in [
        (LAPSING - 1, "DLOCK.ACQUIRE {t}f PX 9000"),
        (LAPSING, "DLOCK.ACQUIRE {t}f PX 1000 BLOCK 0"),
    ] {
        steps.push(Step::one(on, FuzzRequest::line(line)));
    }
    for line in [
        "DONCE.FAIL e t3 REASON r DELAY 1000",
        "DLOCK.PAUSE g 1500",
        "DWG.EXPECT d 9",
        "PEXPIRE {t}f 2250",
        "DLOCK.RENEW a t6 PX 1500",
    ] {
        steps.push(Step::operator(&[line]));
    }
    steps
}
