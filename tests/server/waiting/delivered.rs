//! Grants after waiting whose reply was written, although the connection closes in the same turn of the event loop: the
//! hold lives until its lease ends, so nobody else reads a grant meanwhile.
//!
//! Client libraries send QUIT at a graceful end, also behind a request that still waits. What the server has sent before
//! it closes the connection, the client has read. `undelivered` has the connections that close before that.

use crate::support::steps::*;
use crate::support::*;
use std::time::Duration;

/// What a client sends behind its request, in the same write, and what closes its connection then.
const CLOSINGS: [&str; 4] = [
    "QUIT",
    "*1\r\nbroken",
    "CLIENT KILL SKIPME no ID {id}",
    "CLIENT REPLY OFF\r\nQUIT",
];

/// With an AOF, some servers release a waiter later in the turn.
const APPENDONLY: [&str; 2] = ["no", "yes"];

/// The families, and a request that more than its key decides.
const REQUESTS: [(Family, &str); 5] = [
    (Family::Lock, ""),
    (Family::Semaphore, ""),
    (Family::Semaphore, "LANE lane"),
    (Family::Group, ""),
    (Family::Once, ""),
];

#[derive(Clone, Copy, Debug)]
enum Cause {
    Release,
    Lapse,
    Revocation,
    Removal,
}

const CAUSES: [Cause; 4] = [
    Cause::Release,
    Cause::Lapse,
    Cause::Revocation,
    Cause::Removal,
];

impl Cause {
    /// Ends the hold with the token `held` and this fence.
    #[track_caller]
    fn end(self, holder: &mut Client, family: Family, key: &str, fence: u64) {
        let prefix = family.prefix();
        let reply = match self {
            Cause::Release => holder.ask(family.release(key, "held")),
            Cause::Lapse => holder.ask(format!("{prefix}.RENEW {key} held PX 1")),
            Cause::Revocation => holder.ask(format!("{prefix}.REVOKE {key} {fence}")),
            Cause::Removal => holder.ask(format!("DEL {key}")),
        };
        assert_eq!(reply, 1, "{self:?} of {key}");
    }
}

/// A client that waits, and has sent one of [`CLOSINGS`] behind its request.
struct Quitter(Client);

impl Quitter {
    #[track_caller]
    fn waiting(server: &Server, request: &str, closing: &str) -> Quitter {
        let before = server.blocked_clients();
        let mut client = server.connect();
        let closing = closing.replace("{id}", &client.id().to_string());
        client.send_raw(format!("{request}\r\n{closing}\r\n").as_bytes());
        server.wait_for_blocked(before + 1);
        Quitter(client)
    }

    /// Reads the grant, and all else until the server closes the connection. Returns the fence. Redis 8.0 does not notice
    /// a broken request behind a wait, so there the client closes.
    #[track_caller]
    fn reads_grant(mut self, token: &str) -> u64 {
        let (read, fence) = any_grant(&self.0.reply());
        assert_eq!(read, token.as_bytes());
        while let Ok(Some(_)) = self.0.recv_or_closed(A_WHILE) {}
        fence
    }
}

#[test]
fn grant_read_by_client_that_quits_lives_until_released() {
    for appendonly in APPENDONLY {
        let server = Server::builder().config("appendonly", appendonly).start();
        let mut holder = server.connect();
        let mut granted = Vec::new();
        for (nth, (family, more)) in REQUESTS.into_iter().enumerate() {
            for cause in CAUSES {
                for (closing_nth, closing) in CLOSINGS.into_iter().enumerate() {
                    let key = format!("{nth}:{cause:?}:{closing_nth}");
                    let request =
                        |token: &str| family.acquire(&key, token, &format!("EX 600 {more}"));
                    let (_, fence) = any_grant(&holder.ask(request("held")));
                    let first =
                        Quitter::waiting(&server, &(request("first") + " BLOCK 0"), closing);
                    let second = server.waiting(request("second") + " BLOCK 0");
                    cause.end(&mut holder, family, &key, fence);
                    granted.push((family, first.reads_grant("first"), second, key));
                }
            }
        }
        let mut late = server.connect();
        for (family, fence, mut second, key) in granted {
            second.expect_silence(Duration::from_millis(1));
            assert!(late.ask(family.check(&key, "first")).as_int() > 0, "{key}");
            assert_eq!(late.ask(family.release(&key, "first")), 1, "{key}");
            assert!(any_grant(&second.reply()).1 > fence, "{key}");
        }
        for counter in ["lock", "sem", "wg", "once"] {
            let field = format!("dsync_{counter}_undelivered");
            assert_eq!(server.info_number("dsync", &field), 0, "{counter}");
        }
    }
}

