//! Everything a story needs to talk to a real server: start it, hurt it, connect to it, watch what it
//! replicates, and wait for what it should do.
//!
//! Guaranteed to every story: its own server in its own directory and on its own port, so that stories
//! run in parallel; no server outlives the test process, however that ends; a failing test shows its
//! servers' logs; every wait has a deadline and names what it waited for.
//!
//! Deliberately absent: fixed sleeps, and anything that knows dsync's commands beyond the shape of a
//! grant. The stories speak the commands themselves.

// A tool box: a method that no story happens to use today is not a mistake.
#![allow(dead_code, unused_imports)]

mod client;
mod cluster;
pub(crate) mod data_files;
pub(crate) mod fixtures;
mod flavour;
mod harness_works;
mod hosts;
mod hosts_work;
mod nodes_view;
mod packed;
mod ports;
mod process;
mod replication;
mod reply;
mod resp;
mod router;
mod scripts;
mod sentinel;
mod server;
mod slot_move;
mod socket;
pub(crate) mod steps;
mod victim;
mod waiting;

pub use client::{Argument, Client, Closed};
pub(crate) use client::{call, send};
pub use cluster::{Cluster, ClusterBuilder};
pub use flavour::{Flavour, Product};
pub use hosts::{Host, Network};
pub use packed::{STREAM, packed, sealed};
pub use replication::{ReplicationStream, words};
pub use reply::Reply;
pub use resp::parse as parse_reply;
pub use router::Router;
pub use scripts::busy_for;
pub use sentinel::Sentinels;
pub use server::{Builder, Server, module_path};
pub use slot_move::Move;
pub use victim::{Victim, name_of_test, report_and_wait, victims_report};
pub use waiting::{blocked_clients, digest, eventually, wait_for_blocked};
