//! LANE: free permits go to the lane that has the fewest in use, and LANELIMIT bounds what a lane has in use.

use crate::observing::listener::*;
use crate::support::data_files::{kill_and_start, rewrite_aof, with_safe_aof};
use crate::support::*;

/// A request of this lane, with the lane in its token.
fn ask(lane: &str, n: usize) -> String {
    format!("DSEM.ACQUIRE sem LIMIT 2 EX 600 LANE {lane} TOKEN {lane}-{n}")
}

#[track_caller]
fn granted(reply: &Reply) -> String {
    match reply.as_array() {
        [token, Reply::Int(_)] => token.as_str().to_owned(),
        _ => panic!("expected [token, fence], received {reply:?}"),
    }
}

#[track_caller]
fn release(client: &mut Client, token: &str) {
    assert_eq!(client.ask(format!("DSEM.RELEASE sem {token}")), 1);
}

fn lanes_of(server: &Server) -> u64 {
    server.info_number("dsync", "dsync_lanes")
}

/// The lanes of INFO: their names, permits and waiters.
fn lanes(info: &Reply) -> Vec<(String, i64, i64)> {
    let rows = info.field("first-lanes").as_array().iter();
    let rows = rows.map(|row| match row.as_array() {
        [name, permits, waiters, Reply::Int(age_ms)] if *age_ms >= 0 => {
            (name.as_str().to_owned(), permits.as_int(), waiters.as_int())
        }
        _ => panic!("expected a lane, received {row:?}"),
    });
    rows.collect()
}

#[test]
fn dsem_lane_of_a_flood_does_not_delay_others() {
    let server = Server::start();
    let mut client = server.connect();
    for n in 0..2 {
        granted(&client.ask(ask("flood", n)));
    }
    let mut flood: Vec<_> = (2..6)
        .map(|n| server.waiting(format!("{} BLOCK 0", ask("flood", n))))
        .collect();
    let mut other = server.waiting(format!("{} BLOCK 0", ask("other", 0)));
    release(&mut client, "flood-0");
    assert_eq!(granted(&other.reply()), "other-0");
    release(&mut client, "flood-1");
    assert_eq!(granted(&flood[0].reply()), "flood-2");
}

#[test]
fn dsem_lane_limit_holds_up_nobody_else() {
    let server = Server::start();
    let mut client = server.connect();
    granted(&client.ask(ask("a", 0)));
    let limited = format!("{} LANELIMIT 1", ask("a", 1));
    assert_eq!(client.ask(&limited), Reply::Nil);
    let place = client.ask(format!("{limited} QUEUE 60000"));
    assert_eq!(place.as_array()[1], Reply::Int(1));
    granted(&client.ask(ask("b", 0)));
    release(&mut client, "a-0");
    assert_eq!(granted(&client.ask(limited)), "a-1");
}

/// The engine may find the new value under the number of the old one, whose lanes it had sorted.
#[test]
fn dsem_lane_limit_counts_holds_that_come_right_after_a_flush() {
    let server = Server::start();
    let mut client = server.connect();
    let limited = |n| format!("{} LANELIMIT 1", ask("a", n));
    granted(&client.ask(limited(0)));
    let dump = client.ask("DUMP sem");
    release(&mut client, "a-0");
    granted(&client.ask("DSEM.ACQUIRE sem LIMIT 2 PERMITS 2 TOKEN both"));
    let mut waiter = server.waiting(format!("{} BLOCK 0", limited(1)));
    client.ask("MULTI");
    client.ask("FLUSHALL SYNC");
    call!(client, "RESTORE", "sem", 0, dump.as_bytes());
    assert_eq!(client.ask("EXEC").as_array().len(), 2);
    assert_eq!(granted(&client.ask(ask("b", 0))), "b-0");
    release(&mut client, "a-0");
    assert_eq!(granted(&waiter.reply()), "a-1");
}

