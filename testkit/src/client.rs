//! One blocking connection to a server.
//!
//! A request is a line of words, as typed into `redis-cli` (the server accepts such inline commands beside RESP):
//!
//! - [`Client::ask`]: one line, one reply;
//! - [`Client::ask_all`]: several lines in one write;
//! - [`Client::begin`], for one who waits: the test acts, and reads the reply later. [`Client::wait_on`] and
//!   [`Server::waiting`](crate::Server::waiting), which connects, return when the server has blocked the client.
//!
//! A line cannot say everything: `call!` and `send!` take words that are bytes. Replies come in the order in which the
//! server wrote them, with the pushes of RESP3 among them.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::eventually::SOON;
use crate::inbox::Inbox;
use crate::reply::{Reply, parse_reply};
use crate::resp;
use crate::socket::Socket;

/// How many bytes are read at once.
const ROOM: usize = 4096;
/// How many lines [`Client::ask_all`] sends before it reads: with more, both ends could wait for the other to read.
const AT_ONCE: usize = 500;

pub struct Client {
    stream: Socket,
    inbox: Inbox,
}

impl Client {
    /// Connects with RESP2.
    pub fn connect(address: SocketAddr) -> std::io::Result<Client> {
        Socket::connect(address).map(Client::over)
    }

    /// As [`Client::connect`], to the server's socket of that path.
    pub fn connect_path(path: &Path) -> std::io::Result<Client> {
        Socket::connect_path(path).map(Client::over)
    }

    fn over(stream: Socket) -> Client {
        Client {
            stream,
            inbox: Inbox::new(ROOM),
        }
    }

    /// Sends a line as it is typed into `redis-cli`, and waits for the next reply.
    #[track_caller]
    pub fn ask(&mut self, line: impl AsRef<str>) -> Reply {
        self.begin(&line);
        self.reply_to(|| line.as_ref().to_owned())
    }

    /// Sends lines in one write, and returns their replies. The server carries out one write in one turn of its event
    /// loop, so this is how two things happen at the same moment. More than 500 lines are several writes.
    #[track_caller]
    pub fn ask_all<L: AsRef<str>>(&mut self, lines: impl IntoIterator<Item = L>) -> Vec<Reply> {
        let lines: Vec<L> = lines.into_iter().collect();
        let mut replies = Vec::with_capacity(lines.len());
        for some in lines.chunks(AT_ONCE) {
            let text = some.iter().flat_map(|line| [line.as_ref(), "\r\n"]);
            self.send_raw(text.collect::<String>().as_bytes());
            replies.extend(
                some.iter()
                    .map(|line| self.reply_to(|| line.as_ref().to_owned())),
            );
        }
        replies
    }

    /// Sends a line and reads nothing: [`Client::reply`] and [`Client::granted`] do, when the test is there.
    #[track_caller]
    pub fn begin(&mut self, line: impl AsRef<str>) {
        self.send_raw(format!("{}\r\n", line.as_ref()).as_bytes());
    }

