//! ACQUIRE, ADD and BEGIN: grant now, queue, or refuse.
//!
//! A request never passes an earlier one. While any request waits, a new one queues behind it, or fails if it may not
//! wait, even if it could be granted. If the token of a request already has a hold or a place in the queue, the request
//! is a retry, and gets what the token has.

use crate::answer::{Answer, Refusal};
use crate::calls::grant::{NewHold, Told};
use crate::change::{Change, KeptPlace};
use crate::queue::place::{Keep, Parked, Place, Presence, Request, Standing};
use crate::queue::wait_queue::Left;
use crate::state::Body;
use crate::types::{Claim, ClientId, Family, Fence, MonoUs, Now, QueueId, Rank, UnixMs, WaiterId};
use crate::visit::{Asking, Visit};

/// The outcome of a request that may wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Now(Answer),
    /// The answer will come later, as a wake of this waiter.
    Queued(WaiterId),
}

/// What became of a request before the queue is served once more.
enum Decided {
    Answer(Answer),
    /// It waits: as this waiter, or on a kept place.
    Queued(Option<WaiterId>),
}

impl Visit<'_> {
    /// Asks for a hold.
    pub fn acquire(&mut self, request: Request) -> Reply {
        let family = request.claim.family();
        if self.body_of(family).is_err() {
            return Reply::Now(Answer::WrongType);
        }
        // Settle the key even if this call changes nothing: if its queue is due, or if each request keeps the key longer,
        // as with groups and work-once keys. Other keys are settled only after a change.
        let is_due = self
            .queue
            .is_some_and(|queue| self.engine.queues.is_due(queue));
        self.is_stale = is_due || matches!(family, Family::Group | Family::Once);
        let had_queue = self.queue.is_some();
        // Do this before any hold lapses, because its token may still renew an overdue hold.
        if let Some(answer) = self.repeat_request(&request) {
            return Reply::Now(answer);
        }
        self.catch_up();
        self.serve();
        if had_queue {
            // If the key was removed a moment ago, `serve` may have granted it to a waiter of another family.
            if self.body_of(family).is_err() {
                return Reply::Now(Answer::WrongType);
            }
            // `serve` may just have granted an earlier sending of this request, which was queued.
            if let Some(answer) = self.repeat_request(&request) {
                return Reply::Now(answer);
            }
        }
        let waiter = match self.grant_or_queue(request) {
            Decided::Answer(answer) => return Reply::Now(answer),
            Decided::Queued(waiter) => waiter,
        };
        // This may grant the request, so it comes before the client is parked.
        if self.is_stale {
            self.settle();
        }
        match (self.answer.take(), waiter) {
            (Some(answer), _) => Reply::Now(answer),
            (None, Some(waiter)) => Reply::Queued(waiter),
            (None, None) => Reply::Now(self.waiting()),
        }
    }

    /// Returns the grant that the request's token already has, if any.
    fn repeat_request(&mut self, request: &Request) -> Option<Answer> {
        // No hold has a token that was made just now.
        if !request.may_return {
            return None;
        }
        let to = (request.client, request.ephemeral);
        self.repeat_grant(&request.token, request.claim, request.lease, to)
    }

    fn grant_or_queue(&mut self, request: Request) -> Decided {
        let queues = request.wait.is_some() || request.keep_ms.is_some();
        let mut vacant = None;
        if let Some(queue) = self.find_queue()
            && let Some(place) = self.queue().and_then(|queue| queue.find(&request.token))
        {
            let (rank, is_vacant) = (place.rank(), !place.is_in_line());
            if is_vacant && place.claim.family() != request.claim.family() {
                // What the token asked for is gone, and another family uses the name now.
                self.engine.queues.leave(queue, rank);
            } else if let Some(verdict) = place.verdict() {
                // The request was decided or withdrawn, in whatever mode it comes now.
                return Decided::Answer(verdict.clone());
            } else if place.claim != request.claim {
                return Decided::Answer(Answer::Refused(Refusal::Mismatch));
            } else if queues {
                return self.resume(queue, rank, request);
            } else if is_vacant {
                // A vacant place delays nobody, so a try with its token is decided like any other try.
                vacant = Some(rank);
            } else {
                return Decided::Answer(Answer::NotGranted);
            }
        }
        if let Some(answer) = self.concluded(request.max_attempts) {
            return Decided::Answer(answer);
        }
        let limit = match self.limit_for(&request) {
            Ok(limit) => limit,
            Err(refusal) => return Decided::Answer(Answer::Refused(refusal)),
        };
        let fits = match self.body() {
            Some(body) => body.admits(request.claim, limit),
            None => limit != Some(0),
        };
        let is_granted = fits && !self.has_line();
        if !is_granted && !queues {
            return Decided::Answer(Answer::NotGranted);
        }
        // From here on there is a new hold or a new place.
        if !request.may_grow {
            return Decided::Answer(Answer::Refused(Refusal::OutOfMemory));
        }
        if is_granted {
            return Decided::Answer(self.grant_at_once(request, vacant));
        }
        let queue = self.find_queue();
        let (queues, settings) = (&mut self.engine.queues, &self.engine.settings);
        let room = match request.keep_ms {
            Some(_) => queues.check_room_for_kept(queue, 1, settings),
            None => Ok(()),
        };
        let room = room.and_then(|()| queues.make_room(queue, settings));
        match room {
            Ok(()) => self.queue_up(request),
            Err(full) => Decided::Answer(Answer::Refused(Refusal::QueueFull(full))),
        }
    }

    fn grant_at_once(&mut self, request: Request, vacant: Option<Rank>) -> Answer {
        let (token, family) = (request.token.clone(), request.claim.family());
        let told = Told::Client {
            client: request.client,
            ephemeral: request.ephemeral,
        };
        let hold = NewHold {
            token: request.token,
            claim: request.claim,
            lease: request.lease,
            owner: request.owner,
            limit: request.limit,
        };
        let Some(fence) = self.grant(hold, told) else {
            return Answer::NotGranted;
        };
        self.engine.stats.counters_mut(family).granted_at_once += 1;
        if let Some((queue, rank)) = self.queue.zip(vacant) {
            self.engine.queues.leave(queue, rank);
        }
        self.granted(token, fence)
    }

    /// Returns the limit under which this request is decided.
    fn limit_for(&self, request: &Request) -> Result<Option<u32>, Refusal> {
        let body = self.body();
        let in_force = body.and_then(Body::limit_in_force);
        match request.claim {
            Claim::Exclusive | Claim::Shared | Claim::Run => Ok(None),
            Claim::Member => Ok(request.limit.or(in_force)),
            Claim::Permits(permits) => {
                let pinned = body.and_then(|body| body.limits().pinned);
                let limit = pinned
                    .or(request.limit)
                    .or(in_force)
                    .ok_or(Refusal::NoLimit)?;
                // A limit of 0 pauses the semaphore, and no number of permits is too many for a pause.
                if limit >= 1 && permits > limit {
                    return Err(Refusal::TooMany { permits, limit });
                }
                Ok(Some(limit))
            }
        }
    }

    /// Returns the answer to a request that must not run: the result, or FAILED if its attempts are used up.
    ///
    /// FAILED is told only if no run lives and no request waits, because earlier requests are answered first. During a
    /// delay it is told at once: all that wait then allow more attempts, so none of them waits for this answer.
    fn concluded(&mut self, max_attempts: Option<u32>) -> Option<Answer> {
        let Some(once) = self.body().and_then(Body::once) else {
            return None;
        };
        if let Some(answer) = once.answer_done() {
            return Some(answer);
        }
        let hopeless = once.is_idle() && once.is_exhausted(max_attempts);
        let is_told = hopeless && (once.is_delayed() || !self.has_line());
        is_told.then(|| self.give_up())
    }

    /// Puts a request into a new place at the end of the queue.
    fn queue_up(&mut self, mut request: Request) -> Decided {
        let Some(rank) = self.next_rank() else {
            return Decided::Answer(Answer::NotGranted);
        };
        let queue = self.make_queue();
        // The limit takes force when the request enters the queue, and not again when it is granted.
        let asked = request.limit.take();
        self.put_limit_in_force(request.claim, asked);
        let limit = asked.or_else(|| self.body().and_then(Body::limit_to_remember));
        if let Some(limit) = limit
            && let Some(queue) = self.engine.queues.get_mut(queue)
        {
            queue.remember_limit(request.claim.family(), limit);
        }
        let standing = Standing {
            rank,
            since: self.now.mono,
            keep: request.keep_ms.map(|ms| Keep {
                ms,
                since: self.now.unix(),
            }),
            max_attempts: request.max_attempts,
        };
        self.enter(queue, standing, request, None)
    }

    /// Draws the rank of a new place. Returns `None` when there are no more numbers.
    pub(crate) fn next_rank(&mut self) -> Option<Rank> {
        let number = self.engine.term.fences.next(self.now);
        (number < Fence::MAX).then_some(Rank(number))
    }

    /// Gives the place, waiting, kept or vacant, to the same request sent again. With QUEUE it is a kept place from then
    /// on; with BLOCK a kept place stays one.
    fn resume(&mut self, queue: QueueId, rank: Rank, request: Request) -> Decided {
        let (queues, settings) = (&mut self.engine.queues, &self.engine.settings);
        let before = queues.get(queue).and_then(|queue| queue.place(rank));
        if before.is_some_and(|place| place.is_asked_again(&request)) {
            return self.keep_on(queue, rank, request.client);
        }
        let before = before.and_then(Place::kept_place);
        if request.keep_ms.is_some()
            && before.is_none()
            && let Err(full) = queues.check_room_for_kept(Some(queue), 1, settings)
        {
            return Decided::Answer(Answer::Refused(Refusal::QueueFull(full)));
        }
        let Some(Left::Place(old)) = queues.leave(queue, rank) else {
            return Decided::Answer(Answer::NotGranted);
        };
        if let Some(parked) = old.parked() {
            self.engine.effects.wake(parked.waiter, Answer::Superseded);
        }
        let Standing { since, keep, .. } = old.standing;
        let keep = match request.keep_ms {
            Some(ms) => Some(Keep {
                ms,
                since: keep.map_or_else(|| wall_moment(since, self.now), |keep| keep.since),
            }),
            None => keep,
        };
        let standing = Standing {
            rank,
            since,
            keep,
            max_attempts: request.max_attempts,
        };
        self.enter(queue, standing, request, before.as_ref())
    }

    /// Keeps a place from now on for the same request with QUEUE, which has come again.
    fn keep_on(&mut self, queue: QueueId, rank: Rank, client: ClientId) -> Decided {
        self.may_come_due = true;
        if let Some((waiter, _)) = self.engine.detach(queue, rank, self.now) {
            self.engine.effects.wake(waiter, Answer::Superseded);
        }
        self.asking = Some(Asking { rank, client });
        Decided::Queued(None)
    }

    /// Puts a request into the queue, and replicates its place if that is kept and differs from what the others know of
    /// it.
    fn enter(
        &mut self,
        queue: QueueId,
        standing: Standing,
        request: Request,
        known: Option<&KeptPlace>,
    ) -> Decided {
        let Standing { rank, keep, .. } = standing;
        let parked = request.wait.map(|until| Parked {
            waiter: self.engine.queues.next_waiter(),
            client: request.client,
            ephemeral: request.ephemeral,
            until,
        });
        let presence = match parked {
            Some(parked) => Presence::Parked(parked),
            None => Presence::Kept {
                until: (self.engine.term).keep_until(keep.map_or(0, |keep| keep.ms), self.now),
            },
        };
        let place = Place {
            standing,
            token: request.token,
            may_return: request.may_return,
            claim: request.claim,
            lease: request.lease,
            owner: request.owner,
            presence,
        };
        let kept = place.kept_place().filter(|kept| known != Some(kept));
        self.is_stale = true;
        self.engine.queues.join(queue, place);
        if let Some(kept) = kept
            && !self.decide_place(kept)
        {
            self.engine.queues.leave(queue, rank);
            return Decided::Answer(Answer::NotGranted);
        }
        self.asking = Some(Asking {
            rank,
            client: request.client,
        });
        Decided::Queued(parked.map(|parked| parked.waiter))
    }

    /// Records that the name has this kept place, and gives the name a value if it has none, because the place is saved
    /// with it. The value begins under the limit that its family waited for last. Returns false if there is no room for
    /// the value.
    pub(crate) fn decide_place(&mut self, place: KeptPlace) -> bool {
        let family = place.claim.family();
        if self.state.is_none() {
            let limit = self.queue().and_then(|queue| queue.limit(family));
            self.put_limit_in_force(place.claim, limit);
        }
        if self.state.is_none() && self.create(family).is_none() {
            return false;
        }
        self.is_stale = true;
        self.engine.effects.changes.push(Change::Place(place));
        true
    }

    /// Returns the answer to a request with QUEUE that was not granted in its visit.
    fn waiting(&self) -> Answer {
        let most = Answer::FARTHEST;
        let rank = self.asking.map_or(Rank(Fence(0)), |asking| asking.rank);
        let position = self
            .queue()
            .map_or(0, |queue| queue.position(rank, most as usize));
        Answer::Waiting {
            position: u32::try_from(position).unwrap_or(most),
            rank,
        }
    }
}

/// Returns the wall-clock moment of a moment on the monotonic clock.
fn wall_moment(moment: MonoUs, now: Now) -> UnixMs {
    UnixMs(now.unix().0.saturating_sub(now.mono.ms_since(moment)))
}
