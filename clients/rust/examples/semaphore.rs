//! Makes twenty calls, at most five at a time among all processes that run this, on one connection:
//! `cargo run --example semaphore -- redis://127.0.0.1 api`

#![allow(clippy::print_stdout, reason = "an example shows its results")]

use std::env::args;
use std::error::Error;
use std::time::Duration;

use dsync_client::aio::{Client, Semaphore, Waits};

async fn call_api(number: u32, api: Semaphore) -> dsync_client::Result<()> {
    let hold = api.acquire_for(Duration::from_secs(60)).await?;
    // Dropped at its next await when the hold is lost.
    let answer = hold.run(async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        number * number
    });
    println!("call {number}: {}", answer.await?);
    hold.release().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let usage = "semaphore URL KEY";
    let url = args().nth(1).ok_or(usage)?;
    let key = args().nth(2).ok_or(usage)?;

    let client = Client::open(url)?.with_waits(Waits::SharedConnection);
    let api = client
        .semaphore(key)
        .limit(5)
        .lease(Duration::from_secs(10));
    let calls: Vec<_> = (1..=20)
        .map(|number| tokio::spawn(call_api(number, api.clone())))
        .collect();
    for call in calls {
        call.await??;
    }
    Ok(())
}
