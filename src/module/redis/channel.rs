//! The channel on which the turn of a kept place is announced, and the message itself.
//!
//! In a cluster the channel must be in the slot of its key, because the server sends messages of a shard channel only to
//! the nodes of that slot, and clients are redirected by the channel as by a key. So the channel contains the key with
//! its hash tag, or the whole key as the tag. If no tag can express the key, the channel is the key itself.

use super::api::required;
use super::context::Ctx;
use super::hash_slot::{as_tag, hash_tag};
use super::name::KeyString;

/// What the channels of all places begin with, so that one pattern and one ACL rule cover them.
const PREFIX: &[u8] = b"dsync:";

/// Returns the channel of the place with this number.
pub(crate) fn channel(key: &[u8], number: u64) -> Vec<u8> {
    let number = number.to_string();
    let suffix = [b":", number.as_bytes()].concat();
    if hash_tag(key).is_some() {
        [PREFIX, key, &suffix].concat()
    } else if as_tag(key).is_some() {
        [PREFIX, b"{", key, b"}", &suffix].concat()
    } else {
        key.to_vec()
    }
}

impl Ctx<'_> {
    /// Sends a message to the subscribers of a channel: SPUBLISH in a cluster, PUBLISH elsewhere.
    ///
    /// The server writes a message at once to each subscriber's connection. So do not call this while that connection may
    /// be in the middle of a reply, as in MULTI.
    pub(crate) fn publish(self, channel: &[u8], message: &[u8], in_cluster: bool) {
        let (channel, message) = (KeyString::new(channel), KeyString::new(message));
        let publish = match in_cluster {
            true => required!(RedisModule_PublishMessageShard),
            false => required!(RedisModule_PublishMessage),
        };
        // SAFETY: the context and both string objects are live; the server takes its own references to the strings
        // where it keeps them.
        unsafe { publish(self.raw(), channel.raw(), message.raw()) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash_slot::slot;
    use super::channel;

    #[test]
    fn channel_is_in_the_slot_of_its_key() {
        let letters = b"{}a:";
        for len in 0..=5u32 {
            for mut number in 0..letters.len().pow(len) {
                let mut key = Vec::new();
                for _ in 0..len {
                    key.push(letters[number % letters.len()]);
                    number /= letters.len();
                }
                let shown = String::from_utf8_lossy(&key).into_owned();
                assert_eq!(slot(&channel(&key, 17)), slot(&key), "{shown:?}");
            }
        }
    }

    #[test]
    fn channel_names_the_key_and_the_number() {
        for (key, expected) in [
            ("jobs", "dsync:{jobs}:17"),
            ("{eu}:jobs", "dsync:{eu}:jobs:17"),
            ("a{b", "dsync:{a{b}:17"),
            ("a}b", "a}b"),
            ("{}a", "{}a"),
        ] {
            assert_eq!(channel(key.as_bytes(), 17), expected.as_bytes());
        }
    }
}
