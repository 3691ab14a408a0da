//! `<family>.INFO key`: what it says of the states of locks, semaphores, groups and work-once keys, and of their
//! waiters.

use crate::support::steps::*;
use crate::support::*;

#[test]
fn info_of_lock_shows_its_mode_and_lists_holders_in_order() {
    let server = Server::start();
    let mut client = server.connect();
    for (words, state) in [(&[][..], "exclusive"), (&["SHARED"], "shared")] {
        client
            .call(&[&["DLOCK.ACQUIRE", "key"], words].concat())
            .grant();
        let info = client.ask("DLOCK.INFO key");
        assert_eq!(*info.field("state"), state);
        assert_eq!(
            *info.field("first-holders").as_array()[0].field("mode"),
            state
        );
        client.ask("DEL key");
    }
    // Holders are listed in the order of their grants.
    let fences: Vec<_> = (0..5)
        .map(|_| {
            client
                .ask("DLOCK.ACQUIRE key SHARED")
                .grant()
                .1
                .cast_signed()
        })
        .collect();
    let info = client.ask("DLOCK.INFO key");
    let shown: Vec<_> = info
        .field("first-holders")
        .as_array()
        .iter()
        .map(|hold| hold.field("fence").as_int())
        .collect();
    assert_eq!(shown, fences);
    assert_eq!(*info.field("holders"), 5);
}

/// Sends each line, and asserts what the fields of the key say after it.
#[track_caller]
fn expect_fields(client: &mut Client, info: &str, fields: &str, story: &[(&str, &str)]) {
    for (line, expected) in story {
        assert!(!client.ask(line).is_error(), "{line}");
        let info = client.ask(format!("{info} key"));
        let shown = fields
            .split(' ')
            .map(|field| format!("{:?}", info.field(field)));
        assert_eq!(shown.collect::<Vec<_>>().join(" "), *expected, "{line}");
    }
}

#[test]
fn info_of_semaphore_shows_its_limit_and_permits() {
    let server = Server::start();
    expect_fields(
        &mut server.connect(),
        "DSEM.INFO",
        "state limit pinned-limit available holders",
        &[
            ("DSEM.ACQUIRE key LIMIT 3 PERMITS 2", "\"open\" 3 nil 1 1"),
            ("DSEM.ACQUIRE key", "\"full\" 3 nil 0 2"),
            ("DSEM.LIMIT key 5", "\"open\" 5 5 2 2"),
            ("DSEM.LIMIT key 1", "\"full\" 1 1 0 2"),
            ("DSEM.LIMIT key 0", "\"paused\" 0 0 0 2"),
        ],
    );
}

#[test]
fn info_of_group_shows_its_round() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DWG.EXPECT key 5");
    let (one, _) = client.ask("DWG.ADD key LIMIT 4").grant();
    let (_, fence) = client.ask("DWG.ADD key").grant();
    client.ask("DWG.ADD key").grant();
    client.ask(format!("DWG.DONE key {one}"));
    client.ask(format!("DWG.REVOKE key {fence}"));
    let info = client.ask("DWG.INFO key");
    let numbers = ["limit", "expected", "owed", "done", "lapsed", "holders"]
        .map(|field| info.field(field).as_int());
    assert_eq!(numbers, [4, 5, 4, 1, 1, 1]);
    assert_eq!(*info.field("state"), "open");
    assert!(info.field("kept-until-unix-ms").is_nil());

    let _watcher = server.waiting("DWG.WAIT key BLOCK 0");
    let info = client.ask("DWG.INFO key");
    assert_eq!(*info.field("waiters"), 1);
    let watcher = &info.field("first-waiters").as_array()[0];
    assert_eq!(*watcher.field("mode"), "wait");
    assert!(watcher.field("owner").is_nil());
}

