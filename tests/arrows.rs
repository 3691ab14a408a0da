//! The arrows between source files: `commands → module → engine`, and nowhere a circle.
//!
//! An arrow is a path in the text of one file that leads into another: a `use`, or a path that is spelled out.
//! A re-exported name leads to the file it comes from. What a folder's files share with its `mod.rs`, which
//! declares them, is not counted; nor are unit tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A file, as the names of modules that lead to it.
type Module = Vec<String>;
type Arrows = BTreeSet<(Module, Module)>;

/// Nothing in the first names anything in the second, unless that is in the first as well.
const NEVER: [(&str, &str); 3] = [
    ("dsync::module", "dsync::commands"),
    ("dsync::module::redis", "dsync::module"),
    ("dsync::module::redis", "dsync_engine"),
];

/// The root names everything, and nothing names it.
const ROOT: &str = "dsync";

#[test]
fn no_arrow_points_back_and_none_runs_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    collect(&root.join("src"), &module("dsync"), &mut sources);
    let engine = module("dsync_engine");
    collect(&root.join("engine/src"), &engine, &mut sources);
    let arrows = arrows(&sources);
    // The reader reads: one `use`, one re-exported name.
    for (from, to) in [
        ("dsync::module::run", "dsync::module::redis::key"),
        ("dsync::module::run", "dsync_engine::types"),
    ] {
        assert!(
            arrows.contains(&(module(from), module(to))),
            "{from} → {to}"
        );
    }
    let back = pointing_back(&arrows);
    assert!(back.is_empty(), "these point back: {back:#?}");
    let circles = in_circles(&arrows);
    assert!(circles.is_empty(), "these run in circles: {circles:#?}");
}

fn module(path: &str) -> Module {
    path.split("::").map(str::to_owned).collect()
}

fn inner(module: &Module, name: &str) -> Module {
    let mut inner = module.clone();
    inner.push(name.to_owned());
    inner
}

fn collect(folder: &Path, module: &Module, sources: &mut Vec<(Module, String)>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let inner = inner(module, &name);
        if name == "tests" {
            // Unit tests.
        } else if path.is_dir() {
            collect(&path, &inner, sources);
        } else {
            let is_face = matches!(&name[..], "lib" | "mod");
            let of = if is_face { module.clone() } else { inner };
            sources.push((of, fs::read_to_string(&path).expect("a source")));
        }
    }
}

/// What one file says: the paths it uses, and those that it spells out.
#[derive(Default)]
struct File {
    uses: Vec<Vec<String>>,
    spelled: Vec<Vec<String>>,
}

fn arrows(sources: &[(Module, String)]) -> Arrows {
    let files: BTreeMap<Module, File> = sources
        .iter()
        .map(|(module, source)| (module.clone(), read(source)))
        .collect();
    let mut arrows = Arrows::new();
    for (from, file) in &files {
        for path in file.uses.iter().chain(&file.spelled) {
            if let Some(to) = resolve(&files, from, path, 0).filter(|to| to != from) {
                arrows.insert((from.clone(), to));
            }
        }
    }
    arrows
}

/// The file that a path leads to, as it stands in the file `from`; `None` for what is nobody's here.
fn resolve(
    files: &BTreeMap<Module, File>,
    from: &Module,
    path: &[String],
    depth: usize,
) -> Option<Module> {
    let first = path.first()?;
    let mut at = from.clone();
    let mut rest = path;
    match &first[..] {
        "crate" => at.truncate(1),
        "self" | "super" => {}
        _ if files.contains_key(&vec![first.clone()]) => at.clear(),
        // A module declared here, or a name that was brought in.
        _ if files.contains_key(&inner(from, first)) => {}
        _ => {
            return resolve(
                files,
                from,
                &brought_in(files, from, path, depth)?,
                depth + 1,
            );
        }
    }
    while let [word, more @ ..] = rest {
        match &word[..] {
            "crate" | "self" => {}
            "super" => drop(at.pop()),
            _ => {
                let inner = inner(&at, word);
                if files.contains_key(&inner) {
                    at = inner;
                } else {
                    // A name of this file's own, or one that it passes on.
                    let further = brought_in(files, &at, rest, depth);
                    let further = further.and_then(|path| resolve(files, &at, &path, depth + 1));
                    return Some(further.unwrap_or(at));
                }
            }
        }
        rest = more;
    }
    Some(at)
}

/// The path with its first name as a `use` of that file has it.
fn brought_in(
    files: &BTreeMap<Module, File>,
    file: &Module,
    path: &[String],
    depth: usize,
) -> Option<Vec<String>> {
    let (name, more) = path.split_first()?;
    let uses = &files.get(file)?.uses;
    let used = uses
        .iter()
        .find(|used| used.last() == Some(name) && used[..] != *path)?;
    (depth < 8).then(|| [&used[..], more].concat())
}

