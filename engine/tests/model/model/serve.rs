//! The rules: how holds begin and end, which request is next, and when a key is removed.

use super::content::{ModelContent, ModelHold};
use super::{Model, ModelEnd, Name, ms};
use dsync_engine::answer::Answer;
use dsync_engine::change::End;
use dsync_engine::types::{Claim, Now, UnixMs};
use dsync_engine::{Family, Refusal, Request};

impl Model {
    pub(super) fn visit(&mut self, name: Name, now: Now) {
        self.lapse(name, now);
        self.settle(name, now);
    }

    /// If an absent key has waiters, it was removed a moment ago. They come before the request that is made now.
    pub(super) fn serve_removed_key(&mut self, name: Name, now: Now) {
        if self.value(name).is_none() {
            self.settle(name, now);
        }
    }

    pub(super) fn lapse(&mut self, name: Name, now: Now) {
        if !now.may_write {
            return;
        }
        while let Some(fence) = self.content(name).and_then(|content| {
            let overdue = content
                .holds
                .iter()
                .filter(|hold| hold.due_us <= now.lease.0);
            overdue
                .min_by_key(|hold| (hold.due_us, hold.fence))
                .map(|hold| hold.fence)
        }) {
            let hold = self.hold_mut(name, fence).expect("found above");
            let how = match hold.unheard_ms {
                _ if hold.is_resting => End::Rested,
                Some(_) => End::Undelivered,
                None => End::Lapsed,
            };
            self.end(name, fence, how, now);
        }
        self.open(name, now);
    }

    /// Ends what closes the key, if its time is up. Returns whether it ended something.
    fn open(&mut self, name: Name, now: Now) -> bool {
        let Some(content) = self.content_mut(name) else {
            return false;
        };
        let mut has_opened = false;
        for until_ms in content.closings() {
            if until_ms.is_some_and(|until_ms| until_ms <= ms(now)) {
                *until_ms = None;
                has_opened = true;
            }
        }
        has_opened
    }

    pub(super) fn end(&mut self, name: Name, fence: u64, how: End, now: Now) {
        let Some(content) = self.content_mut(name) else {
            return;
        };
        let Some(hold) = content.end(fence, how, now.lease.0) else {
            return;
        };
        let (is_semaphore, lane) = (content.family == Family::Semaphore, hold.lane.clone());
        match (content.family, how) {
            (Family::Group, End::Done) => content.done += 1,
            (Family::Group, End::Lapsed | End::Revoked | End::Disconnected) => content.lapsed += 1,
            (Family::Once, how) => content.work.end(&hold.token, how),
            _ => {}
        }
        match how {
            End::Undelivered if content.holds.is_empty() => content.bring_round_back(),
            End::Undelivered => {}
            _ => content.displaced = None,
        }
        content.touched_ms = content.touched_ms.max(ms(now));
        if !matches!(how, End::Released | End::Done | End::Rested) {
            self.ends.push(ModelEnd { name, hold, how });
        }
        if is_semaphore {
            self.move_turn(name, &lane);
        }
    }

    pub(super) fn renew_hold(&mut self, name: Name, fence: u64, lease_ms: u32, now: Now) {
        let Some(hold) = self.hold_mut(name, fence) else {
            return;
        };
        hold.lease_ms = lease_ms;
        hold.due_us = now.lease.0 + u64::from(lease_ms) * 1_000;
        hold.deadline_ms = ms(now) + u64::from(lease_ms);
        hold.renewed = true;
        hold.unheard_ms = None;
        if let Some(content) = self.content_mut(name) {
            (content.displaced, content.work.displaced) = (None, None);
        }
    }

    pub(super) fn settle(&mut self, name: Name, now: Now) {
        let before = self.waiters(name) > 0;
        self.serve(name, now);
        let waited = self.waiters(name) > 0;
        let left = std::mem::take(&mut self.queue(name).left);
        if let Some(content) = self.content_mut(name)
            && (before || waited || left)
        {
            content.waited_ms = content.waited_ms.max(ms(now));
        }
        if now.may_write && self.kept(name) == 0 && self.is_at_its_end(name, waited, now) {
            self.delete(name);
        }
        self.queues
            .retain(|queue| queue.name != name || !queue.seats.is_empty());
    }

