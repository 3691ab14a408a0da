//! What a request was granted: a hold, and what members of a group and runs of work have besides.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::bounds;
use crate::call::Call;
use crate::clock::Moment;
use crate::error::{Error, Loss, Result};
use crate::half::{Half, Shared};
use crate::lease::{Lease, Terms};
use crate::request::{Command, Grant, Request, read};
use crate::send::send;
use crate::sync::Client;
use crate::times::TAKEOVER_GRACE;

/// A hold of a lock or of a semaphore's permits. Its lease is renewed at each third.
///
/// For threads, dropping it releases it; the work should look at [`is_lost`](Hold::is_lost) between its steps, or be told by
/// [`on_lost`](Hold::on_lost), and stop when the hold is lost. For tasks, dropping it has a task release it, and
/// [`run`](Hold::run) cancels the work when the hold is lost.
pub struct Hold<C: Half = Client> {
    pub(crate) shared: Arc<Shared<C>>,
    is_settled: bool,
}

impl<C: Half> Hold<C> {
    pub(crate) fn new(
        half: &C,
        terms: Terms,
        request: Request,
        grant: Grant,
        sent: Moment,
    ) -> Hold<C> {
        let shared = Arc::new(Shared {
            half: half.clone(),
            lease: Lease::new(terms, sent),
            request,
            grant,
        });
        half.renew(&shared);
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
        self.loss().map_or(Ok(()), |loss| Err(self.lost_by(loss)))
    }

    /// Returns how long the hold lasts without another renewal, less the margin; zero when it is lost. While the server
    /// answers, this stays above half of the lease.
    pub fn left(&self) -> Duration {
        self.shared.lease.left()
    }

    /// Returns when the lease is over, unless it is renewed: counted from the last answered request, without the margin.
    /// What must not outlast the hold is to be over by then, also when the hold is already lost. The result is right for a
    /// look now: its clock stands still while the machine is suspended.
    pub fn lease_end(&self) -> Instant {
        self.shared.lease.end()
    }

    pub(crate) async fn renew_now(&self, lease: Option<Duration>) -> Result<()> {
        let of_hold = &self.shared.lease;
        if !of_hold.is_of_the_parent() {
            let wanted = of_hold.want(lease)?;
            self.shared.half.renew_earlier();
            if let Some(refusal) = of_hold.answered::<C>(wanted).await {
                let Shared { half, request, .. } = &*self.shared;
                let command = request.renewal(of_hold.length());
                return Err(refusal.of(&command, half.server().name()));
            }
        }
        self.ensure_held()
    }

    /// A hold that was lost before is told as lost, also where the server still had it.
    pub(crate) async fn give_back(&mut self) -> Result<()> {
        let release = self.shared.request.verb("RELEASE");
        let loss = self.loss();
        let answer = self.settle(release, self.release_for()).await;
        loss.map_or(answer, |loss| Err(self.lost_by(loss)))
    }

    /// A hold that is lost already is released by one attempt.
    fn release_for(&self) -> Duration {
        match self.loss() {
            None => self.end_for(),
            Some(_) => Duration::ZERO,
        }
    }

    /// How long RELEASE, DONE and FAIL are repeated while the server does not answer: a server that is promoted meanwhile
    /// gives the lease anew.
    fn end_for(&self) -> Duration {
        self.shared.lease.length() + TAKEOVER_GRACE
    }

    /// Sends the command that ends the hold, also if it is lost: the server's word counts.
    async fn end(&mut self, command: Command) -> Result<()> {
        self.settle(command, self.end_for()).await
    }

    /// Sends the command that ends the hold until it is answered.
    async fn settle(&mut self, command: Command, retry_for: Duration) -> Result<()> {
        self.is_settled = true;
        let lease = &self.shared.lease;
        if lease.is_of_the_parent() {
            return Err(self.lost_by(Loss::Forked));
        }
        let loss = lease.over();
        let half = self.shared.half.clone();
        let is_answered_again = command.is_answered_again;
        let is_confirmed = command.confirm.is_some();
        let mut commands = vec![command];
        if is_confirmed && loss.is_none() {
            let mut renewal = self.shared.request.renewal(lease.length());
            renewal.confirm = None;
            commands.insert(0, renewal);
        }
        let unsent = self.unsent(commands.last());
        let sending = async move {
            let effort = half.effort().with_retry_for(retry_for);
            let call = Call {
                commands: &commands,
                keeps_line: is_confirmed,
                ..Call::new(&commands[0], effort)
            };
            unsent.unless(send(&half, call)).await
        };
        let had_ended = || Err(self.lost_by(loss.unwrap_or(Loss::Ended)));
        let answer = match self.shared.half.to_the_end(None, sending).await {
            Err(error) if error.tells_the_end() => return had_ended(),
            answer => answer?,
        };
        match loss {
            _ if read::<u64>(&answer.reply)? > 0 => Ok(()),
            // The reply to an earlier attempt was lost, and this one found nothing left to do.
            None if answer.is_repeated && !is_answered_again => Ok(()),
            _ => had_ended(),
        }
    }

