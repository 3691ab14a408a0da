//! Stories told to real servers, one file a story.
//!
//! `DSYNC_TEST_SERVER` names the server (`redis-server` from PATH otherwise), `DSYNC_TEST_MODULE` the
//! module (`target/release/libdsync.so` otherwise, as `cargo build --release` leaves it). `make test`
//! runs this binary once for each server it can get.
//!
//! Stories of partitions make network namespaces, as root or in user namespaces; where that is not to be
//! had, `DSYNC_TEST_NO_NAMESPACES=1` leaves them out.

mod harness;

mod atomic_migration;
mod bad_payloads;
mod cluster;
mod cluster_down;
mod cluster_failover;
mod cluster_fences;
mod cluster_migration;
mod cluster_migration_load;
mod cluster_migration_replicas;
mod cluster_steps;
mod command_docs;
mod confirmed;
mod contended;
mod data_files;
mod dumps;
mod ephemeral;
mod events;
mod examples;
mod failover;
mod first_listener;
mod fixtures;
mod fuzz;
mod golden;
mod grammar;
mod group;
mod harness_works;
mod histories_persisted;
mod histories_replicated;
mod history;
mod hosts_work;
mod idle;
mod info;
mod journal;
mod kills;
mod lease_clock;
mod leaving;
mod lock;
mod metrics;
mod min_replicas;
mod module_load;
mod no_blocking;
mod noise;
mod once;
mod once_scenarios;
mod paused;
mod persistence;
mod pitfalls;
mod removal;
mod replicas;
mod replication_effects;
mod replication_stream;
mod restarts;
mod retention;
mod retries;
mod scenarios;
mod secrets;
mod semaphore;
mod sentinel;
mod settings;
mod split_brain;
mod steps;
mod turns;
mod withdrawal;
mod wrong_clock;
