//! Keyspace notifications: every event of the contract is sent, and nothing for what is no event (renewals, tries,
//! CHECK, INFO, queueing).
//!
//! The order in which events and replies arrive is not promised. When `*.free` is sent is in `events_free`.

use crate::observing::listener::*;
use crate::support::steps::*;
use crate::support::*;
use std::collections::BTreeMap;

/// Commands on one key, each with the events that it must cause.
type Steps = &'static [(&'static str, &'static [&'static str])];

#[track_caller]
fn assert_events(classes: &str, steps: Steps) {
    let server = notifying(classes);
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    // FENCE in a line stands for the fence of the last grant.
    let mut latest = 0;
    for (line, events) in steps {
        let reply = client.ask(line.replace("FENCE", &latest.to_string()));
        assert!(!reply.is_error(), "{line}: {reply:?}");
        if line.contains("ACQUIRE") || line.contains("ADD") || line.contains("BEGIN") {
            latest = fence_in(&reply).unwrap_or(latest);
        }
        assert_eq!(listener.so_far(&mut client), *events, "after {line}");
    }
}

const LOCK: Steps = &[
    ("DLOCK.ACQUIRE k TOKEN a", &["dlock.grant k"]),
    ("DLOCK.ACQUIRE k", &[]),
    ("DLOCK.ACQUIRE k TOKEN a", &[]),
    ("DLOCK.RENEW k a EX 9", &[]),
    ("DLOCK.RENEW k b", &[]),
    ("DLOCK.CHECK k a", &[]),
    ("DLOCK.INFO k", &[]),
    ("DLOCK.RELEASE k b", &[]),
    ("DLOCK.REVOKE k 1", &[]),
    ("DLOCK.RELEASE k a", &["dlock.free k", "dlock.release k"]),
    ("DLOCK.RELEASE k a", &[]),
    ("DLOCK.ACQUIRE k SHARED TOKEN a", &["dlock.grant k"]),
    ("DLOCK.ACQUIRE k SHARED TOKEN b", &["dlock.grant k"]),
    ("DLOCK.RELEASE k a", &["dlock.release k"]),
    ("DLOCK.RELEASE k b", &["dlock.free k", "dlock.release k"]),
    ("DLOCK.ACQUIRE k", &["dlock.grant k"]),
    ("DLOCK.REVOKE k FENCE", &["dlock.free k", "dlock.revoke k"]),
];

const SEMAPHORE: Steps = &[
    ("DSEM.LIMIT k 0", &[]),
    ("DSEM.ACQUIRE k", &[]),
    ("DSEM.LIMIT k 3", &["dsem.free k"]),
    ("DSEM.ACQUIRE k PERMITS 2 TOKEN a", &["dsem.grant k"]),
    ("DSEM.ACQUIRE k PERMITS 2", &[]),
    ("DSEM.ACQUIRE k TOKEN b", &["dsem.grant k"]),
    ("DSEM.RENEW k a", &[]),
    ("DSEM.CHECK k a", &[]),
    ("DSEM.INFO k", &[]),
    ("DSEM.RELEASE k b", &["dsem.free k", "dsem.release k"]),
    ("DSEM.ACQUIRE k TOKEN c", &["dsem.grant k"]),
    ("DSEM.REVOKE k FENCE", &["dsem.free k", "dsem.revoke k"]),
    // A raised limit frees capacity; a lowered one does not.
    ("DSEM.LIMIT k 2", &[]),
    ("DSEM.LIMIT k 2", &[]),
    ("DSEM.LIMIT k 9", &["dsem.free k"]),
    ("DSEM.LIMIT k 0", &[]),
    ("DSEM.RELEASE k a", &["dsem.release k"]),
    ("DSEM.LIMIT k 1", &["dsem.free k"]),
];

const GROUP: Steps = &[
    ("DWG.EXPECT k 3", &[]),
    ("DWG.ADD k LIMIT 1 TOKEN a", &["dwg.add k"]),
    ("DWG.ADD k LIMIT 2 TOKEN b", &["dwg.add k"]),
    ("DWG.ADD k", &[]),
    ("DWG.ADD k TOKEN a", &[]),
    ("DWG.RENEW k a", &[]),
    ("DWG.CHECK k a", &[]),
    ("DWG.INFO k", &[]),
    ("DWG.WAIT k", &[]),
    ("DWG.DONE k x", &[]),
    ("DWG.DONE k a", &["dwg.done k", "dwg.free k"]),
    ("DWG.DONE k a", &[]),
    ("DWG.RELEASE k b", &["dwg.free k", "dwg.release k"]),
    ("DWG.ADD k TOKEN c", &["dwg.add k"]),
    ("DWG.REVOKE k FENCE", &["dwg.free k", "dwg.revoke k"]),
    ("DWG.ADD k TOKEN d", &["dwg.add k"]),
    ("DWG.ADD k TOKEN e", &["dwg.add k"]),
    (
        "DWG.DONE k d e",
        &["dwg.done k", "dwg.done k", "dwg.finish k", "dwg.free k"],
    ),
    ("DWG.WAIT k", &[]),
];

/// A group without a gate refuses nobody, so it never sends `dwg.free`.
const UNGATED: Steps = &[
    ("DWG.ADD k TOKEN a", &["dwg.add k"]),
    ("DWG.ADD k TOKEN b", &["dwg.add k"]),
    ("DWG.DONE k a", &["dwg.done k"]),
    ("DWG.DONE k b", &["dwg.done k", "dwg.finish k"]),
];

