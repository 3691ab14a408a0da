//! What clients, time and other servers ask of the engine. Each file adds calls to [`crate::Engine`].

mod acquire;
pub(crate) mod background;
mod departures;
mod expiry;
mod finish;
pub mod follow;
mod group;
mod keyspace;
mod once;
mod pause;
mod places;
pub mod places_elsewhere;
pub(crate) mod put_off;
pub(crate) mod role;
mod serve;
pub mod tasks;
pub mod unfit;
