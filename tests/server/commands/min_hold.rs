//! MINHOLD: a hold that ends early rests. Its place stays taken until so long after the grant.
//!
//! The replication stream has the moment of each grant by the wall clock. MINHOLD runs on the lease clock, and a call reads
//! both within [`READ_MS`].

use crate::commands::semaphore_steps::*;
use crate::observing::listener::*;
use crate::support::data_files::{kill_and_start, rewrite_aof, with_safe_aof};
use crate::support::steps::*;
use crate::support::*;

const READ_MS: u64 = 50;

/// The moments of the grants so far, in milliseconds.
fn grants(stream: &mut ReplicationStream, server: &Server) -> Vec<u64> {
    let commands = stream.take_so_far(server);
    let changes = commands.iter().flat_map(|command| words(command));
    let moment = |change: String| change.split(' ').nth(5)?.parse().ok();
    let grants = changes.filter(|change| change.starts_with("GRANT "));
    grants.filter_map(moment).collect()
}

#[track_caller]
fn metric(server: &Server, name: &str) -> u64 {
    server.info_number("dsync", &format!("dsync_{name}"))
}

/// The lock `k`, which rests for ten minutes after its token `a` was granted and has ended in this way.
fn rested(server: &Server, how: &str) -> Client {
    let mut client = server.connect();
    let request = "DLOCK.ACQUIRE k MINHOLD 600000 OWNER web-1 TOKEN a";
    let mut holder = server.connect();
    match how {
        "release" => {
            holder.ask(request).grant();
            assert_eq!(client.ask("DLOCK.RELEASE k a"), 1);
        }
        "lapse" => drop(holder.ask(format!("{request} PX 20")).grant()),
        "EPHEMERAL" => drop(holder.ask(format!("{request} EPHEMERAL")).grant()),
        _ => panic!("{how}"),
    }
    holder.close();
    eventually(&format!("a rest after {how}"), SOON, || {
        state(&mut client) == "resting"
    });
    client
}

fn state(client: &mut Client) -> String {
    let info = client.ask("DLOCK.INFO k");
    match info.is_nil() {
        true => "absent".to_owned(),
        false => info.field("state").as_str().to_owned(),
    }
}

#[test]
fn hold_rests_however_it_ends() {
    for (how, counter) in [
        ("release", "released"),
        ("lapse", "lapsed"),
        ("EPHEMERAL", "disconnected"),
    ] {
        let server = Server::start();
        let mut client = rested(&server, how);
        assert!(client.ask("DLOCK.ACQUIRE k TOKEN b").is_nil(), "{how}");
        let info = client.ask("DLOCK.INFO k");
        assert_eq!(*info.field("holders"), 1, "{how}");
        let row = &info.field("first-holders").as_array()[0];
        assert_eq!(*row.field("owner"), "web-1");
        assert_eq!(*row.field("lease-left-ms"), 0);
        assert!(row.field("client").is_nil(), "{how}: no connection has it");
        let left = row.field("resting-ms").as_int();
        assert!((1..=600_000).contains(&left), "{how}: {left}");
        let (rows, resting) = (client.ask("DSYNC.HOLDS 0"), metric(&server, "resting"));
        assert_eq!(rows.as_array()[1].as_array().len(), 0, "{how}: no hold");
        assert_eq!((metric(&server, "holds"), resting), (0, 1), "{how}");
        assert_eq!(metric(&server, &format!("lock_{counter}")), 1, "{how}");
        client.ask("DEL k");
        assert_eq!(metric(&server, "resting"), 0, "{how}: removed");
    }
}

#[test]
fn rest_ends_on_time_however_its_hold_ended() {
    for how in ["", "PX 20", "EPHEMERAL"] {
        let server = Server::start();
        let mut holder = server.connect();
        let request = format!("DSEM.ACQUIRE sem LIMIT 1 MINHOLD 400 TOKEN a {how}");
        let mut stream = ReplicationStream::attach(&server);
        holder.ask(request).grant();
        let mut waiter = server.waiting("DSEM.ACQUIRE sem TOKEN b BLOCK 0");
        match how {
            "EPHEMERAL" => holder.close(),
            _ => drop(holder.ask("DSEM.RELEASE sem a")),
        }
        waiter.granted();
        let grants = grants(&mut stream, &server);
        assert_eq!(grants.len(), 2, "{how}");
        assert!(grants[1] - grants[0] >= 400 - READ_MS, "{how}: {grants:?}");
        let mut client = server.connect();
        assert_eq!(info(&mut client, "holders"), 1, "{how}");
        let released = client.ask("DSEM.RELEASE sem b");
        assert_eq!(released, 1);
        assert_eq!(client.ask("DBSIZE"), 0, "{how}: b has no MINHOLD");
    }
}

