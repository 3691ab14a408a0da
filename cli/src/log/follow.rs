//! `dsync log --follow`: new rows as they come, also after a restart of the server and after a failover.
//!
//! Rows have ids that rise by one, from 0 at each start of a server, and they are in its memory only. So no row is
//! shown twice, and none is left out but those that a server had when it went down and had not been asked for, and
//! those that were dropped within a second (`dsync.log-max-len`).

use std::collections::VecDeque;
use std::io::Write;
use std::thread;
use std::time::Duration;

use redis::ConnectionAddr;

use super::row::{Row, ask, sort};
use crate::args;
use crate::connect::Node;
use crate::failure::{Failure, Result, Status};
use crate::servers::Servers;
use crate::text::say;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// The most rows that the server lists.
const MOST: u32 = 5000;

/// The number of rows to ask for first; more are asked for when all of them are new.
const FEW: u32 = 100;

/// By how much the clocks of a primary and its replica, and the moments at which they list the same end, may differ.
const CLOCKS_MS: u64 = 10_000;

/// A server whose rows are shown.
struct Source {
    address: ConnectionAddr,
    /// `None` while it is lost.
    node: Option<Node>,
    shown: Shown,
}

/// What was shown of a server.
enum Shown {
    /// Nothing yet. Show so many rows, the newest.
    Nothing { first: u32 },
    /// Nothing: it has become a primary. The ends that its former primary listed too were shown, the newest with this
    /// time.
    AsReplica { newest_ms: u64 },
    /// It had no row.
    Empty,
    /// All, of which this is the newest.
    UpTo(Row),
}

impl Row {
    /// Whether a row is this one, listed again, and none that got the same id after a restart.
    fn is(&self, row: &Row) -> bool {
        // Stalls that follow each other share a row, which is always that of the last.
        let has_time = match row.what.as_str() {
            "stall" => row.unix_ms >= self.unix_ms,
            _ => row.unix_ms == self.unix_ms,
        };
        row.id == self.id && has_time && self.is_same_end(row)
    }

    /// Whether a row, perhaps another server's, tells of the same end.
    fn is_same_end(&self, row: &Row) -> bool {
        row.what == self.what && row.db == self.db && row.key == self.key && row.fence == self.fence
    }
}

/// The last rows that were shown, of all servers.
#[derive(Default)]
struct Recent {
    rows: VecDeque<Row>,
    newest_ms: u64,
}

impl Recent {
    fn add(&mut self, row: &Row) {
        const MOST_KEPT: usize = 1000;
        self.newest_ms = self.newest_ms.max(row.unix_ms);
        self.rows.push_back(row.clone());
        if self.rows.len() > MOST_KEPT {
            self.rows.pop_front();
        }
    }

    /// Whether another server's row of the same end was shown. Its id and time are others.
    fn has_end(&self, row: &Row) -> bool {
        row.what != "stall" && self.rows.iter().any(|shown| shown.is_same_end(row))
    }
}

pub fn run(servers: &Servers, options: &args::Log, out: &mut impl Write) -> Result<()> {
    let source = |node: Node| Source {
        address: node.address.clone(),
        node: Some(node),
        shown: Shown::Nothing {
            first: options.count,
        },
    };
    let mut sources: Vec<Source> = servers.primaries()?.into_iter().map(source).collect();
    let mut recent = Recent::default();
    loop {
        let mut rows = Vec::new();
        for source in &mut sources {
            let new = source.new_rows(&recent)?;
            let name = source.address.to_string();
            rows.extend(new.into_iter().map(|row| (name.clone(), row)));
        }
        sort(&mut rows);
        for (server, row) in &rows {
            recent.add(row);
            if options.json {
                writeln!(out, "{}", row.json(server))?;
            } else {
                writeln!(out, "{}", row.line((sources.len() > 1).then_some(server)))?;
            }
        }
        out.flush()?;
        thread::sleep(PAUSE);
        if sources.iter().any(|source| source.node.is_none()) {
            find(servers, &mut sources, recent.newest_ms)?;
        }
    }
}

