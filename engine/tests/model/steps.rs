//! The steps of a story or a history, and how a test writes them down.

use crate::model::Name;
use dsync_engine::Family;
use dsync_engine::types::{Claim, Token};

/// How long a request waits, from when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    Forever,
    Ms(u64),
}

/// A request for a hold. What is not said is as plain as can be: a try, by its token's own connection.
#[derive(Clone, Debug)]
pub struct Ask {
    pub name: Name,
    pub claim: Claim,
    pub limit: Option<u32>,
    /// For a run: how many attempts it allows in all.
    pub max_attempts: Option<u32>,
    pub lease_ms: u32,
    pub block: Option<Block>,
    /// `None` where the server makes one up.
    pub token: Option<u8>,
    pub conn: usize,
    pub ephemeral: bool,
    pub owner: Option<&'static str>,
}

/// A request of the token with this number, on the connection of that number.
pub fn ask(name: Name, claim: Claim, token: u8) -> Ask {
    Ask {
        name,
        claim,
        limit: None,
        max_attempts: None,
        lease_ms: 10_000,
        block: None,
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
    /// The hold at this place, oldest first; beyond the last a fence that nobody has.
    Revoke(Name, Family, usize),
    Done(Name, Vec<u8>),
    Expect(Name, u32),
    Pin(Name, Option<u32>),
    Wait(Name, Option<Block>, usize),
    /// DONE of work-once: the token, the result and how long it is kept, if that is said.
    Complete(Name, u8, Option<&'static str>, Option<u64>),
    /// FAIL of work-once: the token and the reason.
    Fail(Name, u8, &'static str),
    /// The connection closes; another takes its number.
    Disconnect(usize),
    /// The server itself answers the waiter, CLIENT UNBLOCK for one.
    Unblock(usize),
    /// The waiters that the last step granted are found gone, before or after their connections are
    /// reported closed.
    FindGone {
        reported_first: bool,
    },
    Pass {
        us: u64,
    },
    /// A stall, or a server that cannot write: the lease clock stands still.
    Stall {
        us: u64,
    },
    /// The timer fires.
    Tick,
    MayWrite(bool),
    Delete(Name),
    Rename(Name, Name),
    Overwrite(Name),
    Flush(Option<i32>),
    Swap(i32, i32),
    Free,
    /// The server starts again from what it saved, this long after.
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

/// The token with this number: UUIDs and plain texts by turns.
pub fn token(number: u8) -> Token {
    let text = match number % 2 {
        0 => format!("8f14e45f-ceea-467f-a8f5-6d1e2c3b4a{number:02x}"),
        _ => format!("token {number}"),
    };
    Token::parse(text.as_bytes()).expect("legal")
}
