//! The slot of a key: the server's own function, which the module API has only since Redis 7.4.

use crc::{CRC_16_XMODEM, Crc};

pub(crate) const SLOTS: u16 = 1 << 14;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

pub(crate) fn slot(key: &[u8]) -> u16 {
    CRC.checksum(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// A key in this slot. No hash tag fits into two bytes, so they stand for themselves.
///
/// A slot is a remainder of the bytes as a polynomial; these 16 steps divide by x where `slot` multiplies.
pub(crate) fn key_in(slot: u16) -> [u8; 2] {
    const XMODEM: u16 = 0x1021;
    let divide = |rest: u16| match rest & 1 {
        0 => rest >> 1,
        _ => (rest ^ XMODEM) >> 1 | 1 << 15,
    };
    (0..16).fold(slot, |rest, _| divide(rest)).to_be_bytes()
}

/// The part of the key that decides its slot (cluster.c, keyHashSlot): between the first `{` and
/// the first `}` after it.
pub(super) fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let inner = &key[open + 1..];
    let close = inner.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &inner[..close])
}

#[cfg(test)]
mod tests {
    use super::{SLOTS, key_in, slot};

    #[test]
    fn each_slot_has_its_key() {
        for number in 0..SLOTS {
            assert_eq!(slot(&key_in(number)), number);
        }
    }

    /// Slots as CLUSTER KEYSLOT gives them.
    #[test]
    fn the_slot_function_is_the_servers() {
        assert_eq!(slot(b"123456789"), 0x31c3 % super::SLOTS);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"{foo}bar"), 12182);
        assert_eq!(slot(b""), 0);
        for (key, same) in [
            (&b"x{foo}{bar}"[..], &b"foo"[..]),
            (b"{foo}}", b"foo"),
            (b"{{foo}", b"{foo"),
        ] {
            assert_eq!(slot(key), slot(same));
        }
        // Without a tag between the braces the whole key counts.
        assert_ne!(slot(b"a{}{foo}"), slot(b"foo"));
        assert_ne!(slot(b"{foo"), slot(b"foo"));
    }
}
