//! The settings of a client.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) response_timeout: Duration,
    pub(crate) patience: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            response_timeout: Duration::from_secs(3),
            patience: Duration::from_secs(30),
        }
    }
}
