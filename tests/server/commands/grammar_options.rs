//! The grammar of options, for every command: an unknown, repeated, contradictory or incomplete option is refused, the
//! error names it, and nothing changes. The order and the case of options mean nothing.
//!
//! The values of options are in `grammar_values`. A command that is missing in the table fails the first test.

use crate::commands::designed_commands::INTERNAL;
use crate::commands::grammar_table::*;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn grammar_table_has_every_command() {
    let server = Server::start();
    let mut client = server.connect();
    let known = call!(client, "COMMAND", "LIST", "FILTERBY", "MODULE", "dsync");
    let mut unknown: Vec<_> = known
        .as_array()
        .iter()
        .map(|name| name.as_str().to_uppercase())
        // Commands without a key belong to no family; internal commands are not for clients.
        .filter(|name| !name.starts_with("DSYNC.") && !INTERNAL.contains(&name.as_str()))
        .filter(|name| COMMANDS.iter().all(|row| row.name != name))
        .collect();
    unknown.sort();
    assert!(unknown.is_empty(), "not in the table: {unknown:?}");
    for row in &COMMANDS {
        let info = call!(client, "COMMAND", "INFO", row.name);
        assert!(!info.as_array()[0].is_nil(), "{} does not exist", row.name);
    }
}

#[test]
fn wrong_number_of_arguments_error_names_the_command() {
    let mut bench = Bench::set_up();
    for row in &COMMANDS {
        let name = format!("'{}'", row.name);
        let key = FAMILIES[row.family].key;
        let args = request(&[row.name, key], row.args);
        for given in 0..row.least {
            bench.refused(&args[..=given], &["ERR wrong number of arguments", &name]);
        }
        if row.most.is_some() {
            bench.refused(
                &request(&args, &["more"]),
                &["ERR wrong number of arguments", &name],
            );
            bench.refused(
                &request(&args, &["even", "more"]),
                &["ERR wrong number of arguments", &name],
            );
        }
    }
}

#[test]
fn unknown_option_error_names_the_option() {
    let mut bench = Bench::set_up();
    let big = vec![b'x'; BIG];
    for family in &FAMILIES {
        for word in family.foreign {
            bench.refused(
                &[family.request, family.key, word, "1"],
                &["ERR syntax error", &format!("'{word}'")],
            );
            let behind = [family.request, family.key, "TOKEN", SECRET, word];
            bench.refused(&behind, &["ERR syntax error", &format!("'{word}'")]);
        }
        bench.refused(
            &[family.request, family.key, ""],
            &["ERR syntax error", "''"],
        );
        bench.refused(
            &[family.request, family.key, "EX\0", "1"],
            &["ERR syntax error", r"'EX\x00'"],
        );
        bench.refused(
            &[family.request, family.key, "E\r\nX"],
            &["ERR syntax error", r"'E\r\nX'"],
        );
        bench.refused(
            &[family.request, family.key, " EX", "1"],
            &["ERR syntax error", "' EX'"],
        );
        let long: [&[u8]; 3] = [family.request.as_bytes(), family.key.as_bytes(), &big];
        bench.refused(&long, &["ERR syntax error", &format!("({BIG} bytes)")]);
    }
    for family in &FAMILIES {
        let (renew, info) = (family.command("RENEW"), family.command("INFO"));
        for word in ["BLOCK", "TOKEN", "OWNER", "EPHEMERAL", "", "P\0X"] {
            let shown = format!(
                "'{}'",
                word.escape_default().to_string().replace("\\u{0}", r"\x00")
            );
            bench.refused(
                &[&renew, family.key, SECRET, word],
                &["ERR syntax error", &shown],
            );
            bench.refused(
                &[&renew, family.key, SECRET, word, "5"],
                &["ERR syntax error", &shown],
            );
            bench.refused(
                &[&renew, family.key, SECRET, "EX", "5", word],
                &["ERR syntax error", &shown],
            );
            bench.refused(&[&info, family.key, word], &["ERR syntax error", &shown]);
            bench.refused(
                &[&info, family.key, word, "5"],
                &["ERR syntax error", &shown],
            );
            bench.refused(
                &[&info, family.key, "COUNT", "5", word],
                &["ERR syntax error", &shown],
            );
        }
    }
    for (name, word) in [
        ("DONE", "REASON"),
        ("DONE", "BLOCK"),
        ("FAIL", "RESULT"),
        ("FAIL", "EX"),
        ("FAIL", ""),
    ] {
        let (command, shown) = (FAMILIES[3].command(name), format!("'{word}'"));
        let right = if name == "DONE" { "RESULT" } else { "REASON" };
        bench.refused(
            &[&command, "a-once", SECRET, word],
            &["ERR syntax error", &shown],
        );
        bench.refused(
            &[&command, "a-once", SECRET, word, "5"],
            &["ERR syntax error", &shown],
        );
        bench.refused(
            &[&command, "a-once", SECRET, right, "5", word],
            &["ERR syntax error", &shown],
        );
    }
    for word in ["PX", "TOKEN", "", "BLO\0CK"] {
        let shown = format!(
            "'{}'",
            word.escape_default().to_string().replace("\\u{0}", r"\x00")
        );
        bench.refused(
            &["DWG.WAIT", "a-group", word],
            &["ERR syntax error", &shown],
        );
        bench.refused(
            &["DWG.WAIT", "a-group", word, "5"],
            &["ERR syntax error", &shown],
        );
        bench.refused(
            &["DWG.WAIT", "a-group", "BLOCK", "5", word],
            &["ERR syntax error", &shown],
        );
    }
}

