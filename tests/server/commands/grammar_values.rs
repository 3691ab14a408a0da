//! The values of arguments, for every command: numbers at and outside their bounds or misspelled, tokens, owners,
//! results and keys of any length and bytes. A refused value is named with its bounds.

use crate::commands::grammar_table::*;
use crate::support::steps::*;
use crate::support::*;

/// A numeric argument of a command, with its bounds.
struct NumericArgument {
    /// The words before the number.
    head: Vec<&'static str>,
    /// What the error calls it.
    name: &'static str,
    least: i64,
    most: i64,
}

/// The setting dsync.max-lease-ms, unless it is changed.
const MAX_LEASE_MS: i64 = 86_400_000;

/// The longest pause, in milliseconds: thirty days.
const MAX_PAUSE_MS: i64 = 2_592_000_000;

/// Ten years, the longest that a result may be kept.
const MAX_KEEP_MS: i64 = 315_360_000_000;

/// The greatest integer that every client can represent: 2^53 - 1.
const MAX_SAFE: i64 = (1 << 53) - 1;

fn numbers() -> Vec<NumericArgument> {
    let mut all = Vec::new();
    let mut add = |head: Vec<&'static str>, name, least, most| {
        all.push(NumericArgument {
            head,
            name,
            least,
            most,
        });
    };
    for family in &FAMILIES {
        let head = |option: &'static str| vec![family.request, family.key, "TOKEN", SECRET, option];
        add(head("EX"), "EX", 1, MAX_LEASE_MS / 1_000);
        add(head("PX"), "PX", 1, MAX_LEASE_MS);
        add(head("BLOCK"), "BLOCK", 0, MAX_SAFE);
        if family.valued.iter().any(|(name, _)| *name == "LIMIT") {
            add(head("LIMIT"), "LIMIT", 1, 1_000_000);
        }
        if family.valued.iter().any(|(name, _)| *name == "PERMITS") {
            add(head("PERMITS"), "PERMITS", 1, 1_000_000);
        }
        if family.valued.iter().any(|(name, _)| *name == "MAX") {
            add(head("MAX"), "MAX", 1, 1_000_000);
        }
    }
    for (family, names) in FAMILIES.iter().zip([
        ["DLOCK.RENEW", "DLOCK.INFO", "DLOCK.REVOKE", "DLOCK.PAUSE"],
        ["DSEM.RENEW", "DSEM.INFO", "DSEM.REVOKE", "DSEM.PAUSE"],
        ["DWG.RENEW", "DWG.INFO", "DWG.REVOKE", "DWG.PAUSE"],
        ["DONCE.RENEW", "DONCE.INFO", "DONCE.REVOKE", "DONCE.PAUSE"],
    ]) {
        add(
            vec![names[0], family.key, SECRET, "EX"],
            "EX",
            1,
            MAX_LEASE_MS / 1_000,
        );
        add(
            vec![names[0], family.key, SECRET, "PX"],
            "PX",
            1,
            MAX_LEASE_MS,
        );
        add(vec![names[1], family.key, "COUNT"], "COUNT", 1, 1_000);
        add(vec![names[2], family.key], "fence", 1, MAX_SAFE);
        add(vec![names[3], family.key], "pause", 0, MAX_PAUSE_MS);
    }
    add(
        vec!["DONCE.DONE", "a-once", SECRET, "EX"],
        "EX",
        1,
        MAX_KEEP_MS / 1_000,
    );
    add(
        vec!["DONCE.DONE", "a-once", SECRET, "RESULT", "text", "PX"],
        "PX",
        1,
        MAX_KEEP_MS,
    );
    add(
        vec!["DONCE.FAIL", "a-once", SECRET, "DELAY"],
        "DELAY",
        0,
        MAX_LEASE_MS,
    );
    add(vec!["DSEM.LIMIT", "a-semaphore"], "limit", 0, 1_000_000);
    add(vec!["DWG.EXPECT", "a-group"], "total", 1, 1_000_000);
    add(vec!["DWG.WAIT", "a-group", "BLOCK"], "BLOCK", 0, MAX_SAFE);
    all
}

