//! The cluster that this server is a node of: its slots, its epochs, and messages to and from the other nodes.
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

/// The type number of our messages, and what each of them begins with. The cluster bus tells apart only modules whose
/// names have nine letters; all others, like this one, share one name there. So the number is an unusual one, and the
/// prefix shows that a message is ours.
const MESSAGE_TYPE: u8 = 0xd5;
const PREFIX: &[u8] = b"dsync:";

/// The id of a node, which it keeps until it is reset.
pub(crate) type NodeId = [u8; raw::REDISMODULE_NODE_ID_LEN as usize];

/// Handles the messages of other nodes.
pub(crate) trait Receiver {
    fn receive(ctx: Ctx<'_>, sender: NodeId, message: &[u8]);
}

/// This node's id; `None` outside of a cluster. To be asked only when the server has read its configuration.
pub(crate) fn own_id() -> Option<NodeId> {
    // SAFETY: RM_GetMyClusterID has no arguments. It returns NULL, or an id without an end mark, which lives as long as
    // the server knows this node (cluster.c, getMyClusterId).
    unsafe {
        let id: *const NodeId = required!(RedisModule_GetMyClusterID)().cast();
        id.as_ref().copied()
    }
}

/// Registers the receiver of messages. Does nothing outside of a cluster.
///
/// To be called only when the module is loaded for good, because this cannot be taken back. A server that refuses the
/// module keeps the receiver (except Valkey 9.1). A server that is asked to remove it frees the head of its list and
/// goes on using it (RM_RegisterClusterMessageReceiver with NULL, Redis up to 8.0, Valkey up to 9.0).
pub(crate) fn listen<R: Receiver>(ctx: Ctx<'_>) {
    // SAFETY: the context is live, and the callback stays in memory, because the module is not unloaded any more.
    unsafe {
        required!(RedisModule_RegisterClusterMessageReceiver)(
            ctx.raw(),
            MESSAGE_TYPE,
            Some(on_message::<R>),
        );
    };
}

/// Sends a message to all other nodes.
pub(crate) fn send_to_all(ctx: Ctx<'_>, message: &[u8]) {
    let message = [PREFIX, message].concat();
    let Ok(len) = u32::try_from(message.len()) else {
        return;
    };
    // SAFETY: the context is live; RM_SendClusterMessage takes NULL for all nodes, copies the bytes, and refuses if
    // there is no cluster.
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

/// The reply of CLUSTER NODES: one line for each node that this one knows.
pub(crate) fn nodes(ctx: Ctx<'_>) -> Option<Vec<u8>> {
    call::ask(ctx, c"CLUSTER", &[b"NODES"])?.text()
}

/// Configuration epochs: of two nodes that claim a slot, the one with the greater epoch has it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Epochs {
    /// The epoch of this node's slots, or on a replica of its primary's.
    pub(crate) own: u64,
    /// The greatest epoch that this node knows of.
    pub(crate) greatest: u64,
}

/// Reads the epochs from CLUSTER INFO; 0 where the server does not say.
pub(crate) fn epochs(ctx: Ctx<'_>) -> Epochs {
    let info = call::ask(ctx, c"CLUSTER", &[b"INFO"]).and_then(|reply| reply.text());
    let info = info.unwrap_or_default();
    let epoch = |field: &[u8]| {
        let value = info.split(|byte| *byte == b'\n').find_map(|line| {
            let value = line.strip_prefix(field)?.strip_prefix(b":")?;
            std::str::from_utf8(value.trim_ascii_end()).ok()
        });
        value?.parse().ok()
    };
    Epochs {
        own: epoch(b"cluster_my_epoch").unwrap_or(0),
        greatest: epoch(b"cluster_current_epoch").unwrap_or(0),
    }
}

unsafe extern "C" fn on_message<R: Receiver>(
    ctx: *mut raw::RedisModuleCtx,
    sender: *const c_char,
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
            // SAFETY: the server keeps the context, the sender's id and the `len` bytes of the payload until this returns
            // (cluster.c, clusterProcessPacket).
            let (ctx, sender, message) = unsafe {
                (
                    Ctx::from_raw(ctx),
                    sender.cast::<NodeId>().as_ref(),
                    std::slice::from_raw_parts(payload, len as usize),
                )
            };
            if let Some(sender) = sender
                && let Some(message) = message.strip_prefix(PREFIX)
            {
                R::receive(ctx, *sender, message);
            }
        },
    );
}