const ONCE: Steps = &[
    ("DONCE.BEGIN k TOKEN a", &["donce.run k"]),
    ("DONCE.BEGIN k", &[]),
    ("DONCE.BEGIN k TOKEN a", &[]),
    ("DONCE.RENEW k a", &[]),
    ("DONCE.CHECK k a", &[]),
    ("DONCE.INFO k", &[]),
    ("DONCE.FAIL k b", &[]),
    ("DONCE.DONE k b", &[]),
    ("DONCE.FAIL k a", &["donce.fail k", "donce.free k"]),
    ("DONCE.BEGIN k MAX 1", &[]),
    ("DONCE.BEGIN k TOKEN c", &["donce.run k"]),
    ("DONCE.RELEASE k c", &["donce.free k", "donce.release k"]),
    ("DONCE.BEGIN k", &["donce.run k"]),
    ("DONCE.REVOKE k FENCE", &["donce.free k", "donce.revoke k"]),
    ("DONCE.BEGIN k TOKEN d", &["donce.run k"]),
    ("DONCE.DONE k d RESULT r", &["donce.done k"]),
    ("DONCE.DONE k d", &[]),
    ("DONCE.BEGIN k", &[]),
];

#[test]
fn events_of_every_family_are_sent_and_no_others() {
    for classes in ["Ed", "Kd"] {
        for steps in [LOCK, SEMAPHORE, GROUP, UNGATED, ONCE] {
            assert_events(classes, steps);
        }
    }
}

#[test]
fn events_name_database_in_both_kinds_of_channel() {
    let server = notifying("KEd");
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    client.ask("SELECT 5");
    client.ask("DLOCK.ACQUIRE k");
    let sent = listener.so_far(&mut client);
    assert_eq!(sent, ["dlock.grant k@5", "dlock.grant k@5"]);
    let mut keyed = Listener::to(&server, "__keyspace@5__:k");
    client.ask("DEL k");
    client.ask("DLOCK.ACQUIRE other");
    client.ask("DLOCK.ACQUIRE k");
    assert_eq!(keyed.so_far(&mut server.connect()), ["dlock.grant k@5"]);
}

#[test]
fn events_are_off_unless_class_d_is_configured() {
    for classes in ["", "KEg$lshzxet"] {
        let server = Server::start();
        let mut client = server.connect();
        call!(client, "CONFIG", "SET", "notify-keyspace-events", classes);
        let mut listener = Listener::to_events(&server);
        client.ask("DLOCK.ACQUIRE k TOKEN a");
        client.ask("DLOCK.RELEASE k a");
        assert!(listener.so_far(&mut client).is_empty());
    }
}

#[test]
fn events_are_sent_for_lapses_and_ends_of_connections() {
    let cases = [
        (
            "DLOCK.ACQUIRE k PX 20",
            "dlock.grant",
            "dlock.lapse",
            Some("dlock.free"),
        ),
        (
            "DSEM.ACQUIRE k LIMIT 1 PX 20",
            "dsem.grant",
            "dsem.lapse",
            Some("dsem.free"),
        ),
        (
            "DWG.ADD k LIMIT 1 PX 20",
            "dwg.add",
            "dwg.lapse",
            Some("dwg.free"),
        ),
        ("DWG.ADD k PX 20", "dwg.add", "dwg.lapse", None),
        (
            "DONCE.BEGIN k PX 20",
            "donce.run",
            "donce.lapse",
            Some("donce.free"),
        ),
    ];
    let server = notifying("Ed");
    let mut client = server.connect();
    for (line, begun, lapsed, free) in cases {
        for ephemeral in [false, true] {
            client.ask("DEL k");
            let mut listener = Listener::to_events(&server);
            if ephemeral {
                let mut holder = server.connect();
                holder.ask(line.replace("PX 20", "EX 600 EPHEMERAL"));
                holder.close();
            } else {
                client.ask(line);
            }
            let mut sent = Vec::new();
            while sent
                .iter()
                .filter(|event| **event == format!("{lapsed} k"))
                .count()
                == 0
            {
                let (channel, message) = listener.next(SOON).expect("an event of the lapse");
                sent.push(event(&channel, &message));
            }
            sent.extend(listener.so_far(&mut client));
            sent.sort();
            let mut expected: Vec<_> = [Some(begun), Some(lapsed), free]
                .into_iter()
                .flatten()
                .map(|event| format!("{event} k"))
                .collect();
            if line.starts_with("DWG") {
                // The end of the last member finishes the round.
                expected.push("dwg.finish k".to_owned());
            }
            expected.sort();
            assert_eq!(sent, expected, "{line}, ephemeral: {ephemeral}");
        }
    }
}

/// The server answers 300 waiters in slices. Each grant must send one event, and so must the release.
#[test]
fn events_are_sent_for_each_of_300_grants_after_one_release() {
    let server = notifying("Ed");
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE k TOKEN writer");
    let mut readers: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for reader in &mut readers {
        reader.begin("DLOCK.ACQUIRE k SHARED BLOCK 0");
    }
    server.wait_for_blocked(300);
    let mut listener = Listener::to_events(&server);
    client.ask("DLOCK.RELEASE k writer");
    for reader in &mut readers {
        reader.granted();
    }
    let mut sent = BTreeMap::new();
    for event in listener.so_far(&mut client) {
        *sent.entry(event).or_insert(0) += 1;
    }
    assert_eq!(sent.get("dlock.grant k"), Some(&300), "{sent:?}");
    assert_eq!(sent.get("dlock.release k"), Some(&1), "{sent:?}");
}
