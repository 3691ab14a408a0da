//! A state as the changes that make a new state equal to it, and the change that brings back what was displaced.

use crate::change::{Change, ChangeView, Displaced, Record, Tally};
use crate::state::body::{Body, Value};
use crate::types::Family;

impl Body {
    /// Returns the change that sets everything but the holds: a family's scalars. `None` for a lock, which has none.
    pub fn scalars(&self) -> Option<Change> {
        match self.value() {
            Value::Lock(_) => None,
            Value::Semaphore(_) => Some(Change::Limits(self.limits())),
            Value::Group(group) => Some(Change::Tally(group.tally)),
            Value::Once(once) => Some(Change::Record(once.record())),
        }
    }

    /// Returns what the present holds have displaced, and what comes back if they all end undelivered.
    pub fn displaced(&self) -> Option<Displaced> {
        match self.value() {
            Value::Group(group) => group.displaced.as_deref().copied().map(Displaced::Round),
            Value::Once(once) => once.displaced.as_deref().cloned().map(Displaced::Late),
            Value::Lock(_) | Value::Semaphore(_) => None,
        }
    }

    /// Returns the change that brings back what the last hold displaced, now that it has ended undelivered. `None` while
    /// other holds live.
    pub(crate) fn brought_back(&self, displaced: Displaced) -> Option<Change> {
        match displaced {
            _ if !self.holds().is_empty() => None,
            Displaced::Late(late) => Some(Change::Record(Record {
                late: Some(late),
                ..self.once()?.record()
            })),
            Displaced::Round(round) => Some(Change::Tally(Tally {
                expected: round.expected,
                done: round.done,
                lapsed: round.lapsed,
                finished: Some(round.keep_until),
                ..self.group()?.tally
            })),
        }
    }

    /// Returns the changes that make a new state equal to this one, for a saved state, in the order of `Part`, and the
    /// oldest hold first. Grants change the scalars of groups and work-once keys, so theirs come after the holds.
    ///
    /// What is displaced is saved only while nobody has heard of a hold: another server, or this one after a restart, ends
    /// no other hold as undelivered.
    pub fn as_changes(&self) -> impl Iterator<Item = Change> {
        self.changes().map(Change::from)
    }

    /// Returns the same as [`Body::as_changes`], without a copy of the texts of holds.
    pub(crate) fn changes(&self) -> impl Iterator<Item = ChangeView<'_>> {
        let (first, last) = match self.family() {
            Family::Semaphore => (self.scalars(), None),
            _ => (None, self.scalars()),
        };
        let holds = self.holds();
        let grants = holds.iter().map(|hold| ChangeView::Grant(hold.view()));
        let closings = self.closings().into_iter();
        let closings = closings.map(|closing| (closing.change)(Some(closing.until)));
        let unheard = holds.iter().filter_map(|hold| {
            let (fence, keep_ms) = (hold.fence(), hold.unheard_ms()?);
            Some(Change::Unheard { fence, keep_ms })
        });
        let displaced = self.displaced().filter(|_| holds.is_unheard());
        let others = last.into_iter().chain(closings).chain(unheard);
        let others = others.chain(displaced.map(Change::Displaced));
        let first = first.map(ChangeView::Other).into_iter();
        first.chain(grants).chain(others.map(ChangeView::Other))
    }
}
