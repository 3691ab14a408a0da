//! `INFO dsync`: its fields, its counters, which grow by exactly what happened, and the histogram of waits.
//!
//! The gauges are in `metrics_gauges`.

use crate::observing::metrics_steps::*;
use crate::support::steps::*;
use crate::support::*;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn metrics_section_has_every_field_and_begins_at_zero() {
    let server = Server::start();
    let found = metrics(&server);
    let mut names: BTreeSet<_> = found.keys().cloned().collect();
    names.extend(["version", "commit"].map(str::to_owned));
    assert_eq!(names, documented_metrics());
    // At its start a server leaps ahead with its fences, so this one is not zero.
    let zero = found
        .iter()
        .all(|(name, value)| *value == 0 || name == "last_fence");
    assert!(zero, "{found:?}");
    let mut client = server.connect();
    let (_, fence) = client.ask("DLOCK.ACQUIRE lock").grant();
    assert_eq!(metric(&server, "last_fence"), fence);
    for section in ["everything", "all", "modules", "dsync"] {
        let info = server.info_section(section);
        let is_there = info.contains("# dsync") && info.contains("dsync_lock_holds:1");
        // `INFO all` leaves out the sections of modules.
        assert_eq!(is_there, section != "all", "INFO {section}: {info}");
    }
}

#[test]
fn metrics_and_module_list_tell_the_version_and_the_commit() {
    let server = Server::start();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(server.info("dsync", "dsync_version"), version);
    let commit = server.info("dsync", "dsync_commit");
    let is_hash = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_hash || commit == "unknown", "{commit}");
    let number = version.split('.').fold(0, |number, part| {
        100 * number + part.parse::<i64>().expect("a number")
    });
    let modules = server.connect().ask("MODULE LIST");
    let ours = |module: &&Reply| *module.field("name") == "dsync";
    let module = modules.as_array().iter().find(ours).expect("it is loaded");
    assert_eq!(*module.field("ver"), number);
}

/// The commands of a family.
struct FamilyCommands {
    family: &'static str,
    /// The request for a hold.
    begin: &'static str,
    release: &'static str,
    /// Other commands that end a hold and count as a release.
    other_ends: &'static [&'static str],
    prefix: &'static str,
}

const COMMANDS: [FamilyCommands; 4] = [
    FamilyCommands {
        family: "lock",
        begin: "DLOCK.ACQUIRE k",
        release: "DLOCK.RELEASE",
        other_ends: &[],
        prefix: "DLOCK",
    },
    FamilyCommands {
        family: "sem",
        begin: "DSEM.ACQUIRE k LIMIT 1",
        release: "DSEM.RELEASE",
        other_ends: &[],
        prefix: "DSEM",
    },
    FamilyCommands {
        family: "wg",
        begin: "DWG.ADD k LIMIT 1",
        release: "DWG.RELEASE",
        other_ends: &["DWG.DONE"],
        prefix: "DWG",
    },
    FamilyCommands {
        family: "once",
        begin: "DONCE.BEGIN k",
        release: "DONCE.RELEASE",
        other_ends: &["DONCE.FAIL", "DONCE.DONE"],
        prefix: "DONCE",
    },
];

#[track_caller]
fn fence_of(reply: &Reply) -> u64 {
    fence_in(reply).unwrap_or_else(|| panic!("no grant: {reply:?}"))
}

