//! The contended keys as a table.

use super::sample::Key;
use crate::duration::short_ms;
use crate::info::{Info, number, rows, text};
use crate::paint::Tone;
use crate::text::{Side, Table, name, or_dash};

/// Returns the table of these keys; it names servers if there are several.
pub fn table(keys: &[&Key], has_servers: bool) -> Table {
    let has_databases = keys.iter().any(|key| key.db != 0);
    let mut headings = vec![("KEY", Side::Left)];
    headings.extend(has_databases.then_some(("DB", Side::Right)));
    headings.extend([
        ("TYPE", Side::Left),
        ("STATE", Side::Left),
        ("WAITERS", Side::Right),
        ("LONGEST", Side::Right),
        ("HOLDER", Side::Left),
        ("FENCE", Side::Right),
        ("HELD", Side::Right),
        ("LEASE LEFT", Side::Right),
        ("NEXT", Side::Left),
    ]);
    headings.extend(has_servers.then_some(("SERVER", Side::Left)));
    let mut table = Table::new(&headings);
    for key in keys {
        let mut row = vec![name(&key.key)];
        row.extend(has_databases.then(|| key.db.to_string()));
        row.extend([
            key.family.clone(),
            state(key),
            key.waiters.to_string(),
            short_ms(key.longest_wait_ms),
        ]);
        match key.holder() {
            None => row.extend(["-", "-", "-", "-"].map(String::from)),
            Some(holder) => {
                let of_holder = |name| number(holder, name).unwrap_or_default();
                let others = holders(key).saturating_sub(1);
                row.push(if others > 0 {
                    format!("{} +{others}", owner(holder))
                } else {
                    owner(holder)
                });
                row.push(of_holder("fence").to_string());
                row.push(short_ms(of_holder("held_ms")));
                row.push(match number(holder, "resting_ms") {
                    None => short_ms(of_holder("lease_left_ms")),
                    Some(ms) => format!("rests {}", short_ms(ms)),
                });
            }
        }
        let next = rows(&key.info, "first_waiters").next();
        row.push(next.map_or("-".into(), owner));
        row.extend(has_servers.then(|| key.server.clone()));
        let tone = match text(&key.info, "state") {
            Some("paused") => Tone::Warning,
            _ => Tone::Plain,
        };
        table.row(tone, row);
    }
    table
}

fn holders(key: &Key) -> u64 {
    number(&key.info, "holders").unwrap_or_default()
}

/// Returns the owner of a holder or of a waiter.
fn owner(row: &Info) -> String {
    or_dash(text(row, "owner").map(str::as_bytes))
}

fn state(key: &Key) -> String {
    let paused_ms = number(&key.info, "paused_ms").unwrap_or_default();
    match (text(&key.info, "state"), number(&key.info, "limit")) {
        (None, _) => "-".into(),
        (Some("paused"), _) if paused_ms > 0 => format!("paused {}", short_ms(paused_ms)),
        (Some(state), Some(limit)) => format!("{state} {}/{limit}", holders(key)),
        (Some(state), None) => state.to_owned(),
    }
}
