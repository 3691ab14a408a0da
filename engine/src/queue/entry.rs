//! The entries of a queue: waiting requests and kept places, watchers (WAIT of a group) and vacant places.

use crate::Family;
use crate::answer::Answer;
use crate::change::KeptPlace;
use crate::heap;
use crate::types::{Claim, ClientId, Fence, LeaseMs, LeaseUs, MonoUs, Token, UnixMs, WaiterId};

/// The rank of a request: a number that was drawn like a fence when its place was first taken. So ranks are comparable
/// between servers, and the number of a kept place is its rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place(pub Fence);

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
    /// How long to keep a place for the token if the request cannot be granted at once (QUEUE); `None` keeps none. Never
    /// together with `wait` or `ephemeral`, nor without `may_return`.
    pub keep_ms: Option<u32>,
    pub token: Token,
    /// Whether the client chose the token, so that it can retry with the same token.
    pub may_return: bool,
    pub client: ClientId,
    pub ephemeral: bool,
    pub owner: Option<Box<[u8]>>,
    /// Whether there is memory for a new hold or place. What the token has already is answered all the same.
    pub may_grow: bool,
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

/// A request that is queued: its client waits for the reply, or its place is kept for its token, or both.
#[derive(Clone, Debug)]
pub struct Waiter {
    /// The request to answer; `None` for a kept place on which no client waits. A request with QUEUE has an id during
    /// its own call only.
    pub id: Option<WaiterId>,
    /// `wait` is set exactly while a client is parked for the reply.
    pub request: Request,
    /// When the place was first taken.
    pub since: MonoUs,
    /// Set if the place is kept, whether a client waits on it or not.
    pub keep: Option<Keep>,
}

/// How a place is kept.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// How long, from the last request with QUEUE, or from the end of a wait on the place.
    pub ms: u32,
    /// When the place was first taken, by the wall clock.
    pub since: UnixMs,
    /// Kept until then, if no client waits on the place and this server has given the moment since it took over: see
    /// [`crate::calls::role`].
    pub until: LeaseUs,
}

impl Waiter {
    /// Whether a client waits on the place, so that the place does not run out by itself.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.request.wait.is_some()
    }

    /// Returns the bytes that the entry takes on the heap besides its share of the maps that all entries are in.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let request = &self.request;
        // The token is also a key of the queue's map of tokens.
        let tokens = 2 * request.token.heap_bytes();
        let owner = request.owner.as_ref();
        let owner = owner.map_or(0, |owner| heap::allocated(owner.len()));
        let indexes =
            usize::from(request.claim.permits() > 1) + usize::from(request.max_attempts.is_some());
        tokens + owner + indexes * heap::tree_share(size_of::<(u32, Place)>())
    }

    /// Returns the place that the token gets back if the grant is not delivered.
    #[must_use]
    pub fn former_place(&self, place: Place) -> Option<FormerPlace> {
        self.request.may_return.then_some(FormerPlace {
            place,
            since: self.since,
            keep: self.keep.map(|keep| FormerKeep {
                ms: keep.ms,
                since: keep.since,
                max_attempts: self.request.max_attempts,
            }),
        })
    }

    /// Returns what other servers and files know of the place, if it is kept.
    #[must_use]
    pub fn kept_place(&self, place: Place) -> Option<KeptPlace> {
        let keep = self.keep?;
        Some(KeptPlace {
            number: place.0,
            token: self.request.token.clone(),
            claim: self.request.claim,
            lease: self.request.lease,
            keep_ms: keep.ms,
            max_attempts: self.request.max_attempts,
            owner: self.request.owner.clone(),
            since: keep.since,
        })
    }
}

impl KeptPlace {
    /// Returns the kept place as an entry of a queue, without a client.
    #[must_use]
    pub fn into_waiter(self, since: MonoUs, until: LeaseUs) -> (Place, Waiter) {
        let keep = Keep {
            ms: self.keep_ms,
            since: self.since,
            until,
        };
        let request = Request {
            claim: self.claim,
            limit: None,
            max_attempts: self.max_attempts,
            lease: self.lease,
            wait: None,
            keep_ms: None,
            token: self.token,
            may_return: true,
            client: ClientId::NONE,
            ephemeral: false,
            owner: self.owner,
            may_grow: true,
        };
        let waiter = Waiter {
            id: None,
            request,
            since,
            keep: Some(keep),
        };
        (Place(self.number), waiter)
    }
}

/// A place on which nobody waits and which is no request any more, left to its token for a while.
#[derive(Clone, Debug)]
pub struct Vacancy {
    pub token: Token,
    pub claim: Claim,
    pub since: MonoUs,
    /// Left to the token until then.
    pub until: MonoUs,
    /// What every request of the token is told until then, because its request was decided while nobody waited for the
    /// answer, or withdrawn. `None` after a connection closed: the next request that waits takes the place again.
    pub verdict: Option<Answer>,
}

/// The place that a waiter had when it was granted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FormerPlace {
    pub place: Place,
    /// When the place was first taken.
    pub since: MonoUs,
    /// How the place was kept, if it was.
    pub keep: Option<FormerKeep>,
}

/// What the hold of a place that was kept does not tell of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FormerKeep {
    pub ms: u32,
    /// When the place was first taken, by the wall clock.
    pub since: UnixMs,
    pub max_attempts: Option<u32>,
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

    /// Whether the place stands for a request that is neither decided nor withdrawn.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(
            self,
            Seat::Vacant(Vacancy {
                verdict: Some(_),
                ..
            })
        )
    }
}

/// An entry that has left a queue.
pub enum Departed {
    Waiter(Waiter),
    Vacancy(Vacancy),
    Watcher(Watcher),
}

impl Departed {
    /// Returns the request to answer, if any.
    #[must_use]
    pub fn waiter(&self) -> Option<WaiterId> {
        match self {
            Departed::Waiter(waiter) => waiter.id,
            Departed::Watcher(watcher) => Some(watcher.id),
            Departed::Vacancy(_) => None,
        }
    }

    /// Returns what is left to the token of this place until then; `None` if no token may come back to it.
    #[must_use]
    pub fn vacancy(&self, verdict: Option<Answer>, until: MonoUs) -> Option<Vacancy> {
        let (token, claim, since) = match self {
            Departed::Waiter(Waiter { request, since, .. }) if request.may_return => {
                (&request.token, request.claim, *since)
            }
            Departed::Vacancy(vacancy) => (&vacancy.token, vacancy.claim, vacancy.since),
            Departed::Waiter(_) | Departed::Watcher(_) => return None,
        };
        Some(Vacancy {
            token: token.clone(),
            claim,
            since,
            until,
            verdict,
        })
    }

    /// Whether the place was kept.
    #[must_use]
    pub fn was_kept(&self) -> bool {
        matches!(self, Departed::Waiter(Waiter { keep: Some(_), .. }))
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
