//! What a hold has beside its 56 bytes, and how small numbers are kept in them.

use crate::short_bytes::ShortBytes;
use crate::types::{ClientId, Token, UnixMs};

/// A number below 2^24 in three bytes.
#[derive(Clone, Copy, Default)]
pub struct U24([u8; 3]);

impl U24 {
    pub fn new(number: u64) -> Option<U24> {
        match number.to_le_bytes() {
            [a, b, c, 0, 0, 0, 0, 0] => Some(U24([a, b, c])),
            _ => None,
        }
    }

    pub fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_le_bytes([a, b, c, 0])
    }
}

/// What most holds do not have.
#[derive(Clone)]
pub struct Extras {
    /// One byte with the length of the token's text (0 for a UUID), that text, and the owner.
    pub texts: ShortBytes,
    /// Set exactly if one of the numbers does not fit into the fields of [`Hold`](super::Hold), which then count for
    /// nothing.
    pub numbers: Option<Box<Numbers>>,
}

const _: () = assert!(size_of::<Extras>() == 32 && size_of::<Numbers>() == 32);
const _: () = assert!(Token::MAX_LEN <= u8::MAX as usize);

/// The numbers of a hold that are stored in few bytes, with their full range, and one that most holds do not have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    pub permits_or_index: u32,
    /// How long the place was kept to which the hold was granted, until its token is heard from; 0 from then on.
    pub unheard_ms: u32,
    pub deadline: UnixMs,
    pub granted: UnixMs,
    pub client: ClientId,
}

impl Extras {
    /// Returns the box for a token's text and an owner.
    pub fn new(token: &[u8], owner: &[u8]) -> Box<Extras> {
        let len = token.len().min(Token::MAX_LEN);
        let texts = ShortBytes::joined([&[len as u8], &token[..len], owner]);
        let numbers = None;
        Box::new(Extras { texts, numbers })
    }

    /// Returns the text of the token, which is empty for a UUID, and the owner.
    pub fn texts(&self) -> (&[u8], &[u8]) {
        match self.texts.as_bytes() {
            [len, texts @ ..] => texts.split_at(usize::from(*len)),
            [] => (&[], &[]),
        }
    }
}
