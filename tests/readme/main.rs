//! The documents name tests that stand behind their claims, functions and source files, and link to each other. All of
//! that exists, and README stays short.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unreachable,
    clippy::unwrap_used,
    reason = "a test that fails panics and says why"
)]

mod code;
mod length;
mod questions;
mod times;
mod track_record;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// Documents in which at least one claim names its test.
const CLAIMING: [&str; 15] = [
    "README.md",
    "ARCHITECTURE.md",
    "TRACK-RECORD.md",
    "tests/README.md",
    "docs/locks.md",
    "docs/semaphores.md",
    "docs/fair-shares.md",
    "docs/groups.md",
    "docs/once.md",
    "docs/waiting.md",
    "docs/queue.md",
    "docs/guarantees.md",
    "docs/failover.md",
    "docs/sentinel.md",
    "docs/cluster.md",
];

/// Documents that name source files, in full or by the end of their paths.
const GUIDES: [&str; 6] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/server-facts.md",
    "docs/tour.md",
    "tests/README.md",
    "tests/golden/README.md",
];
const STORIES: &str = "tests/server";
const SOURCES: [&str; 3] = ["src", "engine/src", "engine/tests"];

/// Crates whose items documents name in the same way as tests.
const CRATES: [&str; 5] = ["dsync", "dsync_client", "redis", "std", "tokio"];

/// The pages of the site, in their order.
const CONTENTS: &str = "docs/SUMMARY.md";

/// A reader who has a minute reads this much.
const README_BYTES: usize = 8192;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All documents of the project, by their paths from its root.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules"
            {
                folders.push(path);
            } else if name.ends_with(".md") {
                found.push(
                    path.strip_prefix(root())
                        .expect("below the root")
                        .to_owned(),
                );
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn parsed(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES)
}

/// Every `file::test` or `file::function` between backquotes.
fn named(text: &str) -> BTreeSet<(String, String)> {
    let is_name = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    parsed(text)
        .filter_map(|event| match event {
            Event::Code(code) => Some(code),
            _ => None,
        })
        .filter_map(|code| {
            let (file, name) = code.split_once("::")?;
            Some((file.to_owned(), name.to_owned()))
        })
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
    let (mut tests, mut functions) = (BTreeMap::new(), BTreeMap::new());
    collect(&root().join(STORIES), &mut tests);
    for folder in SOURCES {
        collect(&root().join(folder), &mut functions);
    }
    let has = |texts: &BTreeMap<String, String>, file: &str, text: &str| {
        texts.get(file).is_some_and(|found| found.contains(text))
    };
    for document in documents() {
        let mut missing = named(&read(&document));
        let is_claiming = CLAIMING
            .iter()
            .any(|claiming| document == Path::new(claiming));
        assert!(
            !missing.is_empty() || !is_claiming,
            "{document:?} names no test"
        );
        missing.retain(|(file, name)| {
            !CRATES.contains(&file.as_str())
                && !has(&tests, file, &format!("#[test]\nfn {name}()"))
                && !has(&functions, file, &format!("fn {name}("))
                && !has(&functions, file, &format!("fn {name}<"))
        });
        assert!(missing.is_empty(), "{document:?} names {missing:#?}");
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
    let mut sources = Vec::new();
    for folder in ["cli/src", "src", "engine", "tests", "scripts"] {
        files(&root().join(folder), &mut sources);
    }
    for guide in GUIDES {
        let text = read(Path::new(guide));
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

/// The end of a link to this heading, as GitHub makes it from its text.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c => c.is_alphanumeric().then_some(c),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// What a document offers to links, and where its own lead.
#[derive(Default)]
struct Page {
    anchors: BTreeSet<String>,
    links: Vec<String>,
    /// Footnotes that the text refers to, and footnotes that are written.
    referred: BTreeSet<String>,
    footnotes: BTreeSet<String>,
    /// Text that was meant to be a link to a footnote, but none has that name.
    dangling: Vec<String>,
}

impl Page {
    fn of(text: &str) -> Page {
        let mut page = Page::default();
        let mut repeated = HashMap::<String, usize>::new();
        let mut heading = None::<String>;
        let mut plain = String::new();
        for event in parsed(text) {
            match &event {
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(part);
                    }
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let base = anchor(&heading.take().unwrap_or_default());
                    let before = repeated.entry(base.clone()).or_default();
                    page.anchors.insert(match *before {
                        0 => base,
                        n => format!("{base}-{n}"),
                    });
                    *before += 1;
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.to_string());
                }
                Event::FootnoteReference(name) => drop(page.referred.insert(name.to_string())),
                Event::Start(Tag::FootnoteDefinition(name)) => {
                    page.footnotes.insert(name.to_string());
                }
                _ => {}
            }
            match event {
                Event::Text(part) => plain.push_str(&part),
                _ => {
                    page.dangling
                        .extend(plain.contains("[^").then(|| plain.clone()));
                    plain.clear();
                }
            }
        }
        page
    }
}

