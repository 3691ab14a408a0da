//! A state as a sequence of numbers and byte strings: what RDB files, DUMP payloads and digests hold.
//!
//! Written by version, read with distrust: every field against its bounds, every hold against the
//! rules of its family, and a magic number at the end, for a payload that was cut short can decode by
//! chance. Nothing is allocated by a count that was read.
//!
//! Connections, the lease clock and the queue are not in it; see [`super::change`] for why.

use super::change::{Change, Limits, Tally};
use super::hold::{Grant, Hold};
use super::once::{Completion, Reason, Record};
use super::types::{
    Claim, Fence, LeaseMs, MAX_OWNER_LEN, MAX_PERMITS, MAX_RESULT_LEN, Token, UnixMs,
    new_token_buffer,
};
use super::{Body, Family};

/// The version this engine writes.
pub const VERSION: u32 = 1;

/// Ends every snapshot.
const MAGIC: u64 = 0x6473_796e_632e_656f;

/// The payload is cut short, or out of its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

pub trait Sink {
    fn number(&mut self, n: u64);
    fn bytes(&mut self, bytes: &[u8]);
}

pub trait Source {
    /// # Errors
    /// When there is no number here.
    fn number(&mut self) -> Result<u64, Malformed>;
    /// # Errors
    /// When there are no bytes here, or more than `most`.
    fn bytes(&mut self, most: usize) -> Result<Box<[u8]>, Malformed>;
}

pub fn save(body: &Body, to: &mut impl Sink) {
    match body {
        Body::Lock(_) => {}
        Body::Semaphore(semaphore) => {
            let limits = semaphore.limits();
            save_option(limits.limit.map(u64::from), to);
            save_option(limits.pinned.map(u64::from), to);
            to.number(limits.changes);
        }
        Body::Group(group) => {
            let tally = group.tally();
            save_option(tally.limit.map(u64::from), to);
            to.number(tally.limit_changes);
            save_option(tally.expected.map(u64::from), to);
            to.number(tally.done);
            to.number(tally.lost);
            to.number(tally.touched.0);
            save_option(tally.finished.map(|at| at.0), to);
        }
        Body::Once(once) => save_record(once.record(), to),
    }
    to.number(body.holds().len() as u64);
    body.holds().iter().for_each(|hold| save_hold(hold, to));
    to.number(MAGIC);
}

fn save_record(record: &Record, to: &mut impl Sink) {
    to.number(record.attempts);
    to.number(record.touched.0);
    match &record.reason {
        None => to.number(0),
        Some(Reason::Lapsed) => to.number(1),
        Some(Reason::Revoked) => to.number(2),
        Some(Reason::Given(text)) => {
            to.number(3);
            to.bytes(text);
        }
    }
    // No token is empty.
    match &record.late {
        None => to.bytes(b""),
        Some(token) => to.bytes(token.text(&mut new_token_buffer())),
    }
    to.number(u64::from(record.done.is_some()));
    if let Some(done) = &record.done {
        to.bytes(done.token.text(&mut new_token_buffer()));
        to.number(done.keep_until.0);
        to.number(u64::from(done.result.is_some()));
        to.bytes(done.result.as_deref().unwrap_or_default());
    }
}

fn load_record(from: &mut impl Source) -> Result<Record, Malformed> {
    Ok(Record {
        attempts: from.number()?,
        touched: moment(from)?,
        reason: match from.number()? {
            0 => None,
            1 => Some(Reason::Lapsed),
            2 => Some(Reason::Revoked),
            3 => Some(Reason::Given(from.bytes(MAX_RESULT_LEN)?.into())),
            _ => return Err(Malformed),
        },
        late: match &*from.bytes(Token::MAX_LEN)? {
            [] => None,
            text => Some(Token::parse(text).ok_or(Malformed)?),
        },
        done: if within(from.number()?, 0, 1)? == 1 {
            Some(load_completion(from)?)
        } else {
            None
        },
    })
}

fn load_completion(from: &mut impl Source) -> Result<Completion, Malformed> {
    let token = Token::parse(&from.bytes(Token::MAX_LEN)?).ok_or(Malformed)?;
    let keep_until = moment(from)?;
    let given = within(from.number()?, 0, 1)? == 1;
    let result = from.bytes(MAX_RESULT_LEN)?;
    Ok(Completion {
        token,
        result: given.then(|| result.into()),
        keep_until,
    })
}

fn save_hold(hold: &Hold, to: &mut impl Sink) {
    let grant = hold.to_grant();
    to.number(grant.fence.0);
    to.bytes(grant.token.text(&mut new_token_buffer()));
    to.number(match grant.claim {
        Claim::Exclusive => 0,
        Claim::Shared => 1,
        Claim::Member | Claim::Run => 1,
        Claim::Permits(n) => u64::from(n),
    });
    to.number(u64::from(grant.lease.0));
    to.number(grant.deadline.0);
    to.number(grant.granted.0);
    to.number(u64::from(grant.renewed));
    to.bytes(grant.owner.as_deref().unwrap_or_default());
}

