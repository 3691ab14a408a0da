//! Six clients send requests, DEL, CLIENT PAUSE and CLIENT KILL at random for three seconds.
//!
//! Afterwards nobody waits, both locks are free for a new request, and the replica has no key.

use crate::support::steps::*;
use crate::support::*;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn random_requests_kills_and_pauses_leave_no_waiter() {
    let server = Server::builder().config("appendonly", "yes").start();
    let replica = Server::builder().replica_of(&server).start();
    let end = Instant::now() + Duration::from_secs(3);
    thread::scope(|scope| {
        for worker in 0..6u64 {
            let server = &server;
            scope.spawn(move || {
                let mut n = worker;
                let mut client = server.connect();
                while Instant::now() < end {
                    n = n
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let pick = (n >> 33) % 6;
                    let key = ["a", "b"][(n >> 40) as usize % 2];
                    let request: Vec<String> = match pick {
                        0 => format!("DLOCK.ACQUIRE {key} PX 30 BLOCK 50 EPHEMERAL"),
                        1 => {
                            format!("DLOCK.ACQUIRE {key} SHARED PX 30 BLOCK 50 TOKEN w{worker}:{n}")
                        }
                        2 => format!("DLOCK.ACQUIRE {key} PX 20 BLOCK 0"),
                        3 => format!("DEL {key}"),
                        4 => "CLIENT PAUSE 5 WRITE".to_owned(),
                        _ => "CLIENT KILL TYPE normal SKIPME yes".to_owned(),
                    }
                    .split(' ')
                    .map(str::to_owned)
                    .collect();
                    // Another worker may have killed this connection.
                    if client.try_call(&request).is_none() {
                        client = server.connect();
                    }
                }
            });
        }
    });
    server.wait_for_blocked(0);
    let mut client = server.connect();
    for key in ["a", "b"] {
        let reply = client.ask(format!("DLOCK.ACQUIRE {key} BLOCK 5000 TOKEN last"));
        assert_eq!(reply.grant().0, "last");
        assert_eq!(client.ask(format!("DLOCK.RELEASE {key} last")), 1);
        assert_eq!(client.ask(format!("EXISTS {key}")), 0);
    }
    replica.wait_to_catch_up_with(&server);
    assert_eq!(replica.connect().ask("DBSIZE"), 0);
    assert_calm(&server);
    assert_calm(&replica);
}
