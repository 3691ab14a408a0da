//! Numbers in as few bytes as they usually need.

/// A number in `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Compact<const N: usize>([u8; N]);

impl<const N: usize> Compact<N> {
    pub const ZERO: Self = Self([0; N]);
    /// The highest number.
    pub const MAX: u64 = u64::MAX >> (64 - 8 * N);

    /// Returns `None` for a number above [`Compact::MAX`].
    pub fn new(number: u64) -> Option<Self> {
        (number <= Self::MAX).then(|| Self::low_bytes(number))
    }

    /// Returns the number, or [`Compact::MAX`] if that is less.
    pub fn saturating(number: u64) -> Self {
        Self::low_bytes(number.min(Self::MAX))
    }

    pub fn get(self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(&self.0);
        u64::from_le_bytes(bytes)
    }

    fn low_bytes(number: u64) -> Self {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&number.to_le_bytes()[..N]);
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds<const N: usize>() {
        let max = Compact::<N>::MAX;
        for number in [0, 1, 255, 256, max / 2, max - 1, max] {
            if number <= max {
                assert_eq!(Compact::<N>::new(number).map(Compact::get), Some(number));
                assert_eq!(Compact::<N>::saturating(number).get(), number);
            }
        }
        for number in [max + 1, u64::MAX] {
            assert!(Compact::<N>::new(number).is_none(), "{number} in {N} bytes");
            assert_eq!(Compact::<N>::saturating(number).get(), max);
        }
    }

    #[test]
    fn compact_number_keeps_every_value_up_to_its_bytes() {
        assert_eq!(Compact::<3>::MAX, 0xff_ffff);
        bounds::<1>();
        bounds::<3>();
        bounds::<5>();
        bounds::<7>();
    }
}
