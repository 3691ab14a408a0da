//! What can happen in a story or a history. A step is here whole: what it is, how often a history takes it, and how the
//! engine and the model are asked.

use std::sync::Arc;

use crate::chooser::Chooser;
use crate::model::Name;
use crate::world::World;
use dsync_engine::answer::Answer;
use dsync_engine::families::once::Keep;
use dsync_engine::types::{Fence, LeaseMs, MAX_PERMITS, Token};
use dsync_engine::{Family, Look, Visit};

pub use crate::ask::{Ask, Block, ask, token};

#[derive(Clone, Debug)]
pub enum Step {
    Acquire(Ask),
    Release(Name, Family, u8),
    Renew(Name, Family, u8, Option<u32>),
    Check(Name, Family, u8),
    /// Revokes the hold with this index, the oldest being 0; past the last, a fence that no hold has.
    Revoke(Name, Family, usize),
    /// Revokes the kept place with this index, the first in line being 0.
    RevokePlace(Name, Family, usize),
    Done(Name, Vec<u8>),
    Expect(Name, u32),
    Pin(Name, Option<u32>),
    /// PAUSE for so many milliseconds.
    Pause(Name, Family, u64),
    Wait(Name, Option<Block>, usize),
    /// DONE of work-once: the token, the result, and how long it is kept (`None`: the default).
    Complete(Name, u8, Option<&'static str>, Option<Keep>),
    /// FAIL of work-once: the token, the reason, and the delay in milliseconds.
    Fail(Name, u8, &'static str, u64),
    /// The connection closes, and a new one takes its number.
    Disconnect(usize),
    /// The server itself answers the waiter, for example after CLIENT UNBLOCK.
    Unblock(usize),
    /// The replies to the waiters that the last step granted cannot be delivered. `reported_first`: the close of their
    /// connections is reported before that, otherwise after it.
    FindGone {
        reported_first: bool,
    },
    Pass {
        us: u64,
    },
    /// Time passes while the lease clock stands still, as in a stall.
    Stall {
        us: u64,
    },
    /// The timer fires: everything that is due is done.
    Tick,
    MayWrite(bool),
    /// Whether there is memory for new holds and places.
    MayGrow(bool),
    Delete(Name),
    Rename(Name, Name),
    Overwrite(Name),
    Flush(Option<i32>),
    Swap(i32, i32),
    Free,
    /// The server restarts from what it saved, after this long. `as_changes`: from a rewritten AOF, otherwise from an
    /// RDB file.
    Restart {
        as_changes: bool,
        ms: u64,
    },
    /// The replica is promoted.
    Failover {
        ms: u64,
    },
    /// The server is demoted, and promoted again.
    Demote {
        ms: u64,
    },
}

impl Chooser {
    /// Returns the next step of a random history.
    pub fn step(&mut self, world: &mut World) -> Step {
        let conn = self.conn(world);
        let name = self.name();
        let family = self.family(world, name);
        let token = self.token();
        if !world.may_grow && self.random.one_in(8) {
            return Step::MayGrow(true);
        }
        if !world.now.may_write {
            return match self.random.below(14) {
                0..=2 => Step::Disconnect(self.random.below(self.kind.conns) as usize),
                3 => Step::Unblock(self.random.below(self.kind.conns) as usize),
                4..=5 => Step::Check(name, family, token),
                6..=7 => Step::Wait(name, self.block(), conn),
                8..=9 => Step::Pass { us: self.time() },
                10..=11 => Step::Tick,
                _ => Step::MayWrite(true),
            };
        }
        if self.kind.mixed && self.random.one_in(4) {
            return match self.random.below(12) {
                0..=4 => Step::Delete(name),
                5 => Step::Overwrite(name),
                6 => Step::Rename(self.name(), name),
                7..=8 => Step::Acquire(self.return_to(world, conn)),
                _ => Step::Disconnect(self.random.below(self.kind.conns) as usize),
            };
        }
        match self.random.below(100) {
            0..=25 => Step::Acquire(self.ask(world, conn)),
            26..=31 => Step::Acquire(self.return_to(world, conn)),
            32..=34 => {
                let name = self.name_for(Family::Once);
                let token = self.token_at(world, name);
                let result = self.random.pick(&[None, Some("42"), Some("")]);
                // If no step removes the key, a result that is kept for long would end its history.
                let lasts = self.kind.settings.once_keep_ms < 1_000;
                let keep: &[_] = if self.kind.keys_move {
                    &[
                        None,
                        Some(Keep::ForMs(1)),
                        Some(Keep::ForMs(9)),
                        Some(Keep::Forever),
                    ]
                } else if lasts {
                    &[None, Some(Keep::ForMs(1)), Some(Keep::ForMs(9))]
                } else {
                    &[Some(Keep::ForMs(2)), Some(Keep::ForMs(9))]
                };
                Step::Complete(name, token, result, self.random.pick(keep))
            }
            35..=37 => {
                let name = self.name_for(Family::Once);
                let token = self.token_at(world, name);
                let reason = self.random.pick(&["full", "lapsed", ""]);
                Step::Fail(name, token, reason, self.random.pick(&[0, 0, 1, 3, 8, 20]))
            }
            38..=45 if self.kind.mixed => {
                let token = self.token_at(world, name);
                Step::Release(name, family, token)
            }
            38..=45 => Step::Release(name, family, token),
            46..=48 => {
                let lease_ms = self.random.pick(&[None, Some(1), Some(7)]);
                Step::Renew(name, family, token, lease_ms)
            }
            49..=50 => Step::Check(name, family, token),
            51 => match self.random.one_in(2) {
                true => Step::RevokePlace(name, family, self.random.below(2) as usize),
                false => Step::Revoke(name, family, 0),
            },
            52 => Step::Revoke(name, family, self.random.below(3) as usize),
            53..=56 => {
                let tokens = (0..=self.random.below(3)).map(|_| self.token()).collect();
                Step::Done(self.name_for(Family::Group), tokens)
            }
            57 => Step::Done(name, vec![token, token]),
            58..=62 => Step::Wait(self.name_for(Family::Group), self.block(), conn),
            63..=64 => {
                let jobs = self.random.pick(&[1, 1, 2, 3, 5, MAX_PERMITS]);
                Step::Expect(self.name_for(Family::Group), jobs)
            }
            65..=67 => {
                let limit = self
                    .random
                    .pick(&[None, None, Some(0), Some(1), Some(2), Some(4)]);
                Step::Pin(self.name_for(Family::Semaphore), limit)
            }
            68..=72 => Step::Disconnect(self.random.below(self.kind.conns) as usize),
            73 => Step::Unblock(self.random.below(self.kind.conns) as usize),
            74..=81 => Step::Pass { us: self.time() },
            82 => Step::Stall { us: self.time() },
            83..=90 => Step::Tick,
            91 | 98 if !self.kind.indexed && self.kind.lanes == 1 => {
                Step::Pause(name, family, self.random.pick(&[0, 0, 1, 2, 3, 8, 20]))
            }
            92 => Step::MayWrite(false),
            99 => Step::MayGrow(false),
            93 => Step::Free,
            94..=96 if self.kind.keys_move => match self.random.below(9) {
                0..=2 => Step::Delete(name),
                3..=4 => Step::Rename(self.name(), name),
                5 => Step::Overwrite(name),
                6 => Step::Swap(0, 1),
                7 => Step::Flush(self.random.pick(&[None, Some(0), Some(1)])),
                _ => Step::Rename((1 - name.0, name.1), name),
            },
            97 if self.kind.servers_change && self.random.one_in(2) => {
                let ms = self.random.below(12);
                match self.random.below(4) {
                    0 => Step::Restart {
                        as_changes: false,
                        ms,
                    },
                    1 => Step::Restart {
                        as_changes: true,
                        ms,
                    },
                    2 => Step::Failover { ms },
                    _ => Step::Demote { ms },
                }
            }
            _ => Step::Acquire(self.ask(world, conn)),
        }
    }
}

impl World {
    /// Takes the step on the primary, the replica and the model, and compares them. Returns the engine's answer to the
    /// request of the step; `None` if it waits or the step is no request.
    pub fn step(&mut self, step: &Step) -> Option<Answer> {
        self.begin_step(!matches!(step, Step::FindGone { .. }));
        let answer = self.take(step);
        self.end_step(matches!(step, Step::Tick));
        answer
    }

    pub fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
    }

    fn take(&mut self, step: &Step) -> Option<Answer> {
        let now = self.now;
        match step.clone() {
            Step::Acquire(ask) => return self.acquire(&ask),
            Step::Wait(name, block, conn) => return self.wait(name, block, conn),
            Step::Release(name, family, number) => {
                let token = token(number);
                // The end of a pause may grant the request before the call, which then ends the hold.
                self.do_overdue(name);
                let held = self.holds(name, &token);
                self.laws.releases(name, family, &token);
                let mut withdrew = false;
                let ours = |visit: &mut Visit<'_>| {
                    let released = visit.release(family, &token).ok();
                    withdrew = released == Some(true) && !held;
                    released
                };
                let answer = self.write_request(name, family, ours, |model| {
                    model.release(name, family, &token, now)
                });
                if answer.is_none() && !self.is_foreign(name) {
                    self.laws.released(name, family, &token, withdrew, now);
                }
                return answer;
            }
            Step::Renew(name, family, number, lease_ms) => {
                let (token, lease) = (token(number), lease_ms.map(LeaseMs));
                let ours = |visit: &mut Visit<'_>| visit.renew(family, &token, lease).ok();
                return self.write_request(name, family, ours, |model| {
                    model.renew(name, family, &token, lease_ms, now)
                });
            }
            Step::Check(name, family, number) => {
                let token = token(number);
                let ours = |look: Look<'_>| look.check(family, &token).ok();
                return self
                    .read_request(name, ours, |model| model.check(name, family, &token, now));
            }
            Step::Revoke(name, family, nth) => {
                let holds = self
                    .model
                    .content(name)
                    .map(|content| content.holds.clone());
                let theirs = holds
                    .and_then(|holds| holds.get(nth).map(|hold| hold.fence))
                    .unwrap_or(0);
                let fence = self.fences.get(&theirs).copied().unwrap_or(Fence(77));
                let ours = |visit: &mut Visit<'_>| visit.revoke(family, fence).ok();
                return self.write_request(name, family, ours, |model| {
                    model.revoke(name, family, theirs, now)
                });
            }
            Step::RevokePlace(name, family, nth) => {
                let seats = self.model.seats(name).iter();
                let mut kept = seats.filter(|seat| seat.keep.is_some());
                let theirs = kept.nth(nth).map_or(0, |seat| seat.rank);
                let number = self.fences.get(&theirs).copied().unwrap_or(Fence(77));
                let ours = |visit: &mut Visit<'_>| visit.revoke(family, number).ok();
                return self.write_request(name, family, ours, |model| {
                    model.revoke(name, family, theirs, now)
                });
            }
            Step::Done(name, numbers) => {
                let tokens: Vec<Token> = numbers.iter().map(|number| token(*number)).collect();
                let ours = |visit: &mut Visit<'_>| visit.done(&tokens).ok();
                return self.write_request(name, Family::Group, ours, |model| {
                    model.done(name, &tokens, now)
                });
            }
            Step::Expect(name, jobs) => {
                let ours = |visit: &mut Visit<'_>| visit.expect(jobs).ok();
                return self.write_request(name, Family::Group, ours, |model| {
                    model.expect(name, jobs, now)
                });
            }
            Step::Pin(name, limit) => {
                let ours = |visit: &mut Visit<'_>| visit.pin_limit(limit).ok();
                return self.write_request(name, Family::Semaphore, ours, |model| {
                    model.pin_limit(name, limit, now)
                });
            }
            Step::Pause(name, family, ms) => {
                let ours = |visit: &mut Visit<'_>| visit.pause(family, ms).ok();
                return self.write_request(name, family, ours, |model| {
                    model.pause(name, family, ms, now)
                });
            }
            Step::Complete(name, number, result, keep) => {
                let token = token(number);
                let result: Option<Arc<[u8]>> = result.map(|text| text.as_bytes().into());
                let keep = keep.unwrap_or(Keep::ForMs(self.model.settings.once_keep_ms));
                let ours =
                    |visit: &mut Visit<'_>| visit.complete(&token, result.clone(), keep).ok();
                return self.write_request(name, Family::Once, ours, |model| {
                    model.complete(name, &token, result.clone(), keep, now)
                });
            }
            Step::Fail(name, number, reason, delay_ms) => {
                let token = token(number);
                let ours = |visit: &mut Visit<'_>| {
                    visit.fail(&token, reason.as_bytes().into(), delay_ms).ok()
                };
                return self.write_request(name, Family::Once, ours, |model| {
                    model.fail(name, &token, reason.as_bytes(), delay_ms, now)
                });
            }
            Step::Disconnect(conn) => self.disconnect_conn(conn),
            Step::Unblock(conn) => self.unblock(conn),
            Step::FindGone { reported_first } => self.find_gone(reported_first),
            Step::Pass { us } => {
                self.now.mono.0 += us;
                self.now.unix_us += us;
                if now.may_write {
                    self.now.lease.0 += us;
                }
            }
            Step::Stall { us } => {
                self.now.mono.0 += us;
                self.now.unix_us += us;
            }
            Step::Tick => self.run_tick(),
            Step::MayGrow(may_grow) => self.may_grow = may_grow,
            Step::MayWrite(may_write) => self.now.may_write = may_write,
            Step::Delete(name) => self.delete(name),
            Step::Overwrite(name) => self.overwrite(name),
            Step::Rename(from, to) => self.rename(from, to),
            Step::Flush(db) => self.flush(db),
            Step::Swap(a, b) => self.swap(a, b),
            Step::Free => {
                self.primary.free_let_go();
                self.replica.free_let_go();
            }
            Step::Restart { as_changes, ms } => self.restart(as_changes, ms),
            Step::Failover { ms } => {
                self.step(&Step::Tick);
                self.fail_over(ms);
            }
            Step::Demote { ms } => self.demote(ms),
        }
        None
    }
}
