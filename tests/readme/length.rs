//! A page that users read is read in one go: it has at most 1,800 words. Code that it shows is looked at rather than read,
//! and footnotes name tests, so neither counts.

use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Tag, TagEnd};

use crate::{documents, parsed, read};

const MOST_WORDS: usize = 1800;

/// The longest that the changelog says of one version, in lines, so that what a user gains is seen at once.
const MOST_LINES: usize = 120;

/// Pages in which something is looked up; the other pages link to their chapters.
const REFERENCES: [&str; 6] = [
    "cli/README.md",
    "docs/server-facts.md",
    "docs/benchmarks-appendix.md",
    "TRACK-RECORD.md",
    "clients/PROTOCOL.md",
    "CHANGELOG.md",
];

/// Pages for those who change dsync.
const OF_DEVELOPERS: [&str; 5] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "benches/README.md",
    "tests/README.md",
    "tests/golden/README.md",
];

/// The words of text, tables and headings.
fn words(text: &str) -> usize {
    let mut words = 0;
    let mut unread = 0;
    for event in parsed(text) {
        match event {
            Event::Start(Tag::CodeBlock(_) | Tag::FootnoteDefinition(_)) => unread += 1,
            Event::End(TagEnd::CodeBlock | TagEnd::FootnoteDefinition) => unread -= 1,
            Event::Text(part) | Event::Code(part) if unread == 0 => {
                let part = part.split_whitespace();
                words += part
                    .filter(|word| word.contains(char::is_alphanumeric))
                    .count();
            }
            _ => {}
        }
    }
    words
}

#[test]
fn no_page_of_users_has_more_than_1800_words() {
    let excepted = |page: &PathBuf| {
        let mut names = REFERENCES.iter().chain(&OF_DEVELOPERS);
        names.any(|name| page == Path::new(name))
    };
    let mut pages = documents();
    let all = pages.len();
    pages.retain(|page| !excepted(page));
    assert_eq!(pages.len() + REFERENCES.len() + OF_DEVELOPERS.len(), all);
    let long: Vec<_> = (pages.iter())
        .map(|page| (words(&read(page)), page))
        .filter(|(words, _)| *words > MOST_WORDS)
        .collect();
    assert!(long.is_empty(), "more than {MOST_WORDS} words: {long:#?}");
}

#[test]
fn changelog_has_at_most_120_lines_for_a_version() {
    let text = read(Path::new("CHANGELOG.md"));
    for version in text.split("\n## ").skip(1) {
        let lines = version.lines().count();
        let name = version.lines().next().unwrap_or_default();
        assert!(lines <= MOST_LINES, "{name}: {lines} lines");
    }
}

#[test]
fn code_and_footnotes_are_no_words_of_a_page() {
    let page = "# One two\n\nthree [four](no.md) `five` - six[^a]\n\n```\nno\n```\n\n| seven |\n|---|\n| eight |\n\n[^a]: no\n";
    assert_eq!(words(page), 8);
}
