//! Tests of the table's rows, and of the texts elsewhere that must agree with the table.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::grammar::{Arg, Kind, Times};
use super::row::{Row, prefix};
use super::table::ROWS;
use crate::module::redis::docs::KeyUse;
use dsync_engine::Family;

fn root(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

#[test]
fn table_rows_are_complete() {
    let names: BTreeSet<_> = ROWS.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names.len(), ROWS.len(), "a name is used twice");
    for row in &ROWS {
        let name = row.name.as_str();
        let own_prefix = row.family().map_or("DSYNC", prefix);
        assert!(name.starts_with(own_prefix), "{name}: {own_prefix}");
        assert!(
            !row.summary().contains(['{', '}']),
            "{name}: {}",
            row.summary()
        );
        for text in [row.summary, row.properties.since, row.properties.complexity] {
            assert!(!text.is_empty(), "{name}");
        }
        assert!(!row.properties.users.is_empty(), "{name}");
        let has_key = row.family().is_some();
        assert_eq!(row.properties.key != KeyUse::NoKey, has_key, "{name}");
        let first_is_key = matches!(row.args.first(), Some(arg) if matches!(arg.kind, Kind::Key));
        assert_eq!(first_is_key, has_key, "{name}");
    }
}

#[test]
fn table_arguments_stand_where_the_parser_expects_them() {
    for row in &ROWS {
        let name = row.name.as_str();
        let (positional, options) = row.args.split_at(row.required());
        assert!(
            options.iter().all(Arg::is_optional),
            "{name}: an option before a positional argument"
        );
        assert!(options.len() <= 32, "{name}: more options than bits");
        let lists = positional
            .iter()
            .filter(|arg| arg.times == Times::OnceOrMore);
        let is_list_last = positional
            .last()
            .is_some_and(|arg| arg.times == Times::OnceOrMore);
        assert_eq!(lists.count(), usize::from(is_list_last), "{name}");
        assert!(
            !is_list_last || options.is_empty(),
            "{name}: a list takes all that follows"
        );
        let words: Vec<_> = options.iter().flat_map(Arg::words).collect();
        let different: BTreeSet<_> = words.iter().collect();
        assert_eq!(
            different.len(),
            words.len(),
            "{name}: a word begins two options"
        );
        let mut all_words = row.args.iter().flat_map(Arg::words);
        assert!(
            all_words.all(|word| word.bytes().all(|letter| letter.is_ascii_uppercase())),
            "{name}: the parser compares with capitals"
        );
        for option in options {
            assert!(
                !option.words().is_empty(),
                "{name}: {} has no word",
                option.name
            );
        }
        for arg in row.args {
            assert!(
                arg.meaning.ends_with('.') && !arg.error_name.is_empty(),
                "{name}: {}",
                arg.name
            );
        }
    }
}

/// The lines that this line stands for: one for each family if it begins with `<family>`, otherwise itself.
fn of_each_family(line: &str) -> Vec<String> {
    match line.split_once("<family>") {
        None => vec![line.to_owned()],
        Some((_, rest)) => {
            let of_family = |family| format!("{}{rest}", prefix(family));
            Family::ALL.into_iter().map(of_family).collect()
        }
    }
}

/// The arguments as a manual writes them: `key token [EX seconds | PX milliseconds]`.
fn syntax(args: &[Arg]) -> Vec<String> {
    args.iter().map(syntax_of).collect()
}

fn syntax_of(arg: &Arg) -> String {
    let words = arg.word.iter().copied();
    let mut text = match arg.kind {
        Kind::OneOf(alternatives) => syntax(alternatives).join(" | "),
        Kind::Flag(_) => words.collect(),
        _ => words.chain([arg.name]).collect::<Vec<_>>().join(" "),
    };
    if arg.times == Times::OnceOrMore {
        text = format!("{text} [{text} ...]");
    }
    if arg.is_optional() {
        text = format!("[{text}]");
    }
    text
}

#[test]
fn doc_comment_above_each_row_has_its_grammar() {
    let mut found = BTreeSet::new();
    for file in fs::read_dir(root("src/commands")).expect("a folder") {
        let path = file.expect("a file").path();
        let source = fs::read_to_string(path).expect("a source file");
        for block in source.split("\n/// ```text\n").skip(1) {
            let block = block.split("/// ```\n").next().unwrap_or_default();
            let words: Vec<_> = block
                .split_whitespace()
                .filter(|word| *word != "///")
                .collect();
            found.extend(of_each_family(&words.join(" ")));
        }
    }
    let line = |row: &Row| format!("{} {}", row.name.as_str(), syntax(row.args).join(" "));
    let expected: BTreeSet<_> = ROWS.iter().map(line).collect();
    assert_eq!(found, expected);
}