#[test]
fn info_of_once_key_shows_its_attempts_and_result() {
    let server = Server::start();
    let mut client = server.connect();
    expect_fields(
        &mut client,
        "DONCE.INFO",
        "state attempts last-reason result-bytes holders",
        &[
            ("DONCE.BEGIN key TOKEN one", "\"running\" 1 nil nil 1"),
            (
                "DONCE.FAIL key one REASON late",
                "\"idle\" 1 \"late\" nil 0",
            ),
            ("DONCE.BEGIN key TOKEN two", "\"running\" 2 \"late\" nil 1"),
            (
                "DONCE.DONE key two RESULT result EX 100",
                "\"done\" 2 \"late\" 6 0",
            ),
        ],
    );
    let time = client.ask("TIME").as_array()[0]
        .as_str()
        .parse::<i64>()
        .expect("seconds");
    let until = client
        .ask("DONCE.INFO key")
        .field("kept-until-unix-ms")
        .as_int();
    assert!(
        (time * 1_000 + 90_000..=time * 1_000 + 101_000).contains(&until),
        "{until} at {time} s"
    );
}

#[test]
fn info_lists_waiters_in_order_with_owner_client_and_age() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DSEM.ACQUIRE key LIMIT 9 PERMITS 9").grant();
    assert_eq!(*client.ask("DSEM.INFO key").field("longest-wait-ms"), 0);
    let mut waiters = Vec::new();
    for (count, permits) in [(1, "3"), (2, "1"), (3, "2")] {
        let mut waiter = server.connect();
        let id = waiter.id().cast_signed();
        let owner = format!("worker {count}");
        waiter.send(&[
            "DSEM.ACQUIRE",
            "key",
            "PERMITS",
            permits,
            "OWNER",
            &owner,
            "BLOCK",
            "0",
        ]);
        server.wait_for_blocked(count);
        waiters.push((waiter, id, owner, permits));
    }
    eventually("the last to have waited for a while", SOON, || {
        let info = client.ask("DSEM.INFO key");
        info.field("first-waiters").as_array()[2]
            .field("age-ms")
            .as_int()
            > 0
    });
    let info = client.ask("DSEM.INFO key");
    assert_eq!(*info.field("waiters"), 3);
    let shown = info.field("first-waiters").as_array();
    for (waiter, (_, id, owner, permits)) in shown.iter().zip(&waiters) {
        assert_eq!(*waiter.field("owner"), owner.as_str());
        assert_eq!(*waiter.field("client"), *id);
        assert_eq!(waiter.field("permits").as_int().to_string(), *permits);
    }
    let ages: Vec<_> = shown
        .iter()
        .map(|waiter| waiter.field("age-ms").as_int())
        .collect();
    assert!(
        ages.is_sorted_by(|older, younger| older >= younger),
        "{ages:?}"
    );
    assert_eq!(info.field("longest-wait-ms").as_int(), ages[0]);

    // When the first waiter leaves, the list begins with the next one.
    waiters.remove(0).0.close();
    eventually("the head to be gone", SOON, || {
        *client.ask("DSEM.INFO key").field("waiters") == 2
    });
    let info = client.ask("DSEM.INFO key");
    assert_eq!(
        *info.field("first-waiters").as_array()[0].field("client"),
        waiters[0].1
    );
}

#[test]
fn info_does_not_show_vacant_places() {
    let server = Server::builder()
        .module_arg("rejoin-ms")
        .module_arg(600_000)
        .start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE key").grant();
    let waiter = server.waiting("DLOCK.ACQUIRE key BLOCK 0 TOKEN t");
    eventually("the waiter to have waited for a while", SOON, || {
        client
            .ask("DLOCK.INFO key")
            .field("longest-wait-ms")
            .as_int()
            >= 60
    });
    waiter.close();
    eventually("the waiter to be gone", SOON, || {
        *client.ask("DLOCK.INFO key").field("waiters") == 0
    });
    let info = client.ask("DLOCK.INFO key");
    assert!(info.field("first-waiters").as_array().is_empty());
    assert_eq!(*info.field("longest-wait-ms"), 0);
    // When the token resumes its place, its age counts from the first request.
    let mut waiter = server.waiting("DLOCK.ACQUIRE key BLOCK 0 TOKEN t");
    assert_eq!(*client.ask("DLOCK.INFO key").field("waiters"), 1);
    let info = client.ask("DLOCK.INFO key");
    assert!(info.field("longest-wait-ms").as_int() >= 60, "{info:?}");
    client.ask("DEL key");
    assert_eq!(waiter.recv(SOON).expect("granted").grant().0, "t");
}
