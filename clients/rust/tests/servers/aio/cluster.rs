//! Clusters: every key at its node, and slots that move.

use dsync_client::Server as Address;
use dsync_client::aio::{Client, Waits};
use tokio::time::timeout;

use crate::support::{LONG, SECOND, Server, cluster, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_all_nodes_are_locked_and_waited_for() {
    let cluster = cluster();
    for waits in super::queue::WAITS {
        let client = Client::new(Address::cluster(cluster.urls()).unwrap()).with_waits(waits);
        let mut holds = Vec::new();
        let mut waiting = Vec::new();
        for number in 0..9 {
            let lock = client.lock(format!("job:{number}")).lease(60 * SECOND);
            holds.push(lock.acquire().await.unwrap());
            waiting.push(tokio::spawn(async move { lock.acquire_for(LONG).await }));
        }
        eventually("all wait", || {
            cluster.nodes.iter().map(Server::waiters).sum::<u64>() == 9
        });
        assert!(cluster.nodes.iter().all(|node| node.waiters() > 0));
        if waits == Waits::SharedConnection {
            eventually("all listen", || {
                let channels = cluster
                    .nodes
                    .iter()
                    .map(|node| node.ask("PUBSUB SHARDCHANNELS dsync:*").as_array().len());
                channels.sum::<usize>() == 9
            });
        }
        for hold in holds {
            hold.release().await.unwrap();
        }
        for task in waiting {
            let hold = timeout(LONG, task)
                .await
                .expect("a grant")
                .unwrap()
                .unwrap();
            hold.release().await.unwrap();
        }
    }
}