#[test]
fn repeated_contradictory_or_incomplete_option_error_names_it() {
    let mut bench = Bench::set_up();
    for family in &FAMILIES {
        let head = [family.request, family.key];
        for flag in family.flags {
            bench.refused(
                &request(&head, &[flag, flag]),
                &["ERR syntax error", flag, "twice"],
            );
            let apart = request(&head, &[flag, "TOKEN", SECRET, &flag.to_lowercase()]).join("|");
            let apart: Vec<_> = apart.split('|').collect();
            bench.refused(&apart, &["ERR syntax error", flag, "twice"]);
        }
        for (name, value) in family.valued {
            let value = if *name == "TOKEN" { SECRET } else { value };
            bench.refused(
                &request(&head, &[name, value, name, value]),
                &["ERR syntax error", name, "twice"],
            );
            bench.refused(
                &request(&head, &[name]),
                &["ERR syntax error", name, "no value"],
            );
        }
        for (one, other) in [("EX", "PX"), ("PX", "EX"), ("EX", "EX"), ("px", "PX")] {
            let twice = ["ERR syntax error", "EX", "PX", "twice"];
            bench.refused(&request(&head, &[one, "5", other, "5"]), &twice);
            bench.refused(
                &request(&head, &[one, "5", "TOKEN", SECRET, other, "5"]),
                &twice,
            );
        }
    }
    for family in &FAMILIES {
        let (renew, info) = (family.command("RENEW"), family.command("INFO"));
        let renew = [&*renew, family.key, SECRET];
        let info = [&*info, family.key];
        for lease in ["EX", "PX"] {
            bench.refused(
                &request(&renew, &[lease]),
                &["ERR syntax error", lease, "no value"],
            );
            for other in ["EX", "PX"] {
                let both = request(&renew, &[lease, "5", other, "5"]);
                bench.refused(&both, &["ERR syntax error", "EX", "PX", "twice"]);
            }
        }
        bench.refused(
            &request(&info, &["COUNT"]),
            &["ERR syntax error", "COUNT", "no value"],
        );
        bench.refused(
            &request(&info, &["COUNT", "5", "COUNT", "5"]),
            &["ERR syntax error", "COUNT", "twice"],
        );
    }
    for (command, option) in [("DONCE.DONE", "RESULT"), ("DONCE.FAIL", "REASON")] {
        let head = [command, "a-once", SECRET, option];
        bench.refused(&head, &["ERR syntax error", option, "no value"]);
        bench.refused(
            &request(&head, &["text", option, "text"]),
            &["ERR syntax error", option, "twice"],
        );
    }
    let done = ["DONCE.DONE", "a-once", SECRET];
    for (one, other) in [("EX", "PX"), ("PX", "EX"), ("EX", "EX")] {
        bench.refused(
            &request(&done, &[one]),
            &["ERR syntax error", one, "no value"],
        );
        let both = request(&done, &[one, "5", "RESULT", "text", other, "5"]);
        bench.refused(&both, &["ERR syntax error", "EX", "PX", "twice"]);
    }
    for both in [
        &["PERSIST", "PX", "5"][..],
        &["EX", "5", "PERSIST"],
        &["PERSIST", "RESULT", "text", "PERSIST"],
    ] {
        let error = ["ERR syntax error", "EX, PX or PERSIST", "twice"];
        bench.refused(&request(&done, both), &error);
    }
    bench.refused(
        &request(&done, &["PERSIST", "5"]),
        &["ERR syntax error", "'5' is not an option"],
    );
    let fail = ["DONCE.FAIL", "a-once", SECRET, "DELAY"];
    bench.refused(&fail, &["ERR syntax error", "DELAY", "no value"]);
    bench.refused(
        &request(&fail, &["5", "REASON", "text", "DELAY", "5"]),
        &["ERR syntax error", "DELAY", "twice"],
    );
    bench.refused(
        &["DWG.WAIT", "a-group", "BLOCK"],
        &["ERR syntax error", "BLOCK", "no value"],
    );
    bench.refused(
        &["DWG.WAIT", "a-group", "BLOCK", "5", "BLOCK", "5"],
        &["ERR syntax error", "BLOCK", "twice"],
    );
}

