//! Byte strings as the variable arguments of a C call.
//!
//! RM_Replicate and RM_EmitAOF take `(pointer, length)` pairs, one for each `b` of a format. The
//! number of arguments of a call is fixed where it is compiled, so we always pass `MAX` pairs with
//! a format of as many `b` as there are pieces: C leaves arguments that no `va_arg` asks for alone.
//! The other way, a vector of string objects (`v`), creates and frees every object twice over and
//! serves only the rare longer call.

use std::ffi::CStr;

/// How many pieces go without a vector.
pub(super) const MAX: usize = 16;

const FORMATS: &CStr = c"bbbbbbbbbbbbbbbb";

/// The format for `count` pieces, at most `MAX`.
pub(super) fn format(count: usize) -> &'static CStr {
    let bytes = &FORMATS.to_bytes_with_nul()[MAX - count.min(MAX)..];
    CStr::from_bytes_with_nul(bytes).unwrap_or_default()
}

/// Calls a variable-argument function with `MAX` pairs; pairs past the end are empty. Expands to an
/// unsafe call.
macro_rules! call_with_pieces {
    ($function:expr, $first:expr, $command:expr, $pieces:expr) => {{
        let p: &[&[u8]] = $pieces;
        let at = |index: usize| {
            p.get(index)
                .map_or(std::ptr::null(), |piece| piece.as_ptr())
        };
        let len = |index: usize| p.get(index).map_or(0usize, |piece| piece.len());
        $function(
            $first,
            $command,
            $crate::module::redis::pieces::format(p.len()).as_ptr(),
            at(0),
            len(0),
            at(1),
            len(1),
            at(2),
            len(2),
            at(3),
            len(3),
            at(4),
            len(4),
            at(5),
            len(5),
            at(6),
            len(6),
            at(7),
            len(7),
            at(8),
            len(8),
            at(9),
            len(9),
            at(10),
            len(10),
            at(11),
            len(11),
            at(12),
            len(12),
            at(13),
            len(13),
            at(14),
            len(14),
            at(15),
            len(15),
        )
    }};
}
pub(super) use call_with_pieces;

#[cfg(test)]
mod tests {
    use super::{MAX, format};

    #[test]
    fn the_format_names_every_piece_once() {
        for count in 0..=MAX {
            assert_eq!(format(count).to_bytes().len(), count);
        }
    }
}
