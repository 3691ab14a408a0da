//! The fields of a change: how each is written, and how each is read without trusting the input.
//!
//! [`Fields`] compares every number and length with its bounds before using it, and refuses a number or a token that
//! has a shorter form. So [`Writer`] writes whatever `Fields` accepts in the same bytes again.

use super::unreadable::Unreadable;
use crate::types::{Family, UnixMs};

/// What was read from the packed string of somebody else.
pub(super) type Read<T> = Result<T, Unreadable>;
/// The name of a field in error messages.
pub(super) type Name = &'static str;

/// Appends fields to a packed string.
pub(crate) struct Writer<'a>(pub(super) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn number(&mut self, n: impl Into<u64>) {
        let mut n = n.into();
        while n >= 0x80 {
            self.byte(n as u8 | 0x80);
            n >>= 7;
        }
        self.byte(n as u8);
    }

    /// Appends a number below 2^64 - 1, or nothing.
    pub(super) fn option(&mut self, n: Option<u64>) {
        self.number(n.map_or(0, |n| n.saturating_add(1)));
    }

    /// Appends a moment as its difference from another. Both are below 2^63.
    pub(super) fn difference(&mut self, moment: UnixMs, from: UnixMs) {
        let difference = moment.0.wrapping_sub(from.0).cast_signed();
        // Zigzag: 0, -1, 1, -2 … become 0, 1, 2, 3.
        self.number(((difference << 1) ^ (difference >> 63)).cast_unsigned());
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text);
    }

    pub(super) fn optional_text(&mut self, text: Option<&[u8]>) {
        self.option(text.map(|text| text.len() as u64));
        self.0.extend_from_slice(text.unwrap_or_default());
    }
}

/// Reads the fields of a change one by one, and compares each with its bounds.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    left: &'a [u8],
    /// The family of the key.
    pub(super) family: Family,
    /// The name of the change that is being read, for error messages.
    pub(super) verb: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(family: Family, left: &'a [u8]) -> Fields<'a> {
        let verb = "";
        Fields { left, family, verb }
    }

    /// Ends the reading.
    pub(super) fn close(&mut self) {
        self.left = &[];
    }

    pub(super) fn error(&self, field: Name) -> Unreadable {
        let verb = self.verb;
        Unreadable::Field { verb, field }
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, left) = self.left.split_first()?;
        self.left = left;
        Some(*first)
    }

    /// Reads a number, which must be in its shortest form.
    fn leb128(&mut self) -> Option<u64> {
        let mut n = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            n |= bits << shift;
            if byte & 0x80 == 0 {
                // If the last of several bytes has no bits, the number has a shorter form.
                return (byte != 0 || shift == 0).then_some(n);
            }
        }
        None
    }

    pub(super) fn number(&mut self, field: Name, min: u64, max: u64) -> Read<u64> {
        let n = self.leb128().filter(|n| (min..=max).contains(n));
        n.ok_or_else(|| self.error(field))
    }

    /// Reads a number that may be missing. `max` must be below 2^64 - 1.
    pub(super) fn option(&mut self, field: Name, min: u64, max: u64) -> Read<Option<u64>> {
        match self.number(field, 0, max + 1)? {
            0 => Ok(None),
            n if n > min => Ok(Some(n - 1)),
            _ => Err(self.error(field)),
        }
    }

    pub(super) fn flag(&mut self, field: Name) -> Read<bool> {
        Ok(self.number(field, 0, 1)? == 1)
    }

    pub(super) fn difference(&mut self, field: Name, from: UnixMs) -> Read<UnixMs> {
        let n = self.number(field, 0, u64::MAX)?;
        let difference = (n >> 1).cast_signed() ^ -(n & 1).cast_signed();
        let moment = from.0.checked_add_signed(difference).map(UnixMs);
        let moment = moment.filter(|moment| *moment <= UnixMs::MAX);
        moment.ok_or_else(|| self.error(field))
    }

    pub(super) fn take(&mut self, field: Name, len: u64) -> Read<&'a [u8]> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let taken = self.left.split_at_checked(len);
        let (taken, left) = taken.ok_or_else(|| self.error(field))?;
        self.left = left;
        Ok(taken)
    }

    pub(super) fn text(&mut self, field: Name, min: usize, max: usize) -> Read<&'a [u8]> {
        let len = self.number(field, min as u64, max as u64)?;
        self.take(field, len)
    }

    pub(super) fn optional_text(
        &mut self,
        field: Name,
        min: usize,
        max: usize,
    ) -> Read<Option<&'a [u8]>> {
        let len = self.option(field, min as u64, max as u64)?;
        len.map(|len| self.take(field, len)).transpose()
    }
}
