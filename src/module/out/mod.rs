//! The module's output besides replies: changes for replicas and the AOF, keyspace notifications, the logs, metrics.

pub(crate) mod announce;
pub(crate) mod ends;
pub(crate) mod journal;
pub(crate) mod metrics;
pub(crate) mod notify;
pub(crate) mod replicate;
