//! A primary with kept places is killed, and Sentinel promotes its replica: whoever had a place has it there, in the
//! same order, and the lock is passed on without anybody being overtaken.

use crate::support::*;

const CLIENTS: usize = 30;

fn request(n: usize) -> String {
    format!("DLOCK.ACQUIRE lock EX 600 TOKEN t{n} QUEUE 60000")
}

/// The places of these clients, each asking again.
#[track_caller]
fn places(client: &mut Client, clients: std::ops::Range<usize>) -> Vec<i64> {
    let replies = client.ask_all(clients.map(request).collect::<Vec<_>>());
    replies
        .iter()
        .map(|reply| reply.as_array()[1].as_int())
        .collect()
}

/// Passes the lock on from client to client, each asking again before it releases.
#[track_caller]
fn pass_on(client: &mut Client, clients: std::ops::Range<usize>) -> u64 {
    let mut last = 0;
    for n in clients {
        let (token, fence) = client.ask(request(n)).grant();
        assert_eq!(token, format!("t{n}"));
        assert!(fence > last, "client {n} was overtaken");
        last = fence;
        assert_eq!(client.ask(format!("DLOCK.RELEASE lock t{n}")), 1);
    }
    last
}

#[test]
fn lock_is_passed_on_in_the_same_order_after_failover() {
    let mut first = Server::start();
    let second = Server::builder().replica_of(&first).start();
    let sentinels = Sentinels::watch(&first, 1);
    let mut client = first.connect();
    let all: Vec<String> = (0..CLIENTS).map(request).collect();
    let replies = client.ask_all(&all);
    assert_eq!(replies[0].grant().0, "t0");
    assert_eq!(replies[CLIENTS - 1].as_array()[1], CLIENTS as i64 - 1);
    let before = pass_on(&mut client, 0..10);
    second.wait_to_catch_up_with(&first);
    assert_eq!(second.digest("lock"), first.digest("lock"));

    first.kill9();
    let new = sentinels.wait_for_failover(0, &first, &[&second]);
    let mut client = new.connect();
    // The hold of the tenth is not heard of yet, and the places behind it are the same.
    let behind: Vec<i64> = (1..).take(CLIENTS - 11).collect();
    assert_eq!(places(&mut client, 11..CLIENTS), behind);
    let late = client.ask("DLOCK.ACQUIRE lock TOKEN late QUEUE 60000");
    assert_eq!(late.as_array()[1], CLIENTS as i64 - 10);
    let after = pass_on(&mut client, 10..CLIENTS);
    assert!(after > before);
    assert_eq!(
        client
            .ask("DLOCK.ACQUIRE lock TOKEN late QUEUE 60000")
            .grant()
            .0,
        "late"
    );
}
