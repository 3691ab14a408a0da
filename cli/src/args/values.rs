//! Values of options, and their bounds.

use std::time::Duration;

use crate::duration;

pub(super) fn owner(text: &str) -> Result<String, String> {
    match text.len() {
        0..=128 => Ok(text.into()),
        more => Err(format!("must have at most 128 bytes, not {more}")),
    }
}

pub(super) fn lane(text: &str) -> Result<String, String> {
    match text.len() {
        1..=128 => Ok(text.into()),
        other => Err(format!("must have 1 to 128 bytes, not {other}")),
    }
}

pub(super) fn lease(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_secs(1), Duration::from_secs(86_400))
}

pub(super) fn min_hold(text: &str) -> Result<Duration, String> {
    within(
        text,
        Duration::from_millis(1),
        Duration::from_secs(30 * 86_400),
    )
}

pub(super) fn interval(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_millis(100), Duration::from_secs(3600))
}

fn within(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let time = duration::parse(text)?;
    if (least..=most).contains(&time) {
        return Ok(time);
    }
    Err(format!(
        "must be {} to {}",
        duration::short(least),
        duration::short(most)
    ))
}
