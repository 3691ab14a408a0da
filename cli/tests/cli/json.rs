//! What is printed for programs has the fields that docs/json.md names, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use dsync_testkit::call;
use serde_json::Value;

use crate::support::{Process, Server, ToolFor};

/// All words that the page writes as code.
fn documented() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/json.md");
    let text = fs::read_to_string(page).unwrap();
    let words = text.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

/// Adds the names of all fields, at any depth.
fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                found.insert(name.clone());
                names(value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn fields_for_programs_are_those_of_the_page() {
    let server = Server::start();
    call!(server.connect(), "DLOCK.ACQUIRE", b"a\xff");
    server.ask("DSEM.ACQUIRE api LIMIT 2 TOKEN a INDEX OWNER web-1 LANE t1 MINHOLD 60000");
    server.ask("DSEM.RELEASE api a");
    server.ask("DSEM.ACQUIRE api TOKEN b INDEX OWNER web-1 LANE t1");
    server.ask("DSEM.ACQUIRE api TOKEN c QUEUE 50000 LANE t2");
    server.ask("DWG.EXPECT batch 1");
    server.ask("DLOCK.ACQUIRE gone TOKEN d");
    server.ask("DEL gone");
    server.ask("DONCE.BEGIN report TOKEN e");
    server.ask("DONCE.DONE report e RESULT 42");
    server.ask("DONCE.BEGIN work TOKEN f");
    server.ask("DONCE.BEGIN try TOKEN f");
    let mut found = BTreeSet::new();
    for arguments in [
        &["ls", "--json"][..],
        &["info", "api", "--json"],
        &["info", "batch", "--json"],
        &["info", "report", "--json"],
        &["log", "--json"],
        &["top", "--json", "--once", "--interval", "100ms"],
        &["once", "get", "report", "--json"],
        &["group", "wait", "nothing", "--json"],
        &["group", "info", "batch", "--json"],
        &["group", "expect", "batch", "2", "--json"],
        &["pause", "api", "1m", "--json"],
        &["resume", "api", "--json"],
        &["once", "done", "work", "--json"],
        &["once", "fail", "try", "--json"],
        &["revoke", "--owner", "web-1", "--yes", "--json"],
    ] {
        let text = server.dsync(arguments).with("DSYNC_TOKEN", "f").stdout();
        names(&serde_json::from_str(&text).unwrap(), &mut found);
    }
    let documented = documented();
    let missing: Vec<_> = found.difference(&documented).collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
    for name in [
        "resting_ms",
        "index",
        "lane",
        "first_lanes",
        "late_ms",
        "99_percent_within_ms",
    ] {
        assert!(found.contains(name), "{name} is seen here: {found:?}");
    }
    let is_field = |word: &&String| word.contains('_') && !word.starts_with('_');
    let unseen: Vec<_> = documented.difference(&found).filter(is_field).collect();
    assert!(unseen.is_empty(), "on the page alone: {unseen:?}");
}

#[test]
fn top_goes_on_over_a_server_that_is_lost() {
    let mut server = Server::start();
    let mut tool = server.dsync(&["top", "--json", "--interval", "100ms", "--timeout", "500ms"]);
    let mut top = Process(tool.0.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(top.0.stdout.take().unwrap()).lines();
    let mut until = |word: &str| lines.by_ref().any(|line| line.unwrap().contains(word));
    assert!(until("\"interval_ms\""));
    server.kill9();
    assert!(until("\"error\""));
    server.start_again();
    assert!(until("\"interval_ms\""));
}
