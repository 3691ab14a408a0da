//! Waiters that are killed or unblocked in the same turn of the event loop in which they are granted.
//!
//! A killed waiter's grant ends and the next waiter has it; an unblocked waiter gets exactly one reply, and a lock that
//! it was granted can be released. After each round the key is gone and no client is blocked.
//!
//! Not here: `CLIENT UNBLOCK … ERROR` after the grant in the same turn, which some servers answer twice.

use crate::support::steps::*;
use crate::support::*;

/// Returns clients that wait in their order, and their ids. Each round has tokens of its own: the server keeps the place
/// of a killed waiter for its token.
fn queue(server: &Server, round: usize, count: u64) -> (Vec<Client>, Vec<u64>) {
    let mut waiters: Vec<_> = (0..count).map(|_| server.connect()).collect();
    let ids = waiters.iter_mut().map(Client::id).collect();
    for (n, waiter) in (0..count).zip(&mut waiters) {
        waiter.begin(format!("DLOCK.ACQUIRE k BLOCK 0 TOKEN {round}:{n}"));
        server.wait_for_blocked(n + 1);
    }
    (waiters, ids)
}

#[test]
fn waiters_killed_as_they_are_granted_delay_nobody() {
    let server = Server::builder().config("appendonly", "yes").start();
    let replica = Server::builder().replica_of(&server).start();
    let mut client = server.connect();
    for round in 0..30 {
        client.ask("DLOCK.ACQUIRE k TOKEN t");
        let (mut waiters, ids) = queue(&server, round, 12);
        // One turn: waiter 3 is killed while it waits, waiter 0 is granted, and the first waiters are killed. As each
        // grant then finds its connection closed, the lock passes on to the first survivor.
        let killed = 1 + round % 10;
        let mut lines = format!("CLIENT KILL ID {}\r\nDLOCK.RELEASE k t\r\n", ids[3]);
        for id in ids.iter().take(killed).filter(|id| **id != ids[3]) {
            lines.push_str(&format!("CLIENT KILL ID {id}\r\n"));
        }
        client.send_raw(lines.as_bytes());
        for _ in 0..lines.lines().count() {
            assert_eq!(client.recv(SOON).expect("a reply"), 1);
        }
        let survivors = (0..12).filter(|n| *n >= killed && *n != 3);
        let mut last = 0;
        for n in survivors {
            let Some(reply) = waiters[n].recv(SOON) else {
                let info = client.ask("DLOCK.INFO k");
                panic!("round {round}: waiter {n} is not granted: {info:?}");
            };
            let (token, fence) = reply.grant();
            assert_eq!(token, format!("{round}:{n}"));
            assert!(fence > last);
            last = fence;
            assert_eq!(
                client.ask(format!("DLOCK.RELEASE k {token}")),
                1,
                "round {round}"
            );
        }
        eventually("a free lock", SOON, || client.ask("EXISTS k") == 0);
    }
    server.wait_for_blocked(0);
    replica.wait_to_catch_up_with(&server);
    assert_eq!(replica.connect().ask("DBSIZE"), 0);
    assert_calm(&server);
    assert_calm(&replica);
}

#[test]
fn waiters_unblocked_around_their_grant_get_one_reply() {
    let server = Server::start();
    let mut client = server.connect();
    for round in 0..30 {
        client.ask("DLOCK.ACQUIRE k TOKEN t");
        let (waiters, ids) = queue(&server, round, 6);
        // In one turn: waiters 0 and 1 are unblocked before a grant, waiter 2 after its grant.
        let requests = [
            format!("CLIENT UNBLOCK {} ERROR", ids[0]),
            format!("CLIENT UNBLOCK {} TIMEOUT", ids[1]),
            "DLOCK.RELEASE k t".to_owned(),
            format!("CLIENT UNBLOCK {} TIMEOUT", ids[2]),
        ];
        client.send_raw((requests.join("\r\n") + "\r\n").as_bytes());
        let replies: Vec<_> = requests
            .iter()
            .map(|_| client.recv(SOON).expect("a reply").as_int())
            .collect();
        assert_eq!(replies[..3], [1, 1, 1]);
        let mut ends = Vec::new();
        for (n, waiter) in waiters.into_iter().enumerate() {
            let end = ended(waiter);
            if matches!(end, Ended::Granted(_)) {
                let token = format!("{round}:{n}");
                assert_eq!(
                    client.ask(format!("DLOCK.RELEASE k {token}")),
                    1,
                    "round {round}, waiter {n}"
                );
            }
            ends.push(end);
        }
        assert_eq!(
            ends[..2],
            [Ended::Unblocked, Ended::Nothing],
            "round {round}"
        );
        for end in &ends[3..] {
            assert!(matches!(end, Ended::Granted(_)), "round {round}: {ends:?}");
        }
        eventually("a free lock", SOON, || client.ask("EXISTS k") == 0);
    }
    server.wait_for_blocked(0);
    assert_calm(&server);
}
