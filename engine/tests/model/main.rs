//! The engine against a naive model: named cases, every small case, and long random histories.
//!
//! What the tests are built of:
//! - `model`: what the contract says, computed as plainly as possible;
//! - `laws`: what must hold whatever the model says (exclusion, order, fences, one answer for each request);
//! - `server`: an engine with a keyspace around it, called the way the module calls it;
//! - `world`: a primary, its replica and the model, and how they are compared;
//! - `steps`: what can happen, each step whole; `ask`: a request for a hold; `chooser`: the kinds of random histories;
//! - `fixture`: short forms for the tests of named cases.
//!
//! The tests:
//! - named cases: `retries`, `order`, `places`, `kept`, `kept_elsewhere`, `ends`, `limits`, `indexes`, `rests`, `pauses`,
//!   `rounds`, `once`, `delays`, `idle`, `keyspace`, `strays`, `roles`, `bounds`, `restored`, `operators`, `overview`,
//!   `freed`;
//! - several servers: `cluster`, `follow`, `paces`, `fence_worlds`; large numbers: `long_queues`, `slices`; what keys
//!   take: `memory`;
//! - `exhaustive`: all sequences of a few steps; `interleavings`: all that three clients can bring about in more steps;
//!   `history`: random histories.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unreachable,
    clippy::unwrap_used,
    reason = "a test that fails panics and says why"
)]
#![expect(
    clippy::disallowed_macros,
    reason = "the steps of a failing history are printed"
)]

mod ask;
mod bounds;
mod chooser;
mod cluster;
mod delays;
mod ends;
mod exhaustive;
mod fence_worlds;
mod fixture;
mod follow;
mod freed;
mod history;
mod idle;
mod indexes;
mod interleavings;
mod kept;
mod kept_elsewhere;
mod keyspace;
mod lanes;
mod laws;
mod limits;
mod long_queues;
mod memory;
mod model;
mod once;
mod operators;
mod order;
mod overview;
mod paces;
mod pauses;
mod places;
mod restored;
mod rests;
mod retries;
mod roles;
mod rounds;
mod server;
mod slices;
mod steps;
mod strays;
mod world;
