//! Reads the pages in `docs/commands`: their grammar, tables, sessions and links.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const FOLDER: &str = "docs/commands";

/// A page as a reader finds his way in it.
#[derive(Default)]
pub struct Page {
    pub file: String,
    pub title: String,
    /// The commands of the first block, each with what stands behind its name.
    pub syntax: Vec<(String, String)>,
    /// The rows of the tables below each heading, without the head of the table, as texts of cells.
    rows: BTreeMap<String, Vec<Vec<String>>>,
    /// The lines of the sessions.
    pub sessions: Vec<String>,
    pub links: BTreeSet<String>,
    /// All that is neither a mark nor the address of a link.
    pub text: String,
}

impl Page {
    fn read(path: &Path) -> Page {
        let text = fs::read_to_string(path).expect("a page");
        let mut page = Page {
            file: path.file_name().expect("a name").to_string_lossy().into(),
            ..Page::default()
        };
        let (mut heading, mut block, mut written) = (String::new(), String::new(), String::new());
        let mut row = Vec::new();
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
            match event {
                Event::Text(part) | Event::Code(part) => {
                    written += &part;
                    page.text += &format!("{part} ");
                }
                Event::Start(Tag::Link { dest_url, .. }) => {
                    page.links.insert(dest_url.to_string());
                }
                Event::Start(Tag::Heading { .. } | Tag::TableCell) => written.clear(),
                Event::End(TagEnd::Heading(_)) if page.title.is_empty() => {
                    page.title = written.clone();
                }
                Event::End(TagEnd::Heading(_)) => heading = written.clone(),
                Event::End(TagEnd::TableCell) => row.push(written.clone()),
                Event::End(TagEnd::TableHead) => row.clear(),
                Event::End(TagEnd::TableRow) => {
                    let rows = page.rows.entry(heading.clone()).or_default();
                    rows.push(std::mem::take(&mut row));
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    block = info.to_string();
                    written.clear();
                }
                Event::End(TagEnd::CodeBlock) if block.starts_with("redis-cli") => {
                    page.sessions.extend(written.lines().map(str::to_owned));
                }
                Event::End(TagEnd::CodeBlock) if page.syntax.is_empty() => {
                    let lines = written.replace("\n    ", " ");
                    let lines = lines.lines().filter_map(|line| line.split_once(' '));
                    page.syntax = lines.map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
                }
                _ => {}
            }
        }
        page
    }

    pub fn rows(&self, heading: &str) -> &[Vec<String>] {
        self.rows.get(heading).map_or(&[], Vec::as_slice)
    }

    /// The text beside this word in the table above the first heading.
    pub fn fact(&self, what: &str) -> &str {
        let row = self.rows("").iter().find(|row| row[0] == what);
        &row.unwrap_or_else(|| panic!("{}: nothing of {what}", self.file))[1]
    }

    /// The errors that the page lists, without the three dots that stand for the rest of a text.
    pub fn errors(&self) -> Vec<&str> {
        let rows = self.rows("Errors").iter();
        rows.map(|row| row[0].trim_end_matches('…')).collect()
    }
}

/// The pages of commands, and the one that lists them.
pub fn pages() -> (Vec<Page>, Page) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let files = fs::read_dir(folder).expect(FOLDER);
    let pages = files.map(|entry| Page::read(&entry.expect("an entry").path()));
    let (mut index, pages): (Vec<_>, _) = pages.partition(|page| page.file == "README.md");
    (pages, index.pop().expect("an index"))
}
