//! A server that is killed in the middle of traffic.
//!
//! The promise: where every write reaches the disk, no acknowledged grant and no acknowledged release is
//! lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::data_files::{rewrite_aof, with_safe_aof};
use crate::harness::*;

#[test]
fn no_acknowledged_grant_and_no_acknowledged_release_is_lost_to_a_kill_under_traffic() {
    /// What one client knows for certain.
    #[derive(Default)]
    struct Known {
        held: Vec<(String, String, u64)>,
        released: Vec<(String, String)>,
    }

    fn work(server: &Server, worker: usize, acknowledged: &AtomicUsize) -> Known {
        let mut known = Known::default();
        let mut client = server.connect();
        for n in 0.. {
            // In turn: a lock of one's own, and one that is handed from waiter to waiter.
            let key = if n % 2 == 0 {
                format!("own:{worker}:{n}")
            } else {
                "hot".to_owned()
            };
            let token = format!("{worker}:{n}");
            let acquire = [
                "DLOCK.ACQUIRE",
                &key,
                "EX",
                "600",
                "BLOCK",
                "0",
                "TOKEN",
                &token,
            ];
            let Some(reply) = client.try_call(&acquire) else {
                return known;
            };
            acknowledged.fetch_add(1, Ordering::Relaxed);
            if n % 4 == 0 {
                known.held.push((key, token, reply.grant().1));
                continue;
            }
            known
                .held
                .push((key.clone(), token.clone(), reply.grant().1));
            // From here until the reply nobody can know.
            let sent = known.held.pop();
            if client.try_call(&["DLOCK.RELEASE", &key, &token]).is_none() {
                return known;
            }
            drop(sent);
            known.released.push((key, token));
        }
        known
    }

    for preamble in [true, false] {
        let mut server = with_safe_aof(preamble).start();
        let acknowledged = AtomicUsize::new(0);
        let known: Vec<Known> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..6)
                .map(|worker| {
                    let (server, acknowledged) = (&server, &acknowledged);
                    scope.spawn(move || work(server, worker, acknowledged))
                })
                .collect();
            eventually("traffic", Duration::from_secs(20), || {
                acknowledged.load(Ordering::Relaxed) >= 400
            });
            rewrite_aof(&server);
            let pid = server.pid().to_string();
            let kill = std::process::Command::new("sh")
                .args(["-c", "kill -9 $0", &pid])
                .status();
            assert!(kill.is_ok_and(|status| status.success()));
            workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker ends"))
                .collect()
        });
        server.kill9();
        server.start_again();
        let mut client = server.connect();
        let held: Vec<_> = known.iter().flat_map(|known| &known.held).collect();
        assert!(held.len() >= 100, "{} acknowledged grants", held.len());
        for (key, token, fence) in held {
            assert!(
                call!(client, "DLOCK.CHECK", key, token).as_int() > 0,
                "lost {key} {token}"
            );
            let info = call!(client, "DLOCK.INFO", key);
            let first = info.field("first-holders").as_array()[0]
                .field("fence")
                .as_int();
            assert_eq!(first.unsigned_abs(), *fence, "the fence of {key}");
        }
        for (key, token) in known.iter().flat_map(|known| &known.released) {
            assert_eq!(
                call!(client, "DLOCK.CHECK", key, token),
                0,
                "{key} {token} came back"
            );
        }
    }
}
