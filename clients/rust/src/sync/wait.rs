//! How a request gets its grant.
//!
//! A request that may wait takes a kept place in the queue (QUEUE) and then waits on it with its connection (BLOCK), a
//! few seconds at a time. The grant arrives the moment it is made; the place outlives a closed connection, a failover and
//! the end of each BLOCK; and a connection that died without a word is noticed after seconds, however long the wait.

use std::thread;
use std::time::{Duration, Instant};

use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::progress::Progress;
use crate::request::{KEEP, Outcome, Request, Waiting, outcome};
use crate::sync::{Cancel, Client};
use crate::wait::{BLOCK, Verdict, WaitLimit, Withdrawal};

/// Asks, and waits as long as allowed. A request that is given up is withdrawn.
pub(crate) fn ask(
    client: &Client,
    options: &Options,
    request: &Request,
    limit: WaitLimit,
) -> Result<Verdict> {
    let waiter = Waiter {
        client,
        request,
        progress: options.progress.as_deref(),
        cancel: options.cancel.as_ref(),
        start: Instant::now(),
    };
    let mut withdrawal = WithdrawOnDrop(&waiter, Withdrawal::Now);
    let verdict = waiter.ask(limit);
    withdrawal.1 = Withdrawal::of(limit, &verdict);
    drop(withdrawal);
    verdict
}

/// Withdraws a request that is given up, also by a panic of the progress callback.
struct WithdrawOnDrop<'a, 'b>(&'a Waiter<'b>, Withdrawal);

impl Drop for WithdrawOnDrop<'_, '_> {
    fn drop(&mut self) {
        let WithdrawOnDrop(waiter, withdrawal) = self;
        match withdrawal {
            Withdrawal::Not => {}
            Withdrawal::Now => withdraw(waiter.client, waiter.request, Duration::ZERO),
            Withdrawal::InBackground => {
                let (client, request) = (waiter.client.clone(), waiter.request.clone());
                let thread = thread::Builder::new().name("dsync-withdraw".to_owned());
                let _ = thread.spawn(move || withdraw(&client, &request, KEEP));
            }
        }
    }
}

/// Withdraws a request, or releases what it was granted behind the caller's back. When the server does not hear of it,
/// the end of the kept place or of the lease does the same.
fn withdraw(client: &Client, request: &Request, patience: Duration) {
    let command = request.verb("RELEASE");
    let mut call = client.call(&command);
    call.effort = client.settings.courtesy().with_patience(patience);
    let _ = client.send(call);
}

struct Waiter<'a> {
    client: &'a Client,
    request: &'a Request,
    progress: Option<&'a (dyn Fn(&Progress) + Send + Sync)>,
    cancel: Option<&'a Cancel>,
    start: Instant,
}

impl Waiter<'_> {
    fn ask(&self, limit: WaitLimit) -> Result<Verdict> {
        let waiting = match limit {
            WaitLimit::Try => Waiting::Not,
            _ => Waiting::Queue,
        };
        let _registration = self.cancel.map(|cancel| {
            let (client, request) = (self.client.clone(), self.request.clone());
            cancel.register(move || withdraw(&client, &request, Duration::ZERO))
        });
        loop {
            let (sent, outcome) = self.send(waiting, limit)?;
            match outcome {
                Outcome::Granted(grant) => return Ok(Verdict::Granted { grant, sent }),
                Outcome::Waiting { place, .. } => self.tell(place),
                Outcome::Done { result, attempt } => return Ok(Verdict::Done { result, attempt }),
                Outcome::Failed { reason, attempts } => {
                    return Err(Error::WorkFailed {
                        key: self.request.key.clone(),
                        reason,
                        attempts,
                    });
                }
                Outcome::Refused => return Err(self.not_acquired()),
            }
            let Some(block) = limit.left(BLOCK) else {
                return Err(self.not_acquired());
            };
            // A grant that comes now was sent for up to so long ago that its lease may be over by the clock of this
            // process. Asking again answers the same hold with a new lease, or tells that it has lapsed meanwhile.
            self.send(Waiting::Block(block), limit)?;
        }
    }

    fn send(&self, waiting: Waiting, limit: WaitLimit) -> Result<(Moment, Outcome)> {
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            return Err(self.cancelled());
        }
        let command = self.request.command(waiting);
        let mut call = self.client.call(&command);
        call.cancel = self.cancel;
        let mut give_up_at = limit.give_up_at(self.start);
        if let Waiting::Block(time) = waiting {
            call.blocks = time;
            // The reply to a BLOCK that ends with the wait may come as late as any other.
            give_up_at = give_up_at.map(|end| end + call.effort.response);
        }
        call.effort = call.effort.until(give_up_at);
        match self.client.send(call) {
            Ok(answer) => Ok((answer.sent, outcome(answer.reply)?)),
            // The withdrawal has ended the wait; or the server is away, and the caller does not want to wait for it.
            Err(Error::Redis(_)) if self.cancel.is_some_and(Cancel::is_cancelled) => {
                Err(self.cancelled())
            }
            Err(error) => Err(error),
        }
    }

    fn tell(&self, place: u64) {
        if let Some(progress) = self.progress {
            progress(&Progress {
                place,
                waited: self.start.elapsed(),
                key: self.client.info(self.request.family, &self.request.key),
            });
        }
    }

    fn cancelled(&self) -> Error {
        Error::Cancelled {
            key: self.request.key.clone(),
        }
    }

    fn not_acquired(&self) -> Error {
        self.client
            .not_acquired(self.request.family, &self.request.key)
    }
}
