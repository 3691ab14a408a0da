//! The times of the clients' protocol: each helper has them in one file, under the names and with the values of the table.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{files, read, root};

const PROTOCOL: &str = "clients/PROTOCOL.md";

/// Milliseconds by name; `None` for a time that is derived from others.
type Times = BTreeMap<String, Option<u64>>;

struct Language {
    /// As the table calls it.
    name: &'static str,
    sources: &'static str,
    times: &'static str,
    /// The unit of a number alone.
    unit: &'static str,
    /// The names and the values of a line that defines constants, each apart by `, `.
    definition: fn(&str) -> Option<(&str, &str)>,
    /// A constant's name as the table has it.
    plain: fn(&str) -> String,
}

const LANGUAGES: [Language; 4] = [
    Language {
        name: "Python",
        sources: "clients/python/src",
        times: "clients/python/src/dsync/_times.py",
        unit: "s",
        definition: |line| line.split_once(" = "),
        plain: str::to_owned,
    },
    Language {
        name: "Node.js",
        sources: "clients/node/src",
        times: "clients/node/src/times.ts",
        unit: "ms",
        definition: |line| {
            let line = line.strip_prefix("export ").unwrap_or(line);
            line.strip_prefix("const ")?.split_once(" = ")
        },
        plain: |name| name.strip_suffix("_MS").unwrap_or(name).to_owned(),
    },
    Language {
        name: "Rust",
        sources: "clients/rust/src",
        times: "clients/rust/src/times.rs",
        unit: "",
        definition: |line| {
            let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
            line.strip_prefix("const ")?.split_once(": Duration =")
        },
        plain: str::to_owned,
    },
    Language {
        name: "Go",
        sources: "clients/go",
        times: "clients/go/times.go",
        unit: "",
        definition: |line| {
            let line = line.strip_prefix("const ").unwrap_or(line.trim_start());
            line.split_once(" = ")
                .filter(|(_, value)| value.contains("time."))
        },
        plain: snake_case,
    },
];

/// `firstPause` as `FIRST_PAUSE`.
fn snake_case(name: &str) -> String {
    let signs = name.chars().flat_map(|sign| {
        let before = sign.is_uppercase().then_some('_');
        before.into_iter().chain(sign.to_uppercase())
    });
    signs.collect()
}

/// `2 s`, `0.05` in the unit of the language, `500 * time.Millisecond`, `Duration::from_secs(5)`.
fn milliseconds(value: &str, unit: &str) -> Option<u64> {
    let value = value.trim().trim_end_matches(';');
    let (number, unit) = if let Some(value) = value.strip_prefix("Duration::from_") {
        let (unit, number) = value.split_once('(')?;
        (number.strip_suffix(')')?, unit)
    } else {
        let parts = value.split_once(" * ").or(value.split_once(' '));
        parts.unwrap_or((value, unit))
    };
    let number: f64 = number.replace('_', "").parse().ok()?;
    match unit {
        "s" | "secs" | "time.Second" => Some((number * 1_000.0).round() as u64),
        "ms" | "millis" | "time.Millisecond" => Some(number.round() as u64),
        _ => None,
    }
}

/// The times of the table that a language has. The last column names those that lack one.
fn of_table(page: &str, language: &str) -> Times {
    let chapter = page.split("\n## Times\n").nth(1).expect("a chapter");
    let table = chapter.lines().skip_while(|line| !line.starts_with('|'));
    let mut times = Times::new();
    for row in table.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let names = cells[1].split('`').skip(1).step_by(2);
        for (name, value) in names.zip(cells[2].split(", ")) {
            if !cells[4].contains(language) {
                times.insert(name.to_owned(), milliseconds(value, ""));
            }
        }
    }
    times
}

/// The constants that a source defines.
fn of_source(source: &str, language: &Language) -> Times {
    let mut times = Times::new();
    for (names, values) in source.lines().filter_map(language.definition) {
        for (name, value) in names.split(", ").zip(values.split(", ")) {
            let time = milliseconds(value, language.unit);
            times.insert((language.plain)(name.trim()), time);
        }
    }
    times
}

#[test]
fn every_helper_has_the_times_of_the_protocol_in_one_file() {
    let page = read(Path::new(PROTOCOL));
    for language in &LANGUAGES {
        let table = of_table(&page, language.name);
        let found = of_source(&read(Path::new(language.times)), language);
        assert_eq!(found, table, "{} beside {PROTOCOL}", language.times);
        let mut sources = Vec::new();
        files(&root().join(language.sources), &mut sources);
        sources.retain(|path| !path.ends_with(language.times) && !path.contains("_test."));
        let all = of_table(&page, "no language");
        for path in sources {
            let Ok(source) = std::fs::read_to_string(&path) else {
                continue;
            };
            let mut again = of_source(&source, language);
            again.retain(|name, _| all.contains_key(name));
            assert!(again.is_empty(), "{path} defines {again:?} again");
        }
    }
}

#[test]
fn times_are_read_in_each_spelling() {
    let expected = Times::from([
        ("FIRST_PAUSE".to_owned(), Some(50)),
        ("LEASE".to_owned(), Some(30_000)),
    ]);
    let sources = [
        "FIRST_PAUSE, LEASE = 0.05, 30.0\n",
        "export const FIRST_PAUSE_MS = 50;\nconst LEASE_MS = 30_000;\n",
        "pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(50);\nconst LEASE: Duration = Duration::from_secs(30);\n",
        "const firstPause = 50 * time.Millisecond\n\tlease      = 30 * time.Second\n",
    ];
    for (language, source) in LANGUAGES.iter().zip(sources) {
        assert_eq!(of_source(source, language), expected, "{}", language.name);
    }
    let table = "\n## Times\n\n| name | | | not in |\n|---|---|---|---|\n| `FIRST_PAUSE`, `LEASE` | 50 ms, 30 s | | Go |\n";
    assert_eq!(of_table(table, "Rust"), expected);
    assert_eq!(of_table(table, "Go"), Times::new());
}
