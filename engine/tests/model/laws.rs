//! What must hold whatever the model says, checked on the changes that the engine records and the answers that it
//! gives.
//!
//! This is a second opinion that shares no rule with the model: it replays the primary's changes, keeps the order in
//! which requests queued, and remembers which requests were answered.

mod indexes;
pub mod rests;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use crate::model::Name;
use crate::server::{Beginning, granted};
use dsync_engine::answer::{Answer, Refusal};
use dsync_engine::change::{Change, End, KeptPlace};
use dsync_engine::effect::Wake;
use dsync_engine::types::{Claim, Fence, MonoUs, Now, Rank, Token, WaiterId};
use dsync_engine::{Family, LaneName, Request, Settings};
use indexes::IndexLaws;
use rests::RestLaws;
use work::WorkLaws;

#[derive(Clone, Default)]
struct ReplayedKey {
    holds: Vec<(Fence, Claim)>,
    asked: Option<u32>,
    pinned: Option<u32>,
    is_paused: bool,
    indexes: IndexLaws,
    rests: RestLaws,
    work: WorkLaws,
}

/// A place in a queue: of a waiting request or, after its connection closed, of a token that may come back until
/// `vacant_until`.
struct QueuedPlace {
    name: Name,
    rank: u64,
    family: Family,
    lane: LaneName,
    token: Token,
    returns: bool,
    waiter: Option<WaiterId>,
    vacant_until: Option<MonoUs>,
    /// The rank of a kept place.
    kept: Option<Rank>,
    /// Its waiter is told something in the call whose changes are being checked.
    is_told: bool,
}

/// A point of a server's line: its last beginning, or where a file says that its writer's line was.
#[derive(Clone, Copy, Default, Debug)]
pub struct OnRecord {
    pub last: Fence,
    pub unix_us: u64,
}

impl OnRecord {
    /// Returns the line at this moment: the fences since are unknown, and rose by a quarter of the time at most.
    fn line(self, unix_us: u64) -> u64 {
        self.last.0 + unix_us.saturating_sub(self.unix_us) / 4
    }

    /// Returns what a file says that is written at this moment, by a server with this last fence.
    pub fn written(self, last: Fence, unix_us: u64) -> OnRecord {
        match self.line(unix_us) > last.0 {
            true => self,
            false => OnRecord { last, unix_us },
        }
    }
}

/// How exactly a file says where the line was: a quarter of some eight milliseconds.
const RECORD_US: u64 = 8_192 / 4;

pub struct Laws {
    keys: BTreeMap<Name, ReplayedKey>,
    places: Vec<QueuedPlace>,
    /// The places of the requests that were granted after waiting. A grant that is not delivered gives its place back.
    granted: BTreeMap<Fence, QueuedPlace>,
    /// The grants that were found undelivered, and until when their places are kept.
    undelivered: BTreeMap<Fence, MonoUs>,
    /// The tokens whose requests RELEASE has withdrawn, each with their family and until when they must not be granted.
    withdrawn: BTreeMap<(Name, Token), (Family, MonoUs)>,
    /// For tokens whose kept places left without a grant: how many attempts of the work had failed then.
    failed: BTreeMap<(Name, Token), u64>,
    /// Waiting WAITs, which have no place in the order.
    watchers: Vec<WaiterId>,
    last_fence: Fence,
    /// The last fence of a grant. A leap that no grant followed may be followed by one that is no higher.
    last_granted: Fence,
    /// The requests so far. Each may have drawn a number between two fences.
    asked: u64,
    /// The grants to places whose order was checked when they were written.
    granted_in_order: BTreeSet<Fence>,
    ranks: u64,
    settings: Settings,
    /// Whether to check the order. With small bounds vacant places may be given up early, so the order is not checked
    /// then.
    pub judge_order: bool,
}

impl Laws {
    pub fn new(settings: Settings, judge_order: bool) -> Laws {
        Laws {
            keys: BTreeMap::new(),
            places: Vec::new(),
            granted: BTreeMap::new(),
            undelivered: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            failed: BTreeMap::new(),
            watchers: Vec::new(),
            last_fence: Fence(0),
            last_granted: Fence(0),
            asked: 0,
            granted_in_order: BTreeSet::new(),
            ranks: 0,
            settings,
            judge_order,
        }
    }

    /// Notes a request, which may draw a number for its place.
    pub fn asks(&mut self) {
        self.asked += 1;
    }

