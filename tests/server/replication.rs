//! What a primary tells its replicas, word by word, and what replicas make of it.
//!
//! The promise: effects are replicated and never decisions; what one call did to one key is one command; a
//! request that changed nothing says nothing; and a replica, however it came by its data, holds exactly
//! what the primary holds, lapses nothing and takes no writes.

use crate::harness::*;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SOON: Duration = Duration::from_secs(10);

/// The wall clock, in milliseconds.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is past 1970").as_millis() as u64
}

/// Everything replicated by now, as text.
fn told(stream: &mut ReplicationStream, primary: &Server) -> Vec<Vec<String>> {
    let commands = stream.take_so_far(primary);
    commands.iter().map(|command| words(command)).collect()
}

/// The next command as text: for what the server does in its own time.
#[track_caller]
fn next(stream: &mut ReplicationStream) -> Vec<String> {
    match stream.next(SOON) {
        Some(command) => words(&command),
        None => panic!("nothing was replicated within {SOON:?}"),
    }
}

/// Asserts that exactly one command was replicated, and that it is `DSYNC.APPLY key kind` with this many
/// changes, which are returned.
#[track_caller]
fn only_apply<const N: usize>(commands: &[Vec<String>], key: &str, kind: &str) -> [String; N] {
    match commands {
        [command] => apply(command, key, kind),
        _ => panic!("expected one command, the primary replicated {commands:?}"),
    }
}

#[track_caller]
fn apply<const N: usize>(command: &[String], key: &str, kind: &str) -> [String; N] {
    match command {
        [name, of, family, changes @ ..]
            if name == "DSYNC.APPLY" && of == key && family == kind =>
        {
            let changes = changes.to_vec();
            changes
                .try_into()
                .unwrap_or_else(|changes| panic!("expected {N} changes: {changes:?}"))
        }
        _ => panic!("expected DSYNC.APPLY {key} {kind}, the primary replicated {command:?}"),
    }
}

/// A number among a change's fields; the verb is field 0.
#[track_caller]
fn field(change: &str, at: usize) -> u64 {
    match change.split(' ').nth(at).and_then(|text| text.parse().ok()) {
        Some(number) => number,
        None => panic!("no number in field {at} of {change:?}"),
    }
}

/// Asserts a grant to the letter. The moment of the grant is any since `since`; the deadline follows from
/// it and the lease.
#[track_caller]
fn assert_grant(
    change: &str,
    since: u64,
    fence: u64,
    claim: &str,
    lease: u64,
    token: &str,
    owner: &str,
) {
    let granted = field(change, 5);
    assert!(
        (since..=unix_ms()).contains(&granted),
        "granted at {granted}, since {since}"
    );
    let (token_len, owner_len) = (token.len(), owner.len());
    let deadline = granted + lease;
    assert_eq!(
        change,
        format!(
            "GRANT {fence} {claim} {lease} {deadline} {granted} 0 {token_len}:{token} {owner_len}:{owner}"
        )
    );
}

/// Asserts that a hold ended in this way, at a moment since `since`.
#[track_caller]
fn assert_end(change: &str, since: u64, fence: u64, how: &str) {
    let at = field(change, 3);
    assert!(
        (since..=unix_ms()).contains(&at),
        "ended at {at}, since {since}"
    );
    assert_eq!(change, format!("END {fence} {how} {at}"));
}

/// A primary, its stream and a connection.
fn stage() -> (Server, ReplicationStream, Client) {
    stage_of(Server::builder())
}

fn stage_of(builder: Builder) -> (Server, ReplicationStream, Client) {
    let server = builder.start();
    let stream = ReplicationStream::attach(&server);
    let client = server.connect();
    (server, stream, client)
}

#[track_caller]
fn received(waiter: &mut Client) -> Reply {
    waiter.recv(SOON).expect("the waiter is answered")
}

#[test]
fn a_grant_a_renewal_and_a_release_are_each_one_command() {
    let (server, mut stream, mut client) = stage();
    let start = unix_ms();
    let granted = call!(
        client,
        "DLOCK.ACQUIRE",
        "k",
        "PX",
        40000,
        "TOKEN",
        "mine",
        "OWNER",
        "me, \r\n"
    );
    let (_, fence) = granted.grant();
    let [change] = only_apply(&told(&mut stream, &server), "k", "lock:1");
    let granted = field(&change, 5);
    assert!((start..=unix_ms()).contains(&granted));
    let deadline = granted + 40000;
    assert_eq!(
        change,
        format!(r"GRANT {fence} exclusive 40000 {deadline} {granted} 0 4:mine 6:me, \r\n")
    );

    let before = unix_ms();
    assert_eq!(call!(client, "DLOCK.RENEW", "k", "mine", "EX", 50), 1);
    let [change] = only_apply(&told(&mut stream, &server), "k", "lock:1");
    let deadline = field(&change, 3);
    assert!(
        (before + 50_000..=unix_ms() + 50_000).contains(&deadline),
        "{change}"
    );
    assert_eq!(change, format!("RENEW {fence} 50000 {deadline}"));

    // The same request once more is the same hold, renewed.
    let again = call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "mine", "BLOCK", 0);
    assert_eq!(again.grant().1, fence);
    let [change] = only_apply(&told(&mut stream, &server), "k", "lock:1");
    assert_eq!(change, format!("RENEW {fence} 30000 {}", field(&change, 3)));

    assert_eq!(call!(client, "DLOCK.RELEASE", "k", "mine"), 1);
    let [end, vanish] = only_apply(&told(&mut stream, &server), "k", "lock:1");
    assert_end(&end, before, fence, "released");
    assert_eq!(vanish, "VANISH");
}

