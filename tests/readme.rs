//! The README names the tests that stand behind its claims. Each of them is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const README: &str = "README.md";
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

#[test]
fn every_test_that_the_readme_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join(README)).expect(README);
    let named = named(&readme);
    assert!(named.len() > 20, "only {} tests are named", named.len());
    let missing: Vec<_> = named
        .iter()
        .filter(|(story, test)| {
            // A story is a file, or a folder that begins with its mod.rs.
            let files = [format!("{story}.rs"), format!("{story}/mod.rs")];
            !files.iter().any(|file| {
                let source = fs::read_to_string(root.join(STORIES).join(file)).unwrap_or_default();
                source.contains(&format!("#[test]\nfn {test}()"))
            })
        })
        .collect();
    assert!(missing.is_empty(), "not there: {missing:#?}");
}

#[test]
fn names_are_found_between_backquotes_only() {
    let text = "`a::b_1` a::c `CLIENT::X` `x.y::z` ```\nfenced\n``` (`d::e`, `f`)";
    assert_eq!(named(text), BTreeSet::from([("a", "b_1"), ("d", "e")]));
}
