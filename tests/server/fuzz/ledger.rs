//! The ledger knows which holds certainly live, from the replies that their holders have read.
//!
//! A hold is *certain* from the moment its grant was read until the earliest moment at which it may have ended. That is
//! the end of its lease, counted from the request; or the sending of a request that could end it; or the closing of its
//! connection. An unknown outcome never makes a hold certain, so nothing here depends on speed. While a hold is
//! certain, no grant may exclude it, a request with its token finds it, and a kill of the server does not end it.
//!
//! Fences order the grants of the whole server: of two holds of a key, the higher fence is the later grant.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::doubt::Doubt;
use super::gates::{Gates, LimitOutcome};
use super::known_hold::{
    KeyId, KnownHold, SentRequest, granted, index, is_everything, lease_end, slots,
};
use super::meaning::{Ask, Meaning, Verb, Word, exclude_each_other};
use super::seen_fences::SeenFences;
use crate::support::{InCommands, Reply};

/// How long before it was read a grant after a wait may have been made.
const UNSEEN: Duration = Duration::from_secs(5);

/// How late a TTL may expire, and how late the server may carry out a request whose connection is closed.
const LATE: Duration = Duration::from_secs(5);

/// How long a hold is kept after it was certain, to be compared with grants that are read late.
const KEPT: Duration = Duration::from_secs(1);

/// An unanswered request that gives a lease.
struct Leasing {
    id: u64,
    end: Instant,
    /// The earliest lease end of requests that were answered meanwhile and may have been carried out after this one.
    cap: Option<Instant>,
    ephemeral_on: Option<u64>,
}

#[derive(Default)]
struct TokenState {
    first_sent: Option<Instant>,
    /// When a request was last sent that gives its hold a lease, or ends it.
    last_sent: Option<Instant>,
    /// How many requests for a hold had this token.
    asked: u32,
    ends: Doubt,
    leasing: Vec<Leasing>,
}

#[derive(Default)]
pub struct Ledger {
    holds: HashMap<KeyId, Vec<KnownHold>>,
    values: HashMap<KeyId, Doubt>,
    everything: Doubt,
    revocations: HashMap<u64, Doubt>,
    tokens: HashMap<String, TokenState>,
    fences: SeenFences,
    gates: Gates,
    /// The server had values before the run, with limits and holds that the ledger does not know.
    had_past: bool,
    /// When the wall clock was last set.
    clock_set: Option<Instant>,
    last_id: u64,
}

impl Ledger {
    /// The server has values already, with holds and limits that the ledger does not know.
    pub fn set_past_unknown(&mut self) {
        self.had_past = true;
    }

    /// From now on no hold is certain: others may change any key.
    pub fn make_nothing_certain(&mut self, now: Instant) {
        self.everything.open();
        self.each_hold(|_, hold| hold.doubt(now));
    }

    /// The wall clock of all servers was set.
    pub fn clock_is_set(&mut self, now: Instant) {
        self.clock_set = Some(now);
    }

    /// A server takes the holds over from a file or from its primary. From now on their leases end by the wall clock of
    /// their grants, so that those which are older than its last step may end at any time.
    pub fn taken_over(&mut self, now: Instant) {
        let Some(set) = self.clock_set else { return };
        self.each_hold(|_, hold| {
            // A grant may be read that late.
            if hold.known <= set + LATE {
                hold.doubt(now);
            }
        });
    }

