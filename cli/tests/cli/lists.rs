//! `ls`, `revoke`, `log` and `top`.

use std::process::Command;

use serde_json::Value as Json;

use crate::support::{Server, ToolFor, dsync, until};

fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn ls_shows_holds_of_all_families_and_databases_and_of_one_owner() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE jobs:1 PX 60000 TOKEN a OWNER app@web-1:1");
    server.ask("DSEM.ACQUIRE api LIMIT 5 PX 60000 TOKEN b OWNER app@web-2:1");
    server.ask("DONCE.BEGIN report PX 60000 TOKEN c");
    let table = server.dsync(&["ls"]).stdout();
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(table.starts_with("KEY     TYPE       OWNER"), "{table}");
    assert!(
        table
            .lines()
            .any(|line| line.starts_with("report  once       -")),
        "{table}"
    );
    let holds = json(
        &server
            .dsync(&["ls", "--owner", "app@web-1:*", "--json"])
            .stdout(),
    );
    assert_eq!(holds.as_array().map(Vec::len), Some(1));
    assert_eq!(holds[0]["owner"], "app@web-1:1");
    assert!(holds[0]["lease_left_ms"].as_u64().unwrap() <= 60_000);
    assert_eq!(holds[0]["server"], format!("127.0.0.1:{}", server.port()));
    assert!(holds[0].get("node").is_none(), "{holds}");
}

#[test]
fn names_of_others_do_not_control_the_terminal() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE \x1b[2Jkey TOKEN a");
    let table = server.dsync(&["ls"]).stdout();
    assert!(
        table.contains("$'\\x1b[2Jkey'") && !table.contains('\x1b'),
        "{table}"
    );
    server.ask("DEL \x1b[2Jkey");
    // Written from right to left, and a letter that cannot be seen.
    server.ask("DSEM.ACQUIRE k LIMIT 1 TOKEN a OWNER web\u{202e}1-\u{200b}x");
    server.ask("DSEM.ACQUIRE k LIMIT 1 TOKEN b QUEUE 60000 OWNER web\u{2066}2");
    let owner = "web\\u{202e}1-\\u{200b}x";
    let table = server.dsync(&["ls"]).stdout();
    assert!(table.contains(owner), "{table}");
    let top = server
        .dsync(&["top", "--once", "--interval", "100ms"])
        .stdout();
    assert!(
        top.contains(owner) && top.contains("web\\u{2066}2"),
        "{top}"
    );
    let log = server.dsync(&["log"]).stdout();
    assert!(log.contains(" key=$'\\x1b[2Jkey' "), "{log}");
    let busy = server
        .dsync(&[
            "run",
            "--semaphore",
            "k",
            "--try",
            "--quiet",
            "--owner",
            "me",
            "--",
            "true",
        ])
        .output();
    assert_eq!((busy.0, busy.2.as_str()), (75, ""));
    server.ask("DLOCK.ACQUIRE \x1b[2Jother\u{202e} TOKEN a OWNER x\u{feff}y");
    let arguments = [
        "run",
        "--lock",
        "\x1b[2Jother\u{202e}",
        "--try",
        "--",
        "true",
    ];
    let (status, _, stderr) = server.dsync(&arguments).output();
    assert_eq!(status, 75);
    assert!(
        stderr.contains("lock $'\\x1b[2Jother\\xe2\\x80\\xae' is busy")
            && stderr.contains("x\\u{feff}y"),
        "{stderr}"
    );
    let revoked = server
        .dsync(&["revoke", "\x1b[2Jother\u{202e}", "1"])
        .output();
    assert!(!revoked.2.contains('\x1b'), "{}", revoked.2);
    // JSON is for programs: what it escapes itself, and nothing else.
    let holds = json(&server.dsync(&["ls", "--json"]).stdout());
    let owners: Vec<&str> = holds
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|hold| hold["owner"].as_str())
        .collect();
    assert!(owners.contains(&"web\u{202e}1-\u{200b}x"), "{holds}");
}

#[test]
fn revoke_ends_a_hold_of_any_family_by_its_fence() {
    let server = Server::start();
    for request in ["DLOCK.ACQUIRE a", "DSEM.ACQUIRE b LIMIT 1", "DWG.ADD c"] {
        let (_, fence) = server.ask(request).grant();
        let key = request.split(' ').nth(1).unwrap();
        let (status, stdout, stderr) = server.dsync(&["revoke", key, &fence.to_string()]).output();
        assert_eq!(
            (status, stdout),
            (0, format!("revoked {key} {fence}\n")),
            "{stderr}"
        );
        assert_eq!(
            server
                .dsync(&["revoke", key, &fence.to_string()])
                .output()
                .0,
            1
        );
    }
    let fence = server.ask("DONCE.BEGIN d").as_array()[2].as_int();
    assert_eq!(
        server
            .dsync(&["revoke", "d", &fence.to_string()])
            .output()
            .0,
        0
    );
    server.ask("SET plain text");
    let (status, _, stderr) = server.dsync(&["revoke", "plain", "1"]).output();
    assert_eq!(status, 1);
    assert!(stderr.contains("no key of dsync"), "{stderr}");
}

#[test]
fn revoke_of_an_owner_tells_what_it_did_before_an_error() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE a OWNER web");
    server.ask("DSEM.ACQUIRE b LIMIT 1 OWNER web");
    server.ask("ACL SETUSER half on nopass ~* +@all -dsem.revoke");
    let url = format!("redis://half:any@127.0.0.1:{}", server.port());
    let (status, _, stderr) = dsync(&url, &["revoke", "--owner", "web", "--yes"]).output();
    assert_eq!(status, 76, "{stderr}");
    let ended = 2 - server.info_number("dsync", "dsync_holds");
    let told = format!("revoked {ended} of 2 holds before that");
    assert!(
        stderr.contains(&told) && stderr.contains("NOPERM"),
        "{stderr}"
    );
}

