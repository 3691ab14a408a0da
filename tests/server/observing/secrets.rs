//! Tokens are secrets: a client that may look at everything learns no token, so it cannot end other clients' holds.
//!
//! The tests send a long list of commands, right and wrong, each with a marked token, and then search everything that
//! the server shows. They also assert that tokens do remain where docs/acl.md says so: in the AOF, in DUMP, on replicas.

use crate::support::steps::*;
use crate::support::*;
use std::fs;

/// A part of every token of these tests, and of nothing else.
const MARK: &str = "s3kr3t";

/// A server that logs and reports as much as it can.
fn talkative() -> Builder {
    Server::builder()
        .config("slowlog-log-slower-than", 0)
        .config("slowlog-max-len", 100_000)
        .config("loglevel", "debug")
        .config("latency-monitor-threshold", 1)
        .config("notify-keyspace-events", "KEAd")
        .config("latency-tracking", "yes")
}

/// A connection in MONITOR.
struct Monitor {
    server_port: u16,
    client: Client,
}

impl Monitor {
    fn start(server: &Server) -> Monitor {
        let mut client = server.connect();
        assert_eq!(client.ask("MONITOR"), "OK");
        Monitor {
            server_port: server.port(),
            client,
        }
    }

    /// The lines up to this call.
    #[track_caller]
    fn stop(mut self, server: &Server) -> Vec<String> {
        assert_eq!(server.port(), self.server_port);
        const END: &str = "the-end-of-the-watch";
        server.connect().ask(format!("ECHO {END}"));
        let mut seen = Vec::new();
        loop {
            let line = self.client.recv(SOON).expect("the end is seen");
            let line = line.as_str().to_owned();
            if line.contains(END) {
                return seen;
            }
            seen.push(line);
        }
    }
}

/// As [`ask`]; asserts that the reply has no token, unless it is a grant.
#[track_caller]
fn ask_for(client: &mut Client, line: &str) -> Reply {
    let reply = client.ask(line);
    if fence_in(&reply).is_none() {
        assert_silent(&format!("the reply to {line}"), &format!("{reply:?}"));
    }
    reply
}

#[track_caller]
fn assert_silent(what: &str, text: &str) {
    if let Some(at) = text.find(MARK) {
        let from = text[..at].rfind('\n').map_or(0, |line| line + 1);
        let until = text[at..].find('\n').map_or(text.len(), |line| at + line);
        panic!("{what} has a token in it: {}", &text[from..until]);
    }
}