#[test]
fn dsem_lane_is_checked_and_belongs_to_the_token() {
    let server = Server::start();
    let mut client = server.connect();
    granted(&client.ask(ask("a", 0)));
    let other_lane = "MISMATCH the token holds or waits for this key in another LANE";
    for (line, error) in [
        ("DSEM.ACQUIRE sem LIMIT 2 TOKEN a-0", other_lane),
        ("DSEM.ACQUIRE sem LIMIT 2 TOKEN a-0 LANE b", other_lane),
        (
            "DSEM.ACQUIRE sem LIMIT 2 TOKEN a-0 LANE b PERMITS 2",
            "MISMATCH the token holds or waits for this key with another mode or number of permits",
        ),
        (
            "DSEM.ACQUIRE sem LIMIT 2 LANELIMIT 1",
            "ERR syntax error: LANELIMIT bounds a LANE, and none is given",
        ),
        (
            "DSEM.ACQUIRE sem LIMIT 3 LANE a PERMITS 3 LANELIMIT 2",
            "TOOMANY PERMITS 3 is more than LANELIMIT 2",
        ),
    ] {
        assert_eq!(client.ask(line).error(), error, "{line}");
    }
    // LANELIMIT counts for a place, and not for a hold.
    granted(&client.ask("DSEM.ACQUIRE sem LANE c PERMITS 1 LANELIMIT 5 TOKEN c-0"));
    release(&mut client, "a-0");
    granted(&client.ask("DSEM.ACQUIRE sem LIMIT 3 LANE d PERMITS 2 TOKEN d-0"));
    granted(&client.ask("DSEM.ACQUIRE sem LANE d PERMITS 2 LANELIMIT 1 TOKEN d-0"));
}

/// A request that was chosen keeps the permits that come free, and all others out, until it fits.
#[test]
fn dsem_large_request_of_a_lane_is_not_starved_by_another() {
    let server = Server::start();
    let mut client = server.connect();
    for n in 0..2 {
        granted(&client.ask(ask("small", n)));
    }
    let mut large = server.waiting(format!("{} PERMITS 2 BLOCK 0", ask("large", 0)));
    let mut small = server.waiting(format!("{} BLOCK 0", ask("small", 2)));
    release(&mut client, "small-0");
    assert_eq!(client.ask(ask("third", 0)), Reply::Nil, "a try waits too");
    assert_eq!(client.ask("DSEM.INFO sem").field("available").as_int(), 1);
    release(&mut client, "small-1");
    assert_eq!(granted(&large.reply()), "large-0");
    release(&mut client, "large-0");
    assert_eq!(granted(&small.reply()), "small-2");
}

#[test]
fn dsem_lanes_are_in_info_and_metrics_only_where_they_are_used() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DSEM.ACQUIRE sem LIMIT 2 PERMITS 2 EX 600 TOKEN plain");
    let mut plain = server.waiting("DSEM.ACQUIRE sem TOKEN w BLOCK 0");
    let names = |info: &Reply| -> Vec<String> {
        let names = info.as_array().chunks(2);
        names.map(|field| field[0].as_str().to_owned()).collect()
    };
    let before = names(&client.ask("DSEM.INFO sem"));
    assert!(!before.iter().any(|name| name.contains("lanes")));
    assert_eq!(lanes_of(&server), 0);

    let mut a = server.waiting(format!("{} BLOCK 0 OWNER o", ask("a", 0)));
    let mut b: Vec<_> = (0..2)
        .map(|n| server.waiting(format!("{} BLOCK 0", ask("b", n))))
        .collect();
    let info = client.ask("DSEM.INFO sem");
    assert_eq!(names(&info)[before.len()..], ["lanes", "first-lanes"]);
    assert_eq!(info.field("lanes").as_int(), 3);
    assert_eq!(lanes_of(&server), 3);
    let row = |name: &str, permits, waiters| (name.to_owned(), permits, waiters);
    let all = [row("", 2, 1), row("a", 0, 1), row("b", 0, 2)];
    assert_eq!(lanes(&info), all);
    let first = client.ask("DSEM.INFO sem COUNT 2");
    assert_eq!(lanes(&first), all[..2]);
    let waiters = info.field("first-waiters").as_array();
    let of = |row: &Reply| row.find_field("lane").map(|lane| lane.as_str().to_owned());
    let lane_of: Vec<_> = waiters.iter().map(of).collect();
    assert_eq!(
        lane_of,
        [None, Some("a".into()), Some("b".into()), Some("b".into())]
    );

    release(&mut client, "plain");
    granted(&a.reply());
    granted(&b[0].reply());
    let info = client.ask("DSEM.INFO sem");
    assert_eq!(lanes(&info), [row("", 0, 1), row("b", 1, 1)]);
    let holders = info.field("first-holders").as_array();
    let lane_of: Vec<_> = holders.iter().map(of).collect();
    assert_eq!(lane_of, [Some("a".into()), Some("b".into())]);
    release(&mut client, "a-0");
    assert_eq!(granted(&plain.reply()), "w");
    release(&mut client, "w");
    granted(&b[1].reply());
    let info = client.ask("DSEM.INFO sem");
    assert_eq!((info.field("lanes").as_int(), lanes(&info)), (0, vec![]));
    assert_eq!(lanes_of(&server), 0);
}