#[test]
fn the_servers_own_token_and_every_kind_of_claim_are_written_down() {
    let (server, mut stream, mut client) = stage();
    let start = unix_ms();
    let (token, fence) = call!(client, "DLOCK.ACQUIRE", "shared", "SHARED").grant();
    let [change] = only_apply(&told(&mut stream, &server), "shared", "lock:1");
    assert_grant(&change, start, fence, "shared", 30_000, &token, "");

    let (token, fence) = call!(client, "DSEM.ACQUIRE", "s", "LIMIT", 9, "PERMITS", 7).grant();
    let [limit, change] = only_apply(&told(&mut stream, &server), "s", "semaphore:1");
    assert_eq!(limit, "LIMIT 9");
    assert_grant(&change, start, fence, "7", 30_000, &token, "");

    let (token, fence) = call!(client, "DWG.ADD", "g", "OWNER", "o").grant();
    let [change] = only_apply(&told(&mut stream, &server), "g", "group:1");
    assert_grant(&change, start, fence, "member", 30_000, &token, "o");
}

#[test]
fn a_release_hands_on_in_the_same_command_and_before_the_waiter_hears_of_it() {
    let (server, mut stream, mut client) = stage();
    let fence = call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "a").grant().1;
    let mut waiters = [server.connect(), server.connect()];
    for (n, waiter) in waiters.iter_mut().enumerate() {
        send!(
            waiter,
            "DLOCK.ACQUIRE",
            "k",
            "SHARED",
            "BLOCK",
            0,
            "PX",
            7000,
            "TOKEN",
            format!("w{n}")
        );
        wait_for_blocked(&server, n as u64 + 1);
    }
    told(&mut stream, &server);
    let before = unix_ms();
    assert_eq!(call!(client, "DLOCK.RELEASE", "k", "a"), 1);
    let [end, first, second] = only_apply(&told(&mut stream, &server), "k", "lock:1");
    assert_end(&end, before, fence, "released");
    assert_grant(
        &first,
        before,
        received(&mut waiters[0]).grant().1,
        "shared",
        7000,
        "w0",
        "",
    );
    assert_grant(
        &second,
        before,
        received(&mut waiters[1]).grant().1,
        "shared",
        7000,
        "w1",
        "",
    );
}

#[test]
fn a_lapse_hands_on_in_one_bare_command_and_ends_in_one() {
    let (server, mut stream, mut client) = stage();
    let start = unix_ms();
    let fence = call!(client, "DLOCK.ACQUIRE", "k", "PX", 150, "TOKEN", "a")
        .grant()
        .1;
    let [grant] = only_apply(&told(&mut stream, &server), "k", "lock:1");
    assert_grant(&grant, start, fence, "exclusive", 150, "a", "");
    let mut waiter = server.connect();
    send!(
        waiter,
        "DLOCK.ACQUIRE",
        "k",
        "BLOCK",
        0,
        "PX",
        100,
        "TOKEN",
        "w"
    );

    let [end, grant] = apply(&next(&mut stream), "k", "lock:1");
    let passed_on = received(&mut waiter).grant().1;
    assert_end(&end, start + 150, fence, "lapsed");
    assert_grant(&grant, start, passed_on, "exclusive", 100, "w", "");

    let [end, vanish] = apply(&next(&mut stream), "k", "lock:1");
    assert_end(&end, start + 250, passed_on, "lapsed");
    assert_eq!(vanish, "VANISH");
    assert!(told(&mut stream, &server).is_empty());
}

