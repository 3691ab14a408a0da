//! Random histories: whatever happens on a primary, its replicas and their replicas come out equal to it.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};

use crate::harness::*;
use crate::steps::SOON;

/// A random history over all families, by impatient clients that die now and then.
fn live(primary: &Server, seed: u64, steps: u32) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut admin = primary.connect();
    let mut clients: Vec<Client> = (0..6).map(|_| primary.connect()).collect();
    let mut tokens: Vec<String> = (0..4).map(|n| format!("seed{seed}t{n}")).collect();
    for step in 0..steps {
        let at = rng.random_range(0..clients.len());
        let db = rng.random_range(0..2);
        let n = rng.random_range(0..4);
        let (lock, sem, group) = (format!("l{n}"), format!("s{n}"), format!("g{n}"));
        let token = if rng.random_range(0..3) == 0 {
            let token = format!("seed{seed}step{step}");
            let old = rng.random_range(0..tokens.len());
            tokens[old] = token.clone();
            token
        } else {
            tokens[rng.random_range(0..tokens.len())].clone()
        };
        // Some outlast the story, so that there is something left to compare.
        let lease = if step % 5 == 0 {
            600_000
        } else {
            rng.random_range(1..120)
        }
        .to_string();
        let block = rng.random_range(1..15).to_string();
        let limit = rng.random_range(1..5).to_string();
        let permits = rng.random_range(1..4).to_string();
        let any = [&lock, &sem, &group][rng.random_range(0..3)].clone();
        let other = [&lock, &sem, &group][rng.random_range(0..3)].clone();
        let words: Vec<&str> = match rng.random_range(0..24) {
            0..3 => vec![
                "DLOCK.ACQUIRE",
                &lock,
                "PX",
                &lease,
                "TOKEN",
                &token,
                "BLOCK",
                &block,
            ],
            3..5 => vec![
                "DLOCK.ACQUIRE",
                &lock,
                "SHARED",
                "PX",
                &lease,
                "BLOCK",
                &block,
                "EPHEMERAL",
            ],
            5 => vec!["DLOCK.RELEASE", &lock, &token],
            6 => vec!["DLOCK.RENEW", &lock, &token, "PX", &lease],
            7..9 => vec![
                "DSEM.ACQUIRE",
                &sem,
                "LIMIT",
                &limit,
                "PERMITS",
                &permits,
                "PX",
                &lease,
                "TOKEN",
                &token,
                "BLOCK",
                &block,
            ],
            9 => vec![
                "DSEM.ACQUIRE",
                &sem,
                "PX",
                &lease,
                "EPHEMERAL",
                "BLOCK",
                &block,
            ],
            10 => vec!["DSEM.RELEASE", &sem, &token],
            11 => vec![
                "DSEM.LIMIT",
                &sem,
                if step % 3 == 0 { "NONE" } else { &limit },
            ],
            12..15 => vec![
                "DWG.ADD", &group, "PX", &lease, "TOKEN", &token, "BLOCK", &block,
            ],
            15 => vec!["DWG.ADD", &group, "LIMIT", &limit, "BLOCK", &block],
            16 => vec!["DWG.DONE", &group, &token],
            17 => vec!["DWG.EXPECT", &group, &limit],
            18 => vec!["DWG.WAIT", &group, "BLOCK", &block],
            19 => vec!["DEL", &any],
            20 => vec!["RENAME", &any, &other],
            21 => vec!["MOVE", &any, if db == 0 { "1" } else { "0" }],
            22 => match rng.random_range(0..6) {
                0 => vec!["FLUSHDB"],
                1 => vec!["SWAPDB", "0", "1"],
                2 => vec!["PEXPIRE", &any, &lease],
                3 => vec!["SET", &any, "overwritten", "PX", &lease],
                _ => vec!["UNLINK", &any],
            },
            _ => {
                let id = clients[at].id();
                call!(admin, "CLIENT", "KILL", "ID", id);
                clients[at] = primary.connect();
                continue;
            }
        };
        assert_eq!(call!(clients[at], "SELECT", db), "OK");
        let reply = clients[at].call(&words);
        if let Reply::Error(text) = &reply {
            let known = [
                "WRONGTYPE",
                "MISMATCH",
                "TOOMANY",
                "NOLIMIT",
                "UNBLOCKED",
                "ERR no such key",
            ];
            assert!(
                known.iter().any(|code| text.starts_with(code)),
                "{words:?}: {text}"
            );
        }
    }
}

/// The digests of all keys, by database: for a failure that names the key.
fn digests(server: &Server) -> Vec<(usize, String, String)> {
    let mut client = server.connect();
    let mut all = Vec::new();
    for db in 0..2 {
        call!(client, "SELECT", db);
        let mut keys: Vec<_> = call!(client, "KEYS", "*")
            .as_array()
            .iter()
            .map(|key| key.as_str().to_owned())
            .collect();
        keys.sort();
        for key in keys {
            let digest = call!(client, "DEBUG", "DIGEST-VALUE", &key);
            let kind = call!(client, "TYPE", &key);
            all.push((
                db,
                format!("{key} ({})", kind.as_str()),
                digest.as_array()[0].as_str().to_owned(),
            ));
        }
    }
    all
}

#[test]
fn after_random_histories_replicas_and_their_replicas_equal_the_primary() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let chained = Server::builder().replica_of(&replica).start();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let primary = &primary;
            scope.spawn(move || live(primary, seed, 400));
        }
    });
    // Once everything short-lived is over, nothing moves any more.
    for follower in [&replica, &chained] {
        let mut seen = (Vec::new(), Vec::new());
        let deadline = std::time::Instant::now() + SOON;
        loop {
            follower.wait_to_catch_up_with(&primary);
            let now = (digests(&primary), digests(follower));
            let settled = seen == now;
            seen = now;
            if seen.0 == seen.1 || (settled && std::time::Instant::now() > deadline) {
                break;
            }
        }
        assert_eq!(seen.0, seen.1, "the primary's keys, then the follower's");
        assert!(
            seen.0.len() > 4,
            "there is something left to compare: {seen:?}"
        );
        let log = follower.log_text();
        assert!(
            !log.contains("DSYNC.APPLY failed") && !log.contains("panic"),
            "{log}"
        );
    }
    assert!(
        !primary.log_text().contains("panic"),
        "{}",
        primary.log_text()
    );
}
