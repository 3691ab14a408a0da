//! The limits of semaphores and groups, as far as they can be known.
//!
//! Which limit was in force at a grant depends on requests whose order the driver cannot see. So a grant is compared
//! with the highest limit that can have been in force: all limits that were requested or pinned, without those that a
//! later one has certainly replaced.

use std::collections::HashMap;
use std::time::Instant;

use super::known_hold::KeyId;
use super::meaning::Ask;
use super::requests::DATABASES;
use crate::support::Family;

/// What became of a request that brought a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOutcome {
    /// Granted, and not as a repeat of an earlier grant.
    Granted,
    /// Refused: its limit did not take force.
    Refused,
    /// Its limit may have taken force.
    Unknown,
}

#[derive(Clone, Debug)]
struct Limit {
    value: u64,
    pinned: bool,
    /// `Err` with the number of its unanswered request, or `Ok` with the moment at which that was over.
    state: Result<Instant, u64>,
    /// When another had certainly replaced it. It counts for requests that were sent before.
    until: Option<Instant>,
}

impl Limit {
    /// Notes that a request which was sent at `sent` and is answered now has replaced it, unless it may have come later.
    fn replaced(&mut self, sent: Instant, now: Instant) {
        if self.state.is_ok_and(|over| over < sent) {
            self.until.get_or_insert(now);
        }
    }
}

#[derive(Default)]
pub struct Gates {
    limits: HashMap<KeyId, Vec<Limit>>,
}

impl Gates {
    pub fn asked(&mut self, slot: &KeyId, ask: &Ask, id: u64) {
        if let Some(value) = ask.limit {
            self.enter(slot, value, false, id);
        }
    }

    /// DSEM.LIMIT, with `None` for NONE.
    pub fn pinned(&mut self, slot: &KeyId, limit: Option<u64>, id: u64) {
        if let Some(value) = limit {
            self.enter(slot, value, true, id);
        }
    }

    fn enter(&mut self, slot: &KeyId, value: u64, pinned: bool, id: u64) {
        let limits = self.limits.entry(slot.clone()).or_default();
        limits.push(Limit {
            value,
            pinned,
            state: Err(id),
            until: None,
        });
    }

    /// A request for a hold, sent at `sent`, is answered.
    pub fn answered(
        &mut self,
        slot: &KeyId,
        id: u64,
        sent: Instant,
        outcome: LimitOutcome,
        now: Instant,
    ) {
        let Some(limits) = self.limits.get_mut(slot) else {
            return;
        };
        let own = limits.iter().any(|limit| limit.state == Err(id));
        match outcome {
            LimitOutcome::Refused => limits.retain(|limit| limit.state != Err(id)),
            // Its own limit has replaced every limit whose request was over when this one was sent.
            LimitOutcome::Granted if own => {
                let asked = limits.iter_mut().filter(|limit| !limit.pinned);
                asked.for_each(|limit| limit.replaced(sent, now));
            }
            LimitOutcome::Granted | LimitOutcome::Unknown => {}
        }
        close(limits, id, now);
    }

    /// DSEM.LIMIT, sent at `sent`, is answered, or will never be.
    pub fn pin_answered(&mut self, slot: &KeyId, id: u64, sent: Instant, done: bool, now: Instant) {
        let Some(limits) = self.limits.get_mut(slot) else {
            return;
        };
        if done {
            let pinned = limits.iter_mut().filter(|limit| limit.pinned);
            pinned.for_each(|limit| limit.replaced(sent, now));
        }
        close(limits, id, now);
    }

    pub fn lost(&mut self, slot: &KeyId, id: u64, now: Instant) {
        if let Some(limits) = self.limits.get_mut(slot) {
            close(limits, id, now);
        }
    }

