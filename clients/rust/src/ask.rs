//! How a request gets its grant.
//!
//! A request that may wait takes a kept place in the queue (QUEUE). Then it waits on that place with a connection of its
//! own (BLOCK), a few seconds at a time, or listens for its turn. The grant arrives the moment it is made; the place
//! outlives a closed connection, a failover and the end of each BLOCK; and a connection that died without a word is noticed
//! after seconds, however long the wait.

use std::time::{Duration, Instant};

use crate::call::Call;
use crate::cancel::Cancel;
use crate::clock::Moment;
use crate::effort::{Effort, WaitLimit};
use crate::error::{Error, Result};
use crate::half::Half;
use crate::hold::Hold;
use crate::once::Begun;
use crate::options::Options;
use crate::progress::{KeyInfo, Progress};
use crate::request::{Grant, Reply, Request, Waiting, outcome, read};
use crate::send::send;
use crate::times::{ASK_AGAIN_AFTER, BLOCK_AT_MOST, PLACE_KEPT_FOR};

/// Between a BLOCK that had no answer and the next request for the place.
const AFRESH: Duration = Duration::from_millis(250);

/// Asks, and waits as long as allowed. A request that is given up, also by dropping the future, is withdrawn.
pub(crate) async fn ask<H: Half>(
    half: &H,
    options: &Options,
    limit: WaitLimit,
) -> Result<Begun<Hold<H>>> {
    let cancel = options.cancel.clone().unwrap_or_default();
    let waiter = Waiter {
        half: half.clone(),
        options: options.clone(),
        request: options.request()?,
        cancel: cancel.clone(),
        limit,
        start: Instant::now(),
        may_be_known: false,
    };
    half.to_the_end(Some(&cancel), waiter.ask()).await
}

/// Withdraws a request, or releases what it was granted behind the caller's back. When the server does not hear of it,
/// the end of the kept place or of the lease does the same.
async fn withdraw<H: Half>(half: H, request: Request, effort: Effort) {
    let command = request.verb("RELEASE");
    for _ in 0..2 {
        let answer = send(&half, Call::new(&command, effort)).await;
        let count = answer.and_then(|answer| Ok(read::<u64>(&answer.reply)?));
        // Nothing was withdrawn: the request was over, or it is still on its way.
        if !matches!(count, Ok(0)) {
            return;
        }
    }
}

struct Waiter<H: Half> {
    half: H,
    options: Options,
    request: Request,
    cancel: Cancel,
    limit: WaitLimit,
    start: Instant,
    /// Whether the server may know of the request when this is dropped: where it does not answer, or where the callback of
    /// the progress panics, or the runtime ends.
    may_be_known: bool,
}

impl<H: Half> Drop for Waiter<H> {
    fn drop(&mut self) {
        if self.may_be_known {
            self.withdrawing()();
        }
    }
}

impl<H: Half> Waiter<H> {
    async fn ask(mut self) -> Result<Begun<Hold<H>>> {
        // A request that was cancelled before is not sent.
        self.may_be_known = !self.cancel.is_cancelled();
        let verdict = self.ask_until_over().await;
        let is_answered = match &verdict {
            _ if !self.may_be_known => false,
            Err(Error::NotAcquired { .. }) => self.limit != WaitLimit::Try,
            Err(Error::Cancelled { .. }) => true,
            Err(error) => error.is_of_confirmation(),
            Ok(_) => false,
        };
        if is_answered {
            withdraw(self.half.clone(), self.request.clone(), self.withdrawal()).await;
        }
        // Another error of the server says that the request has changed nothing. The token may then be that of an older
        // hold, which is not to be released.
        let is_unreachable = verdict.as_ref().is_err_and(Error::is_unreachable);
        self.may_be_known = is_unreachable && !is_answered;
        verdict
    }

