//! What a server knows after it was saved, stopped, killed, reloaded or moved.
//!
//! The promise: no acknowledged grant is lost where every write reaches the disk; holds come back with
//! their tokens, fences, leases and deadlines; a lease goes on with what was left of it and some grace,
//! never more than all of it; and fences only ever rise, also where nothing was saved at all.

use crate::harness::*;
use std::fs;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SOON: Duration = Duration::from_secs(10);

const MINUTE_US: u64 = 60_000_000;
const HOUR_US: u64 = 60 * MINUTE_US;
const DAY_US: u64 = 24 * HOUR_US;

fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is past 1970").as_micros() as u64
}

fn unix_ms() -> u64 {
    unix_us() / 1000
}

/// A server whose every write is on the disk before its reply.
fn with_aof(preamble: bool) -> Builder {
    Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("aof-use-rdb-preamble", if preamble { "yes" } else { "no" })
}

fn kill_and_start(server: &mut Server) {
    server.kill9();
    server.start_again();
}

fn rewrite_aof(server: &Server) {
    let reply = call!(server.connect(), "BGREWRITEAOF");
    assert!(!reply.is_error(), "{reply:?}");
    eventually("a rewritten AOF", Duration::from_secs(30), || {
        let info = server.info_section("persistence");
        ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"]
            .iter()
            .all(|line| info.contains(line))
    });
    assert_eq!(
        server.info("persistence", "aof_last_bgrewrite_status"),
        "ok"
    );
}

/// Every kind of state, in two databases.
fn furnish(server: &Server) {
    let mut client = server.connect();
    call!(
        client,
        "DLOCK.ACQUIRE",
        "lock",
        "EX",
        600,
        "TOKEN",
        "t",
        "OWNER",
        "somebody"
    );
    call!(client, "DLOCK.ACQUIRE", "renewed", "EX", 600, "TOKEN", "t");
    call!(client, "DLOCK.RENEW", "renewed", "t", "EX", 700);
    call!(client, "DLOCK.ACQUIRE", "by the server", "EX", 600);
    for n in 0..5 {
        call!(
            client,
            "DLOCK.ACQUIRE",
            "shared",
            "SHARED",
            "EX",
            600,
            "TOKEN",
            [n, 0, 255u8]
        );
    }
    call!(
        client,
        "DSEM.ACQUIRE",
        "sem",
        "LIMIT",
        9,
        "PERMITS",
        4,
        "EX",
        600,
        "TOKEN",
        "t"
    );
    call!(
        client,
        "DSEM.ACQUIRE",
        "sem",
        "LIMIT",
        8,
        "PERMITS",
        2,
        "EX",
        600
    );
    call!(client, "DSEM.LIMIT", "pinned", 3);
    call!(client, "DSEM.LIMIT", "pinned", 4);
    call!(client, "DWG.EXPECT", "group", 7);
    call!(
        client, "DWG.ADD", "group", "LIMIT", 5, "EX", 600, "TOKEN", "a"
    );
    call!(
        client, "DWG.ADD", "group", "LIMIT", 4, "EX", 600, "TOKEN", "b"
    );
    call!(client, "DWG.DONE", "group", "a");
    call!(client, "DWG.ADD", "just added", "EX", 600, "TOKEN", "a");
    for token in ["a", "b"] {
        call!(client, "DWG.ADD", "finished", "EX", 600, "TOKEN", token);
    }
    call!(client, "DWG.DONE", "finished", "a");
    let fence = call!(client, "DWG.INFO", "finished")
        .field("first-holders")
        .as_array()[0]
        .field("fence")
        .as_int();
    call!(client, "DWG.REVOKE", "finished", fence);
    call!(client, "SELECT", 3);
    call!(
        client,
        "DLOCK.ACQUIRE",
        "elsewhere",
        "EX",
        600,
        "TOKEN",
        "t"
    );
}

const FURNITURE: [&str; 9] = [
    "lock",
    "renewed",
    "by the server",
    "shared",
    "sem",
    "pinned",
    "group",
    "just added",
    "finished",
];

