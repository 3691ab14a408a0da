//! Holds a lock for some seconds, and shows what it learns while it waits:
//! `cargo run --example lock -- redis://127.0.0.1 nightly 10`

use std::env::args;
use std::error::Error;
use std::time::{Duration, Instant};

use dsync_client::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "lock URL KEY SECONDS";
    let url = args().nth(1).ok_or(usage)?;
    let key = args().nth(2).ok_or(usage)?;
    let seconds: u64 = args().nth(3).ok_or(usage)?.parse()?;

    let lock = Client::open(url)?
        .lock(key)
        .lease(Duration::from_secs(10))
        .on_progress(|progress| {
            eprintln!("waiting, place {} in the queue", progress.place);
            for holder in &progress.key.holders {
                eprintln!("  held by {holder}");
            }
        });
    let hold = lock.acquire()?;
    eprintln!("held, fence {}", hold.fence());
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        // A step of the work. Before each one: is the lock still ours?
        hold.ensure_held()?;
        std::thread::sleep(Duration::from_millis(200));
    }
    hold.release()?;
    Ok(())
}
