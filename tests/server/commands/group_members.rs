//! Wait groups, members: who counts as done, who as lost, and whose job stays owed.

use crate::commands::group_steps::*;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn group_lapsed_member_is_lost_and_its_job_stays_owed() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("DWG.EXPECT group 1"), 1);
    let (lost, _) = client.ask("DWG.ADD group PX 40").grant();
    let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");
    eventually("the lapse", SOON, || {
        *client.ask("DWG.INFO group").field("lapsed") == 1
    });
    assert_eq!(*client.ask("DWG.INFO group").field("owed"), 1);
    waiter.expect_silence(A_WHILE);
    assert_eq!(client.ask(format!("DWG.DONE group {lost}")), 0, "too late");
    waiter.expect_silence(A_WHILE);
    let token = add(&mut client);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    assert_tally(&waiter.reply(), 1, 1);
}

#[test]
fn group_released_member_is_not_tallied_and_its_job_stays_owed() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("DWG.EXPECT group 1"), 1);
    let token = add(&mut client);
    assert_eq!(client.ask(format!("DWG.RELEASE group {token}")), 1);
    assert_eq!(client.ask(format!("DWG.RELEASE group {token}")), 0);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 0);
    let info = client.ask("DWG.INFO group");
    let counts = ["done", "lapsed", "owed"].map(|field| info.field(field).as_int());
    assert_eq!(counts, [0, 0, 1]);
    assert!(client.ask("DWG.WAIT group").is_nil());
    let token = add(&mut client);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    assert_tally(&client.ask("DWG.WAIT group"), 1, 0);

    // Without a total, RELEASE of the last member finishes the round.
    let token = add(&mut client);
    let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");
    assert_eq!(client.ask(format!("DWG.RELEASE group {token}")), 1);
    assert_tally(&waiter.reply(), 0, 0);
}

#[test]
fn group_revoked_member_is_lost() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, fence) = client.ask("DWG.ADD group").grant();
    let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");
    assert_eq!(client.ask(format!("DWG.REVOKE group {fence}")), 1);
    assert_tally(&waiter.reply(), 0, 1);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 0);
    assert_eq!(client.ask(format!("DWG.REVOKE group {fence}")), 0);
}

#[test]
fn group_ephemeral_member_is_lost_with_its_connection() {
    let server = Server::start();
    let mut client = server.connect();
    let mut worker = server.connect();
    worker.ask("DWG.ADD group EPHEMERAL").grant();
    let (kept, _) = server.connect().ask("DWG.ADD group").grant();
    let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");
    worker.close();
    eventually("the loss", SOON, || {
        *client.ask("DWG.INFO group").field("lapsed") == 1
    });
    // The other member's connection is closed too, but without EPHEMERAL only its lease ends it.
    waiter.expect_silence(A_WHILE);
    assert_eq!(client.ask(format!("DWG.DONE group {kept}")), 1);
    assert_tally(&waiter.reply(), 1, 1);
}

#[test]
fn group_done_repeated_or_too_late_counts_0() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, other) = (add(&mut client), add(&mut client));
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 0);
    assert_eq!(call!(client, "DWG.DONE", "group", "never seen"), 0);
    assert_eq!(client.ask(format!("DWG.DONE absent {token}")), 0);
    assert_eq!(client.ask("EXISTS absent"), 0);
    assert!(client.ask("DWG.WAIT group").is_nil());
    assert_eq!(client.ask(format!("DWG.DONE group {other}")), 1);
    assert_eq!(client.ask(format!("DWG.DONE group {other}")), 0);
    assert_tally(&client.ask("DWG.WAIT group"), 2, 0);

    client.ask("DWG.ADD group TOKEN slow PX 20").grant();
    eventually("the lapse", SOON, || {
        *client.ask("DWG.INFO group").field("holders") == 0
    });
    assert_eq!(client.ask("DWG.DONE group slow"), 0);
    assert_tally(&client.ask("DWG.WAIT group"), 0, 1);
}

#[test]
fn group_done_with_many_tokens_ends_each_member_once() {
    let server = Server::start();
    let mut client = server.connect();
    let tokens: Vec<_> = (0..500).map(|_| add(&mut client)).collect();
    let mut waiter = server.waiting("DWG.WAIT group BLOCK 0");
    // Ten tokens come twice, and one is nobody's.
    let mut request = vec!["DWG.DONE", "group", "nobody's"];
    request.extend(tokens[..499].iter().map(String::as_str));
    request.extend(tokens[..10].iter().map(String::as_str));
    assert_eq!(client.call(&request), 499);
    assert_eq!(client.call(&request), 0);
    waiter.expect_silence(A_WHILE);
    assert_eq!(client.ask(format!("DWG.DONE group {}", tokens[499])), 1);
    assert_tally(&waiter.reply(), 500, 0);
}

#[test]
fn group_members_can_be_renewed_and_checked() {
    let server = Server::start();
    let mut client = server.connect();
    let (token, fence) = client.ask("DWG.ADD group PX 5000 TOKEN t").grant();
    assert!((1..=5_000).contains(&client.ask(format!("DWG.CHECK group {token}")).as_int()));
    assert_eq!(client.ask(format!("DWG.RENEW group {token} PX 50000")), 1);
    assert!(client.ask(format!("DWG.CHECK group {token}")).as_int() > 5_000);
    assert_eq!(client.ask(format!("DWG.RENEW group {token}")), 1);
    let left = client.ask(format!("DWG.CHECK group {token}")).as_int();
    assert!(
        (30_001..=50_000).contains(&left),
        "as long as the last lease: {left}"
    );
    // The same request again is granted the same membership.
    assert_eq!(
        client.ask("DWG.ADD group TOKEN t").grant(),
        (token.clone(), fence)
    );
    assert_eq!(client.ask(format!("DWG.DONE group {token}")), 1);
    assert_eq!(client.ask(format!("DWG.RENEW group {token}")), 0);
    assert_eq!(client.ask(format!("DWG.CHECK group {token}")), 0);
    assert_tally(&client.ask("DWG.WAIT group"), 1, 0);
}
