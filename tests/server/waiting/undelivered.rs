//! Grants after waiting whose connection is gone before the reply is written: the grant ends and the next waiter is
//! served; with a token the place stays vacant at its rank.
//!
//! The tests make the release and the end of the connection happen in one turn of the event loop, in every order.

use crate::support::steps::*;
use crate::support::*;

/// A lock that is held, and three clients that wait for it, with the tokens `first`, `second` and `third`.
struct ThreeWaiters {
    server: Server,
    holder: Client,
    first: Client,
    first_id: u64,
    second: Client,
    third: Client,
}

/// Whether the server has an AOF. With one, it releases a waiter only after the command that served it.
const APPENDONLY: [&str; 2] = ["no", "yes"];

fn line_up(appendonly: &str) -> ThreeWaiters {
    let server = Server::builder().config("appendonly", appendonly).start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut first = server.connect();
    let first_id = first.id();
    first.wait_on(&server, "DLOCK.ACQUIRE lock TOKEN first BLOCK 0");
    let second = server.waiting("DLOCK.ACQUIRE lock TOKEN second BLOCK 0");
    let third = server.waiting("DLOCK.ACQUIRE lock TOKEN third BLOCK 0");
    ThreeWaiters {
        server,
        holder,
        first,
        first_id,
        second,
        third,
    }
}

impl ThreeWaiters {
    /// Asserts that the first client's grant passed on: the second and the third are granted in order.
    #[track_caller]
    fn expect_passed_on(&mut self) {
        self.second.granted();
        assert_eq!(self.holder.ask("DLOCK.CHECK lock first"), 0);
        assert_eq!(lock_holders(&mut self.holder, "lock"), 1);
        self.third.expect_silence(A_WHILE);
        assert_eq!(self.holder.ask("DLOCK.RELEASE lock second"), 1);
        self.third.granted();
        assert_eq!(self.holder.ask("DLOCK.RELEASE lock third"), 1);
        assert_eq!(self.holder.ask("EXISTS lock"), 0);
        self.server.wait_for_blocked(0);
    }
}

#[test]
fn grant_to_client_killed_in_the_same_turn_goes_to_the_next() {
    for appendonly in APPENDONLY {
        for lines in [
            vec!["DLOCK.RELEASE lock held", "CLIENT KILL ID {}"],
            vec!["CLIENT KILL ID {}", "DLOCK.RELEASE lock held"],
            vec![
                "MULTI",
                "DLOCK.RELEASE lock held",
                "CLIENT KILL ID {}",
                "EXEC",
            ],
            vec![
                "MULTI",
                "CLIENT KILL ID {}",
                "DLOCK.RELEASE lock held",
                "EXEC",
            ],
        ] {
            let mut line = line_up(appendonly);
            let id = line.first_id.to_string();
            let lines: Vec<_> = lines.iter().map(|text| text.replace("{}", &id)).collect();
            line.holder.ask_all(&lines);
            line.first.expect_closed(SOON);
            line.expect_passed_on();
        }
    }
}

/// A grant whose reply was written lasts until its lease ends, also if the connection closes in the very next turn.
#[test]
fn delivered_grant_outlives_its_connection() {
    for appendonly in APPENDONLY {
        let ThreeWaiters {
            server: _server,
            mut holder,
            mut first,
            mut second,
            ..
        } = line_up(appendonly);
        assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
        first.granted();
        first.close();
        second.expect_silence(A_WHILE);
        assert_eq!(holder.ask("DLOCK.RELEASE lock first"), 1);
        second.granted();
    }
}

#[test]
fn two_undelivered_grants_pass_on_to_the_third() {
    let server = Server::start();
    let mut holder = server.connect();
    holder
        .ask("DSEM.ACQUIRE semaphore LIMIT 4 PERMITS 4 TOKEN held")
        .grant();
    let mut ids = Vec::new();
    let mut doomed = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect();
        ids.push(client.id());
        client.wait_on(&server, "DSEM.ACQUIRE semaphore LIMIT 4 PERMITS 2 BLOCK 0");
        doomed.push(client);
    }
    let mut third = server.waiting("DSEM.ACQUIRE semaphore LIMIT 4 PERMITS 4 BLOCK 0");
    holder.ask_all([
        "MULTI".to_owned(),
        "DSEM.RELEASE semaphore held".to_owned(),
        format!("CLIENT KILL ID {}", ids[0]),
        format!("CLIENT KILL ID {}", ids[1]),
        "EXEC".to_owned(),
    ]);
    for client in &mut doomed {
        client.expect_closed(SOON);
    }
    let (token, _) = third.granted();
    assert_eq!(count(&mut holder, "DSEM.INFO", "semaphore", "holders"), 1);
    assert_eq!(holder.ask(format!("DSEM.RELEASE semaphore {token}")), 1);
    assert_eq!(holder.ask("EXISTS semaphore"), 0, "all permits came back");
}

