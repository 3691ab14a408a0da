//! Whether anybody listens to changes: an AOF, replicas, or a replication backlog.
//!
//! Writing a change down and handing it to the server is a third of what a grant costs, and on a server
//! without AOF and replicas it is all for nothing. So it is left out there, and the server is only told
//! that something has changed, which is what its `save` points count.
//!
//! A change left out by mistake would cost a replica a hold, so replication is skipped only while this module can
//! prove that nobody listens. A new listener takes a snapshot first (a replica's first synchronisation, or an AOF
//! that is switched on), and every snapshot is made by a forked child. Therefore the module replicates everything
//! from the birth of any child until it has asked the server again, with no child left, and the server has neither
//! replicas nor a backlog (with a backlog a replica may come back without a snapshot). It asks about the AOF each
//! time. In a cluster it always replicates, because slots migrate in ways of their own.
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
