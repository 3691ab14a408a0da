//! ACL: the three users of the README can do their jobs and nothing else, and the server's categories of a command
//! follow from its flags.

use crate::commands::designed_commands::Job::{Observer, Operator, Worker};
use crate::commands::designed_commands::*;
use crate::support::steps::*;
use crate::support::*;

/// The users as the README has them, with the name of each command.
const BY_NAME: [&str; 3] = [
    "worker on >secret resetchannels ~jobs:* -@all +@connection -@dangerous \
     +dlock.acquire +dlock.release +dlock.renew +dlock.check \
     +dsem.acquire +dsem.release +dsem.renew +dsem.check \
     +dwg.add +dwg.done +dwg.wait +dwg.expect +dwg.release +dwg.renew +dwg.check \
     +donce.begin +donce.done +donce.fail +donce.get +donce.release +donce.renew +donce.check",
    "observer on >secret resetchannels %R~* -@all +@connection -@dangerous \
     +dlock.info +dlock.check +dsem.info +dsem.check +dwg.info +dwg.check +donce.info +donce.get +donce.check",
    "operator on >secret resetchannels ~* -@all +@connection -@dangerous \
     +dsync.contended +dsync.holds +dsync.log +dlock.info +dlock.revoke +dlock.pause +dsem.info +dsem.revoke +dsem.pause \
     +dsem.limit +dwg.info +dwg.revoke +dwg.pause +donce.info +donce.revoke +donce.pause",
];

/// The same users, with the categories that the module makes.
const BY_CATEGORY: [&str; 3] = [
    "worker on >secret resetchannels ~jobs:* -@all +@connection -@dangerous +@dsync-worker",
    "observer on >secret resetchannels %R~* -@all +@connection -@dangerous +@dsync-observer",
    "operator on >secret resetchannels ~* -@all +@connection -@dangerous +@dsync-operator",
];

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

fn log_in(server: &Server, user: &str) -> Client {
    let mut client = server.connect();
    assert_eq!(call!(client, "AUTH", user, "secret"), "OK");
    // Commands that client libraries send after they connect.
    assert_eq!(call!(client, "PING"), "PONG");
    assert_eq!(call!(client, "SELECT", 0), "OK");
    assert_eq!(call!(client, "CLIENT", "SETNAME", "name"), "OK");
    assert!(!call!(client, "COMMAND", "DOCS", "DLOCK.ACQUIRE").is_error());
    client
}

fn is_permitted(reply: &Reply) -> bool {
    !matches!(reply, Reply::Error(text) if text.starts_with("NOPERM"))
}

/// Asserts that each user can call the commands of its job and nothing else, and the worker only on its keys.
#[track_caller]
fn expect_users_to_do_their_jobs(server: Server) {
    let mut requests = Requests {
        client: server.connect(),
        server,
        keys: 0,
    };
    for (user, job) in [
        ("worker", Worker),
        ("observer", Observer),
        ("operator", Operator),
    ] {
        let mut client = log_in(&requests.server, user);
        for row in &COMMANDS {
            let args = requests.args(row.name);
            for space in ["jobs:", "other:"] {
                let mut request = requests.bare(row.name, &args);
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
fn users_with_commands_by_name_can_do_their_jobs_only() {
    let builder = BY_NAME.iter().fold(Server::builder(), |builder, user| {
        builder.config("user", user)
    });
    expect_users_to_do_their_jobs(builder.start());
}

#[test]
fn users_with_the_modules_categories_can_do_their_jobs_only() {
    let plain = Server::start();
    if !has_own_categories(&plain) {
        let refused = ask(&mut plain.connect(), "ACL SETUSER worker +@dsync-worker");
        assert!(refused.error().contains("category"), "{refused:?}");
        return;
    }
    // From the configuration file, which the server applies after the module is loaded.
    let builder = BY_CATEGORY.iter().fold(Server::builder(), |builder, user| {
        builder.config("user", user)
    });
    expect_users_to_do_their_jobs(builder.start());
    // By ACL SETUSER.
    let mut admin = plain.connect();
    for user in BY_CATEGORY {
        assert_eq!(ask(&mut admin, format!("ACL SETUSER {user}")), "OK");
    }
    // The category `dsync` has all commands. (ACL CAT of Redis 7.4 and Valkey 8.0 does not list categories of modules.)
    let all = ask(&mut admin, "COMMAND LIST FILTERBY ACLCAT dsync");
    let mut all: Vec<_> = joined(&all).split(' ').map(str::to_uppercase).collect();
    all.sort();
    let mut expected = COMMANDS.map(|row| row.name);
    expected.sort_unstable();
    assert_eq!(all, expected);
    expect_users_to_do_their_jobs(plain);
}

#[test]
fn acl_categories_of_commands_follow_from_their_flags() {
    let server = Server::start();
    let mut client = server.connect();
    for name in COMMANDS.map(|row| row.name).into_iter().chain(INTERNAL) {
        let info = call!(client, "COMMAND", "INFO", name);
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
            // A command for operators alone is dangerous, whatever its flags.
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
fn user_without_dangerous_commands_can_work_and_look_only() {
    let server = Server::start();
    let mut requests = Requests {
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
            &mut requests.client,
            format!("ACL SETUSER user{nth} on >secret {rule}"),
        );
        let mut client = requests.server.connect();
        assert_eq!(call!(client, "AUTH", format!("user{nth}"), "secret"), "OK");
        for row in &COMMANDS {
            let args = requests.args(row.name);
            let request = requests.bare(row.name, &args);
            let reply = client.call(&request);
            let expected = if has_categories(&requests.server) {
                row.jobs.contains(&Worker) || row.jobs.contains(&Observer)
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
