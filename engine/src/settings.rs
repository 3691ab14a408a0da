//! The settings that the engine knows.

/// As the operator or the defaults set them.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a vacant place is kept for its token after the connection closed; 0 keeps none.
    pub rejoin_ms: u64,
    /// How long the tally of a finished round is kept.
    pub group_keep_ms: u64,
    /// How long a group without members is kept after the last change, or after the last request that waited for it.
    pub group_idle_ms: u64,
    /// What a hold has left at least, but never more than its lease, when this server takes over.
    pub takeover_grace_ms: u64,
    /// How long results are kept after DONE, and attempts and reasons after the last change or waiting request.
    pub once_keep_ms: u64,
    pub max_waiters: u64,
    pub max_waiters_per_key: u64,
    /// The longest lease and delay of a request. Who makes requests has checked them; the engine checks payloads.
    pub max_lease_ms: u64,
    /// The longest result and reason, checked in the same way.
    pub max_result_bytes: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            rejoin_ms: 2_000,
            group_keep_ms: 60_000,
            group_idle_ms: 86_400_000,
            takeover_grace_ms: 5_000,
            once_keep_ms: 86_400_000,
            max_waiters: 100_000,
            max_waiters_per_key: 20_000,
            max_lease_ms: 86_400_000,
            max_result_bytes: 65_536,
        }
    }
}
