//! The ways out of dsync, as docs/leaving.md has them: these stories type the page's shell lines.
//!
//! Its session of SET NX is played by `guide_sessions`.

use super::payload::{dump, opened, sealed};
use crate::support::data_files::{aof, with_safe_aof};
use crate::support::fixtures::{FIXTURES, add_to};
use crate::support::steps::*;
use crate::support::*;
use std::fs;

/// The shell lines of the page that have this text in them.
#[track_caller]
fn lines_with(text: &str) -> String {
    let mut blocks = blocks(&document("docs/leaving.md"));
    blocks.retain(|block| block.contains(text));
    assert_eq!(blocks.len(), 1, "{text}: {blocks:?}");
    blocks.remove(0)
}

/// Types these lines, with `redis-cli` speaking to this server. Returns what they print.
#[track_caller]
fn type_lines(server: &Server, lines: &str) -> String {
    let output = shell_of(server).args(["-c", lines]).output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "{lines}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Types lines of the page in which two servers have names.
#[track_caller]
fn type_between(old: &Server, new: &Server, lines: &str) -> String {
    let named = |lines: String, name: &str, server: &Server| {
        let port = server.port();
        lines
            .replace(&format!("-h {name}"), &format!("-p {port}"))
            .replace(&format!("{name} 6379"), &format!("127.0.0.1 {port}"))
    };
    let lines = named(lines.to_owned(), "old.example", old);
    type_lines(old, &named(lines, "new.example", new))
}

#[track_caller]
fn remove_keys(server: &Server) {
    type_lines(server, &lines_with("UNLINK"));
}

/// Step 3 of the page, with what must be true after it.
#[track_caller]
fn write_commands_only(server: &Server) {
    let said = type_lines(server, &lines_with("aof-use-rdb-preamble no"));
    assert!(
        said.trim_end().ends_with("aof_last_bgrewrite_status:ok"),
        "{said}"
    );
    let folder = fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF's directory");
    let names = folder.map(|file| file.expect("a file").file_name().into_string());
    let mut bases: Vec<_> = names.map(|name| name.expect("UTF-8")).collect();
    bases.retain(|name| name.contains(".base."));
    assert!(
        matches!(&bases[..], [base] if base.ends_with(".base.aof")),
        "{bases:?}"
    );
}

/// Starts a stopped server, which must not come up. Returns the log of this start.
#[track_caller]
fn refused_start(server: &mut Server) -> String {
    let before = server.log_text().len();
    server.begin_again();
    server.wait_for_answer().expect_err("it must not start");
    server.kill9();
    server.log_text().split_off(before)
}

#[track_caller]
fn give_module_back(server: &mut Server) {
    server.configure("loadmodule", module_path().display());
    server.start_again();
}

#[track_caller]
fn assert_without_module(server: &Server) {
    let mut client = server.connect();
    let modules = client.ask("MODULE LIST");
    let mut modules = modules.as_array().iter();
    assert!(modules.all(|module| *module.field("name") != "dsync"));
    assert!(
        client
            .ask("DLOCK.ACQUIRE k")
            .error()
            .contains("unknown command")
    );
}

#[test]
fn results_are_taken_out_as_the_page_says() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("SET text x");
    client.ask("DLOCK.ACQUIRE lock").grant();
    for key in ["'pay 7'", "report"] {
        client.ask(format!("DONCE.BEGIN {key} TOKEN t"));
        let done = client.ask(format!("DONCE.DONE {key} t RESULT 'sent \"7\"'"));
        assert_eq!(done, 1);
    }
    client.ask("DONCE.BEGIN running TOKEN t");
    let printed = type_lines(&server, &lines_with("DONCE.GET"));
    let mut printed: Vec<_> = printed.lines().collect();
    printed.sort_unstable();
    let [pay, report, running] = printed[..] else {
        panic!("{printed:?}");
    };
    assert!(
        pay.starts_with("pay 7\t[\"DONE\",\"sent \\\"7\\\"\""),
        "{pay}"
    );
    assert!(
        report.starts_with("report\t[\"DONE\",\"sent \\\"7\\\"\""),
        "{report}"
    );
    assert_eq!(running, "running\tnull");
}

