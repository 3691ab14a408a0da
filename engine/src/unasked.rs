//! The ends of holds that nobody with the token asked for: what an operator looks for when a job ran twice.
//!
//! Two logs have them: the server's own, which has a line for some, and DSYNC.LOG, which has a row for all.

use crate::change::End;
use crate::hold::Hold;
use crate::state::State;
use crate::types::{Db, Family, Fence, UnixMs};

/// One such end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnaskedEnd {
    pub how: End,
    pub fence: Fence,
    pub owner: Option<Box<[u8]>>,
    pub is_renewed: bool,
    /// When the server that decided ended the hold.
    pub at: UnixMs,
    pub held_ms: u64,
    /// For how long the lease had run out. `None` unless the hold ended for that reason.
    pub late_ms: Option<u64>,
}

impl UnaskedEnd {
    /// `late_ms` is for how long the lease has run out, `None` if it still runs.
    pub fn of(hold: &Hold, how: End, at: UnixMs, late_ms: Option<u64>) -> UnaskedEnd {
        let late_ms = match how {
            // On a server that goes by the written deadline, a clock that was set back may say that it still runs.
            End::Lapsed => late_ms.or(Some(0)),
            // A grant that nobody was told of ends as undelivered also when its lease runs out.
            End::Undelivered => late_ms,
            _ => None,
        };
        UnaskedEnd {
            how,
            fence: hold.fence(),
            owner: hold.owner().map(Into::into),
            is_renewed: hold.is_renewed(),
            at,
            held_ms: at.0.saturating_sub(hold.granted().0),
            late_ms,
        }
    }
}

/// A key that was removed although it had holds: by DEL, SET, eviction, and in all other ways but a flush.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removal {
    pub db: Db,
    pub name: Box<[u8]>,
    pub family: Family,
    pub holds: usize,
    /// The oldest hold: its fence, its owner, and when it was granted.
    pub fence: Fence,
    pub owner: Option<Box<[u8]>>,
    pub granted: UnixMs,
}

impl Removal {
    /// Returns the removal of this state from a key in `db`; `None` if it had no holds.
    pub(crate) fn of(db: Db, state: &State) -> Option<Removal> {
        let holds = state.body.holds();
        let oldest = holds.first()?;
        Some(Removal {
            db,
            name: state.address.name().into(),
            family: state.body.family(),
            holds: holds.len(),
            fence: oldest.fence(),
            owner: oldest.owner().map(Into::into),
            granted: oldest.granted(),
        })
    }
}
