//! Patterns for texts, written as for KEYS: `*`, `?`, `[a-z]`, `[^a-z]`, and `\` before a character that stands for
//! itself.
//!
//! A match takes a few instructions for each byte of the text, whatever the pattern. The server does not offer its own
//! matching to modules. It would also take up to as many steps as the product of both lengths, and some versions
//! exponentially many (CVE-2022-36021).
//!
//! How it works: a *place* is the number of elements (characters, `?` and classes) that a beginning of the text has
//! matched. The set of all places that are possible is one number with a bit for each, and one byte of the text moves
//! all of them at once. A star is no element: the text may pass bytes at its place without moving on.

use dsync_engine::types::MAX_OWNER_LEN;

/// A set of places, without place 0. Bit `n` is place `n + 1`.
type Places = u128;

/// The most elements, and so the longest text that a pattern can match. An owner is no longer.
const MAX_ELEMENTS: usize = Places::BITS as usize;
const _: () = assert!(MAX_OWNER_LEN <= MAX_ELEMENTS);

/// A pattern that was read.
pub(super) struct Glob {
    /// For each byte, the places that it leads to from the place before.
    leads_to: Box<[Places; 256]>,
    /// The places with a star behind them.
    stars: Places,
    /// The pattern begins with a star.
    star_first: bool,
    elements: usize,
}

impl Glob {
    pub(super) fn new(pattern: &[u8]) -> Glob {
        let mut glob = Glob {
            leads_to: Box::new([0; 256]),
            stars: 0,
            star_first: false,
            elements: 0,
        };
        let mut rest = pattern;
        while let [first, behind @ ..] = rest {
            rest = behind;
            match first {
                b'*' => glob.add_star(),
                b'?' => glob.add_element(|_| true),
                b'[' => {
                    let (class, behind) = Class::read(rest);
                    rest = behind;
                    glob.add_element(|byte| class.has(byte));
                }
                b'\\' if !rest.is_empty() => {
                    let escaped = rest[0];
                    rest = &rest[1..];
                    glob.add_element(|byte| byte == escaped);
                }
                plain => glob.add_element(|byte| byte == *plain),
            }
        }
        glob
    }

    fn add_star(&mut self) {
        match self.elements {
            0 => self.star_first = true,
            n if n <= MAX_ELEMENTS => self.stars |= 1 << (n - 1),
            _ => {}
        }
    }

    fn add_element(&mut self, fits: impl Fn(u8) -> bool) {
        if self.elements < MAX_ELEMENTS {
            for byte in 0..=u8::MAX {
                self.leads_to[usize::from(byte)] |= Places::from(fits(byte)) << self.elements;
            }
        }
        self.elements += 1;
    }

    /// Whether the whole text fits the pattern.
    pub(super) fn fits(&self, text: &[u8]) -> bool {
        let mut at_start = true;
        let mut places: Places = 0;
        for byte in text {
            let next = places << 1 | Places::from(at_start);
            places = next & self.leads_to[usize::from(*byte)] | places & self.stars;
            at_start &= self.star_first;
        }
        match self.elements {
            0 => at_start,
            n if n <= MAX_ELEMENTS => places >> (n - 1) & 1 == 1,
            _ => false,
        }
    }
}

/// The characters between `[` and `]`.
struct Class {
    /// One bit for each byte.
    bytes: [u128; 2],
    /// `[^`: all others.
    is_negated: bool,
}

impl Class {
    /// Reads what stands behind `[`. Returns the class and the rest of the pattern. As in KEYS, the end of the pattern
    /// also ends a class, and the bounds of a range may stand in either order.
    fn read(pattern: &[u8]) -> (Class, &[u8]) {
        let (is_negated, mut rest) = match pattern {
            [b'^', behind @ ..] => (true, behind),
            _ => (false, pattern),
        };
        let mut class = Class {
            bytes: [0; 2],
            is_negated,
        };
        loop {
            let (from, to);
            (from, to, rest) = match rest {
                [] => return (class, rest),
                [b'\\', escaped, behind @ ..] => (*escaped, *escaped, behind),
                [b']', behind @ ..] => return (class, behind),
                [from, b'-', to, behind @ ..] => (*from.min(to), *from.max(to), behind),
                [plain, behind @ ..] => (*plain, *plain, behind),
            };
            for byte in from..=to {
                class.bytes[usize::from(byte / 128)] |= 1 << (byte % 128);
            }
        }
    }

    fn has(&self, byte: u8) -> bool {
        let is_in = self.bytes[usize::from(byte / 128)] >> (byte % 128) & 1 == 1;
        is_in != self.is_negated
    }
}

