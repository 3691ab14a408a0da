//! What is said when something is wrong: whom it is about, what it is and what to do; and never a token.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Server, Tool, ToolFor, dsync, until, watch};

/// Runs a command that fails, and checks what all errors have in common. Returns the status and stderr.
#[track_caller]
fn failure(tool: Tool) -> (i32, String) {
    let (status, _, stderr) = tool.output();
    assert_ne!(status, 0, "{stderr}");
    assert!(stderr.starts_with("dsync: "), "{stderr}");
    assert!(!stderr.contains("with args"), "{stderr}");
    assert!(!has_token(&stderr), "{stderr}");
    (status, stderr)
}

/// Whether a text has a UUID, as the tokens of `dsync run` are.
fn has_token(text: &str) -> bool {
    let is_token = |word: &[u8]| {
        word.iter().enumerate().all(|(nth, byte)| match nth {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    text.as_bytes().windows(36).any(is_token)
}

const TAKE: [&str; 9] = [
    "run", "--lock", "k", "--try", "--owner", "me", "--", "echo", "x",
];

#[test]
fn tokens_are_recognised() {
    assert!(has_token("'PX' '5bff12c2-7ff7-46c3-9e2d-4a3397c4644f' 'x'"));
    assert!(!has_token("127.0.0.1:24002: no 5bff12c2 here"));
}

#[test]
fn server_without_the_module_is_told_and_no_argument_is_shown() {
    let server = Server::builder().without_module().start();
    let cluster = Server::builder()
        .without_module()
        .config("cluster-enabled", "yes")
        .start();
    cluster.ask("CLUSTER ADDSLOTSRANGE 0 16383");
    until("the cluster is whole", || {
        let info = cluster.ask("CLUSTER INFO").as_str().to_owned();
        info.contains("cluster_state:ok")
    });
    for arguments in [
        vec!["ls"],
        vec!["log"],
        vec!["top", "--once"],
        vec!["revoke", "k", "1"],
        vec!["revoke", "--owner", "x", "--yes"],
        TAKE.to_vec(),
        vec!["run", "--semaphore", "k", "--limit", "1", "--", "true"],
        vec!["run", "--once", "k", "--", "true"],
        vec!["run", "--group", "k", "--", "true"],
    ] {
        let (status, stderr) = failure(server.dsync(&arguments));
        assert_eq!(status, 76, "{stderr}");
        let name = format!("127.0.0.1:{}", server.port());
        assert!(
            stderr.contains(&name) && stderr.contains("has not loaded the dsync module"),
            "{stderr}"
        );
        let mut in_cluster = vec!["--cluster"];
        in_cluster.extend(arguments);
        let (status, stderr) = failure(cluster.dsync(&in_cluster));
        assert_eq!(status, 76, "{stderr}");
        assert!(stderr.contains("has not loaded"), "{stderr}");
    }
}

#[test]
fn refusals_are_told_in_own_words() {
    let server = Server::start();
    server.ask("SET k text");
    server.ask("DSEM.ACQUIRE two LIMIT 2 PX 60000 TOKEN a");
    let cases: [(&[&str], &str); 5] = [
        (&TAKE, "has another type"),
        (&["run", "--semaphore", "new", "--", "true"], "--limit N"),
        (
            &["run", "--semaphore", "two", "--permits", "5", "--", "true"],
            "PERMITS 5 is more than the limit in force, 2",
        ),
        (
            &["run", "--once", "k", "--", "true"],
            "work 'k': 127.0.0.1:",
        ),
        (&["revoke", "k", "1"], "no key of dsync"),
    ];
    let here = format!("127.0.0.1:{}", server.port());
    for (arguments, text) in cases {
        let (_, stderr) = failure(server.dsync(arguments));
        assert!(stderr.contains(text), "{arguments:?}: {stderr}");
        assert!(stderr.contains(&here) && stderr.contains('\''), "{stderr}");
        for code in ["WRONGTYPE", "NOLIMIT", "TOOMANY"] {
            assert!(!stderr.contains(code), "{stderr}");
        }
    }
}

#[test]
fn denied_user_learns_which_command_and_which_rule() {
    let server = Server::start();
    for user in [
        "worker on nopass resetchannels ~jobs:* -@all +@connection +dlock.acquire",
        "nobody on nopass resetchannels ~* -@all +@connection",
    ] {
        server.ask(format!("ACL SETUSER {user}"));
    }
    let as_user = |user: &str, arguments: &[&str]| {
        let url = format!("redis://{user}:any@127.0.0.1:{}", server.port());
        let (status, stderr) = failure(dsync(&url, arguments));
        assert_eq!(status, 76, "{stderr}");
        let is_complete = stderr.contains(&format!("the user '{user}'"))
            && stderr.contains("NOPERM")
            && stderr.contains("docs/acl.md");
        assert!(is_complete, "{stderr}");
        stderr
    };
    let stderr = as_user("nobody", &TAKE);
    assert!(
        stderr.contains("may not use DLOCK.ACQUIRE") && stderr.contains("`worker`"),
        "{stderr}"
    );
    for arguments in [&["ls"][..], &["top", "--once"]] {
        let stderr = as_user("nobody", arguments);
        assert!(stderr.contains("`observer`"), "{stderr}");
    }
    let stderr = as_user("worker", &["log"]);
    assert!(
        stderr.contains("may not use DSYNC.LOG") && stderr.contains("`operator`"),
        "{stderr}"
    );
    let stderr = as_user("worker", &["revoke", "jobs:1", "1"]);
    assert!(stderr.contains("+dlock.revoke"), "{stderr}");
    let stderr = as_user("worker", &TAKE);
    assert!(stderr.contains("this key"), "{stderr}");
    let stderr = as_user("worker", &["--cluster", "ls"]);
    assert!(stderr.contains("+cluster|slots"), "{stderr}");
}

#[test]
fn cluster_option_at_a_server_that_stands_alone_is_named() {
    let server = Server::start();
    // Also a wait is refused at once: it does not become a cluster.
    let wait = ["run", "--lock", "k", "--", "true"];
    for arguments in [&["ls"][..], &TAKE, &wait] {
        let mut all = vec!["-c"];
        all.extend(arguments);
        let (status, stderr) = failure(server.dsync(&all));
        assert_eq!(status, 76, "{stderr}");
        let name = format!("127.0.0.1:{}", server.port());
        for word in [&name, "no node of a cluster", "Leave out --cluster (-c)"] {
            assert!(stderr.contains(word), "{arguments:?}, {word}: {stderr}");
        }
    }
}

#[test]
fn unknown_primary_and_what_is_no_sentinel_are_told() {
    let server = Server::start();
    let sentinel = watch(&server, 0);
    let living = format!("127.0.0.1:{}", sentinel.nth(0).port());
    let tool = |address: &str, master: &str, arguments: &[&str]| {
        let mut all = vec!["--sentinel", address, "--master", master];
        all.extend(arguments);
        let (status, stderr) = failure(dsync("redis://127.0.0.1:1", &all));
        assert_eq!(status, 76, "{stderr}");
        stderr
    };
    let wait = ["run", "--lock", "k", "--", "true"];
    for arguments in [&["ls"][..], &TAKE, &wait] {
        for address in [&living, &format!("127.0.0.1:1,{living}")] {
            let stderr = tool(address, "unknown", arguments);
            for word in ["--master 'unknown'", &living, "SENTINEL MASTERS"] {
                assert!(stderr.contains(word), "{word}: {stderr}");
            }
        }
    }
    for arguments in [&["ls"][..], &wait] {
        let stderr = tool(&format!("127.0.0.1:{}", server.port()), "locks", arguments);
        assert!(stderr.contains("no sentinel"), "{stderr}");
    }
}

#[test]
fn refusal_of_a_sentinel_names_the_sentinel_and_its_options() {
    let server = Server::start();
    let sentinel = watch(&server, 0);
    let place = sentinel.nth(0);
    place.ask("ACL SETUSER watcher on >secret +@all");
    place.ask("ACL SETUSER blind on nopass -@all +@connection");
    let address = format!("127.0.0.1:{}", place.port());
    let name = format!("the Sentinel at {address}: ");
    for (user, words) in [
        (
            "watcher",
            ["Password authentication failed", "--sentinel-user"],
        ),
        ("blind", ["the user 'blind'", "NOPERM"]),
    ] {
        let login = ["--sentinel-user", user, "--sentinel-pass", "wrong"];
        let place = ["--sentinel", &address, "--master", "locks"];
        for arguments in [&["ls"][..], &TAKE] {
            let all = [&place[..], &login, arguments].concat();
            let (status, _, stderr) = dsync("redis://127.0.0.1:1", &all).output();
            assert_eq!(status, 76, "{stderr}");
            let told = words.iter().all(|word| stderr.contains(word));
            assert!(told && stderr.contains(&name), "{arguments:?}: {stderr}");
        }
    }
    let away = ["--sentinel", "127.0.0.1:1", "--master", "locks", "ls"];
    let (status, stderr) = failure(dsync("redis://127.0.0.1:1", &away));
    let advice = "Give it with --sentinel.";
    assert!(
        status == 69 && stderr.contains("the Sentinel at 127.0.0.1:1: "),
        "{stderr}"
    );
    assert!(stderr.contains(advice), "{stderr}");
}

#[test]
fn refusal_behind_sentinels_is_final_unless_one_is_away() {
    let server = Server::start();
    let sentinel = watch(&server, 0);
    let address = format!("127.0.0.1:{}", sentinel.nth(0).port());
    let both = format!("127.0.0.1:1,{address}");
    let run = |user: &str, password: &str| {
        let place = ["--sentinel", &both, "--master", "locks"];
        let login = [user, "nobody", password, "wrong"];
        let wait = ["run", "--lock", "k", "--wait", "2s", "--", "true"];
        let all = [&place[..], &login, &wait].concat();
        failure(dsync("redis://127.0.0.1:1", &all))
    };
    let (status, stderr) = run("--user", "--pass");
    let primary = format!("127.0.0.1:{}: Password auth", server.port());
    assert!(status == 76 && stderr.contains(&primary), "{stderr}");
    assert!(stderr.contains("--password-file"), "{stderr}");
    let (status, stderr) = run("--sentinel-user", "--sentinel-pass");
    let told = format!("the Sentinel at {address}: Password auth");
    assert!(status == 69 && stderr.contains(&told), "{stderr}");
    assert!(stderr.contains("--sentinel-password-file"), "{stderr}");
    assert!(!stderr.contains("127.0.0.1:1:"), "{stderr}");
}

#[test]
fn port_of_another_service_is_told() {
    // A web server, and a port with TLS that says so before it closes the connection.
    let answers: [&[u8]; 2] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        &[21, 3, 1, 0, 2, 2, 70],
    ];
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let _ = client.read(&mut [0; 1000]);
                let _ = client.write_all(answer);
            }
        });
        for arguments in [&["ls"][..], &TAKE] {
            let url = format!("redis://127.0.0.1:{port}");
            let (status, stderr) = failure(dsync(&url, arguments));
            assert_eq!(status, 69, "{stderr}");
            assert!(
                stderr.contains("not one of a Redis or Valkey server") && stderr.contains("--tls"),
                "{stderr}"
            );
        }
    }
}

