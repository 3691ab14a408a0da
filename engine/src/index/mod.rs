//! How states are found: by id, by deadline and by database.

pub mod deadlines;
pub mod leftovers;
pub mod openings;
pub mod slab;
pub mod spaces;
pub mod strays;
pub mod used_slots;

#[cfg(test)]
pub(crate) mod tests;
