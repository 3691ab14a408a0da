//! Wait groups, rounds: what finishes one, what EXPECT declares, how long the tally is kept, and what begins the next.
//!
//! How members end is in `group_members`, the gate in `group_gate`, WAIT in `group_waits`.

use crate::commands::group_steps::*;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn group_round_finishes_with_its_last_member() {
    let server = Server::start();
    let mut client = server.connect();
    let (one, two) = (add(&mut client), add(&mut client));
    assert!(client.ask("DWG.WAIT group").is_nil(), "not finished yet");
    let mut waiters = [
        server.waiting("DWG.WAIT group BLOCK 0"),
        server.waiting("DWG.WAIT group BLOCK 60000"),
    ];
    assert_eq!(client.ask(format!("DWG.DONE group {one}")), 1);
    waiters
        .iter_mut()
        .for_each(|waiter| waiter.expect_silence(A_WHILE));
    assert_eq!(state(&mut client), "open");
    assert_eq!(client.ask(format!("DWG.DONE group {two}")), 1);
    waiters
        .iter_mut()
        .for_each(|waiter| assert_tally(&waiter.reply(), 2, 0));
    assert_eq!(state(&mut client), "finished");
    assert_tally(&client.ask("DWG.WAIT group"), 2, 0);
}

#[test]
fn group_round_finishes_without_any_wait() {
    let server = Server::start();
    let mut client = server.connect();
    let token = add(&mut client);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    // The round is finished although nobody sent WAIT: the next member belongs to the next round.
    assert_eq!(state(&mut client), "finished");
    add(&mut client);
    let info = client.ask("DWG.INFO group");
    assert_eq!(
        (info.field("state"), info.field("done")),
        (&Reply::Bulk(b"open".to_vec()), &Reply::Int(0))
    );
}

#[test]
fn group_tally_is_kept_for_group_keep_ms() {
    let server = Server::builder()
        .module_arg("group-keep-ms")
        .module_arg(2_500)
        .start();
    let mut client = server.connect();
    let token = add(&mut client);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    let until = client
        .ask("DWG.INFO group")
        .field("kept-until-unix-ms")
        .as_int();
    let time = client.ask("TIME");
    let now = time.as_array()[0].as_str().parse::<i64>().expect("seconds") * 1_000;
    assert!((now..=now + 3_500).contains(&until), "{until} at {now}");
    assert_tally(&client.ask("DWG.WAIT group"), 1, 0);
    assert_tally(&client.ask("DWG.WAIT group BLOCK 0"), 1, 0);
    assert_eq!(
        client.ask("TTL group"),
        -1,
        "the engine's deadline, not Redis' own"
    );
    eventually("the end of the tally", SOON, || {
        client.ask("EXISTS group") == 0
    });
    assert_tally(&client.ask("DWG.WAIT group"), 0, 0);
}

/// A client queued an ADD in a PAUSE and died. Its turn began a new round, which wiped the tally of the finished one.
#[test]
fn group_tally_comes_back_after_the_turn_of_a_dead_place() {
    let server = Server::start();
    let mut client = server.connect();
    let token = add(&mut client);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    let kept_until = |client: &mut Client| {
        let info = client.ask("DWG.INFO group");
        info.field("kept-until-unix-ms").clone()
    };
    let until = kept_until(&mut client);
    client.ask("DWG.PAUSE group 60000");
    client.ask("DWG.ADD group TOKEN dead QUEUE 1000");
    client.ask("DWG.PAUSE group 0");
    assert_eq!(server.info_number("dsync", "dsync_wg_holds"), 1);
    assert_tally(&client.ask("DWG.WAIT group BLOCK 0"), 1, 0);
    assert_eq!(server.info_number("dsync", "dsync_wg_undelivered"), 1);
    assert_eq!(state(&mut client), "finished");
    assert_eq!(kept_until(&mut client), until, "its time has gone on");

    // A member that is heard of begins a round of its own.
    client.ask("DWG.PAUSE group 60000");
    let request = "DWG.ADD group TOKEN late QUEUE 60000";
    client.ask(request);
    client.ask("DWG.PAUSE group 0");
    client.ask(request).grant();
    assert_eq!(client.ask("DWG.RELEASE group late"), 1);
    assert_tally(&client.ask("DWG.WAIT group"), 0, 0);
}

#[test]
fn group_kept_for_0_ms_is_gone_when_its_round_finishes() {
    let server = Server::builder()
        .module_arg("group-keep-ms")
        .module_arg(0)
        .start();
    let mut client = server.connect();
    let token = add(&mut client);
    let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    assert_eq!(client.ask("EXISTS group"), 0);
    assert_tally(&waiter.reply(), 1, 0);
}

