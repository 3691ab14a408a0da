//! The documents name tests that stand behind their claims, functions and source files. All of them exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const DOCUMENTS: [&str; 3] = ["README.md", "ARCHITECTURE.md", "tests/README.md"];

/// Documents that name source files, in full or by the end of their paths.
const GUIDES: [&str; 5] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/server-facts.md",
    "tests/README.md",
    "tests/golden/README.md",
];
const STORIES: &str = "tests/server";
const SOURCES: [&str; 2] = ["src", "engine/src"];

/// Every `file::test` or `file::function` between backquotes.
fn named(text: &str) -> BTreeSet<(&str, &str)> {
    let is_name = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|code| code.split_once("::"))
        .filter(|(file, name)| is_name(file) && is_name(name))
        .collect()
}

/// The text of all files with the same name, by that name without `.rs`. A folder that begins with its `mod.rs` has the
/// folder's name.
fn collect(folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let named = if path.ends_with("mod.rs") {
                folder
            } else {
                &path
            };
            let name = named.file_stem().expect("a name").to_string_lossy();
            let text = fs::read_to_string(&path).expect("a source");
            found.entry(name.into_owned()).or_default().push_str(&text);
        }
    }
}

#[test]
fn every_test_and_function_that_a_document_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut tests, mut functions) = (BTreeMap::new(), BTreeMap::new());
    collect(&root.join(STORIES), &mut tests);
    for folder in SOURCES {
        collect(&root.join(folder), &mut functions);
    }
    let has = |texts: &BTreeMap<String, String>, file: &str, text: &str| {
        texts.get(file).is_some_and(|found| found.contains(text))
    };
    for document in DOCUMENTS {
        let text = fs::read_to_string(root.join(document)).expect(document);
        let named = named(&text);
        assert!(!named.is_empty(), "{document} names no test");
        let missing: Vec<_> = named
            .iter()
            .filter(|(file, name)| {
                !has(&tests, file, &format!("#[test]\nfn {name}()"))
                    && !has(&functions, file, &format!("fn {name}("))
                    && !has(&functions, file, &format!("fn {name}<"))
            })
            .collect();
        assert!(missing.is_empty(), "{document} names {missing:#?}");
    }
}

/// Every `path/to/file.rs` or `file.sh` between backquotes.
fn named_files(text: &str) -> BTreeSet<&str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| !code.contains([' ', '\n', '*', '<']))
        .filter(|code| code.ends_with(".rs") || code.ends_with(".sh"))
        .collect()
}

fn files(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path.to_string_lossy().into_owned());
        }
    }
}

#[test]
fn every_source_file_that_a_guide_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    for folder in ["src", "engine", "tests", "scripts"] {
        files(&root.join(folder), &mut sources);
    }
    for guide in GUIDES {
        let text = fs::read_to_string(root.join(guide)).expect(guide);
        let missing: Vec<_> = named_files(&text)
            .into_iter()
            .filter(|name| {
                let end = format!("/{name}");
                !sources.iter().any(|source| source.ends_with(&end))
            })
            .collect();
        assert!(missing.is_empty(), "{guide} names {missing:?}");
    }
}

#[test]
fn names_are_found_between_backquotes_only() {
    let text = "`a::b_1` a::c `CLIENT::X` `x.y::z` ```\nfenced\n``` (`d::e`, `f`)";
    assert_eq!(named(text), BTreeSet::from([("a", "b_1"), ("d", "e")]));
}
