//! What was granted, and how it ends.

use dsync_client::{Error, Hold, Loss, Member, Run};

use super::child::Ending;
use super::clock::Moment;

/// What a request came to.
pub enum Outcome {
    Granted(Grant),
    /// The work was done before, by this attempt.
    DoneAlready {
        attempt: u64,
    },
}

/// The holds, and what they are for.
pub enum Grant {
    /// Of locks and semaphores, in the order of the request's keys.
    Holds(Vec<Hold>),
    Member(Member),
    Run(Run),
}

impl Grant {
    fn holds(&self) -> impl Iterator<Item = &Hold> {
        let (several, one): (&[Hold], Option<&Hold>) = match self {
            Grant::Holds(holds) => (holds, None),
            Grant::Member(member) => (&[], Some(member)),
            Grant::Run(run) => (&[], Some(run)),
        };
        several.iter().chain(one)
    }

    /// Returns the fences, with commas between them.
    pub fn fences(&self) -> String {
        let fences: Vec<String> = self.holds().map(|hold| hold.fence().to_string()).collect();
        fences.join(",")
    }

    /// Which attempt of work-once this is.
    pub fn attempt(&self) -> Option<u64> {
        match self {
            Grant::Run(run) => Some(run.attempt()),
            _ => None,
        }
    }

    pub fn index(&self) -> Option<u32> {
        self.holds().find_map(Hold::index)
    }

    /// Returns which of the holds ends first, and when.
    pub fn lease_end(&self) -> (usize, Moment) {
        let ends = self.holds().map(|hold| Moment::of(hold.lease_end()));
        let first = ends.enumerate().min_by_key(|(_, end)| *end);
        first.unwrap_or((0, Moment::now()))
    }

    /// Returns which of the holds is lost, and why.
    pub fn loss(&self) -> Option<(usize, Loss)> {
        let mut holds = self.holds().enumerate();
        holds.find_map(|(nth, hold)| Some((nth, hold.loss()?)))
    }

    pub fn is_of_several(&self) -> bool {
        self.holds().count() > 1
    }

    /// Whether the server is told of success: then its answer decides about the exit status.
    pub fn records_success(&self) -> bool {
        !matches!(self, Grant::Holds(_))
    }

    /// Ends the hold as the command's end demands.
    pub fn settle(self, ending: Ending) -> Result<(), Error> {
        match self {
            Grant::Member(member) if ending.is_success() => member.done(),
            Grant::Run(run) if ending.is_success() => run.done(None),
            Grant::Run(run) => run.fail(&ending.reason()),
            other => other.give_back(),
        }
    }

    /// Gives the hold back; an attempt does not count.
    pub fn give_back(self) -> Result<(), Error> {
        match self {
            // All are released, whatever comes of each.
            Grant::Holds(holds) => (holds.into_iter().rev())
                .map(Hold::release)
                .fold(Ok(()), Result::and),
            Grant::Member(member) => member.release(),
            Grant::Run(run) => run.release(),
        }
    }
}
