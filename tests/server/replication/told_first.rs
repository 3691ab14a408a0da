//! Who is told of a hand-off first: the next holders, before what tells the replicas leaves the server; but not before
//! an AOF that is always synced has it.

use crate::support::data_files::kill_and_start;
use crate::support::steps::SOON;
use crate::support::*;

/// Lets one client hold `k` and another wait for it; returns both.
#[track_caller]
fn holder_and_waiter(server: &Server) -> (Client, Client) {
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.ask("DLOCK.ACQUIRE k TOKEN h EX 600").grant();
    waiter.begin("DLOCK.ACQUIRE k BLOCK 0 TOKEN w EX 600");
    server.wait_for_blocked(1);
    (holder, waiter)
}

/// A link that gets the replication stream from now on, and is read with [`Client::poll`]. The server must have a
/// backlog, so that it sends no snapshot.
fn link(server: &Server) -> Client {
    let mut link = server.connect();
    assert_eq!(link.ask("REPLCONF capa psync2"), "OK");
    let id = server.info("replication", "master_replid");
    let next = server.info_number("replication", "master_repl_offset") + 1;
    let answer = link.ask(format!("PSYNC {id} {next}"));
    assert!(answer.as_str().starts_with("CONTINUE"), "{answer:?}");
    link.set_nonblocking();
    link
}

/// Whether a change has arrived on the link. The server sends other commands at times of its own.
fn has_change(link: &mut Client) -> bool {
    while let Some(command) = link.poll().expect("an open link") {
        if command.as_array()[0] == "DSYN" {
            return true;
        }
    }
    false
}

/// When the first change is here, the server has already written to all next holders. There are as many as it takes
/// some time to write to.
#[test]
fn next_holders_are_told_before_replicas() {
    const NEXT: u64 = 100;
    let server = Server::start();
    let _first_replica = ReplicationStream::attach(&server);
    let mut link = link(&server);
    let mut holder = server.connect();
    for round in 0..10 {
        let all = ["DSEM.ACQUIRE", "s", "LIMIT", "100", "PERMITS", "100"];
        let (token, _) = holder.call(&all).grant();
        let mut waiters: Vec<_> = (0..NEXT).map(|_| server.connect()).collect();
        for waiter in &mut waiters {
            send!(waiter, "DSEM.ACQUIRE", "s", "LIMIT", NEXT, "BLOCK", 0);
            waiter.set_nonblocking();
        }
        server.wait_for_blocked(NEXT);
        while has_change(&mut link) {}
        send!(holder, "DSEM.RELEASE", "s", token);
        while !has_change(&mut link) {}
        for (n, waiter) in waiters.iter_mut().enumerate() {
            let told = waiter.poll().expect("an open connection");
            let told = told.unwrap_or_else(|| panic!("round {round}: {n} is told later"));
            told.grant();
        }
        assert_eq!(holder.recv(SOON).expect("a reply"), 1);
        holder.ask("DEL s");
    }
}

#[test]
fn next_holder_is_told_when_the_aof_has_its_grant() {
    let mut server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start();
    for round in 0..3 {
        let (mut holder, mut waiter) = holder_and_waiter(&server);
        holder.begin("DLOCK.RELEASE k h");
        waiter.recv(SOON).expect("the grant").grant();
        kill_and_start(&mut server);
        let mut client = server.connect();
        let left_ms = client.ask("DLOCK.CHECK k w").as_int();
        assert!(left_ms > 0, "round {round}");
        assert_eq!(client.ask("DLOCK.RELEASE k w"), 1);
    }
}
