//! How the hold ends when the command has ended, and what the caller is told.

use std::thread;
use std::time::Duration;

use dsync_client::{Error, Loss};

use super::child::Ending;
use super::clock::Moment;
use super::grant::Grant;
use super::job::{Event, Job, TRY};
use super::signals::ends_a_wait;
use super::watch::{Lost, Watched};
use crate::duration::short;
use crate::failure::{Failure, Result, Status};

/// A promoted or restarted server gives each lease at least so long anew (dsync.takeover-grace-ms), so the end of a
/// hold is told for so much longer than its lease.
const TAKEOVER_GRACE: Duration = Duration::from_secs(5);

/// How long a hold is released at most, so that a server that is gone does not keep the caller: the default lease, and
/// the takeover grace.
const LONGEST_RELEASE: Duration = Duration::from_secs(35);

/// After so long without an answer the user is told why the tool has not ended.
const SILENCE: Duration = Duration::from_secs(2);

impl Job {
    /// Ends the hold as the command's end demands. Returns the exit status.
    pub fn conclude(&self, grant: Grant, watched: Watched) -> Result<u8> {
        let (ending, loss, lease_end) = match watched {
            Watched::Ended {
                ending,
                loss,
                lease_end,
            } => (ending, loss, lease_end),
            Watched::Unstoppable { loss, refusal } => {
                forget(grant);
                let Lost { name, loss } = loss;
                let message = format!("{name} was lost: {loss}; {refusal}");
                return Err(Failure::new(Status::Unstoppable, message));
            }
        };
        let name = self.request.name();
        let decides = grant.records_success() && ending.is_success();
        let lost =
            |Lost { name, loss }| Failure::new(Status::Lost, format!("{name} was lost: {loss}"));
        let patience = match loss {
            // Finished work counts until somebody else begins it.
            Some(_) if decides => lease_end.left().max(TRY),
            Some(loss) => {
                // A server that answers is told that the other holds need not last until their leases are over.
                match grant.is_of_several() && loss.loss != Loss::Unanswered {
                    true => drop(self.settle(grant, None, TRY)),
                    false => forget(grant),
                }
                return Err(lost(loss));
            }
            None if decides => self.request.terms.lease + TAKEOVER_GRACE,
            None => (self.request.terms.lease + TAKEOVER_GRACE).min(LONGEST_RELEASE),
        };
        match (loss, self.settle(grant, Some(ending), patience)) {
            (None, Some(Ok(()))) => {
                self.notice.detail(&format!("{name} is released"));
                Ok(ending.status())
            }
            // The server still took it for done, so it counts although the lease had run out.
            (Some(_), Some(Ok(()))) => Ok(ending.status()),
            (Some(loss), _) => Err(lost(loss)),
            (None, Some(Err(Error::HoldLost { loss, .. }))) => {
                let message = format!("{name} was lost before the command ended: {loss}");
                Err(Failure::new(Status::Lost, message))
            }
            (None, unsettled) => {
                let why = match unsettled {
                    Some(Err(error)) => self.servers.failure(&name, &error),
                    _ => Failure::new(Status::Unreachable, "no answer in time"),
                };
                if decides {
                    let message =
                        format!("the command succeeded, but {name} could not be told: {why}");
                    return Err(Failure::new(why.status, message));
                }
                let left = short(lease_end.left());
                self.notice.error(&format!(
                    "{name} could not be released; its lease ends it within {left}: {why}"
                ));
                Ok(ending.status())
            }
        }
    }

    /// Ends the hold; without an ending, the command was not started. Returns `None` when the server did not answer in
    /// time. A signal leaves it little time: the one that ended the command may come here, too.
    pub fn settle(
        &self,
        grant: Grant,
        ending: Option<Ending>,
        patience: Duration,
    ) -> Option<std::result::Result<(), Error>> {
        let sender = self.sender.clone();
        let settle = move || {
            let settled = match ending {
                Some(ending) => grant.settle(ending),
                None => grant.give_back(),
            };
            let _ = sender.send(Event::Settled(settled));
        };
        let thread = thread::Builder::new().name("settle".into());
        thread.spawn(settle).ok()?;
        let start = Moment::now();
        let mut end = start + patience;
        let mut is_told = false;
        loop {
            let until = if is_told {
                end
            } else {
                end.min(start + SILENCE)
            };
            match self.next_event(until) {
                Some(Event::Settled(settled)) => return Some(settled),
                Some(Event::Signal(signal)) if ends_a_wait(signal) => {
                    end = end.min(Moment::now() + TRY);
                }
                Some(_) => {}
                None if end.is_past() => return None,
                None => {
                    is_told = true;
                    self.notice.say(&format!(
                        "{} does not answer; telling it the end of {} for another {}",
                        self.servers.name(),
                        self.request.name(),
                        short(end.left())
                    ));
                }
            }
        }
    }
}

/// Ends no hold. Dropping it would release it: a request to a server that does not answer, or that has ended the hold
/// itself.
fn forget(grant: Grant) {
    std::mem::forget(grant);
}
