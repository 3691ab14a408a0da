//! What the server tells of the commands is what they do: COMMAND DOCS, COMMAND INFO, the keys that
//! cluster clients route by, and the ACL rules.
//!
//! One table says of every command what it was designed to be; the server's words are compared with it. What
//! the parser takes and refuses is in `grammar`: it reads the same table as COMMAND DOCS.

use crate::support::steps::*;
use crate::support::*;

/// A command as DESIGN says it.
struct Row {
    name: &'static str,
    /// The arguments, as the manual writes them.
    syntax: &'static str,
    /// What it does with its key; nothing where it has none.
    key: &'static str,
    tips: &'static str,
    jobs: &'static [Job],
}

/// Who should be able to call it. Tells apart the three users that are ready-made.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Job {
    Worker,
    Observer,
    Operator,
}
use Job::{Observer, Operator, Worker};

const READS: &str = "RO access";
const CHANGES: &str = "RW update";
const TELLS: &str = "RW access update";
const REMOVES: &str = "RW delete";

/// Its answer is not the same each time.
const VARIES: &str = "nondeterministic_output";

const COMMANDS: [Row; 31] = [
    row(
        "DLOCK.ACQUIRE",
        "key [SHARED] [EX seconds | PX milliseconds] [BLOCK milliseconds] [TOKEN token] [EPHEMERAL] [OWNER text]",
        TELLS,
        VARIES,
        &[Worker],
    ),
    row("DLOCK.RELEASE", "key token", REMOVES, "", &[Worker]),
    row(
        "DLOCK.RENEW",
        "key token [EX seconds | PX milliseconds]",
        CHANGES,
        "",
        &[Worker],
    ),
    row(
        "DLOCK.CHECK",
        "key token",
        READS,
        VARIES,
        &[Worker, Observer],
    ),
    row("DLOCK.REVOKE", "key fence", REMOVES, "", &[Operator]),
    row(
        "DLOCK.INFO",
        "key [COUNT count]",
        READS,
        VARIES,
        &[Observer, Operator],
    ),
    row(
        "DSEM.ACQUIRE",
        "key [LIMIT limit] [PERMITS permits] [EX seconds | PX milliseconds] [BLOCK milliseconds] [TOKEN token] [EPHEMERAL] [OWNER text]",
        TELLS,
        VARIES,
        &[Worker],
    ),
    row("DSEM.LIMIT", "key limit | NONE", TELLS, "", &[Operator]),
    row("DSEM.RELEASE", "key token", REMOVES, "", &[Worker]),
    row(
        "DSEM.RENEW",
        "key token [EX seconds | PX milliseconds]",
        CHANGES,
        "",
        &[Worker],
    ),
    row(
        "DSEM.CHECK",
        "key token",
        READS,
        VARIES,
        &[Worker, Observer],
    ),
    row("DSEM.REVOKE", "key fence", REMOVES, "", &[Operator]),
    row(
        "DSEM.INFO",
        "key [COUNT count]",
        READS,
        VARIES,
        &[Observer, Operator],
    ),
    row(
        "DWG.ADD",
        "key [LIMIT limit] [EX seconds | PX milliseconds] [BLOCK milliseconds] [TOKEN token] [EPHEMERAL] [OWNER text]",
        TELLS,
        VARIES,
        &[Worker],
    ),
    row("DWG.DONE", "key token [token ...]", REMOVES, "", &[Worker]),
    row("DWG.WAIT", "key [BLOCK milliseconds]", TELLS, "", &[Worker]),
    row("DWG.EXPECT", "key jobs", TELLS, "", &[Worker]),
    row("DWG.RELEASE", "key token", REMOVES, "", &[Worker]),
    row(
        "DWG.RENEW",
        "key token [EX seconds | PX milliseconds]",
        CHANGES,
        "",
        &[Worker],
    ),
    row("DWG.CHECK", "key token", READS, VARIES, &[Worker, Observer]),
    row("DWG.REVOKE", "key fence", REMOVES, "", &[Operator]),
    row(
        "DWG.INFO",
        "key [COUNT count]",
        READS,
        VARIES,
        &[Observer, Operator],
    ),
    row(
        "DONCE.BEGIN",
        "key [MAX attempts] [EX seconds | PX milliseconds] [BLOCK milliseconds] [TOKEN token] [EPHEMERAL] [OWNER text]",
        TELLS,
        VARIES,
        &[Worker],
    ),
    row(
        "DONCE.DONE",
        "key token [RESULT value] [EX seconds | PX milliseconds]",
        CHANGES,
        "",
        &[Worker],
    ),
    row(
        "DONCE.FAIL",
        "key token [REASON text]",
        CHANGES,
        "",
        &[Worker],
    ),
    row("DONCE.RELEASE", "key token", REMOVES, "", &[Worker]),
    row(
        "DONCE.RENEW",
        "key token [EX seconds | PX milliseconds]",
        CHANGES,
        "",
        &[Worker],
    ),
    row(
        "DONCE.CHECK",
        "key token",
        READS,
        VARIES,
        &[Worker, Observer],
    ),
    row("DONCE.REVOKE", "key fence", REMOVES, "", &[Operator]),
    row(
        "DONCE.INFO",
        "key [COUNT count]",
        READS,
        VARIES,
        &[Observer, Operator],
    ),
    row(
        "DSYNC.CONTENDED",
        "[COUNT count]",
        "",
        "nondeterministic_output request_policy:all_shards response_policy:special",
        &[Operator],
    ),
];