    /// Checks the changes of one call to one key: exclusion, limits and rising fences.
    pub fn written(&mut self, name: Name, changes: &[Change], now: Now) {
        for change in changes {
            let keep_ms = self.settings.once_keep_ms;
            let key = self.keys.entry(name).or_default();
            key.work.written(name, change, keep_ms, now.unix_us / 1_000);
            let limit = key.pinned.or(key.asked);
            key.indexes.written(name, change, limit);
            key.rests.written(name, change, limit, now.lease);
            match change {
                Change::Grant(grant) => {
                    assert!(!key.is_paused, "{name:?}: nobody is granted in a pause");
                    let least = (self.last_fence.0 + 1).max(now.unix_us);
                    let most = (self.last_fence.0 + 1 + self.asked).max(now.unix_us + self.asked);
                    assert!(
                        (least..=most).contains(&grant.fence.0),
                        "{name:?}: fences rise with the clock"
                    );
                    (self.last_fence, self.last_granted) = (grant.fence, grant.fence);
                    let alone = matches!(grant.claim, Claim::Exclusive | Claim::Run)
                        || key
                            .holds
                            .iter()
                            .any(|(_, claim)| *claim == Claim::Exclusive);
                    assert!(!alone || key.holds.is_empty(), "{name:?}: exclusion");
                    key.holds.push((grant.fence, grant.claim));
                    let limit = key.pinned.or(key.asked);
                    let taken: u64 = key.holds.iter().map(|(_, c)| u64::from(c.permits())).sum();
                    let counts = matches!(grant.claim.family(), Family::Semaphore | Family::Group);
                    let within = match limit {
                        Some(limit) => taken <= u64::from(limit),
                        None => grant.claim == Claim::Member,
                    };
                    assert!(!counts || within, "{name:?}: {taken} taken of {limit:?}");
                    self.granted_to_place(name, grant.claim.family(), &grant.token, grant.fence);
                }
                Change::Place(place) => self.kept(name, place),
                Change::Leave { rank } => {
                    let is_it = |place: &QueuedPlace| place.kept == Some(*rank);
                    let at = self.places.iter().position(is_it);
                    let at = at.unwrap_or_else(|| panic!("{name:?}: {rank:?} leaves once"));
                    assert_eq!(self.places[at].name, name, "{rank:?} is of this key");
                    self.places[at].kept = None;
                    if self.places[at].waiter.is_none() {
                        let left = self.places.remove(at);
                        self.failed.insert((name, left.token), key.work.failed());
                    }
                }
                Change::End { fence, .. }
                | Change::Fail { fence, .. }
                | Change::Complete {
                    fence: Some(fence), ..
                } => {
                    let before = key.holds.len();
                    key.holds.retain(|(f, _)| f != fence);
                    assert_eq!(key.holds.len() + 1, before, "{name:?}: {fence:?} ends once");
                    if let Change::End {
                        how: End::Undelivered,
                        ..
                    } = change
                    {
                        self.restore_place(name, *fence);
                    }
                }
                Change::Renew { fence, .. } | Change::Rest { fence, .. } => {
                    let held = key.holds.iter().any(|(f, _)| f == fence);
                    assert!(
                        held,
                        "{name:?}: {fence:?} is renewed or rests while it is held"
                    );
                }
                Change::Limit(limit) => key.asked = Some(*limit),
                Change::Pin(limit) => key.pinned = *limit,
                Change::Pause { until } => key.is_paused = until.is_some(),
                Change::Finish { .. } => {
                    assert!(
                        key.holds.is_empty(),
                        "{name:?}: no round is over with members"
                    );
                }
                Change::Vanish => {
                    assert!(
                        key.holds.is_empty(),
                        "{name:?}: no key vanishes with its holds"
                    );
                    assert!(!key.is_paused, "{name:?}: a pause keeps its key");
                    self.keys.remove(&name);
                }
                _ => {}
            }
        }
    }

    /// The name has a kept place: a new one, or one that its token had already.
    fn kept(&mut self, name: Name, kept: &KeptPlace) {
        let (rank, family) = (Some(kept.rank), kept.claim.family());
        // What its token left behind in another family is none of its places.
        let mine = |place: &&mut QueuedPlace| {
            let is_its = place.name == name && place.returns && place.token == kept.token;
            is_its && place.family == family && !place.is_told
        };
        if let Some(place) = self.places.iter_mut().find(mine) {
            assert!(place.kept.is_none() || place.kept == rank, "its rank");
            place.kept = rank;
            place.vacant_until = None;
            return;
        }
        self.ranks += 1;
        self.places.push(QueuedPlace {
            name,
            rank: self.ranks,
            family,
            lane: kept.lane.clone(),
            token: kept.token.clone(),
            returns: true,
            waiter: None,
            vacant_until: None,
            kept: rank,
            is_told: false,
        });
    }

