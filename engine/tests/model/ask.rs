//! A request for a hold, and how a test writes it down.

use crate::model::Name;
use dsync_engine::LaneName;
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
    /// How long after the grant its place stays taken (MINHOLD).
    pub min_hold_ms: Option<u32>,
    pub block: Option<Block>,
    /// How long its place is kept (QUEUE).
    pub keep_ms: Option<u32>,
    /// The number of the token; `None` if the server makes one.
    pub token: Option<u8>,
    pub conn: usize,
    pub ephemeral: bool,
    pub owner: Option<&'static str>,
    /// The number of its lane; 0 is the nameless one.
    pub lane: u8,
    pub lane_limit: Option<u32>,
}

/// Returns a try by the token with this number, on the connection with the same number.
pub fn ask(name: Name, claim: Claim, token: u8) -> Ask {
    Ask {
        name,
        claim,
        limit: None,
        max_attempts: None,
        lease_ms: 10_000,
        min_hold_ms: None,
        block: None,
        keep_ms: None,
        token: Some(token),
        conn: usize::from(token),
        ephemeral: false,
        owner: None,
        lane: 0,
        lane_limit: None,
    }
}

/// Returns the lane with this number.
pub fn lane(number: u8) -> LaneName {
    match number {
        0 => LaneName::default(),
        _ => format!("lane {number}").as_bytes().into(),
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

    pub fn lane(mut self, lane: u8) -> Ask {
        self.lane = lane;
        self
    }

    pub fn lane_limit(mut self, limit: u32) -> Ask {
        self.lane_limit = Some(limit);
        self
    }

    pub fn lease(mut self, lease_ms: u32) -> Ask {
        self.lease_ms = lease_ms;
        self
    }

    pub fn min_hold(mut self, ms: u32) -> Ask {
        self.min_hold_ms = Some(ms);
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

/// Returns the token with this number: a UUID for even numbers, a text for odd ones.
pub fn token(number: u8) -> Token {
    let text = match number % 2 {
        0 => format!("8f14e45f-ceea-467f-a8f5-6d1e2c3b4a{number:02x}"),
        _ => format!("token {number}"),
    };
    Token::parse(text.as_bytes()).expect("legal")
}
