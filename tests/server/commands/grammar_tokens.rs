//! Tokens in requests that are refused or slow: neither an error nor the slow log repeats one.
//!
//! `secrets` has all other places where a token must not be seen.

use crate::commands::grammar_table::*;
use crate::support::*;

#[test]
fn token_in_the_wrong_place_is_not_repeated() {
    let token = "8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59";
    let mut bench = Bench::set_up();
    for family in &FAMILIES {
        let (revoke, info) = (family.command("REVOKE"), family.command("INFO"));
        for request in [
            vec![revoke.as_str(), family.key, token],
            vec![info.as_str(), family.key, token],
            vec![family.request, family.key, token],
            vec![family.request, family.key, "EX", token],
        ] {
            let error = bench.refused(&request, &["(36 bytes)"]);
            assert!(!error.contains("8f14e45f"), "{request:?}: {error}");
        }
    }
}

#[test]
fn error_after_a_token_does_not_repeat_it() {
    let mut bench = Bench::set_up();
    // Each request is refused for another reason, after its token was read.
    for family in &FAMILIES {
        let head = [family.request, family.key, "TOKEN", SECRET];
        for rest in [
            &["EX", "0"][..],
            &["PX", "x"],
            &["BLOCK", "-1"],
            &["TOKEN", "other"],
            &["WHAT"],
        ] {
            bench.refused(&request(&head, rest), &["ERR "]);
        }
    }
    bench.refused(
        &["DLOCK.ACQUIRE", "a-lock", "SHARED", "TOKEN", SECRET],
        &["MISMATCH "],
    );
    bench.refused(
        &[
            "DSEM.ACQUIRE",
            "a-semaphore",
            "PERMITS",
            "2",
            "TOKEN",
            SECRET,
        ],
        &["MISMATCH "],
    );
    bench.refused(&["DSEM.ACQUIRE", "nothing", "TOKEN", SECRET], &["NOLIMIT "]);
    bench.refused(
        &[
            "DSEM.ACQUIRE",
            "nothing",
            "LIMIT",
            "1",
            "PERMITS",
            "2",
            "TOKEN",
            SECRET,
        ],
        &["TOOMANY "],
    );
}

#[test]
fn token_stays_out_of_the_slow_log_in_any_position() {
    let server = Server::builder()
        .config("slowlog-log-slower-than", 0)
        .start();
    let mut client = server.connect();
    for family in &FAMILIES {
        let head = [family.request, family.key, "LIMIT", "3"];
        let has_limit = family.valued.iter().any(|(name, _)| *name == "LIMIT");
        let head = if has_limit { &head[..] } else { &head[..2] };
        let requests: [&[&str]; 4] = [
            &["TOKEN", SECRET],
            &["token", SECRET, "OWNER", "me"],
            // Owners and tokens that read like options.
            &["OWNER", "token", "TOKEN", SECRET],
            &["TOKEN", "TOKEN", "TOKEN", SECRET],
        ];
        for rest in requests {
            call!(client, "SLOWLOG", "RESET");
            client.call(&request(head, rest));
            let log = format!("{:?}", call!(client, "SLOWLOG", "GET", 10));
            assert!(!log.contains(SECRET), "{} {rest:?}: {log}", family.request);
            assert!(log.contains(family.request), "{log}");
        }
        call!(client, "DEL", family.key);
    }
    for row in COMMANDS.iter().filter(|row| row.args.contains(&SECRET)) {
        call!(client, "SLOWLOG", "RESET");
        client.call(&request(&[row.name, "absent"], row.args));
        let log = format!("{:?}", call!(client, "SLOWLOG", "GET", 10));
        assert!(
            !log.contains(SECRET) && log.contains(row.name),
            "{}: {log}",
            row.name
        );
    }
}
