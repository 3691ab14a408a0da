//! A setting of the server's own, as CONFIG GET tells it. Not for a hot path.

use super::call;
use super::context::Ctx;

/// The value of the setting with this name; `None` where there is no such setting.
///
/// # Panics
/// While a key is open: other modules may filter the call.
pub(crate) fn get(ctx: Ctx<'_>, name: &str) -> Option<Vec<u8>> {
    call::ask(ctx, c"CONFIG", &[b"GET", name.as_bytes()])?.text_at(1)
}
