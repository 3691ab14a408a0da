//! The name of a key as a state stores it: an owned byte string in 24 bytes.
//!
//! Guaranteed: names of up to 22 bytes, which most locks have, cost no allocation and no second cache line. Longer
//! names (a key may have 512 MB) cost exactly their length on the heap. Equality and order are those of the bytes, so a
//! `&[u8]` can be looked up in a map keyed by names.
//!
//! Deliberately absent: changes in place, and any assumption that a name is text: a name is bytes, and only `Debug`
//! escapes them.
//!
//! Rejected: `Box<[u8]>` alone (16 bytes, but an allocation of at least 16 more and a pointer to follow for every
//! name); reference counting (a name has one owner, and a count is as large as most names); and crates that fit in one
//! or two more bytes with unsafe code.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;

/// The longest name that is stored without an allocation.
const INLINE_BYTES: usize = 22;

/// An owned key name; see the header of this file.
#[derive(Clone)]
pub struct KeyName(Repr);

/// The length decides the variant, so equal names have equal variants.
#[derive(Clone)]
enum Repr {
    /// `len <= INLINE_BYTES`; the bytes after the name are zero.
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    /// Longer than `INLINE_BYTES`.
    Heap(Box<[u8]>),
}

const _: () = assert!(size_of::<KeyName>() == 24 && size_of::<Option<KeyName>>() == 24);

impl KeyName {
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }

    /// Returns the bytes on the heap, besides the 24 of the name itself.
    pub const fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Heap(bytes) => bytes.len(),
        }
    }

    /// Panics unless every comment of `Repr` holds.
    #[cfg(debug_assertions)]
    pub fn check_invariants(&self) {
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

impl From<&[u8]> for KeyName {
    fn from(name: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match (bytes.get_mut(..name.len()), u8::try_from(name.len())) {
            (Some(start), Ok(len)) => {
                start.copy_from_slice(name);
                Self(Repr::Inline { len, bytes })
            }
            _ => Self(Repr::Heap(name.into())),
        }
    }
}

impl Borrow<[u8]> for KeyName {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for KeyName {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for KeyName {}

impl PartialOrd for KeyName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn name(bytes: &[u8]) -> KeyName {
        let name = KeyName::from(bytes);
        name.check_invariants();
        name
    }

    #[test]
    fn key_name_of_every_length_keeps_its_bytes() {
        for len in (0..=70).chain([254, 255, 256, 257, 65_535, 65_536, 1 << 20]) {
            let bytes: Vec<u8> = (0..len).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let name = name(&bytes);
            assert_eq!(name.as_bytes(), bytes, "{len} bytes");
            assert_eq!(
                name.heap_bytes(),
                if len <= 22 { 0 } else { len },
                "{len} bytes"
            );
            let copy = name.clone();
            drop(name);
            assert_eq!(copy.as_bytes(), bytes, "{len} bytes, cloned");
        }
    }

    #[test]
    fn key_names_compare_as_their_bytes() {
        // Zeros at the end are part of a name, 0xff is above all ASCII, a prefix sorts first, and
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
                assert_eq!(name(a) == name(b), a == b, "{a:?} {b:?}");
                assert_eq!(name(a).cmp(&name(b)), a.cmp(b), "{a:?} {b:?}");
                assert_eq!(
                    name(a).partial_cmp(&name(b)),
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
        let names: BTreeSet<_> = all.iter().map(|bytes| name(bytes)).collect();
        assert!(names.iter().map(KeyName::as_bytes).eq(&sorted));
    }

    #[test]
    fn key_name_is_found_in_a_map_by_bytes() {
        let map: BTreeMap<KeyName, usize> =
            (0..64).map(|len| (name(&vec![b'k'; len]), len)).collect();
        for len in 0..64 {
            assert_eq!(map.get(vec![b'k'; len].as_slice()), Some(&len));
        }
        assert_eq!(map.get(b"absent".as_slice()), None);
    }

    #[test]
    fn key_name_debug_output_escapes_bytes() {
        assert_eq!(
            format!("{:?}", name(b"lock:\"\x00\xff\n")),
            r#""lock:\"\x00\xff\n""#
        );
    }
}
