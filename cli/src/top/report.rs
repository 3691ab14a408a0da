//! What two samples say together: rates and wait times. As lines for people, and as JSON for programs.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::sample::{Counters, Key, LONGEST_WAIT, Sample};
use crate::duration::{short, short_ms};
use crate::family::Family;
use crate::info::{Info, rows};
use crate::paint::Tone;
use crate::text::{counted, printable, with_key};

/// The counters whose rates are shown.
const RATES: [&str; 8] = [
    "granted_at_once",
    "granted_after_wait",
    "released",
    "lapsed",
    "lapsed_unrenewed",
    "revoked",
    "wait_timeouts",
    "wait_disconnects",
];

/// What is told of a holder and of a waiter of a key.
const OF_HOLDER: [&str; 6] = [
    "owner",
    "client",
    "fence",
    "held_ms",
    "lease_left_ms",
    "resting_ms",
];
const OF_WAITER: [&str; 3] = ["owner", "client", "age_ms"];

pub struct Report<'a> {
    now: &'a Sample,
    growth: Counters,
    elapsed: Duration,
}

impl Report<'_> {
    pub fn of<'a>(before: &Sample, now: &'a Sample) -> Report<'a> {
        Report {
            now,
            growth: now.counters.since(&before.counters),
            elapsed: now
                .taken
                .saturating_duration_since(before.taken)
                .max(Duration::from_millis(1)),
        }
    }

    fn rate(&self, name: &str) -> f64 {
        self.growth.of_families(name) as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the mean of the waits that ended in the interval, `None` if none did.
    fn mean_wait_ms(&self) -> Option<u64> {
        self.growth
            .get("dsync_wait_total_ms")
            .checked_div(self.growth.get("dsync_wait_count"))
    }

    /// Returns the bound within which so many percent of the waits ended that ended in the interval.
    fn percentile(&self, percent: u64) -> Percentile {
        let count = self.growth.get("dsync_wait_count");
        if count == 0 {
            return Percentile::None;
        }
        let wanted = (count * percent).div_ceil(100);
        let buckets = self.growth.wait_buckets();
        match buckets.iter().find(|bucket| bucket.1 >= wanted) {
            Some(bucket) => Percentile::Within(bucket.0),
            None => Percentile::Beyond(buckets.last().map_or(0, |bucket| bucket.0)),
        }
    }

    pub fn json(&self) -> Json {
        let counters = &self.now.counters;
        let by_family = |what: &str| {
            let mut object = serde_json::Map::new();
            object.insert(
                "total".into(),
                json!(counters.get(&format!("dsync_{what}"))),
            );
            for family in Family::ALL {
                let number = counters.get(&family.counter(what));
                object.insert(family.name().into(), json!(number));
            }
            Json::Object(object)
        };
        let rates: serde_json::Map<String, Json> = RATES
            .iter()
            .map(|name| ((*name).to_owned(), json!(rounded(self.rate(name)))))
            .collect();
        let keys: Vec<Json> = self.now.keys.iter().map(key_json).collect();
        json!({
            "time": humantime::format_rfc3339_millis(self.now.time).to_string(),
            "interval_ms": self.elapsed.as_millis() as u64,
            "servers": self.now.servers,
            "holds": by_family("holds"),
            "waiters": by_family("waiters"),
            "longest_wait_ms": counters.get(LONGEST_WAIT),
            "per_second": rates,
            "waits": {
                "ended_in_a_grant": self.growth.get("dsync_wait_count"),
                "mean_ms": self.mean_wait_ms(),
                "half_within_ms": self.percentile(50).bound(),
                "99_percent_within_ms": self.percentile(99).bound(),
            },
            "unapplied_changes": counters.get("dsync_unapplied_changes"),
            "contended": keys,
        })
    }

    /// Returns the lines about all keys together.
    pub fn lines(&self) -> Vec<(Tone, String)> {
        let counters = &self.now.counters;
        let time = humantime::format_rfc3339_seconds(self.now.time);
        let servers = match self.now.servers.as_slice() {
            [one] => printable(one.as_bytes()),
            several => format!("{} primaries", several.len()),
        };
        let elapsed = short(self.elapsed);
        let mut lines = vec![(
            Tone::Heading,
            format!("dsync top   {servers}   {time}   over {elapsed}"),
        )];
        let mut tell = |line| lines.push((Tone::Plain, line));
        let kinds = Family::ALL.map(|family| {
            let holds = counters.get(&family.counter("holds"));
            format!("{} {holds}", family.name())
        });
        tell(format!(
            "holds: {} ({})   waiters: {}   longest wait: {}",
            counters.get("dsync_holds"),
            kinds.join(", "),
            counters.get("dsync_waiters"),
            short_ms(counters.get(LONGEST_WAIT)),
        ));
        let rate = |name| per_second(self.rate(name));
        tell(format!(
            "per second: granted {} at once, {} after waiting; released {}, lapsed {} ({} never renewed), \
             revoked {}",
            rate("granted_at_once"),
            rate("granted_after_wait"),
            rate("released"),
            rate("lapsed"),
            rate("lapsed_unrenewed"),
            rate("revoked"),
        ));
        tell(match self.mean_wait_ms() {
            None => "waits: none ended in a grant".into(),
            Some(mean) => format!(
                "waits: {} ended in a grant, {} on average, half {}, 99 % {}",
                self.growth.get("dsync_wait_count"),
                short_ms(mean),
                self.percentile(50).text(),
                self.percentile(99).text(),
            ),
        });
        let unapplied = counters.get("dsync_unapplied_changes");
        if unapplied > 0 {
            let changes = counted(unapplied, "change");
            let told = format!("{changes} could not be applied: look into the server's log");
            lines.push((Tone::Bad, told));
        }
        lines
    }
}