#[test]
fn number_out_of_bounds_or_misspelled_is_refused_with_both_bounds() {
    let mut bench = Bench::set_up();
    let huge = "9".repeat(BIG);
    for NumericArgument {
        head,
        name,
        least,
        most,
    } in numbers()
    {
        let (least_text, most_text) = (least.to_string(), most.to_string());
        let is_lease = most == MAX_LEASE_MS || most == MAX_LEASE_MS / 1_000;
        let setting = if is_lease { "dsync.max-lease-ms" } else { "" };
        let outside = [
            (least - 1).to_string(),
            (most + 1).to_string(),
            i64::MIN.to_string(),
            i64::MAX.to_string(),
            // More than 64 bits. A parser that does not check for overflow reads 2^64 + 1 as 1.
            "9223372036854775808".to_owned(),
            "18446744073709551617".to_owned(),
            "-9223372036854775809".to_owned(),
        ];
        let spelled = [
            "+1", " 1", "1 ", "01", "00", "-0", "", "-", "1.0", "1e3", "0x10", "one", "1\0",
            "\x001", "1\n", "٣", "NaN",
        ];
        for value in outside.iter().map(String::as_str).chain(spelled) {
            let shown = format!("'{}'", value.as_bytes().escape_ascii());
            let parts = ["ERR ", name, &*least_text, &*most_text, &*shown, setting];
            bench.refused(&request(&head, &[value]), &parts);
        }
        bench.refused(
            &request(&head, &[&huge]),
            &[
                "ERR ",
                name,
                &least_text,
                &most_text,
                &format!("({BIG} bytes)"),
            ],
        );
    }
}

#[test]
fn number_at_its_bounds_is_accepted() {
    let server = Server::start();
    for NumericArgument {
        head,
        name,
        least,
        most,
    } in numbers()
    {
        for value in [least, most] {
            let mut client = server.connect();
            call!(client, "FLUSHALL");
            let value = value.to_string();
            let mut whole = request(&head, &[&value]);
            match name {
                "PERMITS" => whole.extend(["LIMIT", "1000000"]),
                "EX" | "PX" | "BLOCK" if head[0] == "DSEM.ACQUIRE" => whole.extend(["LIMIT", "1"]),
                _ => {}
            }
            let reply = client.call(&whole);
            assert!(!reply.is_error(), "{whole:?}: {reply:?}");
            if head.contains(&"TOKEN") {
                assert_eq!(any_grant(&reply).0, SECRET.as_bytes());
            }
        }
    }
}

