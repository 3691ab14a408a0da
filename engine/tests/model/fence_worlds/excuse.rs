//! What the contract does not promise about fences, because no rule gives it or only one that costs more.

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Excuse {
    /// A server started without a file, and later from a file that was older than that.
    FileOlderThanStartWithout,
    /// A server started from a file that it had not written as a primary, and later from older data.
    OlderDataAfterOthers,
    /// A server started from an older file, and later from a newer one that it had then already.
    NewerFileAfterOlder,
    /// A server that starts from files started without one.
    StartWithoutAfterFiles,
    /// Roles changed without a full synchronisation, and a server started from a file older than that: from one that it
    /// wrote as a primary before it was demoted or promoted, or from one without the last leap that it knew of, its own
    /// or that of the primary which it followed.
    FileOlderThanChangeOfRole,
    /// A server took over the data of a primary that had not heard of all the fences that the server knew or had given.
    SyncedWithUnaware,
    /// The old primary started without a file while it was cut off.
    OldStartedWithout,
    /// The old primary started while it was cut off from a file that it did not write as a primary.
    OldStartedFromOther,
    /// A server was promoted that had heard nothing from its primary since that one was promoted or replaced another.
    PromotedUnheard,
    /// The promoted server started without a file.
    PromotedStartedWithout,
}
