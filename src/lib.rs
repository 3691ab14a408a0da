//! `dsync`: locks, semaphores, wait groups and work-once keys as native commands of Redis and
//! Valkey.
//!
//! Three layers, and every arrow has one direction: `commands` knows how requests are spelled,
//! `module` knows the server, the crate `dsync_engine` knows the rules. The root knows them all: here is
//! what the module registers, in which order, and what becomes of it when the server refuses the module.

mod commands;
mod module;

use dsync_engine::Beginning;
use module::cluster::node;
use module::out::{journal, metrics};
use module::redis::args::Args;
use module::redis::context::Ctx;
use module::redis::on_load::{Library, entry_points};
use module::redis::{detached, probe};
use module::{arm, events, settings, tick, values};

entry_points!(Dsync);

struct Dsync;

impl Library for Dsync {
    fn load(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), String> {
        // What a user wrote refuses the module most often: while there is nothing yet to take back.
        let settings = settings::check(args)?;

        // What any callback of those below may use from its first call on.
        detached::make(ctx);
        events::learn_the_sleep(ctx);
        arm::register(tick::tick);

        // What every server forgets by itself when it refuses the module, so each of these may fail. The types
        // come first, for whatever stores a key; the commands later than the probe, which they describe as well.
        values::register(ctx)?;
        probe::register(ctx)?;
        commands::register(ctx)?;
        metrics::register(ctx)?;
        settings::register(ctx, &settings)?;

        // With the settings known. Loaded into a running primary, the module decides at once; otherwise the data
        // are yet to come.
        journal::look_at_the_level(ctx);
        node::register(ctx);
        let facts = ctx.facts();
        if facts.is_primary() && !facts.loading() {
            events::take_over(ctx, Some(Beginning::Start));
        }

        // What Redis 7.0 goes on calling after a refusal unless it is taken back: the filter and the events.
        node::overhear(ctx)?;
        events::register(ctx)
        // What no server forgets, the receiver of the cluster's messages, waits for the first turn of the event
        // loop: then the module is loaded for good.
    }

    /// From the last to the first. Whatever is left in memory, the next load starts anew.
    fn take_back(ctx: Ctx<'_>) {
        events::take_back(ctx);
        node::take_back(ctx);
        arm::disarm(ctx);
        detached::free();
        module::forget();
    }

    fn is_at_work() -> bool {
        module::is_at_work()
    }
}
