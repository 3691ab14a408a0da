//! ACL: the users of docs/acl.md can do their jobs and nothing else, each can type what the documents tell it to type,
//! and the server's categories of a command follow from its flags.

use crate::commands::documented::*;
use crate::support::steps::*;
use crate::support::*;

/// Whether this server lets modules put their commands into its own categories.
fn has_categories(server: &Server) -> bool {
    let Flavour { product, version } = server.flavour();
    product == Product::Valkey || version >= (7, 2, 0)
}

/// Whether this server lets modules make categories.
fn has_own_categories(server: &Server) -> bool {
    let Flavour { product, version } = server.flavour();
    product == Product::Valkey || version >= (7, 4, 0)
}

/// The headings of docs/acl.md under which the users stand: with the name of each command, and with the categories that
/// the module makes.
const BY_NAME: &str = "Any server";
const BY_CATEGORY: &str = "Redis 7.4 and newer, Valkey 8 and newer";

/// A server with the users that stand under this heading in its configuration file.
fn server_with(users: &str) -> Server {
    let users = acl_users(users);
    let builder = users.iter().fold(Server::builder(), |builder, user| {
        builder.config("user", user)
    });
    builder.start()
}

fn log_in(server: &Server, user: &str) -> Client {
    let mut client = server.connect();
    assert_eq!(client.ask(format!("AUTH {user} secret")), "OK");
    // Commands that client libraries send after they connect.
    assert_eq!(client.ask("PING"), "PONG");
    assert_eq!(client.ask("SELECT 0"), "OK");
    assert_eq!(client.ask("CLIENT SETNAME name"), "OK");
    assert!(!client.ask("COMMAND DOCS DLOCK.ACQUIRE").is_error());
    client
}

fn is_permitted(reply: &Reply) -> bool {
    !matches!(reply, Reply::Error(text) if text.starts_with("NOPERM"))
}

/// Whether the user needs this command: whether docs/acl.md names it in the user's line for any server.
fn needs(user: &str, command: &Documented) -> bool {
    let start = format!("{user} ");
    let rule = format!("+{}", command.name.to_lowercase());
    let users = acl_users(BY_NAME);
    let line = users.iter().find(|line| line.starts_with(&start));
    line.expect("its line").split(' ').any(|word| word == rule)
}

/// Whether it changes or ends what belongs to others, or tells of all keys of the server.
fn is_dangerous(command: &Documented) -> bool {
    !command.has_key() || !(needs("worker", command) || needs("observer", command))
}

