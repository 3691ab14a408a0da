//! Holds that replicas confirm, where the conformance suite does not go: in a cluster, and many at a time.

use std::time::Duration;

use dsync_client::{Begun, Client, Error, Server as Address, aio};
use tokio::time::timeout;

use crate::support::{LONG, Proxy, SECOND, Server, cluster_with_replicas, eventually};

const LEASE: Duration = Duration::from_secs(3);

fn assert_not_confirmed<T: std::fmt::Debug>(result: Result<T, Error>, key: &str) {
    let error = result.unwrap_err();
    let expected = format!("{key:?} is not confirmed: 0 of 1 have confirmed it in time");
    assert_eq!(error.to_string(), expected);
}

#[test]
fn threads_hold_in_a_cluster_what_its_replica_confirms() {
    let (cluster, owner, replica) = cluster_with_replicas("job");
    let client = Client::new(Address::cluster(cluster.urls()).unwrap());
    let lock = client.lock("job").lease(LEASE).replicas_all();
    let hold = lock.acquire_for(LONG).unwrap();
    assert_eq!(hold.wait_lost(2 * LEASE), None);
    hold.release().unwrap();
    let once = client.once("{job}:work").replicas(1);
    let Begun::Run(run) = once.begin_for(LONG).unwrap() else {
        panic!("the work is done already");
    };
    run.done(None).unwrap();
    let hold = lock.acquire_for(LONG).unwrap();
    cluster.nodes[replica].stop();
    assert_not_confirmed(
        client.lock("{job}:other").replicas(1).try_acquire(),
        "{job}:other",
    );
    assert!(hold.wait_lost(LONG).is_some());
    let holds = || cluster.nodes[owner].info("dsync", "dsync_lock_holds");
    eventually("what was not confirmed is withdrawn", || holds() == "0");
    cluster.nodes[replica].cont();
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_hold_in_a_cluster_what_its_replica_confirms() {
    let (cluster, owner, replica) = cluster_with_replicas("job");
    let client = aio::Client::new(Address::cluster(cluster.urls()).unwrap());
    let lock = client.lock("job").lease(LEASE).replicas_all();
    let hold = lock.acquire_for(LONG).await.unwrap();
    assert!(timeout(2 * LEASE, hold.lost()).await.is_err());
    hold.release().await.unwrap();
    let once = client.once("{job}:work").replicas(1);
    let Begun::Run(run) = once.begin_for(LONG).await.unwrap() else {
        panic!("the work is done already");
    };
    run.done(None).await.unwrap();
    let hold = lock.acquire_for(LONG).await.unwrap();
    cluster.nodes[replica].stop();
    let other = client.lock("{job}:other").replicas(1);
    assert_not_confirmed(other.try_acquire().await, "{job}:other");
    assert!(timeout(LONG, hold.lost()).await.is_ok());
    let holds = || cluster.nodes[owner].info("dsync", "dsync_lock_holds");
    eventually("what was not confirmed is withdrawn", || holds() == "0");
    cluster.nodes[replica].cont();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_of_a_client_share_their_waits() {
    const MANY: u64 = 100;
    let server = Server::start();
    let replica = Server::builder().replica_of(&server).start();
    let client = aio::Client::open(server.url()).unwrap();
    let first = client.lock("first").replicas(1).acquire().await.unwrap();
    first.release().await.unwrap();
    server.ask("CONFIG RESETSTAT");
    replica.stop();
    // A WAIT that ends without an answer has its request begin once more, at a time of its own.
    let asked: Vec<_> = (0..MANY)
        .map(|number| client.lock(number.to_string()).replicas(1).within(LONG))
        .map(|lock| tokio::spawn(async move { lock.acquire().await.unwrap() }))
        .collect();
    eventually("the first of them wait", || {
        server.info("clients", "blocked_clients") == "1"
    });
    replica.cont();
    let mut holds = Vec::new();
    for asked in asked {
        holds.push(asked.await.unwrap());
    }
    let waits = server.info("commandstats", "cmdstat_wait");
    let calls: u64 = waits
        .strip_prefix("calls=")
        .and_then(|rest| rest.split(',').next())
        .and_then(|calls| calls.parse().ok())
        .unwrap();
    assert!(calls < MANY / 2, "{waits}");
    assert_eq!(replica.info("dsync", "dsync_lock_holds"), MANY.to_string());
}

#[test]
fn confirmed_work_that_was_recorded_before_is_not_confirmed_again() {
    let server = Server::start();
    let replica = Server::builder().replica_of(&server).start();
    let client = Client::open(server.url()).unwrap();
    let once = client.once("work").replicas(1).lease(60 * SECOND);
    let Begun::Run(run) = once.begin_for(LONG).unwrap() else {
        panic!("the work is done already");
    };
    // As if the answer to an earlier DONE was lost with its connection.
    server.ask(format!("DONCE.DONE work {}", run.token()));
    assert_not_confirmed(run.done(None), "work");
    eventually("the work is recorded all the same", || {
        replica.ask("DONCE.GET work").as_array()[0].as_str() == "DONE"
    });
}

#[test]
fn member_is_done_when_that_is_confirmed() {
    let server = Server::start();
    let replica = Server::builder().replica_of(&server).start();
    let client = Client::open(server.url()).unwrap();
    let group = client.group("jobs").replicas(1).lease(LEASE);
    group.add().unwrap().done().unwrap();
    let member = group.add().unwrap();
    replica.stop();
    assert_not_confirmed(member.done(), "jobs");
    replica.cont();
}

/// A primary that lives on when its replica, which has one of its own, is promoted. The name leads to the new primary.
struct Split {
    name: Proxy,
    first: Server,
    second: Server,
    _third: Server,
}

impl Split {
    fn start() -> Split {
        let first = Server::start();
        let second = Server::builder().replica_of(&first).start();
        let third = Server::builder().replica_of(&second).start();
        Split {
            name: Proxy::to(&first),
            first,
            second,
            _third: third,
        }
    }

    fn promote(&self) {
        self.name.lead_to(&self.second);
        self.second.ask("REPLICAOF NO ONE");
        assert!(self.first.is_primary());
    }
}

#[test]
fn hold_of_a_thread_finds_the_primary_whose_replicas_confirm_it() {
    let split = Split::start();
    let client = Client::open(split.name.url()).unwrap();
    let lock = client.lock("jobs").lease(2 * LEASE).replicas(1);
    let hold = lock.acquire_for(LONG).unwrap();
    split.promote();
    assert_eq!(hold.wait_lost(4 * LEASE), None);
    hold.release().unwrap();
    assert_eq!(split.second.info("dsync", "dsync_lock_holds"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_of_a_task_finds_the_primary_whose_replicas_confirm_it() {
    let split = Split::start();
    let client = aio::Client::open(split.name.url()).unwrap();
    let lock = client.lock("jobs").lease(2 * LEASE).replicas(1);
    let hold = lock.acquire_for(LONG).await.unwrap();
    split.promote();
    assert!(timeout(4 * LEASE, hold.lost()).await.is_err());
    client
        .lock("other")
        .replicas(1)
        .try_acquire()
        .await
        .unwrap();
}
