//! Results and tallies whose time is up are forgotten before the next command on their key, even when that command
//! comes before the server's timer runs. `DEBUG SLEEP` and the command in one batch make that happen.

use crate::support::*;

/// Whether BEGIN answered RUN.
fn is_run(reply: &Reply) -> bool {
    matches!(reply, Reply::Array(items) if items.first().is_some_and(|word| *word == "RUN"))
}

#[test]
fn expired_result_is_forgotten_before_the_timer_runs() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = primary.connect();
    let replies = client.ask_all([
        "DONCE.BEGIN job TOKEN a",
        "DONCE.DONE job a RESULT r PX 50",
        "DONCE.BEGIN job TOKEN b",
        "DEBUG SLEEP 0.1",
        "DONCE.DONE job a",
        "DONCE.BEGIN job TOKEN c",
    ]);
    assert!(is_run(&replies[0]), "{replies:?}");
    assert!(!is_run(&replies[2]), "the result stands: {replies:?}");
    assert_eq!(replies[4], 0, "the winning token is forgotten");
    let Reply::Array(items) = &replies[5] else {
        panic!("expected a run, received {:?}", replies[5]);
    };
    assert!(is_run(&replies[5]), "{replies:?}");
    assert_eq!(items[3], 1, "attempts count from 1 again");
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(replica.digest("job"), primary.digest("job"));
}

#[test]
fn expired_result_makes_room_for_a_lock_before_the_timer_runs() {
    let mut server = Server::builder().config("appendonly", "yes").start();
    let mut client = server.connect();
    let replies = client.ask_all([
        "DONCE.BEGIN k TOKEN a",
        "DONCE.DONE k a PX 500",
        "DLOCK.ACQUIRE k TOKEN early",
        "DEBUG SLEEP 0.6",
        "DLOCK.ACQUIRE k TOKEN t",
    ]);
    assert!(replies[2].is_error(), "{replies:?}");
    assert!(!replies[4].is_error(), "{replies:?}");
    let held = server.digest("k");
    drop(client);
    server.restart();
    assert_eq!(server.digest("k"), held, "the AOF has both steps");
}

#[test]
fn expired_group_has_no_gate_before_the_timer_runs() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("CONFIG SET dsync.group-keep-ms 50");
    let replies = client.ask_all([
        "DWG.ADD g TOKEN a LIMIT 1",
        "DWG.DONE g a",
        "DWG.WAIT g",
        "DEBUG SLEEP 0.1",
        "DWG.ADD g TOKEN b",
        "DWG.ADD g TOKEN c",
    ]);
    let tally = Reply::Array(vec![Reply::Int(1), Reply::Int(0)]);
    assert_eq!(replies[2], tally);
    assert!(
        !replies[5].is_nil(),
        "the gate is forgotten with the group: {replies:?}"
    );
}
