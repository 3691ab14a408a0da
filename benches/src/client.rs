//! A connection to a server: blocking, pipelined, RESP2 over TCP on the loopback interface.
//!
//! It is our own and not a client library because a library's work would be part of what is measured: client and
//! server share the machine's cores, and a client that allocates for every reply cannot keep a server's pipe full.
//! This one writes prepared bytes with one system call and reads replies in place.
//!
//! Absent on purpose: reconnecting, timeouts other than one against a server that hangs, TLS, cluster redirects.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use dsync_testkit::Inbox;
use dsync_testkit::resp::{Frame, parse, write_request};

use crate::invalid::{Context, Invalid, Result};

/// A reply that takes longer than this makes the run invalid. Loading and lapsing a million holds takes less.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Client {
    stream: TcpStream,
    /// Bytes to send with the next [`Client::flush`].
    pub out: Vec<u8>,
    inbox: Inbox,
}

impl Client {
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?;
        stream.set_nodelay(true).context("cannot set TCP_NODELAY")?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .context("cannot set a timeout")?;
        Ok(Self {
            stream,
            out: Vec::new(),
            // Small, for there are runs with 20,000 clients.
            inbox: Inbox::new(512),
        })
    }

    /// Sends one command at once and does not wait for its reply.
    pub fn send(&mut self, words: &[&[u8]]) -> Result<()> {
        write_request(&mut self.out, words);
        self.flush()
    }

    /// Sends everything in `out`.
    pub fn flush(&mut self) -> Result<()> {
        self.stream.write_all(&self.out).context("cannot send")?;
        self.out.clear();
        Ok(())
    }

    /// Waits for the next reply and returns what `read` makes of it.
    pub fn receive<T>(&mut self, read: impl FnOnce(&Frame<'_>) -> Result<T>) -> Result<T> {
        loop {
            let parsed =
                parse(self.inbox.bytes()).map_err(|_| Invalid::new("a reply is not RESP2"))?;
            if let Some((reply, used)) = parsed {
                let result = read(&reply);
                self.inbox.take(used);
                return result;
            }
            self.fill()?;
        }
    }

    /// As [`Client::receive`]; returns None where no reply has begun to arrive before `deadline`.
    pub fn receive_before<T>(
        &mut self,
        deadline: Instant,
        read: impl FnOnce(&Frame<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.inbox.bytes().is_empty() && !self.is_readable_before(deadline)? {
            return Ok(None);
        }
        self.receive(read).map(Some)
    }

    fn is_readable_before(&self, deadline: Instant) -> Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let set = |timeout| self.stream.set_read_timeout(Some(timeout));
        set(left).context("cannot set a timeout")?;
        let peeked = self.stream.peek(&mut [0]);
        set(PATIENCE).context("cannot set a timeout")?;
        match peeked {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(false)
            }
            Err(error) => Err(Invalid::new(format!("no reply: {error}"))),
        }
    }

    fn fill(&mut self) -> Result<()> {
        match self.inbox.fill(&mut self.stream) {
            Ok(0) => Err(Invalid::new("the server closed a connection")),
            Ok(_) => Ok(()),
            Err(error) => Err(Invalid::new(format!("no reply: {error}"))),
        }
    }

    /// Sends one command and returns what `read` makes of its reply. The error of a wrong reply names the command.
    pub fn call<T>(
        &mut self,
        words: &[&[u8]],
        read: impl FnOnce(&Frame<'_>) -> Result<T>,
    ) -> Result<T> {
        self.send(words)?;
        self.receive(read).map_err(|error| {
            let words: Vec<_> = words
                .iter()
                .map(|word| String::from_utf8_lossy(word))
                .collect();
            error.during(words.join(" "))
        })
    }

    /// Sends one command, as words between blanks, whose reply must be `OK`.
    pub fn ok(&mut self, command: &str) -> Result<()> {
        self.call(&words(command), |reply| expect(reply.is_ok(), "OK", reply))
    }

    pub fn integer(&mut self, command: &str) -> Result<i64> {
        self.call(&words(command), |reply| {
            reply.integer().ok_or_else(|| wrong("an integer", reply))
        })
    }

    pub fn text(&mut self, command: &str) -> Result<String> {
        self.call(&words(command), |reply| {
            let bytes = reply.bulk().ok_or_else(|| wrong("a string", reply))?;
            Ok(String::from_utf8_lossy(bytes).into_owned())
        })
    }

    /// Returns when the server has carried out everything that reached it before.
    pub fn barrier(&mut self) -> Result<()> {
        self.call(&[b"PING"], |reply| {
            expect(*reply == Frame::Simple(b"PONG"), "PONG", reply)
        })
    }
}

fn words(command: &str) -> Vec<&[u8]> {
    command.split(' ').map(str::as_bytes).collect()
}

/// An error unless the reply is as it must be.
pub fn expect(is_right: bool, wanted: &str, reply: &Frame<'_>) -> Result<()> {
    if is_right {
        Ok(())
    } else {
        Err(wrong(wanted, reply))
    }
}

pub fn wrong(wanted: &str, reply: &Frame<'_>) -> Invalid {
    Invalid::new(format!("wrong reply: {reply} instead of {wanted}"))
}
