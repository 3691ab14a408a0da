//! The packed strings of the replication stream and of rewritten AOFs, as text for assertions.
//!
//! ```text
//! GRANT fence claim|index-n lease-ms[+min-hold-ms] deadline-unix-ms granted-unix-ms renewed length:token length:owner
//! GRANT fence claim|index-n rests-ms deadline-unix-ms granted-unix-ms renewed RESTS length:owner
//! REST fence how at-unix-ms
//! END fence how at-unix-ms
//! FAIL fence at-unix-ms length:reason
//! COMPLETE fence|NONE keep-until-unix-ms length:token result
//! RECORD attempts touched-unix-ms reason late-length:token|NONE NONE
//! RECORD attempts touched-unix-ms reason late-length:token|NONE keep-until-unix-ms length:token result
//! PLACE rank claim lease-ms[+min-hold-ms] keep-ms max-attempts|NONE since-unix-ms length:token length:owner
//! DISPLACED length:token
//! ```
//!
//! Behind a GRANT or a PLACE in a lane stands ` in lane`, and behind a PLACE with a LANELIMIT ` at most permits`.
//!
//! Every other change is its name and its numbers, in the order of its fields: `RENEW fence lease-ms deadline-unix-ms`,
//! `PAUSE until-unix-ms|NONE`.
//!
//! The engine's own reader reads them here. The bytes themselves are asserted by the engine's tests and by the files in
//! `tests/golden`.

use std::num::ParseIntError;
use std::str::FromStr;

use crc::{CRC_32_ISCSI, Crc};

use super::families::{Family, InCommands};
use dsync_engine::LaneName;
use dsync_engine::change::{Change, Displaced, KeptPlace, Limits, Tally};
use dsync_engine::families::once::{Completion, Reason};
use dsync_engine::hold::{Grant, Rest};
use dsync_engine::types::{Claim, Fence, LeaseMs, Rank, Token, UnixMs, new_token_buffer};
use dsync_engine::wire;

/// The command that carries packed strings: `DSYN key packed`.
pub const STREAM: &str = "DSYN";

/// The family and each change of a packed string. The family has a `+` where the state continues in another string.
#[track_caller]
pub fn spelled(packed: &[u8]) -> Vec<String> {
    let unpacked = wire::open(packed)
        .unwrap_or_else(|unreadable| panic!("{}: {unreadable}", packed.escape_ascii()));
    let more = if unpacked.more { "+" } else { "" };
    let family = unpacked.family.word();
    let changes = unpacked.map(|change| text(&change.expect("a change that can be read")));
    [format!("{family}{more}")]
        .into_iter()
        .chain(changes)
        .collect()
}

/// Packs changes that are written as above. Knows only the kinds of changes that tests make by hand.
#[track_caller]
pub fn packed(family: &str, changes: &[&str]) -> Vec<u8> {
    let mut families = Family::ALL.into_iter();
    let family = families.find(|it| it.word() == family).expect("a family");
    let changes: Vec<_> = changes.iter().map(|change| read(change)).collect();
    let mut packed = Vec::new();
    wire::pack(&mut packed, family, false, &changes);
    packed
}

/// The bytes with the checksum that a packed string has at its end.
pub fn sealed(bytes: &[u8]) -> Vec<u8> {
    let check = Crc::<u32>::new(&CRC_32_ISCSI).checksum(bytes);
    [bytes, &check.to_le_bytes()].concat()
}

