//! The pages in `docs/commands` have an ACL rule for each command. A unit test of `src/commands` compares the rest of a
//! page with the table, and `examples` compares its replies with those of servers.

use std::fs;
use std::path::Path;

use crate::support::steps::*;
use crate::support::*;

const FOLDER: &str = "docs/commands";

/// The name of the command and the lines of its page.
fn pages() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let pages = fs::read_dir(folder).expect(FOLDER);
    let pages = pages.map(|entry| fs::read_to_string(entry.expect("an entry").path()));
    pages
        .map(|text| text.expect("a page"))
        .map(|text| {
            let title = text.lines().next().unwrap_or_default();
            (title.trim_start_matches("# ").to_owned(), text)
        })
        .filter(|(title, _)| title != "Commands")
        .collect()
}

/// The first request with this command among the examples of its page.
fn request<'a>(command: &str, page: &'a str) -> &'a str {
    let (_, examples) = page.split_once("## Examples").expect("examples");
    let start = format!("> {command}");
    let mut lines = examples.lines().map(|line| line.trim_start_matches('A'));
    let line = lines.find(|line| line.starts_with(&start));
    line.and_then(|line| line.strip_prefix("> "))
        .unwrap_or_else(|| panic!("the page of {command} has no example of it"))
}

#[test]
fn access_rule_of_each_page_permits_its_command_and_no_other() {
    let server = Server::start();
    let mut admin = server.connect();
    let pages = pages();
    assert_eq!(pages.len(), 38);
    for (command, page) in &pages {
        let rules = page.lines().filter(|line| line.starts_with("ACL SETUSER "));
        let rules: Vec<_> = rules.collect();
        assert!(!rules.is_empty(), "{command}");
        for rule in &rules {
            assert_eq!(ask(&mut admin, rule), "OK", "{command}: {rule}");
        }
        let mut app = server.connect();
        assert_eq!(ask(&mut app, "AUTH app change-me"), "OK");
        let reply = ask(&mut app, request(command, page));
        let is_refused = |reply: &Reply| reply.is_error() && reply.error().starts_with("NOPERM");
        assert!(!is_refused(&reply), "{command}: {reply:?}");
        assert!(is_refused(&ask(&mut app, "PING")), "{command}");
        if command != "DSYNC.LOG" {
            assert!(is_refused(&ask(&mut app, "DSYNC.LOG")), "{command}");
        }
        if !command.starts_with("DSYNC.") {
            let elsewhere = request(command, page).replace("jobs:1", "others:1");
            assert!(is_refused(&ask(&mut app, elsewhere)), "{command}");
        }
        if let [_, _] = rules.as_slice() {
            let listens = ask(&mut app, "SUBSCRIBE dsync:{jobs:1}:17");
            assert!(!is_refused(&listens), "{command}: {listens:?}");
        }
        assert_eq!(ask(&mut admin, "ACL DELUSER app"), 1);
        assert_eq!(ask(&mut admin, "FLUSHALL"), "OK");
    }
}
