//! What documents say of the code: the tour quotes it, and guides name functions of its types. All of that stands
//! there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pulldown_cmark::{CodeBlockKind, Event, Tag, TagEnd};

use crate::{GUIDES, files, parsed, read, root};

const TOUR: &str = "docs/tour.md";

/// Stands in a quote for code that it leaves out.
const LEFT_OUT: &str = "// …";

/// The blocks of Rust in a document.
fn quotes(text: &str) -> Vec<String> {
    let mut quotes = Vec::new();
    let mut quote = None;
    for event in parsed(text) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                quote = (&*language == "rust").then(String::new);
            }
            Event::Text(part) => {
                if let Some(quote) = &mut quote {
                    quote.push_str(&part);
                }
            }
            Event::End(TagEnd::CodeBlock) => quotes.extend(quote.take()),
            _ => {}
        }
    }
    quotes
}

/// The lines that are not blank, without the space around them.
fn lines(text: &str) -> Vec<&str> {
    let trimmed = text.lines().map(str::trim);
    trimmed.filter(|line| !line.is_empty()).collect()
}

/// What of the quote does not stand in the file that its first line names; `None` if all of it does, in this order.
fn misquoted(quote: &str, read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let lines_of_quote = lines(quote);
    let (first, quoted) = lines_of_quote.split_first()?;
    let name = first.strip_prefix("// ").unwrap_or_default();
    let Some(source) = read(name) else {
        return Some(format!("no file: {first}"));
    };
    let source = lines(&source);
    let mut rest = &source[..];
    for part in quoted.split(|line| *line == LEFT_OUT) {
        let at = match part {
            [] => Some(0),
            _ => rest.windows(part.len()).position(|window| window == part),
        };
        let Some(at) = at else {
            return Some(format!("{name}:\n{}", part.join("\n")));
        };
        rest = &rest[at + part.len()..];
    }
    None
}

#[test]
fn every_quote_of_the_tour_stands_in_its_file() {
    let quotes = quotes(&read(Path::new(TOUR)));
    assert!(quotes.len() >= 10, "{} quotes", quotes.len());
    let source = |name: &str| fs::read_to_string(root().join(name)).ok();
    let wrong: Vec<_> = (quotes.iter())
        .filter_map(|quote| misquoted(quote, source))
        .collect();
    assert!(wrong.is_empty(), "not so in\n{}", wrong.join("\n\n"));
}

#[test]
fn changed_line_of_a_quote_is_found() {
    let source = "fn f() {\n    one();\n    two();\n\n    three();\n}\n";
    let read = |name: &str| (name == "src/f.rs").then(|| source.to_owned());
    for right in [
        "// src/f.rs\nfn f() {\n    one();\n    two();",
        "// src/f.rs\ntwo();\nthree();",
        "// src/f.rs\nfn f() {\n    // …\n    three();\n    // …",
    ] {
        assert_eq!(misquoted(right, read), None, "{right}");
    }
    for wrong in [
        "// src/g.rs\nfn f() {",
        "fn f() {\none();",
        "// src/f.rs\nfn f() {\n    two();",
        "// src/f.rs\nfn f() {\n    one(1);",
        "// src/f.rs\ntwo();\n// …\none();",
    ] {
        assert!(misquoted(wrong, read).is_some(), "{wrong}");
    }
}

/// Every `Type::function` between backquotes.
fn functions(text: &str) -> BTreeSet<(String, String)> {
    let codes = parsed(text).filter_map(|event| match event {
        Event::Code(code) => Some(code),
        _ => None,
    });
    let named = codes.filter_map(|code| {
        let (of, name) = code.split_once("::")?;
        let of = of.split('<').next()?;
        let name = name.split('(').next()?;
        let is_type = of.starts_with(char::is_uppercase) && of.chars().all(char::is_alphanumeric);
        let is_function = name.chars().all(|c| c.is_lowercase() || c == '_');
        (is_type && is_function).then(|| (of.to_owned(), name.to_owned()))
    });
    named.collect()
}

/// Whether this file has a function of this name for this type.
fn defines(source: &str, (of, name): &(String, String)) -> bool {
    let is_word = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let is_about = source.lines().any(|line| {
        let begins = ["impl", "trait", "pub trait"].map(|word| line.starts_with(word));
        let mut after = line
            .match_indices(&**of)
            .map(|(at, _)| &line[at + of.len()..]);
        begins.contains(&true) && after.any(is_word)
    });
    is_about
        && ["(", "<"]
            .iter()
            .any(|end| source.contains(&format!("fn {name}{end}")))
}

#[test]
fn every_function_of_a_type_that_a_guide_names_is_there() {
    let mut names = Vec::new();
    for folder in ["src", "engine/src"] {
        files(&root().join(folder), &mut names);
    }
    let sources: Vec<_> = (names.iter())
        .map(|name| fs::read_to_string(name).expect("a source"))
        .collect();
    for guide in GUIDES {
        let mut missing = functions(&read(Path::new(guide)));
        missing.retain(|function| !sources.iter().any(|source| defines(source, function)));
        assert!(missing.is_empty(), "{guide} names {missing:?}");
    }
}

#[test]
fn function_is_found_in_an_impl_of_its_type_only() {
    let source = "impl Visitor {\n    fn done() {}\n}\nimpl<T> Drop for Guard<T> {\n    fn drop(&mut self) {}\n}\n";
    let name = |of: &str, name: &str| (of.to_owned(), name.to_owned());
    assert!(defines(source, &name("Visitor", "done")));
    assert!(defines(source, &name("Guard", "drop")));
    assert!(!defines(source, &name("Visit", "done")));
    assert!(!defines(source, &name("Visitor", "don")));
}
