//! Redisson's lock (redisson/redisson, `RedissonLock.java`): a hash, and a message to all who wait.
//!
//! - Acquire: a script: EXISTS; where the lock is free, HINCRBY and PEXPIRE; otherwise HEXISTS (it is re-entrant) and
//!   PTTL. Who is refused sends `SUBSCRIBE channel` on a second connection, runs the script again, and then waits for a
//!   message, at most until the holder's lease ends, before each further run. Once in, `UNSUBSCRIBE`, whose reply it
//!   does not await.
//! - Release: a script: GET of the latch (a key that makes a retried release safe), HEXISTS, HINCRBY, DEL,
//!   `PUBLISH channel`, SET of the latch. Then `DEL latch`, whose reply is not awaited either.
//!
//! Every message wakes all who wait, and all run the script. In the original, threads of one process share a
//! subscription and wake one at a time; here each worker is a process. The lease is 30 s, and is renewed after a third
//! of it, which no contest reaches.

use std::time::{Duration, Instant};

use super::{Algorithm, KEY, Script, Terms, Tokens, is_one};
use crate::client::{Client, expect, wrong};
use crate::invalid::Result;
use dsync_testkit::resp::Frame;

const CHANNEL: &[u8] = b"redisson_lock__channel:{shared}";
/// The original computes 16 to 20 s from its timeouts.
pub const LATCH_MS: &[u8] = b"20000";

const ACQUIRE: &str = "
    local lock, lease, me = KEYS[1], ARGV[1], ARGV[2]
    if redis.call('EXISTS', lock) == 1 and redis.call('HEXISTS', lock, me) == 0 then
        return redis.call('PTTL', lock)
    end
    redis.call('HINCRBY', lock, me, 1)
    redis.call('PEXPIRE', lock, lease)
    return false";

// Nobody enters twice here, so that the count is 0 after HINCRBY.
const RELEASE: &str = "
    local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
    local me, latch_ms = ARGV[1], ARGV[2]
    local answered = redis.call('GET', latch)
    if answered then return tonumber(answered) end
    if redis.call('HEXISTS', lock, me) == 0 then return false end
    redis.call('HINCRBY', lock, me, -1)
    redis.call('DEL', lock)
    redis.call('PUBLISH', channel, 0)
    redis.call('SET', latch, 1, 'PX', latch_ms)
    return 1";

struct Redisson {
    commands: Commands,
    subscription: Subscription,
    me: [u8; 36],
    lease_ms: String,
    acquire: Script,
    release: Script,
}

pub fn make(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    let mut commands = Commands::connect(terms)?;
    Ok(Box::new(Redisson {
        me: commands.requests.draw(),
        lease_ms: terms.lease_ms.unwrap_or(30_000).to_string(),
        acquire: commands.load(ACQUIRE)?,
        release: commands.load(RELEASE)?,
        subscription: Subscription::new(terms, CHANNEL.to_vec())?,
        commands,
    }))
}

impl Algorithm for Redisson {
    fn acquire(&mut self, until: Instant) -> Result<bool> {
        let Self {
            commands,
            acquire,
            lease_ms,
            me,
            ..
        } = self;
        let client = commands.settled()?;
        wait_subscribed(&mut self.subscription, until, || {
            acquire.call(client, &[KEY], &[lease_ms.as_bytes(), me], left)
        })
    }

    fn release(&mut self) -> Result<()> {
        let latch = self.commands.latch();
        let keys: [&[u8]; 3] = [KEY, CHANNEL, &latch];
        let client = self.commands.settled()?;
        self.release
            .call(client, &keys, &[&self.me, LATCH_MS], released)?;
        self.commands.forget(&latch)
    }
}

/// Runs `acquire`, which answers None or the rest of the holder's lease, once without a subscription, and then after
/// each message or whenever the rest of the lease is over.
pub fn wait_subscribed(
    subscription: &mut Subscription,
    until: Instant,
    mut acquire: impl FnMut() -> Result<Option<Duration>>,
) -> Result<bool> {
    if acquire()?.is_none() {
        return Ok(true);
    }
    subscription.begin()?;
    while let Some(left) = acquire()? {
        let wake_up = until.min(Instant::now() + left);
        if !subscription.await_message(wake_up)? && Instant::now() >= until {
            return Ok(false);
        }
    }
    subscription.end()?;
    Ok(true)
}

/// None where the script has acquired; otherwise for how long the worker may sleep.
pub fn left(reply: &Frame<'_>) -> Result<Option<Duration>> {
    match reply {
        Frame::Nil => Ok(None),
        Frame::Int(ms) => Ok(Some(Duration::from_millis(ms.unsigned_abs()))),
        _ => Err(wrong("nil or milliseconds", reply)),
    }
}

pub fn released(reply: &Frame<'_>) -> Result<()> {
    expect(*reply == Frame::Int(1), "1", reply)
}

/// The connection for commands.
pub struct Commands {
    client: Client,
    /// For the worker's own name and for a latch of each release.
    pub requests: Tokens,
    /// Whether the reply to the last DEL has not been read yet.
    owes_reply: bool,
}

impl Commands {
    pub fn connect(terms: &Terms) -> Result<Self> {
        Ok(Self {
            client: terms.client()?,
            requests: terms.tokens(),
            owes_reply: false,
        })
    }

    pub fn load(&mut self, lua: &str) -> Result<Script> {
        Script::load(&mut self.client, lua)
    }

    /// The name of a new latch.
    pub fn latch(&mut self) -> Vec<u8> {
        [
            b"redisson_unlock_latch:{shared}:",
            &self.requests.draw()[..],
        ]
        .concat()
    }

    /// The connection, with nothing left to read.
    pub fn settled(&mut self) -> Result<&mut Client> {
        if std::mem::take(&mut self.owes_reply) {
            self.client.receive(is_one)?;
        }
        Ok(&mut self.client)
    }

    /// Sends DEL of the latch and does not await the reply.
    pub fn forget(&mut self, latch: &[u8]) -> Result<()> {
        self.owes_reply = true;
        self.client.send(&[b"DEL", latch])
    }
}

/// The second connection, which listens.
pub struct Subscription {
    client: Client,
    channel: Vec<u8>,
}

impl Subscription {
    pub fn new(terms: &Terms, channel: Vec<u8>) -> Result<Self> {
        Ok(Self {
            client: terms.client()?,
            channel,
        })
    }

    /// Returns when the server has confirmed. What is left of an earlier subscription is skipped.
    fn begin(&mut self) -> Result<()> {
        self.client.send(&[b"SUBSCRIBE", &self.channel])?;
        while self.client.receive(kind)? != Push::Subscribed {}
        Ok(())
    }

    fn await_message(&mut self, until: Instant) -> Result<bool> {
        Ok(self.client.receive_before(until, kind)? == Some(Push::Message))
    }

    fn end(&mut self) -> Result<()> {
        self.client.send(&[b"UNSUBSCRIBE", &self.channel])
    }
}

#[derive(PartialEq, Eq)]
enum Push {
    Subscribed,
    Unsubscribed,
    Message,
}

fn kind(reply: &Frame<'_>) -> Result<Push> {
    match reply.array() {
        Some([Frame::Bulk(b"subscribe"), ..]) => Ok(Push::Subscribed),
        Some([Frame::Bulk(b"unsubscribe"), ..]) => Ok(Push::Unsubscribed),
        Some([Frame::Bulk(b"message"), ..]) => Ok(Push::Message),
        _ => Err(wrong("a push message", reply)),
    }
}
