//! A state as the packed changes that rebuild it. RDB files, DUMP payloads, rewritten AOFs and digests hold these.
//!
//! A state is one packed string, or several if it has many holds; each but the last says that more follow. The strings
//! are those of [`crate::wire`]. [`Body::as_changes`] makes the changes. [`Body::load`] adds all holds at once, with the
//! same result and the same refusals as [`Body::apply`]. This file checks what only a saved state must fulfil: which
//! changes it may have, and in which order.
//!
//! The kept places of a name are saved with its value. Connections, the lease clock and the rest of the queue are not
//! saved; see [`crate::change`] for the reason.

use std::collections::BTreeSet;
use std::mem::take;

use thiserror::Error;

use crate::change::{Change, KeptPlace, Misfit};
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
    let mut buffer = Vec::new();
    let places = places.into_iter().map(Change::Place);
    let mut changes = body.as_changes().chain(places).peekable();
    loop {
        let mut writer = wire::begin(&mut buffer, body.family(), changes.peek());
        let version = changes.peek().map(Change::version);
        for _ in 0..PER_STRING {
            match changes.next_if(|change| Some(change.version()) == version) {
                Some(change) => writer.change(&change),
                None => break,
            }
        }
        let more = changes.peek().is_some();
        wire::end(&mut buffer, more);
        each(&buffer);
        if !more {
            return;
        }
    }
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
    holds: Vec<Hold>,
    places: Vec<KeptPlace>,
    tokens: BTreeSet<Token>,
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
            tokens: BTreeSet::new(),
            last: None,
            has_scalars: family == Family::Lock,
        }
    }

    /// Adds the next string. Returns whether more follow.
    ///
    /// # Errors
    /// If [`pack`] would not have written the string, or an earlier one: two grants with one token are found behind the
    /// last grant.
    pub fn add(&mut self, packed: &[u8]) -> Result<bool, Unsound> {
        let added = self.add_changes(packed);
        if added.is_err() {
            // Report what comes first.
            self.end_grants()?;
        }
        added
    }

    fn add_changes(&mut self, packed: &[u8]) -> Result<bool, Unsound> {
        let changes = wire::open(packed)?;
        if changes.family != self.body.family() {
            return Err(Unsound::Family);
        }
        let more = changes.more;
        for change in changes {
            let change = change?;
            let verb = change.verb();
            let misfit = |misfit| Unsound::Misfit { verb, misfit };
            if !matches!(change, Change::Grant(_)) {
                self.end_grants()?;
            }
            if !self.is_next(&change) {
                return Err(Unsound::Misplaced { verb });
            }
            match change {
                Change::Grant(grant) => self.holds.push(Hold::new(&grant)),
                Change::Place(place) => {
                    if !self.tokens.insert(place.token.clone()) {
                        return Err(misfit(Misfit::PlaceTaken));
                    }
                    self.places.push(place);
                }
                change => drop(self.body.apply(&change).map_err(misfit)?),
            }
        }
        Ok(more)
    }

    fn end_grants(&mut self) -> Result<(), Unsound> {
        let verb = "GRANT";
        let loaded = self.body.load(take(&mut self.holds));
        loaded.map_err(|misfit| Unsound::Misfit { verb, misfit })
    }

    /// Whether the change may come next: the parts follow each other, and within a part fences and ranks rise.
    fn is_next(&mut self, change: &Change) -> bool {
        let Some(part) = Part::of(change) else {
            return false;
        };
        let scalars = Part::with_scalars(self.body.family());
        let order = Some((part, change.number().unwrap_or_default()));
        let is_behind = order > std::mem::replace(&mut self.last, order);
        self.has_scalars |= part == scalars;
        is_behind && (part <= scalars || self.has_scalars)
    }

    /// Returns the state. Call it when the last string has been added.
    ///
    /// # Errors
    /// If something is missing.
    pub fn finish(mut self) -> Result<Loaded, Unsound> {
        self.end_grants()?;
        if !self.has_scalars {
            return Err(Unsound::Incomplete);
        }
        let Assembly { body, places, .. } = self;
        Ok(Loaded { body, places })
    }
}

#[cfg(test)]
mod tests;
