//! What a primary tells its replicas, word by word.
//!
//! The promise: effects are replicated and never decisions; what one call did to one key is one command; and
//! a request that changed nothing says nothing.

use crate::support::data_files::{kill_and_start, with_safe_aof};
use crate::support::steps::{SOON, unix_ms};
use crate::support::*;

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

/// Asserts that exactly one command was replicated, and that it is `DSYN key`, of a family and with this many
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
        [name, of, family, changes @ ..] if name == "DSYN" && of == key && family == kind => {
            let changes = changes.to_vec();
            changes
                .try_into()
                .unwrap_or_else(|changes| panic!("expected {N} changes: {changes:?}"))
        }
        _ => panic!("expected DSYN {key} of {kind}, the primary replicated {command:?}"),
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
    let [change] = only_apply(&told(&mut stream, &server), "k", "lock");
    let granted = field(&change, 5);
    assert!((start..=unix_ms()).contains(&granted));
    let deadline = granted + 40000;
    assert_eq!(
        change,
        format!(r"GRANT {fence} exclusive 40000 {deadline} {granted} 0 4:mine 6:me, \r\n")
    );

    let before = unix_ms();
    assert_eq!(call!(client, "DLOCK.RENEW", "k", "mine", "EX", 50), 1);
    let [change] = only_apply(&told(&mut stream, &server), "k", "lock");
    let deadline = field(&change, 3);
    assert!(
        (before + 50_000..=unix_ms() + 50_000).contains(&deadline),
        "{change}"
    );
    assert_eq!(change, format!("RENEW {fence} 50000 {deadline}"));

    // The same request once more is the same hold, renewed.
    let again = call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "mine", "BLOCK", 0);
    assert_eq!(again.grant().1, fence);
    let [change] = only_apply(&told(&mut stream, &server), "k", "lock");
    assert_eq!(change, format!("RENEW {fence} 30000 {}", field(&change, 3)));

    // It ended the only hold and served nobody: the command itself says so.
    assert_eq!(call!(client, "DLOCK.RELEASE", "k", "mine"), 1);
    assert_eq!(told(&mut stream, &server), [["DLOCK.RELEASE", "k", "mine"]]);

    let fence = call!(client, "DSEM.ACQUIRE", "s", "LIMIT", 1, "TOKEN", "mine")
        .grant()
        .1;
    told(&mut stream, &server);
    assert_eq!(call!(client, "DSEM.RELEASE", "s", "mine"), 1);
    let [end, vanish] = only_apply(&told(&mut stream, &server), "s", "semaphore");
    assert_end(&end, before, fence, "released");
    assert_eq!(vanish, "VANISH");
}

