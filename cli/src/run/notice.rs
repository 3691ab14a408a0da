//! What `dsync run` says on stderr: a line that is rewritten while it waits, and messages.
//!
//! The line is shown on a terminal only; in a log file it would be noise. Errors are always shown.
//!
//! A thread of its own writes, because stderr can be a pipe whose reader has stopped, or a terminal after Ctrl-S: the
//! thread that ends a command whose hold is lost must not wait for it. What the thread cannot keep up with is dropped.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use dsync_client::{Holder, Progress};

use crate::duration::short;
use crate::paint;
use crate::text::printable;

/// How many messages wait to be written at most.
const MOST_UNWRITTEN: usize = 256;

/// How long to wait for stderr at most where what was said must be seen first: before the command starts, and at the
/// end.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Quiet,
    Normal,
    Verbose,
}

pub struct Notice {
    level: Level,
    is_terminal: bool,
    writer: SyncSender<Piece>,
}

enum Piece {
    Message(String),
    /// Replaces the waiting line.
    Waiting(String),
    /// Removes the waiting line.
    Clear,
    /// Tells that all before it is written.
    Written(Sender<()>),
}

impl Notice {
    /// Starts the thread that writes.
    pub fn start(level: Level) -> io::Result<Notice> {
        let (writer, pieces) = sync_channel(MOST_UNWRITTEN);
        let thread = thread::Builder::new().name("stderr".into());
        thread.spawn(move || write_all(&pieces))?;
        Ok(Notice {
            level,
            is_terminal: io::stderr().is_terminal(),
            writer,
        })
    }

    /// Shows where the request stands. Rewrites the line on a terminal; elsewhere writes one if asked to be verbose.
    pub fn waiting(&self, what: &str, progress: &Progress) {
        let text = format!("dsync: {}", waiting_line(what, progress));
        if self.is_terminal && self.level >= Level::Normal {
            let text: String = text.chars().take(paint::size().0 - 1).collect();
            self.write(Piece::Waiting(text));
        } else if self.level >= Level::Verbose {
            self.write(Piece::Message(text));
        }
    }

    /// Removes the waiting line.
    pub fn clear(&self) {
        self.write(Piece::Clear);
    }

    /// Says what most users want to know.
    pub fn say(&self, text: &str) {
        self.tell(Level::Normal, text);
    }

    /// Says what is good to know at a terminal. Elsewhere only --verbose asks for it: cron would send a mail each time.
    pub fn remark(&self, text: &str) {
        let level = if self.is_terminal {
            Level::Normal
        } else {
            Level::Verbose
        };
        self.tell(level, text);
    }

    /// Says what only --verbose asks for.
    pub fn detail(&self, text: &str) {
        self.tell(Level::Verbose, text);
    }

    /// Says that something went wrong, also with --quiet.
    pub fn error(&self, text: &str) {
        self.tell(Level::Quiet, text);
    }

    /// Waits until all is written, for half a second at most.
    pub fn flush(&self) {
        let end = Instant::now() + PATIENCE;
        let (sender, written) = channel();
        let mut last = Piece::Written(sender);
        while let Err(TrySendError::Full(unsent)) = self.writer.try_send(last) {
            if Instant::now() >= end {
                return;
            }
            last = unsent;
            thread::sleep(Duration::from_millis(10));
        }
        let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
    }

    fn tell(&self, level: Level, text: &str) {
        if self.level >= level {
            self.write(Piece::Message(format!("dsync: {text}")));
        }
    }

    fn write(&self, piece: Piece) {
        // Nobody reads what is dropped here.
        let _ = self.writer.try_send(piece);
    }
}

/// Writes each piece at once. What stderr does not take is lost: there is nobody else to tell.
fn write_all(pieces: &Receiver<Piece>) {
    const REMOVE: &str = "\r\x1b[K";
    let mut is_waiting_shown = false;
    for piece in pieces {
        let remove = if is_waiting_shown { REMOVE } else { "" };
        let text = match piece {
            Piece::Message(text) => format!("{remove}{text}\n"),
            Piece::Clear => remove.to_owned(),
            Piece::Waiting(text) => {
                let _ = io::stderr().write_all(format!("{REMOVE}{text}").as_bytes());
                is_waiting_shown = true;
                continue;
            }
            Piece::Written(told) => {
                let _ = told.send(());
                continue;
            }
        };
        let _ = io::stderr().write_all(text.as_bytes());
        is_waiting_shown = false;
    }
}

fn waiting_line(what: &str, progress: &Progress) -> String {
    let mut line = format!(
        "waiting {} for {what}: place {}",
        short(progress.waited),
        progress.place
    );
    if progress.place >= 100 {
        line.push_str(" or later");
    }
    if progress.key.waiter_count > 0 {
        line.push_str(&format!(" of {}", progress.key.waiter_count));
    }
    if !progress.key.paused.is_zero() {
        line.push_str(&format!(
            "; paused by an operator for another {}",
            short(progress.key.paused)
        ));
    }
    if let Some(text) = holders(&progress.key.holders, progress.key.holder_count) {
        line.push_str(&format!("; {text}"));
    }
    line
}

/// Returns who holds, in words. `count` is how many there are in all, 0 if that is not known.
pub fn holders(holders: &[Holder], count: u64) -> Option<String> {
    let first = holders.first()?;
    let others = count.max(holders.len() as u64) - 1;
    let owner = first
        .owner
        .as_deref()
        .map_or("a holder without a name".into(), |owner| {
            printable(owner.as_bytes())
        });
    let state = match first.resting {
        None => format!(" for {}", short(first.held)),
        Some(left) => format!(", ended, rests for another {}", short(left)),
    };
    let mut text = format!("held by {owner}{state} (fence {})", first.fence);
    match others {
        0 => {}
        1 => text.push_str(" and another"),
        more => text.push_str(&format!(" and {more} others")),
    }
    Some(text)
}
