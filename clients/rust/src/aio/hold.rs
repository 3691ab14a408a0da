//! What a task's request was granted.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Cmd;
use tokio::runtime::Handle;

use crate::aio::Client;
use crate::error::{Error, Loss, Result};
use crate::lease::Lease;
use crate::options::{Closing, Options};
use crate::request::{Request, read};

/// A hold of a lock or of a semaphore's permits. A task renews its lease at each third.
///
/// [`run`](Hold::run) cancels the work when the hold is lost. Dropping the hold has a task release it;
/// [`release`](Hold::release) waits for the answer.
#[derive(Debug)]
pub struct Hold {
    shared: Arc<Shared>,
    is_settled: bool,
}

/// What the hold shares with the task that renews it.
#[derive(Debug)]
struct Shared {
    client: Client,
    request: Request,
    lease: Lease,
    fence: u64,
}

impl Hold {
    pub(crate) fn new(
        client: &Client,
        options: &Options,
        request: Request,
        fence: u64,
        sent: Instant,
    ) -> Hold {
        let shared = Arc::new(Shared {
            client: client.clone(),
            lease: Lease::new(request.lease, options.margin, sent),
            request,
            fence,
        });
        tokio::spawn(renew(Arc::clone(&shared)));
        Hold {
            shared,
            is_settled: false,
        }
    }

    /// Returns the key.
    pub fn key(&self) -> &str {
        &self.shared.request.key
    }

    /// Returns the hold's public number. It only ever rises, so a resource that remembers the highest one that it has seen
    /// can refuse an older holder.
    pub fn fence(&self) -> u64 {
        self.shared.fence
    }

    /// Returns the secret name of the hold, for commands of one's own. Who has it can release and renew.
    pub fn token(&self) -> &str {
        &self.shared.request.token
    }

    /// Whether the hold is lost: the server has said so, or it has not renewed the lease in time by the monotonic clock of
    /// this process. A hold that is lost stays lost.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Returns why the hold is lost, `None` while it is not.
    pub fn loss(&self) -> Option<Loss> {
        self.shared.lease.loss()
    }

    /// Returns [`Error::HoldLost`] if the hold is lost.
    pub fn ensure_held(&self) -> Result<()> {
        self.loss()
            .map_or(Ok(()), |loss| Err(self.lost_error(loss)))
    }

    /// Returns how long the hold lasts without another renewal, less the margin; zero when it is lost. While the server
    /// answers, this stays above half of the lease.
    pub fn left(&self) -> Duration {
        self.shared.lease.left()
    }

    /// Waits until the hold is lost, and returns why. Never ends once the hold was released. The future lives on its own:
    /// other tasks may have it, and any number of them.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move {
            match shared.lease.lost().await {
                Some(loss) => loss,
                None => {
                    drop(shared);
                    std::future::pending().await
                }
            }
        }
    }

    /// Runs the work until it is done or the hold is lost. When the hold is lost, the work is dropped at its next await
    /// and [`Error::HoldLost`] is returned. What the work has spawned goes on: give it [`lost`](Hold::lost).
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        tokio::select! {
            biased;
            loss = self.lost() => Err(self.lost_error(loss)),
            output = work => Ok(output),
        }
    }

    /// Releases the hold. While the server does not answer, this is repeated for as long as the lease is long; a hold that
    /// is lost already is released by one attempt.
    ///
    /// Returns [`Error::HoldLost`] when the hold had ended before: others may have worked at the same time.
    pub async fn release(mut self) -> Result<()> {
        let patience = match self.loss() {
            None => self.shared.lease.length(),
            Some(_) => Duration::ZERO,
        };
        let release = self.shared.request.verb("RELEASE");
        self.settle(&release, patience).await
    }

    /// Sends the command that ends the hold until it is answered. When the future is dropped before, dropping the hold
    /// releases it.
    async fn settle(&mut self, command: &Cmd, patience: Duration) -> Result<()> {
        let loss = self.shared.lease.over();
        let answer = self.shared.client.send(command, patience).await?;
        self.is_settled = true;
        match loss {
            _ if read::<u64>(&answer.reply)? > 0 => Ok(()),
            // The reply to an earlier attempt was lost, and this one found nothing left to do.
            None if answer.is_repeated => Ok(()),
            loss => Err(self.lost_error(loss.unwrap_or(Loss::Ended))),
        }
    }

    /// Has a task send the command that ends the hold.
    fn settle_in_background(&mut self, command: Cmd) {
        self.is_settled = true;
        self.shared.lease.over();
        if let Ok(runtime) = Handle::try_current() {
            let client = self.shared.client.clone();
            runtime.spawn(async move {
                let _ = client.send(&command, Duration::ZERO).await;
            });
        }
    }

    fn lost_error(&self, loss: Loss) -> Error {
        Error::HoldLost {
            key: self.key().to_owned(),
            fence: self.fence(),
            loss,
        }
    }
}

