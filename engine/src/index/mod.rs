//! How states are found: by id, by deadline and by database.

pub mod deadlines;
pub mod leftovers;
pub mod slab;
pub mod spaces;
pub mod used_slots;

#[cfg(test)]
mod tests;