fn digests(server: &Server) -> Vec<(&'static str, String)> {
    let mut all: Vec<_> = FURNITURE
        .iter()
        .map(|key| (*key, digest(server, key)))
        .collect();
    let whole = call!(server.connect(), "DEBUG", "DIGEST");
    all.push(("all databases", whole.as_str().to_owned()));
    all
}

/// Asserts that the furniture does what it did: tokens, limits, tallies, order of fences.
#[track_caller]
fn assert_in_use(server: &Server) {
    let mut client = server.connect();
    let left = call!(client, "DLOCK.CHECK", "lock", "t").as_int();
    assert!((500_000..=600_000).contains(&left), "{left}");
    let left = call!(client, "DLOCK.CHECK", "renewed", "t").as_int();
    assert!((600_001..=700_000).contains(&left), "{left}");
    assert!(call!(client, "DLOCK.ACQUIRE", "lock").is_nil());
    assert!(call!(client, "DLOCK.ACQUIRE", "shared").is_nil());
    assert_eq!(*call!(client, "DLOCK.INFO", "shared").field("holders"), 5);
    assert!(
        call!(client, "DSEM.ACQUIRE", "sem", "PERMITS", 3).is_nil(),
        "6 of 8 permits are taken"
    );
    let pinned = call!(client, "DSEM.INFO", "pinned");
    assert_eq!(*pinned.field("pinned-limit"), 4);
    assert_eq!(*pinned.field("limit-changes"), 1);
    let group = call!(client, "DWG.INFO", "group");
    for (field, value) in [
        ("expected", 7),
        ("owed", 6),
        ("done", 1),
        ("limit", 4),
        ("limit-changes", 1),
    ] {
        assert_eq!(*group.field(field), value, "{field} of {group:?}");
    }
    let finished = call!(client, "DWG.WAIT", "finished");
    assert_eq!(finished.as_array(), [Reply::Int(1), Reply::Int(1)]);
    let old = call!(client, "DLOCK.INFO", "lock")
        .field("first-holders")
        .as_array()[0]
        .field("fence")
        .as_int();
    assert_eq!(call!(client, "DLOCK.RELEASE", "lock", "t"), 1);
    let (_, fence) = call!(client, "DLOCK.ACQUIRE", "lock").grant();
    assert!(fence > old.unsigned_abs());
    assert_eq!(call!(client, "DWG.DONE", "group", "b"), 1);
}

#[test]
fn a_saved_server_comes_back_as_it_was() {
    let mut server = Server::start();
    furnish(&server);
    let before = digests(&server);
    assert_eq!(call!(server.connect(), "SAVE"), "OK");
    kill_and_start(&mut server);
    assert_eq!(digests(&server), before);
    assert_in_use(&server);
}

#[test]
fn a_clean_restart_saves_by_itself() {
    let mut server = Server::builder().config("save", "3600 1").start();
    furnish(&server);
    let before = digests(&server);
    server.restart();
    assert_eq!(digests(&server), before);
    assert_in_use(&server);
}

#[test]
fn a_killed_server_comes_back_from_its_aof() {
    for preamble in [true, false] {
        let mut server = with_aof(preamble).start();
        furnish(&server);
        let before = digests(&server);
        kill_and_start(&mut server);
        assert_eq!(digests(&server), before, "preamble {preamble}");
        assert_in_use(&server);
    }
}

#[test]
fn a_killed_server_comes_back_from_a_rewritten_aof_and_what_was_appended_to_it() {
    for preamble in [true, false] {
        let mut server = with_aof(preamble).start();
        furnish(&server);
        rewrite_aof(&server);
        let mut client = server.connect();
        call!(client, "DLOCK.RENEW", "renewed", "t");
        call!(client, "DSEM.ACQUIRE", "sem", "TOKEN", "late");
        call!(client, "DWG.ADD", "just added", "TOKEN", "late");
        call!(client, "DWG.DONE", "just added", "a");
        let before = digests(&server);
        kill_and_start(&mut server);
        assert_eq!(digests(&server), before, "preamble {preamble}");
        assert_in_use(&server);
        // Twice: what was loaded is written as well as what was decided.
        let before = digests(&server);
        rewrite_aof(&server);
        kill_and_start(&mut server);
        assert_eq!(digests(&server), before, "preamble {preamble}, again");
    }
}

