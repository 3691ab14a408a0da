//! The track record counts its rows right, and the tests outside `tests/server` that documents name are there.

use std::fs;
use std::path::Path;

use pulldown_cmark::Event;

use crate::{anchor, documents, parsed, read, root};

const RECORD: &str = "TRACK-RECORD.md";

/// The columns of a table of defects: in which version a defect was mended, and how it was found.
const COLUMNS: usize = 5;
const MENDED: usize = 3;
const FOUND: usize = 4;

type Row = Vec<String>;

/// The tables of a document, each with the heading above it. The first row has the names of the columns.
fn tables(text: &str) -> Vec<(&str, Vec<Row>)> {
    let mut tables = Vec::<(&str, Vec<Row>)>::new();
    let (mut heading, mut is_open) = ("", false);
    for line in text.lines() {
        heading = line.strip_prefix("## ").unwrap_or(heading);
        if let Some(row) = line.strip_prefix("| ") {
            if !is_open {
                tables.push((heading, Vec::new()));
            }
            let cells = row.trim_end_matches(" |").split(" | ");
            let (_, rows) = tables.last_mut().expect("an open table");
            rows.push(cells.map(str::to_owned).collect());
        }
        is_open = line.starts_with('|');
    }
    tables
}

/// How many of the rows have each word in this column; `all` counts them all.
fn counts(rows: &[Row], column: usize, words: &[String]) -> Row {
    let count = |word: &String| {
        let has_word = |row: &&Row| word == "all" || row[column] == *word;
        rows.iter().filter(has_word).count().to_string()
    };
    words.iter().map(count).collect()
}

#[test]
fn track_record_counts_its_rows() {
    let text = read(Path::new(RECORD));
    let tables = tables(&text);
    let [(_, by_version), (_, by_way), ..] = &tables[..] else {
        panic!("{RECORD} does not begin with its counts");
    };
    let versions = &by_version[0][1..];
    let (mut all, mut expected) = (Vec::new(), Vec::new());
    for (heading, rows) in tables.iter().filter(|(_, rows)| rows[0].len() == COLUMNS) {
        expected.push((anchor(heading), counts(&rows[1..], MENDED, versions)));
        all.extend_from_slice(&rows[1..]);
    }
    expected.push(("all".to_owned(), counts(&all, MENDED, versions)));
    let found = by_version[1..].iter().map(|row| {
        let link = row[0]
            .rsplit_once("(#")
            .map(|(_, end)| end.trim_end_matches(')'));
        (link.unwrap_or(&row[0]).to_owned(), row[1..].to_vec())
    });
    assert_eq!(found.collect::<Vec<_>>(), expected, "counted, and rows");

    let ways: Vec<_> = by_way[1..].iter().map(|row| row[0].clone()).collect();
    let found: Row = by_way[1..].iter().map(|row| row[1].clone()).collect();
    assert_eq!(found, counts(&all, FOUND, &ways), "{ways:?}");
    for row in &all {
        assert!(
            versions.contains(&row[MENDED]) && ways.contains(&row[FOUND]),
            "{row:?}"
        );
    }
    let rows = format!("{} so far", all.len());
    assert!(text.contains(&rows), "{RECORD} does not say {rows}");
}

/// Every `path/to/file::test` between backquotes.
fn named(text: &str) -> Vec<(String, String)> {
    let codes = parsed(text).filter_map(|event| match event {
        Event::Code(code) => Some(code),
        _ => None,
    });
    let parts = codes.filter_map(|code| {
        let (path, name) = code.split_once("::")?;
        path.contains('/')
            .then(|| (path.to_owned(), name.to_owned()))
    });
    parts.collect()
}

/// Whether the file has this test: a function in Python and Rust, a title in JavaScript, else a text.
fn has(path: &str, name: &str) -> bool {
    let text = fs::read_to_string(root().join(path)).unwrap_or_default();
    let test = match path.rsplit_once('.') {
        Some((_, "py")) => format!("def {name}("),
        Some((_, "rs")) => format!("fn {name}("),
        _ => name.to_owned(),
    };
    text.contains(&test)
}

#[test]
fn every_test_that_a_document_names_by_its_path_is_there() {
    for document in documents() {
        let mut missing = named(&read(&document));
        missing.retain(|(path, name)| !has(path, name));
        assert!(missing.is_empty(), "{document:?} names {missing:#?}");
    }
}
