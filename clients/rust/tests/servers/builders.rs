//! What builders ask for, in both halves: bounds, the owner, and what is never shown.

use std::fmt::Debug;
use std::time::Duration;

use dsync_client::{Begun, Cancel, Client, Error, Server as Address, aio};

use crate::support::{SECOND, Server};

const TOKEN: &str = "4be1a0-secret";

fn assert_hidden(shown: &dyn Debug) {
    for text in [format!("{shown:?}"), format!("{shown:#?}")] {
        assert!(!text.contains(TOKEN), "{text}");
        assert!(!text.contains("pass-7"), "{text}");
    }
}

#[test]
fn no_public_type_shows_the_token_or_the_password() {
    let server = Server::start();
    server.ask("CONFIG SET requirepass pass-7");
    let url = format!("redis://:pass-7@127.0.0.1:{}", server.port());
    let client = Client::open(url.as_str()).unwrap();
    assert_hidden(&client);
    assert_hidden(&Address::at(url.as_str()).unwrap());
    assert_hidden(&Cancel::new());
    let lock = client.lock("a").token(TOKEN);
    let hold = lock.acquire().unwrap();
    let semaphore = client.semaphore("b").limit(1).token(TOKEN);
    let group = client.group("c").token(TOKEN);
    let once = client.once("d").token(TOKEN);
    let member = group.add().unwrap();
    let begun = once.begin().unwrap();
    let all: [&dyn Debug; 7] = [&lock, &hold, &semaphore, &group, &member, &once, &begun];
    all.into_iter().for_each(assert_hidden);
    let Begun::Run(run) = begun else {
        panic!("the work is done already");
    };
    assert_hidden(&run);
    // The same token with another mode is an error of the server, and one that others hold is one of this crate.
    assert_hidden(&lock.clone().shared().acquire().unwrap_err());
    assert_hidden(&client.lock("a").try_acquire().unwrap_err());
    run.done(None).unwrap();
    assert_hidden(&once.begin().unwrap());
}

#[tokio::test]
async fn no_public_type_of_tasks_shows_the_token_or_the_password() {
    let server = Server::start();
    server.ask("CONFIG SET requirepass pass-7");
    let url = format!("redis://:pass-7@127.0.0.1:{}", server.port());
    let client = aio::Client::open(url.as_str()).unwrap();
    assert_hidden(&client);
    let lock = client.lock("a").token(TOKEN);
    let hold = lock.acquire().await.unwrap();
    let semaphore = client.semaphore("b").limit(1).token(TOKEN);
    let group = client.group("c").token(TOKEN);
    let once = client.once("d").token(TOKEN);
    let member = group.add().await.unwrap();
    let begun = once.begin().await.unwrap();
    let all: [&dyn Debug; 7] = [&lock, &hold, &semaphore, &group, &member, &once, &begun];
    all.into_iter().for_each(assert_hidden);
    assert_hidden(&lock.clone().shared().acquire().await.unwrap_err());
    assert_hidden(&client.lock("a").try_acquire().await.unwrap_err());
}

#[tokio::test]
async fn server_without_the_module_repeats_the_token_and_the_error_does_not() {
    let server = Server::builder().without_module().start();
    let sync = Client::open(server.url())
        .unwrap()
        .lock("jobs")
        .token(TOKEN);
    let tasks = aio::Client::open(server.url()).unwrap();
    let errors = [
        sync.try_acquire().unwrap_err(),
        tasks
            .lock("jobs")
            .token(TOKEN)
            .try_acquire()
            .await
            .unwrap_err(),
    ];
    for error in errors {
        let shown = error.to_string();
        assert!(shown.contains("has not loaded the dsync module"), "{shown}");
        assert!(!shown.contains(TOKEN), "{shown}");
        assert_hidden(&error);
    }
}

fn assert_names<T: Debug>(result: Result<T, Error>, words: [&str; 3]) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
    let shown = error.to_string();
    for word in words {
        assert!(shown.contains(word), "{shown}");
    }
}

