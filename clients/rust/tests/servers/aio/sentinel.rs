//! A failover that Sentinel carries out.

use dsync_client::Error;
use dsync_client::aio::Client;
use tokio::time::timeout;

use crate::support::{LONG, SECOND, Sentinel, primary_of, refusing_sentinel};

#[tokio::test(flavor = "multi_thread")]
async fn hold_and_waiters_outlive_a_failover() {
    let sentinel = Sentinel::start();
    let [own, shared] =
        super::queue::WAITS.map(|waits| Client::new(sentinel.primary()).with_waits(waits));
    let hold = own.lock("jobs").lease(30 * SECOND).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for (count, client) in (1..).zip([own, shared]) {
        let lock = client.lock("jobs").lease(30 * SECOND);
        waiting.push(tokio::spawn(async move {
            let hold = lock.acquire_for(2 * LONG).await.unwrap();
            let fence = hold.fence();
            hold.release().await.unwrap();
            fence
        }));
        // The place has reached the replica.
        sentinel.second.wait_for_waiters(count);
    }
    sentinel.fail_over();
    assert!(timeout(12 * SECOND, hold.lost()).await.is_err());
    let fence = hold.fence();
    hold.release().await.unwrap();
    // In any order: the old primary went on for longer than the new one kept the places.
    for task in waiting {
        assert!(task.await.unwrap() > fence);
    }
    assert_eq!(sentinel.second.info("dsync", "dsync_holds"), "0");
}

#[tokio::test]
async fn refusals_of_sentinels_are_told_with_their_address() {
    let refusing = refusing_sentinel();
    let nobody = "redis://127.0.0.1:1".to_owned();
    for (others, is_final) in [(Vec::new(), true), (vec![nobody], false)] {
        let primary = primary_of([refusing.url()].into_iter().chain(others));
        let client = Client::new(primary).with_retry_for(SECOND / 2);
        let error = client.lock("jobs").acquire().await.unwrap_err();
        let said = format!("the Sentinel at 127.0.0.1:{}: ", refusing.port());
        let shown = error.to_string();
        assert!(shown.contains(&said) && shown.contains("NOAUTH"), "{shown}");
        assert_eq!(error.is_unreachable(), !is_final);
        let code = matches!(&error, Error::Redis(it) if it.code() == Some("NOAUTH"));
        assert_eq!(code, is_final);
    }
}
