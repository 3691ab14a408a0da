//! The ways in which a hold ends.

/// How a hold ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// RELEASE with its token.
    Released,
    /// DONE with the token of a group's member.
    Done,
    /// Its lease ran out.
    Lapsed,
    /// An operator revoked it.
    Revoked,
    /// It was EPHEMERAL, and its connection closed.
    Disconnected,
    /// Its connection had closed before the grant was written to it, or its place was kept and its token was not heard
    /// from in time.
    Undelivered,
}

impl End {
    pub(super) const ALL: [(End, &'static str); 6] = [
        (End::Released, "released"),
        (End::Done, "done"),
        (End::Lapsed, "lapsed"),
        (End::Revoked, "revoked"),
        (End::Disconnected, "disconnected"),
        (End::Undelivered, "undelivered"),
    ];

    /// Whether the hold ended although its client did not ask for that.
    #[must_use]
    pub fn is_unasked(self) -> bool {
        match self {
            End::Released | End::Done => false,
            End::Lapsed | End::Revoked | End::Disconnected | End::Undelivered => true,
        }
    }

    #[must_use]
    pub fn word(self) -> &'static str {
        End::ALL
            .iter()
            .find(|(end, _)| *end == self)
            .map_or("", |(_, word)| word)
    }
}
