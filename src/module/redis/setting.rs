//! Reads a setting of the server's own by CONFIG GET. Too slow for every request.

use super::call;
use super::context::Ctx;

/// The value of the setting with this name; `None` if there is no such setting.
///
/// # Panics
/// If a key is open, because other modules may filter the call and change the key.
pub(crate) fn get(ctx: Ctx<'_>, name: &str) -> Option<Vec<u8>> {
    call::ask(ctx, c"CONFIG", &[b"GET", name.as_bytes()])?.text_at(1)
}
