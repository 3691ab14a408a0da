//! A primary and its replicas: the stream, changes of role, cuts, and what a confirmed grant is worth.

mod confirmed;
mod failover_command;
mod first_listener;
mod histories_replicated;
mod min_replicas;
mod paused;
mod replicas;
mod replication_effects;
mod replication_stream;
mod role_change;
mod sentinel;
mod split_brain;
