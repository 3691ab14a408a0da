//! The subcommands about one key: `info`, `pause`, `resume`, `once`, `group`; and what `ls` chooses.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use dsync_testkit::call;

use crate::support::{Folder, Process, Proxy, Server, Tool, ToolFor, dsync, until};

#[test]
fn info_shows_who_holds_and_who_waits_whatever_the_type() {
    let server = Server::start();
    server.ask("DSEM.ACQUIRE api LIMIT 3 TOKEN a PERMITS 2 OWNER web-1 LANE t1");
    server.ask("DSEM.ACQUIRE api PERMITS 2 TOKEN b QUEUE 50000 OWNER web-2 LANE t2");
    server.ask("DONCE.BEGIN report TOKEN c");
    server.ask("DWG.EXPECT batch 5");
    server.ask("SET text 1");
    let (status, shown, _) = server.dsync(&["info", "api"]).output();
    assert_eq!(status, 0);
    assert!(
        shown.starts_with("semaphore 'api' of 127.0.0.1:"),
        "{shown}"
    );
    for words in [
        "limit  3",
        "available  1",
        "web-1",
        "web-2",
        "first lanes:",
        "LONGEST WAIT",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(
        server
            .dsync(&["info", "report"])
            .stdout()
            .starts_with("once 'report'")
    );
    assert!(
        server
            .dsync(&["info", "batch"])
            .stdout()
            .contains("owed  5")
    );
    for (key, words) in [
        ("nothing", "there is no key 'nothing'"),
        ("text", "is no key of dsync"),
    ] {
        let (status, _, stderr) = server.dsync(&["info", key]).output();
        assert_eq!(status, 1);
        assert!(stderr.contains(words), "{stderr}");
    }
}

#[test]
fn info_watches_and_prints_what_has_changed() {
    let mut server = Server::start();
    server.ask("DLOCK.ACQUIRE k TOKEN a OWNER ann EX 600");
    let mut tool = server.dsync(&["info", "k", "--watch", "--json"]);
    let mut watch = Process(tool.0.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("\"owner\":\"ann\""));
    server.ask("DLOCK.RELEASE k a");
    assert!(
        next().contains("\"type\":null"),
        "the next change, however often it looks"
    );
    server.ask("DLOCK.ACQUIRE k TOKEN b OWNER bob EX 600");
    assert!(next().contains("\"owner\":\"bob\""));
    // A server that is lost is told, and watched again when it is back.
    server.kill9();
    assert!(next().contains("\"error\""));
}

#[test]
fn pause_finds_the_type_and_resume_ends_it() {
    let server = Server::start();
    server.ask("DSEM.ACQUIRE api LIMIT 1 TOKEN a");
    let (status, shown, _) = server.dsync(&["pause", "api", "10m"]).output();
    assert_eq!(status, 0);
    assert!(
        shown.starts_with("paused semaphore 'api' for 10m0s, until 2"),
        "{shown}"
    );
    assert!(
        server
            .dsync(&["pause", "api", "5m"])
            .stdout()
            .contains("; it was paused for another 9m5")
    );
    assert!(
        server
            .dsync(&["resume", "api"])
            .stdout()
            .starts_with("semaphore 'api' goes on, 4m5")
    );
    let refused = |arguments: &[&str], status: i32, words: &str| {
        let (ended, _, stderr) = server.dsync(arguments).output();
        assert_eq!(ended, status, "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    };
    refused(&["resume", "api"], 1, "semaphore 'api' was not paused");
    refused(&["resume", "new"], 1, "there is no key 'new'");
    refused(
        &["pause", "new", "5m"],
        1,
        "--type lock, semaphore, group or once",
    );
    refused(
        &["pause", "api", "5m", "--type", "lock"],
        64,
        "'api' is a semaphore: leave out --type",
    );
    refused(&["pause", "api", "31d"], 64, "TIME must be 1ms to 30d");
    server
        .dsync(&["pause", "new", "5m", "--type", "once"])
        .stdout();
    assert!(
        server
            .dsync(&["info", "new"])
            .stdout()
            .starts_with("once 'new' of")
    );
}

#[test]
fn once_tells_the_result_and_takes_the_end_of_an_attempt() {
    let (server, folder) = (Server::start(), Folder::new());
    server.ask("DONCE.BEGIN report TOKEN secret-token");
    let (status, _, stderr) = server.dsync(&["once", "get", "report"]).output();
    assert_eq!(status, 75);
    assert!(stderr.contains("'report' is not done"), "{stderr}");
    let fail = ["once", "fail", "report", "--reason", "disk full"];
    let (status, _, stderr) = server.dsync(&fail).output();
    assert_eq!(status, 64);
    assert!(stderr.contains("DSYNC_TOKEN"), "{stderr}");
    let other = server
        .dsync(&fail)
        .with("DSYNC_TOKEN", "another-token")
        .output();
    assert_eq!(other.0, 1);
    assert!(!other.2.contains("another-token"), "{}", other.2);
    let failed = server
        .dsync(&fail)
        .with("DSYNC_TOKEN", "secret-token")
        .output();
    assert_eq!((failed.0, failed.2.as_str()), (0, ""));
    server.ask("DONCE.BEGIN report TOKEN next-token");
    fs::write(folder.path("token"), "next-token\n").unwrap();
    fs::set_permissions(folder.path("token"), Permissions::from_mode(0o600)).unwrap();
    let file = folder.text("token");
    let done = [
        "once",
        "done",
        "report",
        "--result",
        "42",
        "--forever",
        "--token-file",
        &file,
    ];
    assert_eq!(server.dsync(&done).output().0, 0);
    assert_eq!(server.dsync(&["once", "get", "report"]).stdout(), "42");
    let json = server.dsync(&["once", "get", "report", "--json"]).stdout();
    assert_eq!(
        json,
        "{\"key\":\"report\",\"state\":\"done\",\"attempt\":2,\"result\":\"42\"}\n"
    );
}

#[test]
fn work_whose_attempts_have_failed_is_told_with_the_reason() {
    let server = Server::start();
    let run = [
        "run", "--once", "w", "--max", "1", "--", "sh", "-c", "exit 3",
    ];
    assert_eq!(server.dsync(&run).output().0, 3);
    let get = || server.dsync(&["once", "get", "w"]).output();
    let (status, _, stderr) = get();
    assert_eq!(status, 80, "{stderr}");
    let told = "'w' is given up after 1 attempt; the last failed with: exit status 3";
    assert!(stderr.contains(told), "{stderr}");
    server.ask("DONCE.BEGIN w TOKEN t");
    assert_eq!(get().0, 75, "the next attempt is at work");
    server.ask("DONCE.FAIL w t DELAY 60000");
    assert_eq!(get().0, 75, "it is to be tried again");
}

#[test]
fn words_of_the_server_are_subcommands() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE nightly PX 60000 TOKEN t OWNER web-1");
    assert!(server.dsync(&["holds"]).stdout().contains("nightly"));
    let status = server.dsync(&["status", "nightly"]).stdout();
    assert!(status.starts_with("lock 'nightly' of"), "{status}");
    let contended = ["contended", "--once", "--interval", "100ms"];
    assert!(server.dsync(&contended).stdout().contains("Nobody waits."));
    let help = server.dsync(&["--help"]).stdout();
    for alias in ["status", "holds", "contended"] {
        assert!(help.contains(&format!("{alias}]")), "{alias}: {help}");
    }
}

#[test]
fn end_of_an_attempt_whose_answer_was_lost_is_told_again() {
    for (verb, command) in [("done", "DONCE.DONE"), ("fail", "DONCE.FAIL")] {
        let server = Server::start();
        let network = Proxy::to(&server);
        server.ask("DONCE.BEGIN report TOKEN t EX 600");
        network.lose_reply(command);
        let tool = dsync(&network.url(), &["once", verb, "report"]).with("DSYNC_TOKEN", "t");
        let (status, _, stderr) = tool.output();
        assert_eq!(status, 0, "{verb}: {stderr}");
        let stats = server.ask("INFO commandstats").as_str().to_lowercase();
        let twice = format!("cmdstat_{}:calls=2,", command.to_lowercase());
        assert!(stats.contains(&twice), "{stats}");
    }
}

#[test]
fn done_that_comes_after_another_attempt_has_begun_is_told_as_lost() {
    let server = Server::start();
    let network = Proxy::to(&server);
    server.ask("DONCE.BEGIN report TOKEN t EX 600");
    network.delay("DONCE.DONE");
    let tool = dsync(
        &network.url(),
        &["once", "done", "report", "--timeout", "500ms"],
    );
    let mut done = tool.with("DSYNC_TOKEN", "t").start();
    let mut stderr = BufReader::new(done.0.stderr.take().unwrap()).lines();
    let told = stderr.next().unwrap().unwrap();
    assert!(told.contains("has not answered for 2.0s"), "{told}");
    server.ask("DONCE.RELEASE report t");
    server.ask("DONCE.BEGIN report TOKEN u EX 600");
    network.close_all();
    network.heal();
    assert_eq!(done.status(), 1);
    let told = stderr.next().unwrap().unwrap();
    assert!(
        told.contains("the token has no attempt at 'report'"),
        "{told}"
    );
}

#[test]
fn requests_are_repeated_for_the_time_that_is_given() {
    let server = Server::start();
    server.ask("DONCE.BEGIN report TOKEN t EX 600");
    server.stop();
    let asked = [
        &["once", "done", "report"][..],
        &["once", "fail", "report"],
        &["once", "get", "report"],
        &["group", "expect", "batch", "2"],
        &["group", "wait", "batch"],
    ];
    for arguments in asked {
        let options = ["--timeout", "100ms", "--retry-for", "0"];
        let tool = server.dsync(&[arguments, &options].concat());
        let (status, _, stderr) = tool.with("DSYNC_TOKEN", "t").output();
        assert_eq!(status, 69, "{arguments:?}: {stderr}");
    }
    let options = ["--timeout", "500ms", "--retry-for", "10m"];
    let tool = server.dsync(&[asked[0], &options].concat());
    let mut done = tool.with("DSYNC_TOKEN", "t").start();
    let mut stderr = BufReader::new(done.0.stderr.take().unwrap()).lines();
    let told = stderr.next().unwrap().unwrap();
    assert!(told.contains("has not answered for 2.0s"), "{told}");
    server.cont();
    assert_eq!(done.status(), 0);
}

#[test]
fn key_that_is_no_text_is_shown_as_a_shell_takes_it_back() {
    let server = Server::start();
    let mut client = server.connect();
    for key in [b"a\xff", b"a\xfe"] {
        call!(client, "DLOCK.ACQUIRE", key, "EX", 600, "TOKEN", key);
        call!(
            client,
            "DLOCK.ACQUIRE",
            key,
            "TOKEN",
            "next",
            "QUEUE",
            50_000
        );
    }
    let url = server.url();
    let shell = |words: &str| {
        let script = format!("'{}' {words}", env!("CARGO_BIN_EXE_dsync"));
        let mut bash = Tool(Command::new("bash"));
        bash.0.args(["-c", &script]).env("REDIS_URL", &url);
        bash
    };
    for shown in [
        shell("ls").stdout(),
        shell("top --once --interval 100ms").stdout(),
    ] {
        for key in ["\n$'a\\xff'  ", "\n$'a\\xfe'  "] {
            assert!(shown.contains(key), "{shown}");
        }
    }
    for (words, shown) in [
        ("ls --json $'*\\xff'", "\"key_hex\":\"61ff\""),
        ("top --once --json --interval 100ms", "\"key_hex\":\"61ff\""),
        ("info $'a\\xff'", "lock $'a\\xff' of "),
        ("info --json $'a\\xff'", "\"key_hex\":\"61ff\""),
        ("pause $'a\\xff' 1m", "paused lock $'a\\xff' for "),
        ("resume $'a\\xff'", "lock $'a\\xff' goes on"),
        (
            "revoke $'a\\xff' $('DSYNC' ls $'a\\xff' | awk 'NR == 2 { print $5 }')",
            "revoked $'a\\xff' ",
        ),
        ("log", " key=$'a\\xff' "),
        ("log --json", "\"key_hex\":\"61ff\""),
    ] {
        let words = words.replace("DSYNC", env!("CARGO_BIN_EXE_dsync"));
        let told = shell(&words).stdout();
        assert!(told.contains(shown), "{words}: {told}");
    }
    for words in ["run --lock $'a\\xff' true", "once get $'a\\xff'"] {
        let (status, _, stderr) = shell(words).output();
        assert_eq!(status, 64, "{words}");
        assert!(stderr.contains("$'a\\xff' is no UTF-8"), "{stderr}");
    }
}

#[test]
fn group_is_expected_and_waited_for() {
    let server = Server::start();
    assert_eq!(
        server.dsync(&["group", "expect", "batch", "2"]).stdout(),
        "2\n"
    );
    let (status, _, stderr) = server
        .dsync(&["group", "wait", "batch", "--wait", "100ms"])
        .output();
    assert_eq!(status, 75);
    assert!(
        stderr.contains("the round of 'batch' is not finished after 100ms"),
        "{stderr}"
    );
    let mut wait = server.dsync(&["group", "wait", "batch"]).start();
    for job in ["1", "2"] {
        let arguments = ["run", "--group", "batch", "--owner", job, "--", "true"];
        assert_eq!(server.dsync(&arguments).output().0, 0);
    }
    until("the wait ends", || wait.has_ended());
    assert_eq!(wait.status(), 0);
    assert_eq!(
        server.dsync(&["group", "wait", "batch"]).stdout(),
        "done 2, lapsed 0\n"
    );
}

#[test]
fn group_that_is_removed_is_not_taken_for_a_server_that_is_away() {
    let server = Server::start();
    server.ask("DWG.EXPECT batch 1");
    let mut wait = server.dsync(&["group", "wait", "batch"]).start();
    server.wait_for_waiters(1);
    server.ask("DEL batch");
    let (status, stderr) = wait.end();
    assert_eq!(status, 76, "{stderr}");
    assert!(stderr.contains("the group was removed"), "{stderr}");
}

#[test]
fn ls_lists_what_fits() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE job:1 EX 600");
    server.ask("DSEM.ACQUIRE api LIMIT 3 EX 600");
    let keys = |arguments: &[&str]| {
        let lines = server.dsync(&[&["ls"], arguments].concat()).stdout();
        let keys = lines
            .lines()
            .skip(1)
            .map(|line| line.split(' ').next().unwrap().to_owned());
        keys.collect::<Vec<_>>()
    };
    assert_eq!(keys(&["job:*"]), ["job:1"]);
    assert_eq!(keys(&["--type", "semaphore"]), ["api"]);
    assert_eq!(keys(&["--older-than", "1h"]), [""; 0]);
    assert_eq!(keys(&["--older-than", "0"]).len(), 2);
    assert_eq!(keys(&["job:*", "--type", "semaphore"]), [""; 0]);
}
