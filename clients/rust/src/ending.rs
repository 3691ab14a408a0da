//! How a hold ends: what DONE and FAIL say, and how long they are said.

use std::time::Duration;

use crate::bounds;
use crate::error::Result;
use crate::request::{Command, Ending, Family, Keep, Request, millis};
use crate::text::cut;

/// How long a promoted server lets each hold live at least, whatever was left of its lease (`dsync.takeover-grace-ms`).
const TAKEOVER_GRACE: Duration = Duration::from_secs(5);

/// How long RELEASE, DONE and FAIL are repeated while the server does not answer: a server that is promoted meanwhile gives
/// the lease anew.
pub(crate) fn patience(lease: Duration) -> Duration {
    lease + TAKEOVER_GRACE
}

impl Ending {
    pub(crate) fn check(&self) -> Result<()> {
        if let Keep::For(time) = self.keep {
            bounds::time("keep", time, bounds::KEEP)?;
        }
        bounds::time("retry_delay", self.retry_delay, bounds::RETRY_DELAY)
    }
}

impl Request {
    /// DONE, of a run or of a member.
    pub(crate) fn done(&self, result: Option<&[u8]>) -> Command {
        let mut command = self.verb("DONE");
        command.confirm = self.confirm;
        command.is_answered_again = self.family == Family::Once;
        if let Some(result) = result {
            command.arg("RESULT").arg(result);
        }
        match self.ending.keep {
            Keep::AsTheServerSays => {}
            Keep::For(time) => drop(command.arg("PX").arg(millis(time))),
            Keep::Forever => drop(command.arg("PERSIST")),
        }
        command
    }

    /// The commands that record a failure. If the server refuses the first, the second does without what can be refused:
    /// an attempt that has failed must count, or `max_attempts` would bound nothing.
    pub(crate) fn fail(&self, reason: Option<&str>) -> [Command; 2] {
        const LONGEST: usize = 1_000;
        let bare = self.verb("FAIL");
        let mut command = bare.clone();
        if let Some(reason) = reason {
            command.arg("REASON").arg(cut(reason, LONGEST));
        }
        if !self.ending.retry_delay.is_zero() {
            command.arg("DELAY").arg(millis(self.ending.retry_delay));
        }
        [command, bare]
    }
}
