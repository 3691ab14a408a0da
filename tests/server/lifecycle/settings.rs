//! The settings: set through CONFIG, the arguments of `loadmodule` and redis.conf; their bounds; and what each does.
//!
//! `group-keep-ms` and `group-idle-ms` are tested in `group`, `takeover-grace-ms` in `restarts`.

use crate::support::steps::SOON;
use crate::support::*;
use std::path::Path;

const DAY_MS: i64 = 86_400_000;

/// Name, default, least and most, as in redis.conf.example.
const SETTINGS: [(&str, i64, i64, i64); 11] = [
    ("default-lease-ms", 30_000, 1, 30 * DAY_MS),
    ("max-lease-ms", DAY_MS, 1, 30 * DAY_MS),
    ("rejoin-ms", 2_000, 0, 600_000),
    ("group-keep-ms", 60_000, 0, 30 * DAY_MS),
    ("group-idle-ms", DAY_MS, 1_000, 365 * DAY_MS),
    ("takeover-grace-ms", 5_000, 0, 3_600_000),
    ("once-keep-ms", DAY_MS, 1, 3_650 * DAY_MS),
    ("max-result-bytes", 65_536, 0, 16 << 20),
    ("max-waiters", 100_000, 1, 10_000_000),
    ("max-waiters-per-key", 20_000, 1, 10_000_000),
    ("log-max-len", 128, 0, 10_000),
];

/// Settings that are yes or no, all `no` by default.
const YES_OR_NO: [&str; 1] = ["aof-skip-unapplied"];

#[track_caller]
fn get_text(client: &mut Client, name: &str) -> String {
    let reply = client.ask(format!("CONFIG GET dsync.{name}"));
    reply.field(&format!("dsync.{name}")).as_str().to_owned()
}

#[track_caller]
fn get(client: &mut Client, name: &str) -> i64 {
    get_text(client, name).parse().expect("a number")
}

#[track_caller]
fn set(client: &mut Client, name: &str, value: impl Argument) {
    assert_eq!(
        call!(client, "CONFIG", "SET", format!("dsync.{name}"), value),
        "OK",
        "{name}"
    );
}

#[test]
fn settings_have_their_defaults_and_no_other_exists() {
    let server = Server::start();
    let mut client = server.connect();
    for (name, default, ..) in SETTINGS {
        assert_eq!(get(&mut client, name), default, "{name}");
    }
    for name in YES_OR_NO {
        assert_eq!(get_text(&mut client, name), "no", "{name}");
    }
    let all = client.ask("CONFIG GET dsync.*");
    let mut names: Vec<_> = all
        .as_array()
        .chunks(2)
        .map(|pair| pair[0].as_str().trim_start_matches("dsync.").to_owned())
        .collect();
    names.sort();
    let numbers = SETTINGS.iter().map(|(name, ..)| *name);
    let mut known: Vec<_> = numbers.chain(YES_OR_NO).collect();
    known.sort_unstable();
    assert_eq!(names, known);
}

#[test]
fn config_set_out_of_bounds_changes_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    for (name, default, least, most) in SETTINGS {
        for value in [least, most, default] {
            set(&mut client, name, value);
            assert_eq!(get(&mut client, name), value, "{name}");
        }
        for value in [least - 1, most + 1, i64::MIN, i64::MAX] {
            let reply = client.ask(format!("CONFIG SET dsync.{name} {value}"));
            assert!(
                reply.error().contains(&format!("dsync.{name}")),
                "{reply:?}"
            );
            assert_eq!(get(&mut client, name), default, "{name} after {value}");
        }
        for value in ["", "many", "1.5", "1 "] {
            let reply = call!(client, "CONFIG", "SET", format!("dsync.{name}"), value);
            assert!(reply.is_error(), "{name} {value:?}");
            assert_eq!(get(&mut client, name), default, "{name} after {value:?}");
        }
    }
    // CONFIG SET of several settings sets all or none.
    let both = client.ask("CONFIG SET dsync.rejoin-ms 7 dsync.max-waiters 0");
    assert!(both.is_error());
    assert_eq!(get(&mut client, "rejoin-ms"), 2_000);
}

