//! What clients, time and other servers ask of the engine.
//!
//! Calls on one key are functions of [`Visit`](crate::visit::Visit), and [`Engine::visit`](crate::Engine::visit) closes
//! each visit. From the lowest, which all others use:
//! - `grant`, `end`, `places`: how a hold begins and ends, and how a place joins its queue and leaves it;
//! - `next`: what a queue needs; `serve` does it; `close` settles the key: who is served, what is removed, what is indexed;
//! - `lanes`: which lane of a semaphore is next, and who may pass those who stand aside;
//! - `acquire`, `release`, `group`, `once`: what clients ask for; `look` only reads;
//! - `perform`: what comes due, one task at a time; `timer` says which is next, and does background work;
//! - `follow`: what another server has decided; `kept_elsewhere` the same for kept places; `adopt`: what a file brings,
//!   and `unfit` what is refused of it.
//!
//! The rest concern no key, or many: `keyspace`, `connections`, `turn_away`.

pub mod acquire;
mod adopt;
pub mod close;
mod connections;
mod end;
pub mod follow;
mod grant;
mod group;
pub mod kept_elsewhere;
mod keyspace;
mod lanes;
pub(crate) mod look;
mod next;
mod once;
mod perform;
mod places;
mod release;
mod serve;
mod timer;
mod turn_away;
pub mod unfit;