#[test]
fn a_reload_changes_nothing_and_whoever_waits_goes_on_waiting() {
    for reload in [&["DEBUG", "RELOAD"], &["DEBUG", "LOADAOF"]] {
        let server = with_aof(false).start();
        furnish(&server);
        let mut waiter = server.connect();
        send!(waiter, "DLOCK.ACQUIRE", "lock", "BLOCK", 0, "TOKEN", "w");
        wait_for_blocked(&server, 1);
        let before = digests(&server);
        assert_eq!(server.connect().call(reload), "OK");
        assert_eq!(digests(&server), before, "{reload:?}");
        wait_for_blocked(&server, 1);
        assert_eq!(call!(server.connect(), "DLOCK.RELEASE", "lock", "t"), 1);
        assert_eq!(
            waiter.recv(SOON).expect("the waiter is granted").grant().0,
            "w"
        );
    }
}

#[test]
fn a_reload_is_no_new_start_and_leaps_over_no_fences() {
    let server = Server::start();
    let mut client = server.connect();
    let before = call!(client, "DLOCK.ACQUIRE", "a").grant().1;
    assert_eq!(call!(client, "DEBUG", "RELOAD"), "OK");
    let after = call!(client, "DLOCK.ACQUIRE", "b").grant().1;
    assert!(after > before, "{after} after {before}");
    assert!(after - before < MINUTE_US, "{after} after {before}");
}

#[test]
fn no_acknowledged_grant_and_no_acknowledged_release_is_lost_to_a_kill_under_traffic() {
    /// What one client knows for certain.
    #[derive(Default)]
    struct Known {
        held: Vec<(String, String, u64)>,
        released: Vec<(String, String)>,
    }

    fn work(server: &Server, worker: usize, acknowledged: &AtomicUsize) -> Known {
        let mut known = Known::default();
        let mut client = server.connect();
        for n in 0.. {
            // In turn: a lock of one's own, and one that is handed from waiter to waiter.
            let key = if n % 2 == 0 {
                format!("own:{worker}:{n}")
            } else {
                "hot".to_owned()
            };
            let token = format!("{worker}:{n}");
            let acquire = [
                "DLOCK.ACQUIRE",
                &key,
                "EX",
                "600",
                "BLOCK",
                "0",
                "TOKEN",
                &token,
            ];
            let Some(reply) = client.try_call(&acquire) else {
                return known;
            };
            acknowledged.fetch_add(1, Ordering::Relaxed);
            if n % 4 == 0 {
                known.held.push((key, token, reply.grant().1));
                continue;
            }
            known
                .held
                .push((key.clone(), token.clone(), reply.grant().1));
            // From here until the reply nobody can know.
            let sent = known.held.pop();
            if client.try_call(&["DLOCK.RELEASE", &key, &token]).is_none() {
                return known;
            }
            drop(sent);
            known.released.push((key, token));
        }
        known
    }

    for preamble in [true, false] {
        let mut server = with_aof(preamble).start();
        let acknowledged = AtomicUsize::new(0);
        let known: Vec<Known> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..6)
                .map(|worker| {
                    let (server, acknowledged) = (&server, &acknowledged);
                    scope.spawn(move || work(server, worker, acknowledged))
                })
                .collect();
            eventually("traffic", Duration::from_secs(20), || {
                acknowledged.load(Ordering::Relaxed) >= 400
            });
            rewrite_aof(&server);
            let pid = server.pid().to_string();
            let kill = std::process::Command::new("sh")
                .args(["-c", "kill -9 $0", &pid])
                .status();
            assert!(kill.is_ok_and(|status| status.success()));
            workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker ends"))
                .collect()
        });
        server.kill9();
        server.start_again();
        let mut client = server.connect();
        let held: Vec<_> = known.iter().flat_map(|known| &known.held).collect();
        assert!(held.len() >= 100, "{} acknowledged grants", held.len());
        for (key, token, fence) in held {
            assert!(
                call!(client, "DLOCK.CHECK", key, token).as_int() > 0,
                "lost {key} {token}"
            );
            let info = call!(client, "DLOCK.INFO", key);
            let first = info.field("first-holders").as_array()[0]
                .field("fence")
                .as_int();
            assert_eq!(first.unsigned_abs(), *fence, "the fence of {key}");
        }
        for (key, token) in known.iter().flat_map(|known| &known.released) {
            assert_eq!(
                call!(client, "DLOCK.CHECK", key, token),
                0,
                "{key} {token} came back"
            );
        }
    }
}

