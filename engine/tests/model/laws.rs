//! What must hold whatever the model says, judged by what the engine wrote down and whom it told.
//!
//! A second opinion that shares no rule with the model: it replays the changes of the primary, keeps
//! the order of arrival of those who queued, and remembers who has been answered.

mod work;

use std::collections::BTreeMap;

use crate::model::Name;
use crate::server::granted;
use dsync_engine::answer::{Answer, Refusal};
use dsync_engine::change::{Change, End};
use dsync_engine::types::{Claim, Fence, MonoUs, Now, Token, WaiterId};
use dsync_engine::{Beginning, Family, Settings};
use work::Work;

#[derive(Clone, Default)]
struct Shadow {
    holds: Vec<(Fence, Claim)>,
    asked: Option<u32>,
    pinned: Option<u32>,
    work: Work,
}

/// A place in line: of somebody who waits or, until then, of a token whose connection is gone.
struct Line {
    name: Name,
    rank: u64,
    family: Family,
    token: Token,
    returns: bool,
    waiter: Option<WaiterId>,
    vacant_until: Option<MonoUs>,
}

pub struct Laws {
    shadows: BTreeMap<Name, Shadow>,
    lines: Vec<Line>,
    /// The lines of those who were granted after waiting: a grant that was not delivered gives its back.
    granted: BTreeMap<Fence, Line>,
    /// The grants of which it is known that they were not delivered.
    undelivered: BTreeMap<Fence, MonoUs>,
    /// WAITs, which have no place in line.
    watchers: Vec<WaiterId>,
    last_fence: Fence,
    ranks: u64,
    settings: Settings,
    /// Vacant places may go early where the bounds of queues are tight; then order is not judged.
    pub judge_order: bool,
}

impl Laws {
    pub fn new(settings: Settings, judge_order: bool) -> Laws {
        Laws {
            shadows: BTreeMap::new(),
            lines: Vec::new(),
            granted: BTreeMap::new(),
            undelivered: BTreeMap::new(),
            watchers: Vec::new(),
            last_fence: Fence(0),
            ranks: 0,
            settings,
            judge_order,
        }
    }

    /// §3.1 and §3.6: what was written down about one key.
    pub fn written(&mut self, name: Name, changes: &[Change], now: Now) {
        for change in changes {
            let keep_ms = self.settings.once_keep_ms;
            let shadow = self.shadows.entry(name).or_default();
            shadow
                .work
                .written(name, change, keep_ms, now.unix_us / 1_000);
            match change {
                Change::Grant(grant) => {
                    let next = Fence((self.last_fence.0 + 1).max(now.unix_us));
                    assert_eq!(grant.fence, next, "{name:?}: fences rise, with the clock");
                    self.last_fence = grant.fence;
                    let alone = matches!(grant.claim, Claim::Exclusive | Claim::Run)
                        || shadow
                            .holds
                            .iter()
                            .any(|(_, claim)| *claim == Claim::Exclusive);
                    assert!(!alone || shadow.holds.is_empty(), "{name:?}: exclusion");
                    shadow.holds.push((grant.fence, grant.claim));
                    let limit = shadow.pinned.or(shadow.asked);
                    let taken: u64 = shadow
                        .holds
                        .iter()
                        .map(|(_, c)| u64::from(c.permits()))
                        .sum();
                    let counts = matches!(grant.claim, Claim::Permits(_) | Claim::Member);
                    let within = match limit {
                        Some(limit) => taken <= u64::from(limit),
                        None => grant.claim == Claim::Member,
                    };
                    assert!(!counts || within, "{name:?}: {taken} taken of {limit:?}");
                }
                Change::End { fence, .. }
                | Change::Fail { fence, .. }
                | Change::Complete {
                    fence: Some(fence), ..
                } => {
                    let before = shadow.holds.len();
                    shadow.holds.retain(|(f, _)| f != fence);
                    assert_eq!(
                        shadow.holds.len() + 1,
                        before,
                        "{name:?}: {fence:?} ends once"
                    );
                    if let Change::End {
                        how: End::Undelivered,
                        ..
                    } = change
                    {
                        self.stands_again(name, *fence);
                    }
                }
                Change::Renew { fence, .. } => {
                    let held = shadow.holds.iter().any(|(f, _)| f == fence);
                    assert!(held, "{name:?}: {fence:?} is renewed while it is held");
                }
                Change::Limit(limit) => shadow.asked = Some(*limit),
                Change::Pin(limit) => shadow.pinned = *limit,
                Change::Finish { .. } => {
                    assert!(
                        shadow.holds.is_empty(),
                        "{name:?}: no round is over with members"
                    );
                }
                Change::Vanish => {
                    assert!(
                        shadow.holds.is_empty(),
                        "{name:?}: no key vanishes with its holds"
                    );
                    self.shadows.remove(&name);
                }
                _ => {}
            }
        }
    }