    /// A request is being sent.
    pub fn sent(
        &mut self,
        meaning: Meaning,
        database: usize,
        connection: u64,
        is_try: bool,
        now: Instant,
    ) -> SentRequest {
        self.last_id += 1;
        let entry = SentRequest {
            meaning,
            database,
            connection,
            sent: now,
            is_try,
            id: self.last_id,
        };
        match &entry.meaning {
            Meaning::Ask(ask) => {
                let ephemeral_on = ask.ephemeral.then_some(connection);
                self.gates
                    .asked(&(database, ask.key.clone()), ask, entry.id);
                if let Some(token) = &ask.token {
                    self.token(token).asked += 1;
                    self.leasing(token, ask.lease_ms, ephemeral_on, &entry);
                }
            }
            Meaning::Word(word) if word.verb.ends() => {
                for token in &word.tokens {
                    self.token(token).ends.open();
                    self.token(token).last_sent = Some(now);
                    self.each_hold(|_, hold| {
                        if hold.token == *token {
                            hold.ended_from.get_or_insert(now);
                        }
                    });
                }
            }
            Meaning::Word(word) if word.verb == Verb::Renew => {
                for token in &word.tokens {
                    self.leasing(token, word.lease_ms, None, &entry);
                }
            }
            Meaning::Revoke { fence } => {
                self.revocations.entry(*fence).or_default().open();
                self.each_hold(|_, hold| {
                    if hold.fence == *fence {
                        hold.doubt(now);
                    }
                });
            }
            Meaning::Pin { key, limit } => {
                self.gates
                    .pinned(&(database, key.clone()), *limit, entry.id);
            }
            _ => self.value_changes(&entry, now),
        }
        entry
    }

    /// A request that renews a lease is being sent: from now on the hold may have the lease of this request.
    fn leasing(
        &mut self,
        token: &str,
        lease_ms: Option<u64>,
        ephemeral_on: Option<u64>,
        entry: &SentRequest,
    ) {
        let end = lease_end(entry.sent, lease_ms);
        self.each_hold(|_, hold| {
            if hold.token == token {
                hold.lease_end = hold.lease_end.min(end);
                hold.bound.extend(ephemeral_on);
            }
        });
        let state = self.token(token);
        state.first_sent.get_or_insert(entry.sent);
        state.last_sent = Some(entry.sent);
        state.leasing.push(Leasing {
            id: entry.id,
            end,
            cap: None,
            ephemeral_on,
        });
    }

    /// A request that changes whole values is being sent: holds of its keys may end from now on.
    fn value_changes(&mut self, entry: &SentRequest, now: Instant) {
        for slot in slots(entry) {
            self.values.entry(slot.clone()).or_default().open();
            for hold in self.holds.entry(slot).or_default() {
                hold.doubt(now);
            }
        }
        if is_everything(&entry.meaning) {
            self.everything.open();
            self.each_hold(|_, hold| hold.doubt(now));
        }
    }

    /// A reply has been read. At `silent_since` it had not arrived yet.
    #[track_caller]
    pub fn answered(
        &mut self,
        entry: &SentRequest,
        reply: &Reply,
        silent_since: Instant,
        now: Instant,
    ) {
        match &entry.meaning {
            Meaning::Ask(ask) => self.asked(entry, ask, reply, silent_since, now),
            Meaning::Word(word) => self.word_answered(entry, word, reply, now),
            Meaning::Pin { key, .. } => {
                let slot = (entry.database, key.clone());
                self.gates
                    .pin_answered(&slot, entry.id, entry.sent, !reply.is_error(), now);
            }
            Meaning::Revoke { fence } => self.revoked(*fence, now, now),
            _ => self.value_changed(entry, Some(reply), now),
        }
    }

    /// A request that changes whole values is over. `reply` is `None` if none will come.
    fn value_changed(&mut self, entry: &SentRequest, reply: Option<&Reply>, now: Instant) {
        let over = if reply.is_some() { now } else { now + LATE };
        let done = reply.is_some_and(|reply| !reply.is_error());
        for slot in slots(entry) {
            let doubt = self.values.entry(slot).or_default();
            if let Meaning::Remove { later_ms, .. } = &entry.meaning {
                match later_ms {
                    Some(ms) => doubt.expires(over, over + Duration::from_millis(*ms) + LATE),
                    // The value with the TTL is gone.
                    None if done => doubt.forget_ttl(entry.sent),
                    None => {}
                }
            }
            doubt.close(over);
        }
        // A value that moves takes its limit and its TTL with it.
        if let (Meaning::Move { .. }, [from, to]) = (&entry.meaning, slots(entry).as_slice()) {
            self.gates.moved(from, to, over);
            if let Some((_, until)) = self.values.get(from).and_then(Doubt::ttl) {
                self.values
                    .entry(to.clone())
                    .or_default()
                    .expires(over, until);
            }
        }
        if is_everything(&entry.meaning) {
            self.gates.mixed(over);
            let ttls = self.values.values().filter_map(Doubt::ttl);
            if let Some(until) = ttls.map(|(_, until)| until).max() {
                self.everything.extend(until);
            }
            self.everything.close(over);
        }
    }

