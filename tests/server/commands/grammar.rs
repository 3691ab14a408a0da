//! What can be typed wrong, for every command: the answer names the option, the value and the bound,
//! repeats no token, and nothing has changed. And what can be typed differently and means the same.
//!
//! One table of commands serves all tests; a command that is missing there fails the first of them.

use crate::commands::command_docs::INTERNAL;
use crate::support::*;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);
const BIG: usize = 512 * 1024;
/// In every request that may carry one; in no answer but a grant.
const SECRET: &str = "s3cr3t-0f-th3-t3st";

/// A family's key, and the option words of its request.
struct Family {
    key: &'static str,
    request: &'static str,
    /// The options that have no value, and those that have one.
    flags: &'static [&'static str],
    valued: &'static [(&'static str, &'static str)],
    foreign: &'static [&'static str],
}

const FAMILIES: [Family; 4] = [
    Family {
        key: "a-lock",
        request: "DLOCK.ACQUIRE",
        flags: &["SHARED", "EPHEMERAL"],
        valued: &[
            ("PX", "45000"),
            ("BLOCK", "5"),
            ("TOKEN", "its token"),
            ("OWNER", "its owner"),
        ],
        foreign: &["LIMIT", "PERMITS", "NX", "COUNT"],
    },
    Family {
        key: "a-semaphore",
        request: "DSEM.ACQUIRE",
        flags: &["EPHEMERAL"],
        valued: &[
            ("LIMIT", "7"),
            ("PERMITS", "3"),
            ("EX", "45"),
            ("BLOCK", "5"),
            ("TOKEN", "its token"),
            ("OWNER", "its owner"),
        ],
        foreign: &["SHARED", "NX", "COUNT", "MAX"],
    },
    Family {
        key: "a-group",
        request: "DWG.ADD",
        flags: &["EPHEMERAL"],
        valued: &[
            ("LIMIT", "7"),
            ("PX", "45000"),
            ("BLOCK", "5"),
            ("TOKEN", "its token"),
            ("OWNER", "its owner"),
        ],
        foreign: &["SHARED", "PERMITS", "NX", "MAX"],
    },
    Family {
        key: "a-once",
        request: "DONCE.BEGIN",
        flags: &["EPHEMERAL"],
        valued: &[
            ("MAX", "7"),
            ("PX", "45000"),
            ("BLOCK", "5"),
            ("TOKEN", "its token"),
            ("OWNER", "its owner"),
        ],
        foreign: &["SHARED", "LIMIT", "PERMITS", "RESULT", "REASON"],
    },
];

impl Family {
    /// The family's command of this name.
    fn command(&self, verb: &str) -> String {
        let name = self.request.split('.').next().expect("a family and a verb");
        format!("{name}.{verb}")
    }
}

/// The token and the fence of a grant, in whichever words the family gives it.
#[track_caller]
fn grant_of(reply: &Reply) -> (Vec<u8>, u64) {
    let items = reply.as_array();
    let items = if items.len() == 4 {
        &items[1..3]
    } else {
        items
    };
    match items {
        [Reply::Bulk(token), Reply::Int(fence)] if *fence > 0 => {
            (token.clone(), fence.unsigned_abs())
        }
        _ => panic!("not a grant: {reply:?}"),
    }
}

/// A command with arguments that are right, and how many it takes after its name.
struct Row {
    name: &'static str,
    family: usize,
    args: &'static [&'static str],
    least: usize,
    most: Option<usize>,
}

const fn row(
    name: &'static str,
    family: usize,
    args: &'static [&'static str],
    least: usize,
    most: Option<usize>,
) -> Row {
    Row {
        name,
        family,
        args,
        least,
        most,
    }
}