    /// The next reply, to a line that was begun.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        self.reply_to(|| "what was begun".to_owned())
    }

    /// The grant that ends a wait: its token and fence.
    #[track_caller]
    pub fn granted(&mut self) -> (String, u64) {
        self.reply().grant()
    }

    #[track_caller]
    fn reply_to(&mut self, request: impl FnOnce() -> String) -> Reply {
        match self.recv(SOON) {
            Some(reply) => reply,
            None => panic!("no reply within {SOON:?} to {}", request()),
        }
    }

    /// Sends a request and waits for the next reply.
    #[track_caller]
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply {
        self.send(arguments);
        self.reply_to(|| shown(arguments))
    }

    /// As [`Client::call`], for a server that may be gone: `None` if the connection closed or no reply came in time.
    pub fn try_call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Option<Reply> {
        self.stream.write_all(&resp::request(arguments)).ok()?;
        match self.next(SOON) {
            Next::Reply(reply) => Some(reply),
            Next::Nothing | Next::Closed => None,
        }
    }

    /// Sends a request and reads nothing.
    #[track_caller]
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        self.send_raw(&resp::request(arguments));
    }

    /// Sends bytes as they are: for inline commands, and for what no normal client would send.
    #[track_caller]
    pub fn send_raw(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            panic!(
                "cannot send {:?}: {error}",
                bytes.escape_ascii().to_string()
            );
        }
    }

    /// The next reply, or `None` if none is complete in time. Panics if the server closed the connection.
    #[track_caller]
    pub fn recv(&mut self, within: Duration) -> Option<Reply> {
        match self.next(within) {
            Next::Reply(reply) => Some(reply),
            Next::Nothing => None,
            Next::Closed => panic!("the server closed the connection while a reply was awaited"),
        }
    }

    /// As [`Client::recv`], for a connection that the server may close: that is `Err`.
    pub fn recv_or_closed(&mut self, within: Duration) -> Result<Option<Reply>, Closed> {
        match self.next(within) {
            Next::Reply(reply) => Ok(Some(reply)),
            Next::Nothing => Ok(None),
            Next::Closed => Err(Closed),
        }
    }

    /// Makes the connection non-blocking. From then on read it with [`Client::poll`] and write it with [`Client::push`]
    /// only; they never wait for a reply.
    pub fn set_nonblocking(&mut self) {
        self.stream
            .set_nonblocking()
            .expect("every socket can be made non-blocking");
    }

    /// The next reply, if it has arrived. For a non-blocking connection.
    pub fn poll(&mut self) -> Result<Option<Reply>, Closed> {
        loop {
            if let Some(reply) = self.arrived() {
                return Ok(Some(reply));
            }
            match self.inbox.fill(&mut self.stream) {
                Ok(0) => return Err(Closed),
                Ok(_) => {}
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(None),
                    ErrorKind::Interrupted => {}
                    _ => return Err(Closed),
                },
            }
        }
    }

    /// Sends bytes in one write. For a non-blocking connection; waits while the server does not read, but not for long.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Closed> {
        let deadline = Instant::now() + SOON;
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(length) => rest = &rest[length..],
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock if Instant::now() < deadline => std::thread::yield_now(),
                    ErrorKind::Interrupted => {}
                    _ => return Err(Closed),
                },
            }
        }
        Ok(())
    }

    /// Asserts that nothing arrives during `quiet`.
    #[track_caller]
    pub fn expect_silence(&mut self, quiet: Duration) {
        match self.next(quiet) {
            Next::Nothing if self.inbox.bytes().is_empty() => {}
            Next::Nothing => panic!(
                "expected silence, received {:?}",
                self.inbox.bytes().escape_ascii().to_string()
            ),
            Next::Reply(reply) => panic!("expected silence, received {reply:?}"),
            Next::Closed => panic!("expected silence, but the server closed the connection"),
        }
    }

    /// Asserts that the server closes the connection, without another reply.
    #[track_caller]
    pub fn expect_closed(&mut self, within: Duration) {
        match self.next(within) {
            Next::Closed => {}
            Next::Reply(reply) => panic!("expected the connection to close, received {reply:?}"),
            Next::Nothing => panic!("the server did not close the connection within {within:?}"),
        }
    }

    /// The server's id of this connection.
    #[track_caller]
    pub fn id(&mut self) -> u64 {
        let id = self.call(&["CLIENT", "ID"]).as_int();
        u64::try_from(id).expect("client ids are never negative")
    }

    /// Closes the connection, as a client that exits does.
    pub fn close(self) {
        // A shutdown, because dropping this socket closes nothing while a clone of it exists. An error means that the
        // server closed first.
        let _ = self.stream.shutdown();
    }

    /// The port of this end; the server lists the connection by it.
    pub fn local_port(&self) -> u16 {
        self.stream
            .local_port()
            .expect("a connection to an address has one of its own")
    }

    /// The socket, and the bytes read from it but not taken: for another protocol on the same connection.
    pub fn into_parts(self) -> (Socket, Inbox) {
        (self.stream, self.inbox)
    }

    /// Takes a reply that has arrived.
    fn arrived(&mut self) -> Option<Reply> {
        let (reply, used) = parse_reply(self.inbox.bytes())?;
        self.inbox.take(used);
        Some(reply)
    }

    fn next(&mut self, within: Duration) -> Next {
        let deadline = Instant::now() + within;
        loop {
            if let Some(reply) = self.arrived() {
                return Next::Reply(reply);
            }
            // To the socket a timeout of zero means no timeout, so the shortest is a millisecond. With it, a `within`
            // of zero still reads what has arrived.
            let left = deadline.saturating_duration_since(Instant::now());
            let last_look = left < Duration::from_millis(1);
            self.stream
                .set_read_timeout(Some(left.max(Duration::from_millis(1))))
                .expect("a time-out above zero is accepted by every socket");
            match self.inbox.fill(&mut self.stream) {
                Ok(0) => return Next::Closed,
                Ok(_) => {}
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if last_look => {
                        return Next::Nothing;
                    }
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    ErrorKind::ConnectionReset => return Next::Closed,
                    _ => panic!("cannot read from the server: {error}"),
                },
            }
        }
    }
}

/// The server closed the connection.
#[derive(Debug)]
pub struct Closed;

enum Next {
    Reply(Reply),
    Nothing,
    Closed,
}

fn shown<A: AsRef<[u8]>>(arguments: &[A]) -> String {
    let shown: Vec<String> = arguments
        .iter()
        .map(|argument| argument.as_ref().escape_ascii().to_string())
        .collect();
    shown.join(" ")
}
