//! The ways in which a hold ends.

/// How a hold ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// Its token gave it back.
    Released,
    /// Its token declared the member's job done.
    Done,
    /// Its lease ran out.
    Lapsed,
    /// An operator took it.
    Revoked,
    /// It was ephemeral and its connection closed.
    Disconnected,
    /// It was granted to a connection that had closed before the reply was written.
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

    #[must_use]
    pub fn word(self) -> &'static str {
        End::ALL
            .iter()
            .find(|(end, _)| *end == self)
            .map_or("", |(_, word)| word)
    }
}