const COMMANDS: [Row; 30] = [
    row("DLOCK.ACQUIRE", 0, &[], 1, None),
    row("DLOCK.RELEASE", 0, &[SECRET], 2, Some(2)),
    row("DLOCK.RENEW", 0, &[SECRET], 2, None),
    row("DLOCK.CHECK", 0, &[SECRET], 2, Some(2)),
    row("DLOCK.REVOKE", 0, &["1"], 2, Some(2)),
    row("DLOCK.INFO", 0, &[], 1, None),
    row("DSEM.ACQUIRE", 1, &["LIMIT", "3"], 1, None),
    row("DSEM.RELEASE", 1, &[SECRET], 2, Some(2)),
    row("DSEM.RENEW", 1, &[SECRET], 2, None),
    row("DSEM.CHECK", 1, &[SECRET], 2, Some(2)),
    row("DSEM.REVOKE", 1, &["1"], 2, Some(2)),
    row("DSEM.INFO", 1, &[], 1, None),
    row("DSEM.LIMIT", 1, &["3"], 2, Some(2)),
    row("DWG.ADD", 2, &[], 1, None),
    row("DWG.DONE", 2, &[SECRET], 2, None),
    row("DWG.WAIT", 2, &[], 1, None),
    row("DWG.EXPECT", 2, &["3"], 2, Some(2)),
    row("DWG.RELEASE", 2, &[SECRET], 2, Some(2)),
    row("DWG.RENEW", 2, &[SECRET], 2, None),
    row("DWG.CHECK", 2, &[SECRET], 2, Some(2)),
    row("DWG.REVOKE", 2, &["1"], 2, Some(2)),
    row("DWG.INFO", 2, &[], 1, None),
    row("DONCE.BEGIN", 3, &[], 1, None),
    row("DONCE.DONE", 3, &[SECRET], 2, None),
    row("DONCE.FAIL", 3, &[SECRET], 2, None),
    row("DONCE.RELEASE", 3, &[SECRET], 2, Some(2)),
    row("DONCE.RENEW", 3, &[SECRET], 2, None),
    row("DONCE.CHECK", 3, &[SECRET], 2, Some(2)),
    row("DONCE.REVOKE", 3, &["1"], 2, Some(2)),
    row("DONCE.INFO", 3, &[], 1, None),
];

/// A server with a held key of each family and a string, and what must be the same after every error.
struct Bench {
    server: Server,
    client: Client,
    before: Vec<String>,
}

const KEYS: [&str; 5] = ["a-lock", "a-semaphore", "a-group", "a-once", "a-string"];

impl Bench {
    fn set_up() -> Bench {
        let server = Server::start();
        let mut client = server.connect();
        call!(
            client,
            "DLOCK.ACQUIRE",
            "a-lock",
            "TOKEN",
            SECRET,
            "EX",
            3_000
        )
        .grant();
        call!(
            client,
            "DSEM.ACQUIRE",
            "a-semaphore",
            "LIMIT",
            2,
            "TOKEN",
            SECRET,
            "EX",
            3_000
        )
        .grant();
        call!(
            client, "DWG.ADD", "a-group", "LIMIT", 1, "TOKEN", SECRET, "EX", 3_000
        )
        .grant();
        grant_of(&call!(
            client,
            "DONCE.BEGIN",
            "a-once",
            "TOKEN",
            SECRET,
            "EX",
            3_000
        ));
        call!(client, "SET", "a-string", "text");
        let mut bench = Bench {
            server,
            client,
            before: Vec::new(),
        };
        bench.before = bench.now();
        bench
    }

    fn now(&mut self) -> Vec<String> {
        let mut facts: Vec<_> = KEYS
            .iter()
            .map(|key| format!("{:?}", call!(self.client, "DEBUG", "DIGEST-VALUE", key)))
            .collect();
        facts.push(format!("{:?}", call!(self.client, "DBSIZE")));
        facts
    }

    /// The request is refused with a text that has all the parts, and nothing else happens.
    #[track_caller]
    fn refused<A: AsRef<[u8]>>(&mut self, request: &[A], parts: &[&str]) -> String {
        let reply = self.client.call(request);
        let shown: Vec<_> = request
            .iter()
            .map(|arg| {
                arg.as_ref()[..arg.as_ref().len().min(40)]
                    .escape_ascii()
                    .to_string()
            })
            .collect();
        let shown = shown.join(" ");
        let Reply::Error(text) = &reply else {
            panic!("{shown}: not refused: {reply:?}")
        };
        for part in parts {
            assert!(text.contains(part), "{shown}: no {part:?} in {text:?}");
        }
        assert!(!text.contains(SECRET), "{shown}: a token in {text:?}");
        assert!(text.len() < 300, "{shown}: {} bytes of error", text.len());
        assert!(
            !text.contains(" ,") && !text.contains("  "),
            "{shown}: a word is missing in {text:?}"
        );
        assert_eq!(self.now(), self.before, "{shown}: something has changed");
        text.clone()
    }
}

