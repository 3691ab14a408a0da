//! Many leases that end at once, very short leases that end one after the other, and lapses under load.
//!
//! Every waiter is granted, in the order of the queue and with rising fences, and commands are answered meanwhile.
//! Waves of lapses that are interrupted use `lapse_wave`; holds by the ten thousand are in `turns`.

use super::lease_clock::check;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn thousand_leases_due_at_once_are_all_handed_on() {
    let server = Server::start();
    let mut client = server.connect();
    let mut waiters: Vec<_> = (0..1_000).map(|_| server.connect()).collect();
    let lines: String = (0..1_000)
        .map(|n| format!("DLOCK.ACQUIRE k{n} PX 1500 TOKEN t{n}\r\n"))
        .collect();
    client.send_raw(lines.as_bytes());
    let fences: Vec<_> = (0..1_000).map(|_| client.granted().1).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.begin(format!("DLOCK.ACQUIRE k{n} BLOCK 0 TOKEN w{n}"));
    }
    for (n, waiter) in waiters.iter_mut().enumerate() {
        let (token, fence) = waiter.granted();
        assert_eq!(token, format!("w{n}"));
        assert!(fence > fences[n]);
    }
    server.wait_for_blocked(0);
    assert_calm(&server);
}

#[test]
fn short_leases_serve_queue_in_order() {
    let server = Server::start();
    let mut client = server.connect();
    for lease in [1, 2, 10] {
        client.ask("DLOCK.ACQUIRE k PX 400");
        let mut waiters: Vec<_> = (0..100).map(|_| server.connect()).collect();
        for (n, waiter) in waiters.iter_mut().enumerate() {
            waiter.begin(format!(
                "DLOCK.ACQUIRE k PX {lease} BLOCK 0 TOKEN {lease}:{n}"
            ));
            // The server has read ten requests before the next ones are sent.
            if n % 10 == 9 {
                assert_eq!(client.ask("PING"), "PONG");
            }
            wait_for_at_least(&server, &mut client, n as u64 + 1);
        }
        let mut last = 0;
        for (n, waiter) in waiters.iter_mut().enumerate() {
            let (token, fence) = waiter.granted();
            assert_eq!(token, format!("{lease}:{n}"));
            assert!(fence > last, "waiter {n} passed an earlier one");
            last = fence;
        }
        eventually("the last lapse", SOON, || client.ask("EXISTS k") == 0);
    }
}

/// Waits until this many requests for `k` have been queued, including those that were granted since.
fn wait_for_at_least(server: &Server, client: &mut Client, count: u64) {
    eventually("a queued request", SOON, || {
        let info = client.ask("DLOCK.INFO k");
        let queued = if info.is_nil() {
            0
        } else {
            info.field("waiters").as_int().unsigned_abs()
        };
        // After the first lease has ended, the queue loses requests while others arrive.
        queued >= count || server.blocked_clients() < count
    });
}

#[test]
fn twenty_thousand_lapses_do_not_block_commands() {
    let server = Server::start();
    let mut client = server.connect();
    for from in (0..20_000).step_by(1_000) {
        let lines: String = (from..from + 1_000)
            .map(|n| format!("DLOCK.ACQUIRE k{n} PX 700\r\n"))
            .collect();
        client.send_raw(lines.as_bytes());
        for _ in 0..1_000 {
            client.granted();
        }
    }
    client.ask("DLOCK.ACQUIRE lasting EX 60 TOKEN t");
    let mut rounds = 0;
    eventually("all lapses", SOON, || {
        rounds += 1;
        assert!(check(&mut client, "lasting") > 0);
        assert!(client.ask("DLOCK.ACQUIRE lasting").is_nil());
        assert!(
            client
                .ask(format!("DLOCK.ACQUIRE busy TOKEN {rounds}"))
                .grant()
                .1
                > 0
        );
        assert_eq!(client.ask(format!("DLOCK.RELEASE busy {rounds}")), 1);
        client.ask("DBSIZE") == 1
    });
    assert_calm(&server);
}

/// Between two ticks of a wave the event loop calls the module, and a busy script runs a part of that loop: there the
/// call must only arm the timer.
#[test]
fn busy_scripts_in_wave_of_lapses_leave_each_waiter_one_answer() {
    let server = Server::builder().config("busy-reply-threshold", 10).start();
    let mut client = server.connect();
    client.ask_all((0..20_000).map(|n| format!("DLOCK.ACQUIRE k{n} PX 60000 TOKEN t")));
    let mut waiters: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.begin(format!(
            "DLOCK.ACQUIRE k{} PX 100 BLOCK 0 TOKEN w{n}",
            n * 200
        ));
    }
    server.wait_for_blocked(100);
    client.ask_all((0..20_000).map(|n| format!("DLOCK.RENEW k{n} t PX 1000")));
    eventually("all lapses", SOON, || {
        call!(client, "EVAL", busy_for(30), 0);
        client.ask("DBSIZE") == 0
    });
    for (n, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(waiter.granted().0, format!("w{n}"));
        expect_no_more(waiter);
    }
    assert_calm(&server);
}
