//! Keys and tokens, the same for ours and theirs, computed from a number: a lane need not remember them.

/// `lock:00000001`: 13 bytes.
pub fn key(number: u64) -> [u8; 13] {
    numbered(b"lock:", number)
}

/// A name of some other use.
pub fn numbered<const N: usize>(prefix: &[u8], mut number: u64) -> [u8; N] {
    let mut name = [b'0'; N];
    name[..prefix.len()].copy_from_slice(prefix);
    for digit in name[prefix.len()..].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    assert_eq!(
        number, 0,
        "a number that is longer than its name would name another key"
    );
    name
}

/// A token as client libraries make them: 36 bytes, a UUIDv4. Its digits look random, so that an RDB file cannot
/// compress them.
pub fn token(number: u64) -> [u8; 36] {
    let mut digits = [0; 32];
    for (at, chunk) in digits.chunks_mut(16).enumerate() {
        let mut bits = scramble(number * 2 + at as u64);
        for digit in chunk {
            *digit = b"0123456789abcdef"[(bits & 15) as usize];
            bits >>= 4;
        }
    }
    digits[12] = b'4';
    digits[16] = b"89ab"[usize::from(digits[16] % 4)];
    let mut token = [b'-'; 36];
    for (from, to, length) in [(0, 0, 8), (8, 9, 4), (12, 14, 4), (16, 19, 4), (20, 24, 12)] {
        token[to..to + length].copy_from_slice(&digits[from..from + length]);
    }
    token
}

/// 20 bytes of a token that is no UUID.
pub fn short_token(number: u64) -> [u8; 20] {
    let mut short = [0; 20];
    short.copy_from_slice(&token(number)[16..]);
    short
}

/// SplitMix64: a permutation of all numbers that looks random.
pub fn scramble(number: u64) -> u64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_carry_their_number() {
        assert_eq!(&key(1), b"lock:00000001");
        assert_eq!(&key(1_000_000), b"lock:01000000");
    }

    #[test]
    #[should_panic(expected = "longer than its name")]
    fn number_that_does_not_fit_is_refused() {
        numbered::<6>(b"key:", 100);
    }

    #[test]
    fn tokens_are_distinct_version_4_uuids() {
        let mut tokens: Vec<_> = (0..1000).map(token).collect();
        for token in &tokens {
            assert_eq!(token.iter().filter(|&&byte| byte == b'-').count(), 4);
            assert_eq!(token[14], b'4');
            assert!(b"89ab".contains(&token[19]));
        }
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 1000);
    }
}