#[test]
fn revoke_of_an_owner_asks_first() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE a OWNER app@web-1:1");
    server.ask("DSEM.ACQUIRE b LIMIT 1 OWNER app@web-1:2");
    server.ask("DLOCK.ACQUIRE c OWNER app@web-2:1");
    let (status, _, stderr) = server.dsync(&["revoke", "--owner", "app@web-1:*"]).output();
    assert_eq!(status, 64, "nobody can be asked: {stderr}");
    assert_eq!(server.info_number("dsync", "dsync_holds"), 3);
    assert_eq!(
        server
            .dsync(&["-n", "5", "revoke", "--owner", "app@web-1:*", "--yes"])
            .stdout(),
        "revoked 2 of 2 holds\n"
    );
    assert_eq!(server.info_number("dsync", "dsync_holds"), 1);
    assert_eq!(
        server
            .dsync(&["revoke", "--owner", "app@web-1:*", "--yes"])
            .output()
            .0,
        1
    );
}

#[test]
fn log_tells_how_holds_ended() {
    let server = Server::start();
    let (_, fence) = server.ask("DLOCK.ACQUIRE jobs:1 OWNER web-1").grant();
    server.ask(format!("DLOCK.REVOKE jobs:1 {fence}"));
    server.ask("DLOCK.ACQUIRE jobs:2");
    server.ask("DEL jobs:2");
    let text = server.dsync(&["log"]).stdout();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains(" stall"))
        .collect();
    assert!(
        lines[0].contains(&format!(
            "Z revoke key=jobs:1 type=lock owner=web-1 fence={fence} held="
        )),
        "{text}"
    );
    assert!(
        lines[1].contains("Z removed key=jobs:2 type=lock fence="),
        "{text}"
    );
    let rows = json(&server.dsync(&["log", "--count", "1", "--json"]).stdout());
    assert_eq!(rows.as_array().unwrap().len(), 1);
    // A busy machine may stall the server at any time, which has a row too.
    let newest = rows[0]["what"].as_str();
    assert!(matches!(newest, Some("removed" | "stall")), "{rows}");
    assert_eq!(rows[0]["server"], format!("127.0.0.1:{}", server.port()));
}

#[test]
fn top_tells_who_holds_and_waits_and_how_often() {
    let server = Server::start();
    server.ask("DSEM.ACQUIRE api LIMIT 1 PX 60000 TOKEN a OWNER web-1");
    server.ask("DSEM.ACQUIRE api PX 60000 TOKEN b OWNER web-2 QUEUE 60000");
    let text = server
        .dsync(&["top", "--once", "--interval", "100ms"])
        .stdout();
    assert!(
        text.contains("holds: 1 (lock 0, semaphore 1, group 0, once 0)   waiters: 1"),
        "{text}"
    );
    let row: Vec<&str> = text
        .lines()
        .find(|line| line.starts_with("api"))
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(row[..5], ["api", "semaphore", "full", "1/1", "1"], "{text}");
    assert_eq!((row[6], row[10]), ("web-1", "web-2"), "{text}");

    let report = json(
        &server
            .dsync(&["top", "--once", "--json", "--interval", "100ms"])
            .stdout(),
    );
    assert_eq!(report["waiters"]["semaphore"], 1);
    let key = &report["contended"][0];
    assert_eq!(key["limit"], 1);
    assert_eq!(key["first_holders"][0]["owner"], "web-1");
    assert_eq!(key["first_waiters"][0]["owner"], "web-2");

    let (status, _, stderr) = server.dsync(&["top"]).output();
    assert_eq!(status, 64, "{stderr}");
}

#[test]
fn rates_and_wait_times_are_those_of_the_interval() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE before");
    let mut top = server.dsync(&["top", "--once", "--json", "--interval", "2s"]);
    top.0.stdout(std::process::Stdio::piped());
    let top = top.0.spawn().unwrap();
    // The first look is over once its connection has asked for the contended keys.
    until("top has looked", || {
        let stats = server.ask("INFO commandstats").as_str().to_owned();
        stats.contains("dsync.contended") || stats.contains("DSYNC.CONTENDED")
    });
    server.ask("DLOCK.ACQUIRE k PX 60000 TOKEN a");
    server.ask("DLOCK.ACQUIRE k PX 60000 TOKEN b QUEUE 60000");
    server.ask("DLOCK.RELEASE k a");
    let report = json(&String::from_utf8(top.wait_with_output().unwrap().stdout).unwrap());
    let interval = report["interval_ms"].as_f64().unwrap() / 1000.0;
    let times = |name: &str| (report["per_second"][name].as_f64().unwrap() * interval).round();
    assert_eq!(
        (
            times("granted_at_once"),
            times("granted_after_wait"),
            times("released")
        ),
        (1.0, 1.0, 1.0)
    );
    assert_eq!(report["waits"]["ended_in_a_grant"], 1);
    assert!(report["waits"]["half_within_ms"].is_u64(), "{report}");
}

#[test]
fn output_that_nobody_reads_is_no_error() {
    let server = Server::start();
    for nth in 0..2000 {
        server.ask(format!("DLOCK.ACQUIRE key-with-a-long-name-{nth}"));
    }
    let tool = env!("CARGO_BIN_EXE_dsync");
    let script = format!(
        "{{ '{tool}' -u {} ls; echo $? >&2; }} | head -1",
        server.url()
    );
    let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "0\n");
}
