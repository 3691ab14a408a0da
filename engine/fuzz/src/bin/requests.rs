//! What the module makes of any words of a request, and of any pattern: the first byte chooses the command, and spaces
//! separate the words behind it. Without a server, from the sources of the module.
//!
//! - Nothing panics.
//! - A request that is understood has each number within its bounds, and its tokens are among what would be hidden if it
//!   was refused.
//! - The line of an error begins with its code, is printable, and says of a word that is longer than any option only how
//!   long it is.
//! - A pattern fits what it fits when every number of bytes is tried for each star.

#![no_main]
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the parser is a part of the module"
)]

use libfuzzer_sys::fuzz_target;

#[path = "../../../../src/module/mod.rs"]
mod module;

#[path = "../../../../src/commands"]
mod commands {
    mod acquire;
    mod apply;
    mod arguments;
    mod contended;
    mod docs;
    mod glob;
    mod grammar;
    mod group;
    mod holding;
    mod holds;
    mod info;
    mod lock;
    mod log;
    mod once;
    mod parse;
    mod parse_tests;
    mod register;
    mod row;
    mod semaphore;
    mod table;

    use glob::{Glob, fits_naively};
    use grammar::{IntegerSpec, Kind, Max};
    use parse::{parse, possible_secrets};
    use parse_tests::{Words, bound};
    use row::{Parsed, Row};
    use table::ROWS;

    /// The longest word that an error may repeat.
    const MAX_SHOWN: usize = 20;

    pub fn request(input: &[u8]) {
        let Some((choice, line)) = input.split_first() else {
            return;
        };
        let row = &ROWS[usize::from(*choice) % ROWS.len()];
        let mut words = vec![row.name.as_str().as_bytes()];
        words.extend(
            line.split(|byte| *byte == b' ')
                .filter(|word| !word.is_empty()),
        );
        let words = Words(words);
        let mut parsed = Parsed::default();
        let hidden = possible_secrets(row, &words);
        match parse(row, &words, bound, &mut parsed) {
            Ok(()) => {
                let all = parsed.secrets().all(|at| hidden.contains(&at));
                assert!(all, "a token would be shown");
                in_bounds(row, &parsed);
            }
            Err(line) => {
                assert!(line.starts_with("ERR ") && line.len() < 300, "{line}");
                assert!(
                    line.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
                    "{line}"
                );
                let others = vec![b'x'; input.len()];
                let veiled = words.0[1..]
                    .iter()
                    .map(|word| match word.len() > MAX_SHOWN {
                        true => &others[..word.len()],
                        false => word,
                    });
                let veiled = Words([words.0[0]].into_iter().chain(veiled).collect());
                let again = parse(row, &veiled, bound, &mut Parsed::default());
                assert_eq!(again, Err(line));
            }
        }
    }

    fn in_bounds(row: &Row, parsed: &Parsed<'_>) {
        let alternatives = |kind| match kind {
            Kind::OneOf(alternatives) => alternatives,
            _ => &[],
        };
        let args = row.args.iter();
        for arg in args.flat_map(|arg| alternatives(arg.kind).iter().chain([arg])) {
            let Kind::Integer(IntegerSpec { into, max, .. }) = arg.kind else {
                continue;
            };
            let max = match max {
                Max::Fixed(max) => max,
                Max::Setting(setting) => bound(setting),
            };
            // EX and PX lead to the same number, and have the same bound in milliseconds.
            assert!(
                parsed.number(into).is_none_or(|number| number <= max),
                "{}",
                arg.error_name
            );
        }
    }

    pub fn pattern(input: &[u8]) {
        let mut halves = input.splitn(2, |byte| *byte == b' ');
        let (Some(pattern), Some(text)) = (halves.next(), halves.next()) else {
            return;
        };
        let fits = Glob::new(pattern).fits(text);
        let is_plain = !pattern.iter().any(|byte| b"[\\".contains(byte));
        let stars = pattern.iter().filter(|byte| **byte == b'*').count();
        if is_plain && stars < 5 && text.len() < 24 {
            assert_eq!(fits, fits_naively(pattern, text));
        }
    }
}

fuzz_target!(|input: &[u8]| {
    commands::request(input);
    commands::pattern(input);
});
