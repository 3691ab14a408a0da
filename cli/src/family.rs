//! The four families of keys. A key that exists has one as its type; one that does not is given one.

use clap::ValueEnum;
use redis::Cmd;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Family {
    Lock,
    Semaphore,
    Group,
    Once,
}

impl Family {
    pub const ALL: [Family; 4] = [Family::Lock, Family::Semaphore, Family::Group, Family::Once];

    /// Returns the name that options, lists and the server's own lists have.
    pub fn name(self) -> &'static str {
        match self {
            Family::Lock => "lock",
            Family::Semaphore => "semaphore",
            Family::Group => "group",
            Family::Once => "once",
        }
    }

    pub fn named(name: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.name() == name)
    }

    /// Returns a command of the family about a key: `DLOCK.INFO`, say.
    pub fn command(self, verb: &str, key: &[u8]) -> Cmd {
        let prefix = match self {
            Family::Lock => "DLOCK",
            Family::Semaphore => "DSEM",
            Family::Group => "DWG",
            Family::Once => "DONCE",
        };
        redis::cmd(&format!("{prefix}.{verb}")).arg(key).to_owned()
    }

    /// Returns a counter of the family in INFO dsync.
    pub fn counter(self, what: &str) -> String {
        let family = match self {
            Family::Lock => "lock",
            Family::Semaphore => "sem",
            Family::Group => "wg",
            Family::Once => "once",
        };
        format!("dsync_{family}_{what}")
    }
}