    /// The connection closed before the reply: the request may still be carried out, or not.
    pub fn lost(&mut self, entry: &SentRequest, now: Instant) {
        match &entry.meaning {
            Meaning::Ask(Ask { token, key, .. }) => {
                self.gates
                    .lost(&(entry.database, key.clone()), entry.id, now + LATE);
                if let Some(token) = token {
                    let state = self.token(token);
                    state.leasing.retain(|leasing| leasing.id != entry.id);
                    state.ends.extend(now + LATE);
                }
            }
            Meaning::Word(word) => {
                for token in &word.tokens {
                    let state = self.token(token);
                    state.leasing.retain(|leasing| leasing.id != entry.id);
                    if word.verb.ends() {
                        state.ends.close(now + LATE);
                    } else {
                        state.ends.extend(now + LATE);
                    }
                }
            }
            Meaning::Pin { key, .. } => {
                let slot = (entry.database, key.clone());
                self.gates
                    .pin_answered(&slot, entry.id, entry.sent, false, now + LATE);
            }
            Meaning::Revoke { fence } => self.revoked(*fence, now + LATE, now),
            _ => self.value_changed(entry, None, now),
        }
    }

    /// A REVOKE of this fence has been carried out by the moment `over`, if at all.
    fn revoked(&mut self, fence: u64, over: Instant, now: Instant) {
        self.revocations.entry(fence).or_default().close(over);
        // Forgets revocations that are older than any unanswered request.
        let old = now.checked_sub(LATE * 12);
        self.revocations
            .retain(|_, doubt| old.is_none_or(|old| doubt.covers(old)));
    }

    /// The connection is being closed, or a CLIENT KILL for it is being sent.
    pub fn disconnects(&mut self, connection: u64, now: Instant) {
        self.each_hold(|_, hold| {
            if hold.bound.contains(&connection) {
                hold.doubt(now);
            }
        });
        for state in self.tokens.values_mut() {
            if state
                .leasing
                .iter()
                .any(|leasing| leasing.ephemeral_on == Some(connection))
            {
                state.ends.extend(now + LATE);
            }
        }
    }

    #[track_caller]
    fn asked(
        &mut self,
        entry: &SentRequest,
        ask: &Ask,
        reply: &Reply,
        silent_since: Instant,
        now: Instant,
    ) {
        let slot = (entry.database, ask.key.clone());
        let granted = granted(reply);
        let others = ask.token.as_ref().map(|token| self.leased(token, entry.id));
        let (others, cap) = others.unwrap_or_default();
        let first = ask
            .token
            .as_ref()
            .and_then(|token| self.tokens.get(token)?.first_sent);
        let is_fresh = !self.had_past && first.is_none_or(|first| first >= entry.sent);
        let outcome = match reply {
            Reply::Array(_) if granted.is_some() && is_fresh => LimitOutcome::Granted,
            Reply::Nil if ask.block_ms.is_none() || entry.is_try => LimitOutcome::Refused,
            Reply::Error(text) if !text.starts_with("UNBLOCKED") => LimitOutcome::Refused,
            _ => LimitOutcome::Unknown,
        };
        self.gates
            .answered(&slot, entry.id, entry.sent, outcome, now);
        let Some((token, fence)) = granted else {
            return self.not_granted(entry, ask, reply, &slot, now);
        };
        self.fences
            .granted(fence, &token, entry.sent, is_fresh, now);

        let from = if ask.block_ms.is_some() && !entry.is_try {
            entry
                .sent
                .max(silent_since.checked_sub(UNSEEN).unwrap_or(entry.sent))
        } else {
            entry.sent
        };
        let mut end = lease_end(from, ask.lease_ms);
        self.cap_others(&token, end);
        end = others.into_iter().chain(cap).fold(end, Instant::min);
        let revocation = self.revocations.get(&fence);
        let doubtful = revocation.is_some_and(|revocation| revocation.covers(entry.sent))
            || self.is_doubtful(&slot, ask.token.as_deref(), entry.sent, 0);
        let bound = ask.ephemeral.then_some(entry.connection).into_iter();
        let hold = KnownHold {
            claim: ask.claim,
            index: index(reply),
            token,
            fence,
            known: now,
            // The reply to a repeated request may be about a hold that came from another key.
            here_since: if is_fresh { entry.sent } else { now },
            lane: ask.lane.clone(),
            lease_end: end,
            // Another request of the token may have brought the MINHOLD of its hold, or none: of two connections, that
            // of the later one may have been read first.
            rests_until: (ask.min_hold_ms.filter(|_| !self.is_repeat(entry)))
                .map(|ms| lease_end(from, Some(ms.into()))),
            ended_from: None,
            doubted_from: doubtful.then_some(entry.sent),
            bound: bound.collect(),
        };
        self.enter(slot, hold, ask, entry, is_fresh, now);
    }

