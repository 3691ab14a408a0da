//! Wait groups: rounds that begin, finish and are remembered; who is counted as done and who as lost;
//! the gate that lets so many members live at once.

use crate::support::*;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);
const A_WHILE: Duration = Duration::from_millis(60);

/// Sends a request that must wait, and returns when it is the `count`th blocked client.
#[track_caller]
fn queue(server: &Server, request: &[&str], count: u64) -> Client {
    let mut client = server.connect();
    client.send(request);
    wait_for_blocked(server, count);
    client
}

#[track_caller]
fn add(client: &mut Client) -> String {
    call!(client, "DWG.ADD", "group").grant().0
}

#[track_caller]
fn assert_tally(reply: &Reply, done: i64, lapsed: i64) {
    let expected = Reply::Array(vec![Reply::Int(done), Reply::Int(lapsed)]);
    assert_eq!(*reply, expected, "[done, lapsed]");
}

#[track_caller]
fn told(waiter: &mut Client) -> Reply {
    waiter.recv(SOON).expect("an answer")
}

#[track_caller]
fn state(client: &mut Client) -> String {
    call!(client, "DWG.INFO", "group")
        .field("state")
        .as_str()
        .to_owned()
}

#[test]
fn wait_on_a_group_that_does_not_exist_is_over_at_once() {
    let server = Server::start();
    let mut client = server.connect();
    assert_tally(&call!(client, "DWG.WAIT", "group"), 0, 0);
    assert_tally(&call!(client, "DWG.WAIT", "group", "BLOCK", 0), 0, 0);
    assert_eq!(call!(client, "EXISTS", "group"), 0);
}

#[test]
fn a_round_finishes_with_its_last_member_and_every_waiter_is_told() {
    let server = Server::start();
    let mut client = server.connect();
    let (one, two) = (add(&mut client), add(&mut client));
    assert!(
        call!(client, "DWG.WAIT", "group").is_nil(),
        "not finished yet"
    );
    let mut waiters = [
        queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1),
        queue(&server, &["DWG.WAIT", "group", "BLOCK", "60000"], 2),
    ];
    assert_eq!(call!(client, "DWG.DONE", "group", one), 1);
    waiters
        .iter_mut()
        .for_each(|waiter| waiter.expect_silence(A_WHILE));
    assert_eq!(state(&mut client), "open");
    assert_eq!(call!(client, "DWG.DONE", "group", two), 1);
    waiters
        .iter_mut()
        .for_each(|waiter| assert_tally(&told(waiter), 2, 0));
    assert_eq!(state(&mut client), "finished");
    assert_tally(&call!(client, "DWG.WAIT", "group"), 2, 0);
}

#[test]
fn a_round_finishes_without_anybody_waiting() {
    let server = Server::start();
    let mut client = server.connect();
    let token = add(&mut client);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    // Finished is finished: the next member belongs to the next round, though nobody has asked yet.
    assert_eq!(state(&mut client), "finished");
    add(&mut client);
    let info = call!(client, "DWG.INFO", "group");
    assert_eq!(
        (info.field("state"), info.field("done")),
        (&Reply::Bulk(b"open".to_vec()), &Reply::Int(0))
    );
}

#[test]
fn the_tally_is_kept_for_group_keep_ms_and_then_gone() {
    let server = Server::builder()
        .module_arg("group-keep-ms")
        .module_arg(2_500)
        .start();
    let mut client = server.connect();
    let token = add(&mut client);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    let until = call!(client, "DWG.INFO", "group")
        .field("kept-until-unix-ms")
        .as_int();
    let time = call!(client, "TIME");
    let now = time.as_array()[0].as_str().parse::<i64>().expect("seconds") * 1_000;
    assert!((now..=now + 3_500).contains(&until), "{until} at {now}");
    assert_tally(&call!(client, "DWG.WAIT", "group"), 1, 0);
    assert_tally(&call!(client, "DWG.WAIT", "group", "BLOCK", 0), 1, 0);
    assert_eq!(
        call!(client, "TTL", "group"),
        -1,
        "the engine's deadline, not Redis' own"
    );
    eventually("the end of the tally", SOON, || {
        call!(client, "EXISTS", "group") == 0
    });
    assert_tally(&call!(client, "DWG.WAIT", "group"), 0, 0);
}

