//! What operators look at: all holds of the server, and the ends that nobody asked for.

use std::collections::BTreeSet;

use super::World;
use crate::model::Value;
use crate::server::{Done, Server, key_bytes};
use dsync_engine::change::{Change, End};
use dsync_engine::effect::Note;
use dsync_engine::held::{FoundHold, HeldCursor};
use dsync_engine::types::{ClientId, Db, Fence, Now};

/// A walk over all holds that goes on while the history does.
#[derive(Default)]
pub(super) struct Walk {
    /// `None` before it begins.
    cursor: Option<HeldCursor>,
    met: BTreeSet<Fence>,
    /// The holds that were there all the time.
    lasting: BTreeSet<Fence>,
}

/// How many holds a walk looks at in one go.
const LOOKS: usize = 2;

/// Returns all holds of a server, found by a whole walk, with the database and the name of each.
fn all_holds(server: &Server, now: Now) -> Vec<FoundHold<'_>> {
    let mut all = Vec::new();
    let mut cursor = None;
    for _ in 0..1_000 {
        let (found, next) = server.engine.held(cursor, LOOKS, now, |_| true);
        assert!(found.len() <= LOOKS, "no more holds than looks");
        all.extend(found);
        cursor = next;
        if cursor.is_none() {
            return all;
        }
    }
    panic!("the walk has no end")
}

impl World {
    /// Notes the ends of a call that nobody asked for: each change that is such an end has a note, and nothing else.
    pub(super) fn note_ends(&mut self, done: &Done) {
        let unasked = done.changes.iter().filter_map(|change| match change {
            Change::End { fence, how, at } | Change::Rest { fence, how, at } => {
                let is_asked_for = matches!(how, End::Released | End::Done | End::Rested);
                (!is_asked_for).then_some((*fence, *how, *at))
            }
            _ => None,
        });
        let noted = done.notes.iter().filter_map(|note| match note {
            Note::Ended(end) => Some(end),
            _ => None,
        });
        assert!(
            noted
                .clone()
                .map(|end| (end.fence, end.how, end.at))
                .eq(unasked),
            "{:?}: {:?} are noted of {:?}",
            done.name,
            done.notes,
            done.changes
        );
        self.noted.extend(noted.map(|end| (done.name, end.clone())));
    }

    pub(super) fn compare_ends(&mut self) {
        let now = self.now;
        let mut theirs = std::mem::take(&mut self.model.ends);
        self.ended = std::mem::take(&mut self.noted);
        let fence = |theirs: u64| *self.fences.get(&theirs).expect("it was told to somebody");
        theirs.sort_by_key(|end| fence(end.hold.fence));
        self.ended.sort_by_key(|(_, end)| end.fence);
        assert_eq!(self.ended.len(), theirs.len(), "{:?}", self.ended);
        for ((name, ours), theirs) in self.ended.iter().zip(&theirs) {
            let hold = &theirs.hold;
            let unix_ms = now.unix_us / 1_000;
            assert_eq!(
                (*name, ours.fence, ours.owner.as_deref(), ours.is_renewed),
                (
                    theirs.name,
                    fence(hold.fence),
                    hold.owner.as_deref(),
                    hold.renewed
                ),
                "whose hold has ended"
            );
            assert_eq!(
                (ours.at.0, ours.held_ms),
                (unix_ms, unix_ms.saturating_sub(hold.granted_ms)),
                "{name:?}: when {:?} ended",
                ours.fence
            );
            // The hold of a closed connection whose lease is over ends for either reason.
            let late_us = now.lease.0.checked_sub(hold.due_us);
            if hold.ending.is_none() || late_us.is_none() {
                assert_eq!(ours.how, theirs.how, "{name:?}: why {:?} ended", ours.fence);
            }
            let by_lease = matches!(ours.how, End::Lapsed | End::Undelivered);
            let late_ms = late_us.filter(|_| by_lease).map(|us| us / 1_000);
            assert_eq!(ours.late_ms, late_ms, "{name:?}: how late {:?}", ours.fence);
        }
    }

    /// A whole walk finds the model's holds, each once. It may also find holds of removed values that the server has
    /// still to free; these have no key.
    pub(super) fn compare_holds(&self) {
        let now = self.now;
        let mut found = all_holds(&self.primary, now);
        let on_replica = all_holds(&self.replica, now);
        for (name, value) in &self.model.values {
            let Value::State(content) = value else {
                continue;
            };
            for hold in content.holds.iter().filter(|hold| !hold.is_resting) {
                let fence = self.fences[&hold.fence];
                let at = found.iter().position(|found| found.hold.fence == fence);
                let at = at.unwrap_or_else(|| panic!("{name:?}: {fence:?} is not found"));
                let FoundHold {
                    key,
                    family,
                    hold: ours,
                } = found.swap_remove(at);
                let spelling = key_bytes(*name);
                assert!(
                    key.is_none_or(|key| key == (Db(name.0), &spelling)),
                    "{name:?}: where {fence:?} is"
                );
                assert_eq!(family, content.family, "{name:?}");
                assert_eq!(
                    (ours.owner, ours.client, ours.claim),
                    (hold.owner.as_deref(), ClientId(hold.client), hold.claim),
                    "{name:?}: whose {fence:?} is"
                );
                let left_ms = hold.due_us.saturating_sub(now.lease.0).div_ceil(1_000);
                let held_ms = (now.unix_us / 1_000).saturating_sub(hold.granted_ms);
                assert_eq!(
                    (ours.lease_left_ms, ours.held_ms),
                    (left_ms, held_ms),
                    "{name:?}: the times of {fence:?}"
                );
                let there = on_replica.iter().filter(|found| found.hold.fence == fence);
                assert_eq!(there.count(), 1, "{name:?}: {fence:?} on the replica");
            }
        }
        let left: Vec<Fence> = found.iter().map(|found| found.hold.fence).collect();
        let is_elsewhere = found.iter().all(|found| found.key.is_none());
        assert!(is_elsewhere, "{left:?} are found and have ended");
    }

    /// Continues a walk by some looks. When it ends, it must have met each hold that was there all the time, and none
    /// twice.
    pub(super) fn continue_walk(&mut self) {
        let there: BTreeSet<Fence> = self.held_fences().collect();
        if self.walk.cursor.is_none() {
            self.walk = Walk {
                lasting: there,
                ..Walk::default()
            };
        } else {
            self.walk.lasting.retain(|fence| there.contains(fence));
        }
        let (found, next) = self
            .primary
            .engine
            .held(self.walk.cursor, LOOKS, self.now, |_| true);
        for found in found {
            let fence = found.hold.fence;
            assert!(self.walk.met.insert(fence), "{fence:?} is met twice");
        }
        self.walk.cursor = next;
        if next.is_none() {
            let missed: Vec<_> = self.walk.lasting.difference(&self.walk.met).collect();
            assert!(missed.is_empty(), "{missed:?} were there and were not met");
        }
    }

    fn held_fences(&self) -> impl Iterator<Item = Fence> {
        let contents = self
            .model
            .values
            .iter()
            .filter_map(|(_, value)| match value {
                Value::State(content) => Some(content),
                Value::Foreign => None,
            });
        let holds = contents.flat_map(|content| &content.holds);
        let live = holds.filter(|hold| !hold.is_resting);
        live.map(|hold| self.fences[&hold.fence])
    }
}