#[test]
fn usage_errors_begin_as_all_others_and_keep_their_hints() {
    for (arguments, hint) in [
        (&["ls", "--ower", "x"][..], "'--owner'"),
        (&["revok"][..], "'revoke'"),
        (&["log", "--count", "0"][..], "1..=5000"),
        (
            &["run", "--lock", "a", "--lease", "1x", "--", "true"][..],
            "no duration",
        ),
        (&["run"][..], "Usage: dsync run"),
        (&["--sentinel", "a", "ls"][..], "--master"),
        (
            &["run", "--lock", "--try", "true"][..],
            "begins with a dash follows '=': '--lock=-KEY'",
        ),
        (
            &["run", "--lock", "-x", "true"][..],
            "begins with a dash follows '=': '--OPTION=-x'",
        ),
    ] {
        let (status, stderr) = failure(dsync("redis://127.0.0.1:1", arguments));
        assert_eq!(status, 64);
        assert!(stderr.contains(hint), "{stderr}");
        assert!(!stderr.contains("error:"), "{stderr}");
    }
    let (status, stdout, _) = dsync("redis://127.0.0.1:1", &["--help"]).output();
    assert!(status == 0 && stdout.contains("Usage: dsync"));
    assert!(stdout.starts_with("Run commands under locks"), "{stdout}");
    let (status, _, stderr) = dsync("redis://127.0.0.1:1", &[]).output();
    assert!(status == 64 && stderr.contains("Usage: dsync"), "{stderr}");
}

