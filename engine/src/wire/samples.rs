//! For tests: values of every form, and bytes that its reader must refuse. The table makes a sample of each change of these,
//! so a new change is tested without a line in the tests.

use std::sync::Arc;

use super::fields::Writer;
use super::forms::{Early, Flagged, Form, How, Integer, Number, Secret, Text, Why};
use super::grants::PlaceForm;
use crate::change::{Change, End, KeptPlace, Reason};
use crate::short_bytes::LaneName;
use crate::types::{
    Claim, Family, Fence, LeaseMs, MAX_PERMITS, MAX_RESULT_LEN, Rank, Token, UnixMs,
};

/// How many samples of each change there are: one for each end of a hold. Most forms have fewer values, which repeat.
pub(super) const SAMPLES: usize = End::ALL.len();

/// A change of the table.
pub(crate) struct Sample {
    pub(crate) change: Change,
    /// The same with one field that its reader must refuse: out of bounds, of no kind, or cut short.
    pub(super) malformed: Vec<Vec<u8>>,
}

/// The bytes of a field, and others that must be refused in its place.
pub(super) struct Part {
    written: Vec<u8>,
    refused: Vec<Vec<u8>>,
}

pub(super) trait Sampled<T>: Form<T> {
    /// Returns the value with this number. `None` if keys of the family cannot have the field.
    fn sample(&self, family: Family, n: usize) -> Option<T>;

    fn refused(&self, family: Family) -> Vec<Vec<u8>>;

    fn part(&self, value: &T, family: Family) -> Part {
        let mut written = Vec::new();
        self.write(&mut Writer(&mut written), value);
        Part {
            written,
            refused: self.refused(family),
        }
    }
}

/// Returns all these parts in a row, with one of them refused in each of its ways.
pub(super) fn malformed(parts: &[Part]) -> Vec<Vec<u8>> {
    let join = |from: &[Part]| from.iter().flat_map(|part| part.written.clone()).collect();
    let mut all = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let (before, after): (Vec<u8>, Vec<u8>) = (join(&parts[..at]), join(&parts[at + 1..]));
        let refused = part.refused.iter();
        all.extend(refused.map(|bytes| [&before[..], bytes, &after].concat()));
    }
    all
}

fn number(n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer(&mut bytes).number(n);
    bytes
}

impl<T: Integer> Sampled<T> for Number {
    fn sample(&self, _: Family, n: usize) -> Option<T> {
        T::of([self.0, self.1][n % 2])
    }

    fn refused(&self, _: Family) -> Vec<Vec<u8>> {
        let outside = [self.0.checked_sub(1), self.1.checked_add(1)];
        outside.into_iter().flatten().map(number).collect()
    }
}

impl<T: Integer> Sampled<Option<T>> for Number {
    fn sample(&self, _: Family, n: usize) -> Option<Option<T>> {
        match n % 3 {
            0 => Some(None),
            nth => T::of([self.0, self.1][nth - 1]).map(Some),
        }
    }

    fn refused(&self, _: Family) -> Vec<Vec<u8>> {
        // With `option`, `n` is written as `n + 1`, and 0 is nothing.
        let below = Some(self.0).filter(|least| *least > 0);
        let outside = [below, self.1.checked_add(2)];
        outside.into_iter().flatten().map(number).collect()
    }
}

impl Sampled<End> for How {
    fn sample(&self, family: Family, n: usize) -> Option<End> {
        let (how, _) = End::ALL[n % End::ALL.len()];
        (how != End::Rested || family.has_rests()).then_some(how)
    }

    fn refused(&self, family: Family) -> Vec<Vec<u8>> {
        let rested = (!family.has_rests()).then_some(End::Rested as u64);
        let unknown = End::ALL.len() as u64;
        rested.into_iter().chain([unknown]).map(number).collect()
    }
}

impl Sampled<End> for Early {
    fn sample(&self, family: Family, n: usize) -> Option<End> {
        let how = How.sample(family, n)?;
        (how.may_rest() && family.has_rests()).then_some(how)
    }