/// What CHECK says of a lease of `lease_ms` after a kill and a start `gone_ms` later, under this grace.
fn left_after_restart(lease_ms: u64, gone_ms: u64, grace_ms: u64) -> (i64, i64) {
    let mut server = with_aof(false)
        .module_arg("takeover-grace-ms")
        .module_arg(grace_ms)
        .start();
    call!(
        server.connect(),
        "DLOCK.ACQUIRE",
        "k",
        "PX",
        lease_ms,
        "TOKEN",
        "t"
    );
    let granted = unix_ms();
    server.kill9();
    eventually("some of the lease to pass", SOON, || {
        unix_ms() >= granted + gone_ms
    });
    server.start_again();
    let left = call!(server.connect(), "DLOCK.CHECK", "k", "t").as_int();
    (
        left,
        i64::try_from(unix_ms() - granted).expect("a short while"),
    )
}

#[test]
fn after_a_restart_a_lease_has_what_was_left_of_it_and_the_grace() {
    // The rest and the grace together: less than the lease.
    let (left, gone) = left_after_restart(60_000, 500, 200);
    assert!(left <= 60_000 - 500 + 200, "{left}");
    assert!(left >= 60_000 - gone + 200 - 1_000, "{left} after {gone}");
    // Without any grace there is the rest alone.
    let (left, gone) = left_after_restart(20_000, 1_000, 0);
    assert!(
        (20_000 - gone - 1_000..=19_000).contains(&left),
        "{left} after {gone}"
    );
}

#[test]
fn after_a_restart_a_lease_is_never_longer_than_it_was_given() {
    // A second is gone and a minute of grace would be added: all of the lease, no more.
    let (left, _) = left_after_restart(20_000, 1_000, 60_000);
    assert!((19_000..=20_000).contains(&left), "{left}");
    assert!(
        left > 19_300,
        "the grace makes up for what was lost: {left}"
    );
}

#[test]
fn a_lease_that_ran_out_while_the_server_was_down_has_the_grace_left_and_then_lapses() {
    let mut server = with_aof(true)
        .module_arg("takeover-grace-ms")
        .module_arg(1_200)
        .start();
    let fence = call!(
        server.connect(),
        "DLOCK.ACQUIRE",
        "k",
        "PX",
        1_500,
        "TOKEN",
        "t"
    )
    .grant()
    .1;
    call!(
        server.connect(),
        "DLOCK.ACQUIRE",
        "short",
        "PX",
        100,
        "TOKEN",
        "t"
    );
    call!(
        server.connect(),
        "DLOCK.ACQUIRE",
        "renewable",
        "PX",
        1_500,
        "TOKEN",
        "t"
    );
    server.kill9();
    let deadline = unix_ms() + 1_500;
    eventually("the deadline to pass", SOON, || unix_ms() > deadline);
    server.start_again();
    let mut client = server.connect();
    let left = call!(client, "DLOCK.CHECK", "k", "t").as_int();
    assert!(
        (1..=1_200).contains(&left),
        "{left} ms left, of a grace of 1,200"
    );
    assert_eq!(call!(client, "DLOCK.RENEW", "renewable", "t", "EX", 60), 1);
    assert!(
        call!(client, "DLOCK.ACQUIRE", "k").is_nil(),
        "it is still held"
    );
    let next = call!(client, "DLOCK.ACQUIRE", "k", "BLOCK", 10_000)
        .grant()
        .1;
    assert!(next > fence);
    assert_eq!(call!(client, "DLOCK.CHECK", "k", "t"), 0);
    // Never more than the whole lease, however long the grace.
    eventually("a lapse", SOON, || call!(client, "EXISTS", "short") == 0);
    assert!(call!(client, "DLOCK.CHECK", "renewable", "t").as_int() > 0);
}