#[test]
fn counters_of_each_family_count_exactly_what_happened() {
    let server = Server::start();
    let mut client = server.connect();
    for (at, words) in COMMANDS.iter().enumerate() {
        let FamilyCommands {
            family,
            begin,
            release,
            other_ends,
            prefix,
        } = words;
        let mut expected = BTreeMap::new();
        let mut check = |what: &str, counted: &[&'static str]| {
            for name in counted {
                *expected.entry((*name).to_owned()).or_default() += 1;
            }
            assert_eq!(counters(&server, family), expected, "{family}: {what}");
        };
        fence_of(&client.ask(format!("{begin} TOKEN a EX 600")));
        check("a grant", &["granted_at_once"]);
        // A repeat, a renewal, a failed try and a RELEASE without a hold count nothing.
        client.ask(format!("{begin} TOKEN a EX 600"));
        client.ask(format!("{prefix}.RENEW k a"));
        assert!(client.ask(*begin).is_nil());
        assert_eq!(client.ask(format!("{release} k nobody")), 0);
        check("commands that do not count", &[]);

        let mut waiter = server.waiting(format!("{begin} BLOCK 0 TOKEN b EX 600"));
        let (_, waiting) = gauges(&server);
        assert_eq!(waiting[at], 1, "{family}");
        check("queueing", &[]);
        assert_eq!(client.ask(format!("{release} k a")), 1);
        let second = fence_of(&waiter.reply());
        check("a hand-over", &["released", "granted_after_wait"]);
        let (holds, waiting) = gauges(&server);
        assert_eq!((holds[at], waiting[at]), (1, 0), "{family}");
        assert_eq!(client.ask(format!("{prefix}.REVOKE k {second}")), 1);
        check("a revocation", &["revoked"]);

        let idle = |what: &str| {
            eventually(what, SOON, || gauges(&server).0[at] == 0);
        };
        fence_of(&client.ask(format!("{begin} PX 20")));
        idle("a lapse");
        check(
            "a lapse",
            &["granted_at_once", "lapsed", "lapsed_unrenewed"],
        );
        fence_of(&client.ask(format!("{begin} TOKEN c EX 600")));
        assert_eq!(client.ask(format!("{prefix}.RENEW k c PX 20")), 1);
        idle("a renewed lapse");
        check(
            "a lapse of a hold that had been renewed",
            &["granted_at_once", "lapsed"],
        );
        let mut holder = server.connect();
        fence_of(&holder.ask(format!("{begin} EX 600 EPHEMERAL")));
        holder.close();
        idle("the end of an ephemeral hold");
        check("a connection's end", &["granted_at_once", "disconnected"]);

        fence_of(&client.ask(format!("{begin} TOKEN d EX 600")));
        check("a grant", &["granted_at_once"]);
        assert!(client.ask(format!("{begin} BLOCK 20")).is_nil());
        check("a wait that ran out", &["wait_timeouts"]);
        // Without a token, and with one, whose place stays vacant.
        for token in [String::new(), format!("TOKEN {family}-e")] {
            server.waiting(format!("{begin} BLOCK 0 {token}")).close();
            server.wait_for_blocked(0);
            check("a waiter whose connection closed", &["wait_disconnects"]);
        }
        let mut unblocked = server.connect();
        let id = unblocked.id();
        unblocked.wait_on(&server, format!("{begin} BLOCK 0"));
        assert_eq!(client.ask(format!("CLIENT UNBLOCK {id}")), 1);
        assert!(unblocked.reply().is_nil());
        check("a waiter that was unblocked", &[]);
        let mut killed = server.connect();
        let id = killed.id();
        killed.wait_on(&server, format!("{begin} BLOCK 0 EX 600"));
        let replies = client.ask_all([format!("{release} k d"), format!("CLIENT KILL ID {id}")]);
        assert_eq!(replies, [Reply::Int(1), Reply::Int(1)]);
        killed.expect_closed(SOON);
        idle("the end of a grant that could not be delivered");
        check(
            "a grant that could not be delivered",
            &["released", "granted_after_wait", "undelivered"],
        );

        for end in *other_ends {
            fence_of(&client.ask(format!("{begin} TOKEN f{end} EX 600")));
            assert_eq!(client.ask(format!("{end} k f{end}")), 1);
            check(end, &["granted_at_once", "released"]);
        }
        client.ask("DEL k");
        wait_until_all_is_quiet(&server);
        check("a removal", &[]);
    }
    // No family has counted what belongs to another.
    let released: u64 = FAMILIES
        .iter()
        .map(|family| metric(&server, &format!("{family}_released")))
        .sum();
    assert_eq!(released, 2 + 2 + 3 + 4);
    assert_eq!(metric(&server, "wait_count"), 8);
}

#[test]
fn limit_changes_metric_counts_changes_of_the_limit_in_force() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DSEM.ACQUIRE k LIMIT 1 EX 600").grant();
    assert_eq!(
        metric(&server, "sem_limit_changes"),
        0,
        "the first is no change"
    );
    for (line, changes) in [
        ("DSEM.ACQUIRE k LIMIT 1", 0),
        // A try that is refused changes nothing.
        ("DSEM.ACQUIRE k LIMIT 2 PERMITS 2", 0),
        ("DSEM.ACQUIRE k LIMIT 3 PERMITS 2 EX 600", 1),
        ("DSEM.LIMIT k 5", 2),
        ("DSEM.LIMIT k 5", 2),
        // Remembered while another limit is pinned.
        ("DSEM.ACQUIRE k LIMIT 4", 2),
        ("DSEM.LIMIT k NONE", 3),
    ] {
        client.ask(line);
        assert_eq!(metric(&server, "sem_limit_changes"), changes, "{line}");
    }
    client.ask("DWG.ADD g LIMIT 1").grant();
    client.ask("DWG.ADD g LIMIT 2").grant();
    assert_eq!(metric(&server, "wg_limit_changes"), 1);
    assert_eq!(metric(&server, "lock_limit_changes"), 0);
}

