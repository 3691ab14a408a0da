//! A primary with `min-replicas-to-write` loses its replica in a partition.
//!
//! With `min-replicas-to-write 1` and `min-replicas-max-lag 1` it refuses every new request about two seconds later,
//! runs no lease and serves no waiter. When the replica is back, leases go on with what was left of them.
//!
//! A replica that disconnects, and other reasons for refusals, are in `writes_refused`.

use crate::support::steps::*;
use crate::support::*;
use std::time::{Duration, Instant};

const LEASE_MS: i64 = 5_000;

fn good_replicas(server: &Server) -> u64 {
    server.info_number("replication", "min_slaves_good_slaves")
}

#[test]
fn primary_without_replica_refuses_and_hands_nothing_on() {
    let Some(network) = Network::new() else {
        return;
    };
    let (here, there) = (network.host(), network.host());
    let primary = Server::builder()
        .on(&here)
        .config("min-replicas-to-write", 1)
        .config("min-replicas-max-lag", 1)
        .start();
    let replica = Server::builder().on(&there).replica_of(&primary).start();
    let mut client = primary.connect();
    eventually("a grant with a good replica", SOON, || {
        !client.ask("DLOCK.ACQUIRE held EX 600 TOKEN t").is_error()
    });
    let mut next = primary.waiting("DLOCK.ACQUIRE held BLOCK 0 TOKEN w");
    let lease = format!("DLOCK.ACQUIRE lapsing PX {LEASE_MS} TOKEN t");
    client.ask(lease).grant();
    let mut heir = primary.waiting("DLOCK.ACQUIRE lapsing BLOCK 0 TOKEN w");
    let mut impatient = primary.waiting("DLOCK.ACQUIRE lapsing BLOCK 3000");

    replica.wait_to_catch_up_with(&primary);
    there.cut_off();
    let refused = |reply: &Reply| match reply {
        Reply::Error(text) => {
            assert!(text.starts_with("NOREPLICAS"), "{text}");
            true
        }
        _ => false,
    };
    let mut n = 0;
    eventually("requests to be refused", SOON, || {
        n += 1;
        refused(&client.ask(format!("DLOCK.ACQUIRE new{n} PX 60000")))
    });
    for request in [
        "DLOCK.RELEASE held t",
        "DLOCK.RENEW held t",
        "DSEM.ACQUIRE s LIMIT 1",
        "DLOCK.ACQUIRE held BLOCK 0",
    ] {
        let reply = client.ask(request);
        assert!(refused(&reply), "{request}: {reply:?}");
    }
    // The module asks the server ten times a second whether it accepts writes; afterwards no lease runs.
    let mut left = 0;
    eventually("a lease that stands still", SOON, || {
        let before = left;
        left = client.ask("DLOCK.CHECK lapsing t").as_int();
        at(Instant::now() + Duration::from_millis(150));
        before == left
    });
    assert!((1..LEASE_MS).contains(&left), "{left}");
    // Watches for longer than the rest of the lease.
    let until = Instant::now() + Duration::from_millis(left.unsigned_abs() + 300);
    while Instant::now() < until {
        assert_eq!(client.ask("DLOCK.CHECK lapsing t"), left);
        heir.expect_silence(A_WHILE);
        next.expect_silence(Duration::ZERO);
    }
    assert!(impatient.reply().is_nil(), "a wait runs out all the same");
    assert_eq!(replica.connect().ask("EXISTS lapsing"), 1);

    there.join();
    eventually("the replica back", SOON * 3, || {
        good_replicas(&primary) == 1
    });
    // The rest of the lease runs now, unless a machine under load makes the replica late again.
    let mut held = Instant::now();
    let mut passed_on = None;
    eventually("a grant after what was left of the lease", SOON * 3, || {
        passed_on = heir.recv(Duration::from_millis(10));
        if passed_on.is_none() && client.ask("DLOCK.CHECK lapsing t").as_int() > 0 {
            held = Instant::now();
        }
        passed_on.is_some()
    });
    // The module promises 100 ms; the other two seconds are for a machine under load.
    assert!(
        held.elapsed() < Duration::from_millis(2_100),
        "granted {:?} after the end of the lease",
        held.elapsed()
    );
    let (token, _) = passed_on.expect("the wait ended with one").grant();
    assert_eq!(token, "w");
    eventually("a release that is taken", SOON, || {
        client.ask("DLOCK.RELEASE held t") == 1
    });
    assert_eq!(next.granted().0, "w");
    replica.wait_to_catch_up_with(&primary);
    for key in ["held", "lapsing"] {
        assert_eq!(replica.digest(key), primary.digest(key), "{key}");
    }
    assert_calm(&primary);
    assert_calm(&replica);
}