impl Source {
    /// Returns the rows that were not shown yet, the newest first. A server that does not answer has none, and is told.
    fn new_rows(&mut self, recent: &Recent) -> Result<Vec<Row>> {
        let Some(node) = &mut self.node else {
            return Ok(Vec::new());
        };
        match newer(node, &self.shown, recent) {
            Ok(rows) => {
                match rows.first() {
                    Some(row) => self.shown = Shown::UpTo(row.clone()),
                    None if matches!(self.shown, Shown::Nothing { .. }) => {
                        self.shown = Shown::Empty;
                    }
                    None => {}
                }
                Ok(rows)
            }
            Err(failure) if is_passing(&failure) => {
                self.node = None;
                say(&format!("{}; trying again", failure.first_line()));
                Ok(Vec::new())
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Looks for the servers that are lost: where they were, and after a failover elsewhere.
fn find(servers: &Servers, sources: &mut Vec<Source>, newest_ms: u64) -> Result<()> {
    let known: Vec<ConnectionAddr> = sources
        .iter()
        .map(|source| source.address.clone())
        .collect();
    let addresses = match servers.addresses(&known) {
        Ok(addresses) => addresses,
        Err(failure) if is_passing(&failure) => return Ok(()),
        Err(failure) => return Err(failure),
    };
    for address in &addresses {
        let known = sources.iter().position(|source| source.address == *address);
        if known.is_some_and(|known| sources[known].node.is_some()) {
            continue;
        }
        let node = match servers.connect(address) {
            Ok(node) => node,
            Err(failure) if is_passing(&failure) => continue,
            Err(failure) => return Err(failure),
        };
        match known {
            Some(known) => {
                say(&format!("{} answers again", node.peer));
                sources[known].node = Some(node);
            }
            None => {
                say(&format!("{} is a primary now", node.peer));
                sources.push(Source {
                    address: address.clone(),
                    node: Some(node),
                    shown: Shown::AsReplica { newest_ms },
                });
            }
        }
    }
    sources.retain(|source| source.node.is_some() || addresses.contains(&source.address));
    Ok(())
}

/// Whether the server may answer again: it cannot be reached, or does not serve now.
fn is_passing(failure: &Failure) -> bool {
    failure.status == Status::Unreachable
}

/// Returns the rows that were not shown yet.
fn newer(node: &mut Node, shown: &Shown, recent: &Recent) -> Result<Vec<Row>> {
    let mark = match shown {
        Shown::Nothing { first } => return ask(node, *first),
        Shown::Empty => return ask(node, MOST),
        Shown::AsReplica { newest_ms } => {
            let mut rows = ask(node, MOST)?;
            rows.retain(|row| row.unix_ms + CLOCKS_MS > *newest_ms && !recent.has_end(row));
            return Ok(rows);
        }
        Shown::UpTo(mark) => mark,
    };
    let mut count = FEW;
    loop {
        let mut rows = ask(node, count)?;
        let known = rows.iter().position(|row| mark.is(row));
        let are_all = (rows.len() as u64) < u64::from(count) || count == MOST;
        match known {
            Some(known) => rows.truncate(known),
            // The server has dropped the row, or it was started again. All that it lists is new.
            None if are_all => {}
            None => {
                count = MOST;
                continue;
            }
        }
        return Ok(rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64, unix_ms: u64, what: &str) -> Row {
        Row {
            id,
            unix_ms,
            what: what.into(),
            db: None,
            key: None,
            family: None,
            fence: None,
            owner: None,
            held_ms: None,
            late_ms: None,
        }
    }

    #[test]
    fn mark_is_the_row_that_was_shown_and_no_row_of_a_later_start() {
        let mark = row(7, 1000, "lapse");
        assert!(mark.is(&row(7, 1000, "lapse")));
        assert!(!mark.is(&row(8, 1000, "lapse")));
        assert!(!mark.is(&row(7, 2000, "lapse")), "after a restart");
        let mark = row(7, 1000, "stall");
        assert!(mark.is(&row(7, 2000, "stall")), "the stall went on");
        assert!(!mark.is(&row(7, 900, "stall")));
    }
}
