//! Who waits: the queue of one key, all queues, and which of them must be visited.

pub mod due;
pub mod entry;
pub mod queues;
pub mod wait_queue;
