//! The steps of a story or a history, and how a test writes them down.

use crate::model::Name;
use dsync_engine::Family;
use dsync_engine::families::once::Keep;
use dsync_engine::types::{Claim, Token};

/// How long a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    Forever,
    Ms(u64),
}

/// A request for a hold. [`ask`] makes the simplest one: a try without limit and owner.
#[derive(Clone, Debug)]
pub struct Ask {
    pub name: Name,
    pub claim: Claim,
    pub limit: Option<u32>,
    /// For work-once: how many attempts the request allows in all.
    pub max_attempts: Option<u32>,
    pub lease_ms: u32,
    pub block: Option<Block>,
    /// How long its place is kept (QUEUE).
    pub keep_ms: Option<u32>,
    /// The number of the token; `None` if the server makes one.
    pub token: Option<u8>,
    pub conn: usize,
    pub ephemeral: bool,
    pub owner: Option<&'static str>,
}

/// Returns a try by the token with this number, on the connection with the same number.
pub fn ask(name: Name, claim: Claim, token: u8) -> Ask {
    Ask {
        name,
        claim,
        limit: None,
        max_attempts: None,
        lease_ms: 10_000,
        block: None,
        keep_ms: None,
        token: Some(token),
        conn: usize::from(token),
        ephemeral: false,
        owner: None,
    }
}

impl Ask {
    pub fn limit(mut self, limit: u32) -> Ask {
        self.limit = Some(limit);
        self
    }

    pub fn max_attempts(mut self, attempts: u32) -> Ask {
        self.max_attempts = Some(attempts);
        self
    }

    pub fn lease(mut self, lease_ms: u32) -> Ask {
        self.lease_ms = lease_ms;
        self
    }

    pub fn block(mut self) -> Ask {
        self.block = Some(Block::Forever);
        self
    }

    pub fn block_ms(mut self, ms: u64) -> Ask {
        self.block = Some(Block::Ms(ms));
        self
    }

    /// QUEUE for this many milliseconds.
    pub fn keep(mut self, ms: u32) -> Ask {
        self.keep_ms = Some(ms);
        self
    }

    pub fn ephemeral(mut self) -> Ask {
        self.ephemeral = true;
        self
    }

    pub fn conn(mut self, conn: usize) -> Ask {
        self.conn = conn;
        self
    }

    pub fn without_token(mut self) -> Ask {
        self.token = None;
        self
    }
}

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

/// Returns the token with this number: a UUID for even numbers, a text for odd ones.
pub fn token(number: u8) -> Token {
    let text = match number % 2 {
        0 => format!("8f14e45f-ceea-467f-a8f5-6d1e2c3b4a{number:02x}"),
        _ => format!("token {number}"),
    };
    Token::parse(text.as_bytes()).expect("legal")
}