    /// A value may have moved from one key to another, with its limit, until `now`. What was sent to the other key before
    /// may have been carried out before the value came, so it has certainly replaced none of these limits.
    pub fn moved(&mut self, from: &KeyId, to: &KeyId, now: Instant) {
        let from = self.limits.get(from).cloned().unwrap_or_default();
        let to = self.limits.entry(to.clone()).or_default();
        to.extend(from.into_iter().map(|limit| Limit {
            state: Ok(now),
            ..limit
        }));
        merge(to);
    }

    /// Values may have moved from any database to any other.
    pub fn mixed(&mut self, now: Instant) {
        let all: Vec<KeyId> = self.limits.keys().cloned().collect();
        for from in &all {
            for database in (0..DATABASES).filter(|database| *database != from.0) {
                self.moved(from, &(database, from.1.clone()), now);
            }
        }
    }

    /// Asserts that the grant to this request, sent at `sent`, fits beside `held` permits that are certainly held.
    /// `at_once` says that the request did not wait, so that it was judged by its own limit if it brought one.
    #[track_caller]
    pub fn check(&self, slot: &KeyId, ask: &Ask, sent: Instant, at_once: bool, held: u64) {
        let limits = self.limits.get(slot).map_or(&[][..], Vec::as_slice);
        let highest = |pinned: bool| {
            let limits = limits.iter().filter(|limit| limit.pinned || !pinned);
            let limits = limits.filter(|limit| limit.until.is_none_or(|until| until >= sent));
            limits.map(|limit| limit.value).max()
        };
        let most = match (ask.claim.family(), ask.limit, at_once) {
            // Granted at once: its own limit was in force, or one that an operator had pinned.
            (Family::Semaphore, Some(own), true) => Some(own).max(highest(true)),
            (Family::Semaphore, ..) => highest(false),
            (Family::Group, Some(own), true) => Some(own),
            // A group may have no limit at all.
            _ => return,
        };
        let taken = held + u64::from(ask.claim.permits());
        assert!(
            most.is_some_and(|most| taken <= most),
            "{slot:?}: {taken} permits are certainly held after a grant, the limit was {most:?} at most"
        );
    }
}

fn close(limits: &mut Vec<Limit>, id: u64, now: Instant) {
    for limit in limits.iter_mut().filter(|limit| limit.state == Err(id)) {
        limit.state = Ok(now);
    }
    merge(limits);
}

/// Keeps, of the limits whose requests are over, one of each value, which counts for as long as any of them.
fn merge(limits: &mut Vec<Limit>) {
    let mut merged: Vec<Limit> = Vec::new();
    for limit in limits.drain(..) {
        let same = merged.iter_mut().find(|other| {
            (other.value, other.pinned) == (limit.value, limit.pinned)
                && other.state.is_ok()
                && limit.state.is_ok()
        });
        match same {
            Some(same) => {
                same.state = same.state.max(limit.state);
                same.until = same.until.zip(limit.until).map(|(a, b)| a.max(b));
            }
            None => merged.push(limit),
        }
    }
    *limits = merged;
}

#[cfg(test)]
fn ask(line: &str) -> Ask {
    use super::meaning::Meaning;
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    match Meaning::of(&words) {
        Meaning::Ask(ask) => ask,
        other => panic!("{other:?}"),
    }
}

/// The highest limit that can be in force for a request that is sent after all others.
#[cfg(test)]
fn most(gates: &Gates, slot: &KeyId) -> usize {
    most_since(
        gates,
        slot,
        Instant::now() + std::time::Duration::from_secs(60),
    )
}

#[cfg(test)]
fn most_since(gates: &Gates, slot: &KeyId, sent: Instant) -> usize {
    let waits = ask("DSEM.ACQUIRE s BLOCK 5");
    (0..9)
        .take_while(|held| {
            std::panic::catch_unwind(|| gates.check(slot, &waits, sent, false, *held)).is_ok()
        })
        .count()
}

