//! How a request gets its grant.
//!
//! A request that may wait takes a kept place in the queue (QUEUE) and then waits on it with its connection (BLOCK), a
//! few seconds at a time. The grant arrives the moment it is made; the place outlives a closed connection, a failover and
//! the end of each BLOCK; and a connection that died without a word is noticed after seconds, however long the wait.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::options::Options;
use crate::progress::Progress;
use crate::request::{Outcome, Request, Waiting, outcome};
use crate::sync::{Cancel, Client};

/// How long one BLOCK lasts. The progress is told in between.
const BLOCK: Duration = Duration::from_secs(2);

/// How long a request may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    None,
    Until(Instant),
    Unlimited,
}

impl Patience {
    pub(crate) fn at_most(time: Duration) -> Patience {
        match Instant::now().checked_add(time) {
            Some(end) => Patience::Until(end),
            None => Patience::Unlimited,
        }
    }

    /// How long the next BLOCK may last; `None` when the time is up.
    pub(crate) fn next_block(self) -> Option<Duration> {
        match self {
            Patience::None => None,
            Patience::Unlimited => Some(BLOCK),
            Patience::Until(end) => {
                let left = end.saturating_duration_since(Instant::now());
                (left >= Duration::from_millis(1)).then_some(left.min(BLOCK))
            }
        }
    }
}

/// What a request has come to.
pub(crate) enum Verdict {
    /// The moment is that at which the granted request was sent.
    Granted {
        fence: u64,
        attempt: u64,
        sent: Instant,
    },
    Done {
        result: Option<Vec<u8>>,
        attempt: u64,
    },
}

/// Asks, and waits as long as allowed. A request that is given up is withdrawn.
pub(crate) fn ask(
    client: &Client,
    options: &Options,
    request: &Request,
    patience: Patience,
) -> Result<Verdict> {
    let waiter = Waiter {
        client,
        request,
        progress: options.progress.as_deref(),
        cancel: options.cancel.as_ref(),
        start: Instant::now(),
    };
    let mut withdrawal = WithdrawOnDrop(Some(&waiter));
    let verdict = waiter.ask(patience);
    // A refused try is not queued. Everything else that failed may be, or may even hold by now.
    let was_refused =
        patience == Patience::None && matches!(verdict, Err(Error::NotAcquired { .. }));
    if verdict.is_ok() || was_refused {
        withdrawal.0 = None;
    }
    drop(withdrawal);
    verdict
}

/// Withdraws a request that is given up, also by a panic of the progress callback.
struct WithdrawOnDrop<'a, 'b>(Option<&'a Waiter<'b>>);

impl Drop for WithdrawOnDrop<'_, '_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.0 {
            withdraw(waiter.client, waiter.request);
        }
    }
}

/// Withdraws a request, or releases what it was granted behind the caller's back. When the server does not hear of it,
/// the end of the kept place or of the lease does the same.
fn withdraw(client: &Client, request: &Request) {
    let command = request.verb("RELEASE");
    let mut call = client.call(&command);
    call.patience = Duration::ZERO;
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
    fn ask(&self, patience: Patience) -> Result<Verdict> {
        let waiting = match patience {
            Patience::None => Waiting::Not,
            _ => Waiting::Queue,
        };
        let _registration = self.cancel.map(|cancel| {
            let (client, request) = (self.client.clone(), self.request.clone());
            cancel.register(move || withdraw(&client, &request))
        });
        loop {
            let (sent, outcome) = self.send(waiting)?;
            match outcome {
                Outcome::Granted { fence, attempt } => {
                    return Ok(Verdict::Granted {
                        fence,
                        attempt,
                        sent,
                    });
                }
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
            let Some(block) = patience.next_block() else {
                return Err(self.not_acquired());
            };
            // A grant that comes now was sent for up to so long ago that its lease may be over by the clock of this
            // process. Asking again answers the same hold with a new lease, or tells that it has lapsed meanwhile.
            self.send(Waiting::Block(block))?;
        }
    }

    fn send(&self, waiting: Waiting) -> Result<(Instant, Outcome)> {
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            return Err(self.cancelled());
        }
        let command = self.request.command(waiting);
        let mut call = self.client.call(&command);
        call.cancel = self.cancel;
        if let Waiting::Block(time) = waiting {
            call.blocks = time;
        }
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
