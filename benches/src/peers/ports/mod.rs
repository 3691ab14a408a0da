//! Ports: published algorithms as the commands that they send, over the benchmark's own client.
//!
//! A port keeps the order and the number of the commands, the delays, and what goes over a connection of its own. Where
//! the original does something besides (logs, retries after network errors), the port leaves it out. Where a reading
//! was possible that favours the original, the port takes it. Lua is written anew, with the same calls in the same
//! order. A port has a connection of its own for each worker, as workers have that are processes of their own.

pub mod dsync;
pub mod getset;
pub mod locking_worker;
pub mod rate_limiter;
pub mod redisson;
pub mod redisson_fair;
pub mod redisson_rate;
pub mod semaphore_go;
pub mod set_nx;

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::client::{Client, expect, wrong};
use crate::invalid::{Context, Result};
use crate::words;
use dsync_testkit::resp::{Frame, write_request};

/// What all workers compete for.
pub const KEY: &[u8] = b"shared";

/// The span of a rate: in any so many milliseconds there are as many grants as there are permits.
pub const SPAN_MS: u64 = 500;

/// One worker's side of an algorithm. To drop it is what the death of the worker's process is to the server: its
/// connections close, and nothing is given back.
pub trait Algorithm: Send {
    /// Asks and waits as the algorithm does. Returns false where it still waits when `until` comes; the worker does
    /// not ask again then.
    fn acquire(&mut self, until: Instant) -> Result<bool>;

    fn release(&mut self) -> Result<()>;
}

/// Makes one worker's side, connected and with its scripts loaded.
pub type Make = fn(&Terms) -> Result<Box<dyn Algorithm>>;

/// What a worker is told.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Of the server, on the loopback interface.
    pub port: u16,
    pub worker: u64,
    /// On whose behalf it asks.
    pub tenant: u64,
    /// None for a lock, otherwise the semaphore's limit.
    pub permits: Option<usize>,
    /// None for the lease that the algorithm has by default.
    pub lease_ms: Option<u64>,
}

impl Terms {
    pub fn client(&self) -> Result<Client> {
        Client::connect(self.port)
    }

    pub fn tokens(&self) -> Tokens {
        Tokens {
            next: self.worker << 32,
        }
    }
}

/// Tokens that no other worker draws.
pub struct Tokens {
    next: u64,
}

impl Tokens {
    pub fn draw(&mut self) -> [u8; 36] {
        self.next += 1;
        words::token(self.next)
    }
}

/// Sleeps for the algorithm's own delay. Returns false where `until` comes first.
pub fn pause(delay: Duration, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    sleep(delay.min(left));
    delay < left
}

/// The name of a script that is loaded, for EVALSHA.
pub struct Script(Vec<u8>);

impl Script {
    pub fn load(client: &mut Client, lua: &str) -> Result<Self> {
        client.call(&[b"SCRIPT", b"LOAD", lua.as_bytes()], |reply| {
            let name = reply
                .bulk()
                .ok_or_else(|| wrong("a script's name", reply))?;
            Ok(Self(name.to_vec()))
        })
    }

    pub fn call<T>(
        &self,
        client: &mut Client,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        read: impl FnOnce(&Frame<'_>) -> Result<T>,
    ) -> Result<T> {
        let count = keys.len().to_string();
        let words = [
            &[b"EVALSHA", &self.0[..], count.as_bytes()],
            keys,
            arguments,
        ]
        .concat();
        client.call(&words, read)
    }
}

/// Sends commands in MULTI and EXEC, all at once as client libraries do, and returns what `read` makes of EXEC's reply,
/// which is nil where a watched key has changed.
pub fn transaction<T>(
    client: &mut Client,
    commands: &[&[&[u8]]],
    read: impl FnOnce(&Frame<'_>) -> Result<T>,
) -> Result<T> {
    write_request(&mut client.out, &[b"MULTI"]);
    for command in commands {
        write_request(&mut client.out, command);
    }
    client.send(&[b"EXEC"])?;
    client.receive(ok)?;
    for _ in commands {
        client.receive(|reply| expect(*reply == Frame::Simple(b"QUEUED"), "QUEUED", reply))?;
    }
    client.receive(read)
}

/// EXEC's reply must be one of as many commands.
pub fn executed(count: usize) -> impl FnOnce(&Frame<'_>) -> Result<()> {
    move |reply| {
        let is_right = reply.array().is_some_and(|items| {
            items.len() == count && !items.iter().any(|item| matches!(item, Frame::Error(_)))
        });
        expect(is_right, "what EXEC answers", reply)
    }
}

pub fn ok(reply: &Frame<'_>) -> Result<()> {
    expect(reply.is_ok(), "OK", reply)
}

/// Whether the integer is 1, which otherwise must be 0.
pub fn is_one(reply: &Frame<'_>) -> Result<bool> {
    match reply {
        Frame::Int(0) => Ok(false),
        Frame::Int(1) => Ok(true),
        _ => Err(wrong("0 or 1", reply)),
    }
}

/// Whether SET with NX has set.
pub fn is_set(reply: &Frame<'_>) -> Result<bool> {
    match reply {
        Frame::Nil => Ok(false),
        _ => ok(reply).map(|()| true),
    }
}

/// A value, or None where the key does not exist.
pub fn value(reply: &Frame<'_>) -> Result<Option<Vec<u8>>> {
    match reply {
        Frame::Nil => Ok(None),
        Frame::Bulk(value) => Ok(Some(value.to_vec())),
        _ => Err(wrong("a value or nil", reply)),
    }
}

/// The worker's own clock, which some algorithms trust.
pub fn unix_time() -> Result<Duration> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.context("the clock stands before 1970")
}