const fn row(
    name: &'static str,
    syntax: &'static str,
    key: &'static str,
    tips: &'static str,
    jobs: &'static [Job],
) -> Row {
    Row {
        name,
        syntax,
        key,
        tips,
        jobs,
    }
}

/// The module's own; a server that can hide them does.
pub const INTERNAL: [&str; 3] = ["DSYN", "DSYNC.APPLY", "DSYNC.PROBE"];

/// An argument as COMMAND DOCS tells of it.
struct Arg {
    name: String,
    kind: String,
    token: Option<String>,
    optional: bool,
    multiple: bool,
    parts: Vec<Arg>,
}

impl Arg {
    fn read(reply: &Reply) -> Arg {
        let word = |field: &str| reply.find_field(field).map(|text| text.as_str().to_owned());
        let flags = reply.find_field("flags").map_or(&[][..], Reply::as_array);
        let arg = Arg {
            name: word("name").expect("every argument has a name"),
            kind: word("type").expect("every argument has a type"),
            token: word("token"),
            optional: flags.iter().any(|flag| *flag == "optional"),
            multiple: flags.iter().any(|flag| *flag == "multiple"),
            parts: arguments(reply),
        };
        assert_eq!(arg.kind == "oneof", !arg.parts.is_empty(), "{reply:?}");
        let summary = word("summary").expect("every argument says what it means");
        let is_sentence = summary.ends_with('.') && summary.matches(". ").count() == 0;
        assert!(is_sentence, "{reply:?}");
        // Numbers and texts have bounds.
        let has_bounds = summary.contains(" to ") && summary.ends_with(").");
        assert_eq!(
            has_bounds,
            ["integer", "string"].contains(&arg.kind.as_str()),
            "{reply:?}"
        );
        if arg.kind == "key" {
            assert_eq!(*reply.field("key_spec_index"), 0, "{reply:?}");
        }
        arg
    }

    /// As the manual writes it.
    fn syntax(&self) -> String {
        let mut text = match self.kind.as_str() {
            "oneof" => self
                .parts
                .iter()
                .map(Arg::syntax)
                .collect::<Vec<_>>()
                .join(" | "),
            "pure-token" => self.token.clone().expect("a word"),
            _ => self
                .token
                .iter()
                .chain([&self.name])
                .cloned()
                .collect::<Vec<_>>()
                .join(" "),
        };
        if self.multiple {
            text = format!("{text} [{text} ...]");
        }
        if self.optional {
            format!("[{text}]")
        } else {
            text
        }
    }

    /// The ways to write it in a request, as words.
    fn ways(&self, key: &str) -> Vec<Vec<String>> {
        let value = match self.kind.as_str() {
            "oneof" => return self.parts.iter().flat_map(|part| part.ways(key)).collect(),
            "pure-token" => None,
            "key" => Some(key),
            "integer" => Some("5"),
            "string" => Some("text"),
            other => panic!("no argument here is a {other}"),
        };
        let words = self.token.as_deref().into_iter().chain(value);
        vec![words.map(str::to_owned).collect()]
    }
}

