//! What most tests share: a world with default settings, requests for one key, and answers as words.

use crate::model::Name;
use crate::steps::{Ask, Step, ask};
use crate::world::World;
use dsync_engine::Settings;
use dsync_engine::answer::{Answer, Refusal};
use dsync_engine::types::Claim;

pub const KEY: Name = (0, 0);
pub const OTHER: Name = (0, 1);
pub const MS: u64 = 1_000;

pub fn world() -> World {
    World::new(Settings::default())
}

pub fn exclusive(token: u8) -> Ask {
    ask(KEY, Claim::Exclusive, token)
}

pub fn shared(token: u8) -> Ask {
    ask(KEY, Claim::Shared, token)
}

pub fn permits(token: u8, n: u32) -> Ask {
    ask(KEY, Claim::Permits(n), token)
}

pub fn indexed(token: u8) -> Ask {
    ask(KEY, Claim::Indexed, token)
}

pub fn member(token: u8) -> Ask {
    ask(KEY, Claim::Member, token)
}

impl World {
    pub fn ask(&mut self, ask: Ask) -> Option<Answer> {
        self.step(&Step::Acquire(ask))
    }

    /// Lets this much time pass and does everything that is due. Returns the answers that the tick gave: sorted pairs
    /// of connection and word.
    pub fn after_ms(&mut self, ms: u64) -> Vec<(usize, &'static str)> {
        self.steps(&[Step::Pass { us: ms * MS }, Step::Tick]);
        self.heard()
    }

    pub fn tick(&mut self) -> Vec<(usize, &'static str)> {
        self.after_ms(0)
    }

    /// Returns the answers of the last step to waiting requests: sorted pairs of connection and word.
    pub fn heard(&self) -> Vec<(usize, &'static str)> {
        let mut heard: Vec<_> = self
            .told
            .iter()
            .map(|(conn, answer)| (*conn, word(answer)))
            .collect();
        heard.sort_unstable();
        heard
    }

    pub fn holders(&self, name: Name) -> usize {
        self.primary
            .state(name)
            .map_or(0, |state| state.body.holds().len())
    }
}

pub fn word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Granted { .. } => "granted",
        Answer::Run { .. } => "run",
        Answer::Done { .. } => "done",
        Answer::GivenUp { .. } => "given up",
        Answer::NotGranted => "not granted",
        Answer::Waiting { .. } => "waiting",
        Answer::Finished { .. } => "finished",
        Answer::Refused(Refusal::NoLimit) => "no limit",
        Answer::Refused(Refusal::TooMany { .. } | Refusal::TooManyForLane { .. }) => "too many",
        Answer::Refused(Refusal::Mismatch | Refusal::OtherLane) => "mismatch",
        Answer::Refused(Refusal::QueueFull(_)) => "full",
        Answer::Refused(Refusal::OutOfMemory) => "no memory",
        Answer::Superseded => "superseded",
        Answer::Withdrawn => "withdrawn",
        Answer::Removed => "removed",
        Answer::WrongType => "wrong type",
        Answer::Demoted => "demoted",
        other => panic!("{other:?} is no answer here"),
    }
}

/// Returns the index of a grant.
pub fn index(answer: Option<Answer>) -> Option<u32> {
    match answer {
        Some(Answer::Granted { index, .. }) => index,
        other => panic!("not granted: {other:?}"),
    }
}

pub fn fence(answer: Option<Answer>) -> u64 {
    match answer {
        Some(Answer::Granted { fence, .. }) => fence.0,
        other => panic!("not granted: {other:?}"),
    }
}