#[test]
fn without_a_time_to_keep_it_a_finished_group_is_gone_at_once_and_its_waiters_know() {
    let server = Server::builder()
        .module_arg("group-keep-ms")
        .module_arg(0)
        .start();
    let mut client = server.connect();
    let token = add(&mut client);
    let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    assert_eq!(call!(client, "EXISTS", "group"), 0);
    assert_tally(&told(&mut waiter), 1, 0);
}

#[test]
fn the_next_add_or_expect_starts_a_new_round() {
    let server = Server::start();
    let mut client = server.connect();
    for begin in ["ADD", "EXPECT"] {
        call!(client, "DEL", "group");
        assert_eq!(call!(client, "DWG.EXPECT", "group", 1), 1);
        let token = add(&mut client);
        assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
        assert_tally(&call!(client, "DWG.WAIT", "group"), 1, 0);
        if begin == "EXPECT" {
            assert_eq!(
                call!(client, "DWG.EXPECT", "group", 2),
                2,
                "nothing of the last round counts"
            );
            assert!(call!(client, "DWG.WAIT", "group").is_nil());
            for _ in 0..2 {
                let token = add(&mut client);
                assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
            }
            assert_tally(&call!(client, "DWG.WAIT", "group"), 2, 0);
        } else {
            // Nor does its total: one member is all there is to it.
            let token = add(&mut client);
            assert!(
                call!(client, "DWG.INFO", "group")
                    .field("expected")
                    .is_nil()
            );
            let fence = call!(client, "DWG.INFO", "group")
                .field("first-holders")
                .as_array()[0]
                .field("fence")
                .as_int();
            assert_eq!(call!(client, "DWG.REVOKE", "group", fence), 1);
            assert_eq!(call!(client, "DWG.CHECK", "group", token), 0);
            assert_tally(&call!(client, "DWG.WAIT", "group"), 0, 1);
        }
    }
}

#[test]
fn expect_closes_the_race_of_waiting_before_everyone_was_added() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(call!(client, "DWG.EXPECT", "group", 3), 3);
    let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);
    for job in 1..=3 {
        waiter.expect_silence(A_WHILE);
        let token = add(&mut client);
        let owed = call!(client, "DWG.INFO", "group").field("owed").as_int();
        assert_eq!(owed, 4 - job, "a member that lives is still owed");
        assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    }
    assert_tally(&told(&mut waiter), 3, 0);
}

#[test]
fn more_than_expected_may_be_done_and_members_that_live_are_waited_for() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(call!(client, "DWG.EXPECT", "group", 1), 1);
    let tokens = [add(&mut client), add(&mut client)];
    assert_eq!(call!(client, "DWG.DONE", "group", &tokens[0]), 1);
    assert!(
        call!(client, "DWG.WAIT", "group").is_nil(),
        "one is still at it"
    );
    assert_eq!(call!(client, "DWG.DONE", "group", &tokens[1]), 1);
    assert_tally(&call!(client, "DWG.WAIT", "group"), 2, 0);
}

#[test]
fn a_total_may_be_revised_up_and_down() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(call!(client, "DWG.EXPECT", "group", 2), 2);
    let token = add(&mut client);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    assert_eq!(call!(client, "DWG.EXPECT", "group", 5), 4);
    let token = add(&mut client);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);

    // Below what is done, with a member that lives: it finishes with that one.
    let last = add(&mut client);
    assert_eq!(call!(client, "DWG.EXPECT", "group", 1), 0);
    waiter.expect_silence(A_WHILE);
    assert_eq!(call!(client, "DWG.RELEASE", "group", last), 1);
    assert_tally(&told(&mut waiter), 2, 0);

    // At what is done, with nobody left: it finishes with the command itself.
    assert_eq!(call!(client, "DWG.EXPECT", "group", 2), 2);
    let token = add(&mut client);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);
    assert_eq!(call!(client, "DWG.EXPECT", "group", 1), 0);
    assert_tally(&told(&mut waiter), 1, 0);
}