#[test]
fn the_servers_own_token_and_every_kind_of_claim_are_written_down() {
    let (server, mut stream, mut client) = stage();
    let start = unix_ms();
    let (token, fence) = call!(client, "DLOCK.ACQUIRE", "shared", "SHARED").grant();
    let [change] = only_apply(&told(&mut stream, &server), "shared", "lock");
    assert_grant(&change, start, fence, "shared", 30_000, &token, "");

    let (token, fence) = call!(client, "DSEM.ACQUIRE", "s", "LIMIT", 9, "PERMITS", 7).grant();
    let [limit, change] = only_apply(&told(&mut stream, &server), "s", "semaphore");
    assert_eq!(limit, "LIMIT 9");
    assert_grant(&change, start, fence, "7", 30_000, &token, "");

    let (token, fence) = call!(client, "DWG.ADD", "g", "OWNER", "o").grant();
    let [change] = only_apply(&told(&mut stream, &server), "g", "group");
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
    let [end, first, second] = only_apply(&told(&mut stream, &server), "k", "lock");
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
    let [grant] = only_apply(&told(&mut stream, &server), "k", "lock");
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

    let [end, grant] = apply(&next(&mut stream), "k", "lock");
    let passed_on = received(&mut waiter).grant().1;
    assert_end(&end, start + 150, fence, "lapsed");
    assert_grant(&grant, start, passed_on, "exclusive", 100, "w", "");

    let [end, vanish] = apply(&next(&mut stream), "k", "lock");
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
    let script = busy_for(50) + "return redis.call('DLOCK.ACQUIRE', 'k', 'TOKEN', 'b')";
    // In the turn of the grant's own command or a later one: either way the hold is overdue.
    let reply = call!(client, "EVAL", script, 1, "k");
    let next_fence = reply.grant().1;
    assert!(next_fence > fence);
    let commands: Vec<_> = told(&mut stream, &server)
        .into_iter()
        .filter(|c| c[0] == "DSYN")
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
    let [end, vanish] = only_apply(&told(&mut stream, &server), "k", "lock");
    assert_end(&end, start, fence, "revoked");
    assert_eq!(vanish, "VANISH");

    let mut short = server.connect();
    let fence = call!(short, "DLOCK.ACQUIRE", "k", "EPHEMERAL", "TOKEN", "e")
        .grant()
        .1;
    let [grant] = only_apply(&told(&mut stream, &server), "k", "lock");
    assert_grant(&grant, start, fence, "exclusive", 30_000, "e", "");
    short.close();
    let [end, vanish] = apply(&next(&mut stream), "k", "lock");
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
    let [end, grant] = apply(&next(&mut stream), "k", "lock");
    assert_end(&end, start, fence, "released");
    let lost = field(&grant, 1);
    assert_grant(&grant, start, lost, "exclusive", 30_000, "doomed", "");
    let [end, grant] = apply(&next(&mut stream), "k", "lock");
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
        "semaphore",
    );
    assert_eq!(limit, "LIMIT 3");
    let [grant] = only_apply(
        &ask(&["DSEM.ACQUIRE", "s", "LIMIT", "3", "TOKEN", "b"]),
        "s",
        "semaphore",
    );
    assert!(grant.starts_with("GRANT "), "{grant}");
    let [pin] = only_apply(&ask(&["DSEM.LIMIT", "s", "0"]), "s", "semaphore");
    assert_eq!(pin, "PIN 0");
    assert!(
        ask(&["DSEM.LIMIT", "s", "0"]).is_empty(),
        "pinned so already"
    );
    assert!(
        ask(&["DSEM.ACQUIRE", "s", "LIMIT", "9"]).is_empty(),
        "refused, and its limit with it"
    );
    let [end] = only_apply(&ask(&["DSEM.RELEASE", "s", "a"]), "s", "semaphore");
    assert!(end.starts_with("END "), "{end}");
    let [end] = only_apply(&ask(&["DSEM.RELEASE", "s", "b"]), "s", "semaphore");
    assert!(
        end.starts_with("END "),
        "a pinned semaphore survives being idle: {end}"
    );
    let [pin, vanish] = only_apply(&ask(&["DSEM.LIMIT", "s", "NONE"]), "s", "semaphore");
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
    let [limit, grant] = apply(&next(&mut stream), "s", "semaphore");
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
    let [expect] = only_apply(&told(&mut stream, &server), "g", "group");
    assert_eq!(expect, format!("EXPECT 2 {}", field(&expect, 2)));
    assert!((start..=unix_ms()).contains(&field(&expect, 2)));

    let a = call!(client, "DWG.ADD", "g", "TOKEN", "a").grant().1;
    let b = call!(client, "DWG.ADD", "g", "TOKEN", "b").grant().1;
    told(&mut stream, &server);
    assert_eq!(call!(client, "DWG.DONE", "g", "a", "nobody"), 1);
    let [end] = only_apply(&told(&mut stream, &server), "g", "group");
    assert_end(&end, start, a, "done");
    let mut waiter = server.connect();
    send!(waiter, "DWG.WAIT", "g", "BLOCK", 0);
    wait_for_blocked(&server, 1);
    assert!(
        told(&mut stream, &server).is_empty(),
        "to wait changes nothing"
    );

    assert_eq!(call!(client, "DWG.DONE", "g", "b"), 1);
    let [end, finish] = apply(&next(&mut stream), "g", "group");
    assert_end(&end, start, b, "done");
    assert_eq!(finish, format!("FINISH {}", field(&end, 3) + 300));
    assert_eq!(
        received(&mut waiter).as_array(),
        [Reply::Int(2), Reply::Int(0)]
    );

    let [vanish] = apply(&next(&mut stream), "g", "group");
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
    assert_eq!(names, ["MULTI", "DSYN", "DSYN", "EXEC"]);
    let [_] = apply(&seen[1], "a", "lock");
    let [_] = apply(&seen[2], "b", "lock");

    let script = "redis.call('DLOCK.RELEASE', 'a', 't') redis.call('DLOCK.RELEASE', 'b', 't')";
    call!(client, "EVAL", script, 2, "a", "b");
    let seen = told(&mut stream, &server);
    let names: Vec<_> = seen.iter().map(|command| command[0].as_str()).collect();
    assert_eq!(names, ["MULTI", "DLOCK.RELEASE", "DLOCK.RELEASE", "EXEC"]);
    assert_eq!(seen[1][1..], ["a", "t"]);
    assert_eq!(seen[2][1..], ["b", "t"]);

    // A wave of lapses: however the server groups it, brackets match and every key ends once.
    for n in 0..200 {
        call!(client, "DLOCK.ACQUIRE", format!("wave:{n}"), "PX", 300);
    }
    let (mut ended, mut inside) = (Vec::new(), false);
    while ended.len() < 200 || inside {
        let command = next(&mut stream);
        match command[0].as_str() {
            "MULTI" if !inside => inside = true,
            "EXEC" if inside => inside = false,
            // On a slow machine the first lapse before the last is granted.
            "DSYN" if command[3].starts_with("GRANT ") => {}
            "DSYN" => {
                let [end, vanish] = apply(&command, &command[1].clone(), "lock");
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
        assert_eq!(names, [told_first, &["DSYN"]].concat(), "{removal:?}");
        let [grant] = apply(&seen[1], "k", "lock");
        assert_grant(&grant, start, fence, "exclusive", 30_000, "waiter", "");
    }
}

/// A release that is passed on as it came, in every way in which it can come.
#[test]
fn release_passed_on_as_it_came_ends_the_hold_on_every_replica_and_in_every_aof() {
    let mut primary = with_safe_aof(false).start();
    let mut replica = with_safe_aof(false).replica_of(&primary).start();
    let chained = Server::builder().replica_of(&replica).start();
    let mut client = primary.connect();
    call!(client, "DLOCK.ACQUIRE", "kept", "TOKEN", "t", "EX", 600);
    let mut all = Vec::new();
    for key in ["plain", "lower", "multi", "lua", "shared"] {
        let acquired = match key {
            "shared" => call!(
                client,
                "DLOCK.ACQUIRE",
                key,
                "SHARED",
                "TOKEN",
                "t",
                "EX",
                600
            ),
            _ => call!(client, "DLOCK.ACQUIRE", key, "TOKEN", "t", "EX", 600),
        };
        acquired.grant();
        all.push(key);
    }
    let other = call!(
        client,
        "DLOCK.ACQUIRE",
        "shared",
        "SHARED",
        "TOKEN",
        "u",
        "EX",
        600
    );
    other.grant();
    assert_eq!(call!(client, "DLOCK.RELEASE", "plain", "t"), 1);
    assert_eq!(call!(client, "dlock.release", "lower", "t"), 1);
    call!(client, "MULTI");
    call!(client, "DLOCK.RELEASE", "multi", "t");
    call!(client, "EXEC");
    let script = "return redis.call('Dlock.Release', KEYS[1], ARGV[1])";
    assert_eq!(call!(client, "EVAL", script, 1, "lua", "t"), 1);
    // The first leaves a hold behind, the second does not.
    assert_eq!(call!(client, "DLOCK.RELEASE", "shared", "t"), 1);
    assert_eq!(call!(client, "DLOCK.RELEASE", "shared", "u"), 1);

    replica.wait_to_catch_up_with(&primary);
    chained.wait_to_catch_up_with(&primary);
    let assert_same = |server: &Server, what: &str| {
        let mut client = server.connect();
        assert_eq!(call!(client, "DBSIZE"), 1, "{what}");
        assert!(
            call!(client, "DLOCK.CHECK", "kept", "t").as_int() > 0,
            "{what}"
        );
        assert_eq!(server.info_number("dsync", "dsync_unapplied_changes"), 0);
        assert_eq!(server.info_number("dsync", "dsync_lock_holds"), 1, "{what}");
    };
    assert_same(&primary, "the primary");
    assert_same(&replica, "the replica");
    assert_same(&chained, "the replica's replica");
    // From its own AOF, for there is nobody to synchronise with.
    kill_and_start(&mut primary);
    assert_same(&primary, "the primary's AOF");
    primary.kill9();
    kill_and_start(&mut replica);
    assert_same(&replica, "the replica's AOF");
}

/// A replica that has lost the hold, or has others beside it, ends nothing and says so.
#[test]
fn release_passed_on_to_a_replica_that_differs_is_refused_and_counted() {
    let primary = Server::start();
    let replica = Server::builder()
        .config("replica-read-only", "no")
        .replica_of(&primary)
        .start();
    let mut client = primary.connect();
    call!(client, "DLOCK.ACQUIRE", "k", "TOKEN", "t").grant();
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(call!(replica.connect(), "DEL", "k"), 1);
    assert_eq!(call!(client, "DLOCK.RELEASE", "k", "t"), 1);
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(replica.info_number("dsync", "dsync_unapplied_changes"), 2);
    let log = replica.log_text();
    let said = "DLOCK.RELEASE failed on key 'k' of database 0: the key has no hold of its token, or \
                others beside it";
    assert!(log.contains(said), "{log}");
}

#[test]
fn nobody_but_the_server_can_call_its_internal_commands() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let now = unix_ms();
    let grant = format!("GRANT 9 exclusive 30000 {} {now} 0 1:t 0:", now + 30_000);
    let packed = packed("lock", &[&grant]);
    for (command, argument) in [(STREAM, &packed[..]), ("DSYNC.APPLY", b"lock:1")] {
        let words = [command.as_bytes(), b"k", argument];
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
            let script = "return redis.call(ARGV[1], KEYS[1], ARGV[2])";
            assert!(
                call!(client, "EVAL", script, 1, "k", command, argument).is_error(),
                "in Lua"
            );
            let library = "#!lua name=l\nredis.register_function('f', function(keys, args) \
                           return redis.call(args[1], keys[1], args[2]) end)";
            if std::ptr::eq(server, &primary) {
                call!(client, "FUNCTION", "LOAD", "REPLACE", library);
                replica.wait_to_catch_up_with(&primary);
            }
            assert!(
                call!(client, "FCALL", "f", 1, "k", command, argument).is_error(),
                "in a function"
            );
            assert_eq!(call!(client, "EXISTS", "k"), 0);
            assert_eq!(server.info_number("dsync", "dsync_unapplied_changes"), 0);
        }
    }
}