#[test]
fn option_that_no_server_takes_is_named_with_its_value_and_bound() {
    // Nobody listens there, so nothing is sent.
    let client = Client::open("redis://127.0.0.1:1").unwrap();
    let lock = || client.lock("a");
    let day = 24 * 3600 * SECOND;
    assert_names(
        lock().lease(Duration::ZERO).acquire(),
        ["lease", "0ns", "1 ms to 30 days"],
    );
    assert_names(
        lock().lease(31 * day).acquire(),
        ["lease", "2678400s", "1 ms to 30 days"],
    );
    let without_key = client.lock("").acquire();
    assert_names(without_key, ["key", "0", "1 byte or more"]);
    let margin = lock().lease(10 * SECOND).margin(10 * SECOND);
    assert_names(margin.acquire(), ["margin", "10s", "less than the lease"]);
    let short = lock().max_hold(SECOND).acquire();
    assert_names(short, ["max_hold", "1s", "longer than the margin"]);
    let nobody = lock().replicas(0).acquire();
    assert_names(nobody, ["replicas", "0", "1 to 1000000"]);
    let long = lock().replicas(1).within(31 * SECOND).acquire();
    assert_names(long, ["within", "31s", "1 ms to the lease"]);
    let alone = lock().within(SECOND).acquire();
    assert_names(alone, ["within", "1s", "given with replicas or disk only"]);
    let long = "x".repeat(129);
    assert_names(
        lock().owner(&long).acquire(),
        ["owner", "129", "at most 128 bytes"],
    );
    assert_names(
        lock().token(&long).acquire(),
        ["token", "129", "1 to 128 bytes"],
    );
    assert_names(lock().token("").acquire(), ["token", "0", "1 to 128 bytes"]);
    let count = "1 to 1000000";
    let semaphore = || client.semaphore("b");
    assert_names(semaphore().limit(0).acquire(), ["limit", "0", count]);
    assert_names(
        semaphore().limit(5).permits(1_000_001).acquire(),
        ["permits", "1000001", count],
    );
    let lane = || semaphore().limit(5).lane("a");
    assert_names(lane().lane_limit(0).acquire(), ["lane_limit", "0", count]);
    assert_names(
        semaphore().limit(5).lane_limit(2).acquire(),
        ["lane_limit", "2", "with a lane only"],
    );
    for (name, length) in [("", "0"), (long.as_str(), "129")] {
        assert_names(
            semaphore().limit(5).lane(name).acquire(),
            ["lane", length, "1 to 128 bytes"],
        );
    }
    assert_names(
        semaphore().limit(5).permits(2).index().acquire(),
        ["permits", "2", "1 with an index"],
    );
    let rest = "1 ms to 30 days";
    assert_names(
        lock().min_hold(Duration::ZERO).acquire(),
        ["min_hold", "0ns", rest],
    );
    assert_names(
        lane().min_hold(31 * day).acquire(),
        ["min_hold", "2678400s", rest],
    );
    assert_names(client.group("c").limit(0).add(), ["limit", "0", count]);
    assert_names(client.group("c").expect(0), ["jobs", "0", count]);
    let once = || client.once("d");
    assert_names(once().max_attempts(0).begin(), ["max_attempts", "0", count]);
    assert_names(
        once().keep(Duration::ZERO).begin(),
        ["keep", "0ns", "1 ms to 3650 days"],
    );
    assert_names(
        once().keep(SECOND).forever().begin(),
        ["keep", "1s", "without forever only"],
    );
    assert_names(
        once().until_done().begin(),
        ["until_done", "true", "with max_attempts only"],
    );
    assert_names(
        once().retry_delay(31 * day).begin(),
        ["retry_delay", "2678400s", "0 to 30 days"],
    );
}

#[tokio::test]
async fn option_that_no_server_takes_is_named_to_tasks() {
    let client = aio::Client::open("redis://127.0.0.1:1").unwrap();
    let lease = client.lock("a").lease(Duration::ZERO).acquire().await;
    assert_names(lease, ["lease", "0ns", "1 ms to 30 days"]);
    assert_names(
        client.group("c").expect(0).await,
        ["jobs", "0", "1 to 1000000"],
    );
}

/// Sums of times overflowed, and each request panicked.
#[tokio::test]
async fn times_without_end_are_taken() {
    let server = Server::start();
    let sync = Client::open(server.url()).unwrap();
    let tasks = aio::Client::open(server.url()).unwrap();
    let (longest, wait) = (Duration::MAX, 2 * SECOND);
    let sync = sync.with_response_timeout(longest).with_retry_for(longest);
    let tasks = tasks.with_response_timeout(longest).with_retry_for(longest);
    let lock = sync.lock("jobs").max_hold(longest);
    let hold = lock.acquire_for(longest).unwrap();
    assert!(lock.acquire_for(wait).is_err());
    hold.release().unwrap();
    let lock = tasks.lock("jobs").max_hold(longest);
    let hold = lock.acquire_for(longest).await.unwrap();
    assert!(lock.acquire_for(wait).await.is_err());
    hold.release().await.unwrap();
}

fn owners(server: &Server, key: &str) -> Vec<Option<String>> {
    let client = Client::open(server.url()).unwrap();
    let Err(Error::NotAcquired { holders, .. }) = client.lock(key).try_acquire() else {
        panic!("nobody holds");
    };
    holders.into_iter().map(|holder| holder.owner).collect()
}

#[tokio::test]
async fn holder_is_named_by_user_host_and_process_unless_it_says_otherwise() {
    let server = Server::start();
    let sync = Client::open(server.url()).unwrap();
    let tasks = aio::Client::open(server.url()).unwrap();
    let _own = sync.lock("a").acquire().unwrap();
    let _task = tasks.lock("b").acquire().await.unwrap();
    for key in ["a", "b"] {
        let owner = owners(&server, key).pop().unwrap().unwrap();
        let (user, rest) = owner.split_once('@').expect("user@host:pid");
        let (host, process) = rest.rsplit_once(':').expect("user@host:pid");
        assert!(!user.is_empty() && !host.is_empty(), "{owner}");
        assert_eq!(process, std::process::id().to_string());
    }
    let _named = sync.lock("c").owner("web-1").acquire().unwrap();
    let _nameless = sync.lock("d").owner("").acquire().unwrap();
    assert_eq!(owners(&server, "c"), [Some("web-1".to_owned())]);
    assert_eq!(owners(&server, "d"), [None]);
}
