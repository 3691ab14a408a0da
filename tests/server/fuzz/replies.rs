//! Which replies a request may get: the table of the contract, command by command.
//!
//! A refusal that depends on the state of the server (NOREPLICAS, OOM, READONLY, LOADING) is accepted only while that
//! state may have lasted: see [`Situation`].

use std::time::Duration;

use super::meaning::{Ask, Claim, Meaning, Verb, Word};
use super::step::FuzzRequest;
use crate::support::{Family, InCommands, Reply};

/// What is known of the circumstances in which a request was carried out.
pub struct Situation {
    /// The error codes by which the server may have refused any request.
    pub refusals: Vec<&'static str>,
    /// Whether BLOCK takes effect: the request is in no transaction and no script.
    pub may_wait: bool,
    /// CLIENT UNBLOCK may have ended the wait, or the server does not let this connection wait.
    pub ended_early: bool,
    /// Whether the token was sent with another request too: then this one may be told what became of that one.
    pub is_repeat: bool,
    /// The time from the request to the reply.
    pub took: Duration,
}

/// The server counts the end of a wait in whole milliseconds.
const ROUNDING_MS: u128 = 2;

const MAX_COUNT: i64 = 1_000_000;
/// Ten years, the longest that anything is kept.
const MAX_MS: i64 = 315_360_000_000;
const MAX_FENCE: i64 = (1 << 53) - 1;
/// Below the largest LIMIT.
const MAX_INDEX: i64 = 999_999;

/// Checks one reply.
///
/// # Errors
/// When the request may not be answered so; the text says what was wrong.
pub fn check(
    request: &FuzzRequest,
    meaning: &Meaning,
    reply: &Reply,
    now: &Situation,
) -> Result<(), String> {
    if let Reply::Error(text) = reply {
        return check_error(request, meaning, text, now);
    }
    let fits = match meaning {
        Meaning::Ask(ask) => return check_ask(ask, reply, now),
        Meaning::Word(word) => check_word(word, reply),
        Meaning::Wait { block_ms } => match reply {
            Reply::Nil => return check_nil(*block_ms, now),
            reply => is_integers(reply, 2),
        },
        Meaning::Revoke { .. } => is_within(reply, 0, 1),
        Meaning::Pin { .. } => is_within(reply, -1, MAX_COUNT),
        Meaning::Plain => check_plain(request, reply),
        // The server's own commands: their replies are not checked.
        Meaning::Remove { .. }
        | Meaning::Move { .. }
        | Meaning::Flush
        | Meaning::Swap
        | Meaning::Other => true,
        Meaning::Beyond => false,
    };
    if fits {
        Ok(())
    } else {
        Err("no such reply is in the contract".to_owned())
    }
}

fn check_ask(ask: &Ask, reply: &Reply, now: &Situation) -> Result<(), String> {
    if reply.is_nil() {
        return check_nil(ask.block_ms, now);
    }
    let items = match reply {
        Reply::Array(items) => items.as_slice(),
        _ => &[],
    };
    let is_own = |token: &Reply| match (&ask.token, token) {
        (Some(own), token) => *token == own.as_str(),
        (None, Reply::Bulk(made)) => made.len() == 36,
        (None, _) => false,
    };
    let fits = match (ask.claim, items) {
        (_, [kind, place, channel]) if ask.queue_ms.is_some() && *kind == "WAITING" => {
            let is_channel = matches!(channel, Reply::Bulk(channel) if !channel.is_empty());
            is_within(place, 1, 100) && is_channel
        }
        (Claim::Run, [kind, token, fence, attempt]) if *kind == "RUN" => {
            // A repeated request of the same run may have another MAX, so `attempt` is not compared with it.
            is_own(token) && is_within(fence, 1, MAX_FENCE) && is_within(attempt, 1, i64::MAX)
        }
        (Claim::Run, result) if is_result(result) => true,
        (Claim::Run, [kind, reason, attempts]) if *kind == "FAILED" => {
            // The request that was decided may have had another MAX.
            let own = ask.max.map_or(i64::MAX, u64::cast_signed);
            let least = if now.is_repeat { 1 } else { own };
            matches!(reason, Reply::Bulk(_)) && is_within(attempts, least, i64::MAX)
        }
        (Claim::Run, _) => false,
        (Claim::Indexed, [token, fence, index]) => {
            is_own(token) && is_within(fence, 1, MAX_FENCE) && is_within(index, 0, MAX_INDEX)
        }
        (Claim::Indexed, _) => false,
        (_, [token, fence]) => is_own(token) && is_within(fence, 1, MAX_FENCE),
        _ => false,
    };
    if fits {
        Ok(())
    } else {
        Err("no such answer to a request for a hold is in the contract".to_owned())
    }
}

