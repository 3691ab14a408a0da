//! INDEX: each hold of a semaphore has an index that no other has, from 0 to below the limit.

use crate::commands::semaphore_steps::*;
use crate::support::data_files::{kill_and_start, rewrite_aof, with_safe_aof};
use crate::support::steps::*;
use crate::support::*;

/// The token and the index of a grant with INDEX.
#[track_caller]
fn indexed(reply: &Reply) -> (String, i64) {
    match reply.as_array() {
        [token, Reply::Int(fence), Reply::Int(index)] if *fence > 0 => {
            (token.as_str().to_owned(), *index)
        }
        _ => panic!("expected [token, fence, index], received {reply:?}"),
    }
}

/// The tokens `a`, `b` and so on hold an index each, from 0.
#[track_caller]
fn hold_all(client: &mut Client, limit: usize) {
    for (index, token) in ["a", "b", "c", "d"].into_iter().take(limit).enumerate() {
        let line = format!("DSEM.ACQUIRE sem LIMIT {limit} EX 600 INDEX TOKEN {token}");
        let expected = (token.to_owned(), index as i64);
        assert_eq!(indexed(&client.ask(line)), expected);
    }
}

#[track_caller]
fn release(client: &mut Client, token: &str) {
    assert_eq!(client.ask(format!("DSEM.RELEASE sem {token}")), 1);
}

/// The index that a request of this token is answered.
#[track_caller]
fn again(client: &mut Client, token: &str) -> i64 {
    let line = format!("DSEM.ACQUIRE sem EX 600 INDEX TOKEN {token}");
    indexed(&client.ask(line)).1
}

/// The indexes of the holders in INFO, oldest hold first.
#[track_caller]
fn in_info(client: &mut Client) -> Vec<Option<i64>> {
    let info = client.ask("DSEM.INFO sem");
    let holders = info.field("first-holders").as_array().iter();
    let index = |holder: &Reply| holder.find_field("index").map(Reply::as_int);
    holders.map(index).collect()
}

#[test]
fn grant_at_once_after_block_and_after_queue_has_its_index() {
    let server = Server::start();
    let mut client = server.connect();
    hold_all(&mut client, 2);
    let mut waiter = server.waiting("DSEM.ACQUIRE sem INDEX TOKEN w BLOCK 0");
    let queue = "DSEM.ACQUIRE sem INDEX TOKEN q QUEUE 60000";
    let place = client.ask(queue);
    assert_eq!(place.as_array()[0], "WAITING");
    assert!(!place.as_array()[2].as_str().is_empty(), "the channel");
    release(&mut client, "b");
    assert_eq!(indexed(&waiter.reply()), ("w".to_owned(), 1));
    release(&mut client, "a");
    assert_eq!(indexed(&client.ask(queue)), ("q".to_owned(), 0));
    // Asked again, in each way.
    assert_eq!(again(&mut client, "w"), 1);
    let blocks = client.ask("DSEM.ACQUIRE sem INDEX PERMITS 1 TOKEN q BLOCK 1");
    assert_eq!(indexed(&blocks).1, 0);
    assert_eq!(in_info(&mut client), [Some(1), Some(0)]);
    // With a token that the server makes.
    release(&mut client, "q");
    let (token, index) = indexed(&client.ask("dsem.acquire sem index"));
    assert_eq!((token.len(), index), (36, 0));
}

#[test]
fn released_index_in_the_middle_is_given_next() {
    let server = Server::start();
    let mut client = server.connect();
    hold_all(&mut client, 4);
    release(&mut client, "c");
    release(&mut client, "b");
    let plain = client.ask("DSEM.ACQUIRE sem TOKEN plain");
    assert_eq!(plain.as_array().len(), 2, "{plain:?}");
    assert_eq!(again(&mut client, "e"), 1);
    release(&mut client, "plain");
    assert_eq!(again(&mut client, "f"), 2);
    assert_eq!(in_info(&mut client), [0, 3, 1, 2].map(Some));
}

#[test]
fn falling_limit_changes_no_index_and_bounds_the_next() {
    let server = Server::start();
    let mut client = server.connect();
    hold_all(&mut client, 4);
    client.ask("DSEM.LIMIT sem 2");
    let mut waiter = server.waiting("DSEM.ACQUIRE sem INDEX TOKEN w BLOCK 0");
    assert_eq!(again(&mut client, "d"), 3);
    for token in ["b", "c"] {
        release(&mut client, token);
        waiter.expect_silence(A_WHILE);
    }
    release(&mut client, "a");
    assert_eq!(indexed(&waiter.reply()).1, 0);
    assert_eq!(in_info(&mut client), [Some(3), Some(0)]);
}

