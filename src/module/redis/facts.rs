//! The circumstances of a callback, from RM_GetContextFlags. The bits are raw numbers, because the flags of the
//! `redis_module` crate leave some of them out.

/// The flags of a context, read once.
#[derive(Clone, Copy)]
pub(crate) struct CtxFacts(u32);

impl CtxFacts {
    const LUA: u32 = 1 << 0;
    const MULTI: u32 = 1 << 1;
    const PRIMARY: u32 = 1 << 2;
    const CLUSTER: u32 = 1 << 5;
    const AOF: u32 = 1 << 6;
    const OUT_OF_MEMORY: u32 = 1 << 10;
    const REPLICATED: u32 = 1 << 12;
    const LOADING: u32 = 1 << 13;
    const ACTIVE_CHILD: u32 = 1 << 18;
    const DENY_BLOCKING: u32 = 1 << 21;

    pub(super) fn from_bits(bits: u32) -> Self {
        CtxFacts(bits)
    }

    fn any(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    pub(crate) fn in_lua(self) -> bool {
        self.any(Self::LUA)
    }

    pub(crate) fn is_primary(self) -> bool {
        self.any(Self::PRIMARY)
    }

    pub(crate) fn cluster(self) -> bool {
        self.any(Self::CLUSTER)
    }

    /// An AOF is being written, or will be soon.
    pub(crate) fn aof(self) -> bool {
        self.any(Self::AOF)
    }

    /// A forked child is writing an RDB file, an AOF or a replica's snapshot.
    pub(crate) fn active_child(self) -> bool {
        self.any(Self::ACTIVE_CHILD)
    }

    /// The server uses more memory than `maxmemory` at this moment.
    pub(crate) fn out_of_memory(self) -> bool {
        self.any(Self::OUT_OF_MEMORY)
    }

    /// The command comes over a replication link. That happens also on a primary, while Valkey imports a slot.
    pub(crate) fn replicated(self) -> bool {
        self.any(Self::REPLICATED)
    }

    pub(crate) fn loading(self) -> bool {
        self.any(Self::LOADING)
    }

    /// Whether the reply of the command may be a part of another reply: in MULTI, scripts, functions and RM_Call.
    pub(crate) fn is_nested(self) -> bool {
        self.any(Self::DENY_BLOCKING | Self::MULTI | Self::LUA)
    }

    /// Whether the command's client can be parked. Where it cannot, a request is a try, as with BLPOP.
    pub(crate) fn may_block(self) -> bool {
        !self.any(Self::DENY_BLOCKING | Self::MULTI | Self::LUA | Self::REPLICATED | Self::LOADING)
    }
}
