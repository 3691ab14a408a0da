//! Durations as people type and read them: `90`, `1.5s`, `500ms`, `1h30m`, `7d`.
//!
//! A number without a unit is in seconds, as for sleep(1), timeout(1) and `flock --wait`.

use std::fmt::Write as _;
use std::time::Duration;

const UNITS: [(&str, f64); 5] = [
    ("ms", 0.001),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86400.0),
];

/// The longest duration that any option takes. It keeps sums of durations far from overflow.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86400);

/// Parses a duration. The error says what a duration looks like.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no duration; write 90, 1.5s, 500ms, 1h30m or 7d");
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, after) = rest.split_at(digits.unwrap_or(rest.len()));
        let letters = after.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, after) = after.split_at(letters.unwrap_or(after.len()));
        let factor = match unit {
            // Only a number that stands alone may lack its unit: `1h30` could mean minutes or seconds.
            "" if rest.len() == text.len() && after.is_empty() => 1.0,
            _ => {
                UNITS
                    .iter()
                    .find(|known| known.0 == unit)
                    .ok_or_else(wrong)?
                    .1
            }
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * factor).map_err(|_| wrong())?;
        sum = sum.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    if text.is_empty() {
        return Err(wrong());
    }
    if sum > LONGEST {
        return Err(format!("'{text}' is more than 100 years"));
    }
    // The server counts in milliseconds; a float's rounding error must not become 59999 ms.
    Ok(Duration::from_millis(
        (sum.as_secs_f64() * 1000.0).round() as u64
    ))
}

/// Parses a duration that is longer than nothing.
pub fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("must be at least 1ms".into()),
        some => Ok(some),
    }
}

/// Returns the duration with its two largest units, rounded down: `412ms`, `6.2s`, `9m51s`, `3d4h`.
pub fn short(time: Duration) -> String {
    let ms = time.as_millis();
    let (days, hours, minutes) = (ms / 86_400_000, ms / 3_600_000 % 24, ms / 60_000 % 60);
    let seconds = ms / 1000 % 60;
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = match ms {
        0..1000 => write!(text, "{ms}ms"),
        1000..10_000 => write!(text, "{}.{}s", seconds, ms / 100 % 10),
        10_000..60_000 => write!(text, "{seconds}s"),
        60_000..3_600_000 => write!(text, "{minutes}m{seconds}s"),
        3_600_000..86_400_000 => write!(text, "{hours}h{minutes}m"),
        _ => write!(text, "{days}d{hours}h"),
    };
    text
}

pub fn short_ms(ms: u64) -> String {
    short(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_every_unit_are_read() {
        let cases = [
            ("90", 90_000),
            ("0", 0),
            ("0.25", 250),
            ("500ms", 500),
            ("1.5s", 1500),
            ("60s", 60_000),
            ("59.999s", 59_999),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("1d1h1m1s1ms", 90_061_001),
        ];
        for (text, ms) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "", "s", "1x", "1h30", "-1s", "1 s", "1e3s", "1..2s", "1s 2s", "inf", "40000d",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse_positive("0").is_err());
    }

    #[test]
    fn durations_are_shown_with_their_two_largest_units() {
        let cases = [
            (0, "0ms"),
            (999, "999ms"),
            (1000, "1.0s"),
            (9_999, "9.9s"),
            (10_000, "10s"),
            (591_127, "9m51s"),
            (3_600_000, "1h0m"),
            (86_400_000, "1d0h"),
            (273_600_000, "3d4h"),
        ];
        for (ms, text) in cases {
            assert_eq!(short_ms(ms), text);
        }
    }
}
