//! The only function that changes a state.
//!
//! The server that decides and its replicas both use [`Body::apply`], so their states are equal. `apply` checks every
//! change, because it may come from a file.

use std::fmt;
use std::sync::Arc;

use super::Body;
use crate::change::{Change, Displaced};
use crate::families::group::WaitGroup;
use crate::families::once::Once;
use crate::families::semaphore::Semaphore;
use crate::hold::Hold;
use crate::types::UnixMs;

/// Why a change does not fit the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misfit {
    /// The change is of another family.
    Family,
    /// Another hold has the fence or the token, or the present holds leave no room for the change.
    Taken,
    /// No hold has this fence.
    NoHold,
    /// There is no room for another state.
    Full,
    /// Changes follow a VANISH.
    Vanished,
    /// A kept place has the token or the number already.
    PlaceTaken,
    /// No kept place has this number.
    NoPlace,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Misfit::Family => "the key is of another family",
            Misfit::Taken => "its fence or its token is taken, or the key is held otherwise",
            Misfit::NoHold => "no hold of the key has its fence",
            Misfit::Full => "there is no room for another key",
            Misfit::Vanished => "the key vanishes, and yet more happens to it",
            Misfit::PlaceTaken => "another kept place has its token or its number",
            Misfit::NoPlace => "no kept place has its number",
        })
    }
}

impl Body {
    /// Applies one change. Returns the hold that it ended, if any.
    ///
    /// # Errors
    /// If the change does not fit. Then nothing has changed.
    pub fn apply(&mut self, change: &Change) -> Result<Option<Hold>, Misfit> {
        match change {
            Change::Grant(grant) => {
                if grant.claim.family() != self.family() {
                    return Err(Misfit::Family);
                }
                let is_full = match self {
                    Body::Lock(lock) => !lock.admits(grant.claim),
                    Body::Once(once) => !once.admits(),
                    Body::Semaphore(_) | Body::Group(_) => false,
                };
                if is_full || !self.holds().accepts(grant.fence, &grant.token) {
                    return Err(Misfit::Taken);
                }
                match self {
                    Body::Group(group) => group.begin(grant.granted),
                    Body::Once(once) => once.begun(grant.granted),
                    Body::Lock(_) | Body::Semaphore(_) => {}
                }
                self.insert(Hold::new(grant));
            }
            Change::Renew {
                fence,
                lease,
                deadline,
            } => {
                let holds = self.holds_mut().ok_or(Misfit::NoHold)?;
                if !holds.renew(*fence, *lease, *deadline) {
                    return Err(Misfit::NoHold);
                }
                match self {
                    Body::Group(group) => group.heard(),
                    Body::Once(once) => once.heard(),
                    Body::Lock(_) | Body::Semaphore(_) => {}
                }
            }
            Change::End { fence, how, at } => {
                let ended = self.remove(*fence).ok_or(Misfit::NoHold)?;
                if let Body::Once(once) = self {
                    once.ended(&ended, *how, *at);
                }
                if let Body::Group(group) = self {
                    group.ended(*how, *at);
                }
                return Ok(Some(ended));
            }
            Change::Limit(limit) => match self {
                Body::Lock(_) | Body::Once(_) => return Err(Misfit::Family),
                Body::Semaphore(semaphore) => semaphore.ask_limit(*limit),
                Body::Group(group) => group.ask_limit(*limit),
            },
            Change::Pin(limit) => self.semaphore()?.pin(*limit),
            Change::Expect { jobs, at } => self.group()?.expect(*jobs, *at),
            Change::Finish { keep_until } => {
                let group = self.group()?;
                if !group.members.is_empty() {
                    return Err(Misfit::Taken);
                }
                group.finish(*keep_until);
            }
            Change::Limits(limits) => self.semaphore()?.set_limits(*limits),
            Change::Tally(tally) => {
                let group = self.group()?;
                if tally.finished.is_some() && !group.members.is_empty() {
                    return Err(Misfit::Taken);
                }
                group.set_tally(*tally);
            }
            Change::Fail { fence, reason, at } => {
                self.once()?;
                let ended = self.remove(*fence).ok_or(Misfit::NoHold)?;
                self.once()?.failed(Arc::clone(reason), *at);
                return Ok(Some(ended));
            }
            Change::Complete { fence, done } => {
                let has_run = !self.once()?.runs().is_empty();
                let ended = match fence {
                    Some(fence) => Some(self.remove(*fence).ok_or(Misfit::NoHold)?),
                    None if has_run => return Err(Misfit::Taken),
                    None => None,
                };
                self.once()?.complete(done.clone());
                return Ok(ended);
            }
            Change::GiveUp => self.once()?.given_up(),
            Change::Record(record) => {
                let once = self.once()?;
                if !once.accepts(record) {
                    return Err(Misfit::Taken);
                }
                once.set_record(record.clone());
            }
            Change::Delay { until } => {
                let once = self.once()?;
                if !once.accepts_delay() {
                    return Err(Misfit::Taken);
                }
                once.delay(*until);
            }
            Change::Pause { until } => self.pause(*until),
            Change::Unheard { fence, keep_ms } => {
                let holds = self.holds_mut().ok_or(Misfit::NoHold)?;
                if !holds.set_unheard(*fence, *keep_ms) {
                    return Err(Misfit::NoHold);
                }
            }
            Change::Displaced(displaced) => {
                if !self.can_displace(displaced)? {
                    return Err(Misfit::Taken);
                }
                self.set_displaced(Some(displaced.clone()));
            }
            // The engine removes the state; there is nothing to change in it.
            Change::Vanish => {}
            // The engine changes the queue.
            Change::Place(_) | Change::Leave { .. } => {}
        }
        Ok(None)
    }

    /// Whether the present holds can have displaced this, and nothing else: nobody has heard of them, and nothing else
    /// has happened since.
    fn can_displace(&mut self, displaced: &Displaced) -> Result<bool, Misfit> {
        let is_first = self.displaced().is_none();
        Ok(match displaced {
            Displaced::Late(_) => is_first && self.once()?.unheard_run().is_some(),
            Displaced::Round(_) => {
                let group = self.group()?;
                let tally = group.tally();
                let is_new = tally.expected.is_none() && tally.done == 0 && tally.lost == 0;
                is_first && is_new && group.is_unheard()
            }
        })
    }

    fn semaphore(&mut self) -> Result<&mut Semaphore, Misfit> {
        match self {
            Body::Semaphore(semaphore) => Ok(semaphore),
            Body::Lock(_) | Body::Group(_) | Body::Once(_) => Err(Misfit::Family),
        }
    }

    fn group(&mut self) -> Result<&mut WaitGroup, Misfit> {
        match self {
            Body::Group(group) => Ok(group),
            Body::Lock(_) | Body::Semaphore(_) | Body::Once(_) => Err(Misfit::Family),
        }
    }

    fn once(&mut self) -> Result<&mut Once, Misfit> {
        match self {
            Body::Once(once) => Ok(once),
            Body::Lock(_) | Body::Semaphore(_) | Body::Group(_) => Err(Misfit::Family),
        }
    }

    fn pause(&mut self, until: Option<UnixMs>) {
        let noted = match self {
            Body::Lock(lock) => return lock.pause(until),
            Body::Semaphore(semaphore) => &mut semaphore.paused_until,
            Body::Group(group) => &mut group.paused_until,
            Body::Once(once) => &mut once.paused_until,
        };
        noted.replace(until);
    }
}
