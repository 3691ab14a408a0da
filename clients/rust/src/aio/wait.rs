//! How a task's request gets its grant.
//!
//! A request that may wait takes a kept place in the queue (QUEUE). Then it waits on that place with a connection of its
//! own (BLOCK), a few seconds at a time, or listens for its turn, as the client says. Either way the place outlives closed
//! connections and failovers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::aio::announce::Listening;
use crate::aio::connection::Blocked;
use crate::aio::{Client, Waits};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::progress::Progress;
use crate::request::{Command, KEEP, Outcome, Request, Waiting, outcome};
use crate::wait::{BLOCK, Verdict, WaitLimit, Withdrawal};

/// How long a wait without a connection lasts before it asks again: that keeps the place, and finds a turn whose message
/// was lost. A third of the time for which the place is kept.
const PAUSE: Duration = Duration::from_millis(1_666);

/// Asks, and waits as long as allowed. A request that is given up, also by dropping the future, is withdrawn.
pub(crate) async fn ask(
    client: &Client,
    options: &Options,
    request: &Request,
    limit: WaitLimit,
) -> Result<Verdict> {
    let waiter = Waiter {
        client,
        options,
        request,
        start: Instant::now(),
        blocked: Blocked::default(),
    };
    let mut withdrawal = WithdrawOnDrop(&waiter, Withdrawal::InBackground);
    let verdict = waiter.ask(limit).await;
    withdrawal.1 = match Withdrawal::of(limit, &verdict) {
        Withdrawal::Now => {
            let release = request.verb("RELEASE");
            let _ = client.send(&release, client.settings.courtesy()).await;
            Withdrawal::Not
        }
        other => other,
    };
    drop(withdrawal);
    verdict
}

struct WithdrawOnDrop<'a, 'b>(&'a Waiter<'b>, Withdrawal);

impl Drop for WithdrawOnDrop<'_, '_> {
    /// Has a task withdraw the request, or release what it was granted. When the server does not hear of it, or the runtime
    /// ends first, the end of the kept place or of the lease does the same.
    fn drop(&mut self) {
        let WithdrawOnDrop(waiter, withdrawal) = self;
        if let (Withdrawal::InBackground, Ok(runtime)) = (withdrawal, Handle::try_current()) {
            let (client, release) = (waiter.client.clone(), waiter.request.verb("RELEASE"));
            runtime.spawn(withdraw(client, release, Arc::clone(&waiter.blocked)));
        }
    }
}

async fn withdraw(client: Client, release: Command, blocked: Blocked) {
    let is_blocked = blocked.try_lock().is_err();
    let effort = client.settings.courtesy().with_patience(KEEP);
    let _ = client.send(&release, effort).await;
    if is_blocked {
        // What waits can still have been on its way, and is granted behind the back of everybody. So it is released when
        // its connection has ended.
        drop(blocked.lock().await);
        let _ = client.send(&release, effort).await;
    }
}

struct Waiter<'a> {
    client: &'a Client,
    options: &'a Options,
    request: &'a Request,
    start: Instant,
    blocked: Blocked,
}

impl Waiter<'_> {
    async fn ask(&self, limit: WaitLimit) -> Result<Verdict> {
        let waiting = match limit {
            WaitLimit::Try => Waiting::Not,
            _ => Waiting::Queue,
        };
        let command = self.request.command(waiting);
        let effort = self.client.settings.effort();
        let effort = effort.until(limit.give_up_at(self.start));
        let mut listening = None;
        loop {
            let answer = self.client.send(&command, effort).await?;
            let sent = answer.sent;
            let channel = match outcome(answer.reply)? {
                Outcome::Granted(grant) => return Ok(Verdict::Granted { grant, sent }),
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
                    let Some(block) = limit.left(BLOCK) else {
                        return Err(self.not_acquired().await);
                    };
                    // A grant that comes now was sent for up to so long ago that its lease may be over by the clock of
                    // this process. Asking again answers the same hold with a new lease, or tells that it has lapsed.
                    let command = self.request.command(Waiting::Block(block));
                    // The reply to a BLOCK that ends with the wait may come as late as any other.
                    let effort = effort.until(effort.give_up_at.map(|end| end + effort.response));
                    let blocking =
                        self.client
                            .send_blocking(&command, block, effort, Some(&self.blocked));
                    blocking.await?;
                }
                Waits::SharedConnection => {
                    let Some(pause) = limit.left(PAUSE) else {
                        return Err(self.not_acquired().await);
                    };
                    self.wait_for_turn(&mut listening, &channel, pause).await;
                }
            }
        }
    }

    /// Waits for a message. Returns at once after it began to listen, because the turn may have come before.
    async fn wait_for_turn(
        &self,
        listening: &mut Option<Listening>,
        channel: &str,
        pause: Duration,
    ) {
        let announcements = self.client.announcements();
        if let Some(listening) = listening
            && announcements.is_heard(listening, channel)
        {
            return listening.wait(pause).await;
        }
        *listening = None;
        match announcements.listen(channel).await {
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
