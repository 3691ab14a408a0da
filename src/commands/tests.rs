//! What must be true of every row of the table, and of the parser that walks it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::grammar::{Arg, Bound, Flag, Kind, Number, Times, Words};
use super::parse::{Typed, parse, possible_secrets};
use super::parsed::Parsed;
use super::row::{Row, prefix};
use super::table::ROWS;
use super::written::examples;
use crate::module::redis::docs::KeyUse;
use dsync_engine::Family;

/// A request as a line of words.
struct Line<'a>(Vec<&'a [u8]>);

impl<'a> Line<'a> {
    fn new(line: &'a str) -> Line<'a> {
        Line(line.split(' ').map(str::as_bytes).collect())
    }
}

impl<'a> Typed<'a> for Line<'a> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn arg(&self, at: usize) -> Option<&'a [u8]> {
        self.0.get(at).copied()
    }
}

/// The settings as they are without a configuration.
fn bound(bound: Bound) -> u64 {
    match bound {
        Bound::MaxLeaseMs => 86_400_000,
        Bound::MaxResultBytes => 65_536,
    }
}

fn row(name: &str) -> &'static Row {
    let found = ROWS.iter().find(|row| row.name.as_str() == name);
    found.unwrap_or_else(|| panic!("no command {name}"))
}

fn parsed(line: &str) -> Result<Parsed<'_>, String> {
    let name = line.split(' ').next().expect("a name");
    let mut parsed = Parsed::default();
    parse(row(name), &Line::new(line), bound, &mut parsed).map(|()| parsed)
}

#[track_caller]
fn refused(line: &str) -> String {
    match parsed(line) {
        Err(error) => error,
        Ok(_) => panic!("{line:?} is understood"),
    }
}

fn root(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

#[test]
fn every_row_says_everything() {
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
        for text in [row.summary, row.terms.since, row.terms.complexity] {
            assert!(!text.is_empty(), "{name}");
        }
        assert!(
            !row.terms.users.is_empty() && !row.replies.is_empty(),
            "{name}"
        );
        for reply in row.replies {
            assert!(
                !reply.when.is_empty() && !reply.example.is_empty(),
                "{name}"
            );
        }
        let codes: BTreeSet<_> = row.errors.iter().map(|error| error.code).collect();
        assert_eq!(codes.len(), row.errors.len(), "{name}: an error twice");
        assert!(
            row.errors.iter().all(|error| !error.when.is_empty()),
            "{name}"
        );
        assert!(codes.contains("ERR"), "{name}");
        let has_key = row.family().is_some();
        assert_eq!(codes.contains("WRONGTYPE"), has_key, "{name}");
        assert_eq!(row.terms.key != KeyUse::NoKey, has_key, "{name}");
        let first_is_key = matches!(row.args.first(), Some(arg) if matches!(arg.kind, Kind::Key));
        assert_eq!(first_is_key, has_key, "{name}");
        let may_wait = row.terms.flags.to_string_lossy().contains("blocking");
        assert_eq!(codes.contains("UNBLOCKED"), may_wait, "{name}");
        assert_eq!(codes.contains("QUEUEFULL"), may_wait, "{name}");
    }
}

#[test]
fn every_argument_has_a_place_where_the_parser_looks_for_it() {
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
                arg.meaning.ends_with('.') && !arg.called.is_empty(),
                "{name}: {}",
                arg.name
            );
        }
    }
}

#[test]
fn every_example_parses_by_the_grammar_of_its_command() {
    for row in &ROWS {
        for example in row.examples() {
            // All but SET, which is the server's.
            let own = example.lines.iter().filter(|line| !line.contains("> SET "));
            for line in own {
                let line = line.trim_start_matches("B").trim_start_matches("> ");
                let line = line.replace("{fence}", "1795272958977831");
                assert!(!line.contains(['{', '}']), "{line}");
                let parsed = parsed(&line);
                assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
            }
        }
    }
}

/// The server tests send these. To write the file anew: `DSYNC_WRITE_EXAMPLES=1 cargo test --lib examples`.
#[test]
fn file_of_examples_is_what_the_table_says() {
    const FILE: &str = "tests/server/commands/examples.txt";
    if std::env::var_os("DSYNC_WRITE_EXAMPLES").is_some() {
        fs::write(root(FILE), examples()).expect(FILE);
    }
    let written = fs::read_to_string(root(FILE)).expect(FILE);
    assert!(
        written == examples(),
        "{FILE} is out of date: DSYNC_WRITE_EXAMPLES=1 cargo test --lib examples"
    );
}

/// A line of syntax with `_` for each name of a value: the README writes short ones.
fn without_names(syntax: &str) -> String {
    let mut plain = String::new();
    let mut in_name = false;
    for letter in syntax.chars() {
        let is_name = letter.is_ascii_lowercase();
        if is_name && !in_name {
            plain.push('_');
        } else if !is_name {
            plain.push(letter);
        }
        in_name = is_name;
    }
    plain
}

/// `name syntax`, for each family where the line is of all.
fn of_each_family(line: &str) -> Vec<String> {
    match line.split_once("<family>") {
        None => vec![line.to_owned()],
        Some((_, rest)) => {
            let of_family = |family| format!("{}{rest}", prefix(family));
            Family::ALL.into_iter().map(of_family).collect()
        }
    }
}

