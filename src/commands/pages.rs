//! The reference in `docs/commands`: a page for each command, and an index, written from the table.
//!
//! The replies on the pages are those of servers. `tests/server/commands/examples.rs` records them in `replies.txt`, and
//! compares them with each server's. `scripts/command-pages.sh` writes everything again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::page::{REPLIES, file_name, guide, link, page};
use super::row::{Row, prefix};
use super::table::ROWS;
use dsync_engine::Family;

const FOLDER: &str = "docs/commands";

#[test]
fn pages_match_the_table_and_the_recorded_replies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join(FOLDER);
    let replies = fs::read_to_string(root.join(REPLIES)).expect(REPLIES);
    let pages = pages(&recorded(&replies));
    if std::env::var_os("DSYNC_WRITE_DOCS").is_some() {
        fs::create_dir_all(&folder).expect(FOLDER);
        for (name, text) in &pages {
            fs::write(folder.join(name), text).expect(name);
        }
    }
    let found: BTreeSet<_> = fs::read_dir(&folder)
        .expect(FOLDER)
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let expected: BTreeSet<_> = pages.keys().cloned().collect();
    assert_eq!(found, expected, "the files in {FOLDER}");
    for (name, text) in &pages {
        let written = fs::read_to_string(folder.join(name)).expect(name);
        assert!(
            written == *text,
            "{FOLDER}/{name} is not what the table says: sh scripts/command-pages.sh writes it"
        );
    }
}

/// The recorded sessions by their titles.
fn recorded(file: &str) -> BTreeMap<&str, &str> {
    let block = |block| str::split_once(block, '\n').expect("a title and a session");
    let blocks = file.trim_end().split("\n\n").skip(1).map(block);
    blocks
        .map(|(title, session)| (title.trim_start_matches("# "), session))
        .collect()
}

/// The texts of all pages by the names of their files.
fn pages(recorded: &BTreeMap<&str, &str>) -> BTreeMap<String, String> {
    let page = |row: &Row| (file_name(row.name.as_str()), page(row, recorded));
    let index = ("README.md".to_owned(), index());
    ROWS.iter().map(page).chain([index]).collect()
}

fn index() -> String {
    let mut text = INDEX.to_owned();
    for family in Family::ALL.map(Some).into_iter().chain([None]) {
        let (title, key) = match family {
            Some(family) => (prefix(family), guide(Some(family))),
            None => ("DSYNC", guide(None)),
        };
        write!(text, "\n## {title}\n\nThe guide: {key}.\n\n").expect("text");
        text += "| command | what it does | since |\n|---|---|---|\n";
        for row in ROWS.iter().filter(|row| row.family() == family) {
            let (link, summary) = (link(row.name.as_str()), row.summary());
            writeln!(text, "| {link} | {summary} | {} |", row.properties.since).expect("text");
        }
    }
    text
}

const INDEX: &str = "\
# Commands

One page for each command: syntax, arguments with their units and bounds, replies, errors, examples and access rules. The
server tells the same of itself: `COMMAND DOCS DLOCK.ACQUIRE`, and `redis-cli` shows it as hints and with `HELP`.

- The key is the first argument. Only the commands that begin with `DSYNC.` have none.
- Options come in any order after the other arguments, each at most once, in any case.
- A request that is answered with an error has changed nothing.
- In the examples `>` is what one connection sends. Where two take part they are `A` and `B`. Replies are shown as
  `redis-cli` shows them. The tokens are short here; take a fresh UUID for every request.
";
