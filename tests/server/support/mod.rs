//! The harness: starts, stops and kills real servers, connects to them, reads their replication streams, and waits for
//! conditions.
//!
//! Each test has its own server in its own directory and on its own port, so tests run in parallel. No server outlives
//! the test process, however that ends. A failing test prints its servers' logs. Every wait has a deadline, and its
//! failure names what did not happen.
//!
//! - `server`, `cluster`, `sentinels`, `hosts`: start servers, alone or together, and cut them off from each other;
//! - `client`, `router`, `resp`, `reply`, `socket`: talk to them;
//! - `redis_cli`: shows replies as it does;
//! - `stream`, `packed`, `data_files`: read what they replicate and write to files;
//! - `steps`, `eventually`, `fixtures`, `scripts`, `slot_move`: what many tests do;
//! - `documents`: what the documents tell users to type;
//! - `steady`: runs a test again when the machine stood still;
//! - `process`, `ports`, `victim`: processes, also test processes that a test kills;
//! - `harness_works`, `hosts_work`: the harness's own tests.
//!
//! Deliberately absent: fixed sleeps. Only `steps`, `fixtures` and `packed` know dsync's commands and changes; tests
//! write the commands out.

#![allow(
    dead_code,
    unused_imports,
    reason = "no test may use some parts for a while"
)]

mod client;
mod cluster;
pub(crate) mod data_files;
mod documents;
mod eventually;
pub(crate) mod fixtures;
mod flavour;
mod harness_works;
mod hosts;
mod hosts_work;
mod nodes_view;
mod packed;
mod ports;
mod process;
mod redis_cli;
mod reply;
mod resp;
mod router;
mod scripts;
mod sentinels;
mod server;
mod slot_move;
mod socket;
mod steady;
pub(crate) mod steps;
mod stream;
mod victim;

pub use client::{Argument, Client, Closed};
pub(crate) use client::{call, send};
pub use cluster::{Cluster, ClusterBuilder};
pub use documents::{Typed, acl_users, blocks, document, typed_lines};
pub use eventually::{blocked_clients, digest, eventually, wait_for_blocked};
pub use flavour::{Flavour, Product};
pub use hosts::{Host, Network};
pub use packed::{STREAM, packed, sealed};
pub use redis_cli::shown;
pub use reply::Reply;
pub use resp::parse as parse_reply;
pub use router::Router;
pub use scripts::busy_for;
pub use sentinels::Sentinels;
pub use server::{Builder, Server, module_path};
pub use slot_move::Move;
pub use steady::steadily;
pub use stream::{ReplicationStream, words};
pub use victim::{Victim, name_of_test, report_and_wait, victims_report};