#[test]
fn limit_counts_until_another_certainly_replaced_it() {
    let start = Instant::now();
    let at = |ms| start + std::time::Duration::from_millis(ms);
    let slot = (0, "s".to_owned());
    let most = |gates: &Gates| most(gates, &slot);
    let mut gates = Gates::default();
    gates.asked(&slot, &ask("DSEM.ACQUIRE s LIMIT 5 BLOCK 9"), 1);
    gates.answered(&slot, 1, at(0), LimitOutcome::Unknown, at(1));
    // This request was sent before the first was over, so it may not have replaced its limit.
    gates.asked(&slot, &ask("DSEM.ACQUIRE s LIMIT 3"), 2);
    gates.answered(&slot, 2, at(0), LimitOutcome::Granted, at(2));
    assert_eq!(most(&gates), 5);
    gates.asked(&slot, &ask("DSEM.ACQUIRE s LIMIT 2"), 3);
    gates.answered(&slot, 3, at(3), LimitOutcome::Granted, at(4));
    assert_eq!(most(&gates), 2);
    gates.asked(&slot, &ask("DSEM.ACQUIRE s LIMIT 8"), 4);
    gates.answered(&slot, 4, at(5), LimitOutcome::Refused, at(6));
    assert_eq!(most(&gates), 2);
    gates.pinned(&slot, Some(4), 5);
    gates.pin_answered(&slot, 5, at(7), true, at(8));
    assert_eq!(most(&gates), 4);
}

#[test]
fn pin_that_comes_with_a_value_is_not_replaced_by_what_was_sent_before() {
    let start = Instant::now();
    let at = |ms| start + std::time::Duration::from_millis(ms);
    let (here, there) = ((0, "s".to_owned()), (1, "s".to_owned()));
    let mut gates = Gates::default();
    gates.pinned(&there, Some(3), 1);
    gates.pin_answered(&there, 1, at(0), true, at(1));
    // Carried out before the databases are swapped, and answered after that.
    gates.pinned(&here, None, 2);
    gates.mixed(at(5));
    gates.pin_answered(&here, 2, at(4), true, at(6));
    assert_eq!(most(&gates, &here), 3);
    gates.pin_answered(&here, 3, at(7), true, at(8));
    assert_eq!(most(&gates, &here), 0);
}

/// An operator lowers a limit while a request is under way, which the server has granted before that.
#[test]
fn limit_counts_for_requests_that_were_sent_before_its_end() {
    let start = Instant::now();
    let at = |ms| start + std::time::Duration::from_millis(ms);
    let slot = (0, "s".to_owned());
    let mut gates = Gates::default();
    gates.pinned(&slot, Some(2), 1);
    gates.pin_answered(&slot, 1, at(0), true, at(1));
    gates.pinned(&slot, Some(1), 2);
    gates.pin_answered(&slot, 2, at(3), true, at(4));
    assert_eq!(most_since(&gates, &slot, at(2)), 2);
    assert_eq!(most_since(&gates, &slot, at(5)), 1);
    // A limit that was replaced before does not last until the next one.
    gates.pinned(&slot, Some(0), 3);
    gates.pin_answered(&slot, 3, at(6), true, at(7));
    assert_eq!(most_since(&gates, &slot, at(5)), 1);
}

#[test]
fn limit_that_two_keys_had_counts_until_the_later_end() {
    let start = Instant::now();
    let at = |ms| start + std::time::Duration::from_millis(ms);
    let (here, there) = ((0, "s".to_owned()), (1, "s".to_owned()));
    let mut gates = Gates::default();
    for (slot, ms) in [(&here, 0), (&there, 10)] {
        gates.pinned(slot, Some(2), ms);
        gates.pin_answered(slot, ms, at(ms), true, at(ms + 1));
        gates.pinned(slot, Some(1), ms + 1);
        gates.pin_answered(slot, ms + 1, at(ms + 2), true, at(ms + 3));
    }
    gates.moved(&there, &here, at(20));
    assert_eq!(most_since(&gates, &here, at(12)), 2);
    assert_eq!(most_since(&gates, &here, at(14)), 1);
}