/// Whether the reply says that the work is done.
fn is_result(reply: &[Reply]) -> bool {
    match reply {
        [kind, result, attempt] if *kind == "DONE" => {
            matches!(result, Reply::Nil | Reply::Bulk(_)) && is_within(attempt, 0, i64::MAX)
        }
        _ => false,
    }
}

/// Nil for a request that may wait means that its BLOCK has run out; asserts that it was not early.
fn check_nil(block_ms: Option<u64>, now: &Situation) -> Result<(), String> {
    let Some(ms) = block_ms.filter(|_| now.may_wait && !now.ended_early) else {
        return Ok(());
    };
    let early = ms == 0 || now.took.as_millis() + ROUNDING_MS < u128::from(ms);
    if early {
        return Err(format!("the wait ran out after {:?}", now.took));
    }
    Ok(())
}

fn check_word(word: &Word, reply: &Reply) -> bool {
    match (word.verb, word.family) {
        (Verb::Check, _) => is_within(reply, 0, MAX_MS),
        (Verb::Done, Family::Group) => is_within(reply, 0, word.tokens.len() as i64),
        _ => is_within(reply, 0, 1),
    }
}

/// The replies of the commands that have no [`Meaning`] of their own.
fn check_plain(request: &FuzzRequest, reply: &Reply) -> bool {
    let name = request.words[0].to_ascii_uppercase();
    match name.split_once('.') {
        Some((_, "INFO")) => reply.is_nil() || is_info(reply),
        Some(("DWG", "EXPECT")) => is_within(reply, 0, MAX_COUNT),
        Some(("DONCE", "GET")) => match reply {
            Reply::Array(items) => is_result(items),
            reply => reply.is_nil(),
        },
        Some(("DSYNC", "CONTENDED")) => is_contended(reply),
        Some(("DSYNC", "HOLDS")) => is_page_of_holds(reply),
        Some(("DSYNC", "LOG")) => is_list(reply, is_logged_end),
        // Any other command replies how many, or for how long.
        _ => is_within(reply, 0, MAX_MS),
    }
}