/// `LIMIT 5 MINHOLD 500`: of six grants in a row, the last is half a second behind the first.
#[test]
fn waiters_are_paced_five_in_any_second() {
    let server = Server::start();
    let line = |n| format!("DSEM.ACQUIRE sem LIMIT 5 MINHOLD 500 TOKEN t{n} BLOCK 0");
    let mut stream = ReplicationStream::attach(&server);
    let mut client = server.connect();
    (0..5).for_each(|n| drop(client.ask(line(n)).grant()));
    let mut waiters: Vec<_> = (5..15).map(|n| server.waiting(line(n))).collect();
    (0..5).for_each(|n| drop(client.ask(format!("DSEM.RELEASE sem t{n}"))));
    for (n, waiter) in (5..).zip(&mut waiters) {
        let (token, _) = waiter.granted();
        assert_eq!(token, format!("t{n}"), "in order");
        client.ask(format!("DSEM.RELEASE sem {token}"));
    }
    let grants = grants(&mut stream, &server);
    assert_eq!(grants.len(), 15);
    for six in grants.windows(6) {
        assert!(six[5] - six[0] >= 500 - READ_MS, "{six:?}");
    }
    wait_until_gone(&mut client, "sem");
}

/// Ten machines try at the same moment, and again when the first is done.
#[test]
fn lock_is_taken_once_a_minute_by_one_of_many() {
    let server = Server::start();
    let mut machines: Vec<_> = (0..10).map(|_| server.connect()).collect();
    let mut grants = 0;
    for _ in 0..3 {
        for (n, machine) in machines.iter_mut().enumerate() {
            let tick = format!("DLOCK.ACQUIRE tick EX 300 MINHOLD 55000 TOKEN m{n}");
            if !machine.ask(tick).is_nil() {
                grants += 1;
                assert_eq!(machine.ask(format!("DLOCK.RELEASE tick m{n}")), 1);
            }
        }
    }
    assert_eq!(grants, 1);
}

#[test]
fn token_of_a_rest_is_dead() {
    let server = Server::start();
    let mut client = rested(&server, "release");
    for line in ["DLOCK.RENEW k a", "DLOCK.CHECK k a", "DLOCK.RELEASE k a"] {
        assert_eq!(client.ask(line), 0, "{line}");
    }
    assert!(client.ask("DLOCK.ACQUIRE k TOKEN a").is_nil(), "a new one");
    let waiting = client.ask("DLOCK.ACQUIRE k TOKEN a SHARED QUEUE 60000");
    assert_eq!(waiting.as_array()[0], "WAITING", "in any mode");
    assert_eq!(client.ask("DLOCK.RELEASE k a"), 1, "withdrawn");
}

/// A rest has no token. What stands in its place in files and in the stream is no token of it either.
#[test]
fn no_token_is_that_of_a_rest() {
    const ZERO: &str = "00000000-0000-0000-0000-000000000000";
    let mut server = with_safe_aof(true).start();
    let mut client = rested(&server, "release");
    for token in ["a", "b", "c"] {
        let line = format!("DSEM.ACQUIRE sem LIMIT 4 MINHOLD 600000 TOKEN {token}");
        client.ask(line).grant();
        client.ask(format!("DSEM.RELEASE sem {token}"));
    }
    rewrite_aof(&server);
    for _ in 0..2 {
        let mut client = server.connect();
        for (family, key) in [("DLOCK", "k"), ("DSEM", "sem")] {
            for command in ["RENEW", "CHECK", "RELEASE"] {
                let answer = client.ask(format!("{family}.{command} {key} {ZERO}"));
                assert_eq!(answer, 0, "{family}.{command}");
            }
        }
        let refused = client.ask(format!("DLOCK.ACQUIRE k TOKEN {ZERO}"));
        assert!(refused.is_nil(), "it is the rest's place");
        // The token has a hold of its own, and ends that one.
        client.ask(format!("DSEM.ACQUIRE sem TOKEN {ZERO}")).grant();
        assert_eq!(info(&mut client, "holders"), 4);
        assert_eq!(client.ask(format!("DSEM.RELEASE sem {ZERO}")), 1);
        assert_eq!(info(&mut client, "holders"), 3);
        assert_eq!(metric(&server, "resting"), 4);
        kill_and_start(&mut server);
    }
}