#[test]
fn group_add_or_expect_after_finish_starts_a_new_round() {
    let server = Server::start();
    let mut client = server.connect();
    for begin in ["ADD", "EXPECT"] {
        client.ask("DEL group");
        assert_eq!(client.ask("DWG.EXPECT group 1"), 1);
        let token = add(&mut client);
        assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
        assert_tally(&client.ask("DWG.WAIT group"), 1, 0);
        if begin == "EXPECT" {
            assert_eq!(
                client.ask("DWG.EXPECT group 2"),
                2,
                "the jobs of the last round do not count"
            );
            assert!(client.ask("DWG.WAIT group").is_nil());
            for _ in 0..2 {
                let token = add(&mut client);
                assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
            }
            assert_tally(&client.ask("DWG.WAIT group"), 2, 0);
        } else {
            // The last round's total does not count either: this round has one member and no total.
            let token = add(&mut client);
            assert!(client.ask("DWG.INFO group").field("expected").is_nil());
            let fence = client
                .ask("DWG.INFO group")
                .field("first-holders")
                .as_array()[0]
                .field("fence")
                .as_int();
            assert_eq!(client.ask(format!("DWG.REVOKE group {fence}")), 1);
            assert_eq!(client.ask(format!("DWG.CHECK group {token}")), 0);
            assert_tally(&client.ask("DWG.WAIT group"), 0, 1);
        }
    }
}

#[test]
fn group_expect_keeps_wait_until_all_are_added_and_done() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("DWG.EXPECT group 3"), 3);
    let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");
    for job in 1..=3 {
        waiter.expect_silence(A_WHILE);
        let token = add(&mut client);
        let owed = client.ask("DWG.INFO group").field("owed").as_int();
        assert_eq!(owed, 4 - job, "a member that lives is still owed");
        assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    }
    assert_tally(&waiter.reply(), 3, 0);
}

#[test]
fn group_round_with_more_than_expected_waits_for_live_members() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("DWG.EXPECT group 1"), 1);
    let tokens = [add(&mut client), add(&mut client)];
    assert_eq!(client.ask(format!("DWG.DONE group {}", tokens[0])), 1);
    assert!(
        client.ask("DWG.WAIT group").is_nil(),
        "one member still works"
    );
    assert_eq!(client.ask(format!("DWG.DONE group {}", tokens[1])), 1);
    assert_tally(&client.ask("DWG.WAIT group"), 2, 0);
}

#[test]
fn group_total_can_be_raised_and_lowered() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("DWG.EXPECT group 2"), 2);
    let token = add(&mut client);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    assert_eq!(client.ask("DWG.EXPECT group 5"), 4);
    let token = add(&mut client);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");

    // A total below what is done: the round finishes when its last live member ends.
    let last = add(&mut client);
    assert_eq!(client.ask("DWG.EXPECT group 1"), 0);
    waiter.expect_silence(A_WHILE);
    assert_eq!(client.ask(format!("DWG.RELEASE group {last}")), 1);
    assert_tally(&waiter.reply(), 2, 0);

    // A total equal to what is done, and no live member: EXPECT itself finishes the round.
    assert_eq!(client.ask("DWG.EXPECT group 2"), 2);
    let token = add(&mut client);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");
    assert_eq!(client.ask("DWG.EXPECT group 1"), 0);
    assert_tally(&waiter.reply(), 1, 0);
}

#[test]
fn group_round_without_total_finishes_with_the_last_lapse() {
    let server = Server::start();
    let mut client = server.connect();
    let token = add(&mut client);
    client.ask("DWG.ADD group PX 150").grant();
    let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    assert_tally(&waiter.reply(), 1, 1);
}

#[test]
fn group_idle_vanishes_unless_it_has_members_or_waiters() {
    let server = Server::builder()
        .module_arg("group-idle-ms")
        .module_arg(1_500)
        .start();
    let mut client = server.connect();
    for (group, jobs) in [("idle", 1), ("watched", 1), ("lived-in", 1)] {
        assert_eq!(client.ask(format!("DWG.EXPECT {group} {jobs}")), 1);
    }
    client.ask("DWG.ADD lived-in").grant();
    let mut waiter = server.waiting("DWG.WAIT watched BLOCK 0");
    eventually("the idle group's end", SOON, || {
        client.ask("EXISTS idle") == 0
    });
    assert_tally(&client.ask("DWG.WAIT idle"), 0, 0);
    // A group made after them vanishes, so the time of the two others would have run out as well.
    let mut later = server.connect();
    assert_eq!(later.ask("DWG.EXPECT later 1"), 1);
    eventually("another's end", SOON, || client.ask("EXISTS later") == 0);
    assert_eq!(client.ask("EXISTS watched lived-in"), 2);
    waiter.expect_silence(A_WHILE);
    // The idle time of a group begins when its last WAIT leaves.
    waiter.close();
    server.wait_for_blocked(0);
    assert_eq!(client.ask("EXISTS watched"), 1);
    eventually("the watched group's end", SOON, || {
        client.ask("EXISTS watched") == 0
    });
    assert_eq!(client.ask("EXISTS lived-in"), 1);
}