/// The naive way: try every number of bytes for a star.
#[cfg(any(test, fuzzing))]
pub(super) fn fits_naively(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], text) => text.is_empty(),
        ([b'*', rest @ ..], text) => (0..=text.len()).any(|n| fits_naively(rest, &text[n..])),
        ([first, rest @ ..], [byte, text @ ..]) => {
            (*first == b'?' || first == byte) && fits_naively(rest, text)
        }
        (_, []) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Glob, fits_naively};

    #[test]
    fn glob_fits_what_keys_would_list() {
        for (pattern, fitting, others) in [
            ("", &[""][..], &["a"][..]),
            ("*", &["", "a", "web-1"], &[]),
            ("**", &["", "a"], &[]),
            ("?", &["a", "*"], &["", "ab"]),
            ("a?c", &["abc", "a?c"], &["ac", "abbc"]),
            (
                "web-*",
                &["web-", "web-1", "web-1/241"],
                &["web", "wob-1", "aweb-1"],
            ),
            ("*-1", &["-1", "web-1", "web-1-1"], &["web-11", "web-1 "]),
            ("*a*b*", &["ab", "xaxbx", "aab", "abab"], &["ba", "a", "b"]),
            ("*aab", &["aab", "aaab", "aabaab"], &["aaba", "ab"]),
            ("[abc]", &["a", "b", "c"], &["", "d", "ab"]),
            ("[a-c]x", &["ax", "bx", "cx"], &["dx", "-x"]),
            ("[c-a]", &["a", "b", "c"], &["d"]),
            ("[^a-c]", &["d", "-", "^"], &["a", "b", "c", ""]),
            ("[a^]", &["a", "^"], &["b"]),
            ("[\\]]", &["]"], &["\\", "["]),
            ("[\\a-c]", &["a", "-", "c"], &["b", "\\"]),
            ("[a-]", &["a", "]", "_"], &["-", "b"]),
            ("[a", &["a"], &["b", "[a"]),
            ("[]a", &[], &["", "a", "]a"]),
            ("[^]a", &["xa", "]a"], &["a"]),
            ("[", &[], &["", "["]),
            ("\\*", &["*"], &["a", "\\*"]),
            ("a\\", &["a\\"], &["a"]),
            ("\\a", &["a"], &["\\a"]),
        ] {
            let glob = Glob::new(pattern.as_bytes());
            for text in fitting {
                assert!(glob.fits(text.as_bytes()), "{text:?} fits {pattern:?}");
            }
            for text in others {
                assert!(
                    !glob.fits(text.as_bytes()),
                    "{text:?} does not fit {pattern:?}"
                );
            }
        }
    }

    #[test]
    fn glob_of_every_length_fits_exactly() {
        for len in [0, 1, 2, 127, 128] {
            let text = vec![b'x'; len];
            for (pattern, fits) in [
                (vec![b'x'; len], true),
                (vec![b'?'; len], true),
                ([&text[..], b"*"].concat(), true),
                ([b"*", &text[..]].concat(), true),
                (vec![b'x'; len + 1], false),
                ([b"*", &text[..], b"?"].concat(), false),
            ] {
                let glob = Glob::new(&pattern);
                assert_eq!(
                    glob.fits(&text),
                    fits,
                    "{} for {len}",
                    pattern.escape_ascii()
                );
            }
        }
        for long in [vec![b'?'; 1_000], [&[b'?'; 129][..], b"*"].concat()] {
            let fits = Glob::new(&long).fits(&[b'x'; 128]);
            assert!(!fits, "more elements than a text has bytes");
        }
    }

    #[test]
    fn glob_agrees_with_trying_everything() {
        let all = |letters: &[u8], len: u32| -> Vec<Vec<u8>> {
            let count = letters.len().pow(len);
            let word = |n: usize| {
                (0..len).map(move |at| letters[n / letters.len().pow(at) % letters.len()])
            };
            (0..count).map(|n| word(n).collect()).collect()
        };
        let texts: Vec<_> = (0..=5).flat_map(|len| all(b"ab", len)).collect();
        for pattern in (0..=5).flat_map(|len| all(b"ab*?", len)) {
            let glob = Glob::new(&pattern);
            for text in &texts {
                let expected = fits_naively(&pattern, text);
                let (pattern, shown) = (pattern.escape_ascii(), text.escape_ascii());
                assert_eq!(glob.fits(text), expected, "{shown} and {pattern}");
            }
        }
    }
}
