//! `dsync`: locks, semaphores, wait groups and work-once keys as native commands of Redis and
//! Valkey.
//!
//! There are three layers, each of which uses only those after it: `commands` knows the syntax of requests, `module`
//! knows the server, the crate `dsync_engine` knows the rules. This file uses all of them: it registers the module's
//! parts with the server in the right order, and takes them back if the server refuses the module.
#![deny(unsafe_code)]

mod commands;
mod module;

use commands::register;
use module::cluster::node;
use module::out::{journal, metrics};
use module::redis::args::Args;
use module::redis::context::Ctx;
use module::redis::on_load::{Library, entry_points};
use module::redis::{context, gil, probe};
use module::{events, identity, settings, tick, values, version};

entry_points!(Dsync);

struct Dsync;

impl Library for Dsync {
    const VERSION: i32 = version::NUMBER;

    fn load(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), String> {
        // Wrong arguments are the most frequent reason to refuse the module, so check them while nothing has to be
        // taken back.
        let settings = settings::check(args)?;

        // The callbacks registered below may use these from their first call on.
        context::make_detached(ctx);
        events::set_cron_period(ctx);

        // Every server forgets these by itself when it refuses the module, so each of them may fail. The types come
        // first, because all others may store keys. The commands come after the probe, because they also describe the
        // probe.
        values::register(ctx)?;
        probe::register(ctx)?;
        register::register_all(ctx)?;
        metrics::register(ctx)?;
        settings::register(ctx, &settings)?;

        // These need the settings.
        journal::read_log_level(ctx);
        journal::warn_of_eviction(ctx);
        identity::read_address(ctx);
        node::register(ctx);

        // Redis 7.0 goes on calling these after it has refused the module, unless they are taken back.
        node::watch_commands(ctx)?;
        events::register(ctx)?;
        events::start_if_due(ctx);
        Ok(())
        // The receiver of the cluster's messages cannot be taken back on any server. So it is registered in the first
        // turn of the event loop, when the module is loaded for good (`node::listen`).
    }

    /// Takes back in reverse order. Statics that stay in memory are reset, so that a later load starts fresh.
    fn take_back(ctx: Ctx<'_>) {
        events::take_back(ctx);
        node::take_back(ctx);
        tick::disarm(ctx);
        context::free_detached();
        gil::forget_all();
    }

    fn is_at_work() -> bool {
        events::is_at_work()
    }
}