#[test]
fn token_with_index_and_without_is_a_mismatch() {
    let server = Server::start();
    let mut client = server.connect();
    let held = "DSEM.ACQUIRE sem LIMIT 2 TOKEN";
    let (with, without) = (format!("{held} with INDEX"), format!("{held} without"));
    indexed(&client.ask(&with));
    client.ask(&without).grant();
    let place = "DSEM.ACQUIRE sem QUEUE 60000 TOKEN";
    client.ask(format!("{place} place INDEX"));
    client.ask(format!("{place} plain"));
    for other in [
        format!("{held} with"),
        format!("{without} INDEX"),
        format!("{place} place"),
        format!("{place} plain INDEX"),
    ] {
        assert_error(&client.ask(&other), &["MISMATCH"]);
    }
    indexed(&client.ask(&with));
    client.ask(&without).grant();
}

#[test]
fn index_for_several_permits_and_in_other_families_is_an_error() {
    let server = Server::start();
    let mut client = server.connect();
    let several = client.ask("DSEM.ACQUIRE sem INDEX LIMIT 9 PERMITS 2");
    assert_error(&several, &["ERR PERMITS is at most 1 with INDEX, not 2"]);
    let twice = client.ask("DSEM.ACQUIRE sem LIMIT 9 INDEX INDEX");
    assert_error(&twice, &["ERR syntax error: INDEX is given twice"]);
    for request in ["DLOCK.ACQUIRE", "DWG.ADD", "DONCE.BEGIN"] {
        let refused = client.ask(format!("{request} other INDEX"));
        assert_error(
            &refused,
            &["ERR syntax error: 'INDEX' is not an option here"],
        );
    }
    assert_error(&client.ask("DSEM.ACQUIRE sem INDEX"), &["NOLIMIT"]);
    assert_eq!(client.ask("DBSIZE"), 0);
}

/// Lapses, revocations and closed connections free an index too.
#[test]
fn index_is_free_however_its_hold_ends() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DSEM.LIMIT sem 9");
    let mut ephemeral = server.connect();
    indexed(&ephemeral.ask("DSEM.ACQUIRE sem INDEX EPHEMERAL"));
    indexed(&client.ask("DSEM.ACQUIRE sem INDEX PX 20"));
    let revoked = client.ask("DSEM.ACQUIRE sem INDEX");
    assert_eq!(again(&mut client, "stays"), 3);
    ephemeral.close();
    let fence = fence_in(&revoked).expect("a grant");
    client.ask(format!("DSEM.REVOKE sem {fence}"));
    eventually("one holder", SOON, || info(&mut client, "holders") == 1);
    for (token, index) in [("x", 0), ("y", 1), ("z", 2), ("stays", 3), ("last", 4)] {
        assert_eq!(again(&mut client, token), index, "{token}");
    }
}

#[test]
fn index_is_the_same_after_restart_from_aof_and_rdb() {
    for (how, preamble) in [
        ("changes", false),
        ("strings", false),
        ("an RDB file", true),
    ] {
        let mut server = with_safe_aof(preamble).start();
        let mut client = server.connect();
        hold_all(&mut client, 3);
        client.ask("DSEM.ACQUIRE sem EX 600 INDEX TOKEN q QUEUE 60000");
        release(&mut client, "b");
        if how != "changes" {
            rewrite_aof(&server);
        }
        let before = server.digest("sem");
        kill_and_start(&mut server);
        assert_eq!(server.digest("sem"), before, "{how}");
        let mut client = server.connect();
        for (token, index) in [("a", 0), ("c", 2), ("q", 1)] {
            assert_eq!(again(&mut client, token), index, "{token} from {how}");
        }
    }
}

#[test]
fn index_moves_with_its_key() {
    let server = Server::start();
    let mut client = server.connect();
    hold_all(&mut client, 2);
    release(&mut client, "a");
    assert_eq!(client.ask("RENAME sem other"), "OK");
    assert_eq!(client.ask("RENAME other sem"), "OK");
    assert_eq!(again(&mut client, "b"), 1);
    let dump = client.ask("DUMP sem");
    let restored = call!(client, "RESTORE", "copy", "0", dump.as_bytes());
    assert_eq!(restored, "OK");
    assert!(client.ask("COPY sem third").is_error());
    client.ask("DEL sem");
    client.ask("RENAME copy sem");
    assert_eq!(again(&mut client, "b"), 1);
    assert_eq!(again(&mut client, "new"), 0);
}