#[test]
fn loadmodule_arguments_and_directives_set_the_same() {
    let mut by_argument = Server::builder();
    let mut by_directive = Server::builder();
    for (at, (name, _, least, _)) in (1..).zip(SETTINGS) {
        let plain_or_prefixed = if at % 2 == 0 {
            format!("dsync.{name}")
        } else {
            name.to_uppercase()
        };
        by_argument = by_argument
            .module_arg(plain_or_prefixed)
            .module_arg(least + at);
        by_directive = by_directive.config(&format!("dsync.{name}"), least + at);
    }
    for server in [by_argument.start(), by_directive.start()] {
        let mut client = server.connect();
        for (at, (name, _, least, _)) in (1..).zip(SETTINGS) {
            assert_eq!(get(&mut client, name), least + at, "{name}");
        }
    }
    // redis.conf wins over the arguments of loadmodule.
    let both = Server::builder()
        .module_arg("rejoin-ms")
        .module_arg(5)
        .config("dsync.rejoin-ms", 9)
        .start();
    assert_eq!(get(&mut both.connect(), "rejoin-ms"), 9);
}

#[test]
fn yes_or_no_setting_is_set_by_argument_directive_and_config_set() {
    for name in YES_OR_NO {
        let by_argument = Server::builder().module_arg(name).module_arg("yes");
        let by_directive = Server::builder().config(&format!("dsync.{name}"), "yes");
        let directive_wins = Server::builder()
            .module_arg(format!("dsync.{}", name.to_uppercase()))
            .module_arg("No")
            .config(&format!("dsync.{name}"), "YES");
        for builder in [by_argument, by_directive, directive_wins] {
            let mut server = builder.start();
            let mut client = server.connect();
            assert_eq!(get_text(&mut client, name), "yes", "{name}");
            set(&mut client, name, "no");
            assert_eq!(get_text(&mut client, name), "no", "{name}");
            for value in ["", "1", "maybe", "yes "] {
                let reply = call!(client, "CONFIG", "SET", format!("dsync.{name}"), value);
                let text = reply.error();
                assert!(
                    ["dsync.", name, "'yes' or 'no'"]
                        .iter()
                        .all(|part| text.contains(part)),
                    "{text}"
                );
                assert_eq!(get_text(&mut client, name), "no", "{name} after {value:?}");
            }
            assert_eq!(client.ask("CONFIG REWRITE"), "OK");
            server.restart();
            assert_eq!(get_text(&mut server.connect(), name), "no", "{name}");
        }
    }
}

#[test]
fn config_rewrite_is_read_by_the_next_start() {
    let mut server = Server::builder()
        .module_arg("rejoin-ms")
        .module_arg(5)
        .start();
    let mut client = server.connect();
    set(&mut client, "max-waiters", 77);
    set(&mut client, "default-lease-ms", 123);
    assert_eq!(client.ask("CONFIG REWRITE"), "OK");
    server.restart();
    let mut client = server.connect();
    for (name, value) in [
        ("max-waiters", 77),
        ("default-lease-ms", 123),
        ("rejoin-ms", 5),
        ("group-keep-ms", 60_000),
    ] {
        assert_eq!(get(&mut client, name), value, "{name}");
    }
}

#[test]
fn wrong_setting_stops_the_start_and_is_named() {
    for (arguments, said) in [
        ("rejoin-ms", "rejoin-ms"),
        ("rejoin-ms -1", "rejoin-ms -1"),
        ("rejoin-ms 600001", "600000"),
        ("rejoin-ms 01", "rejoin-ms 01"),
        ("no-such-thing 1", "no-such-thing"),
        (
            "aof-skip-unapplied 1",
            "'aof-skip-unapplied 1': neither yes nor no",
        ),
        ("\ndsync.aof-skip-unapplied 1", "aof-skip-unapplied"),
        ("rejoin-ms 1 dsync.rejoin-ms 2", "twice"),
        ("\ndsync.rejoin-ms -1", "rejoin-ms"),
        // The server itself refuses this line, in its own words.
        ("\ndsync.no-such-thing 1", ""),
    ] {
        let Err(log) = Server::builder().module_arg(arguments).try_start() else {
            panic!("a server started with {arguments:?}");
        };
        assert!(log.contains(said), "{arguments:?}: no {said:?} in\n{log}");
    }
}