/// The arguments in an entry of COMMAND DOCS, or in an argument that is one of several.
fn arguments(reply: &Reply) -> Vec<Arg> {
    let list = reply
        .find_field("arguments")
        .map_or(&[][..], Reply::as_array);
    list.iter().map(Arg::read).collect()
}

/// A server, and requests that never meet each other's keys.
struct Bench {
    server: Server,
    client: Client,
    keys: usize,
}

impl Bench {
    fn set_up() -> Bench {
        let server = Server::start();
        let client = server.connect();
        Bench {
            server,
            client,
            keys: 0,
        }
    }

    fn docs(&mut self, name: &str) -> Reply {
        let docs = call!(self.client, "COMMAND", "DOCS", name);
        docs.field(name).clone()
    }

    fn args(&mut self, name: &str) -> Vec<Arg> {
        arguments(&self.docs(name))
    }

    fn new_key(&mut self) -> String {
        self.keys += 1;
        format!("key:{}", self.keys)
    }

    /// The request without any option, on a key that nobody used before.
    fn bare(&mut self, name: &str, args: &[Arg]) -> Vec<String> {
        let key = self.new_key();
        let required = args.iter().filter(|arg| !arg.optional);
        let words = required.flat_map(|arg| arg.ways(&key).swap_remove(0));
        [name.to_owned()].into_iter().chain(words).collect()
    }
}

#[test]
fn every_command_is_described_as_it_was_designed() {
    let mut bench = Bench::set_up();
    let listed = call!(
        bench.client,
        "COMMAND",
        "LIST",
        "FILTERBY",
        "MODULE",
        "dsync"
    );
    let mut listed: Vec<_> = listed
        .as_array()
        .iter()
        .map(|name| name.as_str().to_uppercase())
        .filter(|name| !INTERNAL.contains(&name.as_str()))
        .collect();
    listed.sort();
    let mut expected = COMMANDS.map(|row| row.name);
    expected.sort_unstable();
    assert_eq!(listed, expected);

    for row in &COMMANDS {
        let name = row.name;
        let docs = bench.docs(name);
        assert_eq!(*docs.field("since"), "0.1.0", "{name}");
        assert_eq!(*docs.field("group"), "module", "{name}");
        assert_eq!(*docs.field("module"), "dsync", "{name}");
        let summary = docs.field("summary").as_str();
        assert!(
            summary.ends_with('.') && summary.matches('.').count() == 1,
            "{name}: {summary}"
        );
        let complexity = docs.field("complexity").as_str();
        assert!(
            complexity.starts_with("O(") && complexity.contains(" N the number of "),
            "{name}: {complexity}"
        );

        let args = arguments(&docs);
        let syntax: Vec<_> = args.iter().map(Arg::syntax).collect();
        assert_eq!(syntax.join(" "), row.syntax, "{name}");

        let info = call!(bench.client, "COMMAND", "INFO", name);
        let info = info.as_array()[0].as_array();
        let required = args.iter().filter(|arg| !arg.optional).count() as i64 + 1;
        let is_fixed = args.iter().all(|arg| !arg.optional && !arg.multiple);
        assert_eq!(
            info[1],
            if is_fixed { required } else { -required },
            "arity of {name}"
        );
        assert_eq!(words(&info[7]), row.tips, "tips of {name}");
        let at = i64::from(!row.key.is_empty());
        assert!(
            info[3..6]
                .iter()
                .all(|first_last_step| *first_last_step == at),
            "{name}: {info:?}"
        );
        match info[8].as_array() {
            [] => assert_eq!(row.key, "", "{name}"),
            [spec] => assert_eq!(words(spec.field("flags")), row.key, "{name}"),
            _ => panic!("{name} has one key at most: {info:?}"),
        }
    }
}

/// The texts of an array or a set, as the manual lists them.
fn words(reply: &Reply) -> String {
    let words: Vec<_> = reply
        .as_array()
        .iter()
        .map(|word| word.as_str().to_owned())
        .collect();
    words.join(" ")
}

