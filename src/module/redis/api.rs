//! The server's functions. The server's header looks them up by name when the module is loaded.
//!
//! Required functions exist since Redis 7.0. They are checked once, so that the module refuses to load on a server
//! that lacks one, with its name, instead of failing later. Code that uses an optional function asks for it there.

use redis_module::raw;

/// The pointer of an optional function; `None` if the server does not have it.
macro_rules! optional {
    ($name:ident) => {{
        // SAFETY: RedisModule_Init writes this static once, before any callback runs, and it is read by value here.
        #[allow(unused_unsafe, reason = "also expanded inside other unsafe blocks")]
        let function = unsafe { redis_module::raw::$name };
        function
    }};
}
pub(super) use optional;

/// The pointer of a required function. Does not panic, because [`missing`] was checked when the module was loaded.
macro_rules! required {
    ($name:ident) => {
        $crate::module::redis::api::optional!($name).expect(stringify!($name))
    };
}
pub(super) use required;

macro_rules! require {
    ($($name:ident)*) => {
        /// The name of the first required function that this server does not have.
        pub(super) fn missing() -> Option<&'static str> {
            $(if optional!($name).is_none() { return Some(stringify!($name)); })*
            None
        }
    };
}

require! {
    RedisModule_Alloc RedisModule_Free RedisModule_GetApi RedisModule_Log RedisModule_SetModuleOptions
    RedisModule_CreateCommand RedisModule_GetCommand RedisModule_SetCommandInfo
    RedisModule_GetClientId RedisModule_GetSelectedDb RedisModule_SelectDb RedisModule_GetContextFlags
    RedisModule_AvoidReplicaTraffic RedisModule_Replicate RedisModule_ReplicateVerbatim RedisModule_SignalModifiedKey
    RedisModule_NotifyKeyspaceEvent RedisModule_PublishMessage RedisModule_PublishMessageShard
    RedisModule_GetServerInfo RedisModule_FreeServerInfo RedisModule_GetServerVersion
    RedisModule_ServerInfoGetFieldUnsigned RedisModule_Call RedisModule_FreeCallReply RedisModule_CallReplyArrayElement
    RedisModule_CallReplyStringPtr RedisModule_CallReplyType
    RedisModule_RegisterClusterMessageReceiver RedisModule_SendClusterMessage RedisModule_GetMyClusterID
    RedisModule_RegisterCommandFilter RedisModule_UnregisterCommandFilter RedisModule_CommandFilterArgsCount RedisModule_CommandFilterArgGet
    RedisModule_StringPtrLen RedisModule_CreateString RedisModule_FreeString
    RedisModule_ReplyWithNull RedisModule_ReplyWithLongLong RedisModule_ReplyWithStringBuffer
    RedisModule_ReplyWithSimpleString RedisModule_ReplyWithArray RedisModule_ReplyWithMap
    RedisModule_ReplyWithError
    RedisModule_OpenKey RedisModule_CloseKey RedisModule_DeleteKey RedisModule_KeyType RedisModule_GetExpire
    RedisModule_ModuleTypeGetType RedisModule_ModuleTypeGetValue RedisModule_ModuleTypeSetValue
    RedisModule_CreateDataType RedisModule_GetKeyNameFromOptCtx RedisModule_GetDbIdFromOptCtx
    RedisModule_IsIOError RedisModule_LoadUnsigned RedisModule_LoadStringBuffer
    RedisModule_SaveUnsigned RedisModule_SaveStringBuffer RedisModule_EmitAOF
    RedisModule_GetKeyNameFromIO RedisModule_GetDbIdFromIO
    RedisModule_DigestAddStringBuffer RedisModule_DigestAddLongLong RedisModule_DigestEndSequence
    RedisModule_GetKeyNameFromDigest RedisModule_GetDbIdFromDigest
    RedisModule_CreateTimer RedisModule_StopTimer RedisModule_EventLoopAddOneShot
    RedisModule_GetDetachedThreadSafeContext RedisModule_FreeThreadSafeContext
    RedisModule_SubscribeToServerEvent RedisModule_Scan RedisModule_ScanCursorCreate RedisModule_ScanCursorDestroy
    RedisModule_ScanCursorRestart
    RedisModule_BlockClientOnKeys RedisModule_UnblockClient RedisModule_AbortBlock
    RedisModule_SetDisconnectCallback RedisModule_GetBlockedClientPrivateData
    RedisModule_RegisterNumericConfig RedisModule_RegisterBoolConfig RedisModule_LoadConfigs
    RedisModule_RegisterInfoFunc RedisModule_InfoAddSection RedisModule_InfoAddFieldULongLong
    RedisModule_InfoAddFieldCString
}

/// Whether the server is Redis older than this version, which has the form 0x00MMmmpp. False for Valkey, which began as
/// Redis 7.2 and counts its own versions.
pub(super) fn is_redis_before(version: i32) -> bool {
    // SAFETY: RM_GetServerVersion has no arguments and only reads a constant.
    !is_valkey() && unsafe { required!(RedisModule_GetServerVersion)() } < version
}

/// Whether the server is Valkey: only Valkey has functions with names in `ValkeyModule_`.
pub(super) fn is_valkey() -> bool {
    let mut found: *mut std::ffi::c_void = std::ptr::null_mut();
    // SAFETY: RM_GetApi looks up a C string and, only if it succeeds, stores one pointer through its second argument.
    unsafe {
        required!(RedisModule_GetApi)(
            c"ValkeyModule_CreateCommand".as_ptr(),
            (&raw mut found).cast(),
        ) == raw::REDISMODULE_OK as i32
    }
}