#[test]
fn an_overdue_hold_lapses_within_the_competing_request_when_that_comes_first() {
    // A script that is longer than the lease and acquires at its end: no timer can have come between.
    let (server, mut stream, mut client) = stage();
    let fence = call!(client, "DLOCK.ACQUIRE", "k", "PX", 1, "TOKEN", "a")
        .grant()
        .1;
    // (TIME stands still within a script on some servers; on the others there is no other clock.)
    let script = "local function ms() local ok, s = pcall(function() return os.clock() end) \
                  if ok then return s * 1000 end \
                  local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end \
                  local start = ms() repeat until ms() - start > 50 \
                  return redis.call('DLOCK.ACQUIRE', 'k', 'TOKEN', 'b')";
    // In the turn of the grant's own command or a later one: either way the hold is overdue.
    let reply = call!(client, "EVAL", script, 1, "k");
    let next_fence = reply.grant().1;
    assert!(next_fence > fence);
    let commands: Vec<_> = told(&mut stream, &server)
        .into_iter()
        .filter(|c| c[0] == "DSYNC.APPLY")
        .collect();
    let changes: Vec<_> = commands
        .iter()
        .flat_map(|command| command[3..].to_vec())
        .collect();
    let verbs: Vec<_> = changes
        .iter()
        .map(|change| change.split(' ').next().unwrap_or_default())
        .collect();
    let lapsed: Vec<_> = changes
        .iter()
        .filter(|change| change.starts_with("END"))
        .collect();
    assert_eq!(lapsed.len(), 1, "{changes:?}");
    assert!(
        lapsed[0].starts_with(&format!("END {fence} lapsed ")),
        "{changes:?}"
    );
    assert_eq!(
        (verbs[0], *verbs.last().expect("a last change")),
        ("GRANT", "GRANT"),
        "{verbs:?}"
    );
}

#[test]
fn a_revocation_and_the_end_of_an_ephemeral_connection_say_so() {
    let (server, mut stream, mut client) = stage();
    let start = unix_ms();
    let fence = call!(client, "DLOCK.ACQUIRE", "k").grant().1;
    told(&mut stream, &server);
    assert_eq!(call!(client, "DLOCK.REVOKE", "k", fence), 1);
    let [end, vanish] = only_apply(&told(&mut stream, &server), "k", "lock:1");
    assert_end(&end, start, fence, "revoked");
    assert_eq!(vanish, "VANISH");

    let mut short = server.connect();
    let fence = call!(short, "DLOCK.ACQUIRE", "k", "EPHEMERAL", "TOKEN", "e")
        .grant()
        .1;
    let [grant] = only_apply(&told(&mut stream, &server), "k", "lock:1");
    assert_grant(&grant, start, fence, "exclusive", 30_000, "e", "");
    short.close();
    let [end, vanish] = apply(&next(&mut stream), "k", "lock:1");
    assert_end(&end, start, fence, "disconnected");
    assert_eq!(vanish, "VANISH");
}

#[test]
fn a_grant_whose_connection_was_closed_in_the_same_turn_ends_as_undelivered_and_passes_on() {
    let (server, mut stream, mut client) = stage();
    let start = unix_ms();
    let fence = call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "a").grant().1;
    let (mut doomed, mut heir) = (server.connect(), server.connect());
    let id = doomed.id();
    send!(doomed, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "doomed");
    wait_for_blocked(&server, 1);
    send!(heir, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "heir");
    wait_for_blocked(&server, 2);
    told(&mut stream, &server);

    // One write: both are carried out in one turn, before any waiter's reply is written.
    client.send_raw(format!("DLOCK.RELEASE k a\r\nCLIENT KILL ID {id}\r\n").as_bytes());
    assert_eq!(received(&mut client), 1);
    assert_eq!(received(&mut client), 1);
    let [end, grant] = apply(&next(&mut stream), "k", "lock:1");
    assert_end(&end, start, fence, "released");
    let lost = field(&grant, 1);
    assert_grant(&grant, start, lost, "exclusive", 30_000, "doomed", "");
    let [end, grant] = apply(&next(&mut stream), "k", "lock:1");
    assert_end(&end, start, lost, "undelivered");
    let (token, fence) = received(&mut heir).grant();
    assert_eq!(token, "heir");
    assert_grant(&grant, start, fence, "exclusive", 30_000, "heir", "");
}

#[test]
fn limits_and_pins_are_told_once_and_only_when_they_change() {
    let (server, mut stream, mut client) = stage();
    let mut ask = |words: &[&str]| {
        let reply = client.call(words);
        assert!(!reply.is_error(), "{words:?}: {reply:?}");
        told(&mut stream, &server)
    };
    let [limit, _] = only_apply(
        &ask(&["DSEM.ACQUIRE", "s", "LIMIT", "3", "TOKEN", "a"]),
        "s",
        "semaphore:1",
    );
    assert_eq!(limit, "LIMIT 3");
    let [grant] = only_apply(
        &ask(&["DSEM.ACQUIRE", "s", "LIMIT", "3", "TOKEN", "b"]),
        "s",
        "semaphore:1",
    );
    assert!(grant.starts_with("GRANT "), "{grant}");
    let [pin] = only_apply(&ask(&["DSEM.LIMIT", "s", "0"]), "s", "semaphore:1");
    assert_eq!(pin, "PIN 0");
    assert!(
        ask(&["DSEM.LIMIT", "s", "0"]).is_empty(),
        "pinned so already"
    );
    assert!(
        ask(&["DSEM.ACQUIRE", "s", "LIMIT", "9"]).is_empty(),
        "refused, and its limit with it"
    );
    let [end] = only_apply(&ask(&["DSEM.RELEASE", "s", "a"]), "s", "semaphore:1");
    assert!(end.starts_with("END "), "{end}");
    let [end] = only_apply(&ask(&["DSEM.RELEASE", "s", "b"]), "s", "semaphore:1");
    assert!(
        end.starts_with("END "),
        "a pinned semaphore survives being idle: {end}"
    );
    let [pin, vanish] = only_apply(&ask(&["DSEM.LIMIT", "s", "NONE"]), "s", "semaphore:1");
    assert_eq!((pin.as_str(), vanish.as_str()), ("PIN NONE", "VANISH"));
}

