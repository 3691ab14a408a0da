//! What is particular to each family: whom its state admits, and what it keeps beside its holds.

pub(crate) mod group;
pub(crate) mod lock;
pub mod once;
pub(crate) mod semaphore;
