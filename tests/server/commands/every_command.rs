//! What holds for every command, by the server's own description of it: what it tells clients, which mistakes it
//! refuses and how, the bounds of values, keys of another type, tokens in the slow log.
//!
//! The grammar itself is tested beside the parser, in `src/commands/parse_tests.rs`; here it goes through a server.

use crate::commands::documented::*;
use crate::support::steps::*;
use crate::support::*;

/// An option that all requests for a hold have.
const TOKEN: &str = "TOKEN s3cr3t-0f-th3-t3st";

const UUID: &str = "8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59";

/// The length of an argument that is far too long, in bytes.
const BIG: usize = 512 * 1024;

/// The words of a line, which may have line breaks.
fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// The kind of key that the summary of a command names, in words; nothing where it needs none.
fn key_in_words(name: &str) -> &'static str {
    let (family, verb) = name.split_once('.').expect("a verb");
    match (family, verb) {
        ("DLOCK", _) => " a lock",
        ("DSEM", _) => " a semaphore",
        ("DWG", _) => " a wait group",
        ("DONCE", "RENEW" | "CHECK" | "REVOKE" | "PAUSE" | "INFO") => " a work-once key",
        _ => "",
    }
}

/// The flags of the key, and the tips to clients of several servers.
fn facts(command: &Documented) -> (&'static str, &'static str) {
    let (family, verb) = command.name.split_once('.').expect("a verb");
    let tips = match verb {
        "CONTENDED" => "nondeterministic_output request_policy:all_shards response_policy:special",
        "HOLDS" => "nondeterministic_output request_policy:special response_policy:special",
        "LOG" => "nondeterministic_output request_policy:all_nodes response_policy:special",
        "CHECK" | "INFO" => "nondeterministic_output",
        _ if command.asks() => "nondeterministic_output",
        _ => "",
    };
    let key = match (family, verb) {
        ("DSYNC", _) => "",
        (_, "CHECK" | "INFO" | "GET") => "RO access",
        (_, "RELEASE" | "REVOKE") | ("DWG", "DONE") => "RW delete",
        (_, "RENEW" | "FAIL" | "DONE") => "RW update",
        _ => "RW access update",
    };
    (key, tips)
}

#[test]
fn command_docs_and_info_describe_every_command() {
    let server = Server::start();
    let mut client = server.connect();
    for command in documented(&mut client) {
        let Documented { name, docs, args } = &command;
        for (field, text) in [("group", "module"), ("module", "dsync")] {
            assert_eq!(*docs.field(field), text, "{field} of {name}");
        }
        let summary = docs.field("summary").as_str();
        assert_eq!(summary.find('.'), Some(summary.len() - 1), "{name}");
        assert!(summary.contains(key_in_words(name)), "{name}: {summary}");
        let complexity = docs.field("complexity").as_str();
        let is_complete = complexity.starts_with("O(") && complexity.contains(" N the number of ");
        assert!(is_complete, "{name}: {complexity}");

        let info = client.ask(format!("COMMAND INFO {name}"));
        let info = info.as_array()[0].as_array();
        let required = args.iter().filter(|arg| !arg.optional).count() as i64 + 1;
        let arity = if command.is_fixed() {
            required
        } else {
            -required
        };
        assert_eq!(info[1], arity, "arity of {name}");
        let (key, tips) = facts(&command);
        assert_eq!(joined(&info[7]), tips, "tips of {name}");
        let at = i64::from(command.has_key());
        assert!(info[3..6].iter().all(|first| *first == at), "{name}");
        let specs = info[8].as_array().iter();
        let specs: Vec<_> = specs.map(|spec| joined(spec.field("flags"))).collect();
        assert_eq!(specs.concat(), key, "the one key of {name}");
        assert_keys(&mut client, &command, key);
    }
}

