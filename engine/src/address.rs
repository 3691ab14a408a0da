//! Where a state is: its space and the name of its key, in 24 bytes together.
//!
//! The number of the space is written in front of the name. Numbers below 255, which all spaces have until databases
//! have been flushed that often, take one byte. Names of up to 21 bytes then cost no allocation.
//!
//! Rejected: a field of its own for the space, which makes every state eight bytes larger.

use crate::short_bytes::ShortBytes;
use crate::store::spaces::Space;

/// The first byte if the number of the space is in the four bytes behind it.
const LONG: u8 = u8::MAX;

/// The space and the name of a key.
#[derive(Clone)]
pub struct Address(ShortBytes);

impl Address {
    #[inline]
    pub fn new(space: Space, name: &[u8]) -> Address {
        let number = space.0;
        Address(match u8::try_from(number) {
            Ok(short) if short != LONG => ShortBytes::joined([&[short], name]),
            _ => ShortBytes::joined([&[LONG], &number.to_le_bytes(), name]),
        })
    }

    pub fn space(&self) -> Space {
        self.parts().0
    }

    pub fn name(&self) -> &[u8] {
        self.parts().1
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    fn parts(&self) -> (Space, &[u8]) {
        match self.0.as_bytes() {
            [LONG, a, b, c, d, name @ ..] => (Space(u32::from_le_bytes([*a, *b, *c, *d])), name),
            [number, name @ ..] => (Space(u32::from(*number)), name),
            // `new` writes at least one byte.
            [] => (Space::NOWHERE, &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_keeps_space_and_name_of_every_length() {
        let numbers = [0, 1, 254, 255, 256, 65_535, 65_536, u32::MAX];
        let spaces = numbers.map(Space);
        for len in (0..=30).chain([255, 70_000]) {
            for fill in [0, b'a', LONG] {
                let name = vec![fill; len];
                for space in spaces {
                    let address = Address::new(space, &name);
                    assert_eq!((address.space(), address.name()), (space, &*name), "{len}");
                }
            }
        }
    }

    #[test]
    fn address_of_name_up_to_21_bytes_takes_no_heap() {
        let space = Space(254);
        assert_eq!(Address::new(space, &[b'k'; 21]).heap_bytes(), 0);
        assert_eq!(Address::new(space, &[b'k'; 22]).heap_bytes(), 32);
    }
}
