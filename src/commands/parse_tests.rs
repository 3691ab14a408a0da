//! Tests of the parser: what it makes of a request, and each mistake, for the arguments of every row of the table.

use std::collections::BTreeSet;

use super::grammar::{
    Arg, BoundSetting, Flag, IntegerSpec, Kind, Max, Number, Text, TextSpec, Times,
};
use super::parse::{Argv, parse, possible_secrets};
use super::row::{Parsed, Row};
use super::table::ROWS;

/// The words of a request.
pub(super) struct Words<'a>(pub(super) Vec<&'a [u8]>);

impl<'a> Words<'a> {
    fn of(words: &[&'a str]) -> Words<'a> {
        Words(words.iter().map(|word| word.as_bytes()).collect())
    }
}

impl<'a> Argv<'a> for Words<'a> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn arg(&self, at: usize) -> Option<&'a [u8]> {
        self.0.get(at).copied()
    }
}

/// The default of each setting that bounds arguments.
pub(super) fn bound(bound: BoundSetting) -> u64 {
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

fn parsed_words<'a>(words: &[&'a str]) -> Result<Parsed<'a>, String> {
    let mut parsed = Parsed::default();
    parse(row(words[0]), &Words::of(words), bound, &mut parsed).map(|()| parsed)
}

/// What becomes of a request written as one line, with single spaces between its words.
pub(super) fn parsed(line: &str) -> Result<Parsed<'_>, String> {
    parsed_words(&line.split(' ').collect::<Vec<_>>())
}

#[track_caller]
fn refused(words: &[&str]) -> String {
    match parsed_words(words) {
        Err(error) => error,
        Ok(_) => panic!("{words:?} is understood"),
    }
}

/// The alternatives of a choice; otherwise the argument itself.
fn alternatives(arg: &Arg) -> &[Arg] {
    match arg.kind {
        Kind::OneOf(alternatives) => alternatives,
        _ => std::slice::from_ref(arg),
    }
}

/// The argument as words of a request, with this value if it has one.
fn words<'a>(arg: &Arg, value: &'a str) -> Vec<&'a str> {
    let value = (!matches!(arg.kind, Kind::Flag(_))).then_some(value);
    arg.word.into_iter().chain(value).collect()
}

/// The ways to write an argument, with right values.
fn ways(arg: &Arg) -> Vec<Vec<&'static str>> {
    let right = |arg: &Arg| match arg.word {
        Some("QUEUE") => words(arg, "5000"),
        _ => words(arg, "5"),
    };
    alternatives(arg).iter().map(right).collect()
}

/// The request without any option, and the options.
fn bare(row: &'static Row) -> (Vec<&'static str>, &'static [Arg]) {
    let (positional, options) = row.args.split_at(row.required());
    let mut request = vec!["5"; 1 + positional.len()];
    request[0] = row.name.as_str();
    (request, options)
}