    pub(super) fn kept_until_ms(&self, content: &ModelContent) -> u64 {
        let idle_from = content.touched_ms.max(content.waited_ms);
        let kept_until_ms = match (content.family, &content.work.done) {
            (Family::Once, Some(done)) if done.keep_until == UnixMs::NEVER => u64::MAX,
            (Family::Once, Some(done)) => done.keep_until.0,
            // All runs were handed back, so there is nothing to keep.
            (Family::Once, None) if content.work.attempts == 0 => 0,
            (Family::Once, None) => idle_from + self.settings.once_keep_ms,
            _ if !content.has_begun() => 0,
            _ => content
                .finished_ms
                .unwrap_or(idle_from + self.settings.group_idle_ms),
        };
        kept_until_ms.max(content.kept_at_least_until_ms().unwrap_or(0))
    }

    /// Does what comes before each request that may write, and before each visit of the timer: ends what
    /// closes the key, if it is over, and forgets a key that has been kept long enough.
    pub fn overdue(&mut self, name: Name, now: Now) {
        if !now.may_write {
            return;
        }
        let has_opened = self.open(name, now);
        self.forget_if_over(name, now);
        if has_opened && self.content(name).is_some() {
            self.settle(name, now);
        }
    }

    /// Forgets a key that has been kept long enough, to the millisecond. Queued requests do not keep a result or a
    /// tally longer.
    fn forget_if_over(&mut self, name: Name, now: Now) {
        let Some(content) = self.content(name) else {
            return;
        };
        let is_kept = matches!(content.family, Family::Group | Family::Once);
        let is_concluded = content.finished_ms.is_some() || content.work.done.is_some();
        // A waiter that has left counts until the key is settled, which notes when a request last waited.
        let mut queues = self.queues.iter().filter(|queue| queue.name == name);
        let is_queued = queues.any(|queue| queue.left) || self.waiters(name) > 0;
        let is_used = !content.holds.is_empty() || !is_concluded && is_queued;
        let may_go = !is_used && content.kept_at_least_until_ms().is_none();
        if is_kept && may_go && self.kept_until_ms(content) <= ms(now) {
            self.delete(name);
        }
    }

    pub(super) fn is_at_its_end(&self, name: Name, waited: bool, now: Now) -> bool {
        let Some(content) = self.content(name) else {
            return false;
        };
        content.holds.is_empty()
            && content.kept_at_least_until_ms().is_none()
            && match content.family {
                Family::Semaphore => content.pinned.is_none() && !waited,
                Family::Group | Family::Once => !waited && self.kept_until_ms(content) <= ms(now),
                Family::Lock => true,
            }
    }

    pub(super) fn put_in_force(&mut self, name: Name, family: Family, limit: u32, now: Now) {
        let content = self.content_or_new(name, family, now);
        if content.asked != Some(limit) {
            content.ask(limit);
        }
    }

    pub(super) fn grant(
        &mut self,
        name: Name,
        request: &Request,
        limit: Option<u32>,
        unheard_ms: Option<u32>,
        now: Now,
    ) -> Answer {
        let fence = self.draw();
        let first_ms = unheard_ms.map_or(request.lease.0, |ms| ms.min(request.lease.0));
        let family = request.claim.family();
        if let Some(limit) = limit {
            self.put_in_force(name, family, limit, now);
        }
        let content = self.content_or_new(name, family, now);
        content.begin(ms(now));
        if family == Family::Once {
            content.work.begin();
        }
        content.holds.push(ModelHold {
            fence,
            token: request.token.clone(),
            claim: request.claim,
            index: (content.free_index()).filter(|_| request.claim == Claim::Indexed),
            lease_ms: request.lease.0,
            min_hold_ms: request.min_hold.map(|ms| ms.0),
            rests_until_us: now.lease.0 + request.min_hold.map_or(0, |ms| u64::from(ms.0) * 1_000),
            is_resting: false,
            due_us: now.lease.0 + u64::from(first_ms) * 1_000,
            deadline_ms: ms(now) + u64::from(first_ms),
            granted_ms: ms(now),
            renewed: false,
            owner: request.owner.clone(),
            lane: request.lane.clone(),
            client: request.client.0,
            ephemeral: request.ephemeral,
            ending: None,
            unheard_ms,
            former_place: None,
            vacant_until_us: None,
        });
        if family == Family::Semaphore {
            self.move_turn(name, &request.lane);
        }
        self.granted(name, &request.token, fence)
    }

