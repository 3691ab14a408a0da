//! A value of the keyspace: a number in the place of a pointer, which nothing follows.

use std::ffi::c_void;
use std::num::NonZeroU32;

/// The number in the place of a value's pointer.
pub(super) fn id_of(value: *const c_void) -> Option<NonZeroU32> {
    u32::try_from(value.addr()).ok().and_then(NonZeroU32::new)
}

pub(super) fn pointer_of(id: NonZeroU32) -> *mut c_void {
    std::ptr::without_provenance_mut(id.get() as usize)
}
