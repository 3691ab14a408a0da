//! A primary and its replicas: the replication stream, changes of role, partitions, and confirmed grants.

mod confirmed;
mod failover_command;
mod family_effects;
mod first_listener;
mod histories_replicated;
mod indexes_replicated;
mod kept_places_failover;
mod lanes_replicated;
mod min_replicas;
mod passed_on_release;
mod paused;
mod replicas;
mod replication_effects;
mod replication_stream;
mod rests_replicated;
mod rewritten_aof;
pub(crate) mod role_change;
mod sentinel;
mod split_brain;
mod told_first;
pub(crate) mod watched_primary;
mod writable_replica;
