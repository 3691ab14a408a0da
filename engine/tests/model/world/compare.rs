//! The comparisons after each step: replies, states, INFO, the replica, the next wake.

use super::{Ticket, World};
use crate::model::{Name, Outcome, Sitter, Value};
use crate::server::{Done, granted};
use dsync_engine::answer::Answer;
use dsync_engine::change::Change;
use dsync_engine::hold::Rest;
use dsync_engine::info::{KeyLanes, Particulars};
use dsync_engine::types::{Claim, ClientId, Fence, LeaseMs, WaiterId};
use dsync_engine::{Family, Reply, WrongType};

impl World {
    pub(super) fn same_fence(&mut self, theirs: Fence, ours: Fence) {
        match self.fences.get(&theirs.0) {
            Some(known) => assert_eq!(*known, ours, "the same hold has the same fence"),
            None => {
                assert!(
                    !self.fences.values().any(|fence| *fence == ours),
                    "{ours:?} given twice"
                );
                self.fences.insert(theirs.0, ours);
            }
        }
    }

    /// Compares what was announced to the tokens of kept places.
    pub(super) fn same_announcements(&mut self, all: &[Done]) {
        let ours = all.iter().flat_map(|done| {
            let announced = done.announcements.iter();
            announced.map(|told| (done.name, told.rank, told.fence))
        });
        let mut ours: Vec<_> = ours.collect();
        let mut theirs = std::mem::take(&mut self.model.announcements);
        // Both number the places of a key in the order in which they were taken.
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours.len(), theirs.len(), "{ours:?}, expected: {theirs:?}");
        for ((name, rank, fence), (their_name, their_rank, theirs)) in ours.into_iter().zip(theirs)
        {
            assert_eq!(name, their_name, "whose place it is");
            self.same_fence(Fence(their_rank), rank.0);
            assert_eq!(fence.is_some(), theirs.is_some(), "{name:?}: {rank:?}");
            if let (Some(fence), Some(theirs)) = (fence, theirs) {
                self.same_fence(Fence(theirs), fence);
                self.announced.push((name, rank.0, fence));
            }
        }
    }

    pub(super) fn same_answer(&mut self, name: Name, ours: &Answer, theirs: &Answer) {
        if let (
            Answer::Waiting { position, rank },
            Answer::Waiting {
                position: their_position,
                rank: theirs,
            },
        ) = (ours, theirs)
        {
            assert_eq!(position, their_position, "{name:?}: the position");
            return self.same_fence(theirs.0, rank.0);
        }
        let (Some((_, fence)), Some((_, their_fence))) = (granted(ours), granted(theirs)) else {
            return assert_eq!(ours, theirs, "{name:?}: the answer");
        };
        self.same_fence(their_fence, fence);
        // The answers must be equal in everything but the fence.
        let mut theirs = theirs.clone();
        if let Answer::Granted { fence: f, .. } | Answer::Run { fence: f, .. } = &mut theirs {
            *f = fence;
        }
        assert_eq!(*ours, theirs, "{name:?}: the grant");
    }

    pub(super) fn same_reply(
        &mut self,
        name: Name,
        client: u64,
        ours: Reply,
        theirs: Outcome,
    ) -> Result<Answer, WaiterId> {
        match (ours, theirs) {
            (Reply::Now(ours), Outcome::Now(theirs)) => {
                self.same_answer(name, &ours, &theirs);
                Ok(ours)
            }
            (Reply::Queued(id), Outcome::Queued(ticket)) => {
                let before = self.tickets.insert(
                    id,
                    Ticket {
                        ticket,
                        name,
                        client,
                    },
                );
                assert!(before.is_none(), "{id:?} is used once");
                Err(id)
            }
            (ours, theirs) => panic!("{name:?}: the reply is {ours:?}, and should be {theirs:?}"),
        }
    }

    pub(super) fn compare(&mut self, nothing_is_due: bool) {
        let now = self.now;
        self.primary.engine.check_invariants(now);
        self.replica.engine.check_invariants(now);
        let mut names: Vec<Name> = self.primary.keys.keys().copied().collect();
        names.extend(self.replica.keys.keys());
        names.extend(self.model.values.iter().map(|(name, _)| *name));
        names.extend(self.model.queues.iter().map(|queue| queue.name));
        names.sort_unstable();
        names.dedup();
        for name in names {
            self.compare_key(name);
        }
        for family in Family::ALL {
            let seats = self.model.queues.iter().flat_map(|queue| &queue.seats);
            let waiting = seats.filter(|seat| {
                let claimed = seat.claim.map_or(Family::Group, Claim::family);
                !seat.is_vacant() && claimed == family
            });
            assert_eq!(
                self.primary.engine.waiting(family),
                waiting.count() as u64,
                "how many wait for a {family:?}"
            );
        }
        for (id, ticket) in &self.tickets {
            assert!(self.laws.waits(*id), "{id:?} is owed an answer");
            let waits = self
                .model
                .queues
                .iter()
                .flat_map(|queue| &queue.seats)
                .any(|seat| {
                    matches!(&seat.sitter,
                    Sitter::Waiting { ticket: t, .. } | Sitter::Watching { ticket: t, .. }
                        if *t == ticket.ticket)
                });
            assert!(waits, "{id:?} waits, in the model too");
        }
        if nothing_is_due {
            let next = self.primary.engine.next_wake(now);
            if let Some(event) = self.model.next_event(now) {
                let next =
                    next.unwrap_or_else(|| panic!("something is due in {event} µs, and no wake"));
                assert!(
                    next <= event,
                    "something is due in {event} µs, the wake is in {next}"
                );
            }
            assert!(
                !now.may_write || next != Some(0),
                "all is done, and yet there is something to do"
            );
            assert!(!self.primary.engine.is_held_up(now) || !now.may_write);
        }
    }

    pub(super) fn compare_key(&mut self, name: Name) {
        let saved = self.primary.saved(name);
        assert_eq!(
            self.replica.saved(name),
            saved,
            "{name:?}: the replica has what the primary has"
        );
        let ours = self.primary.state(name);
        let theirs = self.model.content(name);
        assert_eq!(
            ours.map(|state| state.body.family()),
            theirs.map(|content| content.family),
            "{name:?}: what the key is"
        );
        self.compare_places(name);
        let foreign = matches!(self.model.value(name), Some(Value::Foreign));
        assert_eq!(self.is_foreign(name), foreign, "{name:?}");
        let (Some(state), Some(content)) = (ours, theirs) else {
            return;
        };
        let mut unheard = content.holds.iter().filter_map(|hold| {
            let fence = *self.fences.get(&hold.fence)?;
            Some((fence, hold.unheard_ms?))
        });
        let mut holds = content.holds.iter();
        let mut scalars = Vec::new();
        for change in state.body.as_changes() {
            if let Change::Unheard { fence, keep_ms } = change {
                assert_eq!(unheard.next(), Some((fence, keep_ms)), "{name:?}: unheard");
                continue;
            }
            let Change::Grant(ours) = change else {
                scalars.push(change);
                continue;
            };
            let hold = holds
                .next()
                .unwrap_or_else(|| panic!("{name:?}: a hold too many: {ours:?}"));
            let fence = *self
                .fences
                .get(&hold.fence)
                .expect("it was told to somebody");
            assert_eq!(
                (ours.fence, &ours.token, ours.claim, ours.owner.as_deref()),
                (fence, &hold.token, hold.claim, hold.owner.as_deref()),
                "{name:?}: who holds"
            );
            assert_eq!(ours.lane, hold.lane, "{name:?}: the lane of {fence:?}");
            assert_eq!(ours.index, hold.index, "{name:?}: the index of {fence:?}");
            let rest = match hold.min_hold_ms {
                None => Rest::None,
                Some(_) if hold.is_resting => Rest::Now,
                Some(ms) => Rest::After(LeaseMs(ms)),
            };
            assert_eq!(ours.rest, rest, "{name:?}: the rest of {fence:?}");
            assert_eq!(
                (ours.lease.0, ours.deadline.0, ours.granted.0, ours.renewed),
                (
                    hold.lease_ms,
                    hold.deadline_ms,
                    hold.granted_ms,
                    hold.renewed
                ),
                "{name:?}: the lease of {fence:?}"
            );
        }
        assert_eq!(holds.len(), 0, "{name:?}: holds too few");
        assert_eq!(unheard.next(), None, "{name:?}: a hold was heard from");
        let mut expected: Vec<_> = content.scalars().into_iter().collect();
        expected.extend(content.later_scalars());
        expected.extend(content.displaced());
        assert_eq!(
            scalars, expected,
            "{name:?}: what the key is besides its holds"
        );
        self.compare_info(name);
        self.compare_result(name);
    }

    /// Compares what GET of work-once answers on the primary, and on the replica by its own clock.
    fn compare_result(&self, name: Name) {
        let family = self.model.content(name).expect("a state").family;
        for (server, skew_ms) in [(&self.primary, 0), (&self.replica, self.skew_ms)] {
            if server.state(name).is_none() {
                continue;
            }
            let mut now = self.now;
            now.unix_us += skew_ms * 1_000;
            let expected = match family {
                Family::Once => Ok(self.model.result(name, now.unix_us / 1_000)),
                Family::Lock | Family::Semaphore | Family::Group => Err(WrongType),
            };
            assert_eq!(
                server.look(name, now, |look| look.result()),
                expected,
                "{name:?}: GET"
            );
        }
    }

    /// Compares the kept places of a name, which the replica has too.
    fn compare_places(&self, name: Name) {
        let mut places = self.primary.places(name);
        assert_eq!(
            self.replica.places(name),
            places,
            "{name:?}: the replica has the places that the primary has"
        );
        places.sort_by_key(|place| place.rank);
        let seats = self.model.seats(name).iter();
        let mut kept = seats.filter_map(|seat| Some((seat, seat.keep?, seat.request()?)));
        for place in places {
            let (seat, keep, request) = kept.next().expect("a place too many");
            if let Some(number) = self.fences.get(&seat.rank) {
                assert_eq!(place.rank.0, *number, "{name:?}: the rank");
            }
            assert_eq!(
                (&place.token, place.claim, place.lease, place.keep_ms),
                (&request.token, request.claim, request.lease, keep.ms),
                "{name:?}: what the place is for"
            );
            assert_eq!(place.min_hold, request.min_hold, "{name:?}: MINHOLD");
            assert_eq!(
                (place.bound, &place.owner),
                (request.bound, &request.owner),
                "{name:?}: whose the place is"
            );
            let since_ms = keep.since_ms.unwrap_or(place.since.0);
            assert_eq!(place.since.0, since_ms, "{name:?}: since when");
        }
        assert!(kept.next().is_none(), "{name:?}: places too few");
    }

    /// Compares the lanes in INFO. Lanes in which nobody waits are not there.
    fn compare_lanes(&self, name: Name, ours: Option<KeyLanes<'_>>) {
        let holds = &self.model.content(name).expect("a state").holds;
        let seats = self.model.seats(name).iter();
        let names_lane = holds.iter().any(|hold| !hold.lane.is_nameless());
        let waiting = seats.filter(|seat| !seat.is_vacant());
        let waiting = waiting.filter(|seat| {
            seat.claim
                .is_some_and(|claim| claim.family() == Family::Semaphore)
        });
        let mut in_order: Vec<_> = waiting.collect();
        in_order.sort_by_key(|seat| seat.rank);
        let Some(ours) = ours else {
            let names_lane = names_lane || in_order.iter().any(|seat| !seat.lane.is_nameless());
            return assert!(!names_lane, "{name:?}: no lanes");
        };
        let mut lanes: Vec<(&[u8], u64, usize)> = Vec::new();
        for seat in in_order.iter().filter(|_| self.model.names_lanes(name)) {
            let lane = seat.lane.as_bytes();
            match lanes.iter_mut().find(|row| row.0 == lane) {
                Some(row) => row.2 += 1,
                None => lanes.push((lane, self.model.in_use(name, &seat.lane), 1)),
            }
        }
        let rows = ours.first.iter();
        let rows: Vec<_> = rows
            .map(|row| (row.name, row.permits, row.waiters))
            .collect();
        assert_eq!(rows, lanes, "{name:?}: the lanes");
        assert_eq!(ours.count, lanes.len(), "{name:?}: how many lanes");
    }

    pub(super) fn compare_info(&self, name: Name) {
        let content = self.model.content(name).expect("a state");
        let spelling = crate::server::key_bytes(name);
        if self.primary.state(name).is_none() {
            return;
        }
        let key = self.primary.key(name, &spelling);
        let look = self.primary.engine.look(key, self.now);
        let info = look.info(content.family, 1_000);
        let info = info.expect("its family").expect("present");
        match info.particulars {
            Particulars::Semaphore {
                limits,
                available,
                resting,
            } => {
                assert_eq!(resting, content.permits_resting(), "{name:?}: resting");
                let in_force = limits.in_force();
                assert_eq!(in_force, content.in_force(), "{name:?}: the limit in force");
                let limit = u64::from(content.in_force().unwrap_or(0));
                assert_eq!(
                    available,
                    limit.saturating_sub(content.permits_held()),
                    "{name:?}"
                );
            }
            Particulars::Group(tally) => assert_eq!(tally.owed(), content.owed(), "{name:?}: owed"),
            _ => {}
        }
        assert_eq!(info.holders, content.holds.len(), "{name:?}: holders");
        let resting = content.holds.iter().filter(|hold| hold.is_resting);
        assert_eq!(info.resting, resting.count(), "{name:?}: that rest");
        for (ours, hold) in info.first_holders.iter().zip(&content.holds) {
            assert_eq!(ours.owner, hold.owner.as_deref(), "{name:?}: owner");
            assert_eq!(
                ours.client,
                ClientId(hold.client),
                "{name:?}: client of {:?}",
                ours.fence
            );
            assert_eq!(ours.claim, hold.claim, "{name:?}: claim");
            assert_eq!(ours.index, hold.index, "{name:?}: index");
            assert_eq!(ours.lane, hold.lane.as_bytes(), "{name:?}: lane");
            let left_ms = hold.due_us.saturating_sub(self.now.lease.0).div_ceil(1_000);
            let left = match hold.is_resting {
                true => (0, Some(left_ms)),
                false => (left_ms, None),
            };
            assert_eq!(
                (ours.lease_left_ms, ours.resting_ms),
                left,
                "{name:?}: left of {:?}",
                ours.fence
            );
            let held_ms = (self.now.unix_us / 1_000).saturating_sub(hold.granted_ms);
            assert_eq!(ours.held_ms, held_ms, "{name:?}: held");
        }
        self.compare_lanes(name, info.lanes);
        let waiters = info.waiters;
        let seats: Vec<_> = self
            .model
            .seats(name)
            .iter()
            .filter(|seat| !seat.is_vacant())
            .collect();
        assert_eq!(waiters.count, seats.len(), "{name:?}: waiters");
        let age_ms = |since_us: u64| (self.now.mono.0 - since_us) / 1_000;
        let longest_ms = seats.iter().map(|seat| age_ms(seat.since_us)).max();
        let is_moved = seats.iter().any(|seat| seat.is_moved);
        assert!(
            is_moved || waiters.longest_ms == longest_ms.unwrap_or(0),
            "{name:?}: the longest wait"
        );
        let claiming = seats.iter().filter(|seat| seat.claim.is_some());
        let watching = seats.iter().filter(|seat| seat.claim.is_none());
        let mut in_order: Vec<_> = claiming.collect();
        in_order.sort_by_key(|seat| seat.rank);
        for (ours, seat) in waiters
            .first
            .iter()
            .zip(in_order.into_iter().chain(watching))
        {
            let (client, owner) = match &seat.sitter {
                Sitter::Waiting { request, .. } => (request.client, request.owner.as_deref()),
                Sitter::Kept { request } => (ClientId::NONE, request.owner.as_deref()),
                Sitter::Watching { client, .. } => (ClientId(*client), None),
                Sitter::Vacant { .. } => continue,
            };
            assert_eq!(ours.rank.is_some(), seat.keep.is_some(), "{name:?}: kept");
            let kept_until_us = seat.kept_until_us();
            let left_us = kept_until_us.map(|until_us| until_us.saturating_sub(self.now.lease.0));
            let left_ms = left_us.map(|us| us.div_ceil(1_000));
            assert_eq!(ours.kept_ms, left_ms, "{name:?}: how long it is kept");

            assert_eq!(
                (ours.client, ours.owner),
                (client, owner),
                "{name:?}: who waits"
            );
            assert_eq!(ours.claim, seat.claim, "{name:?}");
            assert_eq!(ours.lane, seat.lane.as_bytes(), "{name:?}: its lane");
            // The clocks of two servers differ.
            let age_ms = age_ms(seat.since_us);
            let off_ms = ours.age_ms.abs_diff(age_ms);
            assert!(
                off_ms == 0 || seat.is_moved && off_ms <= 25,
                "{name:?}: age"
            );
        }
    }
}