/// Calls the function with each argument of all commands, its greatest number or length, and a function that makes a
/// request with a value of it.
fn with_each_argument(mut test: impl FnMut(&Arg, u64, &dyn Fn(&'static str) -> Vec<&'static str>)) {
    for row in &ROWS {
        for (at, choice) in row.args.iter().enumerate() {
            for arg in alternatives(choice) {
                let (Kind::Integer(IntegerSpec { max, .. }) | Kind::Text(TextSpec { max, .. })) =
                    arg.kind
                else {
                    continue;
                };
                let max = match max {
                    Max::Fixed(max) => max,
                    Max::Setting(setting) => bound(setting),
                };
                test(arg, max, &|value| {
                    let (mut request, _) = bare(row);
                    match request.get_mut(at + 1) {
                        Some(word) => *word = value,
                        None => request.extend(words(arg, value)),
                    }
                    request
                });
            }
        }
    }
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
fn values_that_read_like_options_are_values() {
    let line = "DLOCK.ACQUIRE SHARED TOKEN EX OWNER BLOCK SHARED PX 9000";
    let found = parsed(line).expect("a right request");
    assert_eq!(found.text(Text::Token), Some(&b"EX"[..]));
    assert_eq!(found.text(Text::Owner), Some(&b"BLOCK"[..]));
    assert!(found.has(Flag::Shared) && found.number(Number::Duration) == Some(9_000));
    assert!(parsed("DSEM.LIMIT k NoNe").is_ok_and(|found| found.has(Flag::Unpin)));
}

/// Orders of `0..length`: every one if they are few; otherwise any six neighbours in every order before the others, as all
/// orders of eleven would be forty million.
fn many_orders(length: usize) -> Vec<Vec<usize>> {
    const FEW: usize = 6;
    if length <= FEW {
        return orders(length);
    }
    let few = orders(FEW);
    let shifted = |by: usize| {
        few.iter().map(move |order| {
            let rest = FEW..length;
            let all = order.iter().copied().chain(rest);
            all.map(|nth| (nth + by) % length).collect()
        })
    };
    (0..length).flat_map(shifted).collect()
}

/// Every order of `0..length`.
fn orders(length: usize) -> Vec<Vec<usize>> {
    let Some(last) = length.checked_sub(1) else {
        return vec![vec![]];
    };
    let insert = |order: Vec<usize>| {
        (0..=order.len()).map(move |at| [&order[..at], &[last], &order[at..]].concat())
    };
    orders(last).into_iter().flat_map(insert).collect()
}

#[test]
fn options_in_any_order_and_case_are_the_same_request() {
    for row in &ROWS {
        let (bare, options) = bare(row);
        let options: Vec<_> = options.iter().map(|arg| ways(arg).swap_remove(0)).collect();
        let mut first = None;
        for (nth, order) in many_orders(options.len()).iter().enumerate() {
            let mut request: Vec<String> = bare.iter().map(ToString::to_string).collect();
            for option in order.iter().map(|at| &options[*at]) {
                let case = [str::to_lowercase, str::to_uppercase][(nth + option[0].len()) % 2];
                request.push(case(option[0]));
                request.extend(option[1..].iter().map(ToString::to_string));
            }
            let request: Vec<_> = request.iter().map(String::as_str).collect();
            let found = parsed_words(&request).expect("a right request");
            let Parsed {
                numbers,
                has_number,
                texts,
                flags,
                ..
            } = found;
            let values = format!("{numbers:?} {has_number} {texts:?} {flags:?}");
            let first = first.get_or_insert_with(|| values.clone());
            assert_eq!(*first, values, "{request:?}");
        }
    }
}

#[test]
fn unknown_repeated_or_incomplete_option_is_named() {
    let all = ROWS.iter().flat_map(|row| row.args).flat_map(Arg::words);
    let known: BTreeSet<_> = all.chain(["", "EX\0", " EX", "E\r\nX", "P"]).collect();
    for row in &ROWS {
        let (bare, options) = bare(row);
        let expect = |rest: &[&[&str]], error: String| {
            let error = format!("ERR syntax error: {error}");
            assert_eq!(refused(&[&bare[..], &rest.concat()].concat()), error);
        };
        let all: Vec<_> = options.iter().flat_map(Arg::words).collect();
        let (own, all): (BTreeSet<_>, _) = (all.iter().copied().collect(), all.join(", "));
        for option in options {
            let names = option.words().join(", ");
            let name = match names.rsplit_once(", ") {
                Some((before, last)) => format!("{before} or {last}"),
                None => names,
            };
            for way in &ways(option) {
                for word in known.difference(&own) {
                    let shown = word.as_bytes().escape_ascii();
                    let error = format!("'{shown}' is not an option here; the options are {all}");
                    expect(&[&[*word]], error.clone());
                    expect(&[way, &[*word]], error.clone());
                    expect(&[way, &[*word, "5"]], error);
                }
                for other in &ways(option) {
                    expect(&[way, other], format!("{name} is given twice"));
                }
                if way.len() == 2 {
                    expect(&[&way[..1]], format!("{} has no value", way[0]));
                }
            }
        }
    }
}

#[test]
fn wrong_number_of_arguments_names_the_command() {
    for row in &ROWS {
        let (bare, options) = bare(row);
        let name = row.name.as_str();
        let error = format!("ERR wrong number of arguments for '{name}' command");
        for given in 1..bare.len() {
            assert_eq!(refused(&bare[..given]), error);
        }
        let is_list = |arg: &Arg| arg.times == Times::OnceOrMore;
        for more in [&["more"][..], &["even", "more"]] {
            let found = parsed_words(&[&bare[..], more].concat()).map(|_| ());
            match row.args.iter().any(is_list) {
                true => assert_eq!(found, Ok(())),
                false => assert!(found.is_err_and(|found| found == error || !options.is_empty())),
            }
        }
    }
}

#[test]
fn number_is_accepted_within_its_bounds_and_only_as_it_is_written() {
    const WRONG: &str = "+1| 1|1 |01|00|-0||-|1.0|1e3|0x10|one|1\0|\x001|1\n|٣|NaN|-9223372036854775808|\
                         9223372036854775807|9223372036854775808|18446744073709551617|-9223372036854775809";
    with_each_argument(|arg, max, request| {
        let Kind::Integer(IntegerSpec {
            into, factor, min, ..
        }) = arg.kind
        else {
            return;
        };
        let max = max / factor;
        for value in [min, max] {
            let found = parsed_words(&request(value.to_string().leak())).expect("in bounds");
            assert_eq!(found.number(into), Some(value * factor));
        }
        let outside = format!(
            "{}|{}|{}|{WRONG}",
            i128::from(min) - 1,
            max + 1,
            "9".repeat(40)
        );
        for value in outside.leak().split('|') {
            let error = refused(&request(value));
            let start = format!("ERR {} is an integer of {min} to {max}", arg.error_name);
            let shown = match value.len() {
                40 => "(40 bytes)".to_owned(),
                _ => value.as_bytes().escape_ascii().to_string(),
            };
            let is_named =
                error.starts_with(&start) && error.ends_with(&format!(", not '{shown}'"));
            assert!(is_named, "{error}");
        }
    });
}

#[test]
fn no_whole_second_is_allowed_where_the_longest_lease_is_shorter() {
    let short = |_| 999;
    let request = |word| {
        let mut parsed = Parsed::default();
        let words = ["DLOCK.ACQUIRE", "k", word, "1"];
        parse(row(words[0]), &Words::of(&words), short, &mut parsed)
    };
    assert_eq!(request("PX"), Ok(()));
    let error = "ERR EX is an integer of seconds, of which not even 1 is allowed (dsync.max-lease-ms), not '1'";
    assert_eq!(request("EX"), Err(error.to_owned()));
}

#[test]
fn text_is_accepted_within_its_bounds() {
    with_each_argument(|arg, max, request| {
        let Kind::Text(TextSpec { into, min, .. }) = arg.kind else {
            return;
        };
        let text = |length: u64| &*"x".repeat(length as usize).leak();
        for length in [min, max] {
            let found = parsed_words(&request(text(length))).expect("in bounds");
            assert_eq!(found.text(into), Some(text(length).as_bytes()));
        }
        for length in [min.checked_sub(1), Some(max + 1)].into_iter().flatten() {
            let error = refused(&request(text(length)));
            let (start, end) = (
                format!("ERR {} has ", arg.error_name),
                format!(", not {length}"),
            );
            assert!(
                error.starts_with(&start) && error.ends_with(&end),
                "{error}"
            );
        }
    });
}

/// Each form of an error text. The bounds of all arguments in figures are on the pages in docs/commands.
#[rustfmt::skip]
#[test]
fn parser_reports_the_first_mistake_from_the_left() {
    let (long, longer) = ("x".repeat(129), "x".repeat(65_537));
    let (cursor, pattern) = ("1".repeat(33), "x".repeat(1_025));
    for (line, error) in [
        ("DLOCK.ACQUIRE", "wrong number of arguments for 'DLOCK.ACQUIRE' command"),
        ("DLOCK.RELEASE k t x", "wrong number of arguments for 'DLOCK.RELEASE' command"),
        ("DLOCK.RENEW k t EX 0 WHAT", "EX is an integer of 1 to 86400 seconds (dsync.max-lease-ms), not '0'"),
        ("DLOCK.RENEW k t WHAT EX 0", "syntax error: 'WHAT' is not an option here; the options are EX, PX"),
        ("DLOCK.RENEW k t EX 5 PX", "syntax error: EX or PX is given twice"),
        ("DONCE.DONE k t EX 5 RESULT r PERSIST", "syntax error: EX, PX or PERSIST is given twice"),
        ("DONCE.DONE k t PERSIST 5", "syntax error: '5' is not an option here; the options are RESULT, EX, PX, PERSIST"),
        ("DLOCK.ACQUIRE k BLOCK", "syntax error: BLOCK has no value"),
        ("DLOCK.ACQUIRE k PX 0", "PX is an integer of 1 to 86400000 milliseconds (dsync.max-lease-ms), not '0'"),
        ("DLOCK.ACQUIRE k BLOCK -1", "BLOCK is an integer of 0 to 9007199254740991 milliseconds, not '-1'"),
        ("DONCE.DONE k t EX 0", "EX is an integer of 1 to 315360000 seconds, not '0'"),
        ("DSEM.LIMIT k some", "the limit is an integer of 0 to 1000000 permits, or NONE, not 'some'"),
        ("DLOCK.REVOKE k 0", "a fence is an integer of 1 to 9007199254740991, not '0'"),
        ("DLOCK.CHECK k ", "a token has 1 to 128 bytes, not 0"),
        ("DWG.DONE k t ", "a token has 1 to 128 bytes, not 0"),
        ("DSYNC.HOLDS ", "a cursor has 1 to 32 bytes, not 0"),
        (&format!("DSYNC.HOLDS {cursor}"), "a cursor has 1 to 32 bytes, not 33"),
        (&format!("DSYNC.HOLDS 0 OWNER {pattern}"), "OWNER has at most 1024 bytes, not 1025"),
        (&format!("DLOCK.ACQUIRE k TOKEN {long}"), "a token has 1 to 128 bytes, not 129"),
        (&format!("DLOCK.ACQUIRE k OWNER {long}"), "OWNER has at most 128 bytes, not 129"),
        (&format!("DONCE.FAIL k t REASON {longer}"), "REASON has at most 65536 bytes (dsync.max-result-bytes), not 65537"),
        (&format!("DONCE.DONE k t RESULT {longer}"), "RESULT has at most 65536 bytes (dsync.max-result-bytes), not 65537"),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!(refused(&words), format!("ERR {error}"), "{line}");
    }
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
        let found = possible_secrets(row(name), &Words::of(&line.split(' ').collect::<Vec<_>>()));
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
        let found = possible_secrets(row(name), &Words::of(&line.split(' ').collect::<Vec<_>>()));
        assert_eq!(found, hidden, "{line}");
    }
}