#[track_caller]
fn read(change: &str) -> Change {
    let words: Vec<_> = change.split(' ').collect();
    let number = |word: &str| -> u64 { word.parse().expect("a number") };
    let text = |word: &str| word.split_once(':').expect("length:text").1.to_owned();
    let lease = |word: &str| LeaseMs(word.parse().expect("a lease"));
    match words.as_slice() {
        [
            "GRANT",
            fence,
            claim,
            ms,
            deadline,
            granted,
            renewed,
            token,
            owner,
        ] => Change::Grant(Grant {
            fence: Fence(number(fence)),
            token: Token::parse(text(token).as_bytes()).expect("a token"),
            claim: match *claim {
                "exclusive" => Claim::Exclusive,
                "shared" => Claim::Shared,
                "member" => Claim::Member,
                "run" => Claim::Run,
                indexed if indexed.starts_with("index-") => Claim::Indexed,
                permits => Claim::Permits(permits.parse().expect("permits")),
            },
            index: (claim.strip_prefix("index-")).map(|n| n.parse().expect("an index")),
            rest: Rest::None,
            lease: lease(ms),
            deadline: UnixMs(number(deadline)),
            granted: UnixMs(number(granted)),
            renewed: number(renewed) == 1,
            owner: (!text(owner).is_empty()).then(|| text(owner).into_bytes().into()),
            lane: LaneName::default(),
        }),
        ["RENEW", fence, ms, deadline] => Change::Renew {
            fence: Fence(number(fence)),
            lease: lease(ms),
            deadline: UnixMs(number(deadline)),
        },
        ["LIMIT", limit] => Change::Limit(limit.parse().expect("a limit")),
        ["LIMITS", limit, pinned, changes] => Change::Limits(Limits {
            limit: optional(limit),
            pinned: optional(pinned),
            changes: number(changes),
        }),
        [
            "TALLY",
            limit,
            changes,
            expected,
            done,
            lapsed,
            touched,
            finished,
        ] => Change::Tally(Tally {
            limit: optional(limit),
            limit_changes: number(changes),
            expected: optional(expected),
            done: number(done),
            lapsed: number(lapsed),
            touched: UnixMs(number(touched)),
            finished: optional(finished).map(UnixMs),
        }),
        ["PAUSE", until] => Change::Pause {
            until: optional(until).map(UnixMs),
        },
        [
            "PLACE",
            rank,
            claim,
            ms,
            keep_ms,
            "NONE",
            since,
            token,
            owner,
        ] => Change::Place(KeptPlace {
            rank: Rank(Fence(number(rank))),
            claim: match *claim {
                "exclusive" => Claim::Exclusive,
                "shared" => Claim::Shared,
                other => panic!("no test makes a place of a '{other}' by hand"),
            },
            lease: lease(ms),
            min_hold: None,
            keep_ms: keep_ms.parse().expect("a duration"),
            bound: None,
            since: UnixMs(number(since)),
            token: Token::parse(text(token).as_bytes()).expect("a token"),
            owner: (!text(owner).is_empty()).then(|| text(owner).into_bytes().into()),
            lane: LaneName::default(),
        }),
        ["VANISH"] => Change::Vanish,
        ["GIVEUP"] => Change::GiveUp,
        ["DELAY", until] => Change::Delay {
            until: optional(until).map(UnixMs),
        },
        _ => panic!("no test makes '{change}' by hand"),
    }
}

fn optional<N: FromStr<Err = ParseIntError>>(word: &str) -> Option<N> {
    (word != "NONE").then(|| word.parse().expect("a number"))
}

