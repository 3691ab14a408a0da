//! What a request was granted: a hold, and what members of a group and runs of work have besides.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::bounds;
use crate::clock::Moment;
use crate::ending::{self, Ending};
use crate::error::{Error, Loss, Result};
use crate::lease::Lease;
use crate::request::{Command, Grant, Request, read};
use crate::sync::Client;
use crate::sync::renewal::{self, Shared};

/// A hold of a lock or of a semaphore's permits. Dropping it releases it.
///
/// A thread renews its lease at each third. The work should look at [`is_lost`](Hold::is_lost) between its steps, or
/// be told by [`on_lost`](Hold::on_lost), and stop when the hold is lost.
pub struct Hold {
    shared: Arc<Shared>,
    is_settled: bool,
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
        renewal::start(&shared);
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
        self.loss().map_or(Ok(()), |loss| Err(self.lost(loss)))
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

    /// Waits until the hold is lost, at most so long. Returns why, or `None` when it is not lost by then.
    pub fn wait_lost(&self, at_most: Duration) -> Option<Loss> {
        self.shared.lease.wait(at_most)
    }

    /// Has a function called in a thread of its own when the hold is lost. It is not called once the hold was released.
    ///
    /// The error says that the operating system did not start the thread.
    pub fn on_lost(&self, callback: impl FnOnce(Loss) + Send + 'static) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let watch = move || {
            // Every hold ends: it is released, or lost when nobody renews it.
            while !shared.lease.is_over() {
                if let Some(loss) = shared.lease.wait(Duration::from_secs(3600)) {
                    return callback(loss);
                }
            }
        };
        let thread = thread::Builder::new().name("dsync-watch".to_owned());
        thread.spawn(watch).map(drop)
    }

    /// Releases the hold. While the server does not answer, this is repeated for as long as the lease is long and five
    /// seconds more, as a server that takes over gives the lease anew; a hold that is lost already is released by one
    /// attempt.
    ///
    /// Returns [`Error::HoldLost`] when the hold had ended before: others may have worked at the same time.
    pub fn release(mut self) -> Result<()> {
        let patience = match self.loss() {
            None => self.patience(),
            Some(_) => Duration::ZERO,
        };
        let release = self.shared.request.verb("RELEASE");
        self.settle(&release, patience)
    }

    fn patience(&self) -> Duration {
        ending::patience(self.shared.lease.length())
    }

    /// Sends the command that ends the hold until it is answered.
    fn settle(&mut self, command: &Command, patience: Duration) -> Result<()> {
        self.is_settled = true;
        let lease = &self.shared.lease;
        if lease.is_of_the_parent() {
            return Err(self.lost(Loss::Forked));
        }
        let loss = lease.over();
        let client = &self.shared.client;
        let mut call = client.call(command);
        call.effort = call.effort.with_patience(patience);
        let answer = match client.send(call) {
            Err(error) if error.tells_the_end() => {
                return Err(self.lost(loss.unwrap_or(Loss::Ended)));
            }
            answer => answer?,
        };
        match loss {
            _ if read::<u64>(&answer.reply)? > 0 => Ok(()),
            // The reply to an earlier attempt was lost, and this one found nothing left to do.
            None if answer.is_repeated => Ok(()),
            loss => Err(self.lost(loss.unwrap_or(Loss::Ended))),
        }
    }

    /// Ends the hold by one attempt of the caller, and where the server does not answer by a thread that goes on.
    fn settle_without_caller(&mut self, command: Command) {
        let response = self.settle(&command, Duration::ZERO);
        if !response.is_err_and(|error| error.is_unreachable()) {
            return;
        }
        let (client, patience) = (self.shared.client.clone(), self.patience());
        let thread = thread::Builder::new().name("dsync-settle".to_owned());
        let _ = thread.spawn(move || {
            let mut call = client.call(&command);
            call.effort = call.effort.with_patience(patience);
            let _ = client.send(call);
        });
    }

    fn lost(&self, loss: Loss) -> Error {
        Error::HoldLost {
            key: self.key().to_owned(),
            fence: self.fence(),
            loss,
        }
    }
}

impl Drop for Hold {
    /// Releases the hold by one attempt. If the server does not answer it, a thread repeats it for as long as
    /// [`release`](Hold::release) would; if the process ends first, the lease ends the hold.
    fn drop(&mut self) {
        if !self.is_settled {
            let release = self.shared.request.verb("RELEASE");
            self.settle_without_caller(release);
        }
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
    pub fn done(mut self) -> Result<()> {
        let (done, patience) = (self.0.shared.request.verb("DONE"), self.0.patience());
        self.0.settle(&done, patience)
    }

    /// Ends the membership without counting it, as [`Hold::release`] ends a hold. A job that the group expects stays owed.
    pub fn release(self) -> Result<()> {
        self.0.release()
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
    /// five seconds more.
    ///
    /// It counts after a lapse too, as long as no newer attempt began and nobody was told that the work was given up.
    /// Otherwise it returns [`Error::HoldLost`]. A result that the server does not take is an error, and the attempt is
    /// recorded as failed with that reason: it counts.
    pub fn done(mut self, result: Option<&[u8]>) -> Result<()> {
        let patience = self.hold.patience();
        let done = self.ending.done(&self.hold.shared.request, result);
        let answer = match bounds::result(result) {
            Ok(()) => self.hold.settle(&done, patience),
            refused => refused,
        };
        if let Err(error) = &answer
            && error.is_refusal()
        {
            let _ = self.fail_within(&format!("the result was refused: {error}"), patience);
        }
        answer
    }

    /// Records that the attempt has failed, and why; others see the first 4096 bytes of the reason. The next in line
    /// begins, after [`Once::retry_delay`](crate::Once::retry_delay) if that is set.
    ///
    /// Returns [`Error::HoldLost`] when the run had ended before.
    pub fn fail(mut self, reason: &str) -> Result<()> {
        let patience = self.hold.patience();
        self.fail_within(reason, patience)
    }

    fn fail_within(&mut self, reason: &str, patience: Duration) -> Result<()> {
        let [fail, bare] = self.ending.fail(&self.hold.shared.request, reason);
        match self.hold.settle(&fail, patience) {
            Err(error) if error.is_refusal() => self.hold.settle(&bare, patience),
            answer => answer,
        }
    }

    /// Hands the work back without counting the attempt: for a clean shutdown.
    pub fn release(mut self) -> Result<()> {
        let patience = self.hold.patience();
        let release = self.hold.shared.request.verb("RELEASE");
        self.hold.settle(&release, patience)
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
        if thread::panicking() && !self.hold.is_settled {
            let [fail, _] = self
                .ending
                .fail(&self.hold.shared.request, "the worker panicked");
            self.hold.settle_without_caller(fail);
        }
    }
}
