//! Announces the turn of kept places, each on the channel that its client was told.
//!
//! The message is the fence of the grant, or 0 if the place was dropped without one. It is no grant: the client asks
//! again to learn what it has. Like every message of the server it can be lost.

use std::collections::VecDeque;

use crate::module::redis::context::Ctx;
use crate::module::redis::gil::GilCell;
use crate::module::redis::timer::{self, Timer, TimerSlot};
use dsync_engine::effect::Announcement;

/// A message that is still to be sent.
struct Message {
    channel: Vec<u8>,
    text: String,
}

/// The messages of commands in MULTI and scripts, until the next turn of the event loop.
static DELAYED: GilCell<VecDeque<Message>> = GilCell::new(VecDeque::new);

/// Announces what became of kept places of this key.
pub(crate) fn announce(ctx: Ctx<'_>, key: &[u8], announcements: &[Announcement]) {
    if announcements.is_empty() {
        return;
    }
    let facts = ctx.facts();
    for Announcement { rank, fence } in announcements {
        let channel = ctx.channel(key, rank.0.0);
        let text = fence.map_or(0, |fence| fence.0).to_string();
        if facts.is_nested() {
            // The subscriber may be the very client that is in MULTI: a message must not stand inside EXEC's reply.
            DELAYED.with(|delayed| delayed.push_back(Message { channel, text }));
            timer::start::<Later>(ctx, 0);
        } else {
            ctx.publish(&channel, text.as_bytes(), facts.cluster());
        }
    }
}

/// Sends the messages that a command in MULTI or a script has left.
struct Later;

impl Timer for Later {
    const SLOT: &'static TimerSlot = {
        static SLOT: TimerSlot = TimerSlot::new();
        &SLOT
    };

    fn fire(ctx: Ctx<'_>) {
        send_delayed(ctx);
    }
}

/// Sends all delayed messages. The server's cron calls this too, because a timer is late after the wall clock has
/// stepped back.
pub(crate) fn send_delayed(ctx: Ctx<'_>) {
    let in_cluster = ctx.facts().cluster();
    while let Some(message) = DELAYED.with(VecDeque::pop_front) {
        ctx.publish(&message.channel, message.text.as_bytes(), in_cluster);
    }
}
