//! The shadow name of a key: the name that the key's waiters are parked on.
//!
//! The server redirects a parked client when the slot of that name moves, and calls the client's callback whenever a
//! key with that name is created. So the shadow name is in the key's own slot, and no client creates it: it has the
//! key's hash tag, or the whole key as the tag. If no tag can express the key (an empty one, or one with a `}` and no
//! tag), the shadow name is the key itself; when the key is created, its waiters' callbacks leave them parked.

use super::hash_slot::{as_tag, hash_tag};

/// Begins every shadow name that has a tag. A text that nobody would choose, without a brace.
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
    fn shadow_name_is_in_the_slot_of_its_key() {
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
    fn shadow_name_differs_from_the_key_if_a_tag_can_express_it() {
        for key in ["a", "{a}b", "x{a}b{c}", "a{b", "{", "{a}}"] {
            assert_ne!(shadow(key.as_bytes()), key.as_bytes(), "{key}");
        }
        for key in ["", "}", "a}b", "{}", "{}a"] {
            assert_eq!(shadow(key.as_bytes()), key.as_bytes(), "{key}");
        }
    }
}
