//! Whether anybody listens to changes: an AOF, replicas, or a replication backlog.
//!
//! Writing a change down and handing it to the server is a third of what a grant costs, and on a server
//! without AOF and replicas it is all for nothing. So it is left out there, and the server is only told
//! that something has changed, which is what its `save` points count.
//!
//! Leaving out one change too many would cost a replica a hold, so silence is believed only as long as it
//! is certain. Whoever begins to listen takes a snapshot first, and every snapshot is made by a forked
//! child: a replica's first synchronisation, and an AOF that is switched on. From the birth of any child
//! on, therefore, everything is replicated, until the server has been asked again, with no child left,
//! and has named no replica and no backlog (with one, a replica may come back without a snapshot). The
//! AOF is asked about each time. In a cluster slots migrate in ways of their own: there somebody always
//! listens.
//!
//! Between its request for a first snapshot and the birth of the child a replica is not noticed. A command
//! that is counted in that time also stands in the new backlog, before the place where the replica starts,
//! and so does no harm. The context of a timer has no command, and what would stand there is an empty one:
//! so a tick asks the server again before it decides anything.

use super::SHELL;
use super::redis::context::Ctx;

/// A child was born, or a replica has come: from here on, everything is replicated.
pub(super) fn may_have_come() {
    SHELL.with(|shell| shell.nobody_listens = false);
}

/// Asks the server again if it was silent: for a tick, before its first decision. No replica can come while
/// it lasts.
pub(super) fn ask_again(ctx: Ctx<'_>) {
    if SHELL.with(|shell| std::mem::take(&mut shell.nobody_listens)) {
        ask(ctx);
    }
}

/// Asks the server, where there is anything to find out.
pub(super) fn ask(ctx: Ctx<'_>) {
    if SHELL.with(|shell| shell.nobody_listens) {
        return;
    }
    let facts = ctx.facts();
    if facts.cluster() || facts.aof() || facts.active_child() || !facts.is_primary() {
        return;
    }
    // One question, for the server composes a whole section for each: where there is a replica, there is a
    // backlog (replication.c, replicationFeedSlaves).
    let backlog = ctx.server_info_u64(c"replication", c"repl_backlog_active");
    SHELL.with(|shell| shell.nobody_listens = backlog == Some(0));
}

/// Whether a change made by the running command, or by the running tick, may go unheard.
pub(super) fn is_silent(ctx: Ctx<'_>) -> bool {
    SHELL.with(|shell| shell.nobody_listens) && !ctx.facts().aof()
}