fn read(source: &str) -> File {
    let source = source
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default();
    let words = words(source);
    let mut file = File::default();
    let mut at = 0;
    while at < words.len() {
        if words[at] == "use" {
            at += 1;
            read_use(&words, &mut at, &[], &mut file.uses);
        } else if is_name(words[at]) {
            let mut path = vec![words[at].to_owned()];
            while words.get(at + 1) == Some(&"::") && words.get(at + 2).is_some_and(|w| is_name(w))
            {
                path.push(words[at + 2].to_owned());
                at += 2;
            }
            if path.len() > 1 {
                file.spelled.push(path);
            }
            at += 1;
        } else {
            at += 1;
        }
    }
    file
}

/// Reads one tree of a `use` declaration, up to the `,`, `}` or `;` behind it.
fn read_use(words: &[&str], at: &mut usize, before: &[String], uses: &mut Vec<Vec<String>>) {
    let mut path = before.to_vec();
    loop {
        match words.get(*at).copied() {
            Some("{") => {
                while words.get(*at) != Some(&"}") && *at < words.len() {
                    *at += 1;
                    read_use(words, at, &path, uses);
                }
                *at += 1;
                return;
            }
            // What it is called here does not matter.
            Some("as") => *at += 1,
            Some("::") => {}
            Some("self") if !path.is_empty() => {}
            Some(word) if is_name(word) || word == "*" => path.push(word.to_owned()),
            _ => break,
        }
        *at += 1;
    }
    if path.len() > before.len() || words.get(at.wrapping_sub(1)) == Some(&"self") {
        uses.push(path);
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// The names and signs of a source, without comments and texts.
fn words(source: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("r#\"") => rest.find("\"#").map_or(rest.len(), |end| end + 2),
            _ if rest.starts_with("::") => 2,
            '"' => end_of_text(rest),
            '\'' if rest.starts_with("'\\") || rest[1..].chars().nth(1) == Some('\'') => {
                let quoted = rest[2..].find('\'').map_or(rest.len(), |end| end + 3);
                quoted.max(3)
            }
            _ if is_name(rest) => rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let word = &rest[..len];
        if !(first.is_whitespace() || first == '"' || first == '\'' || word.starts_with("//")) {
            words.push(word);
        }
        rest = &rest[len..];
    }
    words
}

/// How long a text is, with both its quotes.
fn end_of_text(rest: &str) -> usize {
    let mut escaped = false;
    let inner = rest[1..].find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    inner.map_or(rest.len(), |inner| inner + 2)
}

fn is_in(inner: &Module, outer: &Module) -> bool {
    inner.starts_with(outer)
}

fn pointing_back(arrows: &Arrows) -> Vec<String> {
    let never = |(from, to): &&(Module, Module)| {
        *to == module(ROOT)
            || NEVER.iter().any(|(one, other)| {
                let (one, other) = (module(one), module(other));
                is_in(from, &one) && is_in(to, &other) && !is_in(to, &one)
            })
    };
    arrows.iter().filter(never).map(shown).collect()
}

/// What is left when files that name none of the rest, or are named by none, have been taken away.
fn in_circles(arrows: &Arrows) -> Vec<String> {
    let mut left: Arrows = arrows.clone();
    left.retain(|(from, to)| !is_in(from, to) && !is_in(to, from));
    loop {
        let (from, to): (BTreeSet<_>, BTreeSet<_>) = left.iter().cloned().unzip();
        let before = left.len();
        left.retain(|arrow| to.contains(&arrow.0) && from.contains(&arrow.1));
        if left.len() == before {
            return left.iter().map(shown).collect();
        }
    }
}

fn shown((from, to): &(Module, Module)) -> String {
    format!("{} → {}", from.join("::"), to.join("::"))
}

#[test]
fn circles_and_arrows_that_point_back_are_found() {
    let found = |sources: &[(&str, &str)]| {
        let sources: Vec<_> = sources
            .iter()
            .map(|(of, source)| (module(of), (*source).to_owned()))
            .collect();
        let arrows = arrows(&sources);
        (in_circles(&arrows).len(), pointing_back(&arrows).len())
    };
    for (a, b, expected) in [
        ("use super::b::{self, x::{Y}};", "", (0, 0)),
        ("use super::b;", "use crate::module::a::X;", (2, 0)),
        ("use super::b;", "fn f() { super::a::g() }", (2, 0)),
        (
            "fn f() { super::b::g('\"', b'\\'') }",
            "use super::Name as N;",
            (2, 0),
        ),
        (
            "use super::b;",
            "// super::a::g()\nconst A: &str = \"super::a::\\\"g()\";",
            (0, 0),
        ),
        (
            "use super::b;",
            "#[cfg(test)]\nmod tests { use super::super::a; }",
            (0, 0),
        ),
        ("use super::Own;", "use super::{Own, a};", (0, 0)),
        ("use crate::commands::c;", "", (0, 1)),
        ("", "fn f() { crate::commands::g() }", (0, 1)),
        ("", "fn f() { crate::g() }", (0, 1)),
    ] {
        let sources = [
            ("dsync", "mod commands; mod module; use commands::c;"),
            ("dsync::module", "mod a; mod b; pub use a::Name;"),
            ("dsync::module::a", a),
            ("dsync::module::b", b),
            ("dsync::commands", ""),
            ("dsync::commands::c", "use crate::module::b;"),
        ];
        assert_eq!(found(&sources), expected, "{a} | {b}");
    }
}
