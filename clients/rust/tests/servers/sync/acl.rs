//! A user with the worker's line of docs/acl.md, and nothing more.

use std::thread;

use dsync_client::{Begun, Client, Error, Outcome, Server as Address};

use crate::support::acl::{make_worker, url_of_worker};
use crate::support::{LONG, SECOND, Server, cluster};

fn use_all(client: &Client) {
    let lock = client.lock("jobs:a").lease(2 * SECOND);
    let hold = lock.acquire().unwrap();
    let error = lock.try_acquire().unwrap_err();
    assert!(
        matches!(&error, Error::NotAcquired { holders, .. } if holders.len() == 1),
        "{error}"
    );
    let waiting = {
        let lock = lock.clone();
        thread::spawn(move || lock.acquire_for(LONG).unwrap().release())
    };
    assert_eq!(hold.wait_lost(3 * SECOND), None);
    hold.release().unwrap();
    waiting.join().unwrap().unwrap();
    client
        .semaphore("jobs:b")
        .limit(1)
        .acquire()
        .unwrap()
        .release()
        .unwrap();
    let group = client.group("jobs:c");
    group.expect(1).unwrap();
    group.add().unwrap().done().unwrap();
    assert_eq!(group.wait().unwrap().done, 1);
    let Begun::Run(run) = client.once("jobs:d").begin().unwrap() else {
        panic!("the work is done already");
    };
    run.done(Some(b"x")).unwrap();
    assert!(matches!(
        client.once("jobs:d").result(),
        Ok(Outcome::Done { .. })
    ));
    // And no other keys.
    let error = client.lock("other").acquire().unwrap_err();
    assert!(
        matches!(&error, Error::Redis(error) if error.code() == Some("NOPERM")),
        "{error}"
    );
}

#[test]
fn worker_of_the_page_can_do_everything() {
    let server = [Server::start()];
    make_worker(&server, &[]);
    use_all(&Client::open(url_of_worker(&server[0])).unwrap());
}

#[test]
fn worker_of_the_page_can_do_everything_in_a_cluster() {
    let cluster = cluster();
    make_worker(&cluster.nodes, &["a worker's cluster client"]);
    let urls = cluster.nodes.iter().map(url_of_worker);
    use_all(&Client::new(Address::cluster(urls).unwrap()));
}
