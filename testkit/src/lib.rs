//! Real servers for tests and the benchmark: started, stopped, killed, cut off, asked, and read byte by byte.
//!
//! Each server has its own directory and port, so tests run in parallel. No server outlives the process that started
//! it, however that ends. A server whose test fails prints its log. Every wait has a deadline, and its failure names
//! what did not happen.
//!
//! - `builder`, `program`, `server`, `observe`: start a server, and ask it about itself;
//! - `cluster_builder`, `cluster`, `nodes_view`, `slot_move`, `sentinels`: start several together;
//! - `hosts`, `proxy`: cut them off from each other, or from their clients;
//! - `disk`, `wall_clock`, `shim`: have them lose power, or set their clock;
//! - `client`, `waiting`, `router`, `argument`, `socket`: talk to them;
//! - `resp`, `inbox`, `reply`: the protocol, the bytes that have arrived, and a reply with methods to read it;
//! - `process`, `ports`, `folder`, `eventually`: what all of these need.
//!
//! Deliberately absent: fixed sleeps, and dsync's commands; of its INFO only the number of waiters is known. What one
//! suite alone needs is in that suite.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that fails panics and says why"
)]

mod argument;
mod builder;
mod client;
mod cluster;
mod cluster_builder;
mod disk;
mod eventually;
mod flavour;
mod folder;
mod hosts;
mod inbox;
mod nodes_view;
mod observe;
mod ports;
pub mod process;
mod program;
mod proxy;
mod reply;
pub mod resp;
mod router;
mod sentinels;
mod server;
mod shim;
mod slot_migration;
mod slot_move;
mod socket;
mod waiting;
mod wall_clock;

pub use argument::Argument;
pub use builder::Builder;
pub use client::{Client, Closed};
pub use cluster::Cluster;
pub use cluster_builder::ClusterBuilder;
pub use disk::Disk;
pub use eventually::{SOON, eventually};
pub use flavour::{Flavour, Product};
pub use folder::Folder;
pub use hosts::{Host, Network};
pub use inbox::Inbox;
pub use ports::next_port;
pub use program::module_path;
pub use proxy::Proxy;
pub use reply::{Reply, parse_reply};
pub use router::Router;
pub use sentinels::Sentinels;
pub use server::Server;
pub use slot_migration::HeldMigration;
pub use slot_move::Move;
pub use socket::Socket;
pub use wall_clock::WallClock;