#[test]
fn revoke_and_del_end_a_rest_at_once() {
    let server = Server::start();
    for end in ["REVOKE of a rest", "DEL of a rest", "REVOKE of a hold"] {
        let mut client = server.connect();
        let (_, fence) = client
            .ask("DSEM.ACQUIRE sem LIMIT 1 MINHOLD 600000 TOKEN a")
            .grant();
        if end != "REVOKE of a hold" {
            client.ask("DSEM.RELEASE sem a");
        }
        let mut waiter = server.waiting("DSEM.ACQUIRE sem LIMIT 1 TOKEN b BLOCK 0");
        match end {
            "DEL of a rest" => drop(client.ask("DEL sem")),
            _ => assert_eq!(client.ask(format!("DSEM.REVOKE sem {fence}")), 1, "{end}"),
        }
        assert_eq!(waiter.granted().0, "b", "{end}");
        assert_eq!(client.ask("DSEM.RELEASE sem b"), 1);
        assert_eq!(client.ask("DBSIZE"), 0, "{end}");
    }
}

#[test]
fn repeat_does_not_move_the_rest() {
    let server = Server::start();
    let mut stream = ReplicationStream::attach(&server);
    let mut client = server.connect();
    let first = client
        .ask("DSEM.ACQUIRE sem LIMIT 1 MINHOLD 300 TOKEN a")
        .grant();
    for again in ["", "MINHOLD 600000", "MINHOLD 600000 BLOCK 10"] {
        let again = format!("DSEM.ACQUIRE sem TOKEN a PX 600000 {again}");
        assert_eq!(client.ask(again).grant(), first);
    }
    client.ask("DSEM.RENEW sem a EX 600");
    client.ask("DSEM.RELEASE sem a");
    // A place follows its newest request.
    client.ask("DSEM.ACQUIRE sem TOKEN b QUEUE 60000 MINHOLD 600000");
    let mut waiter = server.waiting("DSEM.ACQUIRE sem TOKEN b BLOCK 0 MINHOLD 1");
    waiter.granted();
    let grants = grants(&mut stream, &server);
    assert!(grants[1] - grants[0] >= 300 - READ_MS, "{grants:?}");
    client.ask("DSEM.RELEASE sem b");
    wait_until_gone(&mut client, "sem");
}

#[test]
fn min_hold_out_of_bounds_and_in_other_families_is_an_error() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("CONFIG SET dsync.max-lease-ms 60000");
    let bound = "MINHOLD is an integer of 1 to 60000 milliseconds (dsync.max-lease-ms), not";
    for value in ["0", "60001", "x"] {
        for request in ["DLOCK.ACQUIRE k", "DSEM.ACQUIRE k LIMIT 1"] {
            let refused = client.ask(format!("{request} EX 1 MINHOLD {value}"));
            assert_error(&refused, &[&format!("ERR {bound} '{value}'")]);
        }
    }
    for request in ["DWG.ADD", "DONCE.BEGIN"] {
        let refused = client.ask(format!("{request} k MINHOLD 1"));
        assert_error(
            &refused,
            &["ERR syntax error: 'MINHOLD' is not an option here"],
        );
    }
    assert_eq!(client.ask("DBSIZE"), 0);
    client
        .ask("DLOCK.ACQUIRE k PX 1 MINHOLD 60000 TOKEN a")
        .grant();
    let dump = client.ask("DUMP k");
    client.ask("CONFIG SET dsync.max-lease-ms 59999");
    let restored = call!(client, "RESTORE", "copy", 0, dump.as_bytes());
    assert!(restored.is_error(), "beyond the bound of today");
}