#[test]
fn a_limit_that_a_queued_request_brings_is_told_and_the_queueing_is_not() {
    let (server, mut stream, mut client) = stage();
    call!(client, "DSEM.ACQUIRE", "s", "LIMIT", 1, "TOKEN", "a");
    told(&mut stream, &server);
    let mut waiters = [server.connect(), server.connect()];
    send!(waiters[0], "DSEM.ACQUIRE", "s", "LIMIT", 1, "BLOCK", 0);
    wait_for_blocked(&server, 1);
    assert!(
        told(&mut stream, &server).is_empty(),
        "it brought the limit in force"
    );
    send!(
        waiters[1],
        "DSEM.ACQUIRE",
        "s",
        "LIMIT",
        2,
        "PERMITS",
        2,
        "BLOCK",
        0
    );
    let [limit, grant] = apply(&next(&mut stream), "s", "semaphore:1");
    assert_eq!(limit, "LIMIT 2");
    assert!(grant.starts_with("GRANT "), "the head fits now: {grant}");
    received(&mut waiters[0]).grant();
}

#[test]
fn a_round_is_told_from_expect_to_finish_and_a_forgotten_group_vanishes() {
    let (server, mut stream, mut client) = stage_of(
        Server::builder()
            .module_arg("group-keep-ms")
            .module_arg(300),
    );
    let start = unix_ms();
    assert_eq!(call!(client, "DWG.EXPECT", "g", 2), 2);
    let [expect] = only_apply(&told(&mut stream, &server), "g", "group:1");
    assert_eq!(expect, format!("EXPECT 2 {}", field(&expect, 2)));
    assert!((start..=unix_ms()).contains(&field(&expect, 2)));

    let a = call!(client, "DWG.ADD", "g", "TOKEN", "a").grant().1;
    let b = call!(client, "DWG.ADD", "g", "TOKEN", "b").grant().1;
    told(&mut stream, &server);
    assert_eq!(call!(client, "DWG.DONE", "g", "a", "nobody"), 1);
    let [end] = only_apply(&told(&mut stream, &server), "g", "group:1");
    assert_end(&end, start, a, "done");
    let mut waiter = server.connect();
    send!(waiter, "DWG.WAIT", "g", "BLOCK", 0);
    wait_for_blocked(&server, 1);
    assert!(
        told(&mut stream, &server).is_empty(),
        "to wait changes nothing"
    );

    assert_eq!(call!(client, "DWG.DONE", "g", "b"), 1);
    let [end, finish] = apply(&next(&mut stream), "g", "group:1");
    assert_end(&end, start, b, "done");
    assert_eq!(finish, format!("FINISH {}", field(&end, 3) + 300));
    assert_eq!(
        received(&mut waiter).as_array(),
        [Reply::Int(2), Reply::Int(0)]
    );

    let [vanish] = apply(&next(&mut stream), "g", "group:1");
    assert_eq!(vanish, "VANISH");
    assert!(
        unix_ms() >= field(&finish, 1),
        "the tally was kept as long as was said"
    );
    assert_eq!(call!(client, "EXISTS", "g"), 0);
}

