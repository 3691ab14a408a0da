//! A leader in Rust: `leader threads|tasks keeps|forgets`. A hold that is dropped is released, so who *forgets* has it
//! still, but looks only at what tells the loss.

use std::env::{args, var};
use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use dsync_client::{Client, Result, aio};
use nix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;

const STEPS: usize = 150;

fn main() {
    let keeps = args().nth(2).as_deref() == Some("keeps");
    if args().nth(1).as_deref() == Some("threads") {
        let client = Client::open(set("DSYNC_URL")).expect("a client");
        loop {
            tell(lead(&client, keeps));
        }
    }
    let client = aio::Client::open(set("DSYNC_URL")).expect("a client");
    Runtime::new().expect("a runtime").block_on(async {
        loop {
            tell(lead_as_a_task(&client, keeps).await);
        }
    })
}

fn lead(client: &Client, keeps: bool) -> Result<()> {
    let hold = client.lock(set("LEADER_KEY")).lease(lease()).acquire()?;
    eprintln!("{hold:?}");
    let told = Arc::new(AtomicBool::new(false));
    let teller = Arc::clone(&told);
    let watches = hold.on_lost(move |loss| {
        teller.store(true, Ordering::SeqCst);
        show(&loss);
    });
    watches.expect("a thread");
    for _ in 0..STEPS {
        let start = now();
        sleep(pause());
        let end = now();
        if told.load(Ordering::SeqCst) || keeps && hold.is_lost() {
            break;
        }
        println!("{} {start} {end}", hold.fence());
    }
    hold.release()
}

async fn lead_as_a_task(client: &aio::Client, keeps: bool) -> Result<()> {
    let lock = client.lock(set("LEADER_KEY")).lease(lease());
    let hold = lock.acquire().await?;
    eprintln!("{hold:?}");
    let work = async {
        for _ in 0..STEPS {
            let start = now();
            tokio::time::sleep(pause()).await;
            let end = now();
            if keeps && hold.is_lost() {
                break;
            }
            println!("{} {start} {end}", hold.fence());
        }
    };
    hold.run(work).await?;
    hold.release().await
}

fn set(name: &str) -> String {
    var(name).expect("what the runner sets")
}

fn lease() -> Duration {
    Duration::from_millis(set("LEADER_LEASE").parse().expect("a lease"))
}

fn now() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock");
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

fn pause() -> Duration {
    Duration::from_micros(2_000 + now().unsigned_abs() % 18_000)
}

fn tell(outcome: Result<()>) {
    if let Err(error) = outcome {
        show(&error);
        sleep(Duration::from_millis(200));
    }
}

fn show(what: &(impl Debug + Display)) {
    eprintln!("{what} {what:?}");
}
