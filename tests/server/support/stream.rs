//! The replication stream of a primary, command by command.
//!
//! The stream attaches like a replica (`PSYNC ? -1`), drops the snapshot and reads on. A thread of its own reads and
//! acknowledges, so the primary always sees an online replica that is up to date: `WAIT` and `min-replicas-to-write`
//! count it. PING, SELECT and REPLCONF are not yielded. MULTI and EXEC are, because tests assert what is replicated
//! atomically.

use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dsync_testkit::{Argument, Inbox, Reply, Server, Socket, call, eventually, parse_reply, resp};

use super::packed::{STREAM, spelled};

/// The deadline for the primary to make and send its snapshot and to list the stream as online.
const ATTACH_WITHIN: Duration = Duration::from_secs(25);
/// The deadline for a marker to pass through the server.
const ARRIVE_WITHIN: Duration = Duration::from_secs(25);
const ACKNOWLEDGE_EVERY: Duration = Duration::from_millis(100);

/// The channel of the messages that mark a place in the stream.
const MARKER: &[u8] = b"dsync-test:marker";

pub struct ReplicationStream {
    commands: Receiver<Vec<Vec<u8>>>,
    socket: Socket,
    reader: Option<JoinHandle<()>>,
}

impl ReplicationStream {
    /// Attaches to a primary; returns when the primary counts it as an online replica. What is
    /// replicated from then on is yielded.
    #[track_caller]
    pub fn attach(primary: &Server) -> ReplicationStream {
        ReplicationStream::ask(primary, ["?", "-1"])
    }

    /// Attaches at the beginning of the primary's backlog: yields everything that is in it, and what follows.
    #[track_caller]
    pub fn of_backlog(primary: &Server) -> ReplicationStream {
        let id = primary.info("replication", "master_replid");
        let first = primary.info("replication", "repl_backlog_first_byte_offset");
        ReplicationStream::ask(primary, [&id, &first])
    }

    /// Attaches with `PSYNC id offset`.
    #[track_caller]
    fn ask(primary: &Server, [id, offset]: [&str; 2]) -> ReplicationStream {
        let mut client = primary.connect();
        let port = client.local_port();
        // The port identifies this stream in the primary's list of replicas.
        for option in [
            ["listening-port", &port.to_string()],
            ["capa", "eof"],
            ["capa", "psync2"],
        ] {
            let reply = client.ask(format!("REPLCONF {} {}", option[0], option[1]));
            assert_eq!(reply, "OK", "REPLCONF {option:?}");
        }
        client.send(&["PSYNC", id, offset]);
        let (socket, inbox) = client.into_parts();
        socket
            .set_read_timeout(Some(ATTACH_WITHIN))
            .expect("a time-out above zero is accepted by every socket");
        let mut link = PrimaryLink {
            socket: socket.try_clone().expect("a socket can be cloned"),
            inbox,
            offset: 0,
        };
        match offset.parse::<usize>() {
            Ok(wanted) => link.expect_continuation(wanted),
            // The offset is -1: a full synchronisation.
            Err(_) => link.skip_snapshot(),
        }

        let (sender, commands) = mpsc::channel();
        let reader = thread::Builder::new()
            .name("replication".to_owned())
            .spawn(move || link.read_on(&sender))
            .expect("the reading thread starts");
        let stream = ReplicationStream {
            commands,
            socket,
            reader: Some(reader),
        };
        let online = format!("port={port},state=online");
        eventually(
            "the stream counted as an online replica",
            ATTACH_WITHIN,
            || primary.info_section("replication").contains(&online),
        );
        stream
    }

    /// The next command, or `None` if none comes in time. Panics if the primary closed the link.
    #[track_caller]
    pub fn next(&mut self, within: Duration) -> Option<Vec<Vec<u8>>> {
        match self.commands.recv_timeout(within) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the primary closed the replication link")
            }
        }
    }

    /// All commands until none comes for `quiet`: for what the server does at a time of its own.
    #[track_caller]
    pub fn take_until_quiet(&mut self, quiet: Duration) -> Vec<Vec<Vec<u8>>> {
        std::iter::from_fn(|| self.next(quiet)).collect()
    }

    /// Exactly the commands that `primary` has replicated up to this call: a message published on the primary marks the
    /// end. The primary must accept writes and be no cluster node (which does not replicate messages).
    #[track_caller]
    pub fn take_so_far(&mut self, primary: &Server) -> Vec<Vec<Vec<u8>>> {
        static MARKS: AtomicU32 = AtomicU32::new(0);
        let mark = MARKS.fetch_add(1, Ordering::Relaxed).to_argument();
        let published = call!(primary.connect(), "PUBLISH", MARKER, mark);
        assert_eq!(published, 0, "nobody subscribes to the marker");
        let mut commands = Vec::new();
        loop {
            match self.next(ARRIVE_WITHIN) {
                Some(command) if command.get(1).is_some_and(|channel| channel == MARKER) => {
                    if command.get(2) == Some(&mark) {
                        return commands;
                    }
                }
                Some(command) => commands.push(command),
                None => panic!("the marker did not come within {ARRIVE_WITHIN:?}"),
            }
        }
    }
}