#[test]
fn fences_rise_over_removals_flushes_and_restarts_with_and_without_memory() {
    let mut server = Server::start();
    let mut last = 0;
    let mut rises = |server: &Server, by: u64| {
        let fence = call!(server.connect(), "DLOCK.ACQUIRE", "k").grant().1;
        assert!(fence > last + by, "{fence} after {last}");
        last = fence;
        fence
    };
    let first = rises(&server, 0);
    assert!(
        first >= unix_us() + HOUR_US - 30_000_000,
        "a start leaps an hour ahead of the clock"
    );
    assert!(first <= unix_us() + HOUR_US, "and no further: {first}");
    call!(server.connect(), "DEL", "k");
    rises(&server, 0);
    call!(server.connect(), "FLUSHALL");
    rises(&server, 0);
    call!(server.connect(), "FLUSHALL", "ASYNC");
    rises(&server, 0);
    // Nothing at all was saved.
    kill_and_start(&mut server);
    rises(&server, 0);
    assert_eq!(call!(server.connect(), "SAVE"), "OK");
    // Given after the save, and lost.
    call!(server.connect(), "DEL", "k");
    rises(&server, 0);
    kill_and_start(&mut server);
    call!(server.connect(), "DEL", "k");
    rises(&server, 0);
    // The last fence alone is saved, without any key.
    call!(server.connect(), "DEL", "k");
    assert_eq!(call!(server.connect(), "SAVE"), "OK");
    kill_and_start(&mut server);
    rises(&server, 0);
}

/// The file that the AOF is being appended to.
fn aof(server: &Server) -> PathBuf {
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF has a directory");
    let file = files
        .map(|file| file.expect("a file").path())
        .find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    file.expect("an incremental AOF")
}

/// Writes a command into the AOF of a stopped server, by hand.
fn append_to_aof(server: &Server, command: &[&str]) {
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(aof(server))
        .expect("the AOF opens");
    write!(file, "*{}\r\n", command.len()).expect("it is written");
    for word in command {
        write!(file, "${}\r\n{word}\r\n", word.len()).expect("it is written");
    }
}

fn grant_by_hand(fence: u64) -> String {
    let now = unix_ms();
    format!(
        "GRANT {fence} exclusive 600000 {} {now} 0 4:hand 0:",
        now + 600_000
    )
}

#[test]
fn a_start_goes_a_minute_past_the_last_fence_it_finds() {
    // A last fence that lies further ahead than the hour, as after a clock that was wrong.
    let far = unix_us() + 100 * DAY_US;
    let mut server = with_aof(false).start();
    server.kill9();
    append_to_aof(
        &server,
        &["DSYNC.APPLY", "far", "lock:1", &grant_by_hand(far)],
    );
    server.start_again();
    let fence = call!(server.connect(), "DLOCK.ACQUIRE", "k").grant().1;
    assert!(
        fence > far + MINUTE_US,
        "{fence} after {far}, which is {} past it",
        fence.saturating_sub(far)
    );
    // The same with the RDB file, whose auxiliary data carry it.
    let mut server = Server::start();
    call!(server.connect(), "DEL", "nothing");
    drop(server.connect());
    let mut source = with_aof(false).start();
    source.kill9();
    append_to_aof(
        &source,
        &["DSYNC.APPLY", "far", "lock:1", &grant_by_hand(far)],
    );
    source.start_again();
    call!(source.connect(), "DEL", "far");
    assert_eq!(call!(source.connect(), "SAVE"), "OK");
    server.kill9();
    fs::copy(source.dir().join("dump.rdb"), server.dir().join("dump.rdb"))
        .expect("the file is copied");
    server.start_again();
    let fence = call!(server.connect(), "DLOCK.ACQUIRE", "k").grant().1;
    assert!(
        fence > far + MINUTE_US,
        "{fence} after {far}, which is {} past it",
        fence.saturating_sub(far)
    );
}

