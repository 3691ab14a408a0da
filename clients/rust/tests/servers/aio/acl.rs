//! A user with the worker's line of docs/acl.md, and nothing more.

use dsync_client::Server as Address;
use dsync_client::aio::{Begun, Client, Waits};

use crate::support::acl::{make_worker, url_of_worker};
use crate::support::{LONG, SECOND, Server, cluster, eventually};

const CLUSTER: &str = "a worker's cluster client";
const LISTENS: &str = "keeps its place with [QUEUE]";

async fn use_all(client: &Client, servers: &[Server]) {
    let lock = client.lock("jobs:a").lease(60 * SECOND);
    let hold = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.is_err());
    let waiting =
        tokio::spawn(async move { lock.acquire_for(LONG).await.unwrap().release().await });
    if client_listens(client) {
        eventually("the waiter listens", || {
            servers.iter().map(listened_to).sum::<usize>() == 1
        });
    }
    hold.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    let semaphore = client.semaphore("jobs:b").limit(1);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let group = client.group("jobs:c");
    group.expect(1).await.unwrap();
    group.add().await.unwrap().done().await.unwrap();
    assert_eq!(group.wait().await.unwrap().done, 1);
    let Begun::Run(run) = client.once("jobs:d").begin().await.unwrap() else {
        panic!("the work is done already");
    };
    run.done(Some(b"x")).await.unwrap();
    // Removes what the next round makes anew.
    for server in servers {
        server.ask("FLUSHALL");
    }
}

fn client_listens(client: &Client) -> bool {
    format!("{client:?}").contains("SharedConnection")
}

fn listened_to(server: &Server) -> usize {
    let channels = ["PUBSUB CHANNELS dsync:*", "PUBSUB SHARDCHANNELS dsync:*"];
    channels
        .map(|words| server.ask(words).as_array().len())
        .iter()
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_of_the_page_can_do_everything() {
    let server = [Server::start()];
    make_worker(&server, &[]);
    let own = Client::open(url_of_worker(&server[0])).unwrap();
    use_all(&own, &server).await;
    make_worker(&server, &[LISTENS]);
    use_all(&own.with_waits(Waits::SharedConnection), &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_of_the_page_can_do_everything_in_a_cluster() {
    let cluster = cluster();
    make_worker(&cluster.nodes, &[CLUSTER]);
    let urls = cluster.nodes.iter().map(url_of_worker);
    let own = Client::new(Address::cluster(urls).unwrap());
    use_all(&own, &cluster.nodes).await;
    make_worker(&cluster.nodes, &[CLUSTER, LISTENS]);
    use_all(&own.with_waits(Waits::SharedConnection), &cluster.nodes).await;
}

/// Without the channels of the page a waiter asks twice a second.
#[tokio::test(flavor = "multi_thread")]
async fn worker_that_may_not_listen_is_served_all_the_same() {
    let server = Server::start();
    make_worker(std::slice::from_ref(&server), &[]);
    let client = Client::open(url_of_worker(&server)).unwrap();
    let client = client.with_waits(Waits::SharedConnection);
    let lock = client.lock("jobs:a").lease(60 * SECOND);
    let hold = lock.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { lock.acquire_for(LONG).await });
    server.wait_for_waiters(1);
    hold.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
