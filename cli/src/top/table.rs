//! The contended keys as a table.

use super::sample::Key;
use crate::duration::short_ms;
use crate::paint::Tone;
use crate::text::{Side, Table, or_dash, printable};

/// Returns the table of these keys; it names servers if there are several.
pub fn table(keys: &[&Key], has_servers: bool) -> Table {
    let has_databases = keys.iter().any(|key| key.db != 0);
    let mut headings = vec![("KEY", Side::Left)];
    headings.extend(has_databases.then_some(("DB", Side::Right)));
    headings.extend([
        ("TYPE", Side::Left),
        ("STATE", Side::Left),
        ("WAITERS", Side::Right),
    ]);
    headings.extend([
        ("LONGEST", Side::Right),
        ("HOLDER", Side::Left),
        ("FENCE", Side::Right),
    ]);
    headings.extend([
        ("HELD", Side::Right),
        ("LEASE LEFT", Side::Right),
        ("NEXT", Side::Left),
    ]);
    headings.extend(has_servers.then_some(("SERVER", Side::Left)));
    let mut table = Table::new(&headings);
    for key in keys {
        let mut row = vec![printable(&key.key)];
        row.extend(has_databases.then(|| key.db.to_string()));
        row.extend([
            key.family.clone(),
            state(key),
            key.waiters.to_string(),
            short_ms(key.longest_wait_ms),
        ]);
        match key.first_holders.first() {
            None => row.extend(["-", "-", "-", "-"].map(String::from)),
            Some(holder) => {
                let others = key.holders.saturating_sub(1);
                let owner = or_dash(holder.owner.as_deref());
                row.push(if others > 0 {
                    format!("{owner} +{others}")
                } else {
                    owner
                });
                row.push(holder.fence.to_string());
                row.push(short_ms(holder.held_ms));
                row.push(match holder.resting_ms {
                    None => short_ms(holder.lease_left_ms),
                    Some(ms) => format!("rests {}", short_ms(ms)),
                });
            }
        }
        row.push(
            key.first_waiters
                .first()
                .map_or("-".into(), |waiter| or_dash(waiter.owner.as_deref())),
        );
        row.extend(has_servers.then(|| key.server.clone()));
        let tone = match key.state.as_str() {
            "paused" => Tone::Warning,
            _ => Tone::Plain,
        };
        table.row(tone, row);
    }
    table
}

fn state(key: &Key) -> String {
    match (key.state.as_str(), key.limit) {
        ("", _) => "-".into(),
        ("paused", _) if key.paused_ms > 0 => format!("paused {}", short_ms(key.paused_ms)),
        (state, Some(limit)) => format!("{state} {}/{limit}", key.holders),
        (state, None) => state.to_owned(),
    }
}
