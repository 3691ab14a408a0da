//! What the command line asks to be held while the command runs.

use std::sync::Arc;
use std::time::Duration;

use dsync_client::{Cancel, Client, Error, Progress};

use super::clock::Moment;
use super::grant::{Grant, Outcome};
use super::key::{Keep, Key, Terms, Wait};
use super::schedule::Schedule;
use crate::args;

/// What the command line asks for.
#[derive(Clone)]
pub struct Request {
    /// Locks and semaphores, or one work-once key or group.
    pub keys: Vec<Key>,
    pub terms: Terms,
    pub wait: Wait,
}

impl Request {
    /// Reads the command line.
    pub fn of(options: &args::Run, schedule: Schedule) -> Request {
        let locks = options.lock.iter().map(|key| Key::Lock {
            key: key.clone(),
            shared: options.shared,
            min_hold: options.min_hold,
        });
        let semaphores = options.semaphore.iter().map(|key| Key::Semaphore {
            key: key.clone(),
            limit: options.limit,
            permits: options.permits.unwrap_or(1),
            lane: options.lane.clone(),
            lane_limit: options.lane_limit,
            min_hold: options.min_hold,
            index: options.index,
        });
        let work = options.once.iter().map(|key| Key::Once {
            key: key.clone(),
            max: options.max,
            delay: options.delay,
            keep: match (options.keep, options.forever) {
                (Some(time), _) => Keep::For(time),
                (None, true) => Keep::Forever,
                (None, false) => Keep::AsTheServerSays,
            },
        });
        let groups = options.group.iter().map(|key| Key::Group {
            key: key.clone(),
            limit: options.limit,
        });
        let wait = match options.wait {
            _ if options.no_wait => Wait::Not,
            Some(Duration::ZERO) => Wait::Not,
            Some(time) => Wait::AtMost(time),
            None => Wait::Unlimited,
        };
        let owner = options.owner.clone().unwrap_or_else(default_owner);
        Request {
            keys: locks.chain(semaphores).chain(work).chain(groups).collect(),
            terms: Terms {
                lease: options.lease,
                schedule,
                max_hold: options.max_hold,
                confirm: options.confirm.clone(),
                owner,
            },
            wait,
        }
    }

    /// Returns what is asked for, in words: `lock 'nightly'`, or `lock 'nightly' and semaphore 'gpus'`.
    pub fn name(&self) -> String {
        let names: Vec<String> = self.keys.iter().map(Key::name).collect();
        names.join(" and ")
    }

    /// Asks for all keys, one after the other, and waits as long as allowed in all. Where one is not granted, those before
    /// it are given back; the failure is told with its number.
    ///
    /// The keys are asked for in the order of their names, as all clients of dsync do, so that no two wait for each other.
    pub fn ask(
        &self,
        client: &Client,
        cancel: &Cancel,
        progress: impl Fn(&Key, &Progress) + Send + Sync + 'static,
    ) -> Result<Outcome, (usize, Error)> {
        let progress = Arc::new(progress);
        let begun = Moment::now();
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        order.sort_by_key(|nth| self.keys[*nth].family().1);
        let mut holds = Vec::new();
        for nth in order {
            let key = self.keys[nth].clone();
            let (progress, of) = (Arc::clone(&progress), key.clone());
            let wait = match self.wait {
                Wait::AtMost(time) => Wait::AtMost(time.saturating_sub(begun.elapsed())),
                other => other,
            };
            let told = move |now: &Progress| progress(&of, now);
            match key.ask(&self.terms, wait, client, cancel, told) {
                Ok(Outcome::Granted(Grant::Holds(granted))) => {
                    holds.extend(granted.into_iter().map(|hold| (nth, hold)));
                }
                Ok(other) => return Ok(other),
                Err(error) => {
                    let held = holds.into_iter().map(|(_, hold)| hold).collect();
                    // Its own error tells less than why another is not held.
                    let _ = Grant::Holds(held).give_back();
                    return Err((nth, error));
                }
            }
        }
        holds.sort_by_key(|(nth, _)| *nth);
        let holds = holds.into_iter().map(|(_, hold)| hold).collect();
        Ok(Outcome::Granted(Grant::Holds(holds)))
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