fn text(change: &Change) -> String {
    match change {
        Change::Grant(grant) => {
            let index = grant.index.map(|index| format!("index-{index}"));
            let claim = index.unwrap_or_else(|| claim_text(grant.claim));
            let (min_hold, token) = match grant.rest {
                Rest::None => (None, token(&grant.token)),
                Rest::After(ms) => (Some(ms), token(&grant.token)),
                Rest::Now => (None, "RESTS".to_owned()),
            };
            format!(
                "GRANT {} {claim} {} {} {} {} {token} {}{}",
                grant.fence.0,
                lease_text(grant.lease, min_hold),
                grant.deadline.0,
                grant.granted.0,
                u8::from(grant.renewed),
                counted(grant.owner.as_deref().unwrap_or_default()),
                lane(&grant.lane)
            )
        }
        Change::End { fence, how, at } => format!("END {} {} {}", fence.0, how.word(), at.0),
        Change::Rest { fence, how, at } => format!("REST {} {} {}", fence.0, how.word(), at.0),
        Change::Fail { fence, at, reason } => {
            format!("FAIL {} {} {}", fence.0, at.0, counted(reason))
        }
        Change::Complete { fence, done } => {
            format!(
                "COMPLETE {} {}",
                or_none(fence.map(|fence| fence.0)),
                completion(done)
            )
        }
        Change::Record(record) => {
            let reason = match &record.reason {
                None => "NONE".to_owned(),
                Some(Reason::Lapsed) => "lapsed".to_owned(),
                Some(Reason::Revoked) => "revoked".to_owned(),
                Some(Reason::Given(reason)) => counted(reason),
            };
            format!(
                "RECORD {} {} {reason} {} {}",
                record.attempts,
                record.touched.0,
                or_none(record.late.as_ref().map(token)),
                or_none(record.done.as_ref().map(completion))
            )
        }
        Change::Place(place) => place_text(place),
        Change::Displaced(Displaced::Late(late)) => format!("DISPLACED {}", token(late)),
        numbers => plain_text(numbers),
    }
}

/// The name and the numbers of a change, read from its `Debug`.
fn plain_text(change: &Change) -> String {
    let debug = format!("{change:?}").to_uppercase();
    let mut words = debug.split(|c: char| !c.is_alphanumeric());
    let name = words.next().unwrap_or_default();
    let is_value = |word: &&str| *word == "NONE" || word.starts_with(|c: char| c.is_ascii_digit());
    let values: Vec<_> = words.filter(is_value).collect();
    [&[name], values.as_slice()].concat().join(" ")
}

fn place_text(place: &KeptPlace) -> String {
    let (attempts, lane_limit) = match place.claim {
        Claim::Run => (place.bound, None),
        _ => (None, place.bound),
    };
    format!(
        "PLACE {} {} {} {} {} {} {} {}{}{}",
        place.rank.0.0,
        claim_text(place.claim),
        lease_text(place.lease, place.min_hold),
        place.keep_ms,
        or_none(attempts),
        place.since.0,
        token(&place.token),
        counted(place.owner.as_deref().unwrap_or_default()),
        lane(&place.lane),
        lane_limit.map_or_else(String::new, |limit| format!(" at most {limit}"))
    )
}

fn lease_text(lease: LeaseMs, min_hold: Option<LeaseMs>) -> String {
    let min_hold = min_hold.map(|ms| format!("+{}", ms.0));
    format!("{}{}", lease.0, min_hold.unwrap_or_default())
}

/// What is said of a lane behind everything else.
fn lane(lane: &LaneName) -> String {
    match lane.is_nameless() {
        true => String::new(),
        false => format!(" in {}", lane.as_bytes().escape_ascii()),
    }
}

fn claim_text(claim: Claim) -> String {
    match claim {
        Claim::Exclusive => "exclusive".to_owned(),
        Claim::Shared => "shared".to_owned(),
        Claim::Member => "member".to_owned(),
        Claim::Run => "run".to_owned(),
        Claim::Permits(permits) => permits.to_string(),
        Claim::Indexed => "index".to_owned(),
    }
}

fn completion(done: &Completion) -> String {
    format!(
        "{} {} {}",
        done.keep_until.0,
        token(&done.token),
        or_none(done.result.as_deref().map(counted))
    )
}

fn token(token: &Token) -> String {
    counted(token.text(&mut new_token_buffer()))
}

fn counted(text: &[u8]) -> String {
    format!("{}:{}", text.len(), text.escape_ascii())
}

fn or_none(thing: Option<impl ToString>) -> String {
    thing.map_or_else(|| "NONE".to_owned(), |thing| thing.to_string())
}