#[test]
fn semaphore_tells_its_resting_permits_only_while_there_are_any() {
    let server = Server::start();
    let mut client = server.connect();
    let line = "DSEM.ACQUIRE sem LIMIT 9 PERMITS 3 MINHOLD 600000 TOKEN";
    let (_, fence) = client.ask(format!("{line} a")).grant();
    client.ask(format!("{line} b")).grant();
    assert!(client.ask("DSEM.INFO sem").find_field("resting").is_none());
    client.ask("DSEM.RELEASE sem a");
    let shown = client.ask("DSEM.INFO sem");
    let numbers = ["resting", "available", "holders"].map(|field| shown.field(field).as_int());
    assert_eq!(numbers, [3, 3, 2]);
    let rows = shown.field("first-holders").as_array();
    assert!(rows[0].find_field("resting-ms").is_some());
    assert!(rows[1].find_field("resting-ms").is_none());
    client.ask(format!("DSEM.REVOKE sem {fence}"));
    let shown = client.ask("DSEM.INFO sem");
    assert!(shown.find_field("resting").is_none());
    assert_eq!(*shown.field("available"), 6);
}

/// An index is taken until the rest of its hold is over.
#[test]
fn index_ends_with_the_rest() {
    let server = Server::start();
    let mut client = server.connect();
    let mut ask = |line: &str| client.ask(format!("DSEM.{line}"));
    let (_, fence) = indexed(&ask("ACQUIRE sem LIMIT 9 INDEX MINHOLD 600000 TOKEN a"));
    ask("RELEASE sem a");
    assert_eq!(indexed(&ask("ACQUIRE sem INDEX TOKEN a")).0, 1);
    ask(&format!("REVOKE sem {fence}"));
    assert_eq!(indexed(&ask("ACQUIRE sem INDEX TOKEN c")).0, 0);
}

/// The index and the fence of a grant.
fn indexed(reply: &Reply) -> (i64, i64) {
    match reply.as_array() {
        [_, Reply::Int(fence), Reply::Int(index)] => (*index, *fence),
        _ => panic!("expected [token, fence, index], received {reply:?}"),
    }
}

#[test]
fn every_early_end_announces_rest_and_its_end_free() {
    let server = notifying("Ed");
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    client.ask("DLOCK.ACQUIRE k MINHOLD 600000 TOKEN a").grant();
    client.ask("DLOCK.RELEASE k a");
    let begun = listener.so_far(&mut client);
    assert_eq!(begun, ["dlock.grant k", "dlock.release k", "dlock.rest k"]);
    client.ask("DEL k");

    let mut holder = server.connect();
    holder
        .ask("DSEM.ACQUIRE s LIMIT 1 MINHOLD 100 EPHEMERAL")
        .grant();
    holder.close();
    wait_until_gone(&mut client, "s");
    let all = listener.so_far(&mut client);
    let expected = ["dsem.free s", "dsem.grant s", "dsem.lapse s", "dsem.rest s"];
    assert_eq!(all, expected);
}

#[test]
fn rest_is_the_same_after_restart_and_restore() {
    for (how, preamble) in [
        ("changes", false),
        ("strings", false),
        ("an RDB file", true),
    ] {
        let mut server = with_safe_aof(preamble).start();
        let mut client = server.connect();
        let line = "DSEM.ACQUIRE sem LIMIT 2 MINHOLD 600000 OWNER o TOKEN";
        client.ask(format!("{line} a")).grant();
        client.ask(format!("{line} b")).grant();
        client.ask(format!("{line} q QUEUE 60000"));
        client.ask("DSEM.RELEASE sem a");
        if how != "changes" {
            rewrite_aof(&server);
        }
        let before = server.digest("sem");
        kill_and_start(&mut server);
        assert_eq!(server.digest("sem"), before, "{how}");
        let mut client = server.connect();
        let dump = client.ask("DUMP sem");
        let restored = call!(client, "RESTORE", "copy", 0, dump.as_bytes());
        assert_eq!(restored, "OK");
        for key in ["sem", "copy"] {
            let resting = |client: &mut Client| {
                let info = client.ask(format!("DSEM.INFO {key}"));
                info.field("resting").as_int()
            };
            assert_eq!(resting(&mut client), 1, "{key} from {how}");
            assert_eq!(client.ask(format!("DSEM.RELEASE {key} b")), 1, "{how}");
            assert_eq!(resting(&mut client), 2, "b rests too: {key} from {how}");
        }
        assert_eq!(metric(&server, "resting"), 4);
    }
}
