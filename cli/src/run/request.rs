//! What is held while the command runs, and how it is asked for and settled.

use std::ops::Deref;
use std::time::Duration;

use dsync_client::{Begun, Cancel, Client, Error, Hold, Member, Progress, Run};

use super::child::Ending;
use super::schedule::Schedule;
use crate::args;
use crate::text::printable;

type Answer = Result<Outcome, Error>;

/// What the command line asks for.
#[derive(Clone)]
pub struct Request {
    pub key: Key,
    pub lease: Duration,
    pub schedule: Schedule,
    pub owner: String,
    pub wait: Wait,
}

#[derive(Clone)]
pub enum Key {
    Lock {
        key: String,
        shared: bool,
        min_hold: Option<Duration>,
    },
    Semaphore {
        key: String,
        limit: Option<u32>,
        permits: u32,
        lane: Option<String>,
        lane_limit: Option<u32>,
        min_hold: Option<Duration>,
        index: bool,
    },
    Once {
        key: String,
        max: Option<u32>,
        delay: Option<Duration>,
        keep: Keep,
    },
    Group {
        key: String,
        limit: Option<u32>,
    },
}

#[derive(Clone, Copy)]
pub enum Keep {
    AsTheServerSays,
    For(Duration),
    Forever,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Not,
    AtMost(Duration),
    Unlimited,
}

/// What a request came to.
pub enum Outcome {
    Granted(Grant),
    /// The work was done before, by this attempt.
    DoneAlready {
        attempt: u64,
    },
}

/// A hold, and what it is for.
pub enum Grant {
    Hold(Hold),
    Member(Member),
    Run(Run),
}

impl Request {
    /// Reads the command line. Exactly one key is named there.
    pub fn of(options: &args::Run, schedule: Schedule) -> Request {
        let key = match (
            &options.lock,
            &options.semaphore,
            &options.once,
            &options.group,
        ) {
            (Some(key), ..) => Key::Lock {
                key: key.clone(),
                shared: options.shared,
                min_hold: options.min_hold,
            },
            (_, Some(key), ..) => Key::Semaphore {
                key: key.clone(),
                limit: options.limit,
                permits: options.permits.unwrap_or(1),
                lane: options.lane.clone(),
                lane_limit: options.lane_limit,
                min_hold: options.min_hold,
                index: options.index,
            },
            (_, _, Some(key), _) => {
                let keep = match (options.keep, options.forever) {
                    (Some(time), _) => Keep::For(time),
                    (None, true) => Keep::Forever,
                    (None, false) => Keep::AsTheServerSays,
                };
                Key::Once {
                    key: key.clone(),
                    max: options.max,
                    delay: options.delay,
                    keep,
                }
            }
            (.., group) => Key::Group {
                key: group.clone().unwrap_or_default(),
                limit: options.limit,
            },
        };
        let wait = match options.wait {
            _ if options.no_wait => Wait::Not,
            Some(Duration::ZERO) => Wait::Not,
            Some(time) => Wait::AtMost(time),
            None => Wait::Unlimited,
        };
        let owner = options.owner.clone().unwrap_or_else(default_owner);
        Request {
            key,
            lease: options.lease,
            schedule,
            owner,
            wait,
        }
    }

    /// Returns what is asked for, in words: `lock 'nightly'`.
    pub fn name(&self) -> String {
        match &self.key {
            Key::Lock { key, .. } => format!("lock '{}'", printable(key.as_bytes())),
            Key::Semaphore { key, .. } => format!("semaphore '{}'", printable(key.as_bytes())),
            Key::Once { key, .. } => format!("work '{}'", printable(key.as_bytes())),
            Key::Group { key, .. } => format!("group '{}'", printable(key.as_bytes())),
        }
    }