/// None is 0, and everything else one more than it is.
fn save_option(n: Option<u64>, to: &mut impl Sink) {
    to.number(n.map_or(0, |n| n + 1));
}

/// # Errors
/// For whatever [`save`] would not have written.
pub fn load(family: Family, version: u32, from: &mut impl Source) -> Result<Body, Malformed> {
    if version != VERSION {
        return Err(Malformed);
    }
    let mut body = Body::new(family);
    let scalars = match family {
        Family::Lock => None,
        Family::Semaphore => Some(Change::Limits(Limits {
            limit: small_option(from, 1, MAX_PERMITS)?,
            pinned: small_option(from, 0, MAX_PERMITS)?,
            changes: from.number()?,
        })),
        Family::Group => Some(Change::Tally(Tally {
            limit: small_option(from, 1, MAX_PERMITS)?,
            limit_changes: from.number()?,
            expected: small_option(from, 1, MAX_PERMITS)?,
            done: from.number()?,
            lost: from.number()?,
            touched: moment(from)?,
            finished: option(from, UnixMs::MAX.0)?.map(UnixMs),
        })),
        Family::Once => Some(Change::Record(load_record(from)?)),
    };
    let mut last = Fence(0);
    for _ in 0..from.number()? {
        let grant = load_grant(family, from)?;
        if grant.fence <= last {
            return Err(Malformed);
        }
        last = grant.fence;
        body.apply(&Change::Grant(grant)).map_err(|_| Malformed)?;
    }
    if let Some(scalars) = scalars {
        let over = match &scalars {
            Change::Tally(tally) => tally.finished.is_some(),
            Change::Record(record) => record.done.is_some(),
            _ => false,
        };
        if over && !body.holds().is_empty() {
            return Err(Malformed);
        }
        body.apply(&scalars).map_err(|_| Malformed)?;
    }
    if from.number()? != MAGIC {
        return Err(Malformed);
    }
    Ok(body)
}

fn load_grant(family: Family, from: &mut impl Source) -> Result<Grant, Malformed> {
    let fence = Fence(within(from.number()?, 1, Fence::MAX.0)?);
    let token = Token::parse(&from.bytes(Token::MAX_LEN)?).ok_or(Malformed)?;
    let claim = match (family, from.number()?) {
        (Family::Lock, 0) => Claim::Exclusive,
        (Family::Lock, 1) => Claim::Shared,
        (Family::Group, 1) => Claim::Member,
        (Family::Once, 1) => Claim::Run,
        (Family::Semaphore, n) => Claim::Permits(small(n, 1, MAX_PERMITS)?),
        (Family::Lock | Family::Group | Family::Once, _) => return Err(Malformed),
    };
    Ok(Grant {
        fence,
        token,
        claim,
        lease: LeaseMs(small(from.number()?, 1, LeaseMs::MAX.0)?),
        deadline: moment(from)?,
        granted: moment(from)?,
        renewed: within(from.number()?, 0, 1)? == 1,
        owner: Some(from.bytes(MAX_OWNER_LEN)?).filter(|owner| !owner.is_empty()),
    })
}

fn moment(from: &mut impl Source) -> Result<UnixMs, Malformed> {
    within(from.number()?, 0, UnixMs::MAX.0).map(UnixMs)
}

fn option(from: &mut impl Source, most: u64) -> Result<Option<u64>, Malformed> {
    match from.number()? {
        0 => Ok(None),
        n => within(n - 1, 0, most).map(Some),
    }
}

fn small_option(from: &mut impl Source, least: u32, most: u32) -> Result<Option<u32>, Malformed> {
    let n = option(from, u64::from(most))?;
    n.map(|n| small(n, least, most)).transpose()
}

fn small(n: u64, least: u32, most: u32) -> Result<u32, Malformed> {
    u32::try_from(within(n, u64::from(least), u64::from(most))?).map_err(|_| Malformed)
}