#[test]
fn group_wait_counts_as_a_waiter_but_not_as_a_grant() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DWG.ADD g TOKEN a EX 600");
    let mut finished = server.waiting("DWG.WAIT g BLOCK 0");
    assert_eq!(metric(&server, "wg_waiters"), 1);
    assert!(client.ask("DWG.WAIT g BLOCK 20").is_nil());
    server.waiting("DWG.WAIT g BLOCK 0").close();
    server.wait_for_blocked(1);
    assert_eq!(client.ask("DWG.DONE g a"), 1);
    assert_eq!(finished.reply().as_array().len(), 2);
    assert_eq!(
        counters(&server, "wg"),
        counts([
            ("granted_at_once", 1),
            ("released", 1),
            ("wait_timeouts", 1),
            ("wait_disconnects", 1)
        ])
    );
    wait_until_all_is_quiet(&server);
}

/// Nine clients that asked again for their kept places in slices of BLOCK, as helpers do, and never gave up, were
/// counted as 3,962 waits that had run out.
#[test]
fn wait_in_slices_on_a_kept_place_counts_as_one() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN holder EX 600").grant();
    for _ in 0..3 {
        assert_eq!(
            client.ask("DLOCK.ACQUIRE k TOKEN t QUEUE 1000").as_array()[0],
            "WAITING"
        );
        assert!(client.ask("DLOCK.ACQUIRE k TOKEN t BLOCK 20").is_nil());
    }
    server.waiting("DLOCK.ACQUIRE k TOKEN t BLOCK 0").close();
    server.wait_for_blocked(0);
    let granted = ("granted_at_once", 1);
    assert_eq!(counters(&server, "lock"), counts([granted]));
    // Nobody asks any more.
    eventually("the end of the wait", SOON, || {
        metric(&server, "lock_waiters") == 0
    });
    assert_eq!(
        counters(&server, "lock"),
        counts([granted, ("wait_timeouts", 1)])
    );
}

#[test]
fn wait_histogram_has_every_wait_that_ended_in_a_grant() {
    let server = Server::start();
    let mut client = server.connect();
    let classes = || BOUNDS_MS.map(|bound| metric(&server, &format!("wait_le_{bound}_ms")));
    let mut waited_ms = 0;
    for n in 1..=3 {
        client.ask("DLOCK.ACQUIRE k TOKEN a EX 600").grant();
        let before = classes();
        let total_before = metric(&server, "wait_total_ms");
        let mut waiter = server.waiting("DLOCK.ACQUIRE k TOKEN b BLOCK 0");
        eventually("a wait of some length", SOON, || {
            metric(&server, "longest_wait_ms") > 20
        });
        let least = metric(&server, "longest_wait_ms");
        assert_eq!(client.ask("DLOCK.RELEASE k a"), 1);
        waiter.granted();
        assert_eq!(client.ask("DLOCK.RELEASE k b"), 1);
        let after = classes();
        assert_eq!(metric(&server, "wait_count"), n);
        let waited = metric(&server, "wait_total_ms") - total_before;
        assert!(
            (least..10_000).contains(&waited),
            "{waited}, at least {least}"
        );
        waited_ms += waited;
        assert!(after.is_sorted(), "{after:?}");
        for ((bound, before), after) in BOUNDS_MS.iter().zip(before).zip(after) {
            let in_class = u64::from(waited <= *bound);
            assert_eq!(
                after - before,
                in_class,
                "{waited} ms in the class of {bound}"
            );
        }
    }
    // A wait that ends without a grant is in no class.
    client.ask("DLOCK.ACQUIRE k EX 600").grant();
    assert!(client.ask("DLOCK.ACQUIRE k BLOCK 30").is_nil());
    assert_eq!(metric(&server, "wait_count"), 3);
    assert_eq!(metric(&server, "wait_total_ms"), waited_ms);
}
