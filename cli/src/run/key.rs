//! One key that is held while the command runs, and how it is asked for.

use std::time::Duration;

use dsync_client::{Begun, Cancel, Client, Error, Progress};

use super::grant::{Grant, Outcome};
use super::schedule::Schedule;
use crate::args::{Confirm, Replicas};
use crate::family::Family;
use crate::text::quoted;

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

/// What is asked for with every key.
#[derive(Clone)]
pub struct Terms {
    pub lease: Duration,
    pub schedule: Schedule,
    pub max_hold: Option<Duration>,
    pub confirm: Confirm,
    pub owner: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Not,
    AtMost(Duration),
    Unlimited,
}

impl Key {
    /// Returns what is asked for, in words: `lock 'nightly'`.
    pub fn name(&self) -> String {
        let (what, key) = match self.family() {
            (Family::Once, key) => ("work", key),
            (family, key) => (family.name(), key),
        };
        format!("{what} {}", quoted(key.as_bytes()))
    }

    pub fn family(&self) -> (Family, &str) {
        match self {
            Key::Lock { key, .. } => (Family::Lock, key),
            Key::Semaphore { key, .. } => (Family::Semaphore, key),
            Key::Once { key, .. } => (Family::Once, key),
            Key::Group { key, .. } => (Family::Group, key),
        }
    }

    /// Asks, and waits as long as allowed.
    pub fn ask(
        &self,
        terms: &Terms,
        wait: Wait,
        client: &Client,
        cancel: &Cancel,
        progress: impl Fn(&Progress) + Send + Sync + 'static,
    ) -> Result<Outcome, Error> {
        macro_rules! common {
            ($builder:expr) => {{
                let mut asked = $builder
                    .lease(terms.lease)
                    .margin(terms.schedule.margin())
                    .owner(&terms.owner)
                    .cancel(cancel)
                    .on_progress(progress);
                if let Some(time) = terms.max_hold {
                    asked = asked.max_hold(time);
                }
                match terms.confirm.replicas {
                    Some(Replicas::Count(count)) => asked = asked.replicas(count),
                    Some(Replicas::All) => asked = asked.replicas_all(),
                    None => {}
                }
                if let Some(time) = terms.confirm.within {
                    asked = asked.within(time);
                }
                if terms.confirm.disk {
                    asked = asked.disk();
                }
                asked
            }};
        }
        match self {
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
                let hold = match wait {
                    Wait::Not => lock.try_acquire(),
                    Wait::AtMost(time) => lock.acquire_for(time),
                    Wait::Unlimited => lock.acquire(),
                };
                hold.map(|hold| Outcome::Granted(Grant::Holds(vec![hold])))
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
                let hold = match wait {
                    Wait::Not => semaphore.try_acquire(),
                    Wait::AtMost(time) => semaphore.acquire_for(time),
                    Wait::Unlimited => semaphore.acquire(),
                };
                hold.map(|hold| Outcome::Granted(Grant::Holds(vec![hold])))
            }
            Key::Group { key, limit } => {
                let mut group = common!(client.group(key));
                if let Some(limit) = limit {
                    group = group.limit(*limit);
                }
                let member = match wait {
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
                    Keep::Forever => once.forever(),
                };
                let begun = match wait {
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
}
