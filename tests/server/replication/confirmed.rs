//! Grants that a client confirms with WAIT or WAITAOF, right after the request and on the same connection.
//!
//! A reply of at least 1 means that a replica, or the disk, has the grant. With any other reply the client releases the
//! hold and works as if it had not been granted.

use crate::support::steps::*;
use crate::support::*;

/// Acquires as a client does that must not lose its grant in a failover: returns the fence of a confirmed grant.
#[track_caller]
fn acquire_confirmed(client: &mut Client, key: &str, token: &str) -> Option<u64> {
    let reply = client.ask(format!("DLOCK.ACQUIRE {key} EX 60 TOKEN {token}"));
    if reply.is_nil() {
        return None;
    }
    let fence = reply.grant().1;
    // WAIT counts the replicas that have the writes of its own connection.
    if client.ask("WAIT 1 500").as_int() >= 1 {
        return Some(fence);
    }
    client.ask(format!("DLOCK.RELEASE {key} {token}"));
    None
}

#[test]
fn wait_confirms_grant_unless_primary_is_cut_off() {
    let Some(network) = Network::new() else {
        return;
    };
    let (here, there) = (network.host(), network.host());
    let primary = Server::builder().on(&here).start();
    let replica = Server::builder().on(&there).replica_of(&primary).start();
    let mut client = primary.connect();
    let mut confirmed = None;
    // A machine under load may need more than the 500 ms of WAIT.
    eventually("a confirmed grant", SOON, || {
        confirmed = acquire_confirmed(&mut client, "confirmed", "t");
        confirmed.is_some()
    });
    let confirmed = confirmed.expect("the wait ended with one");
    assert!(replica.connect().ask("DLOCK.CHECK confirmed t").as_int() > 0);

    // A waiter that asked before the partition is granted after it: its WAIT does not confirm the grant.
    client.ask("DLOCK.ACQUIRE handed-on TOKEN t");
    let mut waiter = primary.waiting("DLOCK.ACQUIRE handed-on BLOCK 0 TOKEN w");
    replica.wait_to_catch_up_with(&primary);
    here.cut_off();
    client.ask("DLOCK.RELEASE handed-on t");
    assert_eq!(waiter.granted().0, "w");
    assert_eq!(waiter.ask("WAIT 1 300"), 0);
    assert_eq!(acquire_confirmed(&mut client, "doubtful", "t"), None);
    assert_eq!(client.ask("EXISTS doubtful"), 0);

    // The promoted replica has the confirmed hold and no other.
    let mut across = replica.connect();
    assert_eq!(across.ask("REPLICAOF NO ONE"), "OK");
    let again = across.ask("DLOCK.ACQUIRE confirmed EX 60 TOKEN t");
    assert_eq!(again.grant().1, confirmed);
    assert!(across.ask("DLOCK.ACQUIRE doubtful").grant().1 > confirmed);
    assert_calm(&primary);
    assert_calm(&replica);
}

#[test]
fn waitaof_confirms_grant_that_survives_a_kill() {
    let mut server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "everysec")
        .start();
    let mut client = server.connect();
    let fence = client.ask("DLOCK.ACQUIRE k EX 60 TOKEN t").grant().1;
    // Redis 7.0 has no WAITAOF; `kills` tests `appendfsync always`.
    if server.flavour().product == Product::Redis && server.flavour().version < (7, 2, 0) {
        assert!(client.ask("WAITAOF 1 0 1000").is_error());
        return;
    }
    let confirmed = client.ask("WAITAOF 1 0 8000");
    assert_eq!(confirmed.as_array(), [Reply::Int(1), Reply::Int(0)]);
    server.kill9();
    server.start_again();
    let again = server.connect().ask("DLOCK.ACQUIRE k EX 60 TOKEN t");
    assert_eq!(again.grant().1, fence);
    assert_calm(&server);
}
