//! A byte string that never changes, in 24 bytes.
//!
//! Guaranteed: up to 22 bytes cost no allocation and no second cache line. Longer strings (the name of a key may have
//! 512 MB) cost one allocation of their length. Equality and order are those of the bytes, so a `&[u8]` can be looked
//! up in a map keyed by names.
//!
//! Deliberately absent: changes in place, and any assumption that the bytes are text.
//!
//! Rejected: `Box<[u8]>` alone (16 bytes, but an allocation of at least 16 more and a pointer to follow for every
//! string); reference counting (a string has one owner, and a count is as large as most strings); and crates that fit
//! in one or two more bytes with unsafe code.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

use crate::heap;

/// The longest string that is stored without an allocation.
const INLINE_BYTES: usize = 22;

/// An owned byte string; see the header of this file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShortBytes(Repr);

/// The name of a key.
pub type KeyName = ShortBytes;

/// The name of a lane, of 1 to 128 bytes; empty for the lane of the requests that name none. Copies share one allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LaneName(Option<Arc<ShortBytes>>);

const _: () = assert!(size_of::<LaneName>() == 8);

impl LaneName {
    pub fn is_nameless(&self) -> bool {
        self.0.is_none()
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().map_or(&[], ShortBytes::as_bytes)
    }

    /// Returns the bytes on the heap, which all copies share.
    pub fn heap_bytes(&self) -> usize {
        let counts = 2 * size_of::<usize>();
        self.0.as_ref().map_or(0, |name| {
            heap::allocated(counts + size_of::<ShortBytes>()) + name.heap_bytes()
        })
    }
}

impl From<&[u8]> for LaneName {
    fn from(bytes: &[u8]) -> Self {
        ShortBytes::from(bytes).into()
    }
}

impl From<ShortBytes> for LaneName {
    fn from(name: ShortBytes) -> Self {
        LaneName((!name.as_bytes().is_empty()).then(|| Arc::new(name)))
    }
}

impl Borrow<[u8]> for LaneName {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// The length decides the variant, and the bytes after a short string are zero, so equal strings are equal here.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Repr {
    /// `len <= INLINE_BYTES`; the bytes after the string are zero.
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    /// Longer than `INLINE_BYTES`.
    Heap(Box<[u8]>),
}

const _: () = assert!(size_of::<ShortBytes>() == 24 && size_of::<Option<ShortBytes>>() == 24);

impl ShortBytes {
    /// Returns the parts, one after the other, as one string.
    #[inline]
    pub fn joined<const N: usize>(parts: [&[u8]; N]) -> Self {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut bytes = [0; INLINE_BYTES];
        let (Some(mut rest), Ok(short)) = (bytes.get_mut(..len), u8::try_from(len)) else {
            return Self::boxed(&parts);
        };
        for part in parts {
            let (start, end) = rest.split_at_mut(part.len());
            start.copy_from_slice(part);
            rest = end;
        }
        Self(Repr::Inline { len: short, bytes })
    }

    #[cold]
    fn boxed(parts: &[&[u8]]) -> Self {
        Self(Repr::Heap(parts.concat().into()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }

    /// Returns the bytes on the heap, besides the 24 of the value itself.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Heap(bytes) => heap::allocated(bytes.len()),
        }
    }

    /// Panics unless every comment of `Repr` holds.
    #[cfg(test)]
    fn check_invariants(&self) {
        match &self.0 {
            Repr::Inline { len, bytes } => {
                assert!(usize::from(*len) <= INLINE_BYTES, "{len} bytes inline");
                assert!(
                    bytes[usize::from(*len)..].iter().all(|byte| *byte == 0),
                    "rest not zero"
                );
            }
            Repr::Heap(bytes) => assert!(bytes.len() > INLINE_BYTES, "{} bytes boxed", bytes.len()),
        }
    }
}

impl From<&[u8]> for ShortBytes {
    fn from(bytes: &[u8]) -> Self {
        Self::joined([bytes])
    }
}