#[test]
fn what_changes_nothing_replicates_nothing() {
    let (server, mut stream, mut client) = stage();
    call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "t");
    call!(
        client,
        "DSEM.ACQUIRE",
        "s",
        "LIMIT",
        2,
        "PERMITS",
        2,
        "TOKEN",
        "t"
    );
    call!(client, "DWG.ADD", "g", "TOKEN", "t", "LIMIT", 1);
    call!(client, "SET", "string", 1);
    told(&mut stream, &server);

    let mut waiters: Vec<_> = (0..4).map(|_| server.connect()).collect();
    send!(waiters[0], "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "w");
    send!(waiters[1], "DSEM.ACQUIRE", "s", "BLOCK", 0);
    send!(waiters[2], "DWG.ADD", "g", "BLOCK", 0);
    send!(waiters[3], "DWG.WAIT", "g", "BLOCK", 0);
    wait_for_blocked(&server, 4);
    let requests: &[&[&str]] = &[
        &["DLOCK.ACQUIRE", "k"],
        &["DLOCK.ACQUIRE", "k", "BLOCK", "20"],
        &["DLOCK.ACQUIRE", "k", "SHARED", "TOKEN", "t"],
        &["DLOCK.ACQUIRE", "k", "TOKEN", "w"],
        &["DLOCK.ACQUIRE", "s"],
        &["DLOCK.ACQUIRE", "string"],
        &["DLOCK.ACQUIRE", "k", "PX", "0"],
        &["DLOCK.RELEASE", "k", "other"],
        &["DLOCK.RELEASE", "absent", "t"],
        &["DLOCK.RENEW", "k", "other"],
        &["DLOCK.RENEW", "absent", "t"],
        &["DLOCK.REVOKE", "k", "1"],
        &["DLOCK.CHECK", "k", "t"],
        &["DLOCK.INFO", "k"],
        &["DLOCK.INFO", "absent"],
        &["DSEM.ACQUIRE", "s"],
        &["DSEM.ACQUIRE", "s", "LIMIT", "9"],
        &["DSEM.ACQUIRE", "s", "PERMITS", "9", "BLOCK", "20"],
        &["DSEM.ACQUIRE", "none"],
        &["DSEM.RELEASE", "s", "other"],
        &["DSEM.LIMIT", "none", "NONE"],
        &["DSEM.INFO", "s"],
        &["DWG.ADD", "g"],
        &["DWG.WAIT", "g"],
        &["DWG.WAIT", "g", "BLOCK", "20"],
        &["DWG.WAIT", "absent"],
        &["DWG.DONE", "g", "other", "another"],
        &["DWG.INFO", "g"],
    ];
    for request in requests {
        let reply = client.call(request);
        let seen = told(&mut stream, &server);
        assert!(
            seen.is_empty(),
            "{request:?} answered {reply:?} and replicated {seen:?}"
        );
    }
    let superseded = waiters.remove(0);
    send!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "w", "BLOCK", 60000);
    let mut superseded = superseded;
    assert!(received(&mut superseded).error().starts_with("UNBLOCKED"));
    assert!(
        told(&mut stream, &server).is_empty(),
        "a place that was taken over"
    );
    client.close();
    wait_for_blocked(&server, 3);
    assert!(told(&mut stream, &server).is_empty(), "a waiter that left");
}

#[test]
fn several_keys_in_one_step_are_atomic_where_the_server_makes_them_so_and_each_key_is_told_once() {
    let (server, mut stream, mut client) = stage();
    call!(client, "MULTI");
    call!(client, "DLOCK.ACQUIRE", "a", "TOKEN", "t");
    call!(client, "DLOCK.ACQUIRE", "a", "TOKEN", "u");
    call!(client, "DLOCK.ACQUIRE", "b", "TOKEN", "t", "BLOCK", 0);
    call!(client, "EXEC");
    let seen = told(&mut stream, &server);
    let names: Vec<_> = seen.iter().map(|command| command[0].as_str()).collect();
    assert_eq!(names, ["MULTI", "DSYNC.APPLY", "DSYNC.APPLY", "EXEC"]);
    let [_] = apply(&seen[1], "a", "lock:1");
    let [_] = apply(&seen[2], "b", "lock:1");

    let script = "redis.call('DLOCK.RELEASE', 'a', 't') redis.call('DLOCK.RELEASE', 'b', 't')";
    call!(client, "EVAL", script, 2, "a", "b");
    let seen = told(&mut stream, &server);
    let names: Vec<_> = seen.iter().map(|command| command[0].as_str()).collect();
    assert_eq!(names, ["MULTI", "DSYNC.APPLY", "DSYNC.APPLY", "EXEC"]);
    for (command, key) in [(&seen[1], "a"), (&seen[2], "b")] {
        let [_, vanish] = apply(command, key, "lock:1");
        assert_eq!(vanish, "VANISH");
    }

    // A wave of lapses: however the server groups it, brackets match and every key ends once.
    for n in 0..200 {
        call!(client, "DLOCK.ACQUIRE", format!("wave:{n}"), "PX", 300);
    }
    told(&mut stream, &server);
    let (mut ended, mut inside) = (Vec::new(), false);
    while ended.len() < 200 || inside {
        let command = next(&mut stream);
        match command[0].as_str() {
            "MULTI" if !inside => inside = true,
            "EXEC" if inside => inside = false,
            "DSYNC.APPLY" => {
                let [end, vanish] = apply(&command, &command[1].clone(), "lock:1");
                assert!(
                    end.contains(" lapsed ") && vanish == "VANISH",
                    "{command:?}"
                );
                ended.push(command[1].clone());
            }
            _ => panic!("inside {inside}: {command:?}"),
        }
    }
    ended.sort();
    ended.dedup();
    assert_eq!(ended.len(), 200);
}

