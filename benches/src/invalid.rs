//! Why a run is invalid: a wrong reply, a server that died, a figure that cannot be read.
//!
//! A missed target is no error: it is a row of the table.

use std::fmt::{Display, Formatter};

#[derive(Debug)]
pub struct Invalid(String);

pub type Result<T> = std::result::Result<T, Invalid>;

impl Invalid {
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// The same reason, with what was being done.
    pub fn during(self, what: impl Display) -> Self {
        Self(format!("{what}: {}", self.0))
    }
}

impl Display for Invalid {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Says what failed, for errors of the system.
pub trait Context<T> {
    fn context(self, what: impl Display) -> Result<T>;
}

impl<T, E: Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl Display) -> Result<T> {
        self.map_err(|error| Invalid(format!("{what}: {error}")))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, what: impl Display) -> Result<T> {
        self.ok_or_else(|| Invalid(what.to_string()))
    }
}
