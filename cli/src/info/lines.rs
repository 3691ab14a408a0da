//! What the INFO of a key tells, for people.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value as Json;

use super::fields::{Info, rows, text};
use crate::duration::short_ms;
use crate::paint::Tone;
use crate::text::{Side, Table, printable, quoted};

/// Returns the key's type, place and state, its fields, and a table of each list.
pub fn lines(key: &[u8], info: &Info) -> Vec<(Tone, String)> {
    let word = |name: &str| printable(text(info, name).unwrap_or("?").as_bytes());
    let [family, server, state] = ["type", "server", "state"].map(word);
    let mut lines = vec![(
        Tone::Heading,
        format!("{family} {} of {server}: {state}", quoted(key)),
    )];
    for (name, value) in info {
        let is_told = matches!(
            name.as_str(),
            "server" | "db" | "key" | "key_hex" | "type" | "state"
        );
        let says_nothing =
            value.is_null() || value.is_array() || name.ends_with("_ms") && *value == 0;
        if !is_told && !says_nothing {
            lines.push((
                Tone::Plain,
                format!("  {}  {}", words(name), shown(name, value)),
            ));
        }
    }
    for name in info.keys() {
        let rows: Vec<&Info> = rows(info, name).collect();
        if !rows.is_empty() {
            lines.push((Tone::Plain, String::new()));
            lines.push((Tone::Plain, format!("{}:", words(name))));
            lines.extend(table(&rows).lines());
        }
    }
    lines
}

/// Returns a table with a column for each field that any row has.
fn table(rows: &[&Info]) -> Table {
    let mut names: Vec<&String> = Vec::new();
    for name in rows.iter().flat_map(|row| row.keys()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let side = |name: &&String| {
        let is_number = |row: &&Info| row.get(*name).is_some_and(Json::is_number);
        let is_number = rows.iter().any(is_number);
        if is_number { Side::Right } else { Side::Left }
    };
    let headings: Vec<(String, Side)> = names
        .iter()
        .map(|name| (words(name).to_uppercase(), side(name)))
        .collect();
    let mut table = Table::new(&headings);
    for row in rows {
        let value = |name: &&String| {
            row.get(*name)
                .map_or("-".into(), |value| shown(name, value))
        };
        table.row(Tone::Plain, names.iter().map(value).collect());
    }
    table
}

/// Returns the name of a field for people, to whom a time tells its unit itself.
fn words(name: &str) -> String {
    let name = name.trim_end_matches("_unix_ms").trim_end_matches("_ms");
    name.replace('_', " ")
}

fn shown(name: &str, value: &Json) -> String {
    match value {
        Json::Number(number) if name.ends_with("_unix_ms") => {
            let moment = UNIX_EPOCH + Duration::from_millis(number.as_u64().unwrap_or(0));
            humantime::format_rfc3339_seconds(moment).to_string()
        }
        Json::Number(number) if name.ends_with("_ms") => short_ms(number.as_u64().unwrap_or(0)),
        Json::String(text) => printable(text.as_bytes()),
        Json::Null => "-".into(),
        other => other.to_string(),
    }
}