/// A refused request makes no key; the other tests send theirs to keys that exist.
#[test]
fn refused_request_on_absent_key_creates_nothing() {
    let mut bench = Bench::set_up();
    let long = "o".repeat(129);
    for family in &FAMILIES {
        for bad in [
            "NOW",
            "EX 5 EX 5",
            "EX 5 PX 5000",
            "EPHEMERAL EPHEMERAL",
            "BLOCK 0 BLOCK 0",
            "TOKEN a TOKEN a",
            "OWNER a OWNER b",
            "EX",
            "PX",
            "BLOCK",
            "TOKEN",
            "OWNER",
            "EX 0",
            "PX 0",
            "PX -5",
            "EX 1.5",
            "PX 1e3",
            "EX 86401",
            "PX 86400001",
            "EX 9223372036854775807",
            "EX 18446744073709551617",
            "PX 99999999999999999999999",
            "BLOCK -1",
            "BLOCK x",
            "BLOCK 9223372036854775808",
        ] {
            let words: Vec<_> = bad.split(' ').collect();
            bench.refused(&request(&[family.request, "absent"], &words), &["ERR "]);
        }
        for bad in [["TOKEN", ""], ["TOKEN", &long], ["OWNER", &long]] {
            bench.refused(&request(&[family.request, "absent"], &bad), &["ERR "]);
        }
    }
}

/// Every order of `0..length`, by Heap's algorithm.
fn orders(length: usize) -> Vec<Vec<usize>> {
    fn permute(order: &mut Vec<usize>, left: usize, all: &mut Vec<Vec<usize>>) {
        if left <= 1 {
            all.push(order.clone());
            return;
        }
        for at in 0..left {
            permute(order, left - 1, all);
            order.swap(if left.is_multiple_of(2) { at } else { 0 }, left - 1);
        }
    }
    let mut all = Vec::new();
    permute(&mut (0..length).collect(), length, &mut all);
    all
}

/// The word in upper, lower or mixed case, by `kind % 3`.
fn in_case(word: &str, kind: usize) -> String {
    match kind % 3 {
        0 => word.to_uppercase(),
        1 => word.to_lowercase(),
        _ => word
            .char_indices()
            .map(|(at, letter)| {
                if at % 2 == kind % 2 {
                    letter.to_ascii_lowercase()
                } else {
                    letter
                }
            })
            .collect(),
    }
}