/// Why this link of this document leads nowhere; `None` if it leads somewhere, or to another site.
fn broken(document: &Path, link: &str, pages: &BTreeMap<PathBuf, Page>) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let folder = root().join(document.parent().expect("a folder"));
    let target = if path.is_empty() {
        root().join(document)
    } else {
        folder.join(path)
    };
    let Ok(target) = target.canonicalize() else {
        return Some(format!("{link}: no such file"));
    };
    if anchor.is_empty() {
        return None;
    }
    let real_root = root().canonicalize().expect("the root");
    let page = target
        .strip_prefix(real_root)
        .ok()
        .and_then(|path| pages.get(path));
    match page {
        Some(page) if page.anchors.contains(anchor) => None,
        _ => Some(format!("{link}: no such heading")),
    }
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let pages: BTreeMap<_, _> = documents()
        .into_iter()
        .map(|path| (path.clone(), Page::of(&read(&path))))
        .collect();
    let mut wrong = Vec::new();
    for (document, page) in &pages {
        let links = page.links.iter();
        let broken = links.filter_map(|link| broken(document, link, &pages));
        wrong.extend(broken.map(|why| format!("{}: {why}", document.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The site has no page that is not in its contents, and no page twice. The pages of the commands are those of their index,
/// which `command_pages` compares with the folder; scripts/docs.sh puts them into the contents.
#[test]
fn contents_have_every_document_once() {
    let contents = Page::of(&read(Path::new(CONTENTS)));
    let mut listed: Vec<_> = (contents.links.iter())
        .map(|link| match link.strip_prefix("../") {
            Some(path) => PathBuf::from(path),
            None => Path::new("docs").join(link),
        })
        .collect();
    listed.sort();
    let commands = Path::new("docs/commands");
    let is_of_command =
        |path: &PathBuf| path.parent() == Some(commands) && !path.ends_with("README.md");
    let mut documents = documents();
    documents.retain(|path| path != Path::new(CONTENTS) && !is_of_command(path));
    assert_eq!(listed, documents);
}

#[test]
fn index_of_docs_has_every_page() {
    let index = Page::of(&read(Path::new("docs/README.md")));
    let pages = documents()
        .into_iter()
        .filter(|path| path.parent() == Some(Path::new("docs")));
    let names = pages.map(|path| {
        path.file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    });
    let missing: Vec<_> = names
        .filter(|name| !["README.md", "SUMMARY.md"].contains(&&**name))
        .filter(|name| !index.links.contains(name))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/README.md has no link to {missing:?}"
    );
}

#[test]
fn every_footnote_is_written_and_referred_to() {
    for document in documents() {
        let page = Page::of(&read(&document));
        assert_eq!(
            page.dangling,
            Vec::<String>::new(),
            "{document:?} has no such footnote"
        );
        assert_eq!(
            page.referred, page.footnotes,
            "{document:?}: referred to, and written"
        );
    }
}

#[test]
fn readme_is_read_in_a_minute() {
    let bytes = read(Path::new("README.md")).len();
    assert!(
        bytes <= README_BYTES,
        "README.md has {bytes} bytes, more than {README_BYTES}"
    );
}

#[test]
fn names_are_found_between_backquotes_only() {
    let text = "`a::b_1` a::c `CLIENT::X` `x.y::z`\n```\nf::g\n```\n(`d::e`, `f`)";
    let names = [("a", "b_1"), ("d", "e")].map(|(file, name)| (file.to_owned(), name.to_owned()));
    assert_eq!(named(text), BTreeSet::from(names));
}

#[test]
fn anchors_are_those_of_github() {
    let text = "# What is lost, and what is not\n## `WAIT` and WAITAOF\n## Twice\n## Twice\n";
    let anchors = [
        "twice",
        "twice-1",
        "wait-and-waitaof",
        "what-is-lost-and-what-is-not",
    ];
    assert_eq!(
        Page::of(text).anchors,
        BTreeSet::from(anchors.map(str::to_owned))
    );
}

#[test]
fn broken_links_and_footnotes_are_found() {
    let text = "[a](#here) [b](#there) [c](none.md) [d](https://example.org/none) x[^1] y[^2]\n\n# Here\n\n[^1]: z\n";
    let path = PathBuf::from("README.md");
    let pages = BTreeMap::from([(path.clone(), Page::of(text))]);
    let page = &pages[&path];
    let links = page.links.iter();
    let found: Vec<_> = links
        .filter_map(|link| broken(&path, link, &pages))
        .collect();
    assert_eq!(found, ["#there: no such heading", "none.md: no such file"]);
    assert_eq!(page.referred, page.footnotes);
    assert_eq!(page.dangling.len(), 1, "{:?}", page.dangling);
}
