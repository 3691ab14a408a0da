//! The claim of a hold in one byte.

use crate::types::Claim;

/// The claim of a hold, without the number of permits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Exclusive,
    Shared,
    OnePermit,
    Permits,
    Indexed,
    Member,
    Run,
}

impl Kind {
    pub fn has_number(self) -> bool {
        matches!(self, Kind::Permits | Kind::Indexed)
    }

    pub fn of(claim: Claim) -> Kind {
        match claim {
            Claim::Exclusive => Kind::Exclusive,
            Claim::Shared => Kind::Shared,
            Claim::Permits(1) => Kind::OnePermit,
            Claim::Permits(_) => Kind::Permits,
            Claim::Indexed => Kind::Indexed,
            Claim::Member => Kind::Member,
            Claim::Run => Kind::Run,
        }
    }
}