    /// Asks, and waits as long as allowed.
    pub fn ask(
        &self,
        client: &Client,
        cancel: &Cancel,
        progress: impl Fn(&Progress) + Send + Sync + 'static,
    ) -> Answer {
        macro_rules! common {
            ($builder:expr) => {
                $builder
                    .lease(self.lease)
                    .margin(self.schedule.margin())
                    .owner(&self.owner)
                    .cancel(cancel)
                    .on_progress(progress)
            };
        }
        match &self.key {
            Key::Lock {
                key,
                shared,
                min_hold,
            } => {
                let mut lock = common!(client.lock(key));
                if *shared {
                    lock = lock.shared();
                }
                if let Some(time) = min_hold {
                    lock = lock.min_hold(*time);
                }
                let hold = match self.wait {
                    Wait::Not => lock.try_acquire(),
                    Wait::AtMost(time) => lock.acquire_for(time),
                    Wait::Unlimited => lock.acquire(),
                };
                hold.map(|hold| Outcome::Granted(Grant::Hold(hold)))
            }
            Key::Semaphore {
                key,
                limit,
                permits,
                lane,
                lane_limit,
                min_hold,
                index,
            } => {
                let mut semaphore = common!(client.semaphore(key)).permits(*permits);
                if let Some(limit) = limit {
                    semaphore = semaphore.limit(*limit);
                }
                if let Some(lane) = lane {
                    semaphore = semaphore.lane(lane);
                }
                if let Some(limit) = lane_limit {
                    semaphore = semaphore.lane_limit(*limit);
                }
                if let Some(time) = min_hold {
                    semaphore = semaphore.min_hold(*time);
                }
                if *index {
                    semaphore = semaphore.index();
                }
                let hold = match self.wait {
                    Wait::Not => semaphore.try_acquire(),
                    Wait::AtMost(time) => semaphore.acquire_for(time),
                    Wait::Unlimited => semaphore.acquire(),
                };
                hold.map(|hold| Outcome::Granted(Grant::Hold(hold)))
            }
            Key::Group { key, limit } => {
                let mut group = common!(client.group(key));
                if let Some(limit) = limit {
                    group = group.limit(*limit);
                }
                let member = match self.wait {
                    Wait::Not => group.try_add(),
                    Wait::AtMost(time) => group.add_for(time),
                    Wait::Unlimited => group.add(),
                };
                member.map(|member| Outcome::Granted(Grant::Member(member)))
            }
            Key::Once {
                key,
                max,
                delay,
                keep,
            } => {
                let mut once = common!(client.once(key));
                if let Some(max) = max {
                    once = once.max_attempts(*max);
                }
                if let Some(delay) = delay {
                    once = once.retry_delay(*delay);
                }
                once = match keep {
                    Keep::AsTheServerSays => once,
                    Keep::For(time) => once.keep(*time),
                    Keep::Forever => once.keep_forever(),
                };
                let begun = match self.wait {
                    Wait::Not => once.try_begin(),
                    Wait::AtMost(time) => once.begin_for(time),
                    Wait::Unlimited => once.begin(),
                };
                begun.map(|begun| match begun {
                    Begun::Run(run) => Outcome::Granted(Grant::Run(run)),
                    Begun::Done { attempt, .. } => Outcome::DoneAlready { attempt },
                })
            }
        }
    }

    /// Returns how the commands of the key begin, and the key.
    pub fn family(&self) -> (&'static str, &str) {
        match &self.key {
            Key::Lock { key, .. } => ("DLOCK", key),
            Key::Semaphore { key, .. } => ("DSEM", key),
            Key::Once { key, .. } => ("DONCE", key),
            Key::Group { key, .. } => ("DWG", key),
        }
    }
}

impl Grant {
    /// Which attempt of work-once this is.
    pub fn attempt(&self) -> Option<u64> {
        match self {
            Grant::Run(run) => Some(run.attempt()),
            _ => None,
        }
    }

    /// Whether the server is told of success: then its answer decides about the exit status.
    pub fn records_success(&self) -> bool {
        !matches!(self, Grant::Hold(_))
    }

    /// Ends the hold as the command's end demands.
    pub fn settle(self, ending: Ending) -> Result<(), Error> {
        match self {
            Grant::Hold(hold) => hold.release(),
            Grant::Member(member) if ending.is_success() => member.done(),
            Grant::Member(member) => member.release(),
            Grant::Run(run) if ending.is_success() => run.done(None),
            Grant::Run(run) => run.fail(&ending.reason()),
        }
    }

    /// Gives the hold back because the command was not started; an attempt does not count.
    pub fn give_back(self) -> Result<(), Error> {
        match self {
            Grant::Hold(hold) => hold.release(),
            Grant::Member(member) => member.release(),
            Grant::Run(run) => run.release(),
        }
    }
}

impl Deref for Grant {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        match self {
            Grant::Hold(hold) => hold,
            Grant::Member(member) => member,
            Grant::Run(run) => run,
        }
    }
}

/// Returns `user@host:pid`, at most as long as the server allows. The user is the effective one, by number if it has no
/// name.
fn default_owner() -> String {
    const LONGEST: usize = 128;
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid)
        .ok()
        .flatten()
        .map_or(uid.to_string(), |user| user.name);
    let host =
        nix::unistd::gethostname().map_or("?".into(), |host| host.to_string_lossy().into_owned());
    let pid = std::process::id();
    let mut owner = format!("{user}@{host}");
    let mut end = owner.len().min(LONGEST - format!(":{pid}").len());
    while !owner.is_char_boundary(end) {
        end -= 1;
    }
    owner.truncate(end);
    owner.push_str(&format!(":{pid}"));
    owner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_owner_names_user_host_and_process() {
        let owner = default_owner();
        assert!(owner.contains('@'), "{owner}");
        assert!(
            owner.ends_with(&format!(":{}", std::process::id())),
            "{owner}"
        );
    }
}
