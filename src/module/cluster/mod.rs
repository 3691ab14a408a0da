//! This server as a node of a cluster: which keys it decides about, and the messages that the nodes send each other.

mod bus;
mod levels;
pub(crate) mod node;
mod own_line;
pub(crate) mod ownership;
mod refreshes;
mod slot_bits;
mod slot_orders;
mod slots;