#[test]
fn readme_lists_the_commands_of_the_table() {
    let readme = fs::read_to_string(root("README.md")).expect("README.md");
    let (_, commands) = readme.split_once("\n## Commands\n").expect("a chapter");
    let list = commands.split("```").nth(1).expect("a list of commands");
    let lines = list.lines().filter(|line| !line.trim().is_empty());
    let listed: BTreeSet<_> = lines
        .flat_map(|line| {
            let line = line.split("  family:").next().unwrap_or_default().trim();
            let (name, syntax) = line.split_once(' ').expect("a name and a syntax");
            of_each_family(&format!("{name} {}", without_names(syntax.trim())))
        })
        .collect();
    let line = |row: &Row| format!("{} {}", row.name.as_str(), without_names(&row.syntax()));
    let expected: BTreeSet<_> = ROWS.iter().map(line).collect();
    assert_eq!(listed, expected);
}

#[test]
fn grammar_above_each_row_is_that_of_the_row() {
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
    let line = |row: &Row| format!("{} {}", row.name.as_str(), row.syntax());
    let expected: BTreeSet<_> = ROWS.iter().map(line).collect();
    assert_eq!(found, expected);
}

#[test]
fn request_with_every_option_is_parsed_into_its_values() {
    let line = "DSEM.ACQUIRE k owner me PERMITS 3 ex 45 Block 5 TOKEN t EPHEMERAL LIMIT 7";
    let parsed = parsed(line).expect("a right request");
    for (number, value) in [
        (Number::Permits, Some(3)),
        (Number::Limit, Some(7)),
        (Number::Duration, Some(45_000)),
        (Number::BlockMs, Some(5)),
        (Number::Attempts, None),
    ] {
        assert_eq!(parsed.number(number), value, "{number:?}");
    }
    assert_eq!(parsed.text(Words::Token), Some(&b"t"[..]));
    assert_eq!(parsed.text(Words::Owner), Some(&b"me"[..]));
    assert!(parsed.has(Flag::Ephemeral) && !parsed.has(Flag::Shared));
}

#[test]
fn first_mistake_from_the_left_is_answered() {
    for (line, error) in [
        (
            "DLOCK.ACQUIRE",
            "ERR wrong number of arguments for 'DLOCK.ACQUIRE' command",
        ),
        (
            "DLOCK.RELEASE k t x",
            "ERR wrong number of arguments for 'DLOCK.RELEASE' command",
        ),
        (
            "DLOCK.RENEW k t EX 0 WHAT",
            "ERR EX is an integer of 1 to 86400 seconds (dsync.max-lease-ms), not '0'",
        ),
        (
            "DLOCK.RENEW k t WHAT EX 0",
            "ERR syntax error: 'WHAT' is not an option here",
        ),
        (
            "DONCE.DONE k t EX 5 RESULT r PX",
            "ERR syntax error: EX or PX is given twice",
        ),
        (
            "DONCE.DONE k t PX 315360000001",
            "ERR PX is an integer of 1 to 315360000000 milliseconds, not '315360000001'",
        ),
        (
            "DLOCK.ACQUIRE k BLOCK",
            "ERR syntax error: BLOCK has no value",
        ),
        (
            "DSEM.LIMIT k some",
            "ERR the limit is an integer of 0 to 1000000 permits, or NONE, not 'some'",
        ),
        (
            "DWG.EXPECT k 0",
            "ERR the total is an integer of 1 to 1000000 jobs, not '0'",
        ),
        (
            "DLOCK.REVOKE k 0",
            "ERR a fence is an integer of 1 to 9007199254740991, not '0'",
        ),
        ("DLOCK.CHECK k ", "ERR a token has 1 to 128 bytes, not 0"),
        ("DWG.DONE k t ", "ERR a token has 1 to 128 bytes, not 0"),
    ] {
        assert_eq!(refused(line), error, "{line}");
    }
    let long = "x".repeat(129);
    assert_eq!(
        refused(&format!("DLOCK.ACQUIRE k OWNER {long}")),
        "ERR OWNER has at most 128 bytes, not 129"
    );
    let longer = "x".repeat(65_537);
    assert_eq!(
        refused(&format!("DONCE.FAIL k t REASON {longer}")),
        "ERR REASON has at most 65536 bytes (dsync.max-result-bytes), not 65537"
    );
}

#[test]
fn places_of_tokens_are_known_in_requests_right_and_wrong() {
    for (line, right, wrong) in [
        ("DLOCK.ACQUIRE k PX 5 TOKEN t", 5..6, &[5][..]),
        // An owner that reads like an option.
        ("DLOCK.ACQUIRE k OWNER token TOKEN t", 5..6, &[4, 5]),
        ("DLOCK.ACQUIRE k OWNER me", 0..0, &[]),
        ("DLOCK.RENEW k t EX 5", 2..3, &[2]),
        ("DWG.DONE k t u v", 2..5, &[2, 3, 4]),
        ("DLOCK.REVOKE k 7", 0..0, &[]),
    ] {
        let name = line.split(' ').next().expect("a name");
        let found = parsed(line).map(|parsed| parsed.secrets());
        assert_eq!(found, Ok(right), "{line}");
        let found = possible_secrets(row(name), &Line::new(line));
        assert_eq!(found, wrong, "{line}");
    }
}