#[test]
fn an_aof_with_a_change_that_is_not_known_stops_the_start_and_says_why() {
    let too_far = grant_by_hand(unix_us() + 400 * DAY_US);
    let unknown: &[(&[&str], &str)] = &[
        (
            &["DSYNC.APPLY", "k", "lock:1", "FROB 1"],
            "a change that is not known here",
        ),
        (
            &["DSYNC.APPLY", "k", "lock:2", "VANISH"],
            "'lock:2' is not known here",
        ),
        (
            &["DSYNC.APPLY", "k", "mutex:1", "VANISH"],
            "'mutex:1' is not known here",
        ),
        (
            &["DSYNC.APPLY", "k", "lock:1", "RENEW 1"],
            "a malformed change",
        ),
        (
            &["DSYNC.APPLY", "k", "lock:1", "RENEW 1 1 1"],
            "a change that does not fit",
        ),
        (&["DSYNC.APPLY", "k", "lock:1", &too_far], "FenceAhead"),
    ];
    let mut server = with_aof(false).start();
    furnish(&server);
    let before = digests(&server);
    server.kill9();
    let good = fs::read(aof(&server)).expect("the AOF is read");
    for (command, reason) in unknown {
        append_to_aof(&server, command);
        let seen = server.log_text().len();
        let started = catch_unwind(AssertUnwindSafe(|| server.start_again()));
        assert!(started.is_err(), "started with {command:?}");
        let log = server.log_text()[seen..].to_owned();
        assert!(
            log.contains("DSYNC.APPLY failed") && log.contains(reason),
            "{command:?}: {log}"
        );
        assert!(!log.contains("panic"), "{log}");
        fs::write(aof(&server), &good).expect("the AOF is restored");
    }
    server.start_again();
    assert_eq!(digests(&server), before);
}

#[test]
fn a_finished_round_is_kept_after_a_restart_as_long_as_it_was_to_be_and_no_longer() {
    let mut server = with_aof(true)
        .module_arg("group-keep-ms")
        .module_arg(2_500)
        .start();
    let mut client = server.connect();
    call!(client, "DWG.ADD", "g", "TOKEN", "a");
    call!(client, "DWG.DONE", "g", "a");
    let kept_until = call!(client, "DWG.INFO", "g")
        .field("kept-until-unix-ms")
        .as_int()
        .unsigned_abs();
    kill_and_start(&mut server);
    let mut client = server.connect();
    let finished = call!(client, "DWG.WAIT", "g");
    if unix_ms() < kept_until {
        assert_eq!(finished.as_array(), [Reply::Int(1), Reply::Int(0)]);
        assert_eq!(
            call!(client, "DWG.INFO", "g")
                .field("kept-until-unix-ms")
                .as_int()
                .unsigned_abs(),
            kept_until
        );
    }
    eventually("the tally to go", SOON, || {
        call!(client, "EXISTS", "g") == 0
    });
    assert!(unix_ms() >= kept_until);
    // Its going is in the AOF too.
    kill_and_start(&mut server);
    assert_eq!(call!(server.connect(), "EXISTS", "g"), 0);
}

/// Sends many requests and reads their replies, some at a time.
fn in_bulk(
    client: &mut Client,
    count: usize,
    request: impl Fn(usize) -> String,
    check: impl Fn(&Reply),
) {
    for from in (0..count).step_by(500) {
        let until = count.min(from + 500);
        let lines: String = (from..until).map(|n| request(n) + "\r\n").collect();
        client.send_raw(lines.as_bytes());
        for _ in from..until {
            check(&client.recv(SOON).expect("a reply"));
        }
    }
}

