//! The functions that both halves have: those of the synchronous one block, those of the other are async.

use std::time::Duration;

use crate::bounds;
use crate::effort::WaitLimit;
use crate::error::{Holder, Result};
use crate::hold::{Hold, Member, Run};
use crate::once::{Begun, Outcome};
use crate::options::{Claim, Group, Lock, Once, Semaphore, Tally};
use crate::request::unexpected;
use crate::server::Server;
use crate::uses::{acquire, all_of, begin, done, expect, fail, info, result, wait};

/// Blocks the thread for a step that is never pending.
macro_rules! block {
    ($step:expr) => {
        crate::signal::now($step)
    };
}

#[cfg(feature = "tokio")]
macro_rules! wait {
    ($step:expr) => {
        $step.await
    };
}

/// What locks and semaphores have alike.
macro_rules! acquires {
    ($type:ident, $client:ty, $run:ident $(, $async:tt)?) => {
        impl $type<$client> {
            /// Returns who holds it, the first thousand. Takes nothing.
            pub $($async)? fn holders(&self) -> Result<Vec<Holder>> {
                Ok($run!(info(&self.client, &self.options))?.holders)
            }

            /// Waits without limit until it is held.
            pub $($async)? fn acquire(&self) -> Result<Hold<$client>> {
                $run!(acquire(&self.client, &self.options, WaitLimit::Unlimited))
            }

            /// Waits at most so long. Returns [`Error::NotAcquired`](crate::Error::NotAcquired) when the time is up.
            pub $($async)? fn acquire_for(&self, wait: Duration) -> Result<Hold<$client>> {
                let limit = WaitLimit::at_most(wait);
                $run!(acquire(&self.client, &self.options, limit))
            }

            /// Takes it if it is free and nobody waits for it. Returns
            /// [`Error::NotAcquired`](crate::Error::NotAcquired) otherwise.
            pub $($async)? fn try_acquire(&self) -> Result<Hold<$client>> {
                $run!(acquire(&self.client, &self.options, WaitLimit::Try))
            }
        }
    };
}