/// Within which time a part of the waits ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Percentile {
    /// No wait ended.
    None,
    Within(u64),
    /// Longer than the longest bound that the server counts.
    Beyond(u64),
}

impl Percentile {
    fn bound(self) -> Option<u64> {
        match self {
            Percentile::Within(ms) => Some(ms),
            Percentile::None | Percentile::Beyond(_) => None,
        }
    }

    fn text(self) -> String {
        match self {
            Percentile::None => "-".into(),
            Percentile::Within(ms) => format!("within {}", short_ms(ms)),
            Percentile::Beyond(ms) => format!("beyond {}", short_ms(ms)),
        }
    }
}

fn key_json(key: &Key) -> Json {
    let of_info = |name: &str| key.info.get(name).cloned();
    let first = |list, names: &[&str]| -> Vec<Json> {
        let chosen = |row: &Info| {
            let fields = names.iter().filter_map(|name| row.get_key_value(*name));
            let fields = fields.map(|(name, value)| (name.clone(), value.clone()));
            Json::Object(fields.collect())
        };
        rows(&key.info, list).map(chosen).collect()
    };
    let fields = json!({
        "server": key.server,
        "db": key.db,
        "key": null,
        "type": key.family,
        "state": of_info("state"),
        "limit": of_info("limit"),
        "paused_ms": of_info("paused_ms").unwrap_or_else(|| 0.into()),
        "waiters": key.waiters,
        "longest_wait_ms": key.longest_wait_ms,
        "holders": of_info("holders").unwrap_or_else(|| 0.into()),
        "first_holders": first("first_holders", &OF_HOLDER),
        "first_waiters": first("first_waiters", &OF_WAITER),
    });
    with_key(fields, Some(&key.key))
}

fn rounded(rate: f64) -> f64 {
    (rate * 100.0).round() / 100.0
}

fn per_second(rate: f64) -> String {
    if rate < 10.0 && rate > 0.0 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.0}")
    }
}
