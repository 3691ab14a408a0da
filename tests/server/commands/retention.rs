//! Results and tallies that have been kept long enough are gone at their millisecond of the wall clock, also for a
//! command that comes before the server's timer: in one batch with the script that held up the event loop, say.

use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

/// Sends the lines in one write, so that the server carries them out in one turn of its event loop, without its
/// timers in between. Returns the replies.
#[track_caller]
fn in_one_turn(client: &mut Client, lines: &[&str]) -> Vec<Reply> {
    let batch: Vec<u8> = lines
        .iter()
        .flat_map(|line| format!("{line}\r\n").into_bytes())
        .collect();
    client.send_raw(&batch);
    let within = Duration::from_secs(10);
    let reply = |_| client.recv(within).expect("every line is answered");
    lines.iter().map(reply).collect()
}

fn is_run(reply: &Reply) -> bool {
    matches!(reply, Reply::Array(items) if items.first().is_some_and(|word| *word == "RUN"))
}

#[test]
fn result_that_is_over_is_told_to_nobody_though_the_timer_is_late() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = primary.connect();
    let replies = in_one_turn(
        &mut client,
        &[
            "DONCE.BEGIN job TOKEN a",
            "DONCE.DONE job a RESULT r PX 50",
            "DONCE.BEGIN job TOKEN b",
            "DEBUG SLEEP 0.1",
            "DONCE.DONE job a",
            "DONCE.BEGIN job TOKEN c",
        ],
    );
    assert!(is_run(&replies[0]), "{replies:?}");
    assert!(!is_run(&replies[2]), "the result stands: {replies:?}");
    assert_eq!(replies[4], 0, "nobody knows the winner any more");
    let Reply::Array(items) = &replies[5] else {
        panic!("expected a run, received {:?}", replies[5]);
    };
    assert!(is_run(&replies[5]), "{replies:?}");
    assert_eq!(items[3], 1, "the attempts begin anew");
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(digest(&replica, "job"), digest(&primary, "job"));
}

#[test]
fn key_whose_result_is_over_takes_a_lock_though_the_timer_is_late() {
    let mut server = Server::builder().config("appendonly", "yes").start();
    let mut client = server.connect();
    let replies = in_one_turn(
        &mut client,
        &[
            "DONCE.BEGIN k TOKEN a",
            "DONCE.DONE k a PX 50",
            "DLOCK.ACQUIRE k TOKEN early",
            "DEBUG SLEEP 0.1",
            "DLOCK.ACQUIRE k TOKEN t",
        ],
    );
    assert!(replies[2].is_error(), "{replies:?}");
    assert!(!replies[4].is_error(), "{replies:?}");
    let held = digest(&server, "k");
    drop(client);
    server.restart();
    assert_eq!(digest(&server, "k"), held, "the AOF has both steps");
}

#[test]
fn gate_of_a_group_that_is_over_holds_nobody_up_though_the_timer_is_late() {
    let server = Server::start();
    let mut client = server.connect();
    ask(&mut client, "CONFIG SET dsync.group-keep-ms 50");
    let replies = in_one_turn(
        &mut client,
        &[
            "DWG.ADD g TOKEN a LIMIT 1",
            "DWG.DONE g a",
            "DWG.WAIT g",
            "DEBUG SLEEP 0.1",
            "DWG.ADD g TOKEN b",
            "DWG.ADD g TOKEN c",
        ],
    );
    let tally = Reply::Array(vec![Reply::Int(1), Reply::Int(0)]);
    assert_eq!(replies[2], tally);
    assert!(
        !replies[5].is_nil(),
        "the gate went with the group: {replies:?}"
    );
}