    /// A request queued, or took over the place that its token has.
    pub fn queued(
        &mut self,
        name: Name,
        family: Family,
        waiter: WaiterId,
        token: &Token,
        returns: bool,
    ) {
        let mine = |line: &&mut Line| line.name == name && line.returns && line.token == *token;
        if let Some(line) = self.lines.iter_mut().find(mine).filter(|_| returns) {
            assert_eq!(line.waiter, None, "{name:?}: who is superseded is told");
            line.waiter = Some(waiter);
            line.vacant_until = None;
            return;
        }
        self.ranks += 1;
        self.lines.push(Line {
            name,
            rank: self.ranks,
            family,
            token: token.clone(),
            returns,
            waiter: Some(waiter),
            vacant_until: None,
        });
    }

    /// The reply that told of this grant was not delivered.
    pub fn undelivered(&mut self, fence: Fence, now: Now) {
        let until = now.mono.after_ms(self.settings.rejoin_ms);
        self.undelivered.insert(fence, until);
    }

    /// A grant that was not delivered has ended: its token stands where it stood.
    fn stands_again(&mut self, name: Name, fence: Fence) {
        let Some(mut line) = self.granted.remove(&fence) else {
            return;
        };
        let until = self.undelivered.get(&fence).copied();
        let mine = |other: &Line| other.name == name && other.returns && other.token == line.token;
        if until.is_some()
            && line.returns
            && self.settings.rejoin_ms > 0
            && !self.lines.iter().any(mine)
        {
            line.name = name;
            line.vacant_until = until;
            self.lines.push(line);
        }
    }

    /// RELEASE was answered: the token has no place in the queue of this family any more.
    pub fn released(&mut self, name: Name, family: Family, token: &Token) {
        let mine = |line: &Line| {
            line.name == name && line.family == family && line.returns && line.token == *token
        };
        let waits = self
            .lines
            .iter()
            .find(|line| mine(line) && line.waiter.is_some());
        assert!(waits.is_none(), "{name:?}: who is withdrawn is told");
        self.lines.retain(|line| !mine(line));
    }

    pub fn watches(&mut self, waiter: WaiterId) {
        self.watchers.push(waiter);
    }

    /// §3.2 and §3.8: an answer goes to somebody who waits for one, and no grant passes anybody.
    pub fn told(&mut self, name: Name, waiter: WaiterId, answer: &Answer) {
        if let Some(at) = self.watchers.iter().position(|w| *w == waiter) {
            self.watchers.remove(at);
            assert!(
                granted(answer).is_none(),
                "{name:?}: a WAIT is granted nothing"
            );
            return;
        }
        let at = self
            .lines
            .iter()
            .position(|line| line.waiter == Some(waiter));
        let at =
            at.unwrap_or_else(|| panic!("{name:?}: {waiter:?} is told {answer:?} and waits not"));
        assert_eq!(self.lines[at].name, name, "{waiter:?} waits for this key");
        if *answer == Answer::Superseded {
            self.lines[at].waiter = None;
            return;
        }
        let mut line = self.lines.remove(at);
        self.is_true(name, answer);
        if let Some((_, fence)) = granted(answer) {
            self.nobody_before(name, line.rank);
            line.waiter = None;
            self.granted.insert(fence, line);
        }
    }

    /// Of work that is done once.
    fn is_true(&self, name: Name, answer: &Answer) {
        let unwritten = Work::default();
        let shadow = self.shadows.get(&name);
        let work = shadow.map_or(&unwritten, |shadow| &shadow.work);
        work.told(name, answer);
    }