/// Commands with tokens: right and wrong ones, and some whose hold has ended.
const LINES: &[&str] = &[
    "DLOCK.ACQUIRE lock TOKEN s3kr3t-1 EX 600",
    "dlock.acquire lock token s3kr3t-1 ex 600",
    "DLOCK.ACQUIRE lock TOKEN s3kr3t-2",
    "DLOCK.ACQUIRE lock SHARED TOKEN s3kr3t-1",
    "DLOCK.ACQUIRE lock TOKEN s3kr3t-1 OWNER me EPHEMERAL",
    "DLOCK.RENEW lock s3kr3t-1 EX 600",
    "DLOCK.RENEW lock s3kr3t-2",
    "DLOCK.RENEW lock s3kr3t-1 EX nonsense",
    "DLOCK.RENEW lock s3kr3t-1 EX",
    "DLOCK.RENEW lock s3kr3t-1 PX 0",
    "DLOCK.CHECK lock s3kr3t-1",
    "DLOCK.CHECK lock s3kr3t-1 extra",
    "DLOCK.CHECK lock s3kr3t-2",
    "DLOCK.RELEASE lock s3kr3t-2",
    "DLOCK.RELEASE lock s3kr3t-1 extra",
    // TOKEN as the value of another option, as a key, or in a wrong place.
    "DLOCK.ACQUIRE owned OWNER TOKEN TOKEN s3kr3t-3",
    "DLOCK.ACQUIRE TOKEN TOKEN s3kr3t-4",
    "DLOCK.ACQUIRE wrong TOKEN s3kr3t-5 TOKEN s3kr3t-6",
    "DLOCK.ACQUIRE wrong TOKEN s3kr3t-5 EX",
    "DLOCK.ACQUIRE wrong TOKEN s3kr3t-5 EX x",
    "DLOCK.ACQUIRE wrong TOKEN s3kr3t-5 NONSENSE",
    "DLOCK.ACQUIRE wrong NONSENSE TOKEN s3kr3t-5",
    "DLOCK.ACQUIRE wrong EX 1 PX 1 TOKEN s3kr3t-5",
    "DLOCK.ACQUIRE wrong BLOCK TOKEN s3kr3t-5",
    "DLOCK.ACQUIRE wrong EX TOKEN s3kr3t-5",
    "DLOCK.ACQUIRE string TOKEN s3kr3t-5",
    "DLOCK.RELEASE string s3kr3t-5",
    "DSEM.ACQUIRE sem LIMIT 2 TOKEN s3kr3t-1 EX 600",
    "DSEM.ACQUIRE sem PERMITS 2 TOKEN s3kr3t-1",
    "DSEM.ACQUIRE sem PERMITS 3 TOKEN s3kr3t-2",
    "DSEM.ACQUIRE none TOKEN s3kr3t-2",
    "DSEM.RENEW sem s3kr3t-1",
    "DSEM.CHECK sem s3kr3t-1",
    "DSEM.RELEASE sem s3kr3t-2",
    "DSEM.ACQUIRE sem TOKEN s3kr3t-2 BLOCK 0 EX 600",
    "DSEM.RELEASE sem s3kr3t-2",
    "DWG.ADD group TOKEN s3kr3t-1 EX 600",
    "DWG.ADD group TOKEN s3kr3t-2",
    "DWG.ADD group TOKEN s3kr3t-3",
    "DWG.RENEW group s3kr3t-1",
    "DWG.CHECK group s3kr3t-1",
    "DWG.DONE group s3kr3t-2 s3kr3t-3 s3kr3t-4",
    "DWG.DONE string s3kr3t-2 s3kr3t-3 s3kr3t-4",
    "DWG.RELEASE group s3kr3t-9",
    "DWG.WAIT group BLOCK 1",
    "DONCE.BEGIN once TOKEN s3kr3t-1 MAX 3",
    "DONCE.RENEW once s3kr3t-1",
    "DONCE.CHECK once s3kr3t-1",
    "DONCE.FAIL once s3kr3t-1 REASON because",
    "DONCE.FAIL once s3kr3t-1 NONSENSE because",
    "DONCE.FAIL once s3kr3t-1 REASON",
    "DONCE.BEGIN once TOKEN s3kr3t-2 EX 600",
    "DONCE.RELEASE once s3kr3t-2",
    "DONCE.BEGIN once TOKEN s3kr3t-3 PX 20",
    "DONCE.BEGIN done TOKEN s3kr3t-4",
    "DONCE.DONE done s3kr3t-4 RESULT",
    "DONCE.DONE done s3kr3t-4 RESULT r EX 0",
    "DONCE.DONE done s3kr3t-4 RESULT r EX 600",
    "DONCE.DONE done s3kr3t-4",
    "DONCE.DONE done s3kr3t-5",
    "DONCE.BEGIN done TOKEN s3kr3t-4",
    "DONCE.BEGIN running TOKEN s3kr3t-1 EX 600",
];

