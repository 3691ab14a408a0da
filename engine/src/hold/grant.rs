//! What all servers know of a hold.

use crate::short_bytes::LaneName;
use crate::types::{Claim, Fence, LeaseMs, Token, TokenView, UnixMs};

/// What is replicated and saved of a hold, and therefore equal on all servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant<T = Token, O = Box<[u8]>, L = LaneName> {
    pub fence: Fence,
    pub token: T,
    pub claim: Claim,
    /// The lowest number that no other hold of the semaphore had. Set exactly if the claim is [`Claim::Indexed`].
    pub index: Option<u32>,
    pub lease: LeaseMs,
    pub rest: Rest,
    /// The wall-clock end of the lease, as it was written at the grant or the last renewal.
    pub deadline: UnixMs,
    pub granted: UnixMs,
    pub renewed: bool,
    pub owner: Option<O>,
    /// The lane of a semaphore in which the request stood.
    pub lane: L,
}

/// A grant whose texts belong to somebody else: to a hold, or to a packed string. A large state is saved and loaded by
/// these, because a copy of each text would take longer than all the rest.
pub type GrantView<'a> = Grant<TokenView<'a>, &'a [u8], &'a [u8]>;

impl<T, O, L> Grant<T, O, L> {
    /// Returns the grant with other forms of its texts.
    fn map<'a, U, P, M>(
        &'a self,
        token: impl FnOnce(&'a T) -> U,
        owner: impl FnOnce(&'a O) -> P,
        lane: impl FnOnce(&'a L) -> M,
    ) -> Grant<U, P, M> {
        Grant {
            fence: self.fence,
            token: token(&self.token),
            claim: self.claim,
            index: self.index,
            lease: self.lease,
            rest: self.rest,
            deadline: self.deadline,
            granted: self.granted,
            renewed: self.renewed,
            owner: self.owner.as_ref().map(owner),
            lane: lane(&self.lane),
        }
    }
}

impl<'a> From<&'a Grant> for GrantView<'a> {
    fn from(grant: &'a Grant) -> Self {
        grant.map(Into::into, |owner| &**owner, LaneName::as_bytes)
    }
}

impl From<GrantView<'_>> for Grant {
    fn from(grant: GrantView<'_>) -> Self {
        grant.map(
            |token| (*token).into(),
            |owner| (*owner).into(),
            |lane| (*lane).into(),
        )
    }
}

impl GrantView<'_> {
    /// Whether the hold has an option that format version 5 brought.
    pub(crate) fn has_options(&self) -> bool {
        self.index.is_some() || self.rest != Rest::None || !self.lane.is_empty()
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