impl Drop for ReplicationStream {
    fn drop(&mut self) {
        // Ends the reader's wait; an error means that the primary was first.
        let _ = self.socket.shutdown();
        if let Some(reader) = self.reader.take() {
            // A panic of the reader has been printed already.
            let _ = reader.join();
        }
    }
}

/// A replicated command as text, for assertions. Odd bytes are escaped; the packed string of `DSYN` is spelled out as
/// the family and each change, see [`super::packed`].
#[track_caller]
pub fn words(command: &[Vec<u8>]) -> Vec<String> {
    let escaped = |word: &Vec<u8>| word.escape_ascii().to_string();
    match command {
        [name, key, packed] if name == STREAM.as_bytes() => [name, key]
            .map(escaped)
            .into_iter()
            .chain(spelled(packed))
            .collect(),
        _ => command.iter().map(escaped).collect(),
    }
}

/// The replica's end of the link to the primary.
struct PrimaryLink {
    socket: Socket,
    inbox: Inbox,
    /// The replication offset: how many bytes of the stream were parsed.
    offset: usize,
}

impl PrimaryLink {
    /// Reads `+FULLRESYNC id offset` and skips the snapshot behind it.
    fn skip_snapshot(&mut self) {
        let answer = self.line();
        self.offset = match answer.split(' ').collect::<Vec<_>>().as_slice() {
            ["+FULLRESYNC", _, offset] => offset
                .parse()
                .unwrap_or_else(|_| panic!("no offset in {answer:?}")),
            _ => panic!("expected +FULLRESYNC to PSYNC, received {answer:?}"),
        };
        let header = self.line();
        if let Some(mark) = header.strip_prefix("$EOF:") {
            self.skip_past(mark.as_bytes());
        } else {
            let length = header.strip_prefix('$').and_then(|text| text.parse().ok());
            self.skip(length.unwrap_or_else(|| panic!("no snapshot behind {header:?}")));
        }
    }

    /// Reads `+CONTINUE id`; the stream follows at once.
    fn expect_continuation(&mut self, wanted: usize) {
        let answer = self.line();
        assert!(
            answer.starts_with("+CONTINUE"),
            "expected +CONTINUE to PSYNC, received {answer:?}"
        );
        // PSYNC asks for the next byte, one after the offset.
        self.offset = wanted - 1;
    }

    /// Reads a line. Skips the empty lines that a primary sends to keep the link alive before a snapshot.
    fn line(&mut self) -> String {
        loop {
            while self.inbox.bytes().first() == Some(&b'\n') {
                self.inbox.take(1);
            }
            if let Some((line, used)) = resp::line(self.inbox.bytes()) {
                let text = String::from_utf8_lossy(line).into_owned();
                self.inbox.take(used);
                return text;
            }
            self.read_more();
        }
    }

    fn skip(&mut self, length: usize) {
        let mut left = length;
        while left > 0 {
            if self.inbox.bytes().is_empty() {
                self.read_more();
            }
            let skipped = left.min(self.inbox.bytes().len());
            self.inbox.take(skipped);
            left -= skipped;
        }
    }

    /// Skips a snapshot that was sent without its length, and the mark at its end.
    fn skip_past(&mut self, mark: &[u8]) {
        assert!(
            !mark.is_empty(),
            "a snapshot without length has an end mark"
        );
        loop {
            let bytes = self.inbox.bytes();
            let found = bytes.windows(mark.len()).position(|window| window == mark);
            if let Some(at) = found {
                self.inbox.take(at + mark.len());
                return;
            }
            // Keep the last bytes: they may be the beginning of the mark.
            let known = bytes.len().saturating_sub(mark.len() - 1);
            self.inbox.take(known);
            self.read_more();
        }
    }

    fn read_more(&mut self) {
        match self.inbox.fill(&mut self.socket) {
            Ok(0) => panic!("the primary closed the link before the snapshot was complete"),
            Ok(_) => {}
            Err(error) => panic!("no snapshot from the primary: {error}"),
        }
    }

    /// Yields commands and acknowledges them until either end closes the link.
    fn read_on(mut self, commands: &Sender<Vec<Vec<u8>>>) {
        self.socket
            .set_read_timeout(Some(ACKNOWLEDGE_EVERY))
            .expect("a time-out above zero is accepted by every socket");
        loop {
            // Acknowledge before the first read: a primary that sent a snapshot without length starts the stream only
            // after the first acknowledgement.
            let acknowledgement = ["REPLCONF", "ACK", &self.offset.to_string()];
            if self
                .socket
                .write_all(&resp::request(&acknowledgement))
                .is_err()
            {
                return;
            }
            match self.inbox.fill(&mut self.socket) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return,
                },
            }
            while let Some((command, used)) = parse_reply(self.inbox.bytes()) {
                self.inbox.take(used);
                self.offset += used;
                let command = words_of(command);
                if !is_housekeeping(&command) && commands.send(command).is_err() {
                    return;
                }
            }
        }
    }
}

fn words_of(command: Reply) -> Vec<Vec<u8>> {
    command
        .as_array()
        .iter()
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

fn is_housekeeping(command: &[Vec<u8>]) -> bool {
    command.first().is_some_and(|name| {
        ["PING", "SELECT", "REPLCONF"]
            .iter()
            .any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
    })
}