    /// A call has these answers, behind its changes.
    pub fn tells(&mut self, wakes: &[Wake]) {
        // A place stays when another request of its token takes it over.
        let leaves = |wake: &&Wake| wake.answer != Answer::Superseded;
        for place in &mut self.places {
            let mut told = wakes.iter().filter(leaves).map(|wake| wake.waiter);
            place.is_told = place.waiter.is_some_and(|id| told.any(|told| told == id));
        }
    }

    /// A hold was granted to a place of this token, if it has one: it must not pass an earlier place that stays. A kept
    /// place on which nobody waits is gone now; a waiter is told later.
    fn granted_to_place(&mut self, name: Name, family: Family, token: &Token, fence: Fence) {
        let mine = |place: &QueuedPlace| {
            place.name == name && place.family == family && place.token == *token
        };
        let Some(at) = self.places.iter().position(mine) else {
            return;
        };
        let place = &self.places[at];
        if place.waiter.is_some() || place.kept.is_some() {
            self.check_order(name, &place.lane, place.rank);
            self.granted_in_order.insert(fence);
        }
        if self.places[at].waiter.is_none() && self.places[at].kept.is_some() {
            self.places.remove(at);
        }
    }

    /// A flush has dropped all kept places of these names.
    pub fn flushed(&mut self, gone: impl Fn(Name) -> bool) {
        for place in self.places.iter_mut().filter(|place| gone(place.name)) {
            place.kept = None;
        }
        self.places.retain(|place| {
            place.waiter.is_some() || place.vacant_until.is_some() || place.kept.is_some()
        });
    }

    /// A request queued, or took over the place that its token has.
    pub fn queued(&mut self, name: Name, waiter: WaiterId, request: &Request) {
        let (family, lane) = (request.claim.family(), request.lane.clone());
        let (token, returns) = (&request.token, request.may_return);
        let mine =
            |place: &&mut QueuedPlace| place.name == name && place.returns && place.token == *token;
        if let Some(place) = self.places.iter_mut().find(mine).filter(|_| returns) {
            assert_eq!(
                place.waiter, None,
                "{name:?}: a superseded request is answered"
            );
            place.waiter = Some(waiter);
            place.vacant_until = None;
            return;
        }
        self.ranks += 1;
        self.places.push(QueuedPlace {
            name,
            rank: self.ranks,
            family,
            lane,
            token: token.clone(),
            returns,
            waiter: Some(waiter),
            vacant_until: None,
            kept: None,
            is_told: false,
        });
    }

    /// Notes that the reply with this grant was not delivered.
    pub fn undelivered(&mut self, fence: Fence, now: Now) {
        let until = now.mono.after_ms(self.settings.rejoin_ms);
        self.undelivered.insert(fence, until);
    }

    /// An undelivered grant has ended: its token gets its place back.
    fn restore_place(&mut self, name: Name, fence: Fence) {
        let Some(mut place) = self.granted.remove(&fence) else {
            return;
        };
        let until = self.undelivered.get(&fence).copied();
        let mine =
            |other: &QueuedPlace| other.name == name && other.returns && other.token == place.token;
        let is_kept = place.kept.is_some();
        if (is_kept || until.is_some() && self.settings.rejoin_ms > 0)
            && place.returns
            && !self.places.iter().any(mine)
        {
            place.name = name;
            // The change that keeps it again follows.
            place.vacant_until = until.filter(|_| !is_kept);
            self.places.push(place);
        }
    }

    /// A request was judged as a new one, which drops a vacant place that its token has in another family.
    pub fn changes_family(&mut self, name: Name, family: Family, token: &Token) {
        self.places.retain(|place| {
            let mine = place.name == name && place.returns && place.token == *token;
            !(mine && place.family != family && place.vacant_until.is_some())
        });
        let marked = self.withdrawn.get(&(name, token.clone()));
        if marked.is_some_and(|(marked, _)| *marked != family) {
            self.withdrawn.remove(&(name, token.clone()));
        }
    }