#[test]
fn the_key_is_found_in_every_request() {
    let mut bench = Bench::set_up();
    for row in &COMMANDS {
        let args = bench.args(row.name);
        let mut request = bench.bare(row.name, &args);
        for option in args.iter().filter(|arg| arg.optional) {
            request.extend(option.ways("").concat());
        }
        let ask =
            |how: &str| [vec!["COMMAND".to_owned(), how.to_owned()], request.clone()].concat();
        let keys = bench.client.call(&ask("GETKEYS"));
        let flagged = bench.client.call(&ask("GETKEYSANDFLAGS"));
        if row.key.is_empty() {
            assert!(
                keys.error().contains("no key arguments"),
                "{}: {keys:?}",
                row.name
            );
            continue;
        }
        assert_eq!(words(&keys), request[1], "{}", row.name);
        match flagged.as_array() {
            [one] => {
                assert_eq!(one.as_array()[0], request[1].as_str(), "{}", row.name);
                assert_eq!(words(&one.as_array()[1]), row.key, "{}", row.name);
            }
            _ => panic!("{} has one key: {flagged:?}", row.name),
        }
    }
}

// The ready-made users, as the README has them.

const BY_NAME: [&str; 3] = [
    "worker on >secret resetchannels ~jobs:* -@all +@connection -@dangerous \
     +dlock.acquire +dlock.release +dlock.renew +dlock.check \
     +dsem.acquire +dsem.release +dsem.renew +dsem.check \
     +dwg.add +dwg.done +dwg.wait +dwg.expect +dwg.release +dwg.renew +dwg.check \
     +donce.begin +donce.done +donce.fail +donce.release +donce.renew +donce.check",
    "observer on >secret resetchannels %R~* -@all +@connection -@dangerous \
     +dlock.info +dlock.check +dsem.info +dsem.check +dwg.info +dwg.check +donce.info +donce.check",
    "operator on >secret resetchannels ~* -@all +@connection -@dangerous \
     +dsync.contended +dlock.info +dlock.revoke +dsem.info +dsem.revoke +dsem.limit \
     +dwg.info +dwg.revoke +donce.info +donce.revoke",
];

const BY_CATEGORY: [&str; 3] = [
    "worker on >secret resetchannels ~jobs:* -@all +@connection -@dangerous +@dsync-worker",
    "observer on >secret resetchannels %R~* -@all +@connection -@dangerous +@dsync-observer",
    "operator on >secret resetchannels ~* -@all +@connection -@dangerous +@dsync-operator",
];

/// Whether modules can put their commands into the server's categories.
fn has_categories(server: &Server) -> bool {
    let Flavour { product, version } = server.flavour();
    product == Product::Valkey || version >= (7, 2, 0)
}

/// Whether modules can have categories of their own.
fn has_own_categories(server: &Server) -> bool {
    let Flavour { product, version } = server.flavour();
    product == Product::Valkey || version >= (7, 4, 0)
}

fn log_in(server: &Server, user: &str) -> Client {
    let mut client = server.connect();
    assert_eq!(call!(client, "AUTH", user, "secret"), "OK");
    // What client libraries send of their own accord.
    assert_eq!(call!(client, "PING"), "PONG");
    assert_eq!(call!(client, "SELECT", 0), "OK");
    assert_eq!(call!(client, "CLIENT", "SETNAME", "name"), "OK");
    assert!(!call!(client, "COMMAND", "DOCS", "DLOCK.ACQUIRE").is_error());
    client
}

fn is_permitted(reply: &Reply) -> bool {
    !matches!(reply, Reply::Error(text) if text.starts_with("NOPERM"))
}

/// The users can do their job and nothing else, the worker on its keys only.
#[track_caller]
fn expect_users_to_do_their_jobs(server: Server) {
    let mut bench = Bench {
        client: server.connect(),
        server,
        keys: 0,
    };
    for (user, job) in [
        ("worker", Worker),
        ("observer", Observer),
        ("operator", Operator),
    ] {
        let mut client = log_in(&bench.server, user);
        for row in &COMMANDS {
            let args = bench.args(row.name);
            for space in ["jobs:", "other:"] {
                let mut request = bench.bare(row.name, &args);
                if !row.key.is_empty() {
                    request[1].insert_str(0, space);
                }
                let mine = row.jobs.contains(&job) && (job != Worker || space == "jobs:");
                let reply = client.call(&request);
                assert_eq!(
                    is_permitted(&reply),
                    mine,
                    "{user} sends {request:?}: {reply:?}"
                );
            }
        }
        for other in [
            &["SET", "jobs:x", "1"][..],
            &["GET", "jobs:x"],
            &["DSYN", "jobs:x", "packed"],
            &["DSYNC.APPLY", "jobs:x", "lock:1"],
        ] {
            let reply = client.call(other);
            assert!(reply.is_error(), "{user} sends {other:?}: {reply:?}");
        }
    }
}

