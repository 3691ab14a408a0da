//! A command's arguments as byte slices, and integers as the server reads them.

use redis_module::raw;

use super::name::{KeyString, bytes_of};

/// The arguments of the running command. Number 0 is the command's name.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a>(&'a [*mut raw::RedisModuleString]);

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` must point to `argc` live string objects that do not change during `'a`.
    pub(super) unsafe fn from_raw(argv: *mut *mut raw::RedisModuleString, argc: i32) -> Self {
        if argv.is_null() || argc <= 0 {
            return Args(&[]);
        }
        // SAFETY: the caller guarantees that `argv` has `argc` elements for all of `'a`.
        Args(unsafe { std::slice::from_raw_parts(argv, argc as usize) })
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        // SAFETY: `from_raw` guarantees that the string objects are live and unchanged for all of `'a`.
        self.0.get(index).map(|string| unsafe { bytes_of(*string) })
    }

    /// The argument as the server's own string object, without a copy.
    pub(crate) fn name(&self, index: usize) -> Option<KeyString<'a>> {
        // SAFETY: `from_raw` guarantees that the string objects are live and unchanged for all of `'a`.
        self.0
            .get(index)
            .map(|string| unsafe { KeyString::borrowed(*string) })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        // SAFETY: `from_raw` guarantees that the string objects are live and unchanged for all of `'a`.
        self.0.iter().map(|string| unsafe { bytes_of(*string) })
    }
}

/// Reads an integer as Redis' own commands do (util.c, string2ll): without a plus sign, spaces, leading zeros or "-0".
pub(crate) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'0'] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if !matches!(digits, [b'1'..=b'9', ..]) {
        return None;
    }
    digits.iter().try_fold(0_i64, |sum, byte| {
        let digit = i64::from(byte.checked_sub(b'0').filter(|digit| *digit <= 9)?);
        let sum = sum.checked_mul(10)?;
        // Subtract for a negative number, because the smallest i64 has no positive counterpart.
        if negative {
            sum.checked_sub(digit)
        } else {
            sum.checked_add(digit)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::parse_i64;

    #[test]
    fn parse_i64_reads_integers_as_redis_does() {
        for (text, value) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("-7", Some(-7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("00", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1.0", None),
            ("--1", None),
            ("1\0", None),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), value, "{text:?}");
        }
    }
}
