//! Why no Sentinel tells the primary.

use std::error::Error;
use std::fmt;

use redis::RedisError;

/// What a Sentinel has answered in place of the primary's address.
#[derive(Debug)]
pub(crate) struct Untold {
    pub(crate) sentinel: String,
    pub(crate) error: RedisError,
    /// Whether all Sentinels have refused.
    pub(crate) is_final: bool,
}

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)
    }
}

impl Error for Untold {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}
