//! Writes replies, and counts how many values a command still owes.
//!
//! A command owes one reply; an array of three owes three more. If a handler stops early, because of a panic or a
//! mistake, the missing values are written here, so that the connection stays in step with the protocol.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use super::api::required;
use super::context::Ctx;
use super::log::c_string;

/// How many values the running command or answer still owes. Used only under the server's global lock.
static OWED: AtomicI64 = AtomicI64::new(0);
/// 1 if the running command or answer has written anything, otherwise 0.
static BEGUN: AtomicI64 = AtomicI64::new(0);

/// Counts one value as written; an array or a map owes its elements in turn.
fn count_value(elements: i64) {
    OWED.store(OWED.load(Relaxed) - 1 + elements, Relaxed);
    BEGUN.store(1, Relaxed);
}

/// The values that one request owes. Keeps the numbers of the request further up the stack, if one called this one by
/// RM_Call.
pub(super) struct OwedReply {
    outer: (i64, i64),
}

impl OwedReply {
    pub(super) fn begin() -> Self {
        let outer = (OWED.load(Relaxed), BEGUN.load(Relaxed));
        OWED.store(1, Relaxed);
        BEGUN.store(0, Relaxed);
        OwedReply { outer }
    }

    /// Notes that the reply comes later, when the parked client is answered.
    pub(super) fn postpone() {
        OWED.store(0, Relaxed);
    }

    /// Writes what is missing: an error if nothing was written yet, or nulls for the missing elements of a reply.
    pub(super) fn complete(self, ctx: Ctx) {
        if OWED.load(Relaxed) > 0 && BEGUN.load(Relaxed) == 0 {
            ctx.error("ERR internal error, see the server's log");
        }
        while OWED.load(Relaxed) > 0 {
            ctx.null();
        }
        OWED.store(self.outer.0, Relaxed);
        BEGUN.store(self.outer.1, Relaxed);
    }
}

impl Ctx<'_> {
    pub(crate) fn null(self) {
        count_value(0);
        // SAFETY: the context is live, as in every call below, and the functions RM_ReplyWith… copy what they get.
        unsafe { required!(RedisModule_ReplyWithNull)(self.raw()) };
    }

    pub(crate) fn integer(self, value: i64) {
        count_value(0);
        // SAFETY: as for `null`.
        unsafe { required!(RedisModule_ReplyWithLongLong)(self.raw(), value) };
    }

    pub(crate) fn bulk(self, bytes: &[u8]) {
        count_value(0);
        // SAFETY: as for `null`; pointer and length are those of one slice.
        unsafe {
            required!(RedisModule_ReplyWithStringBuffer)(
                self.raw(),
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        };
    }

    /// Writes a status line such as `OK`. The text must not contain CR or LF.
    pub(crate) fn simple(self, text: &'static CStr) {
        count_value(0);
        // SAFETY: as for `null`.
        unsafe { required!(RedisModule_ReplyWithSimpleString)(self.raw(), text.as_ptr()) };
    }

    /// Begins an array; `len` values must follow.
    pub(crate) fn array(self, len: usize) {
        count_value(len as i64);
        // SAFETY: as for `null`; `OwedReply::complete` makes sure that `len` values follow.
        unsafe { required!(RedisModule_ReplyWithArray)(self.raw(), len as i64) };
    }

    /// Begins a map; `len` pairs must follow. In RESP2 it is a flat array.
    pub(crate) fn map(self, len: usize) {
        count_value(2 * len as i64);
        // SAFETY: as for `array`.
        unsafe { required!(RedisModule_ReplyWithMap)(self.raw(), len as i64) };
    }

    /// Writes an error: its code, a space and a sentence. Control characters become spaces, because a line break would
    /// end the reply.
    pub(crate) fn error(self, text: &str) {
        count_value(0);
        let line = c_string(&one_line(text));
        // SAFETY: as for `null`.
        unsafe { required!(RedisModule_ReplyWithError)(self.raw(), line.as_ptr()) };
    }

    pub(crate) fn error_wrong_type(self) {
        self.error("WRONGTYPE Operation against a key holding the wrong kind of value");
    }
}

fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn error_text_stays_on_one_line() {
        assert_eq!(one_line("ERR a\r\nb\0c\td"), "ERR a  b c d");
    }
}