impl Drop for Hold {
    /// Has a task release the hold. When the runtime ends first, or the server does not answer, the lease ends the hold.
    fn drop(&mut self) {
        if !self.is_settled {
            let release = self.shared.request.verb("RELEASE");
            self.settle_in_background(release);
        }
    }
}

async fn renew(hold: Arc<Shared>) {
    let mut has_failed = false;
    loop {
        let pause = hold.lease.renewal_in(has_failed);
        if tokio::time::timeout(pause, hold.lease.lost()).await.is_ok() {
            return;
        }
        has_failed = !renew_once(&hold).await;
    }
}

/// Returns whether the server has answered.
async fn renew_once(hold: &Shared) -> bool {
    let renewal = hold.request.renewal();
    // Half of what is left, so that another attempt on a new connection can follow.
    let response = hold.client.response_timeout().min(hold.lease.left() / 2);
    let response = response.max(Duration::from_millis(10));
    let answer = hold
        .client
        .send_with(&renewal, None, response, Duration::ZERO)
        .await;
    match answer {
        Ok(answer) => match read::<u64>(&answer.reply) {
            Ok(0) => hold.lease.ended(),
            Ok(_) => hold.lease.renewed(answer.sent),
            Err(_) => return false,
        },
        // Another value has replaced the key, and with it the hold.
        Err(Error::Redis(error)) if error.code() == Some("WRONGTYPE") => hold.lease.ended(),
        Err(_) => return false,
    }
    true
}

/// A membership of a group. Dropping it ends it without counting it.
#[derive(Debug)]
pub struct Member(Hold);

impl Member {
    pub(crate) fn new(hold: Hold) -> Member {
        Member(hold)
    }

    /// Ends the membership and counts it as done. While the server does not answer, this is repeated for as long as the
    /// lease is long.
    ///
    /// Returns [`Error::HoldLost`] when the membership had ended before: then it is not counted as done.
    pub async fn done(mut self) -> Result<()> {
        let (done, patience) = (
            self.0.shared.request.verb("DONE"),
            self.0.shared.lease.length(),
        );
        self.0.settle(&done, patience).await
    }

    /// Ends the membership without counting it, as [`Hold::release`] ends a hold. A job that the group expects stays owed.
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }
}

impl Deref for Member {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.0
    }
}

/// An attempt of the work, which this process is to make. Dropping it hands the work back without counting the attempt;
/// during a panic it counts as failed.
#[derive(Debug)]
pub struct Run {
    hold: Hold,
    attempt: u64,
    closing: Closing,
}

impl Run {
    pub(crate) fn new(hold: Hold, attempt: u64, closing: Closing) -> Run {
        Run {
            hold,
            attempt,
            closing,
        }
    }

    /// Returns which attempt this is; 1 is the first. From 2 on, an earlier worker failed or died, perhaps half-way.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Records that the work is done. Everybody else, waiting or late, gets the result: any bytes, at most
    /// `dsync.max-result-bytes`. While the server does not answer, this is repeated for as long as the lease is long.
    ///
    /// It counts after a lapse too, as long as no newer attempt began and nobody was told that the work was given up.
    /// Otherwise it returns [`Error::HoldLost`].
    pub async fn done(mut self, result: Option<&[u8]>) -> Result<()> {
        let done = self.closing.done(&self.hold.shared.request, result);
        self.settle(&done).await
    }

    /// Records that the attempt has failed, and why; others see the first 4096 bytes of the reason. The next in line
    /// begins, after [`Once::retry_delay`](crate::Once::retry_delay) if that is set.
    ///
    /// Returns [`Error::HoldLost`] when the run had ended before.
    pub async fn fail(mut self, reason: &str) -> Result<()> {
        let fail = self.closing.fail(&self.hold.shared.request, reason);
        self.settle(&fail).await
    }

    /// Hands the work back without counting the attempt: for a clean shutdown.
    pub async fn release(mut self) -> Result<()> {
        let release = self.hold.shared.request.verb("RELEASE");
        self.settle(&release).await
    }

    async fn settle(&mut self, command: &Cmd) -> Result<()> {
        let patience = self.hold.shared.lease.length();
        self.hold.settle(command, patience).await
    }
}

impl Deref for Run {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.hold.is_settled {
            let fail = self
                .closing
                .fail(&self.hold.shared.request, "the worker panicked");
            self.hold.settle_in_background(fail);
        }
    }
}