/// Asserts that each user can call the commands of its job and nothing else, and the worker only on its keys.
#[track_caller]
fn expect_users_to_do_their_jobs(server: Server) {
    let commands = documented(&mut server.connect());
    let users = ["worker", "observer", "operator"];
    for command in &commands {
        assert!(
            users.iter().any(|user| needs(user, command)),
            "{}",
            command.name
        );
    }
    for user in users {
        let mut client = log_in(&server, user);
        for command in &commands {
            for space in ["jobs:", "other:"] {
                let request = command.bare(&format!("{space}{}", command.name));
                let mine = needs(user, command) && (user != "worker" || space == "jobs:");
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
            &["DEL", "jobs:x"],
            &["CONFIG", "GET", "requirepass"],
            &["CLIENT", "KILL", "ID", "1"],
            &["FLUSHALL"],
        ] {
            let reply = client.call(other);
            assert!(!is_permitted(&reply), "{user} sends {other:?}: {reply:?}");
        }
        // Servers that hide these answer that they do not know them.
        for internal in [
            &["DSYN", "jobs:x", "packed"],
            &["DSYNC.APPLY", "jobs:x", "lock:1"],
        ] {
            let reply = client.call(internal);
            assert!(reply.is_error(), "{user} sends {internal:?}: {reply:?}");
        }
    }
}

#[test]
fn users_with_commands_by_name_can_do_their_jobs_only() {
    expect_users_to_do_their_jobs(server_with(BY_NAME));
}

#[test]
fn users_with_the_modules_categories_can_do_their_jobs_only() {
    let plain = Server::start();
    if !has_own_categories(&plain) {
        let refused = plain.connect().ask("ACL SETUSER worker +@dsync-worker");
        assert!(refused.error().contains("category"), "{refused:?}");
        return;
    }
    // From the configuration file, which the server applies after the module is loaded.
    expect_users_to_do_their_jobs(server_with(BY_CATEGORY));
    // By ACL SETUSER.
    let mut admin = plain.connect();
    for user in acl_users(BY_CATEGORY) {
        assert_eq!(admin.ask(format!("ACL SETUSER {user}")), "OK");
    }
    // The category `dsync` has all commands. (ACL CAT of Redis 7.4 and Valkey 8.0 does not list categories of modules.)
    let all = admin.ask("COMMAND LIST FILTERBY ACLCAT dsync");
    let mut all: Vec<_> = joined(&all).split(' ').map(str::to_uppercase).collect();
    all.sort();
    let commands = documented(&mut admin);
    let expected: Vec<_> = commands.iter().map(|command| &command.name).collect();
    assert_eq!(all.iter().collect::<Vec<_>>(), expected);
    expect_users_to_do_their_jobs(plain);
}

/// The lines of documents that show a user's prompt are permitted to that user, and right. The user `admin` has all
/// rights.
#[track_caller]
fn expect_typed_lines_to_be_permitted(server: &Server) {
    let mut lines = 0;
    for page in ["operations", "alerts", "settings", "events", "metrics"] {
        for Typed { user, command } in typed_lines(&document(&format!("docs/{page}.md"))) {
            let mut client = match user.as_str() {
                "admin" => server.connect(),
                user => log_in(server, user),
            };
            let reply = client.ask(&command);
            assert!(
                !reply.is_error(),
                "{page}: {user} types {command:?}: {reply:?}"
            );
            lines += 1;
        }
    }
    assert!(lines > 25, "{lines} lines");
}

#[test]
fn users_can_type_what_operations_page_tells_them() {
    let server = server_with(BY_NAME);
    if has_own_categories(&server) {
        expect_typed_lines_to_be_permitted(&server_with(BY_CATEGORY));
    }
    expect_typed_lines_to_be_permitted(&server);
}

/// What docs/acl.md tells to add for some purposes, and what is refused without it.
#[test]
fn users_with_additions_can_do_what_these_are_for() {
    let page = document("docs/acl.md");
    let addition = |purpose: &str| {
        let row = page.lines().find(|line| line.contains(purpose));
        let row = row.unwrap_or_else(|| panic!("no row for {purpose:?}"));
        let rules = row.split('`').rfind(|part| part.starts_with('+'));
        rules.expect("rules").replace("\\|", "|")
    };
    let server = Server::start();
    let mut admin = server.connect();
    for user in acl_users(BY_NAME) {
        assert_eq!(admin.ask(format!("ACL SETUSER {user}")), "OK");
    }
    for (user, purpose, lines) in [
        (
            "worker",
            "cluster client",
            &[
                "CLUSTER SLOTS",
                "CLUSTER SHARDS",
                "CLUSTER NODES",
                "CLUSTER INFO",
            ][..],
        ),
        (
            "worker",
            "listens for its turn",
            &[
                "SSUBSCRIBE dsync:{jobs:1}:1795272958977832",
                "SUNSUBSCRIBE dsync:{jobs:1}:1795272958977832",
                "PSUBSCRIBE dsync:{jobs:*",
                "PUNSUBSCRIBE dsync:{jobs:*",
            ],
        ),
        (
            "observer",
            "of keys that begin with",
            &[
                "PSUBSCRIBE __keyspace@0__:jobs:*",
                "PUNSUBSCRIBE __keyspace@0__:jobs:*",
            ],
        ),
        ("worker", "under Sentinel", &["ROLE"]),
        ("operator", "remove keys", &["DEL jobs:1"]),
    ] {
        for line in lines {
            let reply = log_in(&server, user).ask(line);
            assert!(!is_permitted(&reply), "{user} types {line:?}: {reply:?}");
        }
        let rules = addition(purpose);
        assert_eq!(admin.ask(format!("ACL SETUSER {user} {rules}")), "OK");
        let mut client = log_in(&server, user);
        for line in lines {
            let reply = client.ask(line);
            assert!(is_permitted(&reply), "{user} types {line:?}: {reply:?}");
        }
    }
}

/// A worker learnt the name of each key that was granted on the server, by CLIENT TRACKING, and with the channels of
/// all turns the numbers of other tenants' places and fences.
#[test]
fn worker_learns_nothing_of_keys_that_are_not_its_own() {
    let plain = Server::start();
    let ways = match has_own_categories(&plain) {
        true => vec![BY_NAME, BY_CATEGORY],
        false => vec![BY_NAME],
    };
    let page = document("docs/acl.md");
    let row = page
        .lines()
        .find(|line| line.contains("listens for its turn"));
    let rules = row.and_then(|row| row.split('`').rfind(|part| part.starts_with('+')));
    let rules = rules.expect("rules");
    for way in ways {
        let server = server_with(way);
        let mut admin = server.connect();
        assert_eq!(admin.ask(format!("ACL SETUSER worker {rules}")), "OK");
        for user in ["worker", "exporter"] {
            let mut client = log_in(&server, user);
            let reply = client.ask("CLIENT TRACKING ON BCAST");
            assert!(!is_permitted(&reply), "{way}: {user}: {reply:?}");
        }
        for subscribe in [
            "SUBSCRIBE dsync:{other:1}:1795272958977832",
            "SSUBSCRIBE dsync:{other:1}:1795272958977832",
            "PSUBSCRIBE dsync:*",
        ] {
            let reply = log_in(&server, "worker").ask(subscribe);
            assert!(!is_permitted(&reply), "{way}: {subscribe}: {reply:?}");
        }
    }
}

#[test]
fn acl_categories_of_commands_follow_from_their_flags() {
    let server = Server::start();
    let mut client = server.connect();
    let commands = documented(&mut client);
    let names = commands.iter().map(|command| command.name.as_str());
    for name in names.chain(INTERNAL) {
        let info = client.ask(format!("COMMAND INFO {name}"));
        let [Reply::Array(info)] = info.as_array() else {
            assert!(INTERNAL.contains(&name), "{name} is hidden");
            continue;
        };
        let mut found: Vec<_> = joined(&info[6])
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        found.retain(|category| !category.starts_with("@dsync"));
        found.sort();
        let flags = joined(&info[2]);
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
            let command = commands.iter().find(|command| command.name == name);
            if command.is_some_and(is_dangerous) {
                expected.extend(["@admin", "@dangerous"]);
            }
            expected.sort_unstable();
            expected.dedup();
        }
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn user_without_dangerous_commands_can_work_and_look_only() {
    let server = Server::start();
    let mut admin = server.connect();
    let commands = documented(&mut admin);
    let rules = [
        "~* -@all +@read +@write +@blocking -@dangerous",
        "~* +@all -@admin -@dangerous -client|tracking",
    ];
    for (nth, rule) in rules.into_iter().enumerate() {
        admin.ask(format!("ACL SETUSER user{nth} on >secret {rule}"));
        let mut client = server.connect();
        assert_eq!(client.ask(format!("AUTH user{nth} secret")), "OK");
        for command in &commands {
            let request = command.bare(&format!("k:{}", command.name));
            let reply = client.call(&request);
            let expected = if has_categories(&server) {
                !is_dangerous(command)
            } else {
                // On Redis 7.0 the commands are in no category; only `+@all` permits them.
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

#[test]
fn log_tells_where_modules_make_no_categories() {
    let server = Server::builder().config("loglevel", "debug").start();
    let is_told = server
        .log_text()
        .contains("this server has no ACL categories of dsync's own");
    assert_eq!(is_told, !has_own_categories(&server));
}

/// A user's rights were taken away while it waited. It was granted all the same, and could not release.
#[test]
fn waiter_keeps_the_rights_it_had_when_it_queued() {
    let server = Server::start();
    let mut admin = server.connect();
    let user = "ACL SETUSER worker on >secret ~* +dlock.acquire +dlock.release";
    assert_eq!(admin.ask(user), "OK");
    admin.ask("DLOCK.ACQUIRE k EX 600 TOKEN t").grant();
    let wait = |token: &str| {
        let mut worker = server.connect();
        assert_eq!(worker.ask("AUTH worker secret"), "OK");
        worker.wait_on(&server, format!("DLOCK.ACQUIRE k TOKEN {token} BLOCK 0"));
        worker
    };
    let mut granted = wait("granted");
    assert_eq!(
        admin.ask("ACL SETUSER worker -dlock.acquire -dlock.release"),
        "OK"
    );
    assert_eq!(admin.ask("DLOCK.RELEASE k t"), 1);
    granted.granted();
    let refused = granted.ask("DLOCK.RELEASE k granted");
    assert!(!is_permitted(&refused), "{refused:?}");
    assert!(admin.ask("DLOCK.CHECK k granted").as_int() > 0);

    // What docs/acl.md tells to do: with its connection closed, the request leaves the queue.
    assert_eq!(admin.ask(user), "OK");
    let mut gone = wait("gone");
    assert_eq!(
        admin.ask("ACL SETUSER worker -dlock.acquire -dlock.release"),
        "OK"
    );
    assert_eq!(admin.ask("CLIENT KILL USER worker"), 2);
    gone.expect_closed(SOON);
    eventually("an empty queue", SOON, || {
        lock_waiters(&mut admin, "k") == 0
    });
    assert_eq!(admin.ask("DLOCK.RELEASE k granted"), 1);
    assert!(admin.ask("DLOCK.ACQUIRE k TOKEN next").grant().1 > 0);
}