#[test]
fn twenty_thousand_locks_and_twenty_thousand_holds_of_one_key_come_back() {
    for preamble in [true, false] {
        let mut server = with_aof(preamble).config("appendfsync", "no").start();
        let mut client = server.connect();
        let granted = |reply: &Reply| drop(reply.grant());
        in_bulk(
            &mut client,
            20_000,
            |n| format!("DLOCK.ACQUIRE l:{n} EX 600 TOKEN t{n}"),
            granted,
        );
        in_bulk(
            &mut client,
            20_000,
            |n| format!("DSEM.ACQUIRE s LIMIT 20000 EX 600 TOKEN t{n}"),
            granted,
        );
        rewrite_aof(&server);
        let before = call!(client, "DEBUG", "DIGEST");
        kill_and_start(&mut server);
        let mut client = server.connect();
        assert_eq!(
            call!(client, "DEBUG", "DIGEST"),
            before,
            "preamble {preamble}"
        );
        assert_eq!(call!(client, "DBSIZE"), 20_001);
        in_bulk(
            &mut client,
            20_000,
            |n| format!("DLOCK.CHECK l:{n} t{n}"),
            |left| assert!(left.as_int() > 0),
        );
        assert!(call!(client, "DSEM.ACQUIRE", "s").is_nil());
        in_bulk(
            &mut client,
            20_000,
            |n| format!("DSEM.RELEASE s t{n}"),
            |reply| assert_eq!(*reply, 1),
        );
        in_bulk(
            &mut client,
            20_000,
            |n| format!("DLOCK.RELEASE l:{n} t{n}"),
            |reply| assert_eq!(*reply, 1),
        );
        assert_eq!(call!(client, "DBSIZE"), 0);
    }
}

#[test]
fn a_dumped_value_can_be_restored_under_its_name_and_another() {
    let server = Server::start();
    furnish(&server);
    let mut client = server.connect();
    for key in FURNITURE {
        let before = digest(&server, key);
        let payload = call!(client, "DUMP", key).as_bytes().to_vec();
        assert!(
            call!(client, "RESTORE", key, 0, &payload)
                .error()
                .starts_with("BUSYKEY")
        );
        call!(client, "DEL", key);
        assert_eq!(call!(client, "RESTORE", key, 0, &payload), "OK");
        assert_eq!(digest(&server, key), before, "{key}");
        assert_eq!(
            call!(client, "RESTORE", "copy", 0, &payload, "REPLACE"),
            "OK"
        );
        assert_eq!(digest(&server, "copy"), before, "{key}");
        assert!(
            call!(client, "COPY", key, "another").is_error(),
            "a copied lock would have two holders"
        );
    }
    call!(client, "DEL", "copy");
    assert_in_use(&server);
}

#[test]
fn a_restored_hold_lapses_like_any_other() {
    let server = Server::builder()
        .module_arg("takeover-grace-ms")
        .module_arg(0)
        .start();
    let mut client = server.connect();
    call!(client, "DLOCK.ACQUIRE", "k", "PX", 400, "TOKEN", "t");
    let payload = call!(client, "DUMP", "k").as_bytes().to_vec();
    call!(client, "DEL", "k");
    assert_eq!(call!(client, "RESTORE", "k", 0, &payload), "OK");
    let left = call!(client, "DLOCK.CHECK", "k", "t").as_int();
    assert!((0..=400).contains(&left), "{left}");
    let fence = call!(
        client,
        "DLOCK.ACQUIRE",
        "k",
        "BLOCK",
        10_000,
        "TOKEN",
        "next"
    )
    .grant();
    assert_eq!(fence.0, "next");
}

