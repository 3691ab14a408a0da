//! The server's log of holds that lapse without a renewal. Up to ten such lapses in a second have a line each. Of more,
//! ten have a line, and one more line has the number of the others.
//!
//! A server opens and closes its log file for every line. With 20,000 lapses at once, a line for each took four times
//! as long as the lapses themselves.

use crate::support::steps::SOON;
use crate::support::*;

/// The lines about lapses in a server's log.
#[derive(Default, Debug)]
struct LapseLines {
    /// Lines about one lapse each.
    lines: u64,
    /// Lines with the number of lapses that have no line, and the sum of these numbers.
    sums: u64,
    left_out: u64,
}

impl LapseLines {
    fn by(server: &Server) -> LapseLines {
        let mut lapses = LapseLines::default();
        for line in server.log_text().lines() {
            let Some((before, after)) = line.split_once(" lapsed without any renewal") else {
                continue;
            };
            if after.starts_with(" (owner '") {
                lapses.lines += 1;
                continue;
            }
            let number = before
                .strip_suffix(" more holds")
                .and_then(|rest| rest.rsplit(' ').next())
                .and_then(|number| number.parse::<u64>().ok());
            lapses.sums += 1;
            lapses.left_out += number.unwrap_or_else(|| panic!("no number in {line:?}"));
        }
        lapses
    }

    fn in_all(&self) -> u64 {
        self.lines + self.left_out
    }
}

/// Takes this many locks, all of which lapse after `lease_ms`.
#[track_caller]
fn take(server: &Server, count: u64, lease_ms: u64) {
    let script = "for i = 1, ARGV[1] do \
                  redis.call('DLOCK.ACQUIRE', 'k' .. i, 'PX', ARGV[2], 'OWNER', 'web-' .. i) end";
    let mut client = server.connect();
    client.send(&[
        "EVAL",
        script,
        "0",
        &count.to_string(),
        &lease_ms.to_string(),
    ]);
    let reply = client.recv(SOON).expect("the script ends");
    assert!(reply.is_nil(), "{reply:?}");
}

#[track_caller]
fn lapsed(server: &Server) -> u64 {
    server.info_number("dsync", "dsync_lock_lapsed_unrenewed")
}

#[track_caller]
fn wait_for_lapses(server: &Server, count: u64) {
    eventually("the lapses", SOON, || lapsed(server) == count);
}

#[test]
fn few_lapses_are_logged_each_with_fence_and_owner() {
    let server = Server::start();
    let mut client = server.connect();
    let mut fences = Vec::new();
    for key in ["a", "b", "c"] {
        let owner = format!("web-{key}");
        let grant = client.ask(format!("DLOCK.ACQUIRE {key} PX 20 OWNER {owner}"));
        fences.push((key, grant.grant().1, owner));
    }
    // A hold that was renewed once has no line when it lapses.
    client.ask("DLOCK.ACQUIRE renewed TOKEN t").grant();
    assert_eq!(client.ask("DLOCK.RENEW renewed t PX 20"), 1);
    eventually("four lapses", SOON, || {
        server.info_number("dsync", "dsync_lock_lapsed") == 4
    });
    let log = server.log_text();
    for (key, fence, owner) in fences {
        let line = format!("hold {fence} of '{key}' lapsed without any renewal (owner '{owner}')");
        assert!(log.contains(&line), "no {line:?}");
    }
    let lapses = LapseLines::by(&server);
    assert_eq!((lapses.lines, lapses.sums), (3, 0), "{lapses:?}");
}

#[test]
fn wave_of_lapses_is_logged_in_few_lines_with_exact_numbers() {
    const WAVE: u64 = 20_000;
    let server = Server::start();
    for wave in 1..=2 {
        take(&server, WAVE, 500);
        wait_for_lapses(&server, wave * WAVE);
        // The number of the last second is logged although no other lapse follows.
        eventually("the number of those left out", SOON, || {
            LapseLines::by(&server).in_all() >= wave * WAVE
        });
    }
    let lapses = LapseLines::by(&server);
    assert_eq!(lapses.in_all(), 2 * WAVE, "{lapses:?}");
    // At most ten lines for each second with a number, on a machine of any speed. The last second of each wave may have
    // had ten lapses or fewer, and then it has no number.
    assert!(lapses.lines <= 10 * (lapses.sums + 2), "{lapses:?}");
    assert!(lapses.lines + lapses.sums < 200, "{lapses:?}");
}

