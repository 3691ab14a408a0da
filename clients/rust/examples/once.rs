//! Does a piece of work once, however many processes ask for it, and shows its result to all of them:
//! `cargo run --example once -- redis://127.0.0.1 report:7`

#![allow(clippy::print_stdout, reason = "an example shows its results")]

use std::env::args;
use std::error::Error;
use std::time::Duration;

use dsync_client::aio::{Attempt, Client};

async fn make_report(attempt: Attempt) -> Result<String, Box<dyn Error>> {
    eprintln!("attempt {} makes the report", attempt.number);
    // Where it stores the report, it gives the fence along: an older attempt is then refused.
    tokio::time::sleep(Duration::from_secs(3)).await;
    Ok(format!("s3://reports/7-{}.pdf", attempt.fence))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let usage = "once URL KEY";
    let url = args().nth(1).ok_or(usage)?;
    let key = args().nth(2).ok_or(usage)?;

    let once = Client::open(url)?
        .once(key)
        .max_attempts(3)
        .keep(Duration::from_secs(3600))
        .retry_delay(Duration::from_secs(10));
    let report = once.call(make_report).await?;
    println!("{report}");
    Ok(())
}
