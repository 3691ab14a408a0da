//! The bounds of options. What no server takes is refused before anything is sent.

use std::fmt::Debug;
use std::time::Duration;

use crate::error::{Error, Result};

/// The times from the first to the last are allowed; the words say so.
pub(crate) type Times = (Duration, Duration, &'static str);

const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);

/// Of `min_hold`, too. The server's `dsync.max-lease-ms` can be lower, never higher.
pub(crate) const LEASE: Times = (MS, DAY.saturating_mul(30), "1 ms to 30 days");
pub(crate) const KEEP: Times = (MS, DAY.saturating_mul(3_650), "1 ms to 3650 days");
pub(crate) const RETRY_DELAY: Times = (Duration::ZERO, LEASE.1, "0 to 30 days");

pub(crate) fn key(key: Option<&str>) -> Result<()> {
    let is_in = key != Some("");
    check("the length of the key", &0, is_in, "1 byte or more")
}

pub(crate) fn time(
    option: &'static str,
    value: Duration,
    (first, last, bound): Times,
) -> Result<()> {
    check(option, &value, value >= first && value <= last, bound)
}

pub(crate) fn within(value: Duration, lease: Duration, is_wanted: bool) -> Result<()> {
    let what = "given with replicas or disk only";
    check("within", &value, is_wanted, what)?;
    let is_in = value >= MS && value <= lease;
    check("within", &value, is_in, "1 ms to the lease")
}

/// A limit, permits, attempts or jobs.
pub(crate) fn count(option: &'static str, value: u32) -> Result<()> {
    let is_in = (1..=1_000_000).contains(&value);
    check(option, &value, is_in, "1 to 1000000")
}

/// A token or a lane. Their length is told, because a token is a secret.
pub(crate) fn name(option: &'static str, value: &str) -> Result<()> {
    let is_in = (1..=128).contains(&value.len());
    check(option, &value.len(), is_in, "1 to 128 bytes")
}

/// Of several keys that are held together, none comes twice: it would wait for itself.
pub(crate) fn keys<'a>(in_order: impl Iterator<Item = &'a str> + Clone) -> Result<()> {
    let mut pairs = in_order.clone().zip(in_order.skip(1));
    match pairs.find(|(key, next)| key == next) {
        Some((key, _)) => {
            let twice = format_args!("{key:?} twice");
            check("all_of", &twice, false, "of different keys")
        }
        None => Ok(()),
    }
}

/// No server's `dsync.max-result-bytes` is greater; most have less.
pub(crate) fn result(value: Option<&[u8]>) -> Result<()> {
    let length = value.map_or(0, <[u8]>::len);
    let (is_in, bound) = (length <= 16 << 20, "at most 16777216 bytes");
    check("the length of the result", &length, is_in, bound)
}

pub(crate) fn check(
    option: &'static str,
    value: &dyn Debug,
    is_in: bool,
    bound: &'static str,
) -> Result<()> {
    if is_in {
        return Ok(());
    }
    Err(Error::InvalidOption {
        option,
        value: format!("{value:?}"),
        bound,
    })
}
