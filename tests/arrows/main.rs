//! Checks which source files use which: only `commands → module → engine`, and never in a circle.
//!
//! There is an arrow from a file to each one that defines what it uses:
//! - by a path, in a `use` or inline. A re-export (`pub use`) is no arrow; a path through it leads to the file that
//!   defines the name. So a root (`lib.rs`, `mod.rs`, `x.rs` of `x/`) that only declares and re-exports is in no
//!   circle, and one whose own code uses its files counts like any other;
//! - by a method or a constant of a type, to the file with that `impl`: `self.f()`, `Type::f()`, and `x.f()` where the
//!   type of `x` is seen. It is seen by its declaration, by fields, by what functions return, inside of `Option`,
//!   `Result`, `Arc` and the like, and as the parameter of a closure.
//!
//! Not seen: methods of values whose type is a generic parameter, is bound by a pattern of ours (`Body::Lock(lock)`),
//! or is that of an `if` or a `match`; code that a macro makes, and methods in the tokens of a macro that are no
//! expressions; which `impl` of a trait is called through the trait. Unit tests are not read.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unreachable,
    clippy::unwrap_used,
    reason = "a test that fails panics and says why"
)]

mod circles;
mod examples;
mod names;
mod scope;
mod types;
mod uses;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use circles::{circles, describe};
use names::Sources;
use uses::{Arrows, arrows};

/// Files in the first folder may not use files in the second, except those that are in the first as well.
const FORBIDDEN: [(&str, &str); 3] = [
    ("src/module/", "src/commands/"),
    ("src/module/redis/", "src/module/"),
    ("src/module/redis/", "engine/"),
];

/// The files of each circle that ARCHITECTURE.md defends, two circles at most.
const DEFENDED: &[&[&str]] = &[];

/// Reads all crates: each is a folder of the repository, or a folder in one.
fn read_all() -> Sources {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let top = folders_in(repository, "");
    let inner = top.iter().flat_map(|folder| folders_in(repository, folder));
    let mut sources = Sources::default();
    for folder in inner.chain(top.clone()).chain([String::new()]) {
        let Ok(manifest) = fs::read_to_string(repository.join(&folder).join("Cargo.toml")) else {
            continue;
        };
        let name = manifest
            .split_once("\nname = \"")
            .and_then(|(_, rest)| rest.split_once('"'));
        let name = name.expect("the name of a crate").0.replace('-', "_");
        let roots = ["lib", "main"].map(|root| format!("{folder}src/{root}.rs"));
        let root = roots.iter().find(|root| repository.join(root).exists());
        let read = |file: &str| fs::read_to_string(repository.join(file)).ok();
        sources.add(vec![name], root.expect("the root of a crate"), &read);
    }
    sources
}

/// The folders in a folder, but hidden ones and what is built.
fn folders_in(repository: &Path, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(repository.join(folder)).expect("a folder");
    let folders = entries.filter_map(|entry| {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name");
        let is_ours = !name.starts_with('.') && name != "target" && entry.path().is_dir();
        is_ours.then(|| format!("{folder}{name}/"))
    });
    folders.collect()
}

/// The arrows that [`FORBIDDEN`] forbids.
fn forbidden(arrows: &Arrows) -> Vec<String> {
    let is_forbidden = |from: &str, to: &str| {
        let is = |(one, other): &(&str, &str)| {
            from.starts_with(one) && to.starts_with(other) && !to.starts_with(one)
        };
        FORBIDDEN.iter().any(is)
    };
    let found = arrows
        .iter()
        .filter(|((from, to), _)| is_forbidden(from, to));
    found
        .map(|((from, to), example)| example.describe(from, to))
        .collect()
}

#[test]
fn arrows_lead_from_commands_to_module_to_engine() {
    let arrows = arrows(&read_all());
    // Arrows that must be found: otherwise this test checks nothing.
    for (from, to) in [
        ("src/commands/", "src/module/"),
        ("src/module/", "src/module/redis/"),
        ("src/module/", "engine/src/"),
        ("cli/src/", "clients/rust/src/sync/"),
        ("benches/src/lines/", "benches/src/bench.rs"),
    ] {
        let is_found = |(one, other): &(String, String)| {
            one.starts_with(from) && other.starts_with(to) && !one.starts_with(to)
        };
        assert!(arrows.keys().any(is_found), "no arrow {from} → {to}");
    }
    let found = forbidden(&arrows);
    assert!(found.is_empty(), "forbidden arrows:\n{}", found.join("\n"));
}

#[test]
fn no_file_uses_one_that_uses_it() {
    let arrows = arrows(&read_all());
    let found = circles(&arrows);
    let known: Vec<BTreeSet<String>> = (DEFENDED.iter())
        .map(|circle| circle.iter().map(ToString::to_string).collect())
        .collect();
    let new: Vec<String> = (found.iter())
        .filter(|circle| !known.contains(circle))
        .map(|circle| describe(&arrows, circle))
        .collect();
    assert!(
        new.is_empty(),
        "{}\nMove what two files use of each other into one of them, or into a file that both use.",
        new.join("\n")
    );
    for circle in known {
        assert!(
            found.contains(&circle),
            "this circle is mended, so delete it here: {circle:#?}"
        );
    }
}

#[test]
fn circles_that_stay_are_two_at_most_and_named_in_architecture() {
    let text = include_str!("../../ARCHITECTURE.md");
    assert!(DEFENDED.len() <= 2, "{DEFENDED:#?}");
    for file in DEFENDED.iter().copied().flatten() {
        assert!(text.contains(file), "ARCHITECTURE.md does not name {file}");
    }
}