/// Sends everything that has to do with tokens. Returns connections that still wait or hold.
fn send_tokens_everywhere(server: &Server) -> Vec<Client> {
    let mut client = server.connect();
    client.ask("SET string x");
    for line in LINES {
        ask_for(&mut client, line);
    }
    // Tokens that are too long.
    let long = format!("{MARK}{}", "x".repeat(123));
    for command in [
        "DLOCK.RELEASE",
        "DSEM.RENEW",
        "DWG.DONE",
        "DWG.CHECK",
        "DONCE.DONE",
        "DONCE.FAIL",
    ] {
        let error = ask_for(&mut client, &format!("{command} k {long}"));
        assert!(
            error.error().contains("1 to 128 bytes, not 129"),
            "{command}: {error:?}"
        );
    }
    ask_for(&mut client, &format!("DLOCK.ACQUIRE k TOKEN {long}"));

    // In transactions.
    for line in [
        "MULTI",
        "DLOCK.ACQUIRE multi TOKEN s3kr3t-1",
        "DLOCK.RENEW multi s3kr3t-1",
        "DWG.DONE group s3kr3t-1 s3kr3t-2",
        "DLOCK.ACQUIRE multi TOKEN",
        "DLOCK.RELEASE multi s3kr3t-1",
    ] {
        ask_for(&mut client, line);
    }
    client.ask("EXEC");

    // In a script. The server shows the arguments of EVAL, so the script itself builds the mark.
    let script = "
        local token = 's3k' .. 'r3t-1'
        redis.call('DLOCK.ACQUIRE', KEYS[1], 'TOKEN', token, 'OWNER', 'TOKEN')
        redis.call('DLOCK.RENEW', KEYS[1], token)
        redis.call('DLOCK.CHECK', KEYS[1], token)
        redis.pcall('DLOCK.RENEW', KEYS[1], token, 'EX', 'x')
        redis.call('DWG.DONE', 'group', token, token .. '2')
        return redis.call('DLOCK.RELEASE', KEYS[1], token)";
    assert_eq!(call!(client, "EVAL", script, 1, "scripted"), 1);

    // In queues: granted, superseded, timed out, closed, and still waiting.
    client.ask("DLOCK.ACQUIRE queue TOKEN s3kr3t-0 EX 600");
    let mut served = server.waiting("DLOCK.ACQUIRE queue TOKEN s3kr3t-1 EX 600 BLOCK 0");
    let mut old = server.waiting("DLOCK.ACQUIRE queue TOKEN s3kr3t-2 BLOCK 0");
    let mut short = server.connect();
    short.begin("DLOCK.ACQUIRE queue TOKEN s3kr3t-3 BLOCK 20");
    let short = short.reply();
    server
        .waiting("DLOCK.ACQUIRE queue TOKEN s3kr3t-4 BLOCK 0")
        .close();
    let mut new = server.connect();
    new.begin("DLOCK.ACQUIRE queue TOKEN s3kr3t-2 EX 600 BLOCK 0");
    for reply in [old.reply(), short] {
        assert_silent("a waiter's reply", &format!("{reply:?}"));
    }
    assert_eq!(client.ask("DLOCK.RELEASE queue s3kr3t-0"), 1);
    served.granted();
    let waiting = server.waiting("DONCE.BEGIN running TOKEN s3kr3t-9 BLOCK 0");
    // A revocation and a lapse, which are logged.
    let lapsing = client.ask("DLOCK.ACQUIRE lapsing TOKEN s3kr3t-1 PX 10");
    lapsing.grant();
    wait_until_gone(&mut client, "lapsing");
    let (_, fence) = client.ask("DLOCK.ACQUIRE revoked TOKEN s3kr3t-1").grant();
    assert_eq!(client.ask(format!("DLOCK.REVOKE revoked {fence}")), 1);
    // A user without the permission.
    client.ask("ACL SETUSER nobody on nopass ~* +ping");
    let mut nobody = server.connect();
    nobody.ask("AUTH nobody x");
    for line in [
        "DLOCK.RELEASE queue s3kr3t-1",
        "DLOCK.ACQUIRE queue TOKEN s3kr3t-1",
    ] {
        let refused = ask_for(&mut nobody, line);
        assert!(refused.error().starts_with("NOPERM "), "{refused:?}");
    }
    vec![served, new, waiting]
}