fn within(n: u64, least: u64, most: u64) -> Result<u64, Malformed> {
    if (least..=most).contains(&n) {
        Ok(n)
    } else {
        Err(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Debug)]
    enum Item {
        Number(u64),
        Bytes(Vec<u8>),
    }

    #[derive(Default)]
    struct Tape(Vec<Item>);

    impl Sink for Tape {
        fn number(&mut self, n: u64) {
            self.0.push(Item::Number(n));
        }
        fn bytes(&mut self, bytes: &[u8]) {
            self.0.push(Item::Bytes(bytes.to_vec()));
        }
    }

    impl Source for std::vec::IntoIter<Item> {
        fn number(&mut self) -> Result<u64, Malformed> {
            match self.next() {
                Some(Item::Number(n)) => Ok(n),
                _ => Err(Malformed),
            }
        }
        fn bytes(&mut self, most: usize) -> Result<Box<[u8]>, Malformed> {
            match self.next() {
                Some(Item::Bytes(bytes)) if bytes.len() <= most => Ok(bytes.into()),
                _ => Err(Malformed),
            }
        }
    }

    fn tape(body: &Body) -> Vec<Item> {
        let mut tape = Tape::default();
        save(body, &mut tape);
        tape.0
    }

    fn read(family: Family, tape: Vec<Item>) -> Result<Body, Malformed> {
        load(family, VERSION, &mut tape.into_iter())
    }

    fn grant(fence: u64, claim: Claim) -> Change {
        Change::Grant(Grant {
            fence: Fence(fence),
            token: Token::parse(format!("token {fence}").as_bytes()).expect("legal"),
            claim,
            lease: LeaseMs(5),
            deadline: UnixMs(6),
            granted: UnixMs(7),
            renewed: true,
            owner: Some(b"o".as_slice().into()),
        })
    }

    fn bodies() -> Vec<Body> {
        let tally = |finished| Tally {
            limit: Some(1),
            limit_changes: 2,
            expected: None,
            done: u64::MAX,
            lost: 4,
            touched: UnixMs(5),
            finished,
        };
        let done = |result: Option<&[u8]>| Completion {
            token: Token::parse(b"winner").expect("legal"),
            result: result.map(Into::into),
            keep_until: UnixMs(9),
        };
        let record = |reason, done: Option<Completion>| Record {
            attempts: 3,
            reason,
            late: done
                .is_none()
                .then(|| Token::parse(b"late").expect("legal")),
            done,
            touched: UnixMs(4),
        };
        let given = Reason::Given(b"disk full".as_slice().into());
        let limits = Limits {
            limit: None,
            pinned: Some(0),
            changes: 9,
        };
        [
            (Family::Lock, vec![grant(1, Claim::Exclusive)]),
            (
                Family::Lock,
                vec![grant(1, Claim::Shared), grant(9, Claim::Shared)],
            ),
            (
                Family::Semaphore,
                vec![
                    Change::Limits(limits),
                    grant(3, Claim::Permits(MAX_PERMITS)),
                ],
            ),
            (
                Family::Group,
                vec![grant(2, Claim::Member), Change::Tally(tally(None))],
            ),
            (Family::Group, vec![Change::Tally(tally(Some(UnixMs(1))))]),
            (
                Family::Once,
                vec![
                    grant(4, Claim::Run),
                    Change::Record(record(Some(Reason::Lapsed), None)),
                ],
            ),
            (
                Family::Once,
                vec![Change::Record(record(None, Some(done(None))))],
            ),
            (
                Family::Once,
                vec![Change::Record(record(Some(given), Some(done(Some(b"r")))))],
            ),
        ]
        .into_iter()
        .map(|(family, changes)| {
            let mut body = Body::new(family);
            for change in changes {
                body.apply(&change).expect("fits");
            }
            body
        })
        .collect()
    }

    #[test]
    fn what_is_saved_is_loaded() {
        for body in bodies() {
            let saved = tape(&body);
            let loaded = read(body.family(), saved.clone()).expect("well-formed");
            assert_eq!(tape(&loaded), saved, "{:?}", body.family());
        }
    }

    #[test]
    fn what_is_rewritten_as_changes_comes_out_equal() {
        for body in bodies() {
            let mut copy = Body::new(body.family());
            body.as_changes().for_each(|change| {
                copy.apply(&change).expect("fits");
            });
            assert_eq!(tape(&copy), tape(&body), "{:?}", body.family());
        }
    }

    #[test]
    fn a_payload_cut_anywhere_is_refused() {
        for body in bodies() {
            let saved = tape(&body);
            for kept in 0..saved.len() {
                let cut = saved.iter().take(kept).cloned().collect();
                assert!(
                    read(body.family(), cut).is_err(),
                    "{:?} cut to {kept}",
                    body.family()
                );
            }
        }
    }

    #[test]
    fn a_payload_with_any_number_blown_up_is_refused_or_still_sound() {
        for body in bodies() {
            let saved = tape(&body);
            for at in 0..saved.len() {
                for value in [0, 1, 1 << 33, 1 << 48, 1 << 53, u64::MAX] {
                    let mut bent = saved.clone();
                    bent[at] = Item::Number(value);
                    if let Ok(loaded) = read(body.family(), bent) {
                        loaded.check_invariants();
                    }
                }
            }
        }
    }

    #[test]
    fn two_exclusive_holds_are_refused() {
        let saved = tape(&bodies()[1]);
        // The count comes first, then eight fields a hold, of which the claim is the third.
        for at in [3, 11] {
            let mut bent = saved.clone();
            assert_eq!(
                std::mem::replace(&mut bent[at], Item::Number(0)),
                Item::Number(1)
            );
            assert!(read(Family::Lock, bent).is_err(), "number {at}");
        }
    }

    #[test]
    fn another_version_is_refused() {
        let saved = tape(&bodies()[0]);
        assert!(load(Family::Lock, VERSION + 1, &mut saved.into_iter()).is_err());
    }
}