#[test]
fn a_removed_lock_is_granted_afresh_and_the_replica_hears_of_it_after_the_removal() {
    type Removal = (&'static [&'static str], &'static [&'static str]);
    let removals: [Removal; 5] = [
        (&["DEL", "k"], &["DEL"]),
        (&["UNLINK", "k"], &["UNLINK"]),
        (&["RENAME", "k", "away"], &["RENAME"]),
        (&["MOVE", "k", "1"], &["MOVE"]),
        (&["FLUSHALL"], &["FLUSHALL"]),
    ];
    let (server, mut stream, mut client) = stage();
    for (removal, told_first) in removals {
        call!(client, "FLUSHALL");
        call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "holder");
        let mut waiter = server.connect();
        send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "waiter");
        wait_for_blocked(&server, 1);
        told(&mut stream, &server);
        let start = unix_ms();
        let reply = client.call(removal);
        assert!(!reply.is_error(), "{removal:?}: {reply:?}");
        let fence = received(&mut waiter).grant().1;
        let seen: Vec<_> = told(&mut stream, &server)
            .into_iter()
            .filter(|c| c[0] != "MULTI" && c[0] != "EXEC")
            .collect();
        let names: Vec<_> = seen
            .iter()
            .map(|command| command[0].to_uppercase())
            .collect();
        assert_eq!(
            names,
            [told_first, &["DSYNC.APPLY"]].concat(),
            "{removal:?}"
        );
        let [grant] = apply(&seen[1], "k", "lock:1");
        assert_grant(&grant, start, fence, "exclusive", 30_000, "waiter", "");
    }
}

#[test]
fn a_removal_and_the_grant_after_it_come_out_right_on_a_real_replica() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = primary.connect();
    for round in 0..20 {
        call!(
            client,
            "DLOCK.ACQUIRE",
            "k",
            "TOKEN",
            format!("holder {round}")
        );
        let mut waiter = primary.connect();
        send!(
            waiter,
            "DLOCK.ACQUIRE",
            "k",
            "BLOCK",
            0,
            "TOKEN",
            format!("waiter {round}")
        );
        wait_for_blocked(&primary, 1);
        call!(client, "DEL", "k");
        received(&mut waiter).grant();
        replica.wait_to_catch_up_with(&primary);
        let left = call!(
            replica.connect(),
            "DLOCK.CHECK",
            "k",
            format!("waiter {round}")
        )
        .as_int();
        assert!(left > 0, "the replica lost the grant after the DEL");
        assert_eq!(digest(&replica, "k"), digest(&primary, "k"));
        call!(client, "DEL", "k");
    }
}

#[test]
fn nobody_but_the_server_can_call_dsync_apply() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let now = unix_ms();
    let grant = format!("GRANT 9 exclusive 30000 {} {now} 0 1:t 0:", now + 30_000);
    let words = ["DSYNC.APPLY", "k", "lock:1", &grant];
    for server in [&primary, &replica] {
        let mut client = server.connect();
        assert!(client.call(&words).is_error(), "from a client");
        call!(client, "MULTI");
        client.call(&words);
        let done = call!(client, "EXEC");
        let refused = match &done {
            Reply::Error(_) => true,
            other => other.as_array().iter().all(Reply::is_error),
        };
        assert!(refused, "in MULTI: {done:?}");
        let script = "return redis.call('DSYNC.APPLY', KEYS[1], ARGV[1], ARGV[2])";
        assert!(
            call!(client, "EVAL", script, 1, "k", "lock:1", &grant).is_error(),
            "in Lua"
        );
        let library = "#!lua name=l\nredis.register_function('f', function(keys, args) \
                       return redis.call('DSYNC.APPLY', keys[1], args[1], args[2]) end)";
        if std::ptr::eq(server, &primary) {
            call!(client, "FUNCTION", "LOAD", library);
            replica.wait_to_catch_up_with(&primary);
        }
        assert!(
            call!(client, "FCALL", "f", 1, "k", "lock:1", &grant).is_error(),
            "in a function"
        );
        assert_eq!(call!(client, "EXISTS", "k"), 0);
    }
}

/// A key of each family, some of it in another database, with owners, renewals and odd tokens.
fn furnish(client: &mut Client) {
    call!(
        client,
        "DLOCK.ACQUIRE",
        "lock",
        "EX",
        600,
        "TOKEN",
        "t",
        "OWNER",
        "o"
    );
    call!(client, "DLOCK.RENEW", "lock", "t", "EX", 700);
    for n in 0..5 {
        call!(
            client,
            "DLOCK.ACQUIRE",
            "shared",
            "SHARED",
            "EX",
            600,
            "TOKEN",
            [n, 0, 255u8]
        );
    }
    call!(
        client,
        "DSEM.ACQUIRE",
        "sem",
        "LIMIT",
        9,
        "PERMITS",
        4,
        "EX",
        600,
        "TOKEN",
        "t"
    );
    call!(
        client,
        "DSEM.ACQUIRE",
        "sem",
        "LIMIT",
        8,
        "PERMITS",
        2,
        "EX",
        600
    );
    call!(client, "DSEM.LIMIT", "pinned", 3);
    call!(client, "DWG.EXPECT", "group", 7);
    call!(
        client, "DWG.ADD", "group", "LIMIT", 5, "EX", 600, "TOKEN", "a"
    );
    call!(
        client, "DWG.ADD", "group", "LIMIT", 5, "EX", 600, "TOKEN", "b"
    );
    call!(client, "DWG.DONE", "group", "a");
    call!(client, "DWG.ADD", "finished", "TOKEN", "a");
    call!(client, "DWG.DONE", "finished", "a");
    call!(client, "SELECT", 3);
    call!(
        client,
        "DLOCK.ACQUIRE",
        "elsewhere",
        "EX",
        600,
        "TOKEN",
        "t"
    );
    call!(client, "SELECT", 0);
}