#[test]
fn line_that_runs_no_job_never_succeeds() {
    let job = ["run", "--lock", "a", "--", "true"];
    for (arguments, text) in [
        ([&["-h"][..], &job].concat(), "--help"),
        ([&["-V"][..], &job].concat(), "not carried out"),
        ([&["-cV"][..], &job].concat(), "not carried out"),
        ([&["--help"][..], &job].concat(), "not carried out"),
        (
            vec!["run", "--lock", "a", "-h", "--", "true"],
            "help is '--help'",
        ),
        (
            vec!["run", "--lock", "a", "--help", "--", "true"],
            "not carried out",
        ),
        (
            vec!["run", "--lock", "a", "--version", "--", "true"],
            "unexpected",
        ),
        (
            vec!["help", "run", "--lock", "a", "--", "true"],
            "unrecognized",
        ),
        (vec!["-h"], "help is '--help'"),
        (vec!["ls", "-h"], "help is '--help'"),
        (vec!["run", "-p"], "--port"),
    ] {
        let (status, stderr) = failure(dsync("redis://127.0.0.1:1", &arguments));
        assert_eq!(status, 64, "{arguments:?}: {stderr}");
        assert!(stderr.contains(text), "{arguments:?}: {stderr}");
    }
    for arguments in [&["run", "--help"][..], &["help", "run"], &["-V"]] {
        dsync("redis://127.0.0.1:1", arguments).stdout();
    }
}

