//! How a hold begins, and how its token gets it again.

use crate::answer::{Answer, Refusal};
use crate::change::Change;
use crate::hold::{Grant, Rest};
use crate::short_bytes::LaneName;
use crate::state::Body;
use crate::types::{Claim, ClientId, Family, Fence, LeaseMs, LeaseUs, Moments, Token};
use crate::visit::Visit;

/// Who is told of a grant.
#[derive(Clone, Copy)]
pub(crate) enum Told {
    /// The client of this connection, with which an ephemeral hold ends.
    Client { client: ClientId, ephemeral: bool },
    /// Nobody waits on the place, which was kept for so long: the first deadline is as short.
    Nobody { keep_ms: u32 },
}

impl Visit<'_> {
    /// Grants a hold, and returns its fence; `None` if the state has refused it.
    pub(crate) fn grant(
        &mut self,
        token: Token,
        claim: Claim,
        (lease, min_hold): (LeaseMs, Option<LeaseMs>),
        owner: Option<Box<[u8]>>,
        lane: LaneName,
        told: Told,
    ) -> Option<Fence> {
        let first = match told {
            Told::Client { .. } => lease,
            Told::Nobody { keep_ms } => LeaseMs(keep_ms).min(lease),
        };
        let now = self.now;
        let fence = self.engine.term.fences.next(now);
        // Fewer holds than the limit have an index, so the lowest free one is below the limit.
        let free_index = || self.body().map_or(0, |body| body.holds().free_index());
        let index = (claim == Claim::Indexed).then(free_index);
        let grant = Grant {
            fence,
            token,
            claim,
            index,
            lease,
            rest: min_hold.map_or(Rest::None, Rest::After),
            deadline: now.unix().after_ms(u64::from(first.0)),
            granted: now.unix(),
            renewed: false,
            owner,
            lane,
        };
        self.make_state(claim.family());
        self.decide(Change::Grant(grant)).ok()?;
        if let Told::Nobody { keep_ms } = told {
            let _ = self.decide(Change::Unheard { fence, keep_ms });
        }
        let rests_until = min_hold.map(|ms| now.lease.after_ms(ms.0.into()));
        self.set_moments(fence, now.lease.after_ms(first.0.into()), rests_until);
        if let Told::Client { client, ephemeral } = told {
            self.bind(fence, client, ephemeral);
        }
        Some(fence)
    }

    /// Returns the grant that the token already has, if any: the same fence, a new lease from now, bound to the
    /// connection that asks. The counters do not count it again.
    #[inline(always)]
    pub(crate) fn repeat_grant(
        &mut self,
        token: &Token,
        what: (Claim, &[u8]),
        lease: LeaseMs,
        (client, ephemeral): (ClientId, bool),
    ) -> Option<Answer> {
        let hold = self.body()?.holds().by_token(token)?;
        if let Some(refusal) = Refusal::of_other(what, hold.what()) {
            return Some(refusal.into());
        }
        let fence = hold.fence();
        self.renew_hold(fence, lease);
        self.bind(fence, client, ephemeral);
        // The end of the connection that had the hold no longer matters.
        self.engine.agenda.keep(fence);
        Some(self.granted(token.clone(), what.0, fence))
    }

    /// Returns the answer that tells a request that it holds.
    #[inline(always)]
    pub(crate) fn granted(&self, token: Token, claim: Claim, fence: Fence) -> Answer {
        let body = self.body();
        match body.and_then(Body::once) {
            Some(once) => Answer::Run {
                token,
                fence,
                attempt: once.attempts,
            },
            None => {
                let body = body.filter(|_| claim == Claim::Indexed);
                let index = body.and_then(|body| body.holds().get(fence)?.index());
                Answer::Granted {
                    token,
                    fence,
                    index,
                }
            }
        }
    }

    /// Gives the hold a new lease from now.
    pub(crate) fn renew_hold(&mut self, fence: Fence, lease: LeaseMs) {
        let deadline = self.now.unix().after_ms(u64::from(lease.0));
        let renew = Change::Renew {
            fence,
            lease,
            deadline,
        };
        if self.decide(renew).is_ok() {
            self.set_moments(fence, self.now.lease.after_ms(lease.0.into()), None);
        }
    }

    /// Puts a limit in force that a request has brought with it.
    pub(crate) fn put_limit_in_force(&mut self, family: Family, asked: Option<u32>) {
        if let Some(limit) = asked
            && self.body().and_then(|body| body.limits().limit) != asked
        {
            self.make_state(family);
            // If the state refuses the limit, `decide` logs it and the limit in force stays.
            let _ = self.decide(Change::Limit(limit));
        }
    }

    /// Without a value: puts the limit in force for which this family waited last, so that a new value begins under it.
    pub(crate) fn put_remembered_limit_in_force(&mut self, family: Family) {
        if self.state.is_none() {
            let remembered = self.queue().and_then(|queue| queue.limit(family));
            self.put_limit_in_force(family, remembered);
        }
    }

    /// Gives the lease of a hold its end, and says until when its place stays taken if it was granted with MINHOLD.
    #[inline(always)]
    pub(crate) fn set_moments(&mut self, fence: Fence, due: LeaseUs, rests_until: Option<LeaseUs>) {
        if let Some(id) = self.state {
            let term = &mut self.engine.term;
            let due = term.give(due);
            let rests_until = rests_until.map_or(LeaseUs(0), |until| term.give(until));
            (self.engine.store).set_moments(id, fence, Moments { due, rests_until });
        }
    }

    /// Notes which connection the hold was given to: INFO shows it, and the end of an EPHEMERAL hold depends on it.
    #[inline(always)]
    fn bind(&mut self, fence: Fence, client: ClientId, ephemeral: bool) {
        if let Some(id) = self.state {
            self.engine.store.bind(id, fence, client, ephemeral);
        }
    }
}
