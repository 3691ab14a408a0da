//! What has become of work that is done once.

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::error::{Error, Result};
use crate::hold::Run;

/// What has become of work that is done once.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Nobody has done it: it was not begun, is under way, or is to be tried again.
    NotYet,
    /// It is done.
    Done {
        /// The result, `None` when the worker gave none.
        result: Option<Vec<u8>>,
        /// Which attempt succeeded.
        attempt: u64,
    },
    /// It was given up after as many attempts as [`Once::max_attempts`](crate::Once::max_attempts) allows.
    Failed {
        /// The reason of the last failure, as the worker gave it.
        reason: String,
        /// How many attempts were made.
        attempts: u64,
    },
}

/// What beginning work has come to.
#[derive(Debug)]
pub enum Begun<R = Run> {
    /// This process is to do the work.
    Run(R),
    /// The work is done already.
    Done {
        /// The result, `None` when the worker gave none.
        result: Option<Vec<u8>>,
        /// Which attempt succeeded.
        attempt: u64,
    },
}

/// How a result is stored.
pub(crate) trait Form<T> {
    fn store(&self, key: &str, result: &T) -> Result<Vec<u8>>;
    fn read(&self, key: &str, stored: Option<Vec<u8>>) -> Result<T>;
}

pub(crate) struct Json;

pub(crate) struct Bytes;

impl<T: Serialize + DeserializeOwned> Form<T> for Json {
    fn store(&self, key: &str, result: &T) -> Result<Vec<u8>> {
        serde_json::to_vec(result).map_err(|cause| Error::UnusableResult {
            key: key.to_owned(),
            text: None,
            cause,
        })
    }

    /// Work that was done without a result has null. What is no JSON, another program has stored as text.
    fn read(&self, key: &str, stored: Option<Vec<u8>>) -> Result<T> {
        let stored = stored.unwrap_or_else(|| b"null".to_vec());
        serde_json::from_slice(&stored).or_else(|cause| {
            let text = String::from_utf8_lossy(&stored).into_owned();
            let is_json = serde_json::from_slice::<IgnoredAny>(&stored).is_ok();
            let of_text = || serde_json::from_value(text.as_str().into()).ok();
            let of_text = if is_json { None } else { of_text() };
            of_text.ok_or_else(|| Error::UnusableResult {
                key: key.to_owned(),
                text: Some(text),
                cause,
            })
        })
    }
}

impl Form<Vec<u8>> for Bytes {
    fn store(&self, _: &str, result: &Vec<u8>) -> Result<Vec<u8>> {
        Ok(result.clone())
    }

    fn read(&self, _: &str, stored: Option<Vec<u8>>) -> Result<Vec<u8>> {
        Ok(stored.unwrap_or_default())
    }
}
