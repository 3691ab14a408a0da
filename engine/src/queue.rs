//! Who waits: places, the queue of one key, and all queues.

#[cfg(debug_assertions)]
mod invariants;
pub mod kept;
#[cfg(test)]
mod lanes;
pub mod place;
pub mod queues;
pub mod sweep;
pub mod wait_queue;