/// Asserts what the server finds to be the key of a request with every option.
fn assert_keys(client: &mut Client, command: &Documented, flags: &str) {
    let first = command.args.iter().map(|arg| arg.alternatives()[0]);
    let request = first
        .flat_map(|arg| arg.words("k"))
        .collect::<Vec<_>>()
        .join(" ");
    let name = &command.name;
    let keys = client.ask(format!("COMMAND GETKEYS {name} {request}"));
    let flagged = client.ask(format!("COMMAND GETKEYSANDFLAGS {name} {request}"));
    if !command.has_key() {
        assert!(keys.error().contains("no key arguments"), "{name}");
        return;
    }
    assert_eq!(joined(&keys), "k", "{name}");
    let [one] = flagged.as_array() else {
        panic!("{name}: {flagged:?}")
    };
    assert_eq!(one.as_array()[0], "k", "{name}");
    assert_eq!(joined(&one.as_array()[1]), flags, "{name}");
}

/// A server with a held key of each family, named after it, and keys of other types.
struct Bench {
    server: Server,
    client: Client,
    /// The digest of all keys, which no refused request may change.
    before: Reply,
}

impl Bench {
    /// With the commands of the server.
    fn set_up() -> (Bench, Vec<Documented>) {
        let server = Server::start();
        let mut client = server.connect();
        let commands = documented(&mut client);
        hold_all(&mut client, &commands);
        client.ask("SET a-string text");
        client.ask("RPUSH a-list item");
        client.ask("XADD a-stream * field value");
        let before = client.ask("DEBUG DIGEST");
        let bench = Bench {
            server,
            client,
            before,
        };
        (bench, commands)
    }

    /// Asserts that the request is refused, that the error has all the parts and no token, and that no key has changed.
    #[track_caller]
    fn refused(&mut self, request: &[String], parts: &[String]) {
        let reply = self.client.call(request);
        let shown: Vec<_> = request
            .iter()
            .map(|word| word.get(..40).unwrap_or(word))
            .collect();
        let Reply::Error(text) = &reply else {
            panic!("{shown:?}: not refused: {reply:?}")
        };
        let has_all = parts.iter().all(|part| text.contains(part));
        assert!(has_all, "{shown:?}: {parts:?} in {text:?}");
        assert!(!text.contains(SECRET), "{shown:?}: a token in {text:?}");
        let is_whole = text.len() < 300 && !text.contains(" ,") && !text.contains("  ");
        assert!(is_whole, "{shown:?}: {text:?}");
        let now = self.client.ask("DEBUG DIGEST");
        assert_eq!(now, self.before, "{shown:?}: something has changed");
    }
}

/// Lets the token hold a key of each family.
fn hold_all(client: &mut Client, commands: &[Documented]) {
    for command in commands.iter().filter(|command| command.asks()) {
        any_grant(&client.call(&command.request(command.family(), &words(TOKEN))));
    }
}

/// Requests, and what their errors contain.
type Mistakes = Vec<(Vec<String>, Vec<String>)>;