    /// RELEASE is asked for: no grant of the token gives it its place back any more.
    pub fn releases(&mut self, name: Name, family: Family, token: &Token) {
        self.granted.retain(|_, place| {
            place.name != name || place.family != family || place.token != *token
        });
    }

    /// RELEASE was answered: the token must have no place in the queue of this family any more. `withdrew` says that it
    /// ended no hold, but withdrew a request.
    pub fn released(
        &mut self,
        name: Name,
        family: Family,
        token: &Token,
        withdrew: bool,
        now: Now,
    ) {
        if withdrew && self.judge_order {
            let until = now.mono.after_ms(self.settings.rejoin_ms);
            self.withdrawn
                .insert((name, token.clone()), (family, until));
        }
        let mine = |place: &QueuedPlace| {
            place.name == name && place.family == family && place.returns && place.token == *token
        };
        let waits = self
            .places
            .iter()
            .find(|place| mine(place) && place.waiter.is_some());
        assert!(waits.is_none(), "{name:?}: a withdrawn request is answered");
        self.places.retain(|place| !mine(place));
    }

    pub fn watches(&mut self, waiter: WaiterId) {
        self.watchers.push(waiter);
    }

    /// Checks the answer to a request that waited: it must still be owed one, and a grant must not pass an earlier
    /// request.
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
            .places
            .iter()
            .position(|place| place.waiter == Some(waiter));
        let at =
            at.unwrap_or_else(|| panic!("{name:?}: {waiter:?} gets {answer:?} but does not wait"));
        assert_eq!(self.places[at].name, name, "{waiter:?} waits for this key");
        // Without a LEAVE before it the place is still kept.
        let stays = self.places[at].kept.is_some() && granted(answer).is_none();
        if *answer == Answer::Superseded || stays {
            self.places[at].waiter = None;
            return;
        }
        let mut place = self.places.remove(at);
        self.check_answer(name, answer);
        if let Some((_, fence)) = granted(answer) {
            if !self.granted_in_order.contains(&fence) {
                self.check_order(name, &place.lane, place.rank);
            }
            (place.waiter, place.is_told) = (None, false);
            self.granted.insert(fence, place);
        }
    }

    /// Checks an answer about work-once, or with an index, against the changes.
    fn check_answer(&self, name: Name, answer: &Answer) {
        let unwritten = ReplayedKey::default();
        let key = self.keys.get(&name).unwrap_or(&unwritten);
        key.work.told(name, answer);
        key.indexes.told(name, answer);
    }

    /// A request was granted at once.
    pub fn granted_at_once(
        &mut self,
        name: Name,
        request: &Request,
        was_new: bool,
        answer: &Answer,
        now: Now,
    ) {
        let token = &request.token;
        self.check_answer(name, answer);
        let marked = self.withdrawn.get(&(name, token.clone()));
        let marked = marked.filter(|(_, until)| was_new && now.mono < *until);
        assert_eq!(marked, None, "{name:?}: a withdrawn request is granted");
        let resumed = |place: &QueuedPlace| {
            let mine = place.name == name && place.returns && place.token == *token;
            // A request that gets the hold it has already leaves a vacant or kept place of its token as it is.
            let is_its = was_new || place.vacant_until.is_none() && place.kept.is_none();
            mine && place.waiter.is_none() && is_its
        };
        let at = self.places.iter().position(resumed);
        let rank = at.map_or(u64::MAX, |at| self.places.remove(at).rank);
        let fence = granted(answer).map(|(_, fence)| fence);
        let is_checked = fence.is_some_and(|fence| self.granted_in_order.contains(&fence));
        if was_new && !is_checked {
            self.check_order(name, &request.lane, rank);
        }
    }

    /// Nobody passes an earlier request of its lane.
    fn check_order(&self, name: Name, lane: &LaneName, rank: u64) {
        let before = |place: &&QueuedPlace| {
            let waits = place.waiter.is_some() || place.kept.is_some();
            let is_before = place.rank < rank && place.lane == *lane;
            place.name == name && is_before && waits && !place.is_told
        };
        let passed = self.places.iter().find(before).filter(|_| self.judge_order);
        assert!(
            passed.is_none(),
            "{name:?}: a grant passes {:?}",
            passed.map(|place| place.waiter)
        );
    }

    /// A request was answered at once, but not granted. If it had taken over a place, or came back to one with BLOCK,
    /// the place is lost.
    pub fn refused_at_once(&mut self, name: Name, token: &Token, blocks: bool, answer: &Answer) {
        let is_done = self.keys.get(&name).is_some_and(|key| key.work.is_done());
        let decided = self.failed.get(&(name, token.clone()));
        let decided = decided.filter(|_| !is_done);
        match answer {
            // What was decided about its kept place, which may have left a while ago.
            Answer::GivenUp { attempts, .. } if decided == Some(attempts) => {}
            answer => self.check_answer(name, answer),
        }
        let after_return = blocks
            && matches!(
                answer,
                Answer::Refused(Refusal::TooMany { .. } | Refusal::NoLimit)
                    | Answer::Done { .. }
                    | Answer::GivenUp { .. }
            );
        self.places.retain(|place| {
            let mine = place.name == name && place.returns && place.token == *token;
            let lost = place.waiter.is_none() && (place.vacant_until.is_none() || after_return);
            !(mine && lost && place.kept.is_none())
        });
    }

    /// The waiter left without an answer. If its connection closed, its place is kept for the token.
    pub fn left(&mut self, waiter: WaiterId, with_its_connection: bool, now: Now) {
        self.watchers.retain(|w| *w != waiter);
        let rejoin_ms = self.settings.rejoin_ms;
        let keeps = with_its_connection && rejoin_ms > 0;
        for place in self
            .places
            .iter_mut()
            .filter(|place| place.waiter == Some(waiter))
        {
            place.waiter = None;
            let keeps = keeps && place.kept.is_none();
            place.vacant_until = Some(now.mono.after_ms(rejoin_ms)).filter(|_| keeps);
        }
        self.places.retain(|place| {
            let is_vacant = place.vacant_until.is_some() && place.returns;
            place.waiter.is_some() || place.kept.is_some() || is_vacant
        });
    }

    /// All due work is done: vacant places have run out, and those of keys that were overwritten by another type are
    /// gone.
    pub fn ticked(&mut self, now: Now, turned_away: impl Fn(Name) -> bool) {
        let is_over = |until: MonoUs| until <= now.mono;
        self.withdrawn
            .retain(|(name, _), (_, until)| !is_over(*until) && !turned_away(*name));
        self.places.retain(|place| {
            let gone = place.vacant_until.is_some() && turned_away(place.name);
            !gone && place.vacant_until.is_none_or(|until| until > now.mono)
        });
    }

    /// Whether the request is still owed an answer.
    pub fn waits(&self, waiter: WaiterId) -> bool {
        self.watchers.contains(&waiter)
            || self.places.iter().any(|place| place.waiter == Some(waiter))
    }

    pub fn removed(&mut self, gone: impl Fn(Name) -> bool) {
        self.keys.retain(|name, _| !gone(*name));
    }

    pub fn renamed(&mut self, from: Name, to: Name) {
        self.keys.remove(&to);
        if let Some(key) = self.keys.remove(&from) {
            self.keys.insert(to, key);
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
        let keys = std::mem::take(&mut self.keys);
        self.keys = keys
            .into_iter()
            .map(|((db, n), s)| ((other(db), n), s))
            .collect();
    }

    /// Checks how far a start from the server's own file, or a promotion, leaps past the fences that it may not know.
    pub fn leapt(
        &mut self,
        beginning: Beginning,
        known: Fence,
        on_record: OnRecord,
        after: Fence,
        now: Now,
    ) {
        let (minutes, hours) = match beginning {
            // A file that tells of no fence is nobody's.
            Beginning::Start if known == Fence(0) => (0, 2),
            Beginning::Start => (0, 1),
            Beginning::Promotion => (20, 2),
        };
        let known = known.0.max(on_record.line(now.unix_us));
        let next = (known + minutes * 60_000_000).max(now.unix_us + hours * 3_600_000_000);
        assert!(
            after.0.abs_diff(next) <= RECORD_US,
            "{after:?}, not {next}: minutes past what it knows, hours past the clock: {beginning:?}"
        );
        assert!(
            after >= self.last_granted,
            "no fence that was given is above it"
        );
        self.last_fence = after;
        self.places.retain_mut(|place| {
            place.waiter = None;
            place.kept.is_some()
        });
        for key in self.keys.values_mut() {
            key.rests = RestLaws::default();
        }
        self.granted.clear();
        self.undelivered.clear();
        self.withdrawn.clear();
        self.watchers.clear();
    }
}