/// Capacity was gained, and those who wait cannot use it: a client that only tries may.
#[test]
fn dsem_free_is_announced_while_all_who_wait_stand_aside() {
    let server = notifying("Ed");
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    granted(&client.ask(ask("a", 0)));
    granted(&client.ask(ask("b", 0)));
    let limited = format!("{} LANELIMIT 1 BLOCK 0", ask("a", 1));
    let mut waits = server.waiting(limited);
    listener.so_far(&mut client);
    release(&mut client, "b-0");
    assert_eq!(
        listener.so_far(&mut client),
        ["dsem.free sem", "dsem.release sem"]
    );
    granted(&client.ask(ask("c", 0)));
    listener.so_far(&mut client);
    // This one goes to the lane itself.
    release(&mut client, "a-0");
    granted(&waits.reply());
    assert_eq!(
        listener.so_far(&mut client),
        ["dsem.grant sem", "dsem.release sem"]
    );
}

/// A flood takes half of what is still free under the bounds, and the others are not refused.
#[test]
fn dsem_flood_leaves_places_to_other_lanes() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("CONFIG SET dsync.max-waiters-per-key 40");
    for n in 0..2 {
        granted(&client.ask(ask("flood", n)));
    }
    let mut places = |lane: &str, from: usize, queue: bool| {
        let all = (from..from + 50).map(|n| {
            let line = ask(lane, n);
            client.ask(if queue {
                format!("{line} QUEUE 60000")
            } else {
                line
            })
        });
        let all: Vec<Reply> = all.collect();
        let full = all.iter().find(|reply| reply.is_error());
        let full = full.map(|reply| reply.error().to_owned());
        (all.iter().filter(|reply| !reply.is_error()).count(), full)
    };
    // Kept places take 20 of the 40. The flood takes 10 of these, another lane half of the rest, and so on.
    let error = "QUEUEFULL its lane has 10 places, and no more are free \
                 (dsync.max-waiters-per-key, dsync.max-waiters)";
    assert_eq!(places("flood", 2, true), (10, Some(error.to_owned())));
    assert_eq!(places("second", 0, true).0, 5);
    assert_eq!(places("third", 0, true).0, 3);
    assert_eq!(places("fourth", 0, true).0, 1);
}

/// What a lane has in use, and its kept places, are there after a restart.
#[test]
fn dsem_lanes_survive_restarts() {
    for (preamble, rewritten) in [(false, false), (false, true), (true, true)] {
        let mut server = with_safe_aof(preamble).start();
        let mut client = server.connect();
        granted(&client.ask(ask("a", 0)));
        granted(&client.ask(ask("a", 1)));
        for lane in ["a", "b"] {
            client.ask(format!("{} LANELIMIT 2 QUEUE 60000", ask(lane, 2)));
        }
        if rewritten {
            rewrite_aof(&server);
        }
        let before = server.digest("sem");
        kill_and_start(&mut server);
        assert_eq!(server.digest("sem"), before, "{preamble} {rewritten}");
        let mut client = server.connect();
        release(&mut client, "a-0");
        let again = format!("{} LANELIMIT 2 QUEUE 60000", ask("b", 2));
        assert_eq!(granted(&client.ask(again)), "b-2");
    }
}