#[test]
fn a_lapsed_member_is_counted_and_its_job_stays_owed() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(call!(client, "DWG.EXPECT", "group", 1), 1);
    let (lost, _) = call!(client, "DWG.ADD", "group", "PX", 40).grant();
    let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);
    eventually("the lapse", SOON, || {
        *call!(client, "DWG.INFO", "group").field("lapsed") == 1
    });
    assert_eq!(*call!(client, "DWG.INFO", "group").field("owed"), 1);
    waiter.expect_silence(A_WHILE);
    assert_eq!(call!(client, "DWG.DONE", "group", lost), 0, "too late");
    waiter.expect_silence(A_WHILE);
    let token = add(&mut client);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    assert_tally(&told(&mut waiter), 1, 1);
}

#[test]
fn without_a_total_the_last_lapse_finishes_the_round() {
    let server = Server::start();
    let mut client = server.connect();
    let token = add(&mut client);
    call!(client, "DWG.ADD", "group", "PX", 150).grant();
    let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    assert_tally(&told(&mut waiter), 1, 1);
}

#[test]
fn a_released_member_is_not_tallied_and_its_job_stays_owed() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(call!(client, "DWG.EXPECT", "group", 1), 1);
    let token = add(&mut client);
    assert_eq!(call!(client, "DWG.RELEASE", "group", &token), 1);
    assert_eq!(call!(client, "DWG.RELEASE", "group", &token), 0);
    assert_eq!(call!(client, "DWG.DONE", "group", &token), 0);
    let info = call!(client, "DWG.INFO", "group");
    let counts = ["done", "lapsed", "owed"].map(|field| info.field(field).as_int());
    assert_eq!(counts, [0, 0, 1]);
    assert!(call!(client, "DWG.WAIT", "group").is_nil());
    let token = add(&mut client);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    assert_tally(&call!(client, "DWG.WAIT", "group"), 1, 0);

    // Where no total was declared, a release can be what finishes the round.
    let token = add(&mut client);
    let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);
    assert_eq!(call!(client, "DWG.RELEASE", "group", token), 1);
    assert_tally(&told(&mut waiter), 0, 0);
}

#[test]
fn a_revoked_member_is_lost() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, fence) = call!(client, "DWG.ADD", "group").grant();
    let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);
    assert_eq!(call!(client, "DWG.REVOKE", "group", fence), 1);
    assert_tally(&told(&mut waiter), 0, 1);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 0);
    assert_eq!(call!(client, "DWG.REVOKE", "group", fence), 0);
}

#[test]
fn done_again_or_too_late_counts_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, other) = (add(&mut client), add(&mut client));
    assert_eq!(call!(client, "DWG.DONE", "group", &token), 1);
    assert_eq!(call!(client, "DWG.DONE", "group", &token), 0);
    assert_eq!(call!(client, "DWG.DONE", "group", "never seen"), 0);
    assert_eq!(call!(client, "DWG.DONE", "absent", &token), 0);
    assert_eq!(call!(client, "EXISTS", "absent"), 0);
    assert!(call!(client, "DWG.WAIT", "group").is_nil());
    assert_eq!(call!(client, "DWG.DONE", "group", &other), 1);
    assert_eq!(call!(client, "DWG.DONE", "group", &other), 0);
    assert_tally(&call!(client, "DWG.WAIT", "group"), 2, 0);

    call!(client, "DWG.ADD", "group", "TOKEN", "slow", "PX", 20).grant();
    eventually("the lapse", SOON, || {
        *call!(client, "DWG.INFO", "group").field("holders") == 0
    });
    assert_eq!(call!(client, "DWG.DONE", "group", "slow"), 0);
    assert_tally(&call!(client, "DWG.WAIT", "group"), 0, 1);
}

