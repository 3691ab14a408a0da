//! Replies, and the count of how many are still owed.
//!
//! A command owes one reply; an array of three owes three more. When a handler stops early, by a
//! panic or by mistake, the debt is settled here, so that the connection never loses its place in
//! the protocol.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use super::api::required;
use super::context::Ctx;
use super::log::c_string;

/// How many values the running command or answer still owes. Only touched under the server's global
/// lock.
static OWED: AtomicI64 = AtomicI64::new(0);
/// Whether it has written anything yet.
static BEGUN: AtomicI64 = AtomicI64::new(0);

fn pay(and_owe: i64) {
    OWED.store(OWED.load(Relaxed) - 1 + and_owe, Relaxed);
    BEGUN.store(1, Relaxed);
}

/// The debt of one request; those of requests further up the stack (RM_Call) are set aside.
pub(super) struct Debt {
    outer: (i64, i64),
}

impl Debt {
    pub(super) fn one() -> Self {
        let outer = (OWED.load(Relaxed), BEGUN.load(Relaxed));
        OWED.store(1, Relaxed);
        BEGUN.store(0, Relaxed);
        Debt { outer }
    }

    /// The reply comes later, from a blocked client's answer.
    pub(super) fn postpone() {
        OWED.store(0, Relaxed);
    }

    /// Pays what is left: an error where nothing was said yet, nulls for the missing elements of a
    /// begun reply.
    pub(super) fn pay(self, ctx: Ctx) {
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
        pay(0);
        // SAFETY: a live context, as for every call below; RM_ReplyWith* copy what they are given.
        unsafe { required!(RedisModule_ReplyWithNull)(self.raw()) };
    }

    pub(crate) fn integer(self, value: i64) {
        pay(0);
        // SAFETY: as for `null`.
        unsafe { required!(RedisModule_ReplyWithLongLong)(self.raw(), value) };
    }

    pub(crate) fn bulk(self, bytes: &[u8]) {
        pay(0);
        // SAFETY: as for `null`; pointer and length are one slice's.
        unsafe {
            required!(RedisModule_ReplyWithStringBuffer)(
                self.raw(),
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        };
    }

    /// A status line such as `OK`; the text is ours, without CR or LF.
    pub(crate) fn simple(self, text: &'static CStr) {
        pay(0);
        // SAFETY: as for `null`.
        unsafe { required!(RedisModule_ReplyWithSimpleString)(self.raw(), text.as_ptr()) };
    }

    /// `len` values follow.
    pub(crate) fn array(self, len: usize) {
        pay(len as i64);
        // SAFETY: as for `null`; the debt makes sure that `len` values follow.
        unsafe { required!(RedisModule_ReplyWithArray)(self.raw(), len as i64) };
    }

    /// `len` pairs follow: a map in RESP3, a flat array in RESP2.
    pub(crate) fn map(self, len: usize) {
        pay(2 * len as i64);
        // SAFETY: as for `array`.
        unsafe { required!(RedisModule_ReplyWithMap)(self.raw(), len as i64) };
    }

    /// An error: its code, a space, a sentence. Control characters become spaces, since a line
    /// break would end the reply.
    pub(crate) fn error(self, text: &str) {
        pay(0);
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
    fn an_error_stays_on_its_line() {
        assert_eq!(one_line("ERR a\r\nb\0c\td"), "ERR a  b c d");
    }
}