    /// A request was granted at once.
    pub fn granted_at_once(&mut self, name: Name, token: &Token, was_new: bool, answer: &Answer) {
        self.is_true(name, answer);
        let resumed = |line: &Line| {
            let mine = line.name == name && line.returns && line.token == *token;
            // The hold it has already leaves a vacant place as it is.
            mine && line.waiter.is_none() && (was_new || line.vacant_until.is_none())
        };
        let at = self.lines.iter().position(resumed);
        let rank = at.map_or(u64::MAX, |at| self.lines.remove(at).rank);
        if was_new {
            self.nobody_before(name, rank);
        }
    }

    fn nobody_before(&self, name: Name, rank: u64) {
        let before = |line: &&Line| line.name == name && line.rank < rank && line.waiter.is_some();
        let passed = self.lines.iter().find(before).filter(|_| self.judge_order);
        assert!(
            passed.is_none(),
            "{name:?}: a grant passes {:?}",
            passed.map(|line| line.waiter)
        );
    }

    /// A request was answered otherwise at once: it has lost the place it took over or, if it had BLOCK,
    /// came back to.
    pub fn refused_at_once(&mut self, name: Name, token: &Token, blocks: bool, answer: &Answer) {
        self.is_true(name, answer);
        let after_return = blocks
            && matches!(
                answer,
                Answer::Refused(Refusal::TooMany { .. } | Refusal::NoLimit)
                    | Answer::Done { .. }
                    | Answer::GivenUp { .. }
            );
        self.lines.retain(|line| {
            let mine = line.name == name && line.returns && line.token == *token;
            let lost = line.waiter.is_none() && (line.vacant_until.is_none() || after_return);
            !(mine && lost)
        });
    }

    /// The waiter left without an answer; with its connection, or for good.
    pub fn left(&mut self, waiter: WaiterId, with_its_connection: bool, now: Now) {
        self.watchers.retain(|w| *w != waiter);
        let rejoin_ms = self.settings.rejoin_ms;
        let keeps = with_its_connection && rejoin_ms > 0;
        for line in self
            .lines
            .iter_mut()
            .filter(|line| line.waiter == Some(waiter))
        {
            line.waiter = None;
            line.vacant_until = Some(now.mono.after_ms(rejoin_ms)).filter(|_| keeps);
        }
        self.lines
            .retain(|line| line.waiter.is_some() || (line.vacant_until.is_some() && line.returns));
    }

    /// Everything due has been done: vacant places have run out, and where everybody was turned away from
    /// a foreign value, they are gone.
    pub fn ticked(&mut self, now: Now, turned_away: impl Fn(Name) -> bool) {
        self.lines.retain(|line| {
            let gone = line.vacant_until.is_some() && turned_away(line.name);
            !gone && line.vacant_until.is_none_or(|until| until > now.mono)
        });
    }

    /// Whether the request is still owed its answer.
    pub fn waits(&self, waiter: WaiterId) -> bool {
        self.watchers.contains(&waiter) || self.lines.iter().any(|line| line.waiter == Some(waiter))
    }

    pub fn removed(&mut self, gone: impl Fn(Name) -> bool) {
        self.shadows.retain(|name, _| !gone(*name));
    }

    pub fn renamed(&mut self, from: Name, to: Name) {
        self.shadows.remove(&to);
        if let Some(shadow) = self.shadows.remove(&from) {
            self.shadows.insert(to, shadow);
        }
    }

    pub fn swapped(&mut self, a: i32, b: i32) {
        let other = |db: i32| {
            if db == a {
                b
            } else if db == b {
                a
            } else {
                db
            }
        };
        let shadows = std::mem::take(&mut self.shadows);
        self.shadows = shadows
            .into_iter()
            .map(|((db, n), s)| ((other(db), n), s))
            .collect();
    }

    /// §3.6: a start or a promotion leaves room for the fences it does not know of.
    pub fn leapt(&mut self, beginning: Beginning, saved: Fence, after: Fence, now: Now) {
        let (minutes, hours) = match beginning {
            Beginning::Start => (1, 1),
            Beginning::Promotion => (10, 2),
        };
        let next = (saved.0 + minutes * 60_000_000).max(now.unix_us + hours * 3_600_000_000);
        assert_eq!(
            after,
            Fence(next),
            "minutes past the last, hours past the clock: {beginning:?}"
        );
        assert!(after > self.last_fence);
        self.last_fence = after;
        self.lines.clear();
        self.granted.clear();
        self.undelivered.clear();
        self.watchers.clear();
    }
}
