//! The naive model: what locks, semaphores, wait groups and work-once keys do, written from the contract alone.
//!
//! Everything is a plain list that is searched from the front. Nothing is indexed, cached or put off, and each visit of
//! a key looks at everything. The model shares the newtypes, [`Request`] and [`Answer`] with the engine, but no rule.
//! Deliberately absent: slices, budgets, and any record of which key is due. [`Model::tick`] looks at all keys, so a
//! key that the engine forgets to look at shows as a difference.
//!
//! The model counts fences 1, 2, 3 …, while the engine's follow its clock. Only their order is compared.
//!
//! - `content`, `queue`: what a key has, and the requests that wait for its name;
//! - `requests`, `group`, `once`: what clients ask for;
//! - `serve`: the rules by which requests are answered; `lanes`: which of them is next in a semaphore;
//! - `due`, `events`: what comes due without a request, and what happens to connections, keys and servers;
//! - `portrait`: all of it that decides what happens from now on.

mod content;
mod due;
mod events;
mod group;
mod lanes;
mod once;
mod portrait;
mod queue;
mod requests;
mod serve;

use dsync_engine::answer::Answer;
use dsync_engine::change::End;
use dsync_engine::types::{Now, Token};
use dsync_engine::{Family, Settings};

pub use content::{ModelContent, ModelHold};
pub use queue::{ModelQueue, ModelSeat, Sitter};

/// A database and the number of a key in it.
pub type Name = (i32, u8);

/// The resolution of the timer, in microseconds: a lease lapses at the next whole tick after its end.
pub const TICK_US: u64 = 1_024;

/// The value of a key.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "the model has a handful of them")]
pub enum Value {
    State(ModelContent),
    /// A value of another type, for example a string.
    Foreign,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Now(Answer),
    Queued(u64),
}

pub struct ModelWake {
    pub name: Name,
    pub ticket: u64,
    pub answer: Answer,
}

/// A hold that ended although its client did not ask for that, as it was then.
pub struct ModelEnd {
    pub name: Name,
    pub hold: ModelHold,
    pub how: End,
}

pub struct Model {
    pub settings: Settings,
    pub values: Vec<(Name, Value)>,
    pub queues: Vec<ModelQueue>,
    pub wakes: Vec<ModelWake>,
    /// The number of a kept place, and the fence that was granted to it; `None` if it was dropped.
    pub announcements: Vec<(Name, u64, Option<u64>)>,
    pub ends: Vec<ModelEnd>,
    last_fence: u64,
    last_number: u64,
}

fn ms(now: Now) -> u64 {
    now.unix_us / 1_000
}

impl Model {
    pub fn new(settings: Settings) -> Model {
        Model {
            settings,
            values: Vec::new(),
            queues: Vec::new(),
            wakes: Vec::new(),
            announcements: Vec::new(),
            ends: Vec::new(),
            last_fence: 0,
            last_number: 0,
        }
    }

    pub fn value(&self, name: Name) -> Option<&Value> {
        self.values
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| value)
    }

    pub fn content(&self, name: Name) -> Option<&ModelContent> {
        match self.value(name) {
            Some(Value::State(content)) => Some(content),
            _ => None,
        }
    }

    fn content_mut(&mut self, name: Name) -> Option<&mut ModelContent> {
        match self.values.iter_mut().find(|(n, _)| *n == name) {
            Some((_, Value::State(content))) => Some(content),
            _ => None,
        }
    }

    fn content_or_new(&mut self, name: Name, family: Family, now: Now) -> &mut ModelContent {
        if self.value(name).is_none() {
            self.values
                .push((name, Value::State(ModelContent::new(family, ms(now)))));
        }
        self.content_mut(name).expect("no foreign value gets here")
    }

    fn is_foreign(&self, name: Name) -> bool {
        matches!(self.value(name), Some(Value::Foreign))
    }

    fn is_other(&self, name: Name, family: Family) -> bool {
        match self.value(name) {
            None => false,
            Some(Value::Foreign) => true,
            Some(Value::State(content)) => content.family != family,
        }
    }

    fn hold_of(&self, name: Name, token: &Token) -> Option<&ModelHold> {
        self.content(name)?
            .holds
            .iter()
            .find(|hold| hold.token == *token)
    }

    fn hold_mut(&mut self, name: Name, fence: u64) -> Option<&mut ModelHold> {
        self.content_mut(name)?
            .holds
            .iter_mut()
            .find(|hold| hold.fence == fence)
    }

    /// Returns the next ticket.
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Returns the next fence, or the next rank: both come from one counter.
    fn draw(&mut self) -> u64 {
        self.last_fence += 1;
        self.last_fence
    }
}