/// Asserts that no token is in the MONITOR lines, in the replies of commands that show things, or in the log.
#[track_caller]
fn assert_nothing_is_seen(server: &Server, seen: &[String]) {
    assert_silent("MONITOR", &seen.join("\n"));
    let mut client = server.connect();
    let mut look = |line: &str| {
        let text = format!("{:#?}", client.ask(line));
        assert_silent(line, &text);
        text
    };
    for line in [
        "SLOWLOG GET -1",
        "CLIENT LIST",
        "INFO everything",
        "INFO errorstats",
        "INFO dsync",
        "DSYNC.CONTENDED COUNT 1000",
        "DSYNC.HOLDS 0 COUNT 1000",
        "DSYNC.LOG COUNT 5000",
        "ACL LOG",
        "LATENCY DOCTOR",
        "DLOCK.INFO lock",
        "DLOCK.INFO owned",
        "DLOCK.INFO queue COUNT 1000",
        "DSEM.INFO sem",
        "DWG.INFO group",
        "DONCE.INFO once",
        "DONCE.INFO done",
        "DONCE.INFO running",
        "KEYS *",
        "DEBUG OBJECT queue",
        "DEBUG DIGEST-VALUE queue",
        "MEMORY DOCTOR",
    ] {
        look(line);
    }
    let log = server.log_text();
    assert_silent("the server's log", &log);
}

#[test]
fn clients_tokens_are_nowhere_to_be_seen() {
    let primary = talkative()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start();
    let replica = talkative().replica_of(&primary).start();
    let mut listener = primary.connect();
    listener.ask("PSUBSCRIBE *");
    let monitors = [Monitor::start(&primary), Monitor::start(&replica)];
    let clients = send_tokens_everywhere(&primary);
    replica.wait_to_catch_up_with(&primary);
    // A replica refuses the writes and answers the reads.
    let mut client = replica.connect();
    for line in LINES {
        ask_for(&mut client, line);
    }
    assert!(
        client.ask("DLOCK.CHECK queue s3kr3t-1").as_int() > 0,
        "it has the hold"
    );

    let [on_primary, on_replica] = monitors;
    let seen = on_primary.stop(&primary);
    // MONITOR did show the commands, with "redacted" in place of the token.
    for command in [
        "DLOCK.ACQUIRE",
        "DLOCK.RELEASE",
        "DWG.DONE",
        "DONCE.FAIL",
        "DSEM.CHECK",
    ] {
        let line = seen.iter().find(|line| line.contains(command));
        let line = line.unwrap_or_else(|| panic!("no {command} in {seen:?}"));
        assert!(line.contains("redacted"), "{line}");
    }
    let scripted = seen.iter().filter(|line| line.contains("lua]")).count();
    assert!(
        scripted >= 5,
        "the script's own commands are seen too: {scripted}"
    );
    assert_nothing_is_seen(&primary, &seen);
    assert_nothing_is_seen(&replica, &on_replica.stop(&replica));

    // The owner is not hidden, even if it is the word TOKEN.
    let owned = primary.connect().ask("DLOCK.INFO owned");
    assert_eq!(
        *owned.field("first-holders").as_array()[0].field("owner"),
        "TOKEN"
    );

    // The keyspace notifications.
    call!(primary.connect(), "PUBLISH", "the-end", "of it");
    loop {
        let message = listener.recv(SOON).expect("the end comes");
        let text = format!("{message:?}");
        if text.contains("the-end") {
            break;
        }
        assert_silent("a keyspace notification", &text);
    }
    drop(clients);
}

