//! `redis-cli`, for tests of what documents print: how it shows replies, and a shell in which it speaks to a server.

use crate::support::*;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A shell in which `redis-cli` speaks to this server, unless it is told another port.
pub fn shell_of(server: &Server) -> Command {
    let bin = folder_with_cli(server);
    let path = std::env::var("PATH").expect("a path");
    let mut shell = Command::new("sh");
    shell.env("PATH", format!("{}:{path}", bin.display()));
    shell
}

/// Puts a `redis-cli` that speaks to this server into a folder, for PATH.
fn folder_with_cli(server: &Server) -> PathBuf {
    let binary = std::env::var("DSYNC_TEST_SERVER").unwrap_or_default();
    let folder = Path::new(&binary)
        .parent()
        .filter(|folder| folder.is_absolute());
    let beside = ["redis-cli", "valkey-cli"].map(|cli| Some(folder?.join(cli)));
    let beside = beside.into_iter().flatten().find(|cli| cli.exists());
    let cli = beside.unwrap_or_else(|| PathBuf::from("/usr/bin/env redis-cli"));
    let bin = server.dir().join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    let script = format!(
        "#!/bin/sh\nPATH=${{PATH#*:}} exec {} -p {} \"$@\"\n",
        cli.display(),
        server.port()
    );
    let path = bin.join("redis-cli");
    std::fs::write(&path, script).expect("a script");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, executable).expect("our own file");
    bin
}

/// The reply as `redis-cli` shows it on a terminal. Each line but the first begins with `indent` blanks.
pub fn shown(reply: &Reply, indent: usize) -> String {
    match reply {
        Reply::Nil => "(nil)".to_owned(),
        Reply::Int(number) => format!("(integer) {number}"),
        Reply::Simple(line) => line.clone(),
        Reply::Bulk(bytes) => {
            let text = bytes.escape_ascii().to_string();
            format!("\"{}\"", text.replace("\\'", "'"))
        }
        Reply::Error(line) => format!("(error) {line}"),
        Reply::Array(items) if items.is_empty() => "(empty array)".to_owned(),
        Reply::Array(items) | Reply::Push(items) => {
            numbered(items.len(), indent, ')', |nth, indent| {
                shown(&items[nth], indent)
            })
        }
        Reply::Map(pairs) => numbered(pairs.len(), indent, '#', |nth, indent| {
            let (name, value) = &pairs[nth];
            let name = shown(name, indent);
            let between = match value {
                Reply::Array(items) if !items.is_empty() => format!("\n{}", " ".repeat(indent)),
                _ => " ".to_owned(),
            };
            format!("{name} =>{between}{}", shown(value, indent))
        }),
        other => panic!("no command replies {other:?}"),
    }
}

/// Lines with numbers, right-aligned, before each element.
fn numbered(
    count: usize,
    indent: usize,
    sign: char,
    element: impl Fn(usize, usize) -> String,
) -> String {
    let width = count.to_string().len();
    let line = |nth: usize| {
        let number = nth + 1;
        let inner = element(nth, indent + width + 2);
        format!("{number:>width$}{sign} {inner}")
    };
    let lines: Vec<_> = (0..count).map(line).collect();
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

#[test]
fn replies_are_shown_as_redis_cli_shows_them() {
    let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
    let rows = Reply::Array(vec![Reply::Int(1), Reply::Nil]);
    let reply = Reply::Array(vec![
        bulk("a\"\n"),
        Reply::Array(vec![rows.clone(), rows.clone()]),
    ]);
    let lines = [
        r#"1) "a\"\n""#,
        "2) 1) 1) (integer) 1",
        "      2) (nil)",
        "   2) 1) (integer) 1",
        "      2) (nil)",
    ];
    assert_eq!(shown(&reply, 0), lines.join("\n"));
    let map = Reply::Map(vec![(bulk("x"), Reply::Int(1)), (bulk("y"), rows)]);
    let lines = [
        "1# \"x\" => (integer) 1",
        "2# \"y\" =>",
        "   1) (integer) 1",
        "   2) (nil)",
    ];
    assert_eq!(shown(&map, 0), lines.join("\n"));
}
