//! What MINHOLD makes of a hold: it rests when it ends early. A rest is a hold without a token, whose lease is the MINHOLD.

use super::{Grant, Hold, bits};
use crate::types::{LeaseMs, LeaseUs, Token};

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

impl Hold {
    /// Returns what becomes of the place of the hold when it ends early, and until when it stays taken by this server's
    /// lease clock. As `due`, that counts only if it is not before the moment at which this server last took over.
    pub(crate) fn rest(&self) -> (Rest, LeaseUs) {
        match self.extras.as_deref() {
            Some(extras) if self.is_marked(bits::BOXED_OPTIONS) => extras.rest(),
            _ => Default::default(),
        }
    }

    /// Whether the hold has ended, and its place stays taken until the end of the lease.
    pub fn is_resting(&self) -> bool {
        self.is_marked(bits::BOXED_OPTIONS) && self.rest().0 == Rest::Now
    }

    pub(crate) fn set_rests_until(&mut self, until: LeaseUs) {
        if let Some(extras) = &mut self.extras {
            extras.set_rest(extras.rest().0, until);
        }
    }

    /// Returns what is left of the hold when it ends early, without a connection and a moment; `None` if nothing is.
    pub(crate) fn rested(&self) -> Option<Hold> {
        let lease = self.rest().0.after()?;
        Some(Hold::new(&Grant {
            token: Token::Uuid([0; 16]),
            lease,
            rest: Rest::Now,
            deadline: self.granted().after_ms(u64::from(lease.0)),
            ..self.to_grant()
        }))
    }
}
