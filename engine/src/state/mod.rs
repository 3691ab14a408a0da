//! The state of one key.
//!
//! What all servers share of a state changes by [`Body::apply`], [`Body::apply_all`] and [`Body::load`] alone. What one
//! server knows alone changes by the functions in `local`. The compiler checks that: every other function that changes a
//! hold set or the value of a family is private to this module.

mod apply;
mod as_changes;
mod body;
pub mod families;
mod hold_set;
mod in_lanes;
mod indexes;
mod local;
mod options;
mod undo;

pub use crate::change::Misfit;
pub use body::{Body, MAX_PAUSE_MS, State};
pub(crate) use body::{Closing, Part, Value};
pub use hold_set::HoldSet;
