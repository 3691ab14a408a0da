//! The cluster this server is a node of: what it says of itself, and words to the other nodes.
//!
//! The module API tells neither which slots are served here nor which of them migrate, so the server's own CLUSTER
//! command is asked. MONITOR and commandstats show that: ask seldom. Messages go over the cluster's bus, to every node
//! there is a link to, and may be lost.

use std::ffi::c_char;

use redis_module::raw;

use super::api::required;
use super::call;
use super::context::Ctx;
use super::guard::guard;

/// The bus knows modules by names of nine letters, and all others as one: so the number of our messages is
/// an unusual one, and [`PREFIX`] says whose they are.
const MESSAGE_TYPE: u8 = 0xd5;
const PREFIX: &[u8] = b"dsync:";

pub(crate) trait Receiver {
    fn receive(ctx: Ctx<'_>, message: &[u8]);
}

/// From now on what other nodes say is received. Without a cluster there is nobody to listen to.
///
/// Only once the module is loaded for good, for it cannot be taken back: a server that refuses the module
/// keeps the receiver (but Valkey 9.1), and one that is asked to remove it frees the head of its list and
/// goes on using it (RM_RegisterClusterMessageReceiver with NULL, Redis up to 8.0, Valkey up to 9.0).
pub(crate) fn listen<R: Receiver>(ctx: Ctx<'_>) {
    // SAFETY: a live context; the callback is a function of this library.
    unsafe {
        required!(RedisModule_RegisterClusterMessageReceiver)(
            ctx.raw(),
            MESSAGE_TYPE,
            Some(on_message::<R>),
        )
    };
}

/// Says something to all other nodes.
pub(crate) fn send_to_all(ctx: Ctx<'_>, message: &[u8]) {
    let message = [PREFIX, message].concat();
    let Ok(len) = u32::try_from(message.len()) else {
        return;
    };
    // SAFETY: a live context; without a target the server sends to all nodes, and copies the bytes. It
    // refuses where there is no cluster.
    unsafe {
        required!(RedisModule_SendClusterMessage)(
            ctx.raw(),
            std::ptr::null(),
            MESSAGE_TYPE,
            message.as_ptr().cast::<c_char>(),
            len,
        )
    };
}

/// All nodes as this one knows them, a line each: CLUSTER NODES.
pub(crate) fn nodes(ctx: Ctx<'_>) -> Option<Vec<u8>> {
    call::ask(ctx, c"CLUSTER", &[b"NODES"])?.text()
}

/// Versions of what the nodes believe about slots: the greater counts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Epochs {
    /// Of this node's own slots, or of its primary's.
    pub(crate) own: u64,
    /// The greatest that this node knows of.
    pub(crate) greatest: u64,
}

pub(crate) fn epochs(ctx: Ctx<'_>) -> Epochs {
    let epoch = |field| {
        let text = String::from_utf8(info(ctx, field)?).ok()?;
        text.parse().ok()
    };
    Epochs {
        own: epoch(b"cluster_my_epoch").unwrap_or(0),
        greatest: epoch(b"cluster_current_epoch").unwrap_or(0),
    }
}

/// A field of CLUSTER INFO.
fn info(ctx: Ctx<'_>, field: &[u8]) -> Option<Vec<u8>> {
    let info = call::ask(ctx, c"CLUSTER", &[b"INFO"])?.text()?;
    info.split(|byte| *byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(field)?.strip_prefix(b":")?;
        Some(value.trim_ascii_end().to_vec())
    })
}

unsafe extern "C" fn on_message<R: Receiver>(
    ctx: *mut raw::RedisModuleCtx,
    _sender: *const c_char,
    _type: u8,
    payload: *const u8,
    len: u32,
) {
    guard(
        c"a message of another node",
        || (),
        || {
            if payload.is_null() {
                return;
            }
            // SAFETY: context and payload are the server's, alive until this returns (cluster.c,
            // clusterProcessPacket).
            let (ctx, message) = unsafe {
                (
                    Ctx::from_raw(ctx),
                    std::slice::from_raw_parts(payload, len as usize),
                )
            };
            if let Some(message) = message.strip_prefix(PREFIX) {
                R::receive(ctx, message);
            }
        },
    );
}