    /// Answers waiters from the front, up to the first that must wait.
    pub(super) fn serve(&mut self, name: Name, now: Now) {
        if !now.may_write {
            return;
        }
        self.remember_limit(name);
        self.forget_lanes(name);
        loop {
            if self.is_foreign(name) {
                return self.tell_all_wrong_type(name, now);
            }
            let content = self.content(name);
            let is_group = content.is_some_and(|content| content.family == Family::Group);
            match content {
                Some(_) if is_group => {}
                Some(_) => self.tell_watchers(name, &Answer::WrongType, now),
                None => self.tell_watchers(name, &Answer::Removed, now),
            }
            let waiting = self.waiting(name);
            self.finish_if_over(name, waiting.is_empty(), now);
            // During a delay each request whose attempts are used up is told so, wherever it stands.
            if let Some(content) = self.content_mut(name)
                && content.work.delayed_until_ms.is_some()
            {
                let mut failed = waiting.iter().filter_map(|(ticket, request)| {
                    Some((*ticket, content.work.give_up(request.bound)?))
                });
                if let Some((ticket, answer)) = failed.next() {
                    self.tell(name, ticket, answer, now);
                    continue;
                }
            }
            let content = self.content(name);
            let family = content.map(|content| content.family);
            let is_other = |claim: Claim| family.is_some_and(|family| family != claim.family());
            // If the key is absent, each family uses the limit that is remembered for it.
            let limit_for = |family| match content {
                Some(content) => content.in_force(),
                None => self.kept_limit(name, family),
            };
            if let Some(limit) = limit_for(Family::Semaphore).filter(|limit| *limit >= 1)
                && let Some((rank, request)) = waiting.iter().find(|(_, request)| {
                    matches!(request.claim, Claim::Permits(n) if n > limit)
                        && !is_other(request.claim)
                })
            {
                let permits = request.claim.permits();
                let refusal = Refusal::TooMany { permits, limit };
                self.tell(name, *rank, Answer::Refused(refusal), now);
                continue;
            }
            let Some((rank, head)) = waiting.first() else {
                return;
            };
            let limit = limit_for(head.claim.family());
            if is_other(head.claim) {
                self.tell(name, *rank, Answer::WrongType, now);
                continue;
            }
            let chosen = match head.claim.family() {
                Family::Semaphore if limit.is_some() && self.names_lanes(name) => {
                    match self.choose(name) {
                        Some(chosen) => chosen,
                        None => return,
                    }
                }
                _ => (*rank, head.clone()),
            };
            let (rank, head) = (&chosen.0, &chosen.1);
            let mut seats = self.seats(name).iter();
            let seat = seats.find(|seat| seat.rank == *rank).expect("the head");
            let unheard_ms = match seat.ticket() {
                Some(_) => None,
                None => seat.keep.map(|keep| keep.ms),
            };
            // The token may hold already, through a key that RENAME or SWAPDB brought here.
            if unheard_ms.is_some()
                && let Some(hold) = self.hold_of(name, &head.token)
            {
                // Nobody is heard from, so the lease stays as it is.
                let answer = match (hold.claim, &hold.lane) == (head.claim, &head.lane) {
                    true => self.granted(name, &head.token, hold.fence),
                    false => Answer::Refused(Refusal::Mismatch),
                };
                self.tell(name, *rank, answer, now);
                continue;
            }
            if let Some(answer) = self.same_hold(name, head, now) {
                self.note_former_place(name, *rank, &head.token);
                self.tell(name, *rank, answer, now);
                continue;
            }
            if head.claim.family() == Family::Semaphore && limit.is_none() {
                self.tell(name, *rank, Answer::Refused(Refusal::NoLimit), now);
                continue;
            }
            let content = self.content_mut(name);
            if let Some(answer) = content.and_then(|content| content.work_is_over(head, true)) {
                self.tell(name, *rank, answer, now);
                continue;
            }
            let content = self.content(name);
            if content.is_some_and(|content| !content.fits(head.claim, limit)) {
                return;
            }
            let limit = limit.filter(|_| content.is_none());
            let answer = self.grant(name, head, limit, unheard_ms, now);
            self.note_former_place(name, *rank, &head.token);
            self.tell(name, *rank, answer, now);
        }
    }
}
