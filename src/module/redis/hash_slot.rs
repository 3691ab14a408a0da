//! Computes the slot of a key as the server does. The module API has a function for it only since Redis 7.4.

use crc::{CRC_16_XMODEM, Crc};

/// The number of slots of every cluster.
pub(crate) const SLOTS: u16 = 1 << 14;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

pub(crate) fn slot(key: &[u8]) -> u16 {
    CRC.checksum(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// Returns a key of two bytes in this slot. Two bytes have no room for a hash tag, so both count.
pub(crate) fn key_in(slot: u16) -> [u8; 2] {
    bytes_of(slot)
}

/// Returns a hash tag of this slot: four letters or digits.
///
/// The checksum is linear. So for any first two bytes there are four pairs of last bytes, one for each value of the two
/// bits that the slot leaves out. This tries first bytes until both last ones are letters or digits too, some fifty
/// times.
pub(super) fn tag_in(slot: u16) -> [u8; 4] {
    const FIRST: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
    let pairs = FIRST
        .iter()
        .flat_map(|a| FIRST.iter().map(move |b| (*a, *b)));
    let tags = pairs.flat_map(|(a, b)| {
        let begun = CRC.checksum(&[a, b, 0, 0]);
        (0..=u16::MAX / SLOTS).map(move |high| {
            let [c, d] = bytes_of(begun ^ (slot + high * SLOTS));
            [a, b, c, d]
        })
    });
    let is_plain = |tag: &[u8; 4]| tag.iter().all(u8::is_ascii_alphanumeric);
    // Every slot has one.
    tags.into_iter().find(is_plain).unwrap_or_default()
}

/// Returns the two bytes with this checksum.
///
/// The checksum is the remainder of a polynomial division of the bits. It multiplies by x for each bit; these 16 steps
/// divide by x for each bit, and so undo it.
fn bytes_of(checksum: u16) -> [u8; 2] {
    const XMODEM: u16 = 0x1021;
    let divide = |rest: u16| match rest & 1 {
        0 => rest >> 1,
        _ => (rest ^ XMODEM) >> 1 | 1 << 15,
    };
    (0..16).fold(checksum, |rest, _| divide(rest)).to_be_bytes()
}

/// The hash tag of the key, which alone decides its slot if there is one (cluster.c, keyHashSlot): what stands between
/// the first `{` and the first `}` after it, unless that is empty.
pub(super) fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let inner = &key[open + 1..];
    let close = inner.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &inner[..close])
}

/// The whole key, if it can be a hash tag: if it can stand between braces.
pub(super) fn as_tag(key: &[u8]) -> Option<&[u8]> {
    (!key.is_empty() && !key.contains(&b'}')).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::{SLOTS, key_in, slot, tag_in};

    #[test]
    fn key_in_returns_a_key_of_the_slot() {
        for number in 0..SLOTS {
            assert_eq!(slot(&key_in(number)), number);
        }
    }

    #[test]
    fn tag_in_returns_letters_and_digits_of_the_slot() {
        for number in 0..SLOTS {
            let tag = tag_in(number);
            assert!(tag.iter().all(u8::is_ascii_alphanumeric), "{tag:?}");
            assert_eq!(slot(&tag), number);
            assert_eq!(slot(&[b"{", &tag[..], b"}any"].concat()), number);
        }
    }

    /// The expected slots are those of CLUSTER KEYSLOT.
    #[test]
    fn slot_is_the_same_as_the_servers() {
        assert_eq!(slot(b"123456789"), 0x31c3 % SLOTS);
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
        // With empty or unclosed braces the whole key counts.
        assert_ne!(slot(b"a{}{foo}"), slot(b"foo"));
        assert_ne!(slot(b"{foo"), slot(b"foo"));
    }
}
