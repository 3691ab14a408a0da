//! Who waits: places, the queue of one key, and all queues.

mod in_lanes;
#[cfg(debug_assertions)]
mod invariants;
pub mod kept;
pub mod lanes;
pub mod place;
pub mod queues;
mod room;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod wait_queue;
