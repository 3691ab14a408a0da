//! What only wait groups have: DONE, EXPECT, WAIT, and the end of a round.

use super::queue::{ModelSeat, Sitter};
use super::{Model, Name, Outcome, ms};
use dsync_engine::answer::Answer;
use dsync_engine::change::End;
use dsync_engine::types::{MonoUs, Now, Token};
use dsync_engine::{Family, LaneName, Refusal};

impl Model {
    pub fn done(&mut self, name: Name, tokens: &[Token], now: Now) -> Option<u64> {
        if self.is_other(name, Family::Group) {
            return None;
        }
        let mut ended = 0;
        for token in tokens {
            if let Some(fence) = self.hold_of(name, token).map(|hold| hold.fence) {
                self.end(name, fence, End::Done, now);
                ended += 1;
            }
        }
        if ended > 0 {
            self.settle(name, now);
        }
        Some(ended)
    }

    pub fn expect(&mut self, name: Name, jobs: u32, now: Now) -> Option<u64> {
        self.serve_removed_key(name, now);
        if self.is_other(name, Family::Group) {
            return None;
        }
        let content = self.content_or_new(name, Family::Group, now);
        content.begin(ms(now));
        content.displaced = None;
        content.expected = Some(jobs);
        let owed = content.owed();
        self.visit(name, now);
        Some(owed)
    }

    pub fn wait(&mut self, name: Name, wait: Option<MonoUs>, client: u64, now: Now) -> Outcome {
        self.serve_removed_key(name, now);
        if self.is_other(name, Family::Group) {
            return Outcome::Now(Answer::WrongType);
        }
        self.visit(name, now);
        let Some(content) = self.content(name) else {
            return Outcome::Now(Answer::Finished { done: 0, lapsed: 0 });
        };
        let nobody_waits = self.waiting(name).is_empty();
        if content.finished_ms.is_some() || !content.has_begun() && nobody_waits {
            return Outcome::Now(Answer::Finished {
                done: content.done,
                lapsed: content.lapsed,
            });
        }
        let Some(wait) = wait else {
            return Outcome::Now(Answer::NotGranted);
        };
        if let Err(full) = self.make_room(name) {
            return Outcome::Now(Answer::Refused(Refusal::QueueFull(full)));
        }
        let (ticket, rank) = (self.number(), self.draw());
        self.queue(name).seats.push(ModelSeat {
            rank,
            claim: None,
            lane: LaneName::default(),
            token: None,
            since_us: now.mono.0,
            is_moved: false,
            keep: None,
            sitter: Sitter::Watching {
                ticket,
                client,
                wait,
            },
        });
        self.settle(name, now);
        self.answered_meanwhile(Outcome::Queued(ticket))
    }

    /// Finishes the round if it is over, and answers its watchers. Some of them may have waited for another group,
    /// which a finished one has replaced.
    pub(super) fn finish_if_over(&mut self, name: Name, nobody_waits: bool, now: Now) {
        let keep_ms = self.settings.group_keep_ms;
        let Some(content) = self
            .content_mut(name)
            .filter(|content| content.family == Family::Group)
        else {
            return;
        };
        let over = content.holds.is_empty() && nobody_waits && content.owed() == 0;
        if over && content.has_begun() && content.finished_ms.is_none() {
            content.finished_ms = Some(ms(now) + keep_ms);
        }
        if (content.finished_ms.is_some() || !content.has_begun()) && nobody_waits {
            let answer = Answer::Finished {
                done: content.done,
                lapsed: content.lapsed,
            };
            self.tell_watchers(name, &answer, now);
        }
    }
}
