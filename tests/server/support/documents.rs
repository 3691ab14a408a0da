//! The project's documents, for tests of what they tell users to type.

use std::path::Path;

/// The text of a document, by its path in the repository.
#[track_caller]
pub fn document(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The blocks between lines of three backquotes, without the indentation of the list that a block stands in, and
/// without the first line's language.
pub fn blocks(document: &str) -> Vec<String> {
    let (mut blocks, mut open) = (Vec::new(), None);
    for line in document.lines() {
        let indented = line.len() - line.trim_start().len();
        match &mut open {
            None if line.trim_start().starts_with("```") => open = Some((indented, String::new())),
            None => {}
            Some((_, text)) if line.trim() == "```" => {
                blocks.push(std::mem::take(text));
                open = None;
            }
            Some((depth, text)) => {
                text.push_str(line.get(*depth..).unwrap_or_default());
                text.push('\n');
            }
        }
    }
    blocks
}

/// The ACL rules of docs/acl.md as `ACL SETUSER` takes them, each with the password `secret`. `how` is a text of the
/// heading under which they stand.
#[track_caller]
pub fn acl_users(how: &str) -> Vec<String> {
    let page = document("docs/acl.md");
    let chapter = page.split("\n## ").find(|chapter| {
        chapter
            .lines()
            .next()
            .is_some_and(|title| title.contains(how))
    });
    let chapter = chapter.unwrap_or_else(|| panic!("no chapter {how:?}"));
    let lines = blocks(chapter).concat();
    let users = lines.lines().filter_map(|line| line.strip_prefix("user "));
    let users: Vec<_> = users
        .map(|user| user.replace(">change-me", ">secret"))
        .collect();
    assert_eq!(users.len(), 4, "{how}: {users:?}");
    users
}

/// A line that a document tells somebody to type.
#[derive(Debug)]
pub struct Typed {
    pub user: String,
    pub command: String,
}

/// Every line of a block that begins with a prompt such as `operator> `. A comment stands behind it after two
/// spaces or more.
pub fn typed_lines(document: &str) -> Vec<Typed> {
    let blocks = blocks(document).concat();
    let prompts = blocks.lines().filter_map(|line| line.split_once("> "));
    prompts
        .filter(|(user, _)| !user.is_empty() && user.bytes().all(|b| b.is_ascii_lowercase()))
        .map(|(user, rest)| Typed {
            user: user.to_owned(),
            command: rest.split("  ").next().unwrap_or_default().to_owned(),
        })
        .collect()
}
