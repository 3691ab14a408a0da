//! How a task's request gets its grant.
//!
//! A request that may wait takes a kept place in the queue (QUEUE). Then it waits on that place with a connection of its
//! own (BLOCK), a few seconds at a time, or listens for its turn, as the client says. Either way the place outlives closed
//! connections and failovers.

use std::time::{Duration, Instant};

use crate::aio::announce::Listening;
use crate::aio::{Client, Waits};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::progress::Progress;
use crate::request::{KEEP, Outcome, Request, Waiting, outcome};
use crate::wait::{SHORT_BLOCK, Verdict, WaitLimit, is_to_be_withdrawn};

/// Asks, and waits as long as allowed. A request that is given up, also by dropping the future, is withdrawn.
pub(crate) async fn ask(
    client: &Client,
    options: &Options,
    request: &Request,
    limit: WaitLimit,
) -> Result<Verdict> {
    let mut withdrawal = WithdrawOnDrop(Some((client, request)));
    let waiter = Waiter {
        client,
        options,
        request,
        start: Instant::now(),
    };
    let verdict = waiter.ask(limit).await;
    if is_to_be_withdrawn(limit, &verdict) {
        let release = request.verb("RELEASE");
        let _ = client.send(&release, Duration::ZERO).await;
    }
    withdrawal.0 = None;
    verdict
}

struct WithdrawOnDrop<'a>(Option<(&'a Client, &'a Request)>);

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        if let Some((client, request)) = self.0 {
            client.withdraw_in_background(request);
        }
    }
}

struct Waiter<'a> {
    client: &'a Client,
    options: &'a Options,
    request: &'a Request,
    start: Instant,
}

impl Waiter<'_> {
    async fn ask(&self, limit: WaitLimit) -> Result<Verdict> {
        let waiting = match limit {
            WaitLimit::Try => Waiting::Not,
            _ => Waiting::Queue,
        };
        let command = self.request.command(waiting);
        let mut listening = None;
        loop {
            let answer = self.client.send(&command, self.client.patience()).await?;
            let sent = answer.sent;
            let channel = match outcome(answer.reply)? {
                Outcome::Granted { fence, attempt } => {
                    return Ok(Verdict::Granted {
                        fence,
                        attempt,
                        sent,
                    });
                }
                Outcome::Waiting { place, channel } => {
                    self.tell(place).await;
                    channel
                }
                Outcome::Done { result, attempt } => return Ok(Verdict::Done { result, attempt }),
                Outcome::Failed { reason, attempts } => {
                    let key = self.request.key.clone();
                    return Err(Error::WorkFailed {
                        key,
                        reason,
                        attempts,
                    });
                }
                Outcome::Refused => return Err(self.not_acquired().await),
            };
            match self.client.waits() {
                Waits::OwnConnection => {
                    let Some(block) = limit.next_block(self.options.progress.is_some()) else {
                        return Err(self.not_acquired().await);
                    };
                    // A grant that comes now was sent for up to so long ago that its lease may be over by the clock of
                    // this process. Asking again answers the same hold with a new lease, or tells that it has lapsed.
                    let command = self.request.command(Waiting::Block(block));
                    self.client.send_blocking(&command, block).await?;
                }
                Waits::SharedConnection => {
                    let Some(pause) = limit.left(self.pause()) else {
                        return Err(self.not_acquired().await);
                    };
                    self.wait_for_turn(&mut listening, &channel, pause).await;
                }
            }
        }
    }

    /// How long to wait without a message before asking again: that keeps the place, and tells the progress.
    fn pause(&self) -> Duration {
        match self.options.progress {
            Some(_) => SHORT_BLOCK,
            None => KEEP / 3,
        }
    }

    /// Waits for a message. Returns at once after it began to listen, because the turn may have come before.
    async fn wait_for_turn(
        &self,
        listening: &mut Option<Listening>,
        channel: &str,
        pause: Duration,
    ) {
        if let Some(listening) = listening
            && listening.is_alive(channel).await
        {
            return listening.wait(pause).await;
        }
        *listening = None;
        match self.client.announcements().listen(channel).await {
            Ok(begun) => *listening = Some(begun),
            // Without messages, because the ACL does not allow them for example, asking has to do.
            Err(_) => tokio::time::sleep(pause.min(Duration::from_millis(500))).await,
        }
    }

    async fn tell(&self, place: u64) {
        if let Some(progress) = &self.options.progress {
            let key = self
                .client
                .info(self.request.family, &self.request.key)
                .await;
            let waited = self.start.elapsed();
            progress(&Progress { place, waited, key });
        }
    }

    async fn not_acquired(&self) -> Error {
        self.client
            .not_acquired(self.request.family, &self.request.key)
            .await
    }
}
