//! A wave of lapses: thousands of locks whose leases end one after the other, some of them with a waiter each.
//!
//! Tests interrupt the wave in its middle, by a pause, a failover, a shutdown or a flush, and then assert that
//! every waiter was answered and that no key stays behind.

use crate::support::steps::*;
use crate::support::*;

const LOCKS: usize = 2_000;

pub struct LapseWave {
    /// Each waits for a lock of its own; these locks are spread over the whole wave. Waiter n has the token `wn`.
    pub waiters: Vec<Client>,
}

impl LapseWave {
    /// Takes all locks of database 0: the first lease ends after 0.6 s, the last after 3.6 s.
    #[track_caller]
    pub fn start(server: &Server, waited: usize) -> LapseWave {
        let mut client = server.connect();
        let grants = (0..LOCKS).map(|n| format!("DLOCK.ACQUIRE k{n} PX {}", 600 + n * 3 / 2));
        for granted in client.ask_all(grants) {
            granted.grant();
        }
        let waiters = (0..waited)
            .map(|n| {
                let key = n * (LOCKS / waited);
                let mut waiter = server.connect();
                waiter.begin(format!("DLOCK.ACQUIRE k{key} BLOCK 0 PX 200 TOKEN w{n}"));
                waiter
            })
            .collect();
        LapseWave { waiters }
    }

    /// Returns when about a quarter of the leases have ended.
    #[track_caller]
    pub fn wait_for_middle(server: &Server) {
        eventually("the middle of the wave", SOON, || {
            keys(server) < LOCKS as i64 * 4 / 5
        });
    }

    /// Asserts that every waiter is granted its own lock, by exactly one reply.
    #[track_caller]
    pub fn assert_all_granted(mut self) {
        for (n, waiter) in self.waiters.iter_mut().enumerate() {
            assert_eq!(waiter.granted().0, format!("w{n}"));
            expect_no_more(waiter);
        }
    }

    /// Asserts that every waiter is granted its lock, and that no key is left.
    #[track_caller]
    pub fn assert_ends(self, server: &Server) {
        self.assert_all_granted();
        eventually("the end of the wave", SOON, || keys(server) == 0);
    }
}

/// The number of keys in database 0.
pub fn keys(server: &Server) -> i64 {
    server.connect().ask("DBSIZE").as_int()
}
