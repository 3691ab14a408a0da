//! What `dsync run` says on stderr: a line that is rewritten while it waits, and messages.
//!
//! The line is shown on a terminal only; in a log file it would be noise. Errors are always shown.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;

use dsync_client::{Holder, Progress};

use crate::duration::short;
use crate::text::printable;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Quiet,
    Normal,
    Verbose,
}

pub struct Notice {
    level: Level,
    is_terminal: bool,
    /// Whether the waiting line stands on the terminal now.
    shown: Mutex<bool>,
}

impl Notice {
    pub fn new(level: Level) -> Notice {
        Notice {
            level,
            is_terminal: io::stderr().is_terminal(),
            shown: Mutex::new(false),
        }
    }

    /// Shows where the request stands. Rewrites the line on a terminal; elsewhere writes one if asked to be verbose.
    pub fn waiting(&self, what: &str, progress: &Progress) {
        let text = format!("dsync: {}", waiting_line(what, progress));
        if self.is_terminal && self.level >= Level::Normal {
            let width = crossterm::terminal::size().map_or(80, |size| usize::from(size.0));
            let text: String = text.chars().take(width.saturating_sub(1).max(20)).collect();
            self.write(&format!("\r\x1b[K{text}"), true);
        } else if self.level >= Level::Verbose {
            self.write(&format!("{text}\n"), false);
        }
    }

    /// Removes the waiting line.
    pub fn clear(&self) {
        let is_shown = self.shown.lock().map_or(true, |shown| *shown);
        if is_shown {
            self.write("\r\x1b[K", false);
        }
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

    fn tell(&self, level: Level, text: &str) {
        if self.level >= level {
            self.clear();
            self.write(&format!("dsync: {text}\n"), false);
        }
    }

    /// Writes in one piece. What stderr does not take is lost: there is nobody else to tell.
    fn write(&self, text: &str, is_waiting_line: bool) {
        let mut stderr = io::stderr().lock();
        let _ = stderr
            .write_all(text.as_bytes())
            .and_then(|()| stderr.flush());
        if let Ok(mut shown) = self.shown.lock() {
            *shown = is_waiting_line;
        }
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
    let mut text = format!(
        "held by {owner} for {} (fence {})",
        short(first.held),
        first.fence
    );
    match others {
        0 => {}
        1 => text.push_str(" and another"),
        more => text.push_str(&format!(" and {more} others")),
    }
    Some(text)
}