    /// Ends a hold that is dropped. What is worth one attempt only is sent in the background.
    fn conclude(&mut self, command: Command, retry_for: Duration) {
        if !self.is_settled && !self.shared.lease.is_of_the_parent() {
            self.is_settled = true;
            self.shared.lease.over();
            let half = self.shared.half.clone();
            if retry_for.is_zero() || !half.conclude(&command) {
                let unsent = self.unsent(Some(&command));
                half.clone().in_background(async move {
                    let effort = half.effort().with_retry_for(retry_for);
                    let _ = unsent
                        .unless(send(&half, Call::new(&command, effort)))
                        .await;
                });
            }
        }
    }

    fn unsent(&self, command: Option<&Command>) -> Unsent<C> {
        Unsent {
            half: self.shared.half.clone(),
            command: command.cloned(),
        }
    }

    pub(crate) fn lost_by(&self, loss: Loss) -> Error {
        Error::HoldLost {
            key: self.key().to_owned(),
            fence: self.fence(),
            loss,
        }
    }
}

/// The command that ends a hold, until a task has sent it. A runtime that ends drops its tasks, and this ends the hold.
struct Unsent<C: Half> {
    half: C,
    command: Option<Command>,
}

impl<C: Half> Unsent<C> {
    async fn unless<T>(mut self, sent: impl Future<Output = T>) -> T {
        let answer = sent.await;
        self.command = None;
        answer
    }
}

impl<C: Half> Drop for Unsent<C> {
    fn drop(&mut self) {
        if let Some(command) = &mut self.command {
            command.confirm = None;
            self.half.conclude_without_runtime(command);
        }
    }
}

impl<C: Half> Drop for Hold<C> {
    /// Releases the hold by one attempt, of a task in the background. If the server does not answer it, a thread or a task
    /// repeats it for as long as [`release`](Hold::release) would. If the runtime ends first, or there is none, this thread
    /// releases the hold by one attempt of at most a second; if the process ends first, the lease ends the hold. A hold that
    /// is lost is released by one attempt in the background.
    fn drop(&mut self) {
        let release = self.shared.request.verb("RELEASE");
        self.conclude(release, self.release_for());
    }
}

impl<C: Half> fmt::Debug for Hold<C> {
    /// Leaves out the token, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", &self.key())
            .field("fence", &self.fence())
            .field("loss", &self.loss())
            .finish_non_exhaustive()
    }
}

/// A membership of a group. Dropping it ends it without counting it.
#[derive(Debug)]
pub struct Member<C: Half = Client>(pub(crate) Hold<C>);

/// An attempt of the work, which this process is to make. Dropping it hands the work back without counting the attempt;
/// during a panic it counts as failed.
#[derive(Debug)]
pub struct Run<C: Half = Client>(pub(crate) Hold<C>);

impl<C: Half> Member<C> {
    pub(crate) async fn finish(mut self) -> Result<()> {
        self.0.end(self.0.shared.request.done(None)).await
    }
}

impl<C: Half> Run<C> {
    /// Returns which attempt this is; 1 is the first. From 2 on, an earlier worker failed or died, perhaps half-way.
    pub fn attempt(&self) -> u64 {
        self.0.shared.grant.attempt
    }

    /// Records the result, or why there is none that could be recorded.
    pub(crate) async fn finish(mut self, result: Result<Option<impl AsRef<[u8]>>>) -> Result<()> {
        let request = &self.0.shared.request;
        let done = result.and_then(|result| {
            let result = result.as_ref().map(AsRef::as_ref);
            bounds::result(result).map(|()| request.done(result))
        });
        let answer = match done {
            Ok(done) => self.0.end(done).await,
            Err(refused) => Err(refused),
        };
        if let Err(error) = &answer
            && error.is_refusal()
        {
            let reason = format!("the result was refused: {error}");
            let _ = self.give_up(&reason).await;
        }
        answer
    }

    pub(crate) async fn give_up(mut self, reason: &str) -> Result<()> {
        let [fail, bare] = self.0.shared.request.fail(Some(reason));
        match self.0.end(fail).await {
            Err(error) if error.is_refusal() => self.0.end(bare).await,
            answer => answer,
        }
    }
}

impl<C: Half> Deref for Member<C> {
    type Target = Hold<C>;

    fn deref(&self) -> &Hold<C> {
        &self.0
    }
}

impl<C: Half> Deref for Run<C> {
    type Target = Hold<C>;

    fn deref(&self) -> &Hold<C> {
        &self.0
    }
}

impl<C: Half> Drop for Run<C> {
    fn drop(&mut self) {
        if thread::panicking() {
            let [fail, _] = self.0.shared.request.fail(Some("the worker panicked"));
            self.0.conclude(fail, self.0.end_for());
        }
    }
}