/// An operator removed all keys and the line of the configuration, as docs/install.md had said, and the server did not
/// start again.
#[test]
fn server_that_used_dsync_does_not_start_without_it_until_its_data_is_written_anew() {
    let mut server = Server::start();
    let mut client = server.connect();
    for database in [0, 5] {
        add_to(&mut client, database);
        client.ask(format!("SET kept {database}"));
    }
    remove_keys(&server);
    assert_eq!(client.ask("EXISTS kept"), 1);
    let in_five = lines_with("UNLINK").replace("redis-cli", "redis-cli -n 5");
    type_lines(&server, &in_five);
    for database in [0, 5] {
        client.ask(format!("SELECT {database}"));
        for key in FIXTURES {
            assert_eq!(client.ask(format!("EXISTS {key}")), 0, "{key}");
        }
    }
    assert_eq!(client.ask("SAVE"), "OK");
    server.shutdown();
    server.remove_module();
    let log = refused_start(&mut server);
    let told = lines_with("AUX module data");
    assert!(log.contains(told.trim()), "{log}");

    give_module_back(&mut server);
    write_commands_only(&server);
    server.shutdown();
    server.remove_module();
    server.configure("appendonly", "yes");
    server.start_again();
    assert_without_module(&server);

    type_lines(&server, &lines_with("redis-cli SAVE"));
    server.shutdown();
    server.configure("appendonly", "no");
    server.start_again();
    assert_without_module(&server);
    let mut client = server.connect();
    for database in [0, 5] {
        client.ask(format!("SELECT {database}"));
        assert_eq!(client.ask("GET kept"), database.to_string().as_str());
    }
}

#[test]
fn server_with_an_aof_goes_on_with_it_without_the_module() {
    let mut server = with_safe_aof(true).start();
    let mut client = server.connect();
    add_to(&mut client, 0);
    client.ask("SELECT 0");
    client.ask("SET kept 1");
    remove_keys(&server);
    write_commands_only(&server);
    client.ask("INCR kept");
    server.shutdown();
    server.remove_module();
    server.start_again();
    assert_without_module(&server);
    type_lines(&server, &lines_with("aof-use-rdb-preamble yes"));
    data_files::wait_for_rewrite(&server);
    assert!(aof(&server).exists());
    let mut client = server.connect();
    client.ask("INCR kept");
    server.kill9();
    server.start_again();
    assert_eq!(server.connect().ask("GET kept"), "3");
}

#[test]
fn replica_follows_its_primary_out_of_the_module() {
    let mut primary = Server::start();
    let mut replica = with_safe_aof(true).replica_of(&primary).start();
    let mut client = primary.connect();
    client.ask("SET kept 1");
    client.ask("DLOCK.ACQUIRE k TOKEN t").grant();
    remove_keys(&primary);
    write_commands_only(&primary);
    primary.shutdown();
    primary.remove_module();
    primary.configure("appendonly", "yes");
    primary.start_again();
    replica.wait_for_sync();
    // A server does not stop while it writes its first AOF.
    data_files::wait_for_rewrite(&replica);

    replica.shutdown();
    replica.remove_module();
    fs::remove_dir_all(replica.dir().join("appendonlydir")).expect("the AOF's directory");
    fs::remove_file(replica.dir().join("dump.rdb")).ok();
    replica.start_again();
    replica.wait_for_sync();
    assert_without_module(&replica);
    primary.connect().ask("INCR kept");
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(replica.connect().ask("GET kept"), "2");
}

/// Each node goes its way alone, while others still have the module and tell it their fences.
#[test]
fn cluster_leaves_node_by_node() {
    let mut cluster = Cluster::start();
    let all = [0, 1, 2];
    let in_cluster = lines_with("UNLINK").replace("-n 1000", "-n 1");
    let keys = all.map(|node| cluster.key_of(node, "kept"));
    for (node, key) in all.into_iter().zip(&keys) {
        let mut client = cluster[node].connect();
        for n in 0..20 {
            let held = cluster.key_of(node, &format!("held:{n}:"));
            client.ask(format!("DLOCK.ACQUIRE {held} EX 600")).grant();
        }
        assert_eq!(client.ask(format!("SET {key} 1")), "OK");
    }
    for node in all {
        let server = &mut cluster[node];
        type_lines(server, &in_cluster);
        assert_eq!(server.connect().ask("DBSIZE"), 1);
        write_commands_only(server);
        server.shutdown();
        server.remove_module();
        server.configure("appendonly", "yes");
        server.start_again();
        assert_without_module(server);
        cluster.wait_until_ok(&all);
    }
    for (node, key) in all.into_iter().zip(&keys) {
        assert_eq!(cluster[node].connect().ask(format!("GET {key}")), "1");
        assert_calm(&cluster[node]);
    }
}

#[test]
fn what_keeps_a_server_from_starting_is_named_and_loses_nothing() {
    let page = document("docs/leaving.md");
    let mut server = Server::start();
    // A program took a lock between the rewrite and the end.
    write_commands_only(&server);
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k EX 600 TOKEN t").grant();
    server.shutdown();
    server.remove_module();
    server.configure("appendonly", "yes");
    let log = refused_start(&mut server);
    let told = [
        "Unknown command 'DSYN' reading the append only file",
        "unknown command 'DSYN'",
    ];
    assert!(told.iter().all(|told| page.contains(told)));
    assert!(told.iter().any(|told| log.contains(told)), "{log}");
    give_module_back(&mut server);
    assert!(server.connect().ask("DLOCK.CHECK k t").as_int() > 0);

    // A user of the configuration has a command of dsync.
    remove_keys(&server);
    write_commands_only(&server);
    server.shutdown();
    server.remove_module();
    server.configure("user", "worker on nopass ~* -@all +dlock.acquire");
    let log = refused_start(&mut server);
    for told in [
        "Error loading ACL rule '+dlock.acquire'",
        "Unknown command or category name in ACL",
    ] {
        assert!(page.contains(told) && log.contains(told), "{told}: {log}");
    }
    give_module_back(&mut server);
}