#[test]
fn options_in_any_order_and_case_mean_the_same() {
    let server = Server::start();
    let mut client = server.connect();
    let id = client.id().cast_signed();
    for family in &FAMILIES {
        let info = family.command("INFO");
        let options: Vec<Vec<&str>> = family
            .valued
            .iter()
            .map(|(name, value)| vec![*name, *value])
            .chain(family.flags.iter().map(|flag| vec![*flag]))
            .collect();
        for (number, order) in orders(options.len()).into_iter().enumerate() {
            let mut request = vec![in_case(family.request, number), family.key.to_owned()];
            for (at, option) in order.iter().map(|at| &options[*at]).enumerate() {
                request.push(in_case(option[0], number + at));
                request.extend(option[1..].iter().map(|value| (*value).to_owned()));
            }
            // One write for the three commands: there are many orders to go through.
            client.send(&request);
            client.send(&[&info, family.key]);
            client.send(&["DEL", family.key]);
            let mut next = || client.recv(SOON).expect("a reply");
            assert_eq!(any_grant(&next()).0, b"its token", "{request:?}");
            let info = next();
            let hold = &info.field("first-holders").as_array()[0];
            assert_eq!(*hold.field("owner"), "its owner", "{request:?}");
            assert_eq!(*hold.field("client"), id, "{request:?}");
            let left = hold.field("lease-left-ms").as_int();
            assert!((30_001..=45_000).contains(&left), "{request:?}: {left}");
            match family.request {
                "DLOCK.ACQUIRE" => assert_eq!(*hold.field("mode"), "shared", "{request:?}"),
                "DSEM.ACQUIRE" => assert_eq!(*hold.field("permits"), 3, "{request:?}"),
                _ => {}
            }
            if let Some(limit) = info.find_field("limit") {
                assert_eq!(*limit, 7, "{request:?}");
            }
            assert_eq!(next(), 1);
        }
    }
}

#[test]
fn values_that_read_like_options_are_values() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, _) = call!(
        client,
        "DLOCK.ACQUIRE",
        "SHARED",
        "TOKEN",
        "EX",
        "OWNER",
        "BLOCK",
        "SHARED",
        "PX",
        9_000
    )
    .grant();
    assert_eq!(token, "EX");
    let info = call!(client, "DLOCK.INFO", "SHARED");
    let hold = &info.field("first-holders").as_array()[0];
    assert_eq!(
        (hold.field("owner"), hold.field("mode")),
        (
            &Reply::Bulk(b"BLOCK".to_vec()),
            &Reply::Bulk(b"shared".to_vec())
        )
    );
    // An empty OWNER is the same as none.
    call!(client, "DLOCK.ACQUIRE", "k", "OWNER", "").grant();
    assert!(
        call!(client, "DLOCK.INFO", "k")
            .field("first-holders")
            .as_array()[0]
            .field("owner")
            .is_nil()
    );
    assert_eq!(call!(client, "DSEM.LIMIT", "k2", "NoNe"), -1);
}

#[test]
fn contended_options_are_checked_like_all_others() {
    let server = Server::start();
    let mut client = server.connect();
    for word in ["x", "", "MAX", "5"] {
        let error = call!(client, "DSYNC.CONTENDED", word, 1);
        assert!(
            error.error().starts_with("ERR syntax error")
                && error.error().contains(&format!("'{word}'"))
        );
    }
    for (rest, part) in [
        (&["COUNT"][..], "no value"),
        (&["COUNT", "1", "COUNT", "1"], "twice"),
        (&["COUNT", "1", "x"], "'x'"),
    ] {
        let error = client.call(&[&["DSYNC.CONTENDED"], rest].concat());
        assert!(
            error.error().starts_with("ERR syntax error") && error.error().contains(part),
            "{error:?}"
        );
    }
    for value in [
        "0",
        "1001",
        "-1",
        "01",
        "+1",
        "",
        "1\0",
        "x",
        "9223372036854775808",
    ] {
        let error = call!(client, "DSYNC.CONTENDED", "COUNT", value);
        let shown = format!("'{}'", value.as_bytes().escape_ascii());
        assert!(
            ["ERR COUNT", "1 to 1000", &shown]
                .iter()
                .all(|part| error.error().contains(part)),
            "{error:?}"
        );
    }
    for value in ["1", "1000"] {
        assert_eq!(
            call!(client, "DSYNC.CONTENDED", "count", value),
            Reply::Array(Vec::new())
        );
    }
}
