//! Writes into the server's log.

use std::ffi::{CStr, CString};

use super::api::optional;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    Debug,
    Notice,
    Warning,
}

impl Level {
    pub(super) fn name(self) -> &'static CStr {
        match self {
            Level::Debug => c"debug",
            Level::Notice => c"notice",
            Level::Warning => c"warning",
        }
    }
}

/// Writes a line into the server's log. Can be called on any thread.
pub(crate) fn log(level: Level, text: &str) {
    let Some(write) = optional!(RedisModule_Log) else {
        return;
    };
    let text = c_string(text);
    // SAFETY: RM_Log accepts NULL for the context, is thread-safe, and gets one C string for the one `%s` of its
    // format.
    unsafe {
        write(
            std::ptr::null_mut(),
            level.name().as_ptr(),
            c"%s".as_ptr(),
            text.as_ptr(),
        )
    }
}

/// The text as a C string. NULs become spaces, because C would read only up to the first of them.
pub(super) fn c_string(text: &str) -> CString {
    let bytes: Vec<u8> = text
        .bytes()
        .map(|b| if b == 0 { b' ' } else { b })
        .collect();
    CString::new(bytes).unwrap_or_default()
}