#[test]
fn three_users_named_command_by_command_can_do_their_jobs() {
    let builder = BY_NAME.iter().fold(Server::builder(), |builder, user| {
        builder.config("user", user)
    });
    expect_users_to_do_their_jobs(builder.start());
}

#[test]
fn three_users_with_the_modules_categories_can_do_their_jobs() {
    let plain = Server::start();
    if !has_own_categories(&plain) {
        let refused = ask(&mut plain.connect(), "ACL SETUSER worker +@dsync-worker");
        assert!(refused.error().contains("category"), "{refused:?}");
        return;
    }
    // As a file has them, read after the module is loaded.
    let builder = BY_CATEGORY.iter().fold(Server::builder(), |builder, user| {
        builder.config("user", user)
    });
    expect_users_to_do_their_jobs(builder.start());
    // As typed.
    let mut admin = plain.connect();
    for user in BY_CATEGORY {
        assert_eq!(ask(&mut admin, format!("ACL SETUSER {user}")), "OK");
    }
    // `dsync` is all of them. (ACL CAT of Redis 7.4 and Valkey 8.0 leaves out what modules have.)
    let all = ask(&mut admin, "COMMAND LIST FILTERBY ACLCAT dsync");
    let mut all: Vec<_> = words(&all).split(' ').map(str::to_uppercase).collect();
    all.sort();
    let mut expected = COMMANDS.map(|row| row.name);
    expected.sort_unstable();
    assert_eq!(all, expected);
    expect_users_to_do_their_jobs(plain);
}

#[test]
fn the_servers_categories_are_those_of_the_commands_flags() {
    let server = Server::start();
    let mut client = server.connect();
    for name in COMMANDS.map(|row| row.name).into_iter().chain(INTERNAL) {
        let info = call!(client, "COMMAND", "INFO", name);
        let [Reply::Array(info)] = info.as_array() else {
            assert!(INTERNAL.contains(&name), "{name} is hidden");
            continue;
        };
        let mut found: Vec<_> = words(&info[6])
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        found.retain(|category| !category.starts_with("@dsync"));
        found.sort();
        let flags = words(&info[2]);
        let flags: Vec<_> = flags.split(' ').collect();
        let mut expected = Vec::new();
        if has_categories(&server) && !INTERNAL.contains(&name) {
            let mut add = |flag: &str, categories: &[&'static str]| {
                if flags.contains(&flag) {
                    expected.extend_from_slice(categories);
                }
            };
            add("write", &["@write"]);
            add("readonly", &["@read"]);
            add("blocking", &["@blocking"]);
            add("admin", &["@admin"]);
            add("fast", &["@fast"]);
            if !flags.contains(&"fast") {
                expected.push("@slow");
            }
            // What only an operator does is dangerous in anybody's hands, flagged or not.
            let row = COMMANDS.iter().find(|row| row.name == name);
            if row.is_some_and(|row| row.jobs.contains(&Operator) && !row.jobs.contains(&Observer))
            {
                expected.extend(["@admin", "@dangerous"]);
            }
            expected.sort_unstable();
            expected.dedup();
        }
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_user_for_everything_harmless_can_work_and_look_but_not_interfere() {
    let server = Server::start();
    let mut bench = Bench {
        client: server.connect(),
        server,
        keys: 0,
    };
    let rules = [
        "~* -@all +@read +@write +@blocking -@dangerous",
        "~* +@all -@admin -@dangerous",
    ];
    for (nth, rule) in rules.into_iter().enumerate() {
        ask(
            &mut bench.client,
            format!("ACL SETUSER user{nth} on >secret {rule}"),
        );
        let mut client = bench.server.connect();
        assert_eq!(call!(client, "AUTH", format!("user{nth}"), "secret"), "OK");
        for row in &COMMANDS {
            let args = bench.args(row.name);
            let request = bench.bare(row.name, &args);
            let reply = client.call(&request);
            let expected = if has_categories(&bench.server) {
                row.jobs.contains(&Worker) || row.jobs.contains(&Observer)
            } else {
                // On 7.0 the commands are in no category, and `+@all` is the only rule that means them.
                rule.contains("+@all")
            };
            assert_eq!(
                is_permitted(&reply),
                expected,
                "{rule}: {request:?}: {reply:?}"
            );
        }
    }
}
