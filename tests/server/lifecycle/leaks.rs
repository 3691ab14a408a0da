//! A million requests, and some thousand connections that wait, leave no memory and no descriptors behind.

use std::time::Duration;

use crate::support::steps::*;
use crate::support::*;

/// Rounds before the first look.
const WARM_UP: usize = 3;
/// Of one round.
const KEYS: usize = 400;
const CONNECTIONS: usize = 40;

/// How long a place is kept (QUEUE).
const KEPT: Duration = Duration::from_millis(1000);

const MILLION: usize = 1_000_000;

/// Bytes that may be there after a million requests and were not there before.
const ROOM: u64 = 64 << 10;

/// Each family's requests, with # for a number that has its own keys. No key is left.
const REQUESTS: &[&str] = &[
    "DLOCK.ACQUIRE lock:# EX 60 TOKEN a OWNER somebody",
    "DLOCK.ACQUIRE lock:# EX 60",
    "DLOCK.ACQUIRE lock:# EX 60 TOKEN b QUEUE 1000",
    "DLOCK.ACQUIRE lock:# EX 60 TOKEN c QUEUE 1000",
    "DLOCK.RENEW lock:# a",
    "DLOCK.CHECK lock:# a",
    "DLOCK.INFO lock:#",
    "DLOCK.RELEASE lock:# c",
    "DLOCK.RELEASE lock:# a",
    "DLOCK.ACQUIRE lock:# EX 60 TOKEN b QUEUE 1000",
    "RENAME lock:# renamed:#",
    "RENAME renamed:# lock:#",
    "DLOCK.RELEASE lock:# b",
    "DLOCK.ACQUIRE lapses:# PX 1 TOKEN a",
    "DSEM.ACQUIRE sem:# LIMIT 2 EX 60 TOKEN a LANE left INDEX",
    "DSEM.ACQUIRE sem:# LIMIT 2 EX 60 TOKEN b LANE right MINHOLD 1",
    "DSEM.ACQUIRE sem:# LIMIT 2 EX 60 TOKEN c LANE right QUEUE 1000",
    "DSEM.ACQUIRE sem:# LIMIT 2 EX 60 TOKEN d LANE 0123456789012345678901234567890123456789 QUEUE 1000",
    "DSEM.RELEASE sem:# b",
    "DSEM.RELEASE sem:# a",
    "DSEM.RELEASE sem:# d",
    "DSEM.RELEASE sem:# c",
    "DSEM.PAUSE sem:# 1",
    "DEL sem:#",
    "DWG.EXPECT group:# 2",
    "DWG.ADD group:# EX 60 TOKEN a",
    "DWG.DONE group:# a",
    "DEL group:#",
    "DONCE.BEGIN once:# EX 60 TOKEN a",
    "DONCE.FAIL once:# a DELAY 1 REASON nothing",
    "DONCE.BEGIN once:# EX 60 TOKEN b",
    "DONCE.DONE once:# b RESULT 0123456789012345678901234567890123456789",
    "DEL once:#",
    "DLOCK.ACQUIRE lock:# EX soon",
];

/// Sends all requests for each number of this round. Then parks connections: half of them are closed while they wait, and
/// half are granted.
fn play(server: &Server, round: usize) {
    let mut client = server.connect();
    for request in REQUESTS {
        let replies =
            client.ask_all((0..KEYS).map(|n| request.replace('#', &format!("{round}-{n}"))));
        let is_refused = replies.iter().any(Reply::is_error);
        assert_eq!(is_refused, request.ends_with("soon"), "{request}");
    }
    client.ask("DLOCK.ACQUIRE parked EX 60 TOKEN first").grant();
    let mut parked: Vec<Client> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    for (n, waiter) in parked.iter_mut().enumerate() {
        waiter.begin(format!("DLOCK.ACQUIRE parked EX 60 BLOCK 0 TOKEN {n}"));
        server.wait_for_blocked(n as u64 + 1);
    }
    parked.truncate(CONNECTIONS / 2);
    server.wait_for_blocked(parked.len() as u64);
    assert_eq!(client.ask("DLOCK.RELEASE parked first"), 1);
    for (n, mut waiter) in parked.into_iter().enumerate() {
        assert_eq!(waiter.granted().0, n.to_string());
        assert_eq!(client.ask(format!("DLOCK.RELEASE parked {n}")), 1);
    }
    eventually("no key and no waiter", SOON, || {
        let left = ["dsync_holds", "dsync_waiters", "dsync_resting"];
        let left = left.map(|gauge| server.info_number("dsync", gauge));
        left == [0; 3] && client.ask("DBSIZE") == 0
    });
}

#[test]
fn requests_and_connections_leave_no_memory_and_no_descriptors() {
    let server = Server::builder()
        .module_arg("rejoin-ms")
        .module_arg(50)
        .start();
    // The end log fills up, and tables grow to what they need.
    (0..WARM_UP).for_each(|round| play(&server, round));
    // A token that has withdrawn is remembered for as long as its place was to be kept.
    std::thread::sleep(2 * KEPT);
    let start = Footprint::of(&server);
    let rounds = MILLION.div_ceil(KEYS * REQUESTS.len());
    (WARM_UP..WARM_UP + rounds).for_each(|round| play(&server, round));
    eventually("memory and descriptors as at the start", SOON, || {
        Footprint::of(&server).is_back_to(&start, ROOM, 0)
    });
}
