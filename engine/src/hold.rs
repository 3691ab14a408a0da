//! One hold: what is granted to one token.
//!
//! A [`Hold`] takes 80 bytes at most and needs no allocation in the usual case (a UUID for a token, no owner), because
//! a server may have a million held locks. So rare fields are boxed, and numbers below 2^48 take six bytes.
//!
//! Deliberately absent: the passing of time. A hold whose lease has run out stays as it is until a call ends it.

use crate::types::{Claim, ClientId, Fence, LeaseMs, LeaseUs, Token, UnixMs};

/// A number below 2^48 in six bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct U48([u8; 6]);

impl U48 {
    const MAX: u64 = (1 << 48) - 1;

    /// Saturates at 2^48 - 1: in milliseconds that is the year 10889, and connections take longer to reach it.
    fn new(n: u64) -> U48 {
        let [a, b, c, d, e, f, ..] = n.min(U48::MAX).to_le_bytes();
        U48([a, b, c, d, e, f])
    }

    fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

/// What is replicated and saved of a hold, and therefore equal on all servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    pub fence: Fence,
    pub token: Token,
    pub claim: Claim,
    pub lease: LeaseMs,
    /// The wall-clock end of the lease, as it was written at the grant or the last renewal.
    pub deadline: UnixMs,
    pub granted: UnixMs,
    pub renewed: bool,
    pub owner: Option<Box<[u8]>>,
}

/// The fields that most holds do not have.
#[derive(Clone)]
struct Extras {
    /// The token, if it is not a UUID.
    text: Option<Box<[u8]>>,
    owner: Option<Box<[u8]>>,
}

/// One grant of a lock, of permits or of a membership.
#[derive(Clone)]
pub struct Hold {
    pub fence: Fence,
    /// When the lease runs out by this server's lease clock. It counts only if it is not before the moment at
    /// which this server last took over: see `role`.
    pub due: LeaseUs,
    /// The token, if it is a UUID; otherwise zeros, and `extras` has its text.
    uuid: [u8; 16],
    extras: Option<Box<Extras>>,
    pub claim: Claim,
    pub lease: LeaseMs,
    deadline: U48,
    granted: U48,
    client: U48,
    pub renewed: bool,
    /// Ends with the connection of `client`.
    pub ephemeral: bool,
}

impl Hold {
    /// Makes a hold without a connection and without a moment on the lease clock.
    #[must_use]
    pub fn new(grant: &Grant) -> Hold {
        let (uuid, text) = match &grant.token {
            Token::Uuid(uuid) => (*uuid, None),
            Token::Text(text) => ([0; 16], Some(text.clone())),
        };
        let owner = grant.owner.clone();
        Hold {
            fence: grant.fence,
            due: LeaseUs(0),
            uuid,
            extras: (text.is_some() || owner.is_some()).then(|| Box::new(Extras { text, owner })),
            claim: grant.claim,
            lease: grant.lease,
            deadline: U48::new(grant.deadline.0),
            granted: U48::new(grant.granted.0),
            client: U48::new(ClientId::NONE.0),
            renewed: grant.renewed,
            ephemeral: false,
        }
    }

    /// Returns what other servers and files know of the hold.
    #[must_use]
    pub fn to_grant(&self) -> Grant {
        Grant {
            fence: self.fence,
            token: self.token(),
            claim: self.claim,
            lease: self.lease,
            deadline: self.deadline(),
            granted: self.granted(),
            renewed: self.renewed,
            owner: self.owner().map(Into::into),
        }
    }

    #[must_use]
    pub fn token(&self) -> Token {
        match self.extras.as_deref() {
            Some(Extras {
                text: Some(text), ..
            }) => Token::Text(text.clone()),
            _ => Token::Uuid(self.uuid),
        }
    }

    #[must_use]
    pub fn has_token(&self, token: &Token) -> bool {
        let text = self
            .extras
            .as_deref()
            .and_then(|extras| extras.text.as_deref());
        match (token, text) {
            (Token::Uuid(uuid), None) => *uuid == self.uuid,
            (Token::Text(theirs), Some(ours)) => **theirs == *ours,
            (Token::Uuid(_), Some(_)) | (Token::Text(_), None) => false,
        }
    }

    #[must_use]
    pub fn owner(&self) -> Option<&[u8]> {
        self.extras
            .as_deref()
            .and_then(|extras| extras.owner.as_deref())
    }

    #[must_use]
    pub fn deadline(&self) -> UnixMs {
        UnixMs(self.deadline.get())
    }

    #[must_use]
    pub fn granted(&self) -> UnixMs {
        UnixMs(self.granted.get())
    }

    #[must_use]
    pub fn client(&self) -> ClientId {
        ClientId(self.client.get())
    }

    pub(super) fn set_deadline(&mut self, deadline: UnixMs) {
        self.deadline = U48::new(deadline.0);
    }

    pub fn set_client(&mut self, client: ClientId) {
        self.client = U48::new(client.0);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.extras.as_deref().map_or(0, |extras| {
            size_of::<Extras>()
                + extras.text.as_deref().map_or(0, <[u8]>::len)
                + extras.owner.as_deref().map_or(0, <[u8]>::len)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(owner: Option<&[u8]>) -> Hold {
        Hold::new(&Grant {
            fence: Fence(7),
            token: Token::parse(b"token-7").expect("legal"),
            claim: Claim::Permits(3),
            lease: LeaseMs(1_000),
            deadline: UnixMs(5_000),
            granted: UnixMs(4_000),
            renewed: false,
            owner: owner.map(Into::into),
        })
    }

    #[test]
    fn hold_becomes_the_grant_it_was_made_of() {
        for owner in [None, Some(b"somebody".as_slice())] {
            let hold = hold(owner);
            assert_eq!(Hold::new(&hold.to_grant()).to_grant(), hold.to_grant());
            assert!(hold.has_token(&hold.token()));
            assert!(
                !hold.has_token(&Token::Uuid([0; 16])),
                "a text is no UUID of zeros"
            );
        }
    }

    #[test]
    fn hold_takes_80_bytes_at_most() {
        assert!(size_of::<Hold>() <= 80, "{} bytes", size_of::<Hold>());
    }

    #[test]
    fn u48_saturates_at_48_bits() {
        for n in [0, 1, 0xffff_ffff, U48::MAX - 1, U48::MAX] {
            assert_eq!(U48::new(n).get(), n);
        }
        assert_eq!(U48::new(U48::MAX + 1).get(), U48::MAX);
    }
}