#[test]
fn demotion_and_shutdown_log_the_lapses_left_out_so_far() {
    const WAVE: u64 = 1_000;
    let mut server = Server::start();
    take(&server, WAVE, 50);
    wait_for_lapses(&server, WAVE);
    assert_eq!(server.connect().ask("REPLICAOF 127.0.0.1 1"), "OK");
    let lapses = LapseLines::by(&server);
    assert_eq!(lapses.in_all(), WAVE, "{lapses:?}");
    assert_eq!(server.connect().ask("REPLICAOF NO ONE"), "OK");
    take(&server, WAVE, 50);
    wait_for_lapses(&server, 2 * WAVE);
    server.shutdown();
    let lapses = LapseLines::by(&server);
    assert_eq!(lapses.in_all(), 2 * WAVE, "{lapses:?}");
}

#[test]
fn revocations_are_logged_each_beside_a_wave_of_lapses() {
    const REVOKED: u64 = 50;
    let server = Server::start();
    take(&server, 1_000, 50);
    wait_for_lapses(&server, 1_000);
    let mut client = server.connect();
    for _ in 0..REVOKED {
        let (_, fence) = client.ask("DLOCK.ACQUIRE key").grant();
        assert_eq!(client.ask(format!("DLOCK.REVOKE key {fence}")), 1);
    }
    let log = server.log_text();
    let lines = log.lines().filter(|line| line.contains("was revoked"));
    assert_eq!(lines.count() as u64, REVOKED);
}

#[test]
fn loglevel_debug_logs_every_lapse_and_warning_none() {
    const WAVE: u64 = 500;
    for (level, lines) in [("debug", WAVE), ("warning", 0)] {
        let server = Server::start();
        assert_eq!(
            server.connect().ask(format!("CONFIG SET loglevel {level}")),
            "OK"
        );
        take(&server, WAVE, 50);
        wait_for_lapses(&server, WAVE);
        // The demotion logs the number of lapses left out, if there is any.
        assert_eq!(server.connect().ask("CONFIG SET loglevel notice"), "OK");
        assert_eq!(server.connect().ask("REPLICAOF 127.0.0.1 1"), "OK");
        let lapses = LapseLines::by(&server);
        assert_eq!(
            (lapses.lines, lapses.sums),
            (lines, 0),
            "{level}: {lapses:?}"
        );
    }
}

/// A server evicted a lock that was held, because its policy was that of a cache.
#[test]
fn policy_that_evicts_held_locks_is_warned_of_at_load_and_when_set() {
    let warnings = |server: &Server| {
        let log = server.log_text();
        let lines = log.lines().filter(|line| {
            line.contains("maxmemory-policy is allkeys-") && line.contains("may evict a lock")
        });
        lines.count()
    };
    let server = Server::builder()
        .config("maxmemory-policy", "allkeys-lru")
        .start();
    assert_eq!(warnings(&server), 1, "at load");
    let mut client = server.connect();
    for (setting, expected) in [
        ("maxmemory-policy volatile-lru", 1),
        ("maxmemory 1gb", 1),
        ("hz 20 maxmemory-policy allkeys-random", 2),
        ("maxmemory-samples 6", 2),
        ("maxmemory-policy noeviction", 2),
    ] {
        let words: Vec<_> = setting.split(' ').collect();
        let reply = client.call(&[&["CONFIG", "SET"][..], &words].concat());
        assert_eq!(reply, "OK", "{setting}");
        assert_eq!(warnings(&server), expected, "{setting}");
    }
    assert_eq!(
        warnings(&Server::start()),
        0,
        "by default nothing is evicted"
    );
}
