//! Clusters: every key at its node, and slots that move.

use std::thread;

use dsync_client::{Client, Error, Server};

use crate::support::{LONG, SECOND, cluster};

#[test]
fn keys_of_all_nodes_are_locked_and_waited_for() {
    let cluster = cluster();
    let client = Client::new(Server::cluster(cluster.urls()).unwrap());
    let keys: Vec<String> = (0..12).map(|number| format!("job:{number}")).collect();
    let holds: Vec<_> = keys
        .iter()
        .map(|key| client.lock(key).acquire().unwrap())
        .collect();
    for (node, server) in cluster.nodes.iter().enumerate() {
        assert!(
            server.info("dsync", "dsync_lock_holds") != "0",
            "node {node} has no key"
        );
    }
    let waiting: Vec<_> = keys
        .iter()
        .map(|key| {
            let lock = client.lock(key);
            thread::spawn(move || lock.acquire_for(LONG).map(|hold| hold.fence()))
        })
        .collect();
    for hold in holds {
        hold.release().unwrap();
    }
    for thread in waiting {
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn node_that_stops_does_not_cost_the_holds_elsewhere() {
    let cluster = cluster();
    let client = Client::new(Server::cluster(cluster.urls()).unwrap());
    // A new connection greets all nodes, and waits some seconds for the one that stands still.
    let lock = |key: &str| client.lock(key).lease(15 * SECOND).acquire().unwrap();
    let mut holds: [Option<dsync_client::Hold>; 3] = [None, None, None];
    for number in 0.. {
        let key = format!("job:{number}");
        let hold = lock(&key);
        let place = &mut holds[cluster.owner_of(&key)];
        if place.is_none() {
            *place = Some(hold);
        }
        if holds.iter().all(Option::is_some) {
            break;
        }
    }
    cluster.nodes[0].stop();
    let [stopped, second, third] = holds.map(|hold| hold.unwrap());
    assert!(stopped.wait_lost(LONG).is_some());
    second.ensure_held().unwrap();
    third.ensure_held().unwrap();
    cluster.nodes[0].cont();
    assert!(matches!(stopped.ensure_held(), Err(Error::HoldLost { .. })));
}
