//! What a task's request was granted.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::aio::Client;
use crate::bounds;
use crate::clock::Moment;
use crate::ending::{self, Ending};
use crate::error::{Error, Loss, Result};
use crate::lease::Lease;
use crate::request::{Command, Grant, Request, read};

/// A hold of a lock or of a semaphore's permits. A task renews its lease at each third.
///
/// [`run`](Hold::run) cancels the work when the hold is lost. Dropping the hold has a task release it;
/// [`release`](Hold::release) waits for the answer.
pub struct Hold {
    shared: Arc<Shared>,
    is_settled: bool,
    /// The command that is to end the hold, once that was begun.
    begun: Option<Command>,
}

/// What the hold shares with the task that renews it.
struct Shared {
    client: Client,
    request: Request,
    lease: Lease,
    grant: Grant,
}

impl Hold {
    pub(crate) fn new(
        client: &Client,
        margin: Option<Duration>,
        request: Request,
        grant: Grant,
        sent: Moment,
    ) -> Hold {
        let shared = Arc::new(Shared {
            client: client.clone(),
            lease: Lease::new(request.lease, margin, sent),
            request,
            grant,
        });
        tokio::spawn(renew(Arc::clone(&shared)));
        Hold {
            shared,
            is_settled: false,
            begun: None,
        }
    }

    /// Returns the key.
    pub fn key(&self) -> &str {
        &self.shared.request.key
    }

    /// Returns the hold's public number. It only ever rises, so a resource that remembers the highest one that it has seen
    /// can refuse an older holder.
    pub fn fence(&self) -> u64 {
        self.shared.grant.fence
    }

    /// Returns the lowest number from 0 that no other hold of the semaphore had at the grant; `None` unless it was asked
    /// for with [`Semaphore::index`](crate::Semaphore::index). A hold that is lost keeps it, and another may have it, too.
    pub fn index(&self) -> Option<u32> {
        self.shared.grant.index
    }

    /// Returns the secret name of the hold, for commands of one's own. Who has it can release and renew.
    pub fn token(&self) -> &str {
        &self.shared.request.token
    }

    /// Whether the hold is lost: the server has said so, or it has not renewed the lease in time by the clock of this
    /// machine, which goes on while it is suspended. A hold that is lost stays lost. In the child of a fork it is lost.
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

    /// Releases the hold. While the server does not answer, this is repeated for as long as the lease is long and five
    /// seconds more, as a server that takes over gives the lease anew; a hold that is lost already is released by one
    /// attempt.
    ///
    /// Returns [`Error::HoldLost`] when the hold had ended before: others may have worked at the same time.
    pub async fn release(mut self) -> Result<()> {
        let patience = match self.loss() {
            None => self.patience(),
            Some(_) => Duration::ZERO,
        };
        let release = self.shared.request.verb("RELEASE");
        self.settle(release, patience).await
    }

    fn patience(&self) -> Duration {
        ending::patience(self.shared.lease.length())
    }

    /// Sends the command that ends the hold until it is answered. When the future is dropped before, a task goes on.
    async fn settle(&mut self, command: Command, patience: Duration) -> Result<()> {
        let lease = &self.shared.lease;
        if lease.is_of_the_parent() {
            return Err(self.lost_error(Loss::Forked));
        }
        let loss = lease.over();
        let client = &self.shared.client;
        let effort = client.settings.effort().with_patience(patience);
        let command = self.begun.insert(command);
        self.is_settled = false;
        let answer = client.send(command, effort).await;
        self.is_settled = true;
        let answer = match answer {
            Err(error) if error.tells_the_end() => {
                return Err(self.lost_error(loss.unwrap_or(Loss::Ended)));
            }
            answer => answer?,
        };
        match loss {
            _ if read::<u64>(&answer.reply)? > 0 => Ok(()),
            // The reply to an earlier attempt was lost, and this one found nothing left to do.
            None if answer.is_repeated => Ok(()),
            loss => Err(self.lost_error(loss.unwrap_or(Loss::Ended))),
        }
    }