const FURNITURE: [&str; 6] = ["lock", "shared", "sem", "pinned", "group", "finished"];

#[track_caller]
fn assert_same_furniture(one: &Server, other: &Server) {
    for key in FURNITURE {
        assert_eq!(digest(one, key), digest(other, key), "the digest of {key}");
    }
    let whole = |server: &Server| call!(server.connect(), "DEBUG", "DIGEST");
    assert_eq!(whole(one), whole(other), "the digest of everything");
}

#[test]
fn what_was_there_before_a_full_synchronisation_is_there_after_it() {
    for diskless in ["no", "yes"] {
        let primary = Server::builder()
            .config("repl-diskless-sync", diskless)
            .start();
        furnish(&mut primary.connect());
        let load = if diskless == "yes" {
            "on-empty-db"
        } else {
            "disabled"
        };
        let replica = Server::builder()
            .config("repl-diskless-load", load)
            .replica_of(&primary)
            .start();
        assert_same_furniture(&primary, &replica);
        let left = call!(replica.connect(), "DLOCK.CHECK", "lock", "t").as_int();
        assert!(
            (600_001..=700_000).contains(&left),
            "{left} ms left on the replica"
        );

        // And what comes behind the snapshot fits it.
        let mut client = primary.connect();
        assert_eq!(call!(client, "DLOCK.RENEW", "lock", "t"), 1);
        assert_eq!(call!(client, "DSEM.RELEASE", "sem", "t"), 1);
        assert_eq!(call!(client, "DWG.DONE", "group", "b"), 1);
        call!(client, "DWG.ADD", "finished", "TOKEN", "next round");
        replica.wait_to_catch_up_with(&primary);
        assert_same_furniture(&primary, &replica);
        assert!(
            !replica.log_text().contains("DSYNC.APPLY failed"),
            "{}",
            replica.log_text()
        );
    }
}

#[test]
fn a_replica_that_already_had_holds_takes_over_the_primarys_and_forgets_its_own() {
    let primary = Server::start();
    furnish(&mut primary.connect());
    for load in ["disabled", "swapdb"] {
        let other = Server::builder().config("repl-diskless-load", load).start();
        let mut client = other.connect();
        call!(client, "DLOCK.ACQUIRE", "mine", "PX", 300);
        call!(client, "DLOCK.ACQUIRE", "lock", "PX", 300);
        call!(client, "REPLICAOF", "127.0.0.1", primary.port());
        other.wait_for_sync();
        assert_same_furniture(&primary, &other);
        assert_eq!(call!(other.connect(), "EXISTS", "mine"), 0);
        let outlives = "the primary's lock outlives the lease of the one before it";
        stays(outlives, Duration::from_millis(600), || {
            call!(other.connect(), "DLOCK.CHECK", "lock", "t").as_int() > 0
        });
        // Its values are its own: what is changed and removed later is found.
        let mut client = primary.connect();
        call!(client, "DLOCK.RENEW", "lock", "t");
        call!(client, "DWG.ADD", "group", "TOKEN", load);
        other.wait_to_catch_up_with(&primary);
        assert_same_furniture(&primary, &other);
    }
}

#[test]
fn a_replica_that_restarts_goes_on_from_where_it_was() {
    let primary = Server::start();
    let mut replica = Server::builder()
        .config("save", "3600 1")
        .replica_of(&primary)
        .start();
    let mut client = primary.connect();
    furnish(&mut client);
    call!(client, "DLOCK.ACQUIRE", "lapses", "PX", 300);
    replica.wait_to_catch_up_with(&primary);
    replica.shutdown();
    eventually("a lapse while the replica is down", SOON, || {
        call!(client, "EXISTS", "lapses") == 0
    });
    call!(client, "DSEM.RELEASE", "sem", "t");
    replica.start_again();
    replica.wait_for_sync();
    replica.wait_to_catch_up_with(&primary);
    assert_same_furniture(&primary, &replica);
    let log = replica.log_text();
    assert!(
        log.contains("Successful partial resynchronization"),
        "{log}"
    );
    assert!(!log.contains("DSYNC.APPLY failed"), "{log}");
}

#[test]
fn a_replicas_own_aof_has_what_it_was_told() {
    let mut primary = Server::start();
    let mut replica = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("aof-use-rdb-preamble", "no")
        .replica_of(&primary)
        .start();
    // It begins anew after the synchronisation, in the background.
    eventually("the replica's AOF", SOON, || {
        let info = replica.info_section("persistence");
        ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"]
            .iter()
            .all(|line| info.contains(line))
    });
    let mut client = primary.connect();
    furnish(&mut client);
    call!(client, "DLOCK.ACQUIRE", "gone", "TOKEN", "t");
    call!(client, "DLOCK.RELEASE", "gone", "t");
    replica.wait_to_catch_up_with(&primary);
    let before = FURNITURE.map(|key| digest(&replica, key));
    // Alone, it can have its data from nowhere else.
    primary.kill9();
    replica.kill9();
    replica.start_again();
    for (key, before) in FURNITURE.iter().zip(before) {
        assert_eq!(digest(&replica, key), before, "the digest of {key}");
    }
    assert_eq!(call!(replica.connect(), "EXISTS", "gone"), 0);
    assert_eq!(call!(replica.connect(), "REPLICAOF", "NO", "ONE"), "OK");
    assert_eq!(call!(replica.connect(), "DLOCK.RELEASE", "lock", "t"), 1);
}

