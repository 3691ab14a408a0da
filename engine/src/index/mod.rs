//! Where states are found: by number, by deadline and by database.

pub mod deadlines;
pub mod leftovers;
pub mod slab;
pub mod slot_set;
pub mod spaces;