fn check_error(
    request: &FuzzRequest,
    meaning: &Meaning,
    text: &str,
    now: &Situation,
) -> Result<(), String> {
    let begins = |codes: &[&str]| codes.iter().any(|code| text.starts_with(code));
    let waits = now.may_wait && meaning.block_ms().is_some();
    let known = match meaning {
        Meaning::Ask(ask) => {
            let of_family: &[&str] = match ask.claim.family() {
                Family::Semaphore => &["TOOMANY", "NOLIMIT"],
                _ => &[],
            };
            let in_script = ask.ephemeral && !now.may_wait && text.starts_with("ERR EPHEMERAL");
            begins(&["WRONGTYPE", "MISMATCH"])
                || begins(of_family)
                || in_script
                || waits && begins(&["UNBLOCKED"])
                || now.is_repeat && begins(&["UNBLOCKED released"])
                || (waits || ask.queue_ms.is_some()) && begins(&["QUEUEFULL"])
        }
        Meaning::Wait { .. } => {
            begins(&["WRONGTYPE"]) || waits && begins(&["UNBLOCKED", "QUEUEFULL"])
        }
        Meaning::Word(_) | Meaning::Revoke { .. } | Meaning::Pin { .. } => begins(&["WRONGTYPE"]),
        Meaning::Plain => !request.words[0].starts_with("DSYNC.") && begins(&["WRONGTYPE"]),
        Meaning::Move { .. } => begins(&[
            "ERR no such key",
            "ERR source and destination objects are the same",
            // Holds are not copied.
            "ERR module key failed to copy",
        ]),
        Meaning::Beyond => begins(&["ERR Bad data format"]),
        Meaning::Remove { .. } | Meaning::Flush | Meaning::Swap => false,
        Meaning::Other => begins(&[
            "WRONGTYPE",
            "ERR Background save already in progress",
            "ERR Can't BGSAVE while AOF log rewriting is in progress",
            "ERR Another child process is active",
            "ERR Background append only file rewriting already in progress",
            "ERR No such client",
        ]),
    };
    let is_own = !matches!(
        meaning,
        Meaning::Remove { .. } | Meaning::Move { .. } | Meaning::Flush | Meaning::Swap
    );
    // A setting that the operator has just changed may forbid the request.
    let by_setting = is_own && text.starts_with("ERR ") && text.contains("(dsync.");
    let odd = request.odd && text.starts_with("ERR ");
    if known || by_setting || odd || begins(&now.refusals) {
        Ok(())
    } else {
        Err("the contract knows no such error here".to_owned())
    }
}

fn is_within(reply: &Reply, least: i64, most: i64) -> bool {
    matches!(reply, Reply::Int(n) if (least..=most).contains(n))
}

fn is_integers(reply: &Reply, count: usize) -> bool {
    match reply {
        Reply::Array(items) => {
            items.len() == count && items.iter().all(|n| is_within(n, 0, i64::MAX))
        }
        _ => false,
    }
}

fn is_info(reply: &Reply) -> bool {
    let has_field = |name| reply.find_field(name).is_some();
    matches!(reply, Reply::Map(_) | Reply::Array(_))
        && [
            "type",
            "state",
            "paused-ms",
            "holders",
            "waiters",
            "first-holders",
            "first-waiters",
        ]
        .into_iter()
        .all(has_field)
}

fn is_contended(reply: &Reply) -> bool {
    is_list(reply, |row| match row {
        [database, key, family, waiters, longest_ms] => {
            is_place(database, key, family)
                && is_within(waiters, 1, i64::MAX)
                && is_within(longest_ms, 0, i64::MAX)
        }
        _ => false,
    })
}

/// `[next cursor, rows]`
fn is_page_of_holds(reply: &Reply) -> bool {
    let is_row = |row: &[Reply]| match row {
        [
            database,
            key,
            family,
            fence,
            owner,
            client,
            left_ms,
            held_ms,
        ] => {
            // A renamed value that the server has not found yet has no place.
            let is_lost = database.is_nil() && key.is_nil() && is_family(family);
            (is_lost || is_place(database, key, family))
                && is_within(fence, 1, MAX_FENCE)
                && is_text_or_nil(owner)
                && (client.is_nil() || is_within(client, 1, i64::MAX))
                && is_within(left_ms, 0, MAX_MS)
                && is_within(held_ms, 0, i64::MAX)
        }
        _ => false,
    };
    match reply {
        Reply::Array(items) => match items.as_slice() {
            [Reply::Bulk(_), rows] => is_list(rows, is_row),
            _ => false,
        },
        _ => false,
    }
}