/// Asserts that the condition holds again and again during a while.
#[track_caller]
fn stays(what: &str, during: Duration, mut holds: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + during;
    while std::time::Instant::now() < until {
        assert!(holds(), "not any more: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_replica_that_lags_behind_writes_down_the_primarys_moments_not_its_own() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    replica.stop();
    furnish(&mut primary.connect());
    call!(primary.connect(), "DWG.ADD", "just added", "TOKEN", "a");
    let done = unix_ms();
    eventually(
        "a moment between the decision and its arrival",
        SOON,
        || unix_ms() > done + 20,
    );
    replica.cont();
    replica.wait_to_catch_up_with(&primary);
    for key in FURNITURE.iter().chain(&["just added"]) {
        assert_eq!(
            digest(&replica, key),
            digest(&primary, key),
            "the digest of {key}"
        );
    }
}

#[test]
fn a_replica_refuses_writes_and_answers_looks() {
    let primary = Server::start();
    furnish(&mut primary.connect());
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = replica.connect();
    let writes: &[&[&str]] = &[
        &["DLOCK.ACQUIRE", "lock"],
        &["DLOCK.ACQUIRE", "lock", "BLOCK", "0"],
        &["DLOCK.ACQUIRE", "free"],
        &["DLOCK.RELEASE", "lock", "t"],
        &["DLOCK.RENEW", "lock", "t"],
        &["DLOCK.REVOKE", "lock", "1"],
        &["DSEM.ACQUIRE", "sem", "BLOCK", "0"],
        &["DSEM.LIMIT", "sem", "1"],
        &["DWG.ADD", "group"],
        &["DWG.DONE", "group", "b"],
        &["DWG.EXPECT", "group", "1"],
        &["DWG.WAIT", "group", "BLOCK", "0"],
    ];
    for write in writes {
        let reply = client.call(write);
        assert!(
            reply.error().starts_with("READONLY"),
            "{write:?}: {reply:?}"
        );
    }
    for (command, key) in [
        ("DLOCK.INFO", "lock"),
        ("DSEM.INFO", "sem"),
        ("DWG.INFO", "group"),
    ] {
        let info = call!(client, command, key);
        assert_eq!(info.field("waiters"), &"unknown on a replica", "{info:?}");
        let first = &info.field("first-holders").as_array()[0];
        let left = first.field("lease-left-ms").as_int();
        assert!((1..=700_000).contains(&left), "{info:?}");
        assert!(
            first.field("client").is_nil(),
            "connections are the primary's: {info:?}"
        );
        let on_primary = call!(primary.connect(), command, key);
        assert_eq!(info.field("holders"), on_primary.field("holders"));
        assert_eq!(
            first.field("fence"),
            on_primary.field("first-holders").as_array()[0].field("fence")
        );
    }
}

#[test]
fn a_replica_lapses_nothing_and_tells_from_the_deadline_what_is_left() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    call!(
        primary.connect(),
        "DLOCK.ACQUIRE",
        "k",
        "PX",
        1500,
        "TOKEN",
        "t"
    );
    call!(
        primary.connect(),
        "DLOCK.ACQUIRE",
        "other",
        "PX",
        60000,
        "TOKEN",
        "t"
    );
    replica.wait_to_catch_up_with(&primary);
    // A primary that stands still lapses nothing either; the replica is all alone with the deadline.
    primary.stop();
    let mut client = replica.connect();
    let left = call!(client, "DLOCK.CHECK", "k", "t").as_int();
    assert!((0..=1500).contains(&left), "{left}");
    eventually("an overdue hold on the replica", SOON, || {
        let left = call!(client, "DLOCK.CHECK", "k", "t").as_int();
        assert!((0..=1500).contains(&left), "{left}");
        left == 0
    });
    stays(
        "an overdue hold on a replica",
        Duration::from_millis(500),
        || call!(client, "EXISTS", "k") == 1,
    );
    let info = call!(client, "DLOCK.INFO", "k");
    assert_eq!(*info.field("holders"), 1);
    assert_eq!(
        *info.field("first-holders").as_array()[0].field("lease-left-ms"),
        0
    );
    primary.cont();
    eventually("the primary's lapse on the replica", SOON, || {
        call!(client, "EXISTS", "k") == 0
    });
    assert!(call!(client, "DLOCK.CHECK", "other", "t").as_int() > 0);
}

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