#[test]
fn one_done_ends_many_members_each_once() {
    let server = Server::start();
    let mut client = server.connect();
    let tokens: Vec<_> = (0..500).map(|_| add(&mut client)).collect();
    let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);
    // Ten of them twice, and one that nobody has.
    let mut request = vec!["DWG.DONE", "group", "nobody's"];
    request.extend(tokens[..499].iter().map(String::as_str));
    request.extend(tokens[..10].iter().map(String::as_str));
    assert_eq!(client.call(&request), 499);
    assert_eq!(client.call(&request), 0);
    waiter.expect_silence(A_WHILE);
    assert_eq!(call!(client, "DWG.DONE", "group", &tokens[499]), 1);
    assert_tally(&told(&mut waiter), 500, 0);
}

#[test]
fn the_gate_lets_so_many_live_and_the_others_in_their_order() {
    let server = Server::start();
    let mut client = server.connect();
    let first = call!(client, "DWG.ADD", "group", "LIMIT", 2).grant().0;
    let second = add(&mut client);
    assert!(
        call!(client, "DWG.ADD", "group").is_nil(),
        "the gate of the first is in force"
    );
    let request = ["DWG.ADD", "group", "LIMIT", "2", "BLOCK", "0"];
    let mut waiters: Vec<_> = (1..=4)
        .map(|count| queue(&server, &request, count))
        .collect();
    // Whoever waits to be added is waited for.
    let mut watcher = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 5);

    let mut live = vec![first, second];
    let mut last = 0;
    for at in 0..4 {
        for waiter in &mut waiters[at..] {
            waiter.expect_silence(Duration::from_millis(10));
        }
        assert_eq!(call!(client, "DWG.DONE", "group", live.remove(0)), 1);
        let (token, fence) = told(&mut waiters[at]).grant();
        assert!(fence > last, "in their order");
        last = fence;
        live.push(token);
        assert_eq!(*call!(client, "DWG.INFO", "group").field("holders"), 2);
    }
    watcher.expect_silence(A_WHILE);
    assert_eq!(call!(client, "DWG.DONE", "group", &live[0], &live[1]), 2);
    assert_tally(&told(&mut watcher), 6, 0);
}

#[test]
fn a_round_is_not_over_while_somebody_waits_to_be_added() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, _) = call!(client, "DWG.ADD", "group", "LIMIT", 1).grant();
    let mut worker = queue(&server, &["DWG.ADD", "group", "BLOCK", "0"], 1);
    let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 2);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    let (token, _) = told(&mut worker).grant();
    waiter.expect_silence(A_WHILE);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    assert_tally(&told(&mut waiter), 2, 0);
}

#[test]
fn a_gate_that_widens_lets_waiters_in_and_one_that_narrows_drains() {
    let server = Server::start();
    let mut client = server.connect();
    let first = call!(client, "DWG.ADD", "group", "LIMIT", 1).grant().0;
    let request = ["DWG.ADD", "group", "BLOCK", "0"];
    let mut waiters = [queue(&server, &request, 1), queue(&server, &request, 2)];
    // A refused try brings no gate along.
    assert!(call!(client, "DWG.ADD", "group", "LIMIT", 9).is_nil());
    assert_eq!(*call!(client, "DWG.INFO", "group").field("limit"), 1);
    // One that queues does: there is room for the two before it and for itself.
    let mut wide = server.connect();
    wide.send(&["DWG.ADD", "group", "LIMIT", "4", "BLOCK", "0"]);
    let mut live: Vec<_> = waiters
        .iter_mut()
        .map(|waiter| told(waiter).grant().0)
        .collect();
    live.push(told(&mut wide).grant().0);
    live.push(first);
    assert_eq!(*call!(client, "DWG.INFO", "group").field("limit"), 4);
    assert_eq!(
        *call!(client, "DWG.INFO", "group").field("limit-changes"),
        1
    );

    let mut narrow = queue(
        &server,
        &["DWG.ADD", "group", "LIMIT", "2", "BLOCK", "0"],
        1,
    );
    assert_eq!(
        *call!(client, "DWG.INFO", "group").field("holders"),
        4,
        "nobody is thrown out"
    );
    for token in live.drain(..2) {
        assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
        narrow.expect_silence(A_WHILE);
    }
    assert_eq!(call!(client, "DWG.DONE", "group", live.remove(0)), 1);
    told(&mut narrow).grant();
}

