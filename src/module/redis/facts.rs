//! The circumstances of a call. Raw bits: the crate's own flags leave some of them out.

/// What RM_GetContextFlags tells, read once.
#[derive(Clone, Copy)]
pub(crate) struct CtxFacts(u32);

impl CtxFacts {
    const LUA: u32 = 1 << 0;
    const MULTI: u32 = 1 << 1;
    const PRIMARY: u32 = 1 << 2;
    const CLUSTER: u32 = 1 << 5;
    const AOF: u32 = 1 << 6;
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

    /// An AOF is written, or is about to be.
    pub(crate) fn aof(self) -> bool {
        self.any(Self::AOF)
    }

    /// A forked child is at work: it writes an RDB file, an AOF or a replica's snapshot.
    pub(crate) fn active_child(self) -> bool {
        self.any(Self::ACTIVE_CHILD)
    }

    /// The command comes over the replication link (also on a primary: Valkey's slot import).
    pub(crate) fn replicated(self) -> bool {
        self.any(Self::REPLICATED)
    }

    pub(crate) fn loading(self) -> bool {
        self.any(Self::LOADING)
    }

    /// Where blocking is refused a request is a try, as for BLPOP; and so it is on a replica that takes
    /// writes, where nobody would ever serve a queue.
    pub(crate) fn may_block(self) -> bool {
        self.is_primary()
            && !self.any(
                Self::DENY_BLOCKING | Self::MULTI | Self::LUA | Self::REPLICATED | Self::LOADING,
            )
    }
}
