//! The driver of dsync-client for Rust: `driver threads`, `driver tasks own`, `driver tasks shared`. Its orders
//! are those of the README.

mod order;
mod tasks;
mod threads;

use std::env::args;

fn main() {
    let ring = rustls::crypto::ring::default_provider();
    ring.install_default().expect("the first provider");
    let words: Vec<String> = args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["threads"] => threads::main(),
        ["tasks", "own"] => tasks::main(dsync_client::aio::Waits::OwnConnection),
        ["tasks", "shared"] => tasks::main(dsync_client::aio::Waits::SharedConnection),
        _ => panic!("driver threads | tasks own | tasks shared"),
    }
}
