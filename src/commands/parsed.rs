//! The arguments of a request as values: what the parser (`parse`) fills in, and what commands read.

use std::ops::Range;

use super::grammar::{Flag, Number, Words};

/// What was asked, checked against the bounds of the command's row.
#[derive(Default)]
pub(super) struct Parsed<'a> {
    pub(super) numbers: [u64; Number::KINDS],
    /// A bit for each number that was given.
    pub(super) has_number: u32,
    pub(super) texts: [Option<&'a [u8]>; Words::KINDS],
    pub(super) flags: [bool; Flag::KINDS],
    /// Where tokens are among the arguments.
    pub(super) secrets: Range<usize>,
}

impl<'a> Parsed<'a> {
    pub(super) fn number(&self, number: Number) -> Option<u64> {
        let was_given = self.has_number & (1 << number as u32) != 0;
        was_given.then(|| self.numbers[number as usize])
    }

    /// The same where the bounds of the number fit 32 bits.
    pub(super) fn number_u32(&self, number: Number) -> Option<u32> {
        self.number(number)
            .map(|n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// The first one, of an argument that may be repeated.
    pub(super) fn text(&self, text: Words) -> Option<&'a [u8]> {
        self.texts[text as usize]
    }

    pub(super) fn has(&self, flag: Flag) -> bool {
        self.flags[flag as usize]
    }

    /// The arguments to keep out of MONITOR and SLOWLOG.
    pub(super) fn secrets(&self) -> Range<usize> {
        self.secrets.clone()
    }
}
