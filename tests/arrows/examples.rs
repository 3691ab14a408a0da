//! The rules by which arrows are found, on small sources.

use std::collections::BTreeMap;

use crate::circles::{circles, describe};
use crate::forbidden;
use crate::names::Sources;
use crate::uses::{Arrows, arrows};

fn read(root: &str, files: &[(&str, &str)]) -> Arrows {
    let files: BTreeMap<_, _> = files.iter().copied().collect();
    let mut sources = Sources::default();
    let text = |file: &str| files.get(file).map(ToString::to_string);
    sources.add(vec!["dsync".to_owned()], root, &text);
    arrows(&sources)
}

/// The arrows of a crate with a root and two files, as `ab` for one from `a` to `b` and `r` for the root.
fn found(root: &str, a: &str, b: &str) -> String {
    let root = format!("mod a; mod b; {root}");
    let arrows = read(
        "src/lib.rs",
        &[("src/lib.rs", &root), ("src/a.rs", a), ("src/b.rs", b)],
    );
    let short = |file: &String| {
        if file == "src/lib.rs" {
            "r"
        } else {
            &file[4..5]
        }
        .to_owned()
    };
    let arrows: Vec<_> = arrows
        .keys()
        .map(|(from, to)| short(from) + &short(to))
        .collect();
    arrows.join(" ")
}

#[test]
fn path_leads_to_the_file_that_defines_the_name() {
    for (root, a, b, expected) in [
        ("", "use super::b::X;", "", ""),
        ("", "use super::b::X;", "pub struct X;", "ab"),
        (
            "",
            "use super::b::{self, Y, X as Z};",
            "pub struct X;",
            "ab",
        ),
        ("", "use crate::b::*; fn f(x: X) {}", "pub struct X;", "ab"),
        ("", "fn f() { super::b::g() }", "pub fn g() {}", "ab"),
        (
            "",
            "fn f() { use crate::b as c; c::g() }",
            "pub fn g() {}",
            "ab",
        ),
        (
            "",
            "use crate::b as c; fn f() { c::g() }",
            "pub fn g() {}",
            "ab",
        ),
        (
            "",
            "mod inner { fn f() { super::super::b::g() } }",
            "pub fn g() {}",
            "ab",
        ),
        (
            "",
            "fn f() { println!(\"{}\", super::b::g()) }",
            "pub fn g() {}",
            "ab",
        ),
        (
            "",
            "fn f() { select! { x: u8 = super::b::g() => {} } }",
            "pub fn g() {}",
            "ab",
        ),
        (
            "",
            "// super::b::g()\nconst A: &str = \"super::b::g()\";",
            "pub fn g() {}",
            "",
        ),
        (
            "",
            "#[cfg(test)] mod t { use super::super::b::g; }",
            "pub fn g() {}",
            "",
        ),
        (
            "",
            "fn f(g: u8) -> u8 { g } use super::b;",
            "pub fn g() {}",
            "",
        ),
    ] {
        assert_eq!(found(root, a, b), expected, "{root} | {a} | {b}");
    }
}

#[test]
fn root_counts_by_its_own_code_and_not_by_what_it_declares() {
    for (root, a, expected) in [
        ("pub use b::X;", "use super::X;", "ab"),
        ("pub(crate) use b::*;", "use super::X;", "ab"),
        (
            "pub use b::X; pub struct Own;",
            "use super::{Own, X};",
            "ab ar",
        ),
        (
            "pub use b::X; pub struct Own(X);",
            "use super::Own;",
            "ar rb",
        ),
        (
            "use a::f; pub struct Own;",
            "use super::Own; pub fn f() {}",
            "ar ra",
        ),
    ] {
        assert_eq!(found(root, a, "pub struct X;"), expected, "{root} | {a}");
    }
}

#[test]
fn method_leads_to_the_file_with_that_impl() {
    let root = "pub struct T { list: Vec<u8>, own: U } pub struct U; pub static ONE: T = T;
        impl T { fn new() -> Option<T> { None } fn with(&self, call: impl FnOnce(&mut T)) {} }";
    let b = "impl super::T { pub fn push(&self) -> &Self { self } pub const ONE: u8 = 1; }
        impl super::U { pub fn pop(&self) {} }";
    for (code, is_arrow) in [
        ("fn f(&self) { self.push() }", true),
        ("fn f(&self) { Self::push(self) }", true),
        ("fn f(&self) { crate::T::push(self) }", true),
        ("fn f(&self) -> u8 { Self::ONE }", true),
        ("fn f(&self) { self.own.pop() }", true),
        ("fn f(x: &crate::U) { x.pop() }", true),
        (
            "fn f(x: &[Arc<crate::U>]) { for one in x { one.pop() } }",
            true,
        ),
        (
            "fn f() { if let Some(x) = Self::new() { x.push(); } }",
            true,
        ),
        (
            "fn f() -> Option<()> { let x = Self::new()?; x.push(); None }",
            true,
        ),
        ("fn f() { Self::new().map(|x| x.push()); }", true),
        ("fn f() { crate::ONE.push(); }", true),
        ("fn f(&self) { self.with(|x| { x.push(); }) }", true),
        ("fn f(&self) { assert!(self.push().is_it()) }", true),
        ("fn f(&self) { self.list.push(1) }", false),
        ("fn f(x: &Vec<u8>) { x.push(1) }", false),
        (
            "fn f(&self) { self.push() } #[cfg(x)] fn push(&self) {}",
            false,
        ),
        ("#[cfg(test)] fn f(&self) { self.push() }", false),
    ] {
        let expected = if is_arrow { "ab ar br" } else { "ar br" };
        let a = format!("impl super::T {{ {code} }}");
        assert_eq!(found(root, &a, b), expected, "{code}");
    }
}

#[test]
fn circle_is_told_with_an_example_of_each_arrow() {
    let arrows = read(
        "src/lib.rs",
        &[
            (
                "src/lib.rs",
                "mod a; mod b; use a::run; fn main() { run() }",
            ),
            ("src/a/mod.rs", "mod c;\npub fn run() { crate::b::B.go() }"),
            ("src/a/c.rs", "pub fn end() {}"),
            (
                "src/b.rs",
                "pub struct B;\nimpl B {\n  pub fn go(&self) { crate::a::run() }\n}",
            ),
        ],
    );
    let circles = circles(&arrows);
    assert_eq!(circles.len(), 1, "{circles:?}");
    let expected = "a circle of 2 files
  src/a/mod.rs → src/b.rs → src/a/mod.rs
    src/a/mod.rs:2 uses B of src/b.rs
    src/b.rs:3 uses run of src/a/mod.rs
";
    assert_eq!(describe(&arrows, &circles[0]), expected);
}

#[test]
fn arrows_against_the_layers_are_forbidden() {
    for (module, redis, expected) in [
        ("use crate::commands::c;", "", 0),
        ("use crate::commands::C;", "", 1),
        ("fn f() { crate::commands::g() }", "", 1),
        ("pub struct Own;", "use super::Own;", 1),
        (
            "mod redis_user { use crate::module::redis::X; }",
            "pub struct X;",
            0,
        ),
    ] {
        let module = format!("mod redis; {module}");
        let arrows = read(
            "src/lib.rs",
            &[
                ("src/lib.rs", "mod commands; mod module; use commands::C;"),
                (
                    "src/commands/mod.rs",
                    "pub struct C; pub fn g() { crate::module::h() }",
                ),
                ("src/module/mod.rs", &module),
                ("src/module/redis/mod.rs", redis),
            ],
        );
        assert_eq!(forbidden(&arrows).len(), expected, "{module} | {redis}");
    }
}