fn owned(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

/// The wrong number of arguments, a word that is no option, and an option without its value or twice.
fn wrong_words(command: &Documented, key: &str) -> Mistakes {
    let bare = command.bare(key);
    let mut all = Vec::new();
    let arity = owned(&[
        "ERR wrong number of arguments",
        &format!("'{}'", command.name),
    ]);
    for given in 1..bare.len() {
        all.push((bare[..given].to_vec(), arity.clone()));
    }
    for more in ["more", "even more"].iter().filter(|_| command.is_fixed()) {
        all.push(([bare.clone(), words(more)].concat(), arity.clone()));
    }
    for choice in command.args.iter().filter(|arg| arg.optional) {
        // An error does not repeat a token that was read before either.
        let is_read = command.asks() && !choice.is_word("TOKEN");
        let token = if is_read { words(TOKEN) } else { vec![] };
        let head = [&bare[..], &token].concat();
        let mut add = |rest: &[&[String]], error: &[&str]| {
            let error = [&["ERR syntax error"], error].concat();
            all.push(([&head[..], &rest.concat()].concat(), owned(&error)));
        };
        let alternatives = choice.alternatives();
        let ways: Vec<_> = alternatives
            .iter()
            .map(|arg| arg.words(&arg.value()))
            .collect();
        for way in &ways {
            add(&[&words("NONSENSE")], &["'NONSENSE'"]);
            add(&[way, &words("E\r\nX")], &[r"'E\r\nX'"]);
            add(&[way, &words(UUID)], &["(36 bytes)"]);
            if let [word, _] = &way[..] {
                add(&[&way[..1]], &[word, "no value"]);
            }
            for other in &ways {
                add(&[way, other], &[&way[0], &other[0], "twice"]);
            }
        }
    }
    all
}

/// Numbers and texts outside of their bounds, and misspelled numbers.
fn wrong_values(command: &Documented, key: &str) -> Mistakes {
    let mut all = Vec::new();
    for (arg, (least, most)) in command.bounded() {
        let bounds = [least, most].map(|bound| bound.to_string());
        let mut add = |value: &str, parts: &[&str]| {
            all.push((command.with(key, arg, value), owned(parts)));
        };
        if arg.kind == "string" {
            let long = SECRET.repeat(BIG / SECRET.len());
            let longer = &long[..usize::try_from(most).expect("a length") + 1];
            for value in [&long, longer, ""].iter().take(2 + least.min(1) as usize) {
                add(
                    value,
                    &[
                        "ERR ",
                        &bounds[1],
                        " bytes",
                        &format!("not {}", value.len()),
                    ],
                );
            }
            continue;
        }
        let outside = [i128::from(least) - 1, i128::from(most) + 1].map(|n| n.to_string());
        for value in [
            &outside[0],
            &outside[1],
            "18446744073709551617",
            "01",
            "x\0",
            "",
        ] {
            let shown = format!("'{}'", value.as_bytes().escape_ascii());
            add(value, &["ERR ", &bounds[0], &bounds[1], &shown]);
        }
        let long = "9".repeat(BIG);
        add(
            &long,
            &["ERR ", &bounds[0], &bounds[1], &format!("({BIG} bytes)")],
        );
    }
    all
}

#[test]
fn mistake_is_named_without_a_token_and_changes_nothing() {
    let (mut bench, commands) = Bench::set_up();
    for command in &commands {
        for key in [command.family(), "absent"] {
            let mistakes = [wrong_words(command, key), wrong_values(command, key)];
            for (request, parts) in mistakes.concat() {
                bench.refused(&request, &parts);
            }
        }
    }
    // Refused by the engine, after the token was read.
    for (line, code) in [
        ("DLOCK.ACQUIRE DLOCK SHARED", "MISMATCH "),
        ("DSEM.ACQUIRE DSEM PERMITS 2", "MISMATCH "),
        ("DSEM.ACQUIRE nothing", "NOLIMIT "),
        ("DSEM.ACQUIRE nothing LIMIT 1 PERMITS 2", "TOOMANY "),
    ] {
        bench.refused(&words(&format!("{line} {TOKEN}")), &owned(&[code]));
    }
}

#[test]
fn values_at_their_bounds_are_accepted() {
    let (mut bench, commands) = Bench::set_up();
    for command in &commands {
        // What can wait asks for a key that is free.
        let waits = command.takes("BLOCK");
        let key = if waits { "absent" } else { command.family() };
        for (arg, (least, most)) in command.bounded() {
            for bound in [least, most].into_iter().filter(|_| arg.name != "cursor") {
                let value = match arg.kind.as_str() {
                    "integer" => bound.to_string(),
                    _ => "x".repeat(usize::try_from(bound).expect("a length")),
                };
                bench.client.ask("FLUSHALL");
                hold_all(&mut bench.client, &commands);
                let mut request = command.with(key, arg, &value);
                if command.asks() && !arg.is_word("TOKEN") {
                    request.extend(words(TOKEN));
                }
                if arg.is_word("LANELIMIT") {
                    request.extend(words("LANE a"));
                }
                let reply = bench.client.call(&request);
                let what = format!("{} {:?} {bound}: {reply:?}", command.name, arg.token);
                assert!(!reply.is_error(), "{what}");
                assert!(!command.asks() || fence_in(&reply).is_some(), "{what}");
            }
        }
    }
}

#[test]
fn every_command_refuses_a_key_of_another_type() {
    let (mut bench, commands) = Bench::set_up();
    for command in commands.iter().filter(|command| command.has_key()) {
        let keys = Family::ALL
            .map(Family::prefix)
            .into_iter()
            .chain(["a-string", "a-list", "a-stream"]);
        for key in keys.filter(|key| *key != command.family()) {
            let wrong_type = words("WRONGTYPE");
            bench.refused(&command.request(key, &[]), &wrong_type);
            if command.takes("BLOCK") {
                bench.refused(&command.request(key, &words("BLOCK 0")), &wrong_type);
            }
        }
    }
    bench.server.wait_for_blocked(0);
}

#[test]
fn token_stays_out_of_the_slow_log_in_any_position() {
    let builder = Server::builder().config("slowlog-log-slower-than", 0);
    let server = builder.start();
    let mut client = server.connect();
    for command in documented(&mut client) {
        // Owners and tokens that read like options, and mistakes.
        let requests = match command.asks() {
            true => {
                "TOKEN S|token S OWNER me|OWNER token TOKEN S|TOKEN TOKEN TOKEN S|EX x TOKEN S|S"
            }
            false if command.options().is_empty() => "",
            false => "|S",
        };
        for more in requests.split('|') {
            let more = more.split(' ').filter(|word| !word.is_empty());
            let more: Vec<_> = more
                .map(|word| if word == "S" { SECRET } else { word })
                .collect();
            client.ask("SLOWLOG RESET");
            client.call(&command.request(command.family(), &owned(&more)));
            let log = format!("{:?}", client.ask("SLOWLOG GET 10"));
            let is_hidden = !log.contains(SECRET) && log.contains(&command.name);
            assert!(is_hidden, "{} {more:?}: {log}", command.name);
        }
    }
}

#[test]
fn keys_tokens_and_owners_may_be_long_and_contain_any_bytes() {
    let server = Server::start();
    let mut client = server.connect();
    let mut resp3 = server.connect_resp3();
    let long = vec![b'k'; BIG];
    let every: Vec<u8> = (0..=255).collect();
    let (low, high) = every.split_at(128);
    let keys = b"|\0|a\0b|\0\r\n\xff|\xff\xfe|a}b|{}|{tag}x".split(|byte| *byte == b'|');
    let keys: Vec<_> = keys.chain([&long[..]]).collect();
    for command in documented(&mut client) {
        let of_family = |verb: &str| format!("{}.{verb}", command.family());
        for (nth, &key) in keys.iter().enumerate().filter(|_| command.asks()) {
            let text = [&b"\r\n+OK\r\n"[..], b"*1\r\n", low, high][nth % 4];
            let mut request: Vec<&[u8]> = vec![command.name.as_bytes(), key];
            if command.takes("LIMIT") {
                request.extend([&b"LIMIT"[..], b"1"]);
            }
            // An empty OWNER is the same as none.
            let owner = if nth == 0 { b"" } else { text };
            let named = [&request[..], &[b"TOKEN", text, b"OWNER", owner]].concat();
            let (token, fence) = any_grant(&client.call(&named));
            assert_eq!(token, text);
            // A request that waits for this key is granted when its hold ends.
            let mut waiter = server.connect();
            waiter.send(&[&request[..], &[b"BLOCK", b"0", b"OWNER", owner]].concat());
            server.wait_for_blocked(1);
            let shown = (nth > 0).then(|| text.to_vec());
            let shown = shown.map_or(Reply::Nil, Reply::Bulk);
            for client in [&mut client, &mut resp3] {
                let info = call!(client, of_family("INFO"), key);
                for list in ["first-holders", "first-waiters"] {
                    assert_eq!(*info.field(list).as_array()[0].field("owner"), shown);
                }
            }
            assert_eq!(call!(client, of_family("RELEASE"), key, text), 1);
            assert!(any_grant(&waiter.reply()).1 > fence);
            assert_eq!(call!(client, "DEL", key), 1);
        }
    }
}