    /// Whether the token of this request was sent with another one too, or may have been.
    pub fn is_repeat(&self, entry: &SentRequest) -> bool {
        let Meaning::Ask(Ask {
            token: Some(token), ..
        }) = &entry.meaning
        else {
            return false;
        };
        let asked = self.tokens.get(token).map_or(0, |token| token.asked);
        self.had_past || asked > 1
    }

    /// Takes the request out of the unanswered ones. Returns the earliest lease end that the other unanswered requests
    /// may give the hold, and the earliest that answered ones may have given it.
    fn leased(&mut self, token: &str, id: u64) -> (Option<Instant>, Option<Instant>) {
        let leasing = &mut self.token(token).leasing;
        let at = leasing.iter().position(|leasing| leasing.id == id);
        let cap = at.map(|at| leasing.swap_remove(at)).and_then(|own| own.cap);
        (leasing.iter().map(|other| other.end).min(), cap)
    }

    fn cap_others(&mut self, token: &str, end: Instant) {
        for other in &mut self.token(token).leasing {
            other.cap = Some(other.cap.map_or(end, |cap| cap.min(end)));
        }
    }

    /// Returns whether anything since that moment could have ended a hold of this token at this key. `own` requests of
    /// the caller are left out.
    fn is_doubtful(&self, slot: &KeyId, token: Option<&str>, since: Instant, own: u32) -> bool {
        let of_token = token.and_then(|token| self.tokens.get(token));
        self.everything.covers(since)
            || self
                .values
                .get(slot)
                .is_some_and(|value| value.covers(since))
            || of_token.is_some_and(|token| token.ends.covers_besides(own, since))
    }

