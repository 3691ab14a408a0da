//! What the stories of the module share, beside the servers, clusters, sentinels and clients of `testkit/`, which are
//! re-exported here.
//!
//! - `families`: how requests, replies and the stream name them;
//! - `stream`, `packed`, `data_files`: read what servers replicate and write to files;
//! - `steps`, `fixtures`, `scripts`: what many tests do;
//! - `footprint`: what a server has taken from its machine;
//! - `redis_cli`: shows replies as it does, and runs it;
//! - `documents`: what the documents tell users to type;
//! - `steady`: runs a test again when the machine stood still;
//! - `victim`: a test process that a test kills;
//! - `harness_works`, `hosts_work`: tests of the testkit.
//!
//! Deliberately absent: fixed sleeps. Only `families`, `steps`, `fixtures` and `packed` know dsync's commands and changes;
//! tests write the commands out.

pub(crate) mod data_files;
mod documents;
mod families;
pub(crate) mod fixtures;
mod footprint;
mod harness_works;
mod hosts_work;
mod packed;
mod redis_cli;
mod scripts;
mod steady;
pub(crate) mod steps;
mod stream;
mod victim;

pub use documents::{Typed, acl_users, blocks, document, typed_lines};
pub use dsync_testkit::{
    Argument, Builder, Client, Closed, Cluster, ClusterBuilder, Disk, Flavour, HeldMigration, Host,
    Move, Network, Product, Reply, Router, Sentinels, Server, WallClock, call, eventually,
    module_path, parse_reply, send,
};
pub use families::{Family, InCommands};
pub use footprint::Footprint;
pub use packed::{STREAM, packed, sealed};
pub use redis_cli::{shell_of, shown};
pub use scripts::busy_for;
pub use steady::steadily;
pub use stream::{ReplicationStream, words};
pub use victim::{Victim, name_of_test, report_and_wait, victims_report};
