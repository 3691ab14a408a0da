//! A row of DSYNC.LOG: an end that no holder asked for.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use crate::connect::Node;
use crate::duration::short_ms;
use crate::failure::Result;
use crate::text::{name, printable, with_key};

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

#[derive(Clone)]
pub struct Row {
    pub id: u64,
    pub unix_ms: u64,
    pub what: String,
    pub db: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub family: Option<String>,
    pub fence: Option<u64>,
    pub owner: Option<Vec<u8>>,
    pub held_ms: Option<u64>,
    pub late_ms: Option<u64>,
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

    pub fn json(&self, server: &str) -> Json {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let fields = json!({
            "server": server,
            "id": self.id,
            "time": self.time(),
            "unix_ms": self.unix_ms,
            "what": self.what,
            "db": self.db,
            "key": null,
            "type": self.family,
            "fence": self.fence,
            "owner": self.owner.as_ref().map(text),
            "held_ms": self.held_ms,
            "late_ms": self.late_ms,
        });
        with_key(fields, self.key.as_deref())
    }

    /// Returns a line of names and values; what does not apply is left out. The server is named if there are several.
    pub fn line(&self, server: Option<&str>) -> String {
        let mut line = format!("{} {}", self.time(), quoted(self.what.as_bytes()));
        let mut field = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                line.push_str(&format!(" {name}={value}"));
            }
        };
        field("key", self.key.as_deref().map(key_word));
        field("db", self.db.filter(|db| *db != 0).map(|db| db.to_string()));
        field(
            "type",
            self.family
                .as_deref()
                .map(|family| quoted(family.as_bytes())),
        );
        field("owner", self.owner.as_deref().map(quoted));
        field("fence", self.fence.map(|fence| fence.to_string()));
        field("held", self.held_ms.map(short_ms));
        field("late", self.late_ms.map(short_ms));
        field("server", server.map(|server| quoted(server.as_bytes())));
        line
    }
}

/// Returns text that one word of a line can be: quoted where it would look like several.
fn quoted(bytes: &[u8]) -> String {
    let text = printable(bytes);
    let is_plain = !text.is_empty() && !text.contains([' ', '"', '=']);
    if is_plain { text } else { format!("{text:?}") }
}

fn key_word(key: &[u8]) -> String {
    match name(key) {
        word if word.starts_with("$'") => word,
        text => quoted(text.as_bytes()),
    }
}

pub fn ask(node: &mut Node, count: u32) -> Result<Vec<Row>> {
    let rows: Vec<Reply> = node.ask(redis::cmd("DSYNC.LOG").arg("COUNT").arg(count))?;
    Ok(rows.into_iter().map(Row::of).collect())
}

/// The servers list the newest first; a log reads from top to bottom.
pub fn sort(rows: &mut [(String, Row)]) {
    rows.sort_by(|(server, row), (other, later)| {
        (row.unix_ms, server, row.id).cmp(&(later.unix_ms, other, later.id))
    });
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