    fn refused(&self, family: Family) -> Vec<Vec<u8>> {
        let never = End::ALL.iter().filter(|(how, _)| !how.may_rest());
        let never = never.map(|(how, _)| number(*how as u64));
        never.chain(How.refused(family)).collect()
    }
}

const UUID: &[u8] = b"8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59";

impl Sampled<Token> for Secret {
    fn sample(&self, _: Family, n: usize) -> Option<Token> {
        Token::parse([&b"t"[..], UUID, &[b'x'; Token::MAX_LEN]][n % 3])
    }

    fn refused(&self, _: Family) -> Vec<Vec<u8>> {
        let of_len = |len: usize| [number(len as u64), vec![b'x'; len]].concat();
        let uuid = [number(UUID.len() as u64), UUID.to_vec()].concat();
        // A UUID has a shorter form.
        vec![of_len(Token::MAX_LEN + 1), uuid]
    }
}

impl Sampled<Arc<[u8]>> for Text {
    fn sample(&self, _: Family, n: usize) -> Option<Arc<[u8]>> {
        Some([&b""[..], b"no \0\r\n\xff disk", &[b'r'; 300]][n % 3].into())
    }

    fn refused(&self, _: Family) -> Vec<Vec<u8>> {
        vec![number(MAX_RESULT_LEN as u64 + 1)]
    }
}

impl Sampled<Option<Arc<[u8]>>> for Text {
    fn sample(&self, family: Family, n: usize) -> Option<Option<Arc<[u8]>>> {
        match n % 4 {
            0 => Some(None),
            nth => Text.sample(family, nth).map(Some),
        }
    }

    fn refused(&self, _: Family) -> Vec<Vec<u8>> {
        vec![number(MAX_RESULT_LEN as u64 + 2)]
    }
}

impl Sampled<Option<Reason>> for Why {
    fn sample(&self, family: Family, n: usize) -> Option<Option<Reason>> {
        Some(match n % 4 {
            0 => None,
            1 => Some(Reason::Lapsed),
            2 => Some(Reason::Revoked),
            _ => Some(Reason::Given(Text.sample(family, n)?)),
        })
    }

    fn refused(&self, _: Family) -> Vec<Vec<u8>> {
        vec![number(4)]
    }
}

impl<T, F: Sampled<T>> Sampled<Option<T>> for Flagged<F> {
    fn sample(&self, family: Family, n: usize) -> Option<Option<T>> {
        match n % 2 {
            0 => Some(None),
            _ => self.0.sample(family, n / 2).map(Some),
        }
    }

    fn refused(&self, family: Family) -> Vec<Vec<u8>> {
        let value = self.0.refused(family).into_iter();
        let value = value.map(|bytes| [number(1), bytes].concat());
        value.chain([number(2)]).collect()
    }
}

/// The tests have more of these, and what is refused of them, because their fields depend on flags.
impl Sampled<KeptPlace> for PlaceForm {
    fn sample(&self, family: Family, n: usize) -> Option<KeptPlace> {
        if self.has_options && !family.has_rests() {
            return None;
        }
        let claims = match family {
            Family::Lock => [Claim::Exclusive, Claim::Shared],
            Family::Semaphore => [Claim::Permits(1), Claim::Permits(MAX_PERMITS)],
            Family::Group => [Claim::Member; 2],
            Family::Once => [Claim::Run; 2],
        };
        Some(KeptPlace {
            rank: Rank(Fence(9)),
            token: Secret.sample(family, n)?,
            claim: claims[n % 2],
            lease: LeaseMs(30_000),
            min_hold: self.has_options.then_some(LeaseMs::MAX),
            keep_ms: 60_000,
            bound: (family == Family::Once && n % 2 == 1).then_some(u32::MAX),
            owner: (n % 2 == 1).then(|| b"\xffo"[..].into()),
            since: UnixMs(8),
            lane: LaneName::default(),
        })
    }

    fn refused(&self, _: Family) -> Vec<Vec<u8>> {
        Vec::new()
    }
}