#[test]
fn without_a_limit_there_is_no_gate() {
    let server = Server::start();
    let mut client = server.connect();
    for _ in 0..2_000 {
        client.send(&["DWG.ADD", "group"]);
    }
    (0..2_000).for_each(|_| drop(told(&mut client).grant()));
    assert_eq!(*call!(client, "DWG.INFO", "group").field("holders"), 2_000);
    assert!(call!(client, "DWG.INFO", "group").field("limit").is_nil());
}

#[test]
fn a_wait_that_runs_out_is_nil_and_the_round_goes_on() {
    let server = Server::start();
    let mut client = server.connect();
    let token = add(&mut client);
    assert!(call!(client, "DWG.WAIT", "group", "BLOCK", 30).is_nil());
    assert!(call!(client, "DWG.WAIT", "group", "BLOCK", 1).is_nil());
    wait_for_blocked(&server, 0);
    assert_eq!(*call!(client, "DWG.INFO", "group").field("waiters"), 0);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    assert_tally(&call!(client, "DWG.WAIT", "group", "BLOCK", 30), 1, 0);
}

#[test]
fn waits_of_a_removed_group_are_unblocked_and_not_told_that_it_finished() {
    let server = Server::start();
    let mut client = server.connect();
    let ways: [&[&str]; 6] = [
        &["DEL", "group"],
        &["UNLINK", "group"],
        &["FLUSHALL"],
        &["FLUSHDB", "ASYNC"],
        &["RENAME", "group", "elsewhere"],
        &["PEXPIRE", "group", "1"],
    ];
    for way in ways {
        add(&mut client);
        let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);
        assert!(!client.call(way).is_error());
        if way[0] == "PEXPIRE" {
            eventually("the key's end", SOON, || {
                call!(client, "EXISTS", "group") == 0
            });
        }
        let reply = told(&mut waiter);
        assert!(
            reply.error().starts_with("UNBLOCKED "),
            "{way:?}: {reply:?}"
        );
        wait_for_blocked(&server, 0);
        call!(client, "FLUSHALL");
    }
}

#[test]
fn waits_of_a_group_that_is_removed_and_made_anew_in_one_step_are_unblocked_too() {
    let server = Server::start();
    let mut client = server.connect();
    add(&mut client);
    let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);
    call!(client, "MULTI");
    call!(client, "DEL", "group");
    call!(client, "DWG.ADD", "group", "TOKEN", "new");
    call!(client, "EXEC");
    let reply = told(&mut waiter);
    assert!(reply.error().starts_with("UNBLOCKED "), "{reply:?}");
    assert!(call!(client, "DWG.CHECK", "group", "new").as_int() > 0);
}

#[test]
fn waits_of_a_group_that_another_type_overwrites_are_told() {
    let server = Server::start();
    let mut client = server.connect();
    add(&mut client);
    let mut watcher = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);
    call!(client, "SET", "group", "text");
    let reply = told(&mut watcher);
    let text = reply.error();
    assert!(
        text.starts_with("WRONGTYPE ") || text.starts_with("UNBLOCKED "),
        "{reply:?}"
    );
}

#[test]
fn a_thousand_waits_are_all_answered() {
    const WAITS: u64 = 1_000;
    let server = Server::start();
    let mut client = server.connect();
    let token = add(&mut client);
    let mut waiters: Vec<_> = (0..WAITS).map(|_| server.connect()).collect();
    waiters
        .iter_mut()
        .for_each(|waiter| waiter.send(&["DWG.WAIT", "group", "BLOCK", "0"]));
    wait_for_blocked(&server, WAITS);
    assert_eq!(*call!(client, "DWG.INFO", "group").field("waiters"), 1_000);
    assert_eq!(call!(client, "DWG.DONE", "group", token), 1);
    // A new round begins while they are being answered: it is not theirs.
    let next = add(&mut client);
    for waiter in &mut waiters {
        assert_tally(&told(waiter), 1, 0);
    }
    wait_for_blocked(&server, 0);
    for waiter in &mut waiters {
        assert_eq!(call!(waiter, "PING"), "PONG", "one answer each");
    }
    assert_eq!(call!(client, "DWG.DONE", "group", next), 1);
}