fn request<'a>(head: &[&'a str], rest: &[&'a str]) -> Vec<&'a str> {
    [head, rest].concat()
}

#[test]
fn every_command_is_in_the_table() {
    let server = Server::start();
    let mut client = server.connect();
    let known = call!(client, "COMMAND", "LIST", "FILTERBY", "MODULE", "dsync");
    let mut unknown: Vec<_> = known
        .as_array()
        .iter()
        .map(|name| name.as_str().to_uppercase())
        // Those of the whole server have no key and no family; the internal ones have no users.
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
fn a_wrong_number_of_arguments_names_the_command() {
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
fn a_token_in_the_wrong_place_is_not_repeated() {
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
fn an_unknown_option_is_named() {
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
fn a_repeated_a_contradictory_and_an_incomplete_option_are_named() {
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
    bench.refused(
        &["DWG.WAIT", "a-group", "BLOCK"],
        &["ERR syntax error", "BLOCK", "no value"],
    );
    bench.refused(
        &["DWG.WAIT", "a-group", "BLOCK", "5", "BLOCK", "5"],
        &["ERR syntax error", "BLOCK", "twice"],
    );
}

/// A number somewhere in a command: what stands before it, what the error calls it, and its bounds.
struct Number {
    head: Vec<&'static str>,
    name: &'static str,
    least: i64,
    most: i64,
}

const MAX_LEASE_MS: i64 = 86_400_000;
/// Ten years, for which a result may be kept.
const MAX_KEEP_MS: i64 = 315_360_000_000;
const MAX_SAFE: i64 = (1 << 53) - 1;

fn numbers() -> Vec<Number> {
    let mut all = Vec::new();
    let mut add = |head: Vec<&'static str>, name, least, most| {
        all.push(Number {
            head,
            name,
            least,
            most,
        })
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
        ["DLOCK.RENEW", "DLOCK.INFO", "DLOCK.REVOKE"],
        ["DSEM.RENEW", "DSEM.INFO", "DSEM.REVOKE"],
        ["DWG.RENEW", "DWG.INFO", "DWG.REVOKE"],
        ["DONCE.RENEW", "DONCE.INFO", "DONCE.REVOKE"],
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
    add(vec!["DSEM.LIMIT", "a-semaphore"], "limit", 0, 1_000_000);
    add(vec!["DWG.EXPECT", "a-group"], "total", 1, 1_000_000);
    add(vec!["DWG.WAIT", "a-group", "BLOCK"], "BLOCK", 0, MAX_SAFE);
    all
}

#[test]
fn a_number_outside_its_bounds_or_misspelled_is_refused_with_both_bounds() {
    let mut bench = Bench::set_up();
    let huge = "9".repeat(BIG);
    for Number {
        head,
        name,
        least,
        most,
    } in numbers()
    {
        let (least_text, most_text) = (least.to_string(), most.to_string());
        let outside = [
            (least - 1).to_string(),
            (most + 1).to_string(),
            i64::MIN.to_string(),
            i64::MAX.to_string(),
            // Past 64 bits; 2^64 + 1 is 1 where somebody forgot to look.
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
            let parts = ["ERR ", name, &*least_text, &*most_text, &*shown];
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
fn a_number_at_its_bounds_is_taken() {
    let server = Server::start();
    for Number {
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
                assert_eq!(grant_of(&reply).0, SECRET.as_bytes());
            }
        }
    }
}

#[test]
fn texts_have_their_bounds_and_may_have_any_bytes() {
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
                grant_of(&bench.client.call(&ask("TOKEN", value))).0,
                value,
                "{name}"
            );
            call!(bench.client, "DEL", &free);
            grant_of(&bench.client.call(&ask("OWNER", value)));
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
    let too_long = vec![b't'; 129];
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
        grant_of(&call!(
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
    // One bad token among many, and none of them is done.
    let whole: [&[u8]; 4] = [b"DWG.DONE", b"a-group", SECRET.as_bytes(), &too_long];
    bench.refused(&whole, &["ERR ", "token", "1 to 128 bytes", "129"]);
}

#[test]
fn no_error_repeats_a_token() {
    let mut bench = Bench::set_up();
    // Each of them wrong after the token is known, and for another reason.
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
fn a_token_stays_out_of_the_slow_log_whatever_stands_around_it() {
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
            // An owner that reads like an option.
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

#[test]
fn every_command_refuses_a_key_of_another_type_and_leaves_it_alone() {
    let mut bench = Bench::set_up();
    call!(bench.client, "RPUSH", "a-list", "item");
    call!(bench.client, "XADD", "a-stream", "*", "field", "value");
    bench.before = bench.now();
    for row in &COMMANDS {
        let own = FAMILIES[row.family].key;
        for key in KEYS
            .iter()
            .chain(&["a-list", "a-stream"])
            .filter(|key| **key != own)
        {
            bench.refused(&request(&[row.name, key], row.args), &["WRONGTYPE "]);
            if ["ACQUIRE", "ADD", "WAIT", "BEGIN"]
                .iter()
                .any(|verb| row.name.ends_with(verb))
            {
                let whole = request(&request(&[row.name, key], row.args), &["BLOCK", "0"]);
                bench.refused(&whole, &["WRONGTYPE "]);
            }
        }
    }
    wait_for_blocked(&bench.server, 0);
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
fn options_come_in_any_order_and_case() {
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
            // Three at once: the grant, the look at it, the end of it.
            client.send(&request);
            client.send(&[&info, family.key]);
            client.send(&["DEL", family.key]);
            let mut next = || client.recv(SOON).expect("a reply");
            assert_eq!(grant_of(&next()).0, b"its token", "{request:?}");
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
    // No text is no owner.
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
fn keys_may_be_empty_long_or_of_any_bytes() {
    let server = Server::start();
    let mut client = server.connect();
    let long = vec![b'k'; BIG];
    for key in [&b""[..], b"\0", b"a\0b", b"\xff\xfe", b"{tag}x", &long] {
        for (acquire, info, extra) in [
            ("DLOCK.ACQUIRE", "DLOCK.INFO", &[][..]),
            ("DSEM.ACQUIRE", "DSEM.INFO", &["LIMIT", "1"]),
            ("DWG.ADD", "DWG.INFO", &["LIMIT", "1"]),
            ("DONCE.BEGIN", "DONCE.INFO", &[]),
        ] {
            let mut whole = vec![acquire.as_bytes(), key];
            whole.extend(extra.iter().map(|arg| arg.as_bytes()));
            let (token, fence) = grant_of(&client.call(&whole));
            // Somebody waits under that very name, and is served.
            let mut waiter = server.connect();
            whole.extend([&b"BLOCK"[..], b"0"]);
            waiter.send(&whole);
            wait_for_blocked(&server, 1);
            assert_eq!(*call!(client, info, key).field("waiters"), 1);
            let release = info.replace("INFO", "RELEASE");
            assert_eq!(call!(client, release, key, token), 1);
            assert!(grant_of(&waiter.recv(SOON).expect("granted")).1 > fence);
            assert_eq!(call!(client, "DEL", key), 1);
        }
    }
}

#[test]
fn every_command_answers_in_its_shape_in_resp2_and_in_resp3() {
    let server = Server::start();
    for resp3 in [false, true] {
        let mut client = if resp3 {
            server.connect_resp3()
        } else {
            server.connect()
        };
        call!(client, "FLUSHALL");
        let map = |reply: &Reply| {
            let fits = if resp3 {
                matches!(reply, Reply::Map(_))
            } else {
                matches!(reply, Reply::Array(_))
            };
            assert!(fits, "RESP3 {resp3}: {reply:?}");
        };
        for (name, extra) in [
            ("DLOCK", &[][..]),
            ("DSEM", &["LIMIT", "1"]),
            ("DWG", &["LIMIT", "1"]),
        ] {
            let command = |verb: &str| format!("{name}.{verb}");
            let acquire = command(if name == "DWG" { "ADD" } else { "ACQUIRE" });
            let key = name;
            let with_limit = |rest: &[&str]| {
                let mut whole = vec![acquire.clone(), key.to_owned()];
                whole.extend(extra.iter().chain(rest).map(|arg| (*arg).to_owned()));
                whole
            };
            assert!(call!(client, command("INFO"), key).is_nil(), "absent");
            let reply = client.call(&with_limit(&["OWNER", "me"]));
            assert!(
                matches!(&reply, Reply::Array(items) if matches!(items[..], [Reply::Bulk(_), Reply::Int(_)]))
            );
            let (token, _) = reply.grant();
            assert!(client.call(&with_limit(&[])).is_nil(), "a try");
            assert!(
                client.call(&with_limit(&["BLOCK", "1"])).is_nil(),
                "a wait that runs out"
            );
            assert!(
                matches!(call!(client, command("CHECK"), key, &token), Reply::Int(left) if left > 0)
            );
            assert_eq!(call!(client, command("RENEW"), key, &token), Reply::Int(1));
            let info = call!(client, command("INFO"), key);
            map(&info);
            map(&info.field("first-holders").as_array()[0]);
            let mut waiter = if resp3 {
                server.connect_resp3()
            } else {
                server.connect()
            };
            waiter.send(&with_limit(&["BLOCK", "0"]));
            wait_for_blocked(&server, 1);
            map(&call!(client, command("INFO"), key)
                .field("first-waiters")
                .as_array()[0]);
            assert_eq!(
                call!(client, command("RELEASE"), key, &token),
                Reply::Int(1)
            );
            let reply = waiter.recv(SOON).expect("granted");
            assert!(
                matches!(&reply, Reply::Array(items) if matches!(items[..], [Reply::Bulk(_), Reply::Int(_)]))
            );
            let (token, fence) = reply.grant();
            assert_eq!(call!(client, command("REVOKE"), key, fence), Reply::Int(1));
            assert_eq!(call!(client, command("REVOKE"), key, fence), Reply::Int(0));
            for verb in ["RELEASE", "RENEW", "CHECK"] {
                assert_eq!(
                    call!(client, command(verb), key, &token),
                    Reply::Int(0),
                    "{verb}"
                );
            }
        }
        assert_eq!(call!(client, "DSEM.LIMIT", "s", 2), Reply::Int(-1));
        assert_eq!(call!(client, "DSEM.LIMIT", "s", "NONE"), Reply::Int(2));
        let finished = |done| Reply::Array(vec![Reply::Int(done), Reply::Int(0)]);
        assert_eq!(call!(client, "DWG.WAIT", "g"), finished(0));
        assert_eq!(call!(client, "DWG.EXPECT", "g", 2), Reply::Int(2));
        assert!(call!(client, "DWG.WAIT", "g").is_nil());
        assert!(call!(client, "DWG.WAIT", "g", "BLOCK", 1).is_nil());
        let tokens = [(); 2].map(|()| call!(client, "DWG.ADD", "g").grant().0);
        let mut waiter = if resp3 {
            server.connect_resp3()
        } else {
            server.connect()
        };
        waiter.send(&["DWG.WAIT", "g", "BLOCK", "0"]);
        wait_for_blocked(&server, 1);
        assert_eq!(
            call!(client, "DWG.DONE", "g", &tokens[0], &tokens[1], "x"),
            Reply::Int(2)
        );
        assert_eq!(waiter.recv(SOON).expect("finished"), finished(2));
        assert_eq!(call!(client, "DWG.WAIT", "g"), finished(2));

        let once = |words: &[&str]| {
            let begin = |words: &[&str]| [&["DONCE.BEGIN", "o"], words].concat().join(" ");
            begin(words)
                .split(' ')
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let run = client.call(&once(&["TOKEN", "one"]));
        assert!(
            matches!(run.as_array(), [word, Reply::Bulk(_), Reply::Int(_), Reply::Int(1)] if *word == "RUN"),
            "{run:?}"
        );
        assert!(client.call(&once(&[])).is_nil(), "somebody is at it");
        assert!(client.call(&once(&["BLOCK", "1"])).is_nil());
        assert_eq!(
            call!(client, "DONCE.FAIL", "o", "one", "REASON", "why"),
            Reply::Int(1)
        );
        assert_eq!(call!(client, "DONCE.FAIL", "o", "one"), Reply::Int(0));
        let text = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let failed = Reply::Array(vec![text("FAILED"), text("why"), Reply::Int(1)]);
        assert_eq!(client.call(&once(&["MAX", "1"])), failed);
        let run = client.call(&once(&["TOKEN", "two"]));
        assert_eq!(run.as_array()[3], Reply::Int(2));
        map(&call!(client, "DONCE.INFO", "o"));
        assert_eq!(call!(client, "DONCE.DONE", "o", "two"), Reply::Int(1));
        assert_eq!(call!(client, "DONCE.DONE", "o", "other"), Reply::Int(0));
        assert_eq!(
            client.call(&once(&[])),
            Reply::Array(vec![text("DONE"), Reply::Nil, Reply::Int(2)])
        );
        call!(client, "DEL", "o");
        client.call(&once(&["TOKEN", "one"]));
        assert_eq!(
            call!(client, "DONCE.DONE", "o", "one", "RESULT", "42"),
            Reply::Int(1)
        );
        assert_eq!(
            client.call(&once(&[])),
            Reply::Array(vec![text("DONE"), text("42"), Reply::Int(1)])
        );
        assert_eq!(call!(client, "DSYNC.CONTENDED"), Reply::Array(Vec::new()));
    }
}

#[test]
fn the_command_without_a_key_has_a_grammar_too() {
    let server = Server::start();
    let mut client = server.connect();
    for word in ["x", "", "MAX"] {
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
