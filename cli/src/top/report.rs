//! What two samples say together: rates and wait times. As lines for people, and as JSON for programs.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::sample::{Counters, FAMILY_NAMES, Key, LONGEST_WAIT, Sample};
use crate::duration::{short, short_ms};
use crate::family::FAMILIES;
use crate::paint::Tone;
use crate::text::{counted, printable};

/// The rates that are shown: the name in JSON, and that of the counters.
const RATES: [(&str, &str); 8] = [
    ("granted_at_once", "granted_at_once"),
    ("granted_after_wait", "granted_after_wait"),
    ("released", "released"),
    ("lapsed", "lapsed"),
    ("lapsed_unrenewed", "lapsed_unrenewed"),
    ("revoked", "revoked"),
    ("wait_timeouts", "wait_timeouts"),
    ("wait_disconnects", "wait_disconnects"),
];

pub struct Report<'a> {
    now: &'a Sample,
    growth: Counters,
    elapsed: Duration,
}

impl Report<'_> {
    pub fn of<'a>(before: &Sample, now: &'a Sample) -> Report<'a> {
        Report {
            now,
            growth: now.counters().since(before.counters()),
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
        let counters = self.now.counters();
        let by_family = |what: &str| {
            let mut object = serde_json::Map::new();
            object.insert(
                "total".into(),
                json!(counters.get(&format!("dsync_{what}"))),
            );
            for (family, name) in FAMILY_NAMES.iter().zip(FAMILIES.map(|family| family.0)) {
                object.insert(
                    name.into(),
                    json!(counters.get(&format!("dsync_{family}_{what}"))),
                );
            }
            Json::Object(object)
        };
        let rates: serde_json::Map<String, Json> = RATES
            .iter()
            .map(|(name, counter)| ((*name).to_owned(), json!(rounded(self.rate(counter)))))
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
        let counters = self.now.counters();
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
        let kinds: Vec<String> = FAMILY_NAMES
            .iter()
            .zip(FAMILIES)
            .map(|(family, (name, _))| {
                format!("{name} {}", counters.get(&format!("dsync_{family}_holds")))
            })
            .collect();
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
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let holders: Vec<Json> = key
        .first_holders
        .iter()
        .map(|holder| {
            let mut row = json!({
                "owner": holder.owner.as_ref().map(text),
                "client": holder.client,
                "fence": holder.fence,
                "held_ms": holder.held_ms,
                "lease_left_ms": holder.lease_left_ms,
            });
            if let Some(ms) = holder.resting_ms {
                row["resting_ms"] = ms.into();
            }
            row
        })
        .collect();
    let waiters: Vec<Json> = key
        .first_waiters
        .iter()
        .map(|waiter| {
            json!({
                "owner": waiter.owner.as_ref().map(text),
                "client": waiter.client,
                "age_ms": waiter.age_ms,
            })
        })
        .collect();
    json!({
        "server": key.server,
        "db": key.db,
        "key": text(&key.key),
        "type": key.family,
        "state": (!key.state.is_empty()).then_some(&key.state),
        "limit": key.limit,
        "paused_ms": key.paused_ms,
        "waiters": key.waiters,
        "longest_wait_ms": key.longest_wait_ms,
        "holders": key.holders,
        "first_holders": holders,
        "first_waiters": waiters,
    })
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