    #[track_caller]
    fn enter(
        &mut self,
        slot: KeyId,
        mut hold: KnownHold,
        ask: &Ask,
        entry: &SentRequest,
        is_fresh: bool,
        now: Instant,
    ) {
        let is_repeat = self.is_repeat(entry);
        let holds = self.holds.entry(slot.clone()).or_default();
        holds.retain(|other| other.taken_until().max(other.known) + KEPT > now);
        let same = holds.iter().position(|other| other.fence == hold.fence);
        if let Some(same) = same {
            let before = holds.swap_remove(same);
            let options = |hold: &KnownHold| (hold.index, hold.lane.clone());
            assert_eq!(
                options(&before),
                options(&hold),
                "{slot:?}: fence {}",
                hold.fence
            );
            hold.bound.extend(before.bound);
            hold.rests_until = before.rests_until;
            // A hold that is answered again after a doubt, or after its lease, has outlived that. Meanwhile CHECK may
            // have found it overdue.
            if before.doubted_from.is_none() && before.lease_end > now {
                hold.known = before.known;
                hold.here_since = before.here_since;
            }
        }
        for other in holds.iter() {
            let (older, newer) = if other.fence < hold.fence {
                (other, &hold)
            } else {
                (&hold, other)
            };
            let same_index = older.index.is_some() && older.index == newer.index;
            let same_place = exclude_each_other(older.claim, newer.claim) || same_index;
            let until = match same_place {
                true => older.taken_until(),
                false => older.certain_until(),
            };
            let both = same_place || older.token == newer.token;
            let certainly = older.here_since..until;
            assert!(
                !both || !certainly.contains(&newer.known),
                "{slot:?}: {} ({:?}, fence {}) was granted while {} ({:?}, fence {}) certainly held",
                newer.token,
                newer.claim,
                newer.fence,
                older.token,
                older.claim,
                older.fence,
            );
        }
        // A value that has just come from another key may have a limit that no request here brought.
        if same.is_none() && hold.doubted_from.is_none() && !self.had_past {
            let before = holds.iter().filter(|other| other.fence < hold.fence);
            let certain = before.filter(|other| other.taken_until() > hold.known);
            let certain: Vec<_> = certain.collect();
            let permits = |other: &&KnownHold| u64::from(other.claim.permits());
            let held: u64 = certain.iter().map(permits).sum();
            // Its own LANELIMIT was judged, and no other.
            if let Some(most) = ask.lane_limit.filter(|_| !is_repeat) {
                let in_lane = certain.iter().filter(|other| other.lane == hold.lane);
                let in_use = in_lane.map(permits).sum::<u64>() + permits(&&hold);
                assert!(
                    in_use <= most,
                    "{slot:?}: {in_use} of {most} in lane {:?}",
                    hold.lane
                );
            }
            // A repeated request is answered its hold, whatever limit it brings.
            let at_once = is_fresh && (entry.is_try || ask.block_ms.is_none());
            self.gates.check(&slot, ask, entry.sent, at_once, held);
        }
        // A token has at most one hold of a key: the latest.
        let is_over = |older: &KnownHold, newer: &KnownHold| {
            older.token == newer.token && older.fence < newer.fence
        };
        if !holds.iter().any(|other| is_over(&hold, other)) {
            holds.retain(|other| !is_over(other, &hold));
            holds.push(hold);
        }
    }

    /// Asserts that a refusal was not given to a token that certainly holds: it must be answered its hold.
    #[track_caller]
    fn not_granted(
        &self,
        entry: &SentRequest,
        ask: &Ask,
        reply: &Reply,
        slot: &KeyId,
        now: Instant,
    ) {
        let Some(token) = &ask.token else { return };
        let Some(hold) = self.certain(slot, token, entry.sent, now) else {
            return;
        };
        let refused = match reply {
            Reply::Nil => true,
            Reply::Error(text) => [
                "WRONGTYPE",
                "NOLIMIT",
                "TOOMANY",
                "QUEUEFULL",
                "OOM",
                "UNBLOCKED released",
            ]
            .iter()
            .any(|code| text.starts_with(code)),
            _ => false,
        };
        assert!(
            !refused || hold.claim != ask.claim,
            "{slot:?}: {token}, which certainly held (fence {}), was answered {reply:?}",
            hold.fence
        );
    }

    #[track_caller]
    fn word_answered(&mut self, entry: &SentRequest, word: &Word, reply: &Reply, now: Instant) {
        let slot = (entry.database, word.key.clone());
        for token in &word.tokens {
            let own = u32::from(word.verb.ends());
            let others = self.leased(token, entry.id);
            let doubtful = self.is_doubtful(&slot, Some(token), entry.sent, own);
            let refused = match reply {
                Reply::Int(0) => true,
                Reply::Error(text) => text.starts_with("WRONGTYPE"),
                _ => false,
            };
            let holds = self
                .holds
                .get_mut(&slot)
                .map_or(&mut [][..], Vec::as_mut_slice);
            let hold = holds.iter_mut().find(|hold| hold.token == *token);
            if let Some(hold) = hold
                && hold.claim.family() == word.family
                && !doubtful
            {
                let until = if word.verb.ends() {
                    hold.but_for_its_token()
                } else {
                    hold.certain_until()
                };
                let ended_before = hold.ended_from.is_some_and(|ended| ended < entry.sent);
                let held = hold.known <= entry.sent && until > now && !ended_before;
                assert!(
                    !(refused && held),
                    "{slot:?}: {token} certainly held (fence {}), and {:?} was answered {reply:?}",
                    hold.fence,
                    word.verb
                );
                // After its lease it may have ended, and what was renewed may be a later hold of the token: one whose
                // grant was not read yet, or that a kept place got.
                if word.verb == Verb::Renew && *reply == 1 && hold.lease_end > now {
                    let end = lease_end(entry.sent, word.lease_ms);
                    hold.lease_end = others.0.into_iter().chain(others.1).fold(end, Instant::min);
                }
            }
            if word.verb == Verb::Renew && !refused {
                // Its hold may be one whose grant is read later.
                self.cap_others(token, lease_end(entry.sent, word.lease_ms));
            }
            if word.verb.ends() {
                self.token(token).ends.close(now);
            }
        }
    }