#[test]
fn tokens_remain_in_aof_replicas_dump_and_outer_eval() {
    let server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start();
    let mut stream = ReplicationStream::attach(&server);
    let mut client = server.connect();
    client
        .ask("DLOCK.ACQUIRE lock TOKEN s3kr3t-1 EX 600")
        .grant();
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF's directory");
    let aof: Vec<u8> = files
        .flat_map(|file| fs::read(file.expect("a file").path()).expect("it is read"))
        .collect();
    assert!(String::from_utf8_lossy(&aof).contains(MARK), "the AOF");
    let replicated = stream.take_so_far(&server);
    assert!(
        replicated
            .iter()
            .any(|command| words(command).join(" ").contains(MARK)),
        "replicas"
    );
    let dumped = client.ask("DUMP lock");
    assert!(
        String::from_utf8_lossy(dumped.as_bytes()).contains(MARK),
        "DUMP"
    );
    let monitor = Monitor::start(&server);
    let script = "return redis.call('DLOCK.CHECK', KEYS[1], ARGV[1])";
    assert!(call!(client, "EVAL", script, 1, "lock", "s3kr3t-1").as_int() > 0);
    let seen = monitor.stop(&server);
    let (outer, inner): (Vec<_>, Vec<_>) = seen.iter().partition(|line| line.contains("EVAL"));
    assert!(
        outer.iter().any(|line| line.contains(MARK)),
        "an outer EVAL's arguments: {outer:?}"
    );
    assert!(!inner.iter().any(|line| line.contains(MARK)), "{inner:?}");
}

/// A client forgot the word TOKEN. Its token stood in SLOWLOG for everybody to read, and in MONITOR.
#[test]
fn token_without_the_word_token_is_hidden() {
    let server = talkative().start();
    let mut client = server.connect();
    let monitor = Monitor::start(&server);
    for line in [
        "DLOCK.ACQUIRE lock s3kr3t-1",
        "DLOCK.ACQUIRE lock EX 600 s3kr3t-1 OWNER me",
        "DLOCK.ACQUIRE lock EX s3kr3t-1",
        "DSEM.ACQUIRE sem LIMIT 2 PERMITS s3kr3t-1",
        "DONCE.BEGIN once s3kr3t-1 MAX 3",
        "DONCE.DONE once s3kr3t-1 s3kr3t-2",
        "DLOCK.RELEASE lock s3kr3t-1 s3kr3t-2",
        "DLOCK.REVOKE lock s3kr3t-1",
        "DLOCK.INFO lock s3kr3t-1",
    ] {
        // The client itself may see what it sent.
        assert!(client.ask(line).is_error(), "{line}");
    }
    let seen = monitor.stop(&server);
    let owned = |line: &&String| line.contains("OWNER") && line.contains("\"me\"");
    assert!(seen.iter().any(|line| owned(&line)), "the rest is shown");
    assert_nothing_is_seen(&server, &seen);
}

/// Tokens that the server makes are hidden like tokens of clients.
#[test]
fn server_made_tokens_are_nowhere_to_be_seen() {
    let server = talkative().start();
    let mut client = server.connect();
    let monitor = Monitor::start(&server);
    let mut tokens = Vec::new();
    for line in [
        "DLOCK.ACQUIRE lock EX 600",
        "DSEM.ACQUIRE sem LIMIT 1 EX 600",
        "DWG.ADD group EX 600",
        "DONCE.BEGIN once EX 600",
    ] {
        let reply = client.ask(line);
        let token = reply
            .as_array()
            .iter()
            .find(|item| matches!(item, Reply::Bulk(text) if text.len() == 36));
        tokens.push(token.expect("a token").as_str().to_owned());
    }
    for (command, token) in [
        "DLOCK.RENEW lock",
        "DSEM.CHECK sem",
        "DWG.RENEW group",
        "DONCE.RENEW once",
    ]
    .iter()
    .zip(&tokens)
    {
        assert!(client.ask(format!("{command} {token}")).as_int() > 0);
    }
    let mut text = monitor.stop(&server).join("\n");
    for line in [
        "SLOWLOG GET -1",
        "INFO everything",
        "CLIENT LIST",
        "DLOCK.INFO lock",
        "DSEM.INFO sem",
        "DWG.INFO group",
        "DONCE.INFO once",
    ] {
        text += &format!("{:?}", client.ask(line));
    }
    text += &server.log_text();
    for token in tokens {
        assert!(!text.contains(&token), "{token} is seen");
    }
}

