//! `dsync log`: the last ends that no holder asked for.

use std::io::Write;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use crate::args;
use crate::connect::Node;
use crate::duration::short_ms;
use crate::failure::Result;
use crate::servers::Servers;
use crate::text::printable;

/// How long `--follow` waits between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// The most rows that the server lists.
const MOST: u32 = 5000;

/// The number of rows that `--follow` asks for first; it asks for more when all of them are new.
const FEW: u32 = 100;

type Reply = (
    u64,
    u64,
    String,
    Option<i64>,
    Option<Vec<u8>>,
    Option<String>,
    Option<u64>,
    Option<Vec<u8>>,
    Option<u64>,
    Option<u64>,
);

struct Row {
    id: u64,
    unix_ms: u64,
    what: String,
    db: Option<i64>,
    key: Option<Vec<u8>>,
    family: Option<String>,
    fence: Option<u64>,
    owner: Option<Vec<u8>>,
    held_ms: Option<u64>,
    late_ms: Option<u64>,
}

impl Row {
    fn of((id, unix_ms, what, db, key, family, fence, owner, held_ms, late_ms): Reply) -> Row {
        Row {
            id,
            unix_ms,
            what,
            db,
            key,
            family,
            fence,
            owner,
            held_ms,
            late_ms,
        }
    }

    /// Returns the moment in UTC, so that the logs of several machines compare.
    fn time(&self) -> String {
        let moment = UNIX_EPOCH + Duration::from_millis(self.unix_ms);
        humantime::format_rfc3339_millis(moment).to_string()
    }

    fn json(&self, server: &str) -> Json {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        json!({
            "server": server,
            "id": self.id,
            "time": self.time(),
            "unix_ms": self.unix_ms,
            "what": self.what,
            "db": self.db,
            "key": self.key.as_ref().map(text),
            "type": self.family,
            "fence": self.fence,
            "owner": self.owner.as_ref().map(text),
            "held_ms": self.held_ms,
            "late_ms": self.late_ms,
        })
    }

    /// Returns a line of names and values; what does not apply is left out. The server is named if there are several.
    fn line(&self, node: Option<&str>) -> String {
        let mut line = format!("{} {}", self.time(), self.what);
        let mut field = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                line.push_str(&format!(" {name}={value}"));
            }
        };
        field("key", self.key.as_deref().map(quoted));
        field("db", self.db.filter(|db| *db != 0).map(|db| db.to_string()));
        field("type", self.family.clone());
        field("owner", self.owner.as_deref().map(quoted));
        field("fence", self.fence.map(|fence| fence.to_string()));
        field("held", self.held_ms.map(short_ms));
        field("late", self.late_ms.map(short_ms));
        field("server", node.map(str::to_owned));
        line
    }
}

/// Returns text that one word of a line can be: quoted where it would look like several.
fn quoted(bytes: &[u8]) -> String {
    let text = printable(bytes);
    let is_plain = !text.is_empty() && !text.contains([' ', '"', '=']);
    if is_plain { text } else { format!("{text:?}") }
}

pub fn run(servers: &Servers, options: &args::Log, out: &mut impl Write) -> Result<()> {
    let mut nodes = servers.primaries()?;
    let names: Vec<String> = nodes.iter().map(|node| node.name().to_owned()).collect();
    let mut seen = vec![None; nodes.len()];
    loop {
        let mut rows = Vec::new();
        for (nth, node) in nodes.iter_mut().enumerate() {
            let new = match seen[nth] {
                None => ask(node, options.count)?,
                Some(id) => newer(node, id)?,
            };
            let newest = new.first().map(|row| row.id);
            seen[nth] = newest.or(seen[nth]).or(Some(0));
            rows.extend(new.into_iter().map(|row| (nth, row)));
        }
        // The servers list the newest first; a log reads from top to bottom.
        rows.sort_by_key(|(nth, row)| (row.unix_ms, *nth, row.id));
        if options.json && !options.follow {
            let rows: Vec<Json> = rows
                .iter()
                .map(|(nth, row)| row.json(&names[*nth]))
                .collect();
            writeln!(out, "{}", Json::Array(rows))?;
            return Ok(());
        }
        for (nth, row) in &rows {
            let name = names[*nth].as_str();
            if options.json {
                writeln!(out, "{}", row.json(name))?;
            } else {
                writeln!(out, "{}", row.line((names.len() > 1).then_some(name)))?;
            }
        }
        out.flush()?;
        if !options.follow {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
}

fn ask(node: &mut Node, count: u32) -> Result<Vec<Row>> {
    let rows: Vec<Reply> = node.ask(redis::cmd("DSYNC.LOG").arg("COUNT").arg(count))?;
    Ok(rows.into_iter().map(Row::of).collect())
}

/// Returns the rows that came after this one.
fn newer(node: &mut Node, id: u64) -> Result<Vec<Row>> {
    let mut count = FEW;
    loop {
        let mut rows = ask(node, count)?;
        let are_all = (rows.len() as u64) < u64::from(count) || count == MOST;
        // A server that has started again counts from the beginning: all of its rows are new.
        let has_restarted = rows.first().is_some_and(|row| row.id < id);
        let known = rows.iter().position(|row| row.id <= id);
        match known {
            Some(_) if has_restarted => return Ok(rows),
            Some(known) => {
                rows.truncate(known);
                return Ok(rows);
            }
            None if are_all => return Ok(rows),
            None => count = (count * 4).min(MOST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_leaves_out_what_does_not_apply_and_quotes_what_has_spaces() {
        let mut row = Row {
            id: 17,
            unix_ms: 1_795_272_958_978,
            what: "lapse".into(),
            db: Some(0),
            key: Some(b"report 7".to_vec()),
            family: Some("once".into()),
            fence: Some(1_795_272_663_620_742),
            owner: None,
            held_ms: Some(30_002),
            late_ms: Some(2),
        };
        let expected = "2026-11-21T14:55:58.978Z lapse key=\"report 7\" type=once fence=1795272663620742 held=30s late=2ms";
        assert_eq!(row.line(None), expected);
        row.owner = Some(b"web\x1b[2J".to_vec());
        assert!(row.line(Some("a:1")).contains("owner=web\\u{1b}[2J"));
        assert!(row.line(Some("a:1")).ends_with(" server=a:1"));
    }
}
