//! What is read of one key: CHECK and GET, and what a replica needs to follow a RELEASE.

use crate::agenda::task::Task;
use crate::answer::Answer;
use crate::change::{Change, End};
use crate::engine::Engine;
use crate::hold::Hold;
use crate::queue::wait_queue::WaitQueue;
use crate::state::Body;
use crate::state::families::once::Completion;
use crate::types::{Family, Now, Token};
use crate::visit::{Key, Visit, WrongType};

/// A key that is only looked at.
#[derive(Clone, Copy)]
pub struct Look<'l> {
    pub(crate) engine: &'l Engine,
    pub(crate) key: Key<'l>,
    pub(crate) now: Now,
}

impl Engine {
    /// Looks at a key.
    pub fn look<'l>(&'l self, key: Key<'l>, now: Now) -> Look<'l> {
        let engine = self;
        Look { engine, key, now }
    }
}

impl Visit<'_> {
    pub(crate) fn look(&self) -> Look<'_> {
        let key = Key {
            db: self.db,
            name: self.name,
            state: self.state,
        };
        self.engine.look(key, self.now)
    }
}

impl<'l> Look<'l> {
    /// Returns the value of the key, or an error if it is of another family.
    pub(crate) fn body_of(&self, family: Family) -> Result<Option<&'l Body>, WrongType> {
        match self.body() {
            Some(body) if body.family() != family => Err(WrongType),
            body => Ok(body),
        }
    }

    /// Returns the hold of this token; an error if the key is of another family.
    pub(crate) fn hold_of(
        &self,
        family: Family,
        token: &Token,
    ) -> Result<Option<&'l Hold>, WrongType> {
        let body = self.body_of(family)?;
        Ok(body.and_then(|body| body.holds().by_token(token)))
    }

    fn body(&self) -> Option<&'l Body> {
        Some(&self.engine.store.get(self.key.state?)?.body)
    }

    pub(crate) fn queue(&self) -> Option<&'l WaitQueue> {
        let (queues, key) = (&self.engine.queues, self.key);
        queues.find(key.db, key.name).and_then(|id| queues.get(id))
    }

    /// Returns the task that ends the pause of this key if it is over, or that forgets the key if it has been kept long
    /// enough. Perform it before a request on the key, so that the request meets no pause that is over, and cannot be
    /// told an old result, when the timer is late.
    pub fn overdue(&self) -> Option<Task> {
        let state = self.key.state.filter(|_| self.engine.is_serving())?;
        let body = self.body()?;
        let opens_at = body.opens_at();
        if opens_at.is_some_and(|at| at.has_come(self.now.unix())) {
            return Some(Task::Open(state));
        }
        let waited = || self.queue().is_some_and(WaitQueue::is_waited_in);
        self.is_over(body, waited).then_some(Task::Retire(state))
    }

    /// Whether the state has been kept long enough. `waited` says that requests wait for it. They do not keep a finished
    /// result or tally longer: such a key has a queue only if RENAME or SWAPDB brought it there.
    pub(crate) fn is_over(&self, body: &Body, waited: impl Fn() -> bool) -> bool {
        let settings = &self.engine.settings;
        body.retained_until(settings).is_some_and(|until| {
            let now = self.now.unix();
            until.has_come(now) && {
                let waited = !body.is_concluded() && waited();
                !body.outlives_use(settings, waited, now)
            }
        })
    }

    /// Returns whether there is such a key.
    ///
    /// # Errors
    /// When the key is of another family; likewise for all calls here.
    pub fn exists(&self, family: Family) -> Result<bool, WrongType> {
        Ok(self.body_of(family)?.is_some())
    }

    /// Returns the milliseconds left of the token's lease, rounded up; 0 if it does not hold or is overdue. A replica
    /// computes them from the written deadline.
    pub fn check(&self, family: Family, token: &Token) -> Result<u64, WrongType> {
        let hold = self.hold_of(family, token)?;
        Ok(hold.map_or(0, |hold| self.engine.term.lease_left_ms(hold, self.now)))
    }

    /// Returns the result, if the work is done and the result is still to be kept; otherwise `NotGranted`. It only
    /// looks: an old result that the timer has not forgotten yet is not told, nor one that a replica still has.
    pub fn result(&self) -> Result<Answer, WrongType> {
        let Some(once) = self.body_of(Family::Once)?.and_then(Body::once) else {
            return Ok(Answer::NotGranted);
        };
        let is_kept = |done: &&Completion| !done.keep_until.has_come(self.now.unix());
        let told = once.done().filter(is_kept).and_then(|_| once.answer_done());
        Ok(told.unwrap_or(Answer::NotGranted))
    }

    /// Returns the changes for [`Visit::follow`](crate::visit::Visit::follow) that a release by this token made on the
    /// primary, where it ended the only hold of the key and served nobody. `None` if this token is not the only holder
    /// here.
    pub fn release_elsewhere(&self, family: Family, token: &Token) -> Option<[Change; 2]> {
        let holds = self.body_of(family).ok()??.holds();
        let hold = holds.by_token(token).filter(|_| holds.len() == 1)?;
        let (fence, how, at) = (hold.fence(), End::Released, self.now.unix());
        Some([Change::End { fence, how, at }, Change::Vanish])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::hold::{Grant, Rest};
    use crate::short_bytes::LaneName;
    use crate::store::slab::StateId;
    use crate::types::{Claim, Db, Fence, LeaseMs, LeaseUs, MonoUs, UnixMs};

    /// A replica must end exactly the hold that ended on the primary. If it differs, it refuses the release.
    #[test]
    fn release_elsewhere_ends_the_only_hold_of_its_token_and_no_other() {
        let now = Now {
            lease: LeaseUs(0),
            mono: MonoUs(0),
            unix_us: 5_000,
            may_write: true,
        };
        let key = |state| Key {
            db: Db(0),
            name: b"k",
            state,
        };
        let token = |text: &str| Token::parse(text.as_bytes()).expect("legal");
        let grant = |n: u64, claim| {
            Change::Grant(Grant {
                fence: Fence(n),
                token: token(&format!("t{n}")),
                claim,
                index: None,
                rest: Rest::None,
                lease: LeaseMs(1_000),
                deadline: UnixMs(2_000),
                granted: UnixMs(1_000),
                renewed: false,
                owner: None,
                lane: LaneName::default(),
            })
        };
        let held = |family, grants: &[Change]| {
            let mut engine = Engine::default();
            let visited = engine.visit(key(None), now, |visit| visit.follow(family, grants));
            assert_eq!(visited.result, Ok(()));
            let state = visited.state;
            (engine, state)
        };
        let released = |(engine, state): &(Engine, Option<StateId>), text: &str| {
            let look = engine.look(key(*state), now);
            look.release_elsewhere(Family::Lock, &token(text))
        };
        let alone = held(Family::Lock, &[grant(1, Claim::Exclusive)]);
        let end = Change::End {
            fence: Fence(1),
            how: End::Released,
            at: UnixMs(5),
        };
        assert_eq!(released(&alone, "t1"), Some([end, Change::Vanish]));
        assert_eq!(released(&alone, "t2"), None, "another token");
        let shared = [grant(1, Claim::Shared), grant(2, Claim::Shared)];
        let shared = held(Family::Lock, &shared);
        assert_eq!(released(&shared, "t1"), None, "another hold beside it");
        let permits = held(Family::Semaphore, &[grant(1, Claim::Permits(1))]);
        assert_eq!(released(&permits, "t1"), None, "another family");
        assert_eq!(released(&(Engine::default(), None), "t1"), None, "no key");
    }
}
