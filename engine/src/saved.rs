//! A state as the packed changes that rebuild it. RDB files, DUMP payloads, rewritten AOFs and digests hold these.
//!
//! A state is one packed string, or several if it has many holds; each but the last says that more follow. The strings
//! are those of [`crate::wire`]. [`Body::as_changes`] makes the changes. [`Body::load`] adds all holds at once, with the
//! same result and the same refusals as [`Body::apply`]. This file checks what only a saved state must fulfil: which
//! changes it may have, and in which order.
//!
//! The kept places of a name are saved with its value. Connections, the lease clock and the rest of the queue are not
//! saved; see [`crate::change`] for the reason.

use std::mem::take;

use thiserror::Error;

use crate::change::{Change, ChangeView, KeptPlace, Misfit};
use crate::hold::Hold;
use crate::state::{Body, Part};
use crate::types::{Family, Fence, Token};
use crate::wire::{self, Unreadable};

/// How many changes one packed string has at most; they are of one version. One command of a rewritten AOF carries one
/// string.
const PER_STRING: usize = 128;

/// Why a saved state is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Unsound {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("it is of another family than its key")]
    Family,
    /// A saved state cannot have this change, or not at this place: for example, fences must rise.
    #[error("its change '{verb}' is out of place")]
    Misplaced { verb: &'static str },
    #[error("its change '{verb}' does not fit: {misfit}")]
    Misfit { verb: &'static str, misfit: Misfit },
    /// The strings ended before everything that the family needs was there.
    #[error("it ends too early")]
    Incomplete,
}

/// Calls `each` with the packed strings of a state and of the kept places of its name, in order: at least one. The places
/// must be of the state's family, with rising numbers.
pub fn pack(body: &Body, places: impl IntoIterator<Item = KeptPlace>, mut each: impl FnMut(&[u8])) {
    let places = places.into_iter().map(Change::Place);
    let changes = body.changes().chain(places.map(ChangeView::Other));
    let mut buffer = Vec::new();
    // The version of the string that was begun, and how many changes it has.
    let (mut begun, mut len) = (None, 0);
    // Not a loop, because the iterator is made of many: to ask each of them for each change takes longer than to write
    // the change.
    changes.for_each(|change| {
        let version = Some(change.version());
        if begun != version || len == PER_STRING {
            if begun.is_some() {
                wire::end(&mut buffer, true);
                each(&buffer);
            }
            wire::begin(&mut buffer, body.family(), change.version());
            (begun, len) = (version, 0);
        }
        wire::add(&mut buffer, &change);
        len += 1;
    });
    if begun.is_none() {
        wire::begin(&mut buffer, body.family(), wire::VERSION);
    }
    wire::end(&mut buffer, false);
    each(&buffer);
}

/// What was saved under one name.
pub struct Loaded {
    pub body: Body,
    /// With rising numbers, and each with a token of its own.
    pub places: Vec<KeptPlace>,
}

/// A state that is being rebuilt from its packed strings.
pub struct Assembly {
    body: Body,
    /// Of the grants so far, as long as no other change has followed.
    holds: Vec<(Fence, Hold)>,
    places: Vec<KeptPlace>,
    /// The part of the last change, and its fence or rank.
    last: Option<(Part, Fence)>,
    /// Whether the change of [`Body::scalars`] was added already, if the family has one.
    has_scalars: bool,
}

impl Assembly {
    pub fn new(family: Family) -> Assembly {
        Assembly {
            body: Body::new(family),
            holds: Vec::new(),
            places: Vec::new(),
            last: None,
            has_scalars: family == Family::Lock,
        }
    }

    /// Adds the next string. Returns whether more follow.
    ///
    /// # Errors
    /// If [`pack`] would not have written the string, or an earlier one: two grants or places with one token are found
    /// behind the last of them.
    pub fn add(&mut self, packed: &[u8]) -> Result<bool, Unsound> {
        let added = self.add_changes(packed);
        if added.is_err() {
            // Report what comes first.
            self.end_grants()?;
            self.end_places()?;
        }
        added
    }

    fn add_changes(&mut self, packed: &[u8]) -> Result<bool, Unsound> {
        let mut changes = wire::open(packed)?;
        if changes.family != self.body.family() {
            return Err(Unsound::Family);
        }
        while let Some(change) = changes.next_view() {
            match change? {
                ChangeView::Grant(grant) => {
                    self.go_on(Some(Part::Holds), grant.fence, "GRANT")?;
                    self.holds.push((grant.fence, Hold::new(grant)));
                }
                ChangeView::Other(change) => self.add_change(change)?,
            }
        }
        Ok(changes.more)
    }

    fn add_change(&mut self, change: Change) -> Result<(), Unsound> {
        self.end_grants()?;
        let verb = change.verb();
        let number = change.number().unwrap_or_default();
        self.go_on(Part::of(&change), number, verb)?;
        let misfit = |misfit| Unsound::Misfit { verb, misfit };
        match change {
            Change::Place(place) => self.places.push(place),
            change => drop(self.body.apply(&change).map_err(misfit)?),
        }
        Ok(())
    }

    fn end_grants(&mut self) -> Result<(), Unsound> {
        let verb = "GRANT";
        let loaded = self.body.load(take(&mut self.holds));
        loaded.map_err(|misfit| Unsound::Misfit { verb, misfit })
    }

    fn end_places(&self) -> Result<(), Unsound> {
        let mut tokens: Vec<&Token> = self.places.iter().map(|place| &place.token).collect();
        tokens.sort();
        let (verb, misfit) = ("PLACE", Misfit::PlaceTaken);
        match tokens.windows(2).any(|pair| pair[0] == pair[1]) {
            true => Err(Unsound::Misfit { verb, misfit }),
            false => Ok(()),
        }
    }

    /// Notes that a change of this part, with this fence or rank, comes next.
    ///
    /// # Errors
    /// If it may not: the parts follow each other, and within a part fences and ranks rise.
    fn go_on(
        &mut self,
        part: Option<Part>,
        number: Fence,
        verb: &'static str,
    ) -> Result<(), Unsound> {
        let misplaced = Unsound::Misplaced { verb };
        let part = part.ok_or(misplaced)?;
        let scalars = Part::with_scalars(self.body.family());
        let order = Some((part, number));
        let is_behind = order > std::mem::replace(&mut self.last, order);
        self.has_scalars |= part == scalars;
        match is_behind && (part <= scalars || self.has_scalars) {
            true => Ok(()),
            false => Err(misplaced),
        }
    }

    /// Returns the state. Call it when the last string has been added.
    ///
    /// # Errors
    /// If something is missing.
    pub fn finish(mut self) -> Result<Loaded, Unsound> {
        self.end_grants()?;
        self.end_places()?;
        if !self.has_scalars {
            return Err(Unsound::Incomplete);
        }
        let Assembly { body, places, .. } = self;
        Ok(Loaded { body, places })
    }
}

#[cfg(test)]
mod tests;