#[test]
fn texts_have_a_maximum_length_and_may_contain_any_bytes() {
    let mut bench = Bench::set_up();
    let bytes_128: Vec<u8> = (0..128).map(|n| n * 2).collect();
    for family in &FAMILIES {
        let free = format!("{}-free", family.key);
        let name = family.request;
        let limit: &[&[u8]] = if name == "DSEM.ACQUIRE" {
            &[b"LIMIT", b"5"]
        } else {
            &[]
        };
        let ask = |option: &'static str, value: &[u8]| {
            let mut request = vec![name.as_bytes().to_vec(), free.as_bytes().to_vec()];
            request.extend([option.as_bytes().to_vec(), value.to_vec()]);
            request.extend(limit.iter().map(|arg| arg.to_vec()));
            request
        };
        for length in [0, 129, BIG] {
            let value = SECRET.repeat(length / SECRET.len() + 1).as_bytes()[..length].to_vec();
            bench.refused(
                &ask("TOKEN", &value),
                &["ERR ", "token", "1 to 128 bytes", &length.to_string()],
            );
            if length > 0 {
                bench.refused(
                    &ask("OWNER", &value),
                    &["ERR OWNER", "128 bytes", &length.to_string()],
                );
            }
        }
        for value in [&b"x"[..], b"\0", &bytes_128] {
            assert_eq!(
                any_grant(&bench.client.call(&ask("TOKEN", value))).0,
                value,
                "{name}"
            );
            call!(bench.client, "DEL", &free);
            any_grant(&bench.client.call(&ask("OWNER", value)));
            let info = call!(bench.client, family.command("INFO"), &free);
            assert_eq!(
                info.field("first-holders").as_array()[0]
                    .field("owner")
                    .as_bytes(),
                value
            );
            call!(bench.client, "DEL", &free);
        }
    }
    let too_long = SECRET.repeat(9).as_bytes()[..129].to_vec();
    for row in COMMANDS.iter().filter(|row| row.args.contains(&SECRET)) {
        let key = FAMILIES[row.family].key.as_bytes();
        for token in [&b""[..], &too_long, &vec![b't'; BIG]] {
            let whole: [&[u8]; 3] = [row.name.as_bytes(), key, token];
            bench.refused(
                &whole,
                &["ERR ", "token", "1 to 128 bytes", &token.len().to_string()],
            );
        }
    }
    let result = vec![b'r'; 65_537];
    for (command, option) in [("DONCE.DONE", "RESULT"), ("DONCE.FAIL", "REASON")] {
        let whole: [&[u8]; 5] = [
            command.as_bytes(),
            b"a-once",
            SECRET.as_bytes(),
            option.as_bytes(),
            &result,
        ];
        bench.refused(
            &whole,
            &[
                "ERR ",
                option,
                "65536 bytes",
                "dsync.max-result-bytes",
                "65537",
            ],
        );
        any_grant(&call!(
            bench.client,
            "DONCE.BEGIN",
            "once-more",
            "TOKEN",
            "t"
        ));
        assert_eq!(
            call!(
                bench.client,
                command,
                "once-more",
                "t",
                option,
                &result[1..]
            ),
            1
        );
        call!(bench.client, "DEL", "once-more");
    }
    // One bad token among many: DWG.DONE ends none of them.
    let whole: [&[u8]; 4] = [b"DWG.DONE", b"a-group", SECRET.as_bytes(), &too_long];
    bench.refused(&whole, &["ERR ", "token", "1 to 128 bytes", "129"]);
}

#[test]
fn keys_and_tokens_may_be_long_and_contain_any_bytes() {
    let server = Server::start();
    let mut client = server.connect();
    let long = vec![b'k'; BIG];
    let token = b"\xff\0 token\r\n";
    let keys = [
        &b""[..],
        b"\0",
        b"a\0b",
        b"\0\r\n\xff",
        b"\xff\xfe",
        b"a}b",
        b"{}",
        b"{tag}x",
        &long,
    ];
    for key in keys {
        for (acquire, info, extra) in [
            ("DLOCK.ACQUIRE", "DLOCK.INFO", &[][..]),
            ("DSEM.ACQUIRE", "DSEM.INFO", &["LIMIT", "1"]),
            ("DWG.ADD", "DWG.INFO", &["LIMIT", "1"]),
            ("DONCE.BEGIN", "DONCE.INFO", &[]),
        ] {
            let mut whole = vec![acquire.as_bytes(), key];
            whole.extend(extra.iter().map(|arg| arg.as_bytes()));
            let mut with_token = whole.clone();
            with_token.extend([&b"TOKEN"[..], token]);
            let (given, fence) = any_grant(&client.call(&with_token));
            assert_eq!(given, token);
            // A request that waits for this key is granted when its hold ends.
            let mut waiter = server.connect();
            whole.extend([&b"BLOCK"[..], b"0"]);
            waiter.send(&whole);
            wait_for_blocked(&server, 1);
            assert_eq!(*call!(client, info, key).field("waiters"), 1);
            let release = info.replace("INFO", "RELEASE");
            assert_eq!(call!(client, release, key, token), 1);
            assert!(any_grant(&waiter.recv(SOON).expect("granted")).1 > fence);
            assert_eq!(call!(client, "DEL", key), 1);
        }
    }
}
