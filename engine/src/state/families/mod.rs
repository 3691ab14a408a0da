//! The rules of each family: which requests its state admits, and what it keeps besides its holds.

pub(crate) mod group;
pub(crate) mod lock;
pub mod once;
pub(crate) mod policy;
pub(crate) mod semaphore;
