//! The four families: how requests, replies and the replication stream name them.

pub use dsync_engine::Family;

pub trait InCommands: Copy {
    /// The prefix of its commands.
    fn prefix(self) -> &'static str;

    /// Its name in replies and in the stream.
    fn word(self) -> &'static str;

    /// A request for a hold that leaves room for no other.
    fn request(self, key: &str) -> String;

    /// The same with this token; `more` are further options.
    fn acquire(self, key: &str, token: &str, more: &str) -> String {
        format!("{} TOKEN {token} {more}", self.request(key))
    }

    fn release(self, key: &str, token: &str) -> String {
        format!("{}.RELEASE {key} {token}", self.prefix())
    }

    fn check(self, key: &str, token: &str) -> String {
        format!("{}.CHECK {key} {token}", self.prefix())
    }
}

impl InCommands for Family {
    fn prefix(self) -> &'static str {
        ["DLOCK", "DSEM", "DWG", "DONCE"][self as usize]
    }

    fn word(self) -> &'static str {
        ["lock", "semaphore", "group", "once"][self as usize]
    }

    fn request(self, key: &str) -> String {
        match self {
            Family::Lock => format!("DLOCK.ACQUIRE {key}"),
            Family::Semaphore => format!("DSEM.ACQUIRE {key} LIMIT 1"),
            Family::Group => format!("DWG.ADD {key} LIMIT 1"),
            Family::Once => format!("DONCE.BEGIN {key}"),
        }
    }
}