/// A run that two clients believed to have: with the same attempt, and the DONE of the first was not believed.
#[test]
fn once_run_read_by_client_that_quits_is_its_own() {
    let server = Server::start();
    let mut holder = server.connect();
    any_grant(&holder.ask("DONCE.BEGIN job TOKEN held"));
    let first = Quitter::waiting(&server, "DONCE.BEGIN job TOKEN first BLOCK 0", "QUIT");
    let mut second = server.waiting("DONCE.BEGIN job TOKEN second BLOCK 0");
    assert_eq!(holder.ask("DONCE.RELEASE job held"), 1);
    first.reads_grant("first");
    second.expect_silence(A_WHILE);
    assert_eq!(holder.ask("DONCE.DONE job first RESULT paid"), 1);
    assert_eq!(second.reply().as_array()[0], "DONE");
}

/// Several grants of one turn, whose clients all quit.
#[test]
fn grants_of_one_turn_read_by_clients_that_quit_all_live() {
    for appendonly in APPENDONLY {
        let server = Server::builder().config("appendonly", appendonly).start();
        let mut holder = server.connect();
        holder.ask("DSEM.ACQUIRE sem LIMIT 3 PERMITS 3 TOKEN held");
        let quitters: Vec<_> = ["a", "b", "c"]
            .map(|token| {
                let request = format!("DSEM.ACQUIRE sem LIMIT 3 TOKEN {token} BLOCK 0");
                (Quitter::waiting(&server, &request, "QUIT"), token)
            })
            .into_iter()
            .collect();
        let mut next = server.waiting("DSEM.ACQUIRE sem LIMIT 3 TOKEN next BLOCK 0");
        assert_eq!(holder.ask("DSEM.RELEASE sem held"), 1);
        for (quitter, token) in quitters {
            quitter.reads_grant(token);
        }
        next.expect_silence(A_WHILE);
        assert_eq!(count(&mut holder, "DSEM.INFO", "sem", "holders"), 3);
    }
}

/// The place was kept while its server was replaced, and the client came back to it.
#[test]
fn grant_of_promoted_server_read_by_client_that_quits_lives() {
    let primary = Server::start();
    let promoted = Server::builder().replica_of(&primary).start();
    let mut holder = primary.connect();
    holder.ask("DLOCK.ACQUIRE lock EX 600 TOKEN held").grant();
    let first = "DLOCK.ACQUIRE lock EX 600 TOKEN first";
    let place = holder.ask(format!("{first} QUEUE 60000"));
    assert_eq!(place.as_array()[0], "WAITING");
    promoted.wait_to_catch_up_with(&primary);
    let mut holder = promoted.connect();
    assert_eq!(holder.ask("REPLICAOF NO ONE"), "OK");
    let quitter = Quitter::waiting(&promoted, &format!("{first} BLOCK 0"), "QUIT");
    let mut second = promoted.waiting("DLOCK.ACQUIRE lock EX 600 TOKEN second BLOCK 0");
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    quitter.reads_grant("first");
    second.expect_silence(A_WHILE);
    assert_eq!(holder.ask("DLOCK.RELEASE lock first"), 1);
    second.granted();
}

/// Where the server writes the grant while a script keeps it busy, the client can read it and close its connection
/// before the turn is over. Elsewhere it reads the grant after the script.
#[test]
fn grant_read_during_a_busy_script_outlives_its_connection() {
    let server = Server::start();
    let (mut holder, mut other) = (server.connect(), server.connect());
    holder.ask("CONFIG SET busy-reply-threshold 10");
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let mut first = server.waiting("DLOCK.ACQUIRE lock EX 600 TOKEN first BLOCK 0");
    let mut second = server.waiting("DLOCK.ACQUIRE lock TOKEN second BLOCK 0");
    holder.send_raw(b"DLOCK.RELEASE lock held\r\nEVAL \"while true do end\" 0\r\n");
    wait_until_busy(&mut other);
    let read = first.recv(A_WHILE);
    // Close the connection of a client that has read its grant.
    let mut first = Some(first).filter(|_| read.is_none());
    assert_eq!(other.ask("SCRIPT KILL"), "OK");
    assert_eq!(holder.reply(), 1);
    assert!(holder.reply().is_error());
    let grant = read.or_else(|| first.as_mut()?.recv(SOON));
    assert_eq!(grant.expect("a grant").grant().0, "first");
    drop(first);
    second.expect_silence(A_WHILE);
    assert_eq!(other.ask("DLOCK.RELEASE lock first"), 1);
    second.granted();
}

/// An EPHEMERAL hold ends with its connection in any case, and not as one that nobody was told of.
#[test]
fn ephemeral_hold_of_client_that_quits_ends_with_the_connection() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.ask("DLOCK.ACQUIRE lock TOKEN held").grant();
    let first = Quitter::waiting(
        &server,
        "DLOCK.ACQUIRE lock EPHEMERAL TOKEN first BLOCK 0",
        "QUIT",
    );
    let mut second = server.waiting("DLOCK.ACQUIRE lock BLOCK 0");
    assert_eq!(holder.ask("DLOCK.RELEASE lock held"), 1);
    first.reads_grant("first");
    second.granted();
    let info = |field| server.info_number("dsync", field);
    assert_eq!(info("dsync_lock_undelivered"), 0);
    assert_eq!(info("dsync_lock_disconnected"), 1);
}
