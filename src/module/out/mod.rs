//! What leaves the module besides replies: changes for replicas and the AOF, events, the log, metrics.

pub(crate) mod journal;
pub(crate) mod metrics;
pub(crate) mod notify;
pub(crate) mod replicate;