#[test]
fn address_in_a_wrong_place_is_told_without_its_password() {
    let url = "rediss://alice:top secret@h:7000/2";
    for (arguments, text) in [
        (&[url, "ls"][..], "follows --url"),
        (&["alice:secret@h:7000", "ls"], "follows --url"),
        (&["unix:///socket?pass=secret", "ls"], "follows --url"),
        (&["127.0.0.1:7000", "ls"], "follows --url"),
        (&["top", url], "unexpected argument 'rediss://…'"),
        (&["-p", url, "ls"], "'rediss://…'"),
        (&["ls", "-u", "alice:secret@h:x"], "cannot be read"),
    ] {
        let (status, stderr) = failure(dsync("redis://127.0.0.1:1", arguments));
        assert!(status == 64 && stderr.contains(text), "{stderr}");
        assert!(!stderr.contains("secret"), "{stderr}");
    }
}

#[test]
fn timeout_bounds_connecting_in_all() {
    let server = Server::start();
    server.ask("ACL SETUSER worker on >secret ~* +@all");
    server.ask("CONFIG SET requirepass other");
    server.stop();
    // Password, database and the client's name are four answers.
    let url = format!("redis://worker:secret@127.0.0.1:{}/3", server.port());
    for arguments in [&["ls"][..], &["log"], &["revoke", "k", "1"]] {
        let mut all = vec!["--timeout", "2s"];
        all.extend(arguments);
        let start = Instant::now();
        let (status, stderr) = failure(dsync(&url, &all));
        assert_eq!(status, 69, "{stderr}");
        assert!(stderr.contains("no answer in time"), "{stderr}");
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }
}
