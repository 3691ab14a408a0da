//! Nodes of a cluster: routing, slots that move, failovers and fences.

mod atomic_migration;
mod cluster_steps;
mod failover;
mod fences;
mod fences_of_moves;
mod kept_places;
mod outage;
mod rests;
mod routing;
mod slot_migration;
mod slot_migration_load;
mod slot_migration_replicas;