/// The server is stopped while the waiter closes and the lock is released, so it reads both in one turn.
#[test]
fn grant_to_client_closed_in_the_same_turn_goes_to_the_next() {
    for release_first in [true, false] {
        let mut line = line_up("no");
        line.server.stop();
        if release_first {
            line.holder.begin("DLOCK.RELEASE lock held");
        }
        let ThreeWaiters {
            server,
            mut holder,
            first,
            first_id,
            second,
            third,
        } = line;
        first.close();
        if !release_first {
            holder.begin("DLOCK.RELEASE lock held");
        }
        server.cont();
        assert_eq!(holder.reply(), 1);
        // `first` is closed; the struct needs some connection in its place.
        let first = server.connect();
        let mut line = ThreeWaiters {
            server,
            holder,
            first,
            first_id,
            second,
            third,
        };
        line.expect_passed_on();
    }
}

/// The release, the end of the old connection and the retry on a new one, all in one turn: in every order the token is
/// granted once, and so is the next waiter.
#[test]
fn release_close_and_retry_in_one_turn_grant_once_in_any_order() {
    const ORDERS: [[u8; 3]; 6] = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for order in ORDERS {
        let server = Server::start();
        let mut holder = server.connect();
        holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
        let mut old = Some(server.waiting("DLOCK.ACQUIRE lock EX 600 TOKEN t BLOCK 0"));
        let mut next = server.waiting("DLOCK.ACQUIRE lock EX 600 TOKEN next BLOCK 0");
        let mut new = server.connect();
        new.ask("PING");
        server.stop();
        for step in order {
            match step {
                0 => holder.begin("DLOCK.RELEASE lock held"),
                1 => old.take().expect("closed once").close(),
                _ => new.begin("DLOCK.ACQUIRE lock EX 600 TOKEN t BLOCK 0"),
            }
        }
        server.cont();
        assert_eq!(holder.reply(), 1, "{order:?}");
        // If the server saw the connection close first, the next waiter may be granted before the token.
        eventually("a holder", SOON, || lock_holders(&mut holder, "lock") == 1);
        let mut turns = [("t", &mut new), ("next", &mut next)];
        if holder.ask("DLOCK.CHECK lock next").as_int() > 0 {
            turns.reverse();
        }
        for (token, client) in turns {
            assert_eq!(client.granted().0, token, "{order:?}");
            assert_eq!(lock_holders(&mut holder, "lock"), 1, "{order:?}");
            assert_eq!(holder.ask(format!("DLOCK.RELEASE lock {token}")), 1);
            expect_no_more(client);
        }
        assert_eq!(holder.ask("EXISTS lock"), 0, "{order:?}");
        server.wait_for_blocked(0);
    }
}

/// RELEASE and the end of the waiter's connection came in one turn, RELEASE first. The grant could not be delivered,
/// and the token lost its place; with the end one turn earlier it would have kept it.
#[test]
fn undelivered_grant_with_token_keeps_its_place_for_the_retry() {
    let mut line = line_up("no");
    let id = line.first_id;
    line.holder.ask_all([
        "DLOCK.RELEASE lock held".to_owned(),
        format!("CLIENT KILL ID {id}"),
    ]);
    line.second.granted();
    let mut again = line
        .server
        .waiting("DLOCK.ACQUIRE lock TOKEN first BLOCK 0");
    assert_eq!(line.holder.ask("DLOCK.RELEASE lock second"), 1);
    again.granted();
    assert_eq!(line.holder.ask("DLOCK.RELEASE lock first"), 1);
    line.third.granted();
}