    async fn ask_until_over(&self) -> Result<Begun<Hold<H>>> {
        let waiting = match self.limit {
            WaitLimit::Try => Waiting::Not,
            _ => Waiting::Queue,
        };
        let _withdrawal = self.cancel.register(self.withdrawing());
        let mut listening = H::Listening::default();
        let mut is_renewed = false;
        loop {
            let (sent, outcome) = self.send(waiting).await?;
            let channel = match outcome {
                Reply::Granted(grant) if is_renewed || self.is_fresh(sent) => {
                    return Ok(self.granted(grant, sent));
                }
                Reply::Granted(_) => {
                    is_renewed = true;
                    continue;
                }
                Reply::Waiting { place, channel } => {
                    self.tell(place).await;
                    channel
                }
                Reply::Done { result, attempt } => return Ok(Begun::Done { result, attempt }),
                Reply::Failed { reason, attempts } => {
                    return Err(Error::WorkFailed {
                        key: self.request.key.clone(),
                        reason,
                        attempts,
                        cause: None,
                    });
                }
                Reply::Refused => return Err(self.not_acquired().await),
            };
            let longest = match self.half.listens() {
                true => ASK_AGAIN_AFTER,
                false => BLOCK_AT_MOST,
            };
            let Some(time) = self.limit.left(longest) else {
                return Err(self.not_acquired().await);
            };
            if self.half.listens() {
                self.half.turn(&mut listening, &channel, time).await;
                continue;
            }
            match self.send(Waiting::Block(time)).await {
                Ok((sent, Reply::Granted(grant)))
                    if self.is_fresh(sent) && !self.cancel.is_cancelled() =>
                {
                    return Ok(self.granted(grant, sent));
                }
                Err(error) if error.is_unreachable() => self.cancel.wait::<H>(AFRESH).await,
                Ok(_) | Err(Error::NotConfirmed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a grant counts as it is. Later, its lease may be over soon by the clock of this process. Asking again
    /// answers the same hold with a new lease, or tells that it has lapsed meanwhile.
    fn is_fresh(&self, sent: Moment) -> bool {
        Moment::now().since(sent) <= self.request.lease / 10
    }

    /// Returns what withdraws the request in the background.
    fn withdrawing(&self) -> impl Fn() + Send + Sync + use<H> {
        let (half, request) = (self.half.clone(), self.request.clone());
        let effort = Effort {
            retry_for: PLACE_KEPT_FOR,
            give_up_at: None,
            ..self.withdrawal()
        };
        move || half.in_background(withdraw(half.clone(), request.clone(), effort))
    }

    fn withdrawal(&self) -> Effort {
        self.half.effort().withdrawal(self.limit == WaitLimit::Try)
    }

    fn granted(&self, grant: Grant, sent: Moment) -> Begun<Hold<H>> {
        let (terms, request) = (self.options.terms, self.request.clone());
        Begun::Run(Hold::new(&self.half, terms, request, grant, sent))
    }

    async fn send(&self, waiting: Waiting) -> Result<(Moment, Reply)> {
        let command = self.request.command(waiting);
        let mut effort = self.half.effort();
        effort.give_up_at = self.limit.give_up_at(self.start);
        let mut call = Call::new(&command, effort);
        call.cancel = Some(&self.cancel);
        if let Waiting::Block(time) = waiting {
            call.blocks = Some(time);
            // Only QUEUE keeps the place where no connection can be opened for BLOCK.
            call.effort.retry_for = Duration::ZERO;
            // The reply to a BLOCK that ends with the wait may come as late as any other.
            call.effort.give_up_at = effort.give_up_at.map(|end| end + effort.response);
        }
        let answer = send(&self.half, call).await?;
        Ok((answer.sent, outcome(answer.reply)?))
    }

    async fn tell(&self, place: u64) {
        if let Some(progress) = &self.options.progress {
            let key = self.info().await;
            let waited = self.start.elapsed();
            progress(&Progress { place, waited, key });
        }
    }

    async fn not_acquired(&self) -> Error {
        let info = self.info().await;
        Error::NotAcquired {
            key: self.request.key.clone(),
            holders: info.holders,
            paused: info.paused,
            delayed: info.delayed,
        }
    }

    /// Returns INFO of the key; what the server does not tell, because of its ACL for example, stays empty.
    async fn info(&self) -> KeyInfo {
        let command = self.request.family.command("INFO", &self.request.key);
        let answer = send(&self.half, Call::new(&command, self.withdrawal())).await;
        answer
            .map(|answer| KeyInfo::read(&answer.reply))
            .unwrap_or_default()
    }
}
