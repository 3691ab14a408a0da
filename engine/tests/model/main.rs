//! The engine against a naive model: stories with a name, every small case, and long random histories.
//!
//! - `model`: what the contract says, as plainly as it can be computed;
//! - `laws`: what must hold whatever the model says (exclusion, order, fences, one answer each);
//! - `server`: an engine with a keyspace around it, driven the way the module drives it;
//! - `world`: a primary, its replica and the model, taking the same steps and compared after each;
//! - `teller`: the next step of a random history;
//! - `stories`, `places`, `once`, `crowds`, `elsewhere`, `followed`, `bounds`, `strays`, `turns`, `exhaustive`, `history`:
//!   the tests.

#![expect(
    clippy::disallowed_macros,
    reason = "the steps of a failing history are printed"
)]

mod bounds;
mod crowds;
mod elsewhere;
mod exhaustive;
mod followed;
mod history;
mod laws;
mod model;
mod once;
mod places;
mod server;
mod stories;
mod strays;
mod teller;
mod turns;
mod world;
