//! The state of one key.
//!
//! What all servers share of a state changes by [`Body::apply`] and [`Body::apply_all`] alone, and a saved one is built
//! by [`Loading`]. What one server knows alone changes through [`Body::local`]. The compiler checks that: every other
//! function that changes a hold set or the value of a family is private to this module.

mod apply;
mod body;
pub mod families;
mod hold_set;
mod load;
mod local;
mod undo;

pub use crate::change::Misfit;
pub(crate) use body::Value;
pub use body::{Body, State};
pub use hold_set::HoldSet;
pub use load::Loading;
