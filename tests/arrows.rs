//! Checks which source files use which: only `commands → module → engine`, and never in a cycle.
//!
//! There is an arrow from one file to another if its text has a path into the other: in a `use`, or inline. A path
//! through a re-export counts as an arrow to the file that defines the name. Arrows between a folder's files and its
//! `mod.rs`, which declares them, may form cycles. Unit tests are not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A file, as the path of its module: `["dsync", "module", "run"]`.
type Module = Vec<String>;
/// From one file to another.
type Arrows = BTreeSet<(Module, Module)>;

/// Files in the first module may not use files in the second, except those that are in the first as well.
const FORBIDDEN: [(&str, &str); 3] = [
    ("dsync::module", "dsync::commands"),
    ("dsync::module::redis", "dsync::module"),
    ("dsync::module::redis", "dsync_engine"),
];

/// The root may use everything; nothing may use the root.
const ROOT: &str = "dsync";

#[test]
fn source_files_have_no_forbidden_arrows_and_no_cycles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    collect(&root.join("src"), &module("dsync"), &mut sources);
    let engine = module("dsync_engine");
    collect(&root.join("engine/src"), &engine, &mut sources);
    let arrows = arrows(&sources);
    // Two arrows that must be found, through a `use` and through a re-export: otherwise this test checks nothing.
    for (from, to) in [
        ("dsync::module::run", "dsync::module::redis::key"),
        ("dsync::module::run", "dsync_engine::types"),
    ] {
        assert!(
            arrows.contains(&(module(from), module(to))),
            "{from} → {to}"
        );
    }
    let found = forbidden(&arrows);
    assert!(found.is_empty(), "these arrows are forbidden: {found:#?}");
    let cycles = in_cycles(&arrows);
    assert!(cycles.is_empty(), "these arrows form cycles: {cycles:#?}");
}

fn module(path: &str) -> Module {
    path.split("::").map(str::to_owned).collect()
}

fn inner(module: &Module, name: &str) -> Module {
    let mut inner = module.clone();
    inner.push(name.to_owned());
    inner
}

/// Reads all source files of a folder.
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
            // Skip unit tests.
        } else if path.is_dir() {
            collect(&path, &inner, sources);
        } else {
            let is_module_root = matches!(&name[..], "lib" | "mod");
            let of = if is_module_root {
                module.clone()
            } else {
                inner
            };
            sources.push((of, fs::read_to_string(&path).expect("a source")));
        }
    }
}

/// The paths in the text of one file: those in `use` declarations, and those inline.
#[derive(Default)]
struct File {
    uses: Vec<Vec<String>>,
    inline: Vec<Vec<String>>,
}

fn arrows(sources: &[(Module, String)]) -> Arrows {
    let files: BTreeMap<Module, File> = sources
        .iter()
        .map(|(module, source)| (module.clone(), read(source)))
        .collect();
    let mut arrows = Arrows::new();
    for (from, file) in &files {
        for path in file.uses.iter().chain(&file.inline) {
            if let Some(to) = resolve(&files, from, path, 0).filter(|to| to != from) {
                arrows.insert((from.clone(), to));
            }
        }
    }
    arrows
}

/// Returns the file that a path in the file `from` leads to; `None` if it leads out of this workspace.
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
        // A module that this file declares; otherwise a name from a `use`.
        _ if files.contains_key(&inner(from, first)) => {}
        _ => {
            return resolve(
                files,
                from,
                &path_behind_use(files, from, path, depth)?,
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
                    // A name that the file defines itself, or one that it re-exports.
                    let further = path_behind_use(files, &at, rest, depth);
                    let further = further.and_then(|path| resolve(files, &at, &path, depth + 1));
                    return Some(further.unwrap_or(at));
                }
            }
        }
        rest = more;
    }
    Some(at)
}

/// The path with its first name replaced by the full path in that file's `use`; `None` if no `use` brings the name in.
fn path_behind_use(
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
    let words = tokens(source);
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
                file.inline.push(path);
            }
            at += 1;
        } else {
            at += 1;
        }
    }
    file
}

/// Reads one tree of a `use` declaration, up to the `,`, `}` or `;` after it.
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
            // Skip the name after `as`: the path before it is the arrow.
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

/// The names and signs of a source, without comments and string literals.
fn tokens(source: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("r#\"") => rest.find("\"#").map_or(rest.len(), |end| end + 2),
            _ if rest.starts_with("::") => 2,
            '"' => string_literal_len(rest),
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

/// The length of a string literal, with both quotes.
fn string_literal_len(rest: &str) -> usize {
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

/// The arrows that [`FORBIDDEN`] and [`ROOT`] forbid.
fn forbidden(arrows: &Arrows) -> Vec<String> {
    let is_forbidden = |(from, to): &&(Module, Module)| {
        *to == module(ROOT)
            || FORBIDDEN.iter().any(|(one, other)| {
                let (one, other) = (module(one), module(other));
                is_in(from, &one) && is_in(to, &other) && !is_in(to, &one)
            })
    };
    arrows.iter().filter(is_forbidden).map(in_words).collect()
}

/// The arrows that remain when all files that use no other remaining file, or that none of them uses, are removed
/// repeatedly: those in cycles, and those between cycles.
fn in_cycles(arrows: &Arrows) -> Vec<String> {
    let mut left: Arrows = arrows.clone();
    left.retain(|(from, to)| !is_in(from, to) && !is_in(to, from));
    loop {
        let (from, to): (BTreeSet<_>, BTreeSet<_>) = left.iter().cloned().unzip();
        let before = left.len();
        left.retain(|arrow| to.contains(&arrow.0) && from.contains(&arrow.1));
        if left.len() == before {
            return left.iter().map(in_words).collect();
        }
    }
}

fn in_words((from, to): &(Module, Module)) -> String {
    format!("{} → {}", from.join("::"), to.join("::"))
}

#[test]
fn arrow_checks_find_cycles_and_forbidden_arrows() {
    let found = |sources: &[(&str, &str)]| {
        let sources: Vec<_> = sources
            .iter()
            .map(|(of, source)| (module(of), (*source).to_owned()))
            .collect();
        let arrows = arrows(&sources);
        (in_cycles(&arrows).len(), forbidden(&arrows).len())
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