#[test]
fn an_ephemeral_member_is_lost_with_its_connection() {
    let server = Server::start();
    let mut client = server.connect();
    let mut worker = server.connect();
    call!(worker, "DWG.ADD", "group", "EPHEMERAL").grant();
    let (kept, _) = call!(server.connect(), "DWG.ADD", "group").grant();
    let mut waiter = queue(&server, &["DWG.WAIT", "group", "BLOCK", "0"], 1);
    worker.close();
    eventually("the loss", SOON, || {
        *call!(client, "DWG.INFO", "group").field("lapsed") == 1
    });
    // The other's connection is closed as well, but only the lease ends that one.
    waiter.expect_silence(A_WHILE);
    assert_eq!(call!(client, "DWG.DONE", "group", kept), 1);
    assert_tally(&told(&mut waiter), 1, 1);
}

#[test]
fn an_ephemeral_member_makes_room_at_the_gate() {
    let server = Server::start();
    let mut worker = server.connect();
    call!(worker, "DWG.ADD", "group", "LIMIT", 1, "EPHEMERAL").grant();
    let mut next = queue(&server, &["DWG.ADD", "group", "BLOCK", "0"], 1);
    worker.close();
    told(&mut next).grant();
}

#[test]
fn an_idle_group_vanishes_and_one_with_members_or_waiters_does_not() {
    let server = Server::builder()
        .module_arg("group-idle-ms")
        .module_arg(1_500)
        .start();
    let mut client = server.connect();
    for (group, jobs) in [("idle", 1), ("watched", 1), ("lived-in", 1)] {
        assert_eq!(call!(client, "DWG.EXPECT", group, jobs), 1);
    }
    call!(client, "DWG.ADD", "lived-in").grant();
    let mut waiter = queue(&server, &["DWG.WAIT", "watched", "BLOCK", "0"], 1);
    eventually("the idle group's end", SOON, || {
        call!(client, "EXISTS", "idle") == 0
    });
    assert_tally(&call!(client, "DWG.WAIT", "idle"), 0, 0);
    // The others were touched no later, so theirs would have come by now.
    let mut later = server.connect();
    assert_eq!(call!(later, "DWG.EXPECT", "later", 1), 1);
    eventually("another's end", SOON, || {
        call!(client, "EXISTS", "later") == 0
    });
    assert_eq!(call!(client, "EXISTS", "watched", "lived-in"), 2);
    waiter.expect_silence(A_WHILE);
    // Once nobody watches it any more, its time begins to run.
    waiter.close();
    wait_for_blocked(&server, 0);
    assert_eq!(call!(client, "EXISTS", "watched"), 1);
    eventually("the watched group's end", SOON, || {
        call!(client, "EXISTS", "watched") == 0
    });
    assert_eq!(call!(client, "EXISTS", "lived-in"), 1);
}

#[test]
fn members_are_renewed_and_checked_like_any_hold() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, fence) = call!(client, "DWG.ADD", "group", "PX", 5_000, "TOKEN", "t").grant();
    assert!((1..=5_000).contains(&call!(client, "DWG.CHECK", "group", &token).as_int()));
    assert_eq!(call!(client, "DWG.RENEW", "group", &token, "PX", 50_000), 1);
    assert!(call!(client, "DWG.CHECK", "group", &token).as_int() > 5_000);
    assert_eq!(call!(client, "DWG.RENEW", "group", &token), 1);
    let left = call!(client, "DWG.CHECK", "group", &token).as_int();
    assert!(
        (30_001..=50_000).contains(&left),
        "as long as the last lease: {left}"
    );
    // The same request again is the same member, not another one.
    assert_eq!(
        call!(client, "DWG.ADD", "group", "TOKEN", "t").grant(),
        (token.clone(), fence)
    );
    assert_eq!(call!(client, "DWG.DONE", "group", &token), 1);
    assert_eq!(call!(client, "DWG.RENEW", "group", &token), 0);
    assert_eq!(call!(client, "DWG.CHECK", "group", &token), 0);
    assert_tally(&call!(client, "DWG.WAIT", "group"), 1, 0);
}
