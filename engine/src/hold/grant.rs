//! What all servers know of a hold.

use crate::short_bytes::LaneName;
use crate::types::{Claim, Fence, LeaseMs, Token, UnixMs};

/// What is replicated and saved of a hold, and therefore equal on all servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    pub fence: Fence,
    pub token: Token,
    pub claim: Claim,
    /// The lowest number that no other hold of the semaphore had. Set exactly if the claim is [`Claim::Indexed`].
    pub index: Option<u32>,
    pub lease: LeaseMs,
    pub rest: Rest,
    /// The wall-clock end of the lease, as it was written at the grant or the last renewal.
    pub deadline: UnixMs,
    pub granted: UnixMs,
    pub renewed: bool,
    pub owner: Option<Box<[u8]>>,
    /// The lane of a semaphore in which the request stood.
    pub lane: LaneName,
}

impl Grant {
    /// Whether the hold has an option that format version 5 brought.
    pub(crate) fn has_options(&self) -> bool {
        self.index.is_some() || self.rest != Rest::None || !self.lane.is_nameless()
    }
}

/// What becomes of the place of a hold that ends early (MINHOLD).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rest {
    /// It is free.
    #[default]
    None,
    /// It stays taken until so long after the grant.
    After(LeaseMs),
    /// The hold has ended and rests: its lease is the MINHOLD, from the grant on, and it has no token.
    Now,
}

impl Rest {
    /// Returns the MINHOLD of a hold that has not ended.
    pub fn after(self) -> Option<LeaseMs> {
        match self {
            Rest::After(min_hold) => Some(min_hold),
            Rest::None | Rest::Now => None,
        }
    }
}