/// Why the page says `appendonly yes` after the rewrite only. The RDB file still has everything.
#[test]
fn server_that_is_told_of_an_aof_it_never_wrote_starts_empty() {
    let mut server = Server::start();
    let mut client = server.connect();
    client.ask("SET kept 1");
    client.ask("DLOCK.ACQUIRE k EX 600 TOKEN t").grant();
    assert_eq!(client.ask("SAVE"), "OK");
    server.shutdown();
    server.remove_module();
    server.configure("appendonly", "yes");
    server.start_again();
    assert_eq!(server.connect().ask("DBSIZE"), 0);
    server.shutdown();
    server.configure("appendonly", "no");
    give_module_back(&mut server);
    assert_eq!(server.connect().ask("GET kept"), "1");
    assert!(server.connect().ask("DLOCK.CHECK k t").as_int() > 0);
}

#[test]
fn replication_moves_holds_and_fences_to_another_server() {
    let (old, new) = (Server::start(), Server::start());
    let mut client = old.connect();
    client.ask("DLOCK.ACQUIRE held EX 600 TOKEN t").grant();
    let (begin, rest) = (lines_with("REPLICAOF"), lines_with("FAILOVER TO"));
    let mut lines = begin.lines();
    type_between(&old, &new, lines.next().expect("two lines"));
    new.wait_for_sync();
    let status = type_between(&old, &new, lines.next().expect("two lines"));
    assert_eq!(status.trim(), "master_link_status:up");
    let mut waiter = old.waiting("DLOCK.ACQUIRE held TOKEN next BLOCK 0");
    let (_, fence) = client.ask("DLOCK.ACQUIRE other TOKEN t").grant();
    type_between(&old, &new, &rest);
    let refused = waiter.reply();
    assert!(refused.error().starts_with("UNBLOCKED"), "{refused:?}");
    eventually("the new primary", SOON, || {
        new.info("replication", "role") == "master"
    });
    let mut client = new.connect();
    assert!(client.ask("DLOCK.CHECK held t").as_int() > 0);
    assert!(client.ask("DLOCK.ACQUIRE free").grant().1 > fence);
}

/// The old server's fences are hours ahead of its clock, because it was promoted again and again. A store that checks
/// fences would refuse everything that a new server grants.
#[test]
fn lock_that_is_moved_last_takes_fences_along() {
    let (old, new) = (Server::start(), Server::start());
    let mut client = old.connect();
    let hours = |n: u64| n * 3_600_000_000;
    eventually("fences four hours ahead", SOON, || {
        client.ask("REPLICAOF 127.0.0.1 1");
        client.ask("REPLICAOF NO ONE");
        client = old.connect();
        let (_, fence) = client.ask("DLOCK.ACQUIRE stored PX 600000").grant();
        client.ask("DEL stored");
        fence > unix_us() + hours(4)
    });
    let (_, stored) = client.ask("DLOCK.ACQUIRE stored EX 600").grant();
    client.ask("DEL stored");
    let mut there = new.connect();
    let (_, lower) = there.ask("DLOCK.ACQUIRE before").grant();
    assert!(lower < stored, "otherwise nothing is shown");
    type_between(&old, &new, &lines_with("leaving:last"));
    assert!(there.ask("DLOCK.ACQUIRE stored").grant().1 > stored);
}

#[test]
fn payload_of_another_format_is_refused_with_payload_version() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k EX 600").grant();
    let (body, _) = opened(&dump(&mut client, "k"));
    let payload = sealed(&body, [0xff, 0xff]);
    let refused = call!(client, "RESTORE", "other", 0, &payload);
    let told = "DUMP payload version or checksum are wrong";
    assert!(document("docs/leaving.md").contains(told));
    assert!(refused.error().contains(told), "{refused:?}");
}

/// The module was loaded and nobody used it: an operator who only tried to load it needs no way out. Redis 7.0 asks a
/// module for its record with each file, and cannot be told that there is none.
#[test]
fn module_that_was_never_used_is_taken_away_at_once() {
    let mut server = Server::start();
    let Flavour { product, version } = server.flavour();
    let may_leave_out = product == Product::Valkey || version >= (7, 2, 0);
    let mut client = server.connect();
    client.ask("SET kept 1");
    assert_eq!(client.ask("SAVE"), "OK");
    server.shutdown();
    server.remove_module();
    if may_leave_out {
        server.start_again();
        assert_without_module(&server);
        assert_eq!(server.connect().ask("GET kept"), "1");
    } else {
        let log = refused_start(&mut server);
        assert!(log.contains(lines_with("AUX module data").trim()), "{log}");
    }
}
