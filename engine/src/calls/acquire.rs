//! ACQUIRE, ADD and BEGIN: grant now, queue, or refuse.
//!
//! A request never passes an earlier one. While any request waits, a new one queues behind it, or fails if it may not
//! wait, even if it could be granted. If the token of a request already has a hold or a place in the queue, the request
//! is a retry, and gets what the token has.

use crate::answer::{Answer, Refusal};
use crate::calls::grant::Told;
use crate::calls::next::admission;
use crate::change::KeptPlace;
use crate::queue::place::{Keep, MinHold, Parked, Place, Presence, Request, Standing};
use crate::state::Body;
use crate::state::families::policy::Admission;
use crate::types::{Claim, ClientId, Family, Rank, UnixMs, WaiterId};
use crate::visit::{Asking, Visit};

/// The outcome of a request that may wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Now(Answer),
    /// The answer will come later, as a wake of this waiter.
    Queued(WaiterId),
}

/// What became of a request before the queue is served once more: it is in the queue, or it has its answer. An answer
/// ends the request like an error, whatever it says.
pub(crate) type Asked = Result<Asking, Answer>;

impl Visit<'_> {
    /// Asks for a hold.
    pub fn acquire(&mut self, request: Request) -> Reply {
        let asked = self.ask(request);
        self.reply(asked)
    }

    /// Serves a request that has just joined the queue, and returns what its client is told now.
    #[inline(always)]
    pub(crate) fn reply(&mut self, asked: Asked) -> Reply {
        let asking = match asked {
            Ok(asking) => asking,
            Err(answer) => return Reply::Now(answer),
        };
        self.asking = Some(asking);
        // This may grant the request, so it comes before the client is parked.
        if self.is_stale {
            self.settle();
        }
        match (self.answer.take(), asking.waiter) {
            (Some(answer), _) => Reply::Now(answer),
            (None, Some(waiter)) => Reply::Queued(waiter),
            (None, None) => Reply::Now(self.waiting(asking.rank)),
        }
    }

    fn ask(&mut self, request: Request) -> Asked {
        let family = request.claim.family();
        self.look().body_of(family)?;
        // Settle the key even if this call changes nothing: if its queue is due, or if each request keeps the key longer,
        // as with groups and work-once keys. Other keys are settled only after a change.
        let queues = &self.engine.queues;
        let is_due = self.queue.is_some_and(|queue| queues.is_due(queue));
        self.is_stale = is_due || matches!(family, Family::Group | Family::Once);
        let had_queue = self.queue.is_some();
        // Do this before any hold lapses, because its token may still renew an overdue hold.
        self.repeat_request(&request)?;
        self.catch_up();
        self.serve();
        if had_queue {
            // If the key was removed a moment ago, `serve` may have granted it to a waiter of another family.
            self.look().body_of(family)?;
            // `serve` may just have granted an earlier sending of this request, which was queued.
            self.repeat_request(&request)?;
        }
        Self::check_lane_limit(&request)?;
        let queues = request.wait.is_some() || request.keep_ms.is_some();
        let place = self.queue().and_then(|queue| queue.find(&request.token));
        if let Some(place) = place {
            let (rank, is_vacant) = (place.rank(), !place.is_in_line());
            let is_failed = matches!(place.verdict(), Some(Answer::GivenUp { .. }));
            if is_vacant && (place.claim.family() != family || is_failed && self.is_done()) {
                // What the token asked for is gone, and another family uses the name now. Or a later attempt has done
                // the work that had failed, and the key tells so.
                self.leave(rank);
            } else if let Some(verdict) = place.verdict() {
                // The request was decided or withdrawn, in whatever mode it comes now.
                return Err(verdict.clone());
            } else if let Some(refusal) = Refusal::of_other(request.what(), place.what()) {
                return Err(refusal.into());
            } else if queues {
                return self.resume(rank, request);
            } else if !is_vacant {
                return Err(Answer::NotGranted);
            }
            // A vacant place delays nobody, so a try with its token is decided like any other try.
        }
        let limits = self.body().map(Body::limits).unwrap_or_default();
        let limit = limits.pinned.or(request.limit).or(limits.limit);
        let is_first = !self.has_line() || self.passes_line(&request, limit);
        let is_granted = match admission(self.body(), request.claim, limit, request.bound) {
            Admission::Never(answer) => return Err(answer),
            Admission::GiveUp if is_first => return Err(self.give_up()),
            Admission::Now => is_first && self.fits_lane(&request),
            Admission::GiveUp | Admission::Later => false,
        };
        if !is_granted && !queues {
            return Err(Answer::NotGranted);
        }
        // From here on there is a new hold or a new place.
        if !request.may_grow {
            return Err(Refusal::OutOfMemory.into());
        }
        if is_granted {
            return Err(self.grant_at_once(request));
        }
        self.make_room(request.lane(), request.keep_ms.is_some())?;
        self.queue_up(request)
    }

    /// Whether a try for a lock without a token of its own is refused, and nothing else comes of it: others hold, nobody
    /// waits and nothing has come due. Most tries end so, and what a grant needs need not be found out for them. `false`
    /// says nothing.
    #[must_use]
    pub fn refuses(&self, claim: Claim) -> bool {
        let term = &self.engine.term;
        let is_quiet = self.queue.is_none() && !term.is_walking();
        self.body().filter(|_| is_quiet).is_some_and(|body| {
            let is_lock = body.family() == Family::Lock && claim.family() == Family::Lock;
            let is_open = is_lock && body.opens_at().is_none();
            let overdue = || body.holds().overdue(term.since(), self.now.lease);
            is_open
                && overdue().is_none()
                && matches!(body.admission(claim, None, None), Admission::Later)
        })
    }

    /// Whether the work of the key is done.
    fn is_done(&self) -> bool {
        let once = self.body().and_then(Body::once);
        once.is_some_and(|once| once.done().is_some())
    }

    /// Answers the request if its token has a grant already.
    #[inline(always)]
    fn repeat_request(&mut self, request: &Request) -> Result<(), Answer> {
        // No hold has a token that was made just now.
        if !request.may_return {
            return Ok(());
        }
        let to = (request.client, request.ephemeral);
        let granted = self.repeat_grant(&request.token, request.what(), request.lease, to);
        granted.map_or(Ok(()), Err)
    }

    #[inline(always)]
    fn grant_at_once(&mut self, request: Request) -> Answer {
        let vacant = self.queue().and_then(|queue| queue.find(&request.token));
        let vacant = vacant.map(Place::rank);
        let (token, family) = (request.token.clone(), request.claim.family());
        let told = Told::Client {
            client: request.client,
            ephemeral: request.ephemeral,
        };
        self.put_limit_in_force(family, request.limit);
        let (claim, owner, lane) = (request.claim, request.owner, request.lane);
        let lease = (request.lease, request.min_hold);
        let Some(fence) = self.grant(request.token, claim, lease, owner, lane, told) else {
            return Answer::NotGranted;
        };
        self.engine.stats.counters_mut(family).granted_at_once += 1;
        if let Some(rank) = vacant {
            self.leave(rank);
        }
        self.granted(token, claim, fence)
    }

    /// Puts a request into a new place at the end of the queue.
    fn queue_up(&mut self, request: Request) -> Asked {
        let rank = self.next_rank()?;
        // The limit takes force when the request enters the queue, and not again when it is granted.
        self.put_limit_in_force(request.claim.family(), request.limit);
        self.enter(Standing::new(rank, self.now.mono), request, None)
    }

    /// Gives the place, waiting, kept or vacant, to the same request sent again. With QUEUE it is a kept place from then
    /// on; with BLOCK a kept place stays one.
    fn resume(&mut self, rank: Rank, request: Request) -> Asked {
        let place = self.queue().and_then(|queue| queue.place(rank));
        if place.is_some_and(|place| place.is_asked_again(&request)) {
            return Ok(self.keep_on(rank, request.client));
        }
        if request.keep_ms.is_some() && !place.is_some_and(Place::is_kept) {
            self.check_room_for_kept(request.lane())?;
        }
        let old = self.take_place(rank).ok_or(Answer::NotGranted)?;
        if let Some(parked) = old.parked() {
            self.engine.effects.wake(parked.waiter, Answer::Superseded);
        }
        self.enter(old.standing, request, old.kept_place())
    }

    /// Keeps a place from now on for the same request with QUEUE, which has come again.
    fn keep_on(&mut self, rank: Rank, client: ClientId) -> Asking {
        self.comes_due_in(0);
        if let Some(waiter) = self.detach(rank) {
            self.engine.effects.wake(waiter, Answer::Superseded);
        }
        Asking::new(rank, client, None)
    }

    /// Puts a request into the queue, at a place that has had this standing. `known` is what others know of the place.
    fn enter(&mut self, before: Standing, request: Request, known: Option<KeptPlace>) -> Asked {
        let age_ms = self.now.mono.ms_since(before.since);
        let first = UnixMs(self.now.unix().0.saturating_sub(age_ms));
        let since = before.keep().map_or(first, |keep| keep.since);
        let keep = request.keep_ms.map(|ms| Keep { ms, since });
        let keep = keep.or(before.keep());
        let standing = before.with(keep, request.bound);
        let (client, engine) = (request.client, &mut *self.engine);
        let parked = request.wait.map(|until| Parked {
            waiter: engine.queues.next_waiter(),
            client,
            ephemeral: request.ephemeral,
            may_return: request.may_return,
            until,
        });
        let presence = match parked {
            Some(parked) => Presence::Parked(parked),
            None => {
                let keep_ms = keep.map_or(0, |keep| keep.ms);
                let until = engine.term.keep_until(keep_ms, self.now);
                Presence::Kept { until }
            }
        };
        let place = Place {
            standing,
            token: request.token,
            claim: request.claim,
            lease: request.lease,
            min_hold: MinHold::of(request.min_hold),
            owner: request.owner,
            lane: request.lane,
            presence,
        };
        if !self.put(place, known.as_ref()) {
            return Err(Answer::NotGranted);
        }
        let waiter = parked.map(|parked| parked.waiter);
        Ok(Asking::new(standing.rank, client, waiter))
    }

    /// Returns the answer to a request with QUEUE that was not granted in its visit.
    fn waiting(&self, rank: Rank) -> Answer {
        let most = Answer::FARTHEST;
        let queue = self.queue();
        let position = queue.map_or(0, |queue| queue.position(rank, most as usize));
        Answer::Waiting {
            position: u32::try_from(position).unwrap_or(most),
            rank,
        }
    }
}
