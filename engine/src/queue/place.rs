//! A place in a queue: whose it is, what its hold will have, and who is there.

use std::num::NonZeroU32;

use crate::answer::Answer;
use crate::change::KeptPlace;
use crate::heap;
use crate::hold::Grant;
use crate::short_bytes::LaneName;
use crate::types::{
    Claim, ClientId, Family, LeaseMs, LeaseUs, MonoUs, Rank, Token, UnixMs, WaiterId,
};

/// What a client asks for with ACQUIRE, ADD or BEGIN.
#[derive(Clone, Debug)]
pub struct Request {
    pub claim: Claim,
    /// The limit that the request gave, if any.
    pub limit: Option<u32>,
    /// For a run how many attempts it allows in all (MAX); for permits how many its lane may have in use when they are
    /// granted (LANELIMIT).
    pub bound: Option<u32>,
    pub lease: LeaseMs,
    /// How long after the grant the place stays taken, even if the hold ends earlier.
    pub min_hold: Option<LeaseMs>,
    /// Until when to queue if the request cannot be granted at once; `None` does not queue.
    pub wait: Option<MonoUs>,
    /// How long to keep a place for the token if the request cannot be granted at once (QUEUE); `None` keeps none. Never
    /// together with `wait` or `ephemeral`, nor without `may_return`.
    pub keep_ms: Option<u32>,
    pub token: Token,
    /// Whether the client chose the token, so that it can retry with the same token.
    pub may_return: bool,
    pub client: ClientId,
    pub ephemeral: bool,
    pub owner: Option<Box<[u8]>>,
    /// The lane of a semaphore in which the request stands (LANE).
    pub lane: LaneName,
    /// Whether there is memory for a new hold or place. What the token has already is answered all the same.
    pub may_grow: bool,
}

impl Request {
    /// Returns what is asked for, and in which lane.
    pub fn what(&self) -> (Claim, &[u8]) {
        (self.claim, self.lane.as_bytes())
    }

    /// Returns the lane of a request for permits.
    pub fn lane(&self) -> Option<&LaneName> {
        Some(&self.lane).filter(|_| self.claim.family() == Family::Semaphore)
    }
}

/// What stays of a place when it is granted, in case that the grant is not delivered. The hold has the rest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Standing {
    pub rank: Rank,
    /// When the place was first taken.
    pub since: MonoUs,
    /// `None` and 0 if the place is not kept.
    keep_ms: Option<NonZeroU32>,
    kept_since: UnixMs,
    bound: Option<NonZeroU32>,
}

// With its parts side by side it takes eight bytes less in each place.
const _: () = assert!(size_of::<Standing>() == 32);

/// How a place is kept.
#[derive(Clone, Copy)]
pub struct Keep {
    /// How long, from the last request with QUEUE, or from the end of a wait on the place. Never 0.
    pub ms: u32,
    /// When the place was first taken, by the wall clock.
    pub since: UnixMs,
}

impl Standing {
    pub fn new(rank: Rank, since: MonoUs) -> Standing {
        Standing {
            rank,
            since,
            keep_ms: None,
            kept_since: UnixMs(0),
            bound: None,
        }
    }

    /// Returns it for a place that is kept so, with this bound.
    pub fn with(self, keep: Option<Keep>, bound: Option<u32>) -> Standing {
        Standing {
            keep_ms: keep.and_then(|keep| NonZeroU32::new(keep.ms)),
            kept_since: keep.map_or(UnixMs(0), |keep| keep.since),
            bound: bound.and_then(NonZeroU32::new),
            ..self
        }
    }

    /// Set if the place is kept, whether a client waits on it or not.
    pub fn keep(&self) -> Option<Keep> {
        let (ms, since) = (self.keep_ms?.get(), self.kept_since);
        Some(Keep { ms, since })
    }

    /// See [`Request::bound`].
    pub fn bound(&self) -> Option<u32> {
        self.bound.map(NonZeroU32::get)
    }
}

/// A place in the queue of a name.
#[derive(Clone, Debug)]
pub struct Place {
    pub standing: Standing,
    pub token: Token,
    pub claim: Claim,
    pub lease: LeaseMs,
    pub min_hold: MinHold,
    pub owner: Option<Box<[u8]>>,
    pub lane: LaneName,
    pub presence: Presence,
}

// A larger one is copied by calls, some 150 instructions for a hand-off.
const _: () = assert!(size_of::<Place>() == 128);

/// A MINHOLD or none, in four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MinHold(Option<NonZeroU32>);

impl MinHold {
    pub fn of(min_hold: Option<LeaseMs>) -> MinHold {
        MinHold(min_hold.and_then(|ms| NonZeroU32::new(ms.0)))
    }

    pub fn get(self) -> Option<LeaseMs> {
        self.0.map(|ms| LeaseMs(ms.get()))
    }
}

/// Who is at a place.
#[derive(Clone, Debug)]
pub enum Presence {
    /// A client waits for the reply.
    Parked(Parked),
    /// Nobody waits, and the place is kept until then, if this server has given the moment since it took over: see
    /// [`crate::term`].
    Kept { until: LeaseUs },
    /// Nobody waits, and the place delays nobody. It is left to its token until then.
    Vacant {
        until: MonoUs,
        /// The answer to every request of the token: its request was withdrawn, or decided while nobody waited for the
        /// answer. `None` if the connection closed: the next request with BLOCK or QUEUE takes the place again.
        verdict: Option<Box<Answer>>,
    },
}