    /// Has a task send the command that ends the hold: the one that was begun, or else this one.
    fn settle_in_background(&mut self, command: Command) {
        if self.is_settled || self.shared.lease.is_of_the_parent() {
            return;
        }
        self.is_settled = true;
        self.shared.lease.over();
        if let Ok(runtime) = Handle::try_current() {
            let (client, patience) = (self.shared.client.clone(), self.patience());
            let command = self.begun.take().unwrap_or(command);
            runtime.spawn(async move {
                let effort = client.settings.effort().with_patience(patience);
                let _ = client.send(&command, effort).await;
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
    /// Has a task release the hold, which it repeats as [`release`](Hold::release) does. When the runtime ends first, the
    /// lease ends the hold.
    fn drop(&mut self) {
        let release = self.shared.request.verb("RELEASE");
        self.settle_in_background(release);
    }
}

impl fmt::Debug for Hold {
    /// Leaves out the token, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", &self.key())
            .field("fence", &self.fence())
            .field("loss", &self.loss())
            .finish_non_exhaustive()
    }
}

async fn renew(hold: Arc<Shared>) {
    let mut has_failed = false;
    loop {
        let due = hold.lease.renewal_due(has_failed);
        if hold.lease.ended_by(Some(due)).await.is_some() {
            return;
        }
        has_failed = !renew_once(&hold).await;
    }
}

/// Returns whether the server has answered.
async fn renew_once(hold: &Shared) -> bool {
    let renewal = hold.request.renewal();
    let mut effort = hold.client.settings.attempt();
    // Half of what is left, so that another attempt on a new connection can follow.
    let half = (hold.lease.left() / 2).max(Duration::from_millis(10));
    effort.response = effort.response.min(half);
    let answer = hold.client.send(&renewal, effort).await;
    match answer {
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

/// A membership of a group. Dropping it ends it without counting it.
#[derive(Debug)]
pub struct Member(Hold);

impl Member {
    pub(crate) fn new(hold: Hold) -> Member {
        Member(hold)
    }

    /// Ends the membership and counts it as done. While the server does not answer, this is repeated as
    /// [`Hold::release`] is.
    ///
    /// Returns [`Error::HoldLost`] when the membership had ended before: then it is not counted as done.
    pub async fn done(mut self) -> Result<()> {
        let (done, patience) = (self.0.shared.request.verb("DONE"), self.0.patience());
        self.0.settle(done, patience).await
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
    ending: Ending,
}

impl Run {
    pub(crate) fn new(hold: Hold, attempt: u64, ending: Ending) -> Run {
        Run {
            hold,
            attempt,
            ending,
        }
    }

    /// Returns which attempt this is; 1 is the first. From 2 on, an earlier worker failed or died, perhaps half-way.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Records that the work is done. Everybody else, waiting or late, gets the result: any bytes, at most
    /// `dsync.max-result-bytes`. While the server does not answer, this is repeated for as long as the lease is long and
    /// five seconds more; when the future is dropped, a task goes on.
    ///
    /// It counts after a lapse too, as long as no newer attempt began and nobody was told that the work was given up.
    /// Otherwise it returns [`Error::HoldLost`]. A result that the server does not take is an error, and the attempt is
    /// recorded as failed with that reason: it counts.
    pub async fn done(mut self, result: Option<&[u8]>) -> Result<()> {
        let done = self.ending.done(&self.hold.shared.request, result);
        let answer = match bounds::result(result) {
            Ok(()) => self.settle(done).await,
            refused => refused,
        };
        if let Err(error) = &answer
            && error.is_refusal()
        {
            let reason = format!("the result was refused: {error}");
            let _ = self.fail_for(&reason).await;
        }
        answer
    }

    /// Records that the attempt has failed, and why; others see the first 4096 bytes of the reason. The next in line
    /// begins, after [`Once::retry_delay`](crate::Once::retry_delay) if that is set.
    ///
    /// Returns [`Error::HoldLost`] when the run had ended before.
    pub async fn fail(mut self, reason: &str) -> Result<()> {
        self.fail_for(reason).await
    }

    async fn fail_for(&mut self, reason: &str) -> Result<()> {
        let [fail, bare] = self.ending.fail(&self.hold.shared.request, reason);
        match self.settle(fail).await {
            Err(error) if error.is_refusal() => self.settle(bare).await,
            answer => answer,
        }
    }

    /// Hands the work back without counting the attempt: for a clean shutdown.
    pub async fn release(mut self) -> Result<()> {
        let release = self.hold.shared.request.verb("RELEASE");
        self.settle(release).await
    }

    async fn settle(&mut self, command: Command) -> Result<()> {
        let patience = self.hold.patience();
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
        if std::thread::panicking() {
            let request = &self.hold.shared.request;
            let [fail, _] = self.ending.fail(request, "the worker panicked");
            self.hold.settle_in_background(fail);
        }
    }
}
