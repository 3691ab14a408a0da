//! What the server tells subscribers: keyspace notifications, and the announcement of a kept place's turn on the channel
//! of the place.
//!
//! In a cluster the channel must be in the slot of its key, because the server sends messages of a shard channel only to
//! the nodes of that slot, and clients are redirected by the channel as by a key. So the channel contains the key with
//! its hash tag, or the whole key as the tag. If no tag can express the key, a tag of the same slot stands before it.
//!
//! Every channel begins with the prefix, also that of the oddest key, because an ACL permits channels by it. The number at
//! the end makes the channel unique, whatever the key is.

use std::ffi::CStr;

use redis_module::raw;

use super::api::required;
use super::context::Ctx;
use super::hash_slot::{as_tag, hash_tag, slot, tag_in};
use super::key::assert_none_open;
use super::name::KeyString;

/// What the channels of all places begin with, so that one pattern and one ACL rule cover them.
const PREFIX: &[u8] = b"dsync:";

impl Ctx<'_> {
    /// Returns the channel of the place with this number.
    pub(crate) fn channel(self, key: &[u8], number: u64) -> Vec<u8> {
        channel(key, number, || self.facts().cluster())
    }
}

fn channel(key: &[u8], number: u64, in_cluster: impl FnOnce() -> bool) -> Vec<u8> {
    let number = number.to_string();
    let number = number.as_bytes();
    if hash_tag(key).is_some() {
        [PREFIX, key, b":", number].concat()
    } else if as_tag(key).is_none() && in_cluster() {
        [PREFIX, b"{", &tag_in(slot(key)), b"}", key, b":", number].concat()
    } else {
        [PREFIX, b"{", key, b"}:", number].concat()
    }
}

impl Ctx<'_> {
    /// Sends a keyspace notification of class `d` for a key of the selected database.
    ///
    /// # Panics
    /// If a key is open, because other modules get the notification and may change the key.
    pub(crate) fn notify(self, event: &CStr, name: &KeyString) {
        assert_none_open();
        // SAFETY: the context and the string object are live, and the event is a C string.
        unsafe {
            required!(RedisModule_NotifyKeyspaceEvent)(
                self.raw(),
                raw::REDISMODULE_NOTIFY_MODULE,
                event.as_ptr(),
                name.raw(),
            )
        };
    }

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
                let channel = channel(&key, 17, || true);
                assert_eq!(slot(&channel), slot(&key), "{shown:?}");
                assert!(channel.starts_with(b"dsync:"), "{shown:?}");
            }
        }
    }

    #[test]
    fn channel_names_the_key_and_the_number() {
        for (key, expected) in [
            ("jobs", "dsync:{jobs}:17"),
            ("{eu}:jobs", "dsync:{eu}:jobs:17"),
            ("a{b", "dsync:{a{b}:17"),
        ] {
            for in_cluster in [false, true] {
                let channel = channel(key.as_bytes(), 17, || in_cluster);
                assert_eq!(channel, expected.as_bytes());
            }
        }
        for (key, alone) in [
            ("api:}deploy", "dsync:{api:}deploy}:17"),
            ("{}a", "dsync:{{}a}:17"),
            ("", "dsync:{}:17"),
        ] {
            assert_eq!(channel(key.as_bytes(), 17, || false), alone.as_bytes());
            let tagged = channel(key.as_bytes(), 17, || true);
            let (tag, rest) = tagged.split_at("dsync:{abcd}".len());
            assert_eq!(rest, format!("{key}:17").as_bytes());
            assert!(
                tag.starts_with(b"dsync:{") && tag.ends_with(b"}"),
                "{tag:?}"
            );
        }
    }
}