/// A row of DSYNC.LOG.
fn is_logged_end(row: &[Reply]) -> bool {
    let is_ms = |ms: &Reply| is_within(ms, 0, i64::MAX);
    let [id, at, what, place @ .., fence, owner, held_ms, late_ms] = row else {
        return false;
    };
    let is_told = |fields: &[&Reply]| fields.iter().all(|field| !field.is_nil());
    let fits = match (what, place) {
        (Reply::Bulk(what), [database, key, family]) => match what.as_slice() {
            b"stall" => database.is_nil() && is_ms(late_ms),
            b"removed" => is_place(database, key, family) && is_ms(held_ms) && late_ms.is_nil(),
            b"lapse" => is_place(database, key, family) && is_told(&[fence, held_ms, late_ms]),
            b"revoke" | b"disconnect" => {
                is_place(database, key, family) && is_told(&[fence, held_ms]) && late_ms.is_nil()
            }
            b"undelivered" => is_place(database, key, family) && is_told(&[fence, held_ms]),
            _ => false,
        },
        _ => false,
    };
    fits && is_within(id, 0, i64::MAX) && is_within(at, 1, i64::MAX) && is_text_or_nil(owner)
}

fn is_list(reply: &Reply, is_row: impl Fn(&[Reply]) -> bool) -> bool {
    let fits = |row: &Reply| matches!(row, Reply::Array(items) if is_row(items));
    matches!(reply, Reply::Array(rows) if rows.iter().all(fits))
}

/// Where a key is, and of which family.
fn is_place(database: &Reply, key: &Reply, family: &Reply) -> bool {
    is_within(database, 0, 15) && matches!(key, Reply::Bulk(_)) && is_family(family)
}

fn is_family(family: &Reply) -> bool {
    let mut known = Family::ALL.iter();
    known.any(|known| *family == known.word())
}

fn is_text_or_nil(text: &Reply) -> bool {
    matches!(text, Reply::Bulk(_) | Reply::Nil)
}

#[test]
fn reply_outside_the_contract_is_found() {
    let now = |may_wait| Situation {
        refusals: Vec::new(),
        may_wait,
        ended_early: false,
        is_repeat: false,
        took: Duration::from_millis(5),
    };
    let judge = |line: &str, reply: Reply, may_wait| {
        let request = FuzzRequest::line(line);
        check(
            &request,
            &Meaning::of(&request.words),
            &reply,
            &now(may_wait),
        )
        .is_ok()
    };
    let grant = |token: &str| Reply::Array(vec![Reply::Bulk(token.into()), Reply::Int(9)]);
    let error = |text: &str| Reply::Error(text.to_owned());
    assert!(judge("DLOCK.ACQUIRE a TOKEN t", grant("t"), true));
    assert!(
        !judge("DLOCK.ACQUIRE a TOKEN t", grant("u"), true),
        "another's token"
    );
    assert!(
        !judge("DONCE.BEGIN a TOKEN t", grant("t"), true),
        "a run has four"
    );
    assert!(judge("DLOCK.ACQUIRE a", Reply::Nil, true));
    assert!(judge("DLOCK.ACQUIRE a BLOCK 6", Reply::Nil, true));
    assert!(
        !judge("DLOCK.ACQUIRE a BLOCK 50", Reply::Nil, true),
        "too early"
    );
    assert!(!judge("DLOCK.ACQUIRE a BLOCK 0", Reply::Nil, true), "never");
    assert!(judge("DLOCK.ACQUIRE a BLOCK 0", Reply::Nil, false), "a try");
    assert!(judge("DSEM.ACQUIRE a", error("NOLIMIT x"), true));
    assert!(!judge("DLOCK.ACQUIRE a", error("NOLIMIT x"), true));
    assert!(
        !judge("DLOCK.ACQUIRE a", error("UNBLOCKED x"), true),
        "it did not wait"
    );
    assert!(!judge("DLOCK.ACQUIRE a PX 5", error("ERR syntax"), true));
    assert!(!judge("DLOCK.RELEASE a t", Reply::Int(2), true));
    assert!(judge("DLOCK.PAUSE a 5", Reply::Int(0), true));
    assert!(!judge("DLOCK.PAUSE a 5", Reply::Nil, true));
    assert!(!judge("DLOCK.UNKNOWN a", Reply::Nil, true));
    assert!(judge("DONCE.GET a", error("WRONGTYPE x"), true));
    assert!(!judge("DSYNC.HOLDS 0", error("WRONGTYPE x"), true));
    assert!(!judge("DLOCK.RELEASE a t", error("READONLY x"), true));
}
