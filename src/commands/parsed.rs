//! The arguments of one request as values. The parser (`parse`) fills them in; the commands read them.

use std::ops::Range;

use super::grammar::{Flag, Number, Text};

/// The values of one request. Each is within the bounds that the command's row gives for it.
#[derive(Default)]
pub(super) struct Parsed<'a> {
    /// By [`Number`]. Valid only where `has_number` has the bit.
    pub(super) numbers: [u64; Number::KINDS],
    /// One bit for each [`Number`]: whether the request has it.
    pub(super) has_number: u32,
    /// By [`Text`]. None where the request does not have it.
    pub(super) texts: [Option<&'a [u8]>; Text::KINDS],
    /// By [`Flag`]: whether the request has the word.
    pub(super) flags: [bool; Flag::KINDS],
    /// The positions of the tokens among the arguments: they are neighbours.
    pub(super) secrets: Range<usize>,
}

impl<'a> Parsed<'a> {
    pub(super) fn number(&self, number: Number) -> Option<u64> {
        let was_given = self.has_number & (1 << number as u32) != 0;
        was_given.then(|| self.numbers[number as usize])
    }

    /// [`number`](Self::number) for numbers whose bounds fit 32 bits.
    pub(super) fn number_u32(&self, number: Number) -> Option<u32> {
        self.number(number)
            .map(|n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// The text, if the request has it; the first one if the argument is a list.
    pub(super) fn text(&self, text: Text) -> Option<&'a [u8]> {
        self.texts[text as usize]
    }

    pub(super) fn has(&self, flag: Flag) -> bool {
        self.flags[flag as usize]
    }

    /// The positions of the arguments that must not appear in MONITOR and SLOWLOG.
    pub(super) fn secrets(&self) -> Range<usize> {
        self.secrets.clone()
    }
}
