//! Work-once, results that must not be forgotten: DONE with PERSIST, and GET, which only looks.

use crate::commands::once_steps::*;
use crate::replication::watched_primary::WatchedPrimary;
use crate::support::steps::*;
use crate::support::*;

/// A customer must be charged once, whatever dies in between, and however late somebody asks again.
#[test]
fn charge_with_persist_is_made_once_for_ever() {
    let mut server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .module_arg("once-keep-ms")
        .module_arg("1")
        .start();
    let replica = Server::builder().replica_of(&server).start();
    let mut client = server.connect();
    // The first worker dies before it charges, and the next one is handed the work.
    let mut worker = server.connect();
    run(&worker.ask("DONCE.BEGIN charge:42 TOKEN w1 EPHEMERAL"));
    let mut second = server.waiting("DONCE.BEGIN charge:42 TOKEN w2 BLOCK 0");
    let mut third = server.waiting("DONCE.BEGIN charge:42 TOKEN w3 BLOCK 0");
    worker.close();
    assert_eq!(attempt(&second.reply()), 2);
    assert_eq!(second.ask("INCR charges"), 1);
    let done = "DONCE.DONE charge:42 w2 RESULT ch_7 PERSIST";
    assert_eq!(second.ask(done), 1);
    // Its reply was lost: DONE again is answered as before, also without PERSIST, and changes nothing.
    for again in [done, "DONCE.DONE charge:42 w2 RESULT ch_8 PX 1"] {
        assert_eq!(second.ask(again), 1);
    }
    assert_done(&third.reply(), Some(b"ch_7"), 2);
    // The result of other work is kept for a millisecond, and then the work runs again.
    run(&client.ask("DONCE.BEGIN report TOKEN r1"));
    assert_eq!(client.ask("DONCE.DONE report r1 RESULT x"), 1);
    wait_until_gone(&mut client, "report");
    assert_eq!(attempt(&client.ask("DONCE.BEGIN report TOKEN r2")), 1);

    let is_charged = |server: &Server, when: &str| {
        let mut client = server.connect();
        let late = client.ask("DONCE.BEGIN charge:42 TOKEN late MAX 1");
        assert_done(&late, Some(b"ch_7"), 2);
        assert_eq!(about(&mut client, "charge:42", "state"), *"done", "{when}");
        let until = about(&mut client, "charge:42", "kept-until-unix-ms");
        assert!(until.is_nil(), "{when}: {until:?}");
        assert_eq!(client.ask("GET charges"), "1", "{when}");
    };
    is_charged(&server, "at once");
    server.kill9();
    server.start_again();
    is_charged(&server, "after a crash");
    assert_eq!(server.connect().ask("DEBUG RELOAD"), "OK");
    is_charged(&server, "after a reload");
    replica.wait_for_sync();
    replica.wait_to_catch_up_with(&server);
    let found = replica.connect().ask("DONCE.GET charge:42");
    assert_done(&found, Some(b"ch_7"), 2);
    drop(server);
    assert_eq!(replica.connect().ask("REPLICAOF NO ONE"), "OK");
    is_charged(&replica, "after a failover");
    // Only the removal of the key forgets.
    let mut client = replica.connect();
    assert_eq!(client.ask("DEL charge:42"), 1);
    assert!(client.ask("DONCE.GET charge:42").is_nil());
    assert_eq!(attempt(&client.ask("DONCE.BEGIN charge:42")), 1);
}

#[test]
fn persisted_result_has_no_timer_and_needs_no_new_format() {
    let mut primary = WatchedPrimary::start();
    let fence = primary.fence("DONCE.BEGIN job TOKEN t");
    primary.forget();
    assert_eq!(primary.ask("DONCE.DONE job t RESULT r PERSIST"), 1);
    // The last moment that can be written: an older replica keeps the result until the year 10889.
    let for_ever = (1_u64 << 48) - 1;
    primary.expect_bare(&[format!("job once | COMPLETE {fence} {for_ever} 1:t 1:r")]);
}

#[test]
fn get_tells_the_result_and_nothing_before_it() {
    let server = Server::start();
    let mut client = server.connect();
    let looks_nil = |client: &mut Client, when: &str| {
        let found = client.ask("DONCE.GET job");
        assert!(found.is_nil(), "{when}: {found:?}");
    };
    looks_nil(&mut client, "absent");
    run(&client.ask("DONCE.BEGIN job TOKEN t"));
    looks_nil(&mut client, "running");
    assert_eq!(client.ask("DONCE.FAIL job t DELAY 50"), 1);
    looks_nil(&mut client, "delayed");
    wait_until_idle(&mut client, "job");
    looks_nil(&mut client, "failed");
    run(&client.ask("DONCE.BEGIN job TOKEN t PX 5"));
    wait_until_idle(&mut client, "job");
    looks_nil(&mut client, "lapsed");
    assert_eq!(client.ask("DONCE.DONE job t"), 1);
    assert_done(&client.ask("DONCE.GET job"), None, 2);
}

#[test]
fn get_changes_nothing_and_replicates_nothing() {
    let mut primary = WatchedPrimary::start();
    primary.fence("DONCE.BEGIN running TOKEN t PX 1");
    primary.fence("DONCE.BEGIN done TOKEN t");
    primary.ask("DONCE.DONE done t RESULT r");
    let server = &primary.server;
    let keys = ["running", "done"];
    wait_until_idle(&mut server.connect(), "running");
    let before = keys.map(|key| server.digest(key));
    primary.forget();
    for _ in 0..3 {
        for key in keys {
            primary.ask(format!("DONCE.GET {key}"));
        }
    }
    primary.expect_nothing();
    assert_eq!(keys.map(|key| primary.server.digest(key)), before);
    // In transactions, scripts and read-only scripts as well.
    primary.ask("MULTI");
    primary.ask("DONCE.GET done");
    assert_done(&primary.ask("EXEC").as_array()[0], Some(b"r"), 1);
    let script = r#"EVAL_RO "return redis.call('DONCE.GET', KEYS[1])" 1 done"#;
    assert_done(&primary.ask(script), Some(b"r"), 1);
}

/// A result whose time is up by the clock is not told, although its key is still there.
#[test]
fn get_tells_no_result_whose_time_is_up() {
    let server = Server::start();
    let mut client = server.connect();
    let replies = client.ask_all([
        "DONCE.BEGIN job TOKEN t",
        "DONCE.DONE job t RESULT r PX 20",
        "DONCE.GET job",
        "DEBUG SLEEP 0.05",
        "DONCE.GET job",
        "EXISTS job",
    ]);
    assert_done(&replies[2], Some(b"r"), 1);
    assert!(replies[4].is_nil(), "{replies:?}");
    assert_eq!(replies[5], 1, "the timer comes later");

    // A replica decides nothing, so the key stays there while its primary stands still.
    let replica = Server::builder().replica_of(&server).start();
    run(&client.ask("DONCE.BEGIN other TOKEN t"));
    assert_eq!(client.ask("DONCE.DONE other t RESULT r PX 4000"), 1);
    replica.wait_to_catch_up_with(&server);
    server.stop();
    let mut looker = replica.connect();
    eventually("the end of the result's time", SOON, || {
        looker.ask("DONCE.GET other").is_nil()
    });
    assert_eq!(looker.ask("EXISTS other"), 1);
    server.cont();
    wait_until_gone(&mut looker, "other");
}
