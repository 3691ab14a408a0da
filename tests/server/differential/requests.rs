//! The steps of a run: those of the fuzzer's plan with times in which nothing ends, and phases in which everything
//! ends.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};

use super::duo::Duo;
use super::masks::ROUNDED_TO;
use crate::fuzz::run_view::RunView;
use crate::fuzz::step::{FuzzRequest, Step};

/// The step with times in which nothing ends by itself during a burst; `None` for a step that depends on the clock, or
/// on what only some servers do.
///
/// A tick ends the EPHEMERAL holds of a connection that has gone: before or after what else its end, or the same turn,
/// sets off. So such a connection ends when it waits for nothing, and nothing else happens in the step.
pub fn without_clock(step: Step, duo: &Duo) -> Option<Step> {
    let closes = |on: usize, step: Step| match duo.load(on) {
        _ if !duo.is_ephemeral(on) => step,
        0 => step,
        _ => Step::operator(&[&format!("CLIENT UNBLOCK $client:{on}")]),
    };
    let (on, requests, fin) = match step {
        Step::Send { on, requests, fin } => (on, requests, fin),
        Step::Close { on } => return Some(closes(on, step)),
        _ => return None,
    };
    let killed = requests
        .iter()
        .find_map(|request| match request.words.as_slice() {
            [client, kill, _, whom] if client == "CLIENT" && kill == "KILL" => Some((
                whom.strip_prefix("$client:")?.parse().ok()?,
                request.clone(),
            )),
            _ => None,
        });
    if let Some((whom, kill)) = killed.filter(|(whom, _)| duo.is_ephemeral(*whom)) {
        return Some(closes(whom, Step::one(on, kill)));
    }
    let asks = requests
        .iter()
        .filter(|request| request.words[0] != "SELECT");
    let fin =
        fin && !duo.is_ephemeral(on) && (asks.count() == 1 || !requests.iter().any(is_ephemeral));
    let depends = |request: &FuzzRequest| {
        // Rests end at their own moments, and a module of before knows none of these options.
        let options = ["MINHOLD", "INDEX", "LANE"];
        if request
            .words
            .iter()
            .any(|word| options.contains(&word.as_str()))
        {
            return true;
        }
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
    let known = requests.map(|mut request| {
        request.words.retain(|word| !duo.new_flags.contains(word));
        request
    });
    let requests: Vec<FuzzRequest> = known
        .map(|request| lengthened(request, &duo.timed))
        .collect();
    (!requests.is_empty()).then_some(Step::Send { on, requests, fin })
}

/// Returns whether the request asks for an EPHEMERAL hold, alone or in a script.
pub fn is_ephemeral(request: &FuzzRequest) -> bool {
    request.words.iter().any(|word| word == "EPHEMERAL")
}

/// Makes all times of the request so long that nothing ends during a burst.
fn lengthened(mut request: FuzzRequest, timed: &BTreeSet<String>) -> FuzzRequest {
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
        let is_time = at >= 2 && timed.contains(&words[at - 2]);
        let longer = match words[at - 1].as_str() {
            "PX" | "BLOCK" | "DELAY" => longer,
            "EX" => longer / 1_000,
            // The longest that is allowed.
            "QUEUE" => 60_000,
            // Its rows are compared in another order, so all of them must be there.
            "COUNT" => 1_000,
            _ if is_time => longer,
            _ => continue,
        };
        words[at] = longer.to_string();
    }
    request
}

/// How many connections [`lapsing`] uses.
pub const LAPSING: usize = 24;

/// Requests of which each ends by itself within some seconds: holds that lapse, waiters that are served then or time
/// out, pauses, delays and a TTL that run out. Leases, pauses and delays end at multiples of 500 ms from now on, waits
/// and the TTL between them.
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
