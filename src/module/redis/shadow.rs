//! The shadow name: where the waiters of a key are parked.
//!
//! A parked client is redirected when the slot of the name it waits on moves, and looked at
//! whenever that name is created. So it waits on a name that nobody creates in the key's own slot:
//! the same hash tag, or the whole key as one. A key that no tag can express (empty, or with a `}`
//! and no tag) stands for itself; its waiters are looked at and left parked when it is created.

use super::hash_slot::hash_tag;

/// Not text that anyone would choose, and no brace.
const PREFIX: &[u8] = b"\0dsync:waiting:";

/// Writes the shadow name of `key` to `out`.
pub(crate) fn shadow_name(key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    match hash_tag(key).or_else(|| as_tag(key)) {
        Some(tag) => {
            for part in [PREFIX, b"{", tag, b"}"] {
                out.extend_from_slice(part);
            }
        }
        None => out.extend_from_slice(key),
    }
}

/// The whole key, where it can stand between braces.
fn as_tag(key: &[u8]) -> Option<&[u8]> {
    (!key.is_empty() && !key.contains(&b'}')).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::super::hash_slot::slot;
    use super::shadow_name;

    fn shadow(key: &[u8]) -> Vec<u8> {
        let mut out = b"left over".to_vec();
        shadow_name(key, &mut out);
        out
    }

    #[test]
    fn the_shadow_is_in_the_slot_of_its_key() {
        let letters = b"{}ab";
        for len in 0..=5u32 {
            for mut number in 0..letters.len().pow(len) {
                let mut key = Vec::new();
                for _ in 0..len {
                    key.push(letters[number % letters.len()]);
                    number /= letters.len();
                }
                assert_eq!(
                    slot(&shadow(&key)),
                    slot(&key),
                    "{:?}",
                    String::from_utf8_lossy(&key)
                );
            }
        }
    }

    #[test]
    fn the_shadow_is_another_name_wherever_a_tag_can_say_it() {
        for key in ["a", "{a}b", "x{a}b{c}", "a{b", "{", "{a}}"] {
            assert_ne!(shadow(key.as_bytes()), key.as_bytes(), "{key}");
        }
        for key in ["", "}", "a}b", "{}", "{}a"] {
            assert_eq!(shadow(key.as_bytes()), key.as_bytes(), "{key}");
        }
    }
}
