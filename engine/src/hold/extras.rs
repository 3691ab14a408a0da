//! What a hold has beside its 56 bytes, and how small numbers are kept in them.

use super::grant::Rest;
use crate::short_bytes::ShortBytes;
use crate::types::{ClientId, LeaseMs, LeaseUs, MAX_LANE_LEN, Token, UnixMs};

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
    /// What becomes of the place, behind [`RESTS`], if the hold has a MINHOLD: milliseconds in four bytes, 0 if the hold
    /// rests, and a moment in eight. Then the length of the token's text in one byte (0 if the hold itself has the token),
    /// that text, and the owner. With a lane: [`LANED`], the lengths of the token's text and of the lane, and the three
    /// texts.
    pub texts: ShortBytes,
    /// Set exactly if one of the numbers does not fit into the fields of [`Hold`](super::Hold), which then count for
    /// nothing.
    pub numbers: Option<Box<Numbers>>,
}

const _: () = assert!(size_of::<Extras>() == 32 && size_of::<Numbers>() == 32);
const _: () = assert!(Token::MAX_LEN < LANED as usize && MAX_LANE_LEN <= u8::MAX as usize);

/// No token is as long as one of these two.
const LANED: u8 = u8::MAX - 1;
const RESTS: u8 = u8::MAX;
/// The bytes before the length of the token.
const RESTS_LEN: usize = 13;

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
    /// Returns the box for a token's text, a lane, an owner and a rest without a moment.
    pub fn new([token, lane, owner]: [&[u8]; 3], rest: Rest) -> Box<Extras> {
        let token = &token[..token.len().min(Token::MAX_LEN)];
        let lane = &lane[..lane.len().min(MAX_LANE_LEN)];
        let (token_len, lane_len) = (token.len() as u8, lane.len() as u8);
        let texts = match lane {
            [] => ShortBytes::joined([&[token_len], token, owner]),
            lane => ShortBytes::joined([&[LANED, token_len, lane_len], token, lane, owner]),
        };
        let numbers = None;
        let mut extras = Box::new(Extras { texts, numbers });
        extras.set_rest(rest, LeaseUs(0));
        extras
    }

    fn parts(&self) -> (Rest, LeaseUs, &[u8]) {
        let bytes = self.texts.as_bytes();
        match bytes.split_first_chunk::<RESTS_LEN>() {
            Some(([RESTS, a, b, c, d, until @ ..], texts)) => {
                let rest = match u32::from_le_bytes([*a, *b, *c, *d]) {
                    0 => Rest::Now,
                    ms => Rest::After(LeaseMs(ms)),
                };
                (rest, LeaseUs(u64::from_le_bytes(*until)), texts)
            }
            _ => (Rest::None, LeaseUs(0), bytes),
        }
    }

    /// Returns what becomes of the place, and until when it stays taken by this server's lease clock.
    pub fn rest(&self) -> (Rest, LeaseUs) {
        let (rest, until, _) = self.parts();
        (rest, until)
    }

    pub fn set_rest(&mut self, rest: Rest, until: LeaseUs) {
        let ms = match rest {
            Rest::None => return,
            Rest::After(LeaseMs(ms)) => ms.to_le_bytes(),
            Rest::Now => [0; 4],
        };
        let (.., texts) = self.parts();
        self.texts = ShortBytes::joined([&[RESTS], &ms, &until.0.to_le_bytes(), texts]);
    }

    /// Returns the text of the token, which is empty if the hold has it, the lane and the owner.
    pub fn texts(&self) -> [&[u8]; 3] {
        let (lens, texts) = match self.parts().2 {
            [LANED, token, lane, texts @ ..] => ([*token, *lane], texts),
            [token, texts @ ..] => ([*token, 0], texts),
            [] => ([0, 0], &[][..]),
        };
        let (token, rest) = texts.split_at(usize::from(lens[0]));
        let (lane, owner) = rest.split_at(usize::from(lens[1]));
        [token, lane, owner]
    }
}
