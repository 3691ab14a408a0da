//! LANE: free permits go to the lane that has the fewest in use, and LANELIMIT bounds what a lane has in use.

use crate::support::data_files::{kill_and_start, rewrite_aof, with_safe_aof};
use crate::support::steps::*;
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

#[test]
fn dsem_lane_of_a_flood_does_not_delay_others() {
    let server = Server::start();
    let mut client = server.connect();
    for n in 0..2 {
        granted(&client.ask(ask("flood", n)));
    }
    let mut flood: Vec<_> = (2..6)
        .map(|n| queued(&server, format!("{} BLOCK 0", ask("flood", n))))
        .collect();
    let mut other = queued(&server, format!("{} BLOCK 0", ask("other", 0)));
    client.ask("DSEM.RELEASE sem flood-0");
    assert_eq!(granted(&reply(&mut other)), "other-0");
    client.ask("DSEM.RELEASE sem flood-1");
    assert_eq!(granted(&reply(&mut flood[0])), "flood-2");
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
    client.ask("DSEM.RELEASE sem a-0");
    assert_eq!(granted(&client.ask(limited)), "a-1");
}

#[test]
fn dsem_lane_is_checked_and_belongs_to_the_token() {
    let server = Server::start();
    let mut client = server.connect();
    granted(&client.ask(ask("a", 0)));
    for (line, error) in [
        ("DSEM.ACQUIRE sem LIMIT 2 TOKEN a-0", "MISMATCH"),
        ("DSEM.ACQUIRE sem LIMIT 2 TOKEN a-0 LANE b", "MISMATCH"),
        (
            "DSEM.ACQUIRE sem LIMIT 2 LANELIMIT 1",
            "ERR syntax error: LANELIMIT bounds a LANE, and none is given",
        ),
        (
            "DSEM.ACQUIRE sem LIMIT 3 LANE a PERMITS 3 LANELIMIT 2",
            "TOOMANY PERMITS 3 is more than LANELIMIT 2",
        ),
    ] {
        let reply = client.ask(line);
        assert!(reply.error().starts_with(error), "{line}: {reply:?}");
    }
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
        let before = digest(&server, "sem");
        kill_and_start(&mut server);
        assert_eq!(digest(&server, "sem"), before, "{preamble} {rewritten}");
        let mut client = server.connect();
        client.ask("DSEM.RELEASE sem a-0");
        let again = format!("{} LANELIMIT 2 QUEUE 60000", ask("b", 2));
        assert_eq!(granted(&client.ask(again)), "b-2");
    }
}