#[test]
fn a_value_restored_over_another_replaces_its_holds_and_keeps_its_waiters() {
    let server = Server::start();
    let mut client = server.connect();
    call!(client, "DLOCK.ACQUIRE", "source", "TOKEN", "restored");
    let payload = call!(client, "DUMP", "source").as_bytes().to_vec();
    let old = call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "old")
        .grant()
        .1;
    let mut waiter = server.connect();
    send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "waiter");
    wait_for_blocked(&server, 1);
    assert_eq!(call!(client, "RESTORE", "k", 0, &payload, "REPLACE"), "OK");
    assert_eq!(call!(client, "DLOCK.RELEASE", "k", "old"), 0);
    assert_eq!(call!(client, "DLOCK.REVOKE", "k", old), 0);
    assert!(call!(client, "DLOCK.CHECK", "k", "restored").as_int() > 0);
    waiter.expect_silence(Duration::from_millis(150));
    assert_eq!(call!(client, "DLOCK.RELEASE", "k", "restored"), 1);
    assert_eq!(
        waiter.recv(SOON).expect("the waiter is granted").grant().0,
        "waiter"
    );

    // A value with room for those who wait serves them.
    call!(client, "DSEM.ACQUIRE", "roomy", "LIMIT", 5, "TOKEN", "t");
    let payload = call!(client, "DUMP", "roomy").as_bytes().to_vec();
    call!(client, "DSEM.ACQUIRE", "s", "LIMIT", 1);
    let mut waiter = server.connect();
    send!(waiter, "DSEM.ACQUIRE", "s", "BLOCK", 0, "TOKEN", "waiter");
    wait_for_blocked(&server, 1);
    assert_eq!(call!(client, "RESTORE", "s", 0, &payload, "REPLACE"), "OK");
    assert_eq!(
        waiter.recv(SOON).expect("the waiter is granted").grant().0,
        "waiter"
    );
    assert_eq!(*call!(client, "DSEM.INFO", "s").field("holders"), 2);

    // A value of the server's own tells them so.
    call!(client, "SET", "string", 1);
    let payload = call!(client, "DUMP", "string").as_bytes().to_vec();
    let mut waiter = server.connect();
    send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0);
    wait_for_blocked(&server, 1);
    assert_eq!(call!(client, "RESTORE", "k", 0, &payload, "REPLACE"), "OK");
    let told = waiter.recv(SOON).expect("the waiter is told");
    assert!(told.error().starts_with("WRONGTYPE"), "{told:?}");
}

#[test]
fn a_migrated_lock_is_held_where_it_went_and_granted_afresh_where_it_was() {
    let (source, target) = (Server::start(), Server::start());
    let mut client = source.connect();
    let fence = call!(
        client,
        "DLOCK.ACQUIRE",
        "k",
        "EX",
        60,
        "TOKEN",
        "holder",
        "OWNER",
        "o"
    )
    .grant()
    .1;
    let before = digest(&source, "k");
    let mut waiter = source.connect();
    send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "waiter");
    wait_for_blocked(&source, 1);
    assert_eq!(
        call!(client, "MIGRATE", "127.0.0.1", target.port(), "k", 0, 5000),
        "OK"
    );
    assert_eq!(digest(&target, "k"), before);
    let mut there = target.connect();
    assert!(call!(there, "DLOCK.CHECK", "k", "holder").as_int() > 50_000);
    assert!(call!(there, "DLOCK.ACQUIRE", "k").is_nil());
    let (token, afresh) = waiter.recv(SOON).expect("the waiter is granted").grant();
    assert_eq!(token, "waiter");
    assert!(afresh > fence);
    assert_eq!(call!(client, "DLOCK.CHECK", "k", "holder"), 0);
    assert_eq!(call!(there, "DLOCK.RELEASE", "k", "holder"), 1);
    // The fences that came with it are behind those to come.
    assert!(call!(there, "DLOCK.ACQUIRE", "k").grant().1 > fence);
}

#[test]
fn a_save_with_waiters_in_the_queue_saves_the_holds_alone() {
    let mut server = Server::start();
    let mut client = server.connect();
    call!(client, "DLOCK.ACQUIRE", "k", "EX", 600, "TOKEN", "t");
    let before = digest(&server, "k");
    let mut waiters: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for waiter in &mut waiters {
        send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0);
    }
    wait_for_blocked(&server, 20);
    assert_eq!(
        digest(&server, "k"),
        before,
        "a queue is no part of the value"
    );
    assert_eq!(call!(client, "SAVE"), "OK");
    kill_and_start(&mut server);
    assert_eq!(digest(&server, "k"), before);
    assert_eq!(
        *call!(server.connect(), "DLOCK.INFO", "k").field("waiters"),
        0
    );
}