/// The dsync lines of redis.conf.example, without their comment marks.
fn example() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("redis.conf.example");
    let text = std::fs::read_to_string(path).expect("the example is in the repository");
    text.lines()
        .map(|line| {
            line.strip_prefix("# ")
                .filter(|line| line.starts_with("dsync."))
                .unwrap_or(line)
        })
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            line.split_once(' ')
                .unwrap_or_else(|| panic!("not a directive: {line:?}"))
        })
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn settings_page_shows_every_default_and_bound() {
    let page = document("docs/settings.md");
    for (name, default, least, most) in SETTINGS {
        let start = format!("| `dsync.{name}` |");
        let row = page.lines().find(|line| line.starts_with(&start));
        let row = row.unwrap_or_else(|| panic!("{name} has no row"));
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        // The default may have an explanation in parentheses behind it.
        let shown = cells[3].split(' ').next().expect("a default");
        assert_eq!(shown, default.to_string(), "{row}");
        assert_eq!(cells[4], format!("{least}–{most}"), "{row}");
    }
    for name in YES_OR_NO {
        let row = format!("| `dsync.{name}` | yes or no | no | |");
        assert!(page.contains(&row), "{name} has no row");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `dsync."));
    assert_eq!(rows.count(), SETTINGS.len() + YES_OR_NO.len());
}

#[test]
fn example_configuration_shows_every_default() {
    let lines = example();
    let shown: Vec<_> = lines
        .iter()
        .filter(|(name, _)| name.starts_with("dsync."))
        .collect();
    for (name, default, ..) in SETTINGS {
        let line = shown
            .iter()
            .find(|(shown, _)| *shown == format!("dsync.{name}"));
        let (_, value) =
            line.unwrap_or_else(|| panic!("dsync.{name} is not in redis.conf.example"));
        assert_eq!(*value, default.to_string(), "{name}");
    }
    for name in YES_OR_NO {
        let no = (format!("dsync.{name}"), "no".to_owned());
        assert!(shown.contains(&&no), "{name} is not in redis.conf.example");
    }
    assert_eq!(shown.len(), SETTINGS.len() + YES_OR_NO.len());

    let mut builder = Server::builder();
    for (name, value) in lines
        .iter()
        .filter(|(name, _)| name != "port" && name != "bind")
    {
        builder = builder.config(name, value);
    }
    let server = builder.start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE key").grant();
    for (name, value) in &lines {
        if name == "port" {
            continue;
        }
        let reply = client.ask(format!("CONFIG GET {name}"));
        let got = reply.field(name).as_str();
        assert_eq!(got, value, "{name}");
    }
}

#[test]
fn default_lease_ms_is_lease_of_request_without_one() {
    let server = Server::start();
    let mut client = server.connect();
    let lease_of = |client: &mut Client, request: &[&str]| {
        client.call(request).grant();
        let info = call!(
            client,
            format!("{}.INFO", request[0].split('.').next().expect("a family")),
            request[1]
        );
        let left = info.field("first-holders").as_array()[0]
            .field("lease-left-ms")
            .as_int();
        client.ask(format!("DEL {}", request[1]));
        left
    };
    for request in [
        &["DLOCK.ACQUIRE", "l"][..],
        &["DSEM.ACQUIRE", "s", "LIMIT", "1"],
        &["DWG.ADD", "g"],
    ] {
        let left = lease_of(&mut client, request);
        assert!((15_001..=30_000).contains(&left), "{left}");
        set(&mut client, "default-lease-ms", 7_000_000);
        let left = lease_of(&mut client, request);
        assert!((6_000_001..=7_000_000).contains(&left), "{left}");
        // The default lease is at most `max-lease-ms`.
        set(&mut client, "max-lease-ms", 90_000);
        let left = lease_of(&mut client, request);
        assert!((60_001..=90_000).contains(&left), "{left}");
        set(&mut client, "max-lease-ms", DAY_MS);
        set(&mut client, "default-lease-ms", 30_000);
    }
}

#[test]
fn max_lease_ms_bounds_requests_and_renewals() {
    let server = Server::start();
    let mut client = server.connect();
    set(&mut client, "max-lease-ms", 20_000);
    client.ask("DLOCK.ACQUIRE key TOKEN t EX 20").grant();
    for (option, value, bound) in [("EX", "21", "20"), ("PX", "20001", "20000")] {
        let refused = client.ask(format!("DLOCK.ACQUIRE other {option} {value}"));
        let text = refused.error().to_owned();
        assert!(
            [option, value, bound, "dsync.max-lease-ms"]
                .iter()
                .all(|part| text.contains(part)),
            "{text}"
        );
        assert!(
            client
                .ask(format!("DLOCK.RENEW key t {option} {value}"))
                .is_error()
        );
    }
    assert_eq!(client.ask("DLOCK.RENEW key t PX 20000"), 1);
    // A higher `max-lease-ms` allows longer leases; its own maximum is thirty days.
    set(&mut client, "max-lease-ms", 30 * DAY_MS);
    assert_eq!(
        client.ask(format!("DLOCK.RENEW key t PX {}", 30 * DAY_MS)),
        1
    );
    assert!(client.ask("DLOCK.CHECK key t").as_int() > 29 * DAY_MS);
    assert!(
        client
            .ask(format!("DLOCK.RENEW key t PX {}", 30 * DAY_MS + 1))
            .is_error()
    );
}

#[test]
fn once_keep_ms_is_retention_of_result_without_one() {
    let server = Server::start();
    let mut client = server.connect();
    set(&mut client, "once-keep-ms", 400);
    client.ask("DONCE.BEGIN short TOKEN t");
    client.ask("DONCE.BEGIN long TOKEN t");
    assert_eq!(client.ask("DONCE.DONE long t EX 1000"), 1);
    assert_eq!(client.ask("DONCE.DONE short t"), 1);
    eventually("the end of the result", SOON, || {
        client.ask("EXISTS short") == 0
    });
    assert_eq!(client.ask("EXISTS long"), 1);
}

#[test]
fn max_result_bytes_bounds_results_and_reasons() {
    let server = Server::start();
    let mut client = server.connect();
    for most in [0, 7] {
        set(&mut client, "max-result-bytes", most);
        let (fits, larger) = ("x".repeat(most), "x".repeat(most + 1));
        for (command, option) in [("DONCE.DONE", "RESULT"), ("DONCE.FAIL", "REASON")] {
            client.ask("DONCE.BEGIN key TOKEN t");
            let refused = call!(client, command, "key", "t", option, &larger);
            let bound = format!("{most} bytes (dsync.max-result-bytes)");
            assert!(refused.error().contains(&bound), "{refused:?}");
            assert_eq!(call!(client, command, "key", "t", option, &fits), 1);
            client.ask("DEL key");
        }
    }
}

#[test]
fn rejoin_ms_is_time_a_vacant_place_is_kept() {
    let server = Server::builder()
        .module_arg("rejoin-ms")
        .module_arg(0)
        .start();
    let mut client = server.connect();
    let request = |name| format!("DLOCK.ACQUIRE key BLOCK 0 TOKEN {name}");
    let mut served_first = || {
        client.ask("DEL key");
        client.ask("DLOCK.ACQUIRE key TOKEN holder").grant();
        server.waiting(request("first")).close();
        server.wait_for_blocked(0);
        let second = server.waiting(request("second"));
        let first = server.waiting(request("first"));
        assert_eq!(client.ask("DLOCK.RELEASE key holder"), 1);
        let holds = ["first", "second"]
            .map(|name| client.ask(format!("DLOCK.CHECK key {name}")).as_int() > 0);
        drop((first, second));
        server.wait_for_blocked(0);
        holds
    };
    assert_eq!(served_first(), [false, true], "no place is kept");
    set(&mut server.connect(), "rejoin-ms", 60_000);
    assert_eq!(served_first(), [true, false], "it has its place again");
    set(&mut server.connect(), "rejoin-ms", 0);
    assert_eq!(served_first(), [false, true], "no place is kept any more");
}

#[test]
fn max_waiters_per_key_bounds_queue_and_is_named() {
    let server = Server::start();
    let mut client = server.connect();
    set(&mut client, "max-waiters-per-key", 3);
    client.ask("DLOCK.ACQUIRE key").grant();
    client.ask("DSEM.ACQUIRE sem LIMIT 1").grant();
    client.ask("DWG.ADD group LIMIT 1").grant();
    let mut waiters = Vec::new();
    for request in [
        "DLOCK.ACQUIRE key",
        "DSEM.ACQUIRE sem",
        "DWG.ADD group",
        "DWG.WAIT group",
    ] {
        let waits = format!("{request} BLOCK 0");
        // For DWG.WAIT the queue of the group is full already, with waiting ADD requests.
        if request != "DWG.WAIT group" {
            waiters.extend((0..3).map(|_| server.waiting(&waits)));
        }
        let refused = client.ask(waits);
        let text = refused.error();
        assert!(text.starts_with("QUEUEFULL "), "{text}");
        assert!(
            ["3", "dsync.max-waiters-per-key"]
                .iter()
                .all(|part| text.contains(part)),
            "{text}"
        );
        // A try is answered nil as before.
        assert!(client.ask(request).is_nil());
    }
    // A waiter that leaves makes room for one request.
    waiters.remove(0).close();
    let _next = server.waiting("DLOCK.ACQUIRE key BLOCK 0");
    assert!(client.ask("DLOCK.ACQUIRE key BLOCK 0").is_error());
    // A raised bound makes room; a lowered one sends no waiter away.
    set(&mut client, "max-waiters-per-key", 4);
    let _another = server.waiting("DLOCK.ACQUIRE key BLOCK 0");
    set(&mut client, "max-waiters-per-key", 1);
    assert_eq!(*client.ask("DLOCK.INFO key").field("waiters"), 4);
    assert!(
        client
            .ask("DLOCK.ACQUIRE key BLOCK 0")
            .error()
            .contains("QUEUEFULL 1 ")
    );
}

#[test]
fn max_waiters_bounds_all_queues_and_is_named() {
    let server = Server::start();
    let mut client = server.connect();
    set(&mut client, "max-waiters", 3);
    for key in ["a", "b", "c"] {
        client.ask(format!("DLOCK.ACQUIRE {key}")).grant();
    }
    client.ask("DWG.ADD g").grant();
    let waiters = [
        server.waiting("DLOCK.ACQUIRE a BLOCK 0"),
        server.waiting("DLOCK.ACQUIRE b BLOCK 0"),
        server.waiting("DWG.WAIT g BLOCK 0"),
    ];
    for request in ["DLOCK.ACQUIRE c BLOCK 0", "DWG.WAIT g BLOCK 0"] {
        let refused = client.ask(request);
        let text = refused.error();
        assert!(text.starts_with("QUEUEFULL "), "{text}");
        assert!(
            text.contains('3') && text.ends_with("(dsync.max-waiters)"),
            "{text}"
        );
    }
    // A request that is granted at once needs no place in a queue.
    client.ask("DLOCK.ACQUIRE free BLOCK 0").grant();
    drop(waiters);
    server.wait_for_blocked(0);
    let _waiter = server.waiting("DLOCK.ACQUIRE c BLOCK 0");
}

#[test]
fn oldest_vacant_place_gives_way_to_waiter() {
    let server = Server::builder()
        .module_arg("rejoin-ms")
        .module_arg(600_000)
        .start();
    let mut client = server.connect();
    for bound in ["max-waiters-per-key", "max-waiters"] {
        set(&mut client, bound, 3);
        client.ask("DLOCK.ACQUIRE key TOKEN holder").grant();
        let request = |token| format!("DLOCK.ACQUIRE key BLOCK 0 TOKEN {token}");
        // Three vacant places, left in this order.
        for token in ["one", "two", "three"] {
            server.waiting(request(token)).close();
            server.wait_for_blocked(0);
        }
        assert_eq!(*client.ask("DLOCK.INFO key").field("waiters"), 0);
        // The new request takes the room of the oldest place, and queues behind the others.
        let mut newcomer = server.waiting(request("new"));
        let mut two = server.waiting(request("two"));
        let mut three = server.waiting(request("three"));
        let refused = client.ask("DLOCK.ACQUIRE key BLOCK 0 TOKEN one");
        assert!(
            refused.error().starts_with("QUEUEFULL "),
            "the place of the first is gone: {refused:?}"
        );
        let mut token = "holder".to_owned();
        for (name, waiter) in [
            ("two", &mut two),
            ("three", &mut three),
            ("new", &mut newcomer),
        ] {
            assert_eq!(client.ask(format!("DLOCK.RELEASE key {token}")), 1);
            token = waiter
                .recv(SOON)
                .unwrap_or_else(|| panic!("{bound}: {name} is next"))
                .grant()
                .0;
            assert_eq!(token, name, "{bound}");
        }
        client.ask("DEL key");
        set(&mut client, bound, 100);
    }
}