/// A server that crashes logs a report about itself and its clients.
#[test]
fn crash_report_has_no_token() {
    // Without the memory test at the end of the report, which takes long and logs no contents.
    let server = talkative().config("crash-memcheck-enabled", "no").start();
    let waiting = send_tokens_everywhere(&server);
    // A report has the command of the client that crashed the server; this client has sent no token.
    server.connect().begin("DEBUG SEGFAULT");
    eventually("the report", SOON, || {
        server.log_text().contains("REPORT END")
    });
    assert_silent("the crash report", &server.log_text());
    drop(waiting);
}

/// At debug the log has a line for each grant and release, with the fence; at notice it has none.
#[test]
fn log_at_debug_names_grants_and_releases_by_fence() {
    for (level, is_told) in [("debug", true), ("notice", false)] {
        let server = Server::builder().config("loglevel", level).start();
        let mut client = server.connect();
        for (key, grant, release) in [
            (
                "the-lock",
                "DLOCK.ACQUIRE the-lock TOKEN s3kr3t-1",
                "DLOCK.RELEASE the-lock s3kr3t-1",
            ),
            (
                "the-sem",
                "DSEM.ACQUIRE the-sem LIMIT 1 TOKEN s3kr3t-1",
                "DSEM.RELEASE the-sem s3kr3t-1",
            ),
            (
                "the-group",
                "DWG.ADD the-group TOKEN s3kr3t-1",
                "DWG.DONE the-group s3kr3t-1",
            ),
            (
                "the-once",
                "DONCE.BEGIN the-once TOKEN s3kr3t-1",
                "DONCE.DONE the-once s3kr3t-1",
            ),
        ] {
            let lines = |fence: &str| {
                let log = server.log_text();
                let lines_of_dsync = log.lines().filter(|line| line.contains("<dsync>"));
                lines_of_dsync
                    .filter(|line| line.contains(key) && line.contains(fence))
                    .count()
            };
            let reply = client.ask(grant);
            let fence = fence_in(&reply).expect("a grant").to_string();
            assert_eq!(lines(&fence), usize::from(is_told), "{grant} at {level}");
            assert_eq!(client.ask(release), 1);
            assert_eq!(
                lines(&fence),
                2 * usize::from(is_told),
                "{release} at {level}"
            );
        }
        assert_silent("the server's log", &server.log_text());
    }
}

/// A replica cannot carry out a change, here because the key was deleted there. Then the server writes the last part of
/// the stream into the replica's log, unless `hide-user-data-from-log` says that it must not: Valkey's default.
#[test]
fn tokens_remain_in_log_of_a_replica_that_refuses_a_change() {
    let shows_token = |setting: Option<&str>| {
        let primary = Server::start();
        let replica = Server::builder().config("replica-read-only", "no");
        let replica = setting.into_iter().fold(replica, |replica, value| {
            replica.config("hide-user-data-from-log", value)
        });
        let replica = replica.replica_of(&primary).start();
        let mut client = primary.connect();
        client
            .ask("DLOCK.ACQUIRE other TOKEN s3kr3t-1 EX 600")
            .grant();
        client.ask("DLOCK.ACQUIRE lock TOKEN t EX 600").grant();
        replica.wait_to_catch_up_with(&primary);
        assert_silent("the replica's log", &replica.log_text());
        assert_eq!(replica.connect().ask("DEL lock"), 1);
        assert_eq!(client.ask("DLOCK.RENEW lock t"), 1);
        eventually("a refused change", SOON, || {
            replica.info_number("dsync", "dsync_unapplied_changes") == 1
        });
        replica.wait_to_catch_up_with(&primary);
        replica.log_text().contains(MARK)
    };
    let hides = Server::start()
        .connect()
        .ask("CONFIG GET hide-user-data-from-log");
    let has_setting = !hides.as_array().is_empty();
    assert_eq!(
        shows_token(None),
        !has_setting || *hides.field("hide-user-data-from-log") == "no"
    );
    if has_setting {
        assert!(shows_token(Some("no")) && !shows_token(Some("yes")));
    }
}