    fn certain(
        &self,
        slot: &KeyId,
        token: &str,
        known: Instant,
        until: Instant,
    ) -> Option<&KnownHold> {
        let hold = self
            .holds
            .get(slot)?
            .iter()
            .find(|hold| hold.token == token)?;
        let doubtful = self.is_doubtful(slot, Some(token), known, 0);
        (hold.known <= known && hold.certain_until() > until && !doubtful).then_some(hold)
    }

    /// The holds that are certain for at least this long: key, CHECK command, token.
    pub fn certain_for(&self, now: Instant, least: Duration) -> Vec<(KeyId, String, String)> {
        self.certain_since(now, now, least)
    }

    /// The same, without those that anything may have changed after that moment: it may be undone.
    pub fn certain_since(
        &self,
        since: Instant,
        now: Instant,
        least: Duration,
    ) -> Vec<(KeyId, String, String)> {
        let mut all = Vec::new();
        for (slot, holds) in &self.holds {
            for hold in holds {
                let token = self.tokens.get(&hold.token);
                let changed = token.and_then(|token| token.last_sent);
                let is_older = hold.known <= since && changed.is_none_or(|last| last <= since);
                let doubtful = self.is_doubtful(slot, Some(&hold.token), since, 0);
                if is_older && hold.certain_until() > now + least && !doubtful {
                    let check = format!("{}.CHECK", hold.claim.family().prefix());
                    all.push((slot.clone(), check, hold.token.clone()));
                }
            }
        }
        all
    }

    fn token(&mut self, token: &str) -> &mut TokenState {
        if !self.tokens.contains_key(token) {
            self.tokens.insert(token.to_owned(), TokenState::default());
        }
        self.tokens.get_mut(token).expect("it has just been made")
    }

    fn each_hold(&mut self, mut change: impl FnMut(&KeyId, &mut KnownHold)) {
        for (slot, holds) in &mut self.holds {
            holds.iter_mut().for_each(|hold| change(slot, hold));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(ledger: &mut Ledger, line: &str, now: Instant) -> SentRequest {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        ledger.sent(Meaning::of(&words), 0, 1, false, now)
    }

    fn grant(fence: i64) -> Reply {
        Reply::Array(vec![Reply::Bulk(b"t".to_vec()), Reply::Int(fence)])
    }

    #[test]
    fn renewal_after_the_lease_says_nothing_of_the_hold_that_had_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ledger = Ledger::default();
        let first = sent(&mut ledger, "DLOCK.ACQUIRE k TOKEN t PX 8", at(0));
        ledger.answered(&first, &grant(1), at(0), at(1));
        let second = sent(&mut ledger, "DLOCK.ACQUIRE k TOKEN t SHARED PX 200", at(20));
        let renewal = sent(&mut ledger, "DLOCK.RENEW k t PX 200", at(21));
        ledger.answered(&renewal, &Reply::Int(1), at(21), at(22));
        ledger.answered(&second, &grant(2), at(20), at(23));
        let certain = ledger.certain_for(at(23), Duration::ZERO);
        assert_eq!(certain.len(), 1, "the second hold");
    }

    #[test]
    fn renewal_that_is_read_before_the_grant_decides_how_long_the_hold_is_certain() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ledger = Ledger::default();
        let request = sent(&mut ledger, "DWG.ADD g TOKEN t PX 474", at(0));
        let renewal = sent(&mut ledger, "DWG.RENEW g t PX 27", at(1));
        ledger.answered(&renewal, &Reply::Int(1), at(1), at(2));
        ledger.answered(&request, &grant(1), at(0), at(3));
        assert_eq!(ledger.certain_for(at(3), Duration::ZERO).len(), 1);
        assert_eq!(ledger.certain_for(at(30), Duration::ZERO).len(), 0);
        let release = sent(&mut ledger, "DWG.RELEASE g t", at(31));
        ledger.answered(&release, &Reply::Int(0), at(31), at(32));
    }

