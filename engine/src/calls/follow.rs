//! Changes that another server decided, or this one before a restart.
//!
//! A replica applies changes and never decides: see `crate::term`.

use crate::calls::kept_elsewhere::PlacesInTurn;
use crate::change::{Change, Misfit};
use crate::effect::Note;
use crate::store::slab::StateId;
use crate::term::TakeOver;
use crate::types::Family;
use crate::unasked::UnaskedEnd;
use crate::visit::Visit;

/// Why the changes of another server were refused: which of them did not fit, by its place in the command, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfollowed {
    pub at: usize,
    pub misfit: Misfit,
}

impl Visit<'_> {
    /// Applies the changes that one call made to the key elsewhere: all of them or none. Serves nobody.
    ///
    /// # Errors
    /// For a change that does not fit; nothing has changed then.
    pub fn follow(&mut self, family: Family, changes: &[Change]) -> Result<(), Unfollowed> {
        self.comes_due_in(0);
        // VANISH can only be the last change of a call.
        let (changes, vanishes) = match changes.split_last() {
            Some((Change::Vanish, before)) => (before, true),
            _ => (changes, false),
        };
        let misfit = |at, misfit| Unfollowed { at, misfit };
        // A place may leave a name whose value is gone, or is of another family.
        let is_leave = |change: &Change| matches!(change, Change::Leave { .. });
        let leaves_only = !vanishes && changes.iter().all(is_leave);
        if !leaves_only && self.look().body_of(family).is_err() {
            return Err(misfit(0, Misfit::Family));
        }
        let places = PlacesInTurn::check(self.engine, self.db, self.name, changes);
        for (at, fits) in places.enumerate() {
            fits.map_err(|reason| misfit(at, reason))?;
        }
        if !leaves_only && !changes.is_empty() {
            let is_new = self.state.is_none();
            let id = self.make_state(family);
            let id = id.ok_or_else(|| misfit(0, Misfit::Full))?;
            let applied = self.apply_all(id, family, changes);
            if is_new && applied.is_err() {
                self.discard();
            }
            applied.map_err(|(at, reason)| misfit(at, reason))?;
            self.take_up(id, changes);
        }
        self.follow_places(changes);
        if vanishes {
            self.discard();
        }
        Ok(())
    }

    /// Applies all of the changes, or none.
    fn apply_all(
        &mut self,
        id: StateId,
        family: Family,
        changes: &[Change],
    ) -> Result<(), (usize, Misfit)> {
        let engine = &mut *self.engine;
        let body = engine.store.body_mut(id).ok_or((0, Misfit::NoHold))?;
        let ended = body.apply_all(changes)?;
        for change in changes {
            engine.store.count(family, change);
        }
        for (change, hold) in &ended {
            if let Change::End { how, at, .. } | Change::Rest { how, at, .. } = *change
                && how.is_unasked()
            {
                // Only the server that decided knows its lease clock; the others go by the written deadline.
                let late_ms = at.0.checked_sub(hold.deadline().0);
                let end = UnaskedEnd::of(hold, *how, *at, late_ms);
                engine.effects.notes.push(Note::EndedElsewhere(end));
            }
            engine.store.ended(family, hold);
        }
        Ok(())
    }

    /// Brings fences, moments and indexes in line with changes that have been applied.
    fn take_up(&mut self, id: StateId, changes: &[Change]) {
        let engine = &mut *self.engine;
        for change in changes {
            if let Change::Grant(grant) = change {
                let fences = &mut engine.term.fences;
                fences.adopt_grant(grant.fence, grant.granted, self.now);
            }
        }
        // A primary follows too: Valkey 9 streams the changes of a slot to the node that the slot moves to.
        if !engine.is_serving() {
            return;
        }
        let from = TakeOver::at(self.now, engine.settings.takeover_grace_ms);
        for fence in changes.iter().filter_map(Change::fence) {
            engine.term.take_up(&mut engine.store, id, fence, from);
        }
        engine.index(id);
    }
}