/// A client that waits.
#[derive(Clone, Copy, Debug)]
pub struct Parked {
    pub waiter: WaiterId,
    pub client: ClientId,
    /// Whether the hold ends with the connection.
    pub ephemeral: bool,
    /// Whether the client chose the token, so that it can come back to the place.
    pub may_return: bool,
    /// When the wait runs out, or [`MonoUs::NEVER`].
    pub until: MonoUs,
}

/// A client that waits for a group's round to finish.
#[derive(Clone, Copy, Debug)]
pub struct Watcher {
    pub parked: Parked,
    pub since: MonoUs,
}

impl Place {
    pub fn rank(&self) -> Rank {
        self.standing.rank
    }

    /// Whether the token can come back to the place. One on which no client waits is kept or vacant for that.
    pub fn may_return(&self) -> bool {
        self.parked().is_none_or(|parked| parked.may_return)
    }

    pub fn is_kept(&self) -> bool {
        self.standing.keep_ms.is_some()
    }

    /// Whether the place can stand in a lane.
    pub fn is_for_permits(&self) -> bool {
        self.claim.family() == Family::Semaphore
    }

    /// Returns the client that waits on the place, if one does.
    pub fn parked(&self) -> Option<Parked> {
        match &self.presence {
            Presence::Parked(parked) => Some(*parked),
            Presence::Kept { .. } | Presence::Vacant { .. } => None,
        }
    }

    /// Returns for how long the place is kept, and until when, if nobody waits on it.
    pub fn kept_until(&self) -> Option<(u32, LeaseUs)> {
        match self.presence {
            Presence::Kept { until } => Some((self.standing.keep()?.ms, until)),
            Presence::Parked(_) | Presence::Vacant { .. } => None,
        }
    }

    /// Whether the request asks with QUEUE for just what the place is kept for.
    pub fn is_asked_again(&self, request: &Request) -> bool {
        let keep_ms = self.standing.keep().map(|keep| keep.ms);
        keep_ms.is_some()
            && keep_ms == request.keep_ms
            && self.standing.bound() == request.bound
            && (self.claim, self.lease) == (request.claim, request.lease)
            && self.min_hold.get() == request.min_hold
            && self.owner == request.owner
    }

    /// Returns what the place asks for, and in which lane.
    pub fn what(&self) -> (Claim, &[u8]) {
        (self.claim, self.lane.as_bytes())
    }

    /// Whether the place is in the line of those that are served.
    pub fn is_in_line(&self) -> bool {
        !matches!(self.presence, Presence::Vacant { .. })
    }

    /// Returns what every request of the token is told, if its request was decided or withdrawn.
    pub fn verdict(&self) -> Option<&Answer> {
        match &self.presence {
            Presence::Vacant { verdict, .. } => verdict.as_deref(),
            Presence::Parked(_) | Presence::Kept { .. } => None,
        }
    }

    /// Returns the bytes that the place takes on the heap besides its share of the maps that all places are in.
    pub fn heap_bytes(&self) -> usize {
        // The token is also a key of the queue's map of tokens.
        let tokens = 2 * self.token.heap_bytes();
        let owner = self.owner.as_ref();
        let owner = owner.map_or(0, |owner| heap::allocated(owner.len()));
        tokens + owner + self.lane.heap_bytes()
    }

    /// Returns what other servers and files know of the place, if it is kept.
    pub fn kept_place(&self) -> Option<KeptPlace> {
        let keep = self.standing.keep()?;
        Some(KeptPlace {
            rank: self.rank(),
            token: self.token.clone(),
            claim: self.claim,
            lease: self.lease,
            min_hold: self.min_hold.get(),
            keep_ms: keep.ms,
            bound: self.standing.bound(),
            owner: self.owner.clone(),
            since: keep.since,
            lane: self.lane.clone(),
        })
    }

    /// Returns a kept place on which nobody waits.
    pub fn kept(kept: KeptPlace, since: MonoUs, until: LeaseUs) -> Place {
        let keep = Keep {
            ms: kept.keep_ms,
            since: kept.since,
        };
        Place {
            standing: Standing::new(kept.rank, since).with(Some(keep), kept.bound),
            token: kept.token,
            claim: kept.claim,
            lease: kept.lease,
            min_hold: MinHold::of(kept.min_hold),
            owner: kept.owner,
            lane: kept.lane,
            presence: Presence::Kept { until },
        }
    }

    /// Returns the place that a hold was granted to. The grant was not delivered, so the token gets the place back.
    pub fn of_grant(standing: Standing, hold: Grant, presence: Presence) -> Place {
        Place {
            standing,
            token: hold.token,
            claim: hold.claim,
            lease: hold.lease,
            min_hold: MinHold::of(hold.rest.after()),
            owner: hold.owner,
            lane: hold.lane,
            presence,
        }
    }

    /// Returns the place without anybody, left to its token; `None` if no token may come back to it.
    pub fn vacated(self, until: MonoUs, verdict: Option<Answer>) -> Option<Place> {
        self.may_return().then(|| Place {
            standing: self.standing.with(None, None),
            owner: None,
            presence: Presence::Vacant {
                until,
                verdict: verdict.map(Box::new),
            },
            ..self
        })
    }
}
