//! The thread that renews one hold, and what it shares with the hold.
//!
//! One thread a hold, not one for all: in a cluster, a node that does not answer would otherwise keep the renewals of
//! holds on healthy nodes waiting until those are lost too. A thread costs little beside the work that a hold protects.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::lease::Lease;
use crate::request::{Grant, Request, read};
use crate::sync::Client;

/// What the hold shares with the threads that renew and watch it.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) request: Request,
    pub(crate) lease: Lease,
    pub(crate) grant: Grant,
}

/// Starts renewing. Without a thread the hold lasts for one lease, and is then told as lost.
pub(crate) fn start(hold: &Arc<Shared>) {
    let hold = Arc::clone(hold);
    let thread = thread::Builder::new().name("dsync-renew".to_owned());
    let _ = thread.spawn(move || renew(&hold));
}

fn renew(hold: &Shared) {
    let mut has_failed = false;
    loop {
        let due = hold.lease.renewal_due(has_failed);
        if hold.lease.wait_until(due).is_some() || hold.lease.is_over() {
            return;
        }
        has_failed = !renew_once(hold, has_failed);
    }
}

/// Returns whether the server has answered.
fn renew_once(hold: &Shared, has_failed: bool) -> bool {
    let renewal = hold.request.renewal();
    let mut call = hold.client.call(&renewal);
    call.is_afresh = has_failed;
    call.effort = hold.client.settings.attempt();
    // Half of what is left, so that another attempt on a new connection can follow.
    let half = (hold.lease.left() / 2).max(Duration::from_millis(10));
    call.effort.response = call.effort.response.min(half);
    match hold.client.send(call) {
        Ok(answer) => match read::<u64>(&answer.reply) {
            Ok(0) => hold.lease.ended(),
            Ok(_) => hold.lease.renewed(answer.sent),
            Err(_) => return false,
        },
        Err(error) if error.tells_the_end() => hold.lease.ended(),
        Err(_) => return false,
    }
    true
}
