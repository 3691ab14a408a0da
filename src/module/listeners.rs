//! Whether anything listens to changes: an AOF, replicas, or a replication backlog.
//!
//! To pack a change and hand it to the server is a third of the cost of a grant, and is useless on a server without
//! AOF and replicas. So the module skips it there, and only tells the server that something has changed, which the
//! server counts for its `save` points.
//!
//! A change skipped by mistake would cost a replica a hold, so replication is skipped only while this module can
//! prove that nobody listens. A new listener takes a snapshot first (a replica's first synchronisation, or an AOF
//! that is switched on), and every snapshot is made by a forked child. Therefore the module replicates everything
//! from the birth of any child until it has asked the server again, with no child left, and the server has neither
//! replicas nor a backlog (with a backlog a replica can come back without a snapshot), nor an AOF. In a cluster it always
//! replicates, because a slot migration takes its snapshot in other ways.
//!
//! The module does not notice a replica between its request for a snapshot and the birth of the child. A command that
//! is only counted in that time (`replicate_as_it_came`) does no harm: it also stands in the new backlog, before the
//! offset where the replica starts. In a timer there is no command, and an empty one would stand in the backlog. So a
//! tick asks the server again before it decides anything.

use super::redis::context::Ctx;
use super::redis::gil::GilFlag;

/// Whether changes need not be replicated, because nobody listens to them.
static NOBODY_LISTENS: GilFlag = GilFlag::new();

/// Called when a child was born or a replica has come: from now on everything is replicated.
pub(super) fn may_have_come() {
    NOBODY_LISTENS.set(false);
}

/// Asks the server again if nobody listened before. A tick calls this before its first decision; no replica can come
/// during the tick.
pub(super) fn ask_again(ctx: Ctx<'_>) {
    if is_silent() {
        may_have_come();
        ask(ctx);
    }
}

/// Asks the server whether anybody listens, unless it is known already that nobody does.
pub(super) fn ask(ctx: Ctx<'_>) {
    if is_silent() {
        return;
    }
    let facts = ctx.facts();
    if facts.cluster() || facts.aof() || facts.active_child() || !facts.is_primary() {
        return;
    }
    // Ask for the backlog only, because the server composes a whole section of INFO for each question. A server with
    // replicas has a backlog (replication.c, replicationFeedSlaves).
    let backlog = ctx.server_info_u64(c"replication", c"repl_backlog_active");
    NOBODY_LISTENS.set(backlog == Some(0));
}

/// Whether a change made by the running command or tick need not be replicated.
pub(super) fn is_silent() -> bool {
    NOBODY_LISTENS.is_set()
}
