//! The commands that are compared, as a client sends them.
//!
//! A lock is taken without TOKEN, as the server makes one; theirs has a token of the client's, for SET makes none.
//! Leases are long, so that none ends while it is measured.

use crate::load::PairOf;
use crate::words::{key, token};
use dsync_testkit::resp::{Frame, write_request};

/// A lease in milliseconds that no measurement outlives.
pub const LEASE: &[u8] = b"3600000";

pub fn acquire(number: u64, out: &mut Vec<u8>) {
    write_request(out, &[b"DLOCK.ACQUIRE", &key(number), b"PX", LEASE]);
}

pub fn set_nx_px(number: u64, out: &mut Vec<u8>) {
    write_request(
        out,
        &[b"SET", &key(number), &token(number), b"NX", b"PX", LEASE],
    );
}

pub fn acquire_with_token(number: u64, out: &mut Vec<u8>) {
    write_request(
        out,
        &[
            b"DLOCK.ACQUIRE",
            &key(number),
            b"PX",
            LEASE,
            b"TOKEN",
            &token(number),
        ],
    );
}

/// The token in the reply of a grant.
pub fn granted<'a>(reply: &Frame<'a>) -> Option<&'a [u8]> {
    match reply.array()? {
        [Frame::Bulk(token), Frame::Int(fence)] if *fence > 0 => Some(token),
        _ => None,
    }
}

pub fn is_granted(reply: &Frame<'_>) -> bool {
    granted(reply).is_some()
}

pub fn is_ok(reply: &Frame<'_>) -> bool {
    reply.is_ok()
}

pub fn is_one(reply: &Frame<'_>) -> bool {
    *reply == Frame::Int(1)
}

pub fn is_nil(reply: &Frame<'_>) -> bool {
    *reply == Frame::Nil
}

pub fn is_waiting(reply: &Frame<'_>) -> bool {
    matches!(
        reply.array(),
        Some([Frame::Bulk(b"WAITING"), Frame::Int(1..), Frame::Bulk(_)])
    )
}

pub fn is_set<'a>(reply: &Frame<'a>) -> Option<&'a [u8]> {
    reply.is_ok().then_some(&[])
}

fn is_running<'a>(reply: &Frame<'a>) -> Option<&'a [u8]> {
    match reply.array()? {
        [
            Frame::Bulk(b"RUN"),
            Frame::Bulk(token),
            Frame::Int(_),
            Frame::Int(1),
        ] => Some(token),
        _ => None,
    }
}

pub fn is_run(reply: &Frame<'_>) -> bool {
    is_running(reply).is_some()
}

pub const LOCK: PairOf = PairOf {
    first: acquire,
    token: granted,
    second: |number, token, out| write_request(out, &[b"DLOCK.RELEASE", &key(number), token]),
};

pub const SEMAPHORE: PairOf = PairOf {
    first: |number, out| {
        write_request(
            out,
            &[b"DSEM.ACQUIRE", &key(number), b"LIMIT", b"10", b"PX", LEASE],
        );
    },
    token: granted,
    second: |number, token, out| write_request(out, &[b"DSEM.RELEASE", &key(number), token]),
};

pub const GROUP: PairOf = PairOf {
    first: |number, out| write_request(out, &[b"DWG.ADD", &key(number), b"PX", LEASE]),
    token: granted,
    second: |number, token, out| write_request(out, &[b"DWG.DONE", &key(number), token]),
};

pub const ONCE: PairOf = PairOf {
    first: |number, out| write_request(out, &[b"DONCE.BEGIN", &key(number), b"PX", LEASE]),
    token: is_running,
    second: |number, token, out| write_request(out, &[b"DONCE.DONE", &key(number), token]),
};

/// Deletes the key if it has the token: what every Redis lock library sends to release.
pub const COMPARE_AND_DELETE: &[u8] =
    br#"if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end"#;
/// The script's name, as SCRIPT LOAD answers it.
pub const COMPARE_AND_DELETE_SHA: &[u8] = b"b70c2384248f88e6b75b9f89241a180f856ad852";

pub const SET_AND_SCRIPT: PairOf = PairOf {
    first: set_nx_px,
    token: is_set,
    second: |number, _, out| {
        write_request(
            out,
            &[
                b"EVALSHA",
                COMPARE_AND_DELETE_SHA,
                b"1",
                &key(number),
                &token(number),
            ],
        );
    },
};

pub const SET_AND_DELIFEQ: PairOf = PairOf {
    first: set_nx_px,
    token: is_set,
    second: |number, _, out| write_request(out, &[b"DELIFEQ", &key(number), &token(number)]),
};

pub const SET_AND_DEL: PairOf = PairOf {
    first: set_nx_px,
    token: is_set,
    second: |number, _, out| write_request(out, &[b"DEL", &key(number)]),
};
