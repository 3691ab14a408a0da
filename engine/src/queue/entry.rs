//! The entries of a queue: waiting requests, watchers (WAIT of a group) and vacant places.

use crate::Family;
use crate::types::{Claim, ClientId, LeaseMs, MonoUs, Token, WaiterId};

/// The rank of a request among all requests that ever queued on this server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place(pub u64);

/// What a client asks for with ACQUIRE, ADD or BEGIN.
#[derive(Clone, Debug)]
pub struct Request {
    pub claim: Claim,
    /// The limit that the request gave, if any.
    pub limit: Option<u32>,
    /// For a run: how many attempts it allows in all.
    pub max_attempts: Option<u32>,
    pub lease: LeaseMs,
    /// How long to queue if the request cannot be granted at once; `None` does not queue.
    pub wait: Option<Wait>,
    pub token: Token,
    /// Whether the client chose the token, so that it can retry with the same token.
    pub may_return: bool,
    pub client: ClientId,
    pub ephemeral: bool,
    pub owner: Option<Box<[u8]>>,
}

impl Waiter {
    /// Returns the place that the token gets back if the grant is not delivered.
    #[must_use]
    pub fn former_place(&self, place: Place) -> Option<FormerPlace> {
        let since = self.since;
        self.request
            .may_return
            .then_some(FormerPlace { place, since })
    }
}

/// How long a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    Forever,
    Until(MonoUs),
}

impl Wait {
    #[must_use]
    pub fn deadline(self) -> Option<MonoUs> {
        match self {
            Wait::Forever => None,
            Wait::Until(deadline) => Some(deadline),
        }
    }
}

/// A request that is queued, with its client waiting for the reply.
#[derive(Clone, Debug)]
pub struct Waiter {
    pub id: WaiterId,
    pub request: Request,
    /// When the place was first taken.
    pub since: MonoUs,
}

/// A place that is kept for its token after the connection closed.
#[derive(Clone, Debug)]
pub struct Vacancy {
    pub token: Token,
    pub claim: Claim,
    pub since: MonoUs,
    /// Kept until then.
    pub until: MonoUs,
}

/// The place that a waiter had when it was granted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FormerPlace {
    pub place: Place,
    /// When the place was first taken.
    pub since: MonoUs,
}

/// A client that waits for a group's round to finish.
#[derive(Clone, Debug)]
pub struct Watcher {
    pub id: WaiterId,
    pub client: ClientId,
    pub wait: Wait,
    pub since: MonoUs,
}

/// What the place of a token is in a queue.
pub enum Seat<'a> {
    Waiting(&'a Waiter),
    Vacant(&'a Vacancy),
}

impl Seat<'_> {
    #[must_use]
    pub fn claim(&self) -> Claim {
        match self {
            Seat::Waiting(waiter) => waiter.request.claim,
            Seat::Vacant(vacancy) => vacancy.claim,
        }
    }
}

/// An entry that has left a queue.
pub enum Departed {
    Waiter(Waiter),
    Vacancy(Vacancy),
    Watcher(Watcher),
}

impl Departed {
    /// Returns the request whose client waits for a reply, if any.
    #[must_use]
    pub fn waiter(&self) -> Option<WaiterId> {
        match self {
            Departed::Waiter(waiter) => Some(waiter.id),
            Departed::Watcher(watcher) => Some(watcher.id),
            Departed::Vacancy(_) => None,
        }
    }

    /// Returns the family that the entry waited for; `None` for a vacant place.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        match self {
            Departed::Waiter(waiter) => Some(waiter.request.claim.family()),
            Departed::Watcher(_) => Some(Family::Group),
            Departed::Vacancy(_) => None,
        }
    }
}