impl Borrow<[u8]> for ShortBytes {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialOrd for ShortBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Short strings are compared as numbers, which is several times faster than byte by byte.
impl Ord for ShortBytes {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Repr::Inline { len: a, bytes: x }, Repr::Inline { len: b, bytes: y }) => {
                as_numbers(x).cmp(&as_numbers(y)).then(a.cmp(b))
            }
            _ => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}

/// Returns numbers that have the order of the bytes. The second begins with the end of the first.
fn as_numbers(bytes: &[u8; INLINE_BYTES]) -> (Option<u128>, Option<u64>) {
    let (start, end) = (bytes.first_chunk(), bytes.last_chunk());
    let start = start.map(|start| u128::from_be_bytes(*start));
    (start, end.map(|end| u64::from_be_bytes(*end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn short(bytes: &[u8]) -> ShortBytes {
        let short = ShortBytes::from(bytes);
        short.check_invariants();
        short
    }

    #[test]
    fn short_bytes_of_every_length_keep_their_bytes() {
        for len in (0..=70).chain([254, 255, 256, 257, 65_535, 65_536, 1 << 20]) {
            let bytes: Vec<u8> = (0..len).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let string = short(&bytes);
            assert_eq!(string.as_bytes(), bytes, "{len} bytes");
            assert_eq!(
                string.heap_bytes(),
                if len <= 22 { 0 } else { heap::allocated(len) },
                "{len} bytes"
            );
            let copy = string.clone();
            drop(string);
            assert_eq!(copy.as_bytes(), bytes, "{len} bytes, cloned");
        }
    }

    #[test]
    fn name_of_a_lane_is_counted_with_its_references() {
        assert_eq!(LaneName::default().heap_bytes(), 0);
        assert_eq!(LaneName::from(b"short".as_slice()).heap_bytes(), 48);
        let long = LaneName::from([b'x'; 100].as_slice());
        assert_eq!(long.heap_bytes(), 48 + 112);
    }

    #[test]
    fn short_bytes_joined_are_all_parts_in_order() {
        for cut in 0..=30 {
            for len in cut..=30 {
                let bytes: Vec<u8> = (0..len).collect();
                let (first, rest) = bytes.split_at(usize::from(cut));
                let joined = ShortBytes::joined([first, &[], rest]);
                joined.check_invariants();
                assert_eq!(joined.as_bytes(), bytes, "{cut} of {len} bytes first");
            }
        }
    }

    #[test]
    fn short_bytes_compare_as_their_bytes() {
        // Zeros at the end are part of a string, 0xff is above all ASCII, a prefix sorts first, and
        // length decides nothing else: each on both sides of the border between inline and boxed.
        let mut all: Vec<Vec<u8>> = Vec::new();
        for len in [0, 1, 2, 21, 22, 23, 24, 40] {
            for fill in [0, b'a', 0xff] {
                for last in [0, 1, b'a', 0xff] {
                    let mut bytes = vec![fill; len];
                    if let Some(end) = bytes.last_mut() {
                        *end = last;
                    }
                    all.push(bytes);
                }
            }
        }
        for a in &all {
            for b in &all {
                assert_eq!(short(a) == short(b), a == b, "{a:?} {b:?}");
                assert_eq!(short(a).cmp(&short(b)), a.cmp(b), "{a:?} {b:?}");
                assert_eq!(
                    short(a).partial_cmp(&short(b)),
                    a.partial_cmp(b),
                    "{a:?} {b:?}"
                );
            }
        }
        let sorted: Vec<_> = all
            .iter()
            .cloned()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let strings: BTreeSet<_> = all.iter().map(|bytes| short(bytes)).collect();
        assert!(strings.iter().map(ShortBytes::as_bytes).eq(&sorted));
    }

    #[test]
    fn short_bytes_are_found_in_a_map_by_bytes() {
        let map: BTreeMap<ShortBytes, usize> =
            (0..64).map(|len| (short(&vec![b'k'; len]), len)).collect();
        for len in 0..64 {
            assert_eq!(map.get(vec![b'k'; len].as_slice()), Some(&len));
        }
        assert_eq!(map.get(b"absent".as_slice()), None);
    }
}