macro_rules! calls {
    ($client:ty, $run:ident $(, $async:tt)?) => {
        impl $client {
            /// Makes a client of the server at a URL, as [`Server::at`] reads it. Nothing is sent yet.
            pub fn open(address: impl redis::IntoConnectionInfo) -> Result<Self> {
                Server::at(address).map(Self::new)
            }

            /// Sets how long requests are repeated while the server cannot be reached, or is not able to serve (`READONLY`,
            /// `LOADING`, `CLUSTERDOWN` and the like), counted from the first failure. 30 seconds unless set. A renewal is
            /// repeated until the hold is lost, whatever is set here.
            #[must_use]
            pub fn with_retry_for(mut self, time: Duration) -> Self {
                self.effort.retry_for = time;
                self
            }

            /// Sets how long to wait for a connection, and for the reply to a command that does not wait, before both are
            /// tried anew: 1 ms to 30 days. Two seconds unless set. A server is given so much longer to answer a
            /// wait.
            #[must_use]
            pub fn with_response_timeout(mut self, timeout: Duration) -> Self {
                let (shortest, longest, _) = bounds::LEASE;
                self.effort.response = timeout.clamp(shortest, longest);
                self
            }

            /// Asks the server for a sign of life, once: for telling early that an address or a password is wrong.
            pub $($async)? fn ping(&self) -> Result<()> {
                $run!(crate::send::ping(self))
            }

            /// Names a lock.
            pub fn lock(&self, key: impl Into<String>) -> Lock<$client> {
                Lock::new(self.clone(), key.into())
            }

            /// Names a semaphore.
            pub fn semaphore(&self, key: impl Into<String>) -> Semaphore<$client> {
                Semaphore::new(self.clone(), key.into())
            }

            /// Names a wait group.
            pub fn group(&self, key: impl Into<String>) -> Group<$client> {
                Group::new(self.clone(), key.into())
            }

            /// Waits without limit until all these locks and semaphores are held. They are asked for in the order of their
            /// keys, whatever their order here, so that two who want the same ones do not wait for each other. Where one is
            /// not acquired, those before it are released. The holds come in the order of the claims.
            pub $($async)? fn all_of(
                &self,
                claims: impl IntoIterator<Item = impl Into<Claim<$client>>>,
            ) -> Result<Vec<Hold<$client>>> {
                let claims = claims.into_iter().map(Into::into).collect();
                $run!(all_of(claims, WaitLimit::Unlimited))
            }

            /// Waits as [`all_of`](Self::all_of) does, at most so long in all.
            pub $($async)? fn all_of_for(
                &self,
                claims: impl IntoIterator<Item = impl Into<Claim<$client>>>,
                wait: Duration,
            ) -> Result<Vec<Hold<$client>>> {
                let claims = claims.into_iter().map(Into::into).collect();
                $run!(all_of(claims, WaitLimit::at_most(wait)))
            }

            /// Names work that is done once.
            pub fn once(&self, key: impl Into<String>) -> Once<$client> {
                Once::new(self.clone(), key.into())
            }
        }

        acquires!(Lock, $client, $run $(, $async)?);
        acquires!(Semaphore, $client, $run $(, $async)?);

        impl Lock<$client> {
            /// Whether anybody holds the lock. Takes nothing.
            pub $($async)? fn locked(&self) -> Result<bool> {
                Ok(!$run!(info(&self.client, &self.options))?.holders.is_empty())
            }
        }

        impl Semaphore<$client> {
            /// Whether fewer permits are free than this semaphore asks for. Takes nothing.
            pub $($async)? fn locked(&self) -> Result<bool> {
                let free = self.free(&$run!(info(&self.client, &self.options))?);
                Ok(free.is_some_and(|free| free < self.wanted()))
            }

            /// Returns how many permits are free; `None` where no limit is known. Takes nothing.
            pub $($async)? fn available(&self) -> Result<Option<u64>> {
                Ok(self.free(&$run!(info(&self.client, &self.options))?))
            }
        }

        impl Group<$client> {
            /// Joins the group. Where the group has a limit, waits without limit until fewer members are at work.
            pub $($async)? fn add(&self) -> Result<Member<$client>> {
                $run!(acquire(&self.client, &self.options, WaitLimit::Unlimited)).map(Member)
            }

            /// Joins the group, and waits at most so long for its limit. Returns
            /// [`Error::NotAcquired`](crate::Error::NotAcquired) when the time is up.
            pub $($async)? fn add_for(&self, wait: Duration) -> Result<Member<$client>> {
                $run!(acquire(&self.client, &self.options, WaitLimit::at_most(wait))).map(Member)
            }

            /// Joins the group if its limit allows it and nobody waits. Returns
            /// [`Error::NotAcquired`](crate::Error::NotAcquired) otherwise.
            pub $($async)? fn try_add(&self) -> Result<Member<$client>> {
                $run!(acquire(&self.client, &self.options, WaitLimit::Try)).map(Member)
            }

            /// Declares how many jobs this round has, 1 to 1,000,000, so that a wait does not end before all were added.
            /// Returns how many are still owed.
            pub $($async)? fn expect(&self, jobs: u32) -> Result<u64> {
                $run!(expect(self, jobs))
            }

            /// Waits without limit until the round is finished: no member is at work, and as many as expected are done.
            ///
            /// A group that does not exist is finished. When the group is removed during the wait, this is an error
            /// (`UNBLOCKED`).
            pub $($async)? fn wait(&self) -> Result<Tally> {
                let tally = $run!(wait(self, WaitLimit::Unlimited))?;
                tally.ok_or_else(|| unexpected(&redis::Value::Nil).into())
            }

            /// Waits at most so long. Returns `None` when the round is not finished by then.
            pub $($async)? fn wait_for(&self, time: Duration) -> Result<Option<Tally>> {
                $run!(wait(self, WaitLimit::at_most(time)))
            }
        }

        impl Once<$client> {
            /// Waits without limit until the work is done or this process is to do it. Returns
            /// [`Error::WorkFailed`](crate::Error::WorkFailed) when it was given up.
            pub $($async)? fn begin(&self) -> Result<Begun<Run<$client>>> {
                $run!(begin(self, WaitLimit::Unlimited))
            }

            /// Waits at most so long. Returns [`Error::NotAcquired`](crate::Error::NotAcquired) when the time is up and
            /// another process is still at work.
            pub $($async)? fn begin_for(&self, wait: Duration) -> Result<Begun<Run<$client>>> {
                $run!(begin(self, WaitLimit::at_most(wait)))
            }

            /// Begins if nobody is at work. Returns [`Error::NotAcquired`](crate::Error::NotAcquired) otherwise.
            pub $($async)? fn try_begin(&self) -> Result<Begun<Run<$client>>> {
                $run!(begin(self, WaitLimit::Try))
            }

            /// Returns what has become of the work. Begins nothing.
            pub $($async)? fn result(&self) -> Result<Outcome> {
                $run!(result(self))
            }

            /// Records as done the attempt of this [`token`](Once::token), which another process has begun. While the
            /// server does not answer, this is repeated as other requests are. Returns whether the token has an attempt.
            ///
            /// For the tool `dsync`. What begins an attempt ends it with [`Run::done`], which does more.
            #[doc(hidden)]
            pub $($async)? fn done(&self, result: Option<&[u8]>) -> Result<bool> {
                $run!(done(self, result))
            }

            /// Records such an attempt as failed. Returns whether the token has one, or may have had one until an answer
            /// was lost.
            #[doc(hidden)]
            pub $($async)? fn fail(&self, reason: Option<&str>) -> Result<bool> {
                $run!(fail(self, reason))
            }
        }

        impl Hold<$client> {
            /// Renews the hold now. Returns when the server has answered, and confirmed it where the hold is a confirmed
            /// one. Until then it is repeated.
            ///
            /// Returns [`Error::HoldLost`](crate::Error::HoldLost) when the hold is lost, or is lost before that.
            pub $($async)? fn renew(&self) -> Result<()> {
                $run!(self.renew_now(None))
            }

            /// Renews the hold now, and gives it another lease, which counts from then on.
            pub $($async)? fn renew_for(&self, lease: Duration) -> Result<()> {
                $run!(self.renew_now(Some(lease)))
            }

            /// Releases the hold. While the server does not answer, this is repeated for as long as the lease is long and
            /// five seconds more, as a server that takes over gives the lease anew; a hold that is lost already is released
            /// by one attempt. For tasks, it goes on when the future is dropped.
            ///
            /// Returns [`Error::HoldLost`](crate::Error::HoldLost) when the hold is lost, or had ended before: others may
            /// have worked at the same time.
            pub $($async)? fn release(mut self) -> Result<()> {
                $run!(self.give_back())
            }
        }

        impl Member<$client> {
            /// Ends the membership and counts it as done. While the server does not answer, this is repeated as
            /// [`Hold::release`] is.
            ///
            /// Returns [`Error::HoldLost`](crate::Error::HoldLost) when the membership had ended before: then it is not
            /// counted as done.
            pub $($async)? fn done(self) -> Result<()> {
                $run!(self.finish())
            }

            /// Ends the membership without counting it, as [`Hold::release`] ends a hold. A job that the group expects stays
            /// owed.
            pub $($async)? fn release(mut self) -> Result<()> {
                $run!(self.0.give_back())
            }
        }

        impl Run<$client> {
            /// Records that the work is done. Everybody else, waiting or late, gets the result: any bytes, at most
            /// `dsync.max-result-bytes`. While the server does not answer, this is repeated for as long as the lease is long
            /// and five seconds more. For tasks, it goes on when the future is dropped.
            ///
            /// It counts after a lapse too, as long as no newer attempt began and nobody was told that the work was given
            /// up. Otherwise it returns [`Error::HoldLost`](crate::Error::HoldLost). A result that the server does not take
            /// is an error, and the attempt is recorded as failed with that reason: it counts.
            pub $($async)? fn done(self, result: Option<&[u8]>) -> Result<()> {
                $run!(self.finish(Ok(result)))
            }

            /// Records that the attempt has failed, and why; others see the first 1,000 bytes of the reason. The next in
            /// line begins, after [`Once::retry_delay`] if that is set.
            ///
            /// Returns [`Error::HoldLost`](crate::Error::HoldLost) when the run had ended before.
            pub $($async)? fn fail(self, reason: &str) -> Result<()> {
                $run!(self.give_up(reason))
            }

            /// Hands the work back without counting the attempt: for a clean shutdown.
            pub $($async)? fn release(mut self) -> Result<()> {
                $run!(self.0.give_back())
            }
        }
    };
}

calls!(crate::sync::Client, block);
#[cfg(feature = "tokio")]
calls!(crate::aio::Client, wait, async);
