//! This server as a node of a cluster: which keys it decides about, and what the nodes tell each other.

mod bus;
pub(crate) mod node;
pub(crate) mod ownership;
mod slots;