    #[test]
    #[should_panic(expected = "certainly held")]
    fn index_that_is_certainly_held_is_granted_to_nobody_else() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ledger = Ledger::default();
        for (token, fence) in [("t", 1), ("u", 2)] {
            let request = format!("DSEM.ACQUIRE s LIMIT 2 INDEX TOKEN {token} PX 474");
            let request = sent(&mut ledger, &request, at(2 * fence));
            let token = Reply::Bulk(token.into());
            let granted = vec![token, Reply::Int(fence as i64), Reply::Int(0)];
            let read = at(2 * fence + 1);
            ledger.answered(&request, &Reply::Array(granted), at(2 * fence), read);
        }
    }

    #[test]
    #[should_panic(expected = "2 of 1 in lane")]
    fn lane_has_certainly_no_more_in_use_than_its_limit() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ledger = Ledger::default();
        for (token, fence) in [("t", 1), ("u", 2)] {
            let request = format!("DSEM.ACQUIRE s LIMIT 2 LANE l LANELIMIT 1 TOKEN {token} PX 474");
            let request = sent(&mut ledger, &request, at(2 * fence));
            let reply = Reply::Array(vec![Reply::Bulk(token.into()), Reply::Int(fence as i64)]);
            ledger.answered(&request, &reply, at(2 * fence), at(2 * fence + 1));
        }
    }

    /// A place that rests is taken although its token has released it.
    #[test]
    #[should_panic(expected = "certainly held")]
    fn place_that_certainly_rests_is_granted_to_nobody_else() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ledger = Ledger::default();
        let first = sent(&mut ledger, "DLOCK.ACQUIRE k TOKEN t MINHOLD 90", at(0));
        ledger.answered(&first, &grant(1), at(0), at(1));
        let release = sent(&mut ledger, "DLOCK.RELEASE k t", at(2));
        ledger.answered(&release, &Reply::Int(1), at(2), at(3));
        let next = sent(&mut ledger, "DLOCK.ACQUIRE k TOKEN t", at(4));
        ledger.answered(&next, &grant(2), at(4), at(5));
    }

    /// A request without MINHOLD was sent behind one with it, on another connection, and carried out before it.
    #[test]
    fn place_rests_for_certain_only_if_its_token_has_asked_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ledger = Ledger::default();
        let first = sent(&mut ledger, "DLOCK.ACQUIRE k TOKEN t MINHOLD 90", at(0));
        let second = sent(&mut ledger, "DLOCK.ACQUIRE k TOKEN t", at(1));
        for request in [first, second] {
            ledger.answered(&request, &grant(1), at(0), at(2));
        }
        let release = sent(&mut ledger, "DLOCK.RELEASE k t", at(3));
        ledger.answered(&release, &Reply::Int(1), at(3), at(4));
        let next = sent(&mut ledger, "DLOCK.ACQUIRE k TOKEN u", at(5));
        ledger.answered(&next, &grant(2), at(5), at(6));
    }

    #[test]
    fn refused_renewal_leaves_a_grant_that_is_read_later_its_lease() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ledger = Ledger::default();
        let request = sent(&mut ledger, "DWG.ADD g TOKEN t PX 474", at(0));
        let renewal = sent(&mut ledger, "DWG.RENEW g t PX 27", at(1));
        ledger.answered(&renewal, &Reply::Int(0), at(1), at(2));
        ledger.answered(&request, &grant(1), at(0), at(3));
        assert_eq!(ledger.certain_for(at(30), Duration::ZERO).len(), 1);
    }
}
