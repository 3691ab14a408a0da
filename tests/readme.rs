//! The documents name the tests that stand behind their claims. Each of these tests exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const DOCUMENTS: [&str; 2] = ["README.md", "ARCHITECTURE.md"];
const STORIES: &str = "tests/server";

/// Every `story::test` between backquotes.
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
        .filter(|(story, test)| is_name(story) && is_name(test))
        .collect()
}

/// The text of all files with the same name, by that name without `.rs`. A folder that begins with its `mod.rs` has the
/// folder's name.
fn stories(folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder of stories") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            stories(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let named = if path.ends_with("mod.rs") {
                folder
            } else {
                &path
            };
            let name = named.file_stem().expect("a name").to_string_lossy();
            let text = fs::read_to_string(&path).expect("a story");
            found.entry(name.into_owned()).or_default().push_str(&text);
        }
    }
}

#[test]
fn every_test_that_a_document_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut stories_by_name = BTreeMap::new();
    stories(&root.join(STORIES), &mut stories_by_name);
    for document in DOCUMENTS {
        let text = fs::read_to_string(root.join(document)).expect(document);
        let named = named(&text);
        assert!(!named.is_empty(), "{document} names no test");
        let missing: Vec<_> = named
            .iter()
            .filter(|(story, test)| {
                let text = stories_by_name.get(*story);
                !text.is_some_and(|text| text.contains(&format!("#[test]\nfn {test}()")))
            })
            .collect();
        assert!(missing.is_empty(), "{document} names {missing:#?}");
    }
}

#[test]
fn names_are_found_between_backquotes_only() {
    let text = "`a::b_1` a::c `CLIENT::X` `x.y::z` ```\nfenced\n``` (`d::e`, `f`)";
    assert_eq!(named(text), BTreeSet::from([("a", "b_1"), ("d", "e")]));
}
