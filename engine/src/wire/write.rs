//! Writes one change into a packed string.

use super::fields::Writer;
use super::{kind, lease_end};
use crate::change::{Change, Displaced, KeptPlace};
use crate::families::once::{Completion, Reason, Record};
use crate::hold::Grant;
use crate::types::Claim;

impl Writer<'_> {
    pub(crate) fn change(&mut self, change: &Change) {
        self.set_version(change.version());
        match change {
            Change::Grant(grant) => self.grant(grant),
            Change::Renew {
                fence,
                lease,
                deadline,
            } => {
                self.byte(kind::RENEW);
                self.number(fence.0);
                self.number(lease.0);
                self.number(deadline.0);
            }
            Change::End { fence, how, at } => {
                self.byte(kind::END);
                self.number(fence.0);
                self.number(how.number());
                self.number(at.0);
            }
            Change::Limit(limit) => {
                self.byte(kind::LIMIT);
                self.number(*limit);
            }
            Change::Pin(limit) => {
                self.byte(kind::PIN);
                self.option(limit.map(u64::from));
            }
            Change::Expect { jobs, at } => {
                self.byte(kind::EXPECT);
                self.number(*jobs);
                self.number(at.0);
            }
            Change::Finish { keep_until } => {
                self.byte(kind::FINISH);
                self.number(keep_until.0);
            }
            Change::Vanish => self.byte(kind::VANISH),
            Change::Limits(limits) => {
                self.byte(kind::LIMITS);
                self.option(limits.limit.map(u64::from));
                self.option(limits.pinned.map(u64::from));
                self.number(limits.changes);
            }
            Change::Tally(tally) => {
                self.byte(kind::TALLY);
                self.option(tally.limit.map(u64::from));
                self.number(tally.limit_changes);
                self.option(tally.expected.map(u64::from));
                self.number(tally.done);
                self.number(tally.lost);
                self.number(tally.touched.0);
                self.option(tally.finished.map(|at| at.0));
            }
            Change::Fail { fence, at, reason } => {
                self.byte(kind::FAIL);
                self.number(fence.0);
                self.number(at.0);
                self.text(reason);
            }
            Change::Complete { fence, done } => {
                self.byte(kind::COMPLETE);
                self.option(fence.map(|fence| fence.0));
                self.completion(done);
            }
            Change::GiveUp => self.byte(kind::GIVEUP),
            Change::Record(record) => self.record(record),
            Change::Delay { until } => {
                self.byte(kind::DELAY);
                self.option(until.map(|until| until.0));
            }
            Change::Pause { until } => {
                self.byte(kind::PAUSE);
                self.option(until.map(|until| until.0));
            }
            Change::Unheard { fence, keep_ms } => {
                self.byte(kind::UNHEARD);
                self.number(fence.0);
                self.number(*keep_ms);
            }
            Change::Place(place) => self.place(place),
            Change::Leave { number } => {
                self.byte(kind::LEAVE);
                self.number(number.0);
            }
            Change::Displaced(displaced) => {
                self.byte(kind::DISPLACED);
                match displaced {
                    Displaced::Late(token) => self.token(token),
                    Displaced::Round(round) => {
                        self.option(round.expected.map(u64::from));
                        self.number(round.done);
                        self.number(round.lost);
                        self.number(round.keep_until.0);
                    }
                }
            }
        }
    }

    fn grant(&mut self, grant: &Grant) {
        let owner = grant.owner.as_deref().filter(|owner| !owner.is_empty());
        let mut kind = kind::GRANT;
        if grant.renewed {
            kind |= kind::RENEWED;
        }
        if owner.is_some() {
            kind |= kind::OWNED;
        }
        if grant.claim == Claim::Shared {
            kind |= kind::SHARED;
        }
        self.byte(kind);
        if let Claim::Permits(permits) = grant.claim {
            self.number(permits);
        }
        self.number(grant.fence.0);
        self.difference(grant.granted, grant.fence.unix());
        self.number(grant.lease.0);
        self.difference(grant.deadline, lease_end(grant));
        self.token(&grant.token);
        if let Some(owner) = owner {
            self.text(owner);
        }
    }

    fn place(&mut self, place: &KeptPlace) {
        self.byte(kind::PLACE);
        match place.claim {
            Claim::Exclusive => self.byte(0),
            Claim::Shared => self.byte(1),
            Claim::Permits(permits) => self.number(permits),
            Claim::Run => self.option(place.max_attempts.map(u64::from)),
            Claim::Member => {}
        }
        self.number(place.number.0);
        self.difference(place.since, place.number.unix());
        self.number(place.lease.0);
        self.number(place.keep_ms);
        self.token(&place.token);
        let owner = place.owner.as_deref();
        self.optional_text(owner.filter(|owner| !owner.is_empty()));
    }

    fn completion(&mut self, done: &Completion) {
        self.number(done.keep_until.0);
        self.token(&done.token);
        self.optional_text(done.result.as_deref());
    }

    fn record(&mut self, record: &Record) {
        self.byte(kind::RECORD);
        self.number(record.attempts);
        self.number(record.touched.0);
        match &record.reason {
            None => self.byte(0),
            Some(Reason::Lapsed) => self.byte(1),
            Some(Reason::Revoked) => self.byte(2),
            Some(Reason::Given(text)) => {
                self.byte(3);
                self.text(text);
            }
        }
        self.byte(u8::from(record.late.is_some()));
        if let Some(token) = &record.late {
            self.token(token);
        }
        self.byte(u8::from(record.done.is_some()));
        if let Some(done) = &record.done {
            self.completion(done);
        }
    }
}
