//! Tests of the table's rows, of the parser, and of the texts elsewhere that must agree with the table.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::examples::examples;
use super::grammar::{Arg, BoundSetting, Flag, Kind, Number, Text, Times};
use super::parse::{Argv, parse, possible_secrets};
use super::row::{Parsed, Row, prefix};
use super::table::ROWS;
use crate::module::redis::docs::KeyUse;
use dsync_engine::Family;

/// A request written as one line; its words have single spaces between them.
struct TextRequest<'a>(Vec<&'a [u8]>);

impl<'a> TextRequest<'a> {
    fn new(line: &'a str) -> TextRequest<'a> {
        TextRequest(line.split(' ').map(str::as_bytes).collect())
    }
}

impl<'a> Argv<'a> for TextRequest<'a> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn arg(&self, at: usize) -> Option<&'a [u8]> {
        self.0.get(at).copied()
    }
}

/// The default of each setting that bounds arguments.
fn bound(bound: BoundSetting) -> u64 {
    match bound {
        BoundSetting::MaxLeaseMs => 86_400_000,
        BoundSetting::MaxResultBytes => 65_536,
    }
}

/// The row of the command with this name.
fn row(name: &str) -> &'static Row {
    let found = ROWS.iter().find(|row| row.name.as_str() == name);
    found.unwrap_or_else(|| panic!("no command {name}"))
}

fn parsed(line: &str) -> Result<Parsed<'_>, String> {
    let name = line.split(' ').next().expect("a name");
    let mut parsed = Parsed::default();
    parse(row(name), &TextRequest::new(line), bound, &mut parsed).map(|()| parsed)
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
        assert!(
            !row.properties.users.is_empty() && !row.replies.is_empty(),
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
        assert_eq!(row.properties.key != KeyUse::NoKey, has_key, "{name}");
        let titles: BTreeSet<_> = row.examples().iter().map(|example| example.shows).collect();
        assert_eq!(titles.len(), row.examples().len(), "{name}: a title twice");
        let first_is_key = matches!(row.args.first(), Some(arg) if matches!(arg.kind, Kind::Key));
        assert_eq!(first_is_key, has_key, "{name}");
        let may_wait = row.properties.flags.to_string_lossy().contains("blocking");
        assert_eq!(codes.contains("UNBLOCKED"), may_wait, "{name}");
        assert_eq!(codes.contains("QUEUEFULL"), may_wait, "{name}");
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

#[test]
fn table_examples_parse_by_their_own_grammar() {
    for row in &ROWS {
        for example in row.examples() {
            // SET is the server's command, not ours, and `B` is a reply.
            let is_own = |line: &&String| !line.contains("> SET ") && *line != "B";
            let own = example.lines.iter().filter(is_own);
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

/// The server tests send the examples of this file. To write the file again:
/// `DSYNC_WRITE_EXAMPLES=1 cargo test --lib examples`.
#[test]
fn examples_file_matches_the_table() {
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

/// A line of syntax with `_` in place of each value's name, because docs/reference.md uses shorter names.
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

#[test]
fn reference_lists_every_command_of_the_table() {
    let reference = fs::read_to_string(root("docs/reference.md")).expect("docs/reference.md");
    let (_, commands) = reference.split_once("\n## Grammar\n").expect("a chapter");
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
    assert_eq!(parsed.text(Text::Token), Some(&b"t"[..]));
    assert_eq!(parsed.text(Text::Owner), Some(&b"me"[..]));
    assert!(parsed.has(Flag::Ephemeral) && !parsed.has(Flag::Shared));
}

#[test]
fn parser_reports_the_first_mistake_from_the_left() {
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
            "DLOCK.RENEW k t EX 5 PX",
            "ERR syntax error: EX or PX is given twice",
        ),
        (
            "DONCE.DONE k t EX 5 RESULT r PERSIST",
            "ERR syntax error: EX, PX or PERSIST is given twice",
        ),
        (
            "DONCE.DONE k t PERSIST 5",
            "ERR syntax error: '5' is not an option here",
        ),
        (
            "DONCE.FAIL k t DELAY 86400001",
            "ERR DELAY is an integer of 0 to 86400000 milliseconds (dsync.max-lease-ms), not '86400001'",
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
fn parser_finds_tokens_in_valid_and_invalid_requests() {
    for (line, if_valid, if_invalid) in [
        ("DLOCK.ACQUIRE k PX 5 TOKEN t", 5..6, &[5][..]),
        // The owner's text is the word of an option: hide it as well.
        ("DLOCK.ACQUIRE k OWNER token TOKEN t", 5..6, &[4, 5]),
        ("DLOCK.ACQUIRE k OWNER me", 0..0, &[]),
        ("DLOCK.RENEW k t EX 5", 2..3, &[2]),
        ("DWG.DONE k t u v", 2..5, &[2, 3, 4]),
        ("DLOCK.REVOKE k 7", 0..0, &[]),
        ("DSEM.LIMIT k none", 0..0, &[]),
        ("DSEM.LIMIT k 7", 0..0, &[]),
    ] {
        let name = line.split(' ').next().expect("a name");
        let found = parsed(line).map(|parsed| parsed.secrets());
        assert_eq!(found, Ok(if_valid), "{line}");
        let found = possible_secrets(row(name), &TextRequest::new(line));
        assert_eq!(found, if_invalid, "{line}");
    }
}

/// A token without the word TOKEN was shown in SLOWLOG.
#[test]
fn parser_hides_words_of_a_refused_request_that_are_no_options_and_no_values() {
    for (line, hidden) in [
        ("DLOCK.ACQUIRE k s3kr3t", &[2][..]),
        ("DLOCK.ACQUIRE k 12345", &[2]),
        ("DLOCK.ACQUIRE k s3kr3t EX 5 OWNER me", &[2]),
        ("DLOCK.ACQUIRE k EX s3kr3t", &[3]),
        ("DLOCK.ACQUIRE k EX 5 s3kr3t SHARED", &[4]),
        ("DLOCK.ACQUIRE k SHARED s3kr3t", &[3]),
        ("DLOCK.ACQUIRE k OWNER TOKEN s3kr3t", &[4]),
        ("DLOCK.ACQUIRE k EX 99999999999 OWNER me", &[]),
        ("DLOCK.RELEASE k t s3kr3t", &[2, 3]),
        ("DLOCK.REVOKE k s3kr3t", &[2]),
        ("DLOCK.INFO k s3kr3t", &[2]),
        ("DSEM.LIMIT k s3kr3t", &[2]),
        ("DSYNC.CONTENDED s3kr3t", &[1]),
    ] {
        assert!(parsed(line).is_err(), "{line}");
        let name = line.split(' ').next().expect("a name");
        let found = possible_secrets(row(name), &TextRequest::new(line));
        assert_eq!(found, hidden, "{line}");
    }
}
