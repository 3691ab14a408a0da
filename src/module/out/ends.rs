//! The last ends of holds that nobody with the token asked for: the rows of DSYNC.LOG. And when the lease clock stood
//! still, because every lease ends that much later.
//!
//! They are in memory only, at most `dsync.log-max-len` of them, and the oldest makes room for the newest. A row has a
//! copy of its key's name, because the key is mostly gone when somebody asks, and so at most [`MAX_NAME`] bytes of it.
//! A replica has rows for what its primary has decided. Files have none: what a server loads has ended before.

use std::collections::VecDeque;

use crate::module::redis::clock;
use crate::module::redis::gil::GilCell;
use dsync_engine::Family;
use dsync_engine::change::End;
use dsync_engine::effect::Note;
use dsync_engine::types::{Db, Fence, UnixMs};
use dsync_engine::unasked::{Removal, UnaskedEnd};

/// How many bytes of a key's name a row keeps.
const MAX_NAME: usize = 256;

/// Within how many milliseconds one stall after another adds to the row of the first. Otherwise a server that stalls
/// again and again would have no rows for anything else.
const ONE_ROW_MS: u64 = 60_000;

/// What a row is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogEvent {
    Ended(End),
    /// A key was removed with this many holds.
    Removed {
        holds: usize,
    },
    /// The lease clock stood still.
    Stall,
}

/// One row. Fields that do not apply are `None`.
pub(crate) struct LogRow {
    pub(crate) id: u64,
    pub(crate) at: UnixMs,
    pub(crate) event: LogEvent,
    pub(crate) key: Option<LoggedKey>,
    pub(crate) fence: Option<Fence>,
    pub(crate) owner: Option<Box<[u8]>>,
    pub(crate) held_ms: Option<u64>,
    pub(crate) late_ms: Option<u64>,
}

/// A key as it was called when its hold ended.
pub(crate) struct LoggedKey {
    pub(crate) db: Db,
    /// Cut short if it is long, see [`shortened`].
    pub(crate) name: Box<[u8]>,
    pub(crate) family: Family,
}

static ENDS: GilCell<EndLog> = GilCell::new(EndLog::default);

struct EndLog {
    /// `dsync.log-max-len`.
    max_len: u64,
    /// The newest first.
    rows: VecDeque<LogRow>,
    /// The id of the next row. Never starts again, so that a reader knows what it has read.
    next_id: u64,
}

impl Default for EndLog {
    fn default() -> EndLog {
        EndLog {
            max_len: 128,
            rows: VecDeque::new(),
            next_id: 0,
        }
    }
}

impl EndLog {
    /// Drops the oldest rows until there are no more than allowed.
    fn trim(&mut self) {
        let max_len = usize::try_from(self.max_len).unwrap_or(usize::MAX);
        self.rows.truncate(max_len);
    }

    /// Adds a row, which gets its id here.
    fn add(&mut self, row: LogRow) {
        if self.max_len == 0 {
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        // Make room first, so that the buffer never grows for one row more than allowed.
        if self.rows.len() as u64 >= self.max_len {
            self.rows.pop_back();
        }
        self.rows.push_front(LogRow { id, ..row });
    }

    fn ended(&mut self, db: Db, name: &[u8], family: Family, end: UnaskedEnd) {
        let name = shortened(name);
        self.add(LogRow {
            id: 0,
            at: end.at,
            event: LogEvent::Ended(end.how),
            key: Some(LoggedKey { db, name, family }),
            fence: Some(end.fence),
            owner: end.owner,
            held_ms: Some(end.held_ms),
            late_ms: end.late_ms,
        });
    }

    fn removed(&mut self, removal: Removal, at: UnixMs) {
        let Removal { db, family, .. } = removal;
        let name = shortened(&removal.name);
        let is_only = removal.holds == 1;
        self.add(LogRow {
            id: 0,
            at,
            event: LogEvent::Removed {
                holds: removal.holds,
            },
            key: Some(LoggedKey { db, name, family }),
            fence: Some(removal.fence).filter(|_| is_only),
            owner: removal.owner.filter(|_| is_only),
            held_ms: Some(at.0.saturating_sub(removal.granted.0)),
            late_ms: None,
        });
    }

    fn stalled(&mut self, ms: u64, at: UnixMs) {
        if let Some(newest) = self.rows.front_mut()
            && newest.event == LogEvent::Stall
            && at.0.saturating_sub(newest.at.0) <= ONE_ROW_MS
        {
            newest.at = at;
            newest.late_ms = newest.late_ms.map(|before| before.saturating_add(ms));
            return;
        }
        self.add(LogRow {
            id: 0,
            at,
            event: LogEvent::Stall,
            key: None,
            fence: None,
            owner: None,
            held_ms: None,
            late_ms: Some(ms),
        });
    }
}

/// A key's name as a row keeps it: of a long one the beginning, and how many bytes are left out, as in SLOWLOG.
fn shortened(name: &[u8]) -> Box<[u8]> {
    if name.len() <= MAX_NAME {
        return name.into();
    }
    let left_out = format!("... ({} more bytes)", name.len() - MAX_NAME);
    [&name[..MAX_NAME], left_out.as_bytes()].concat().into()
}

/// Adds a row for an end that the engine noted.
pub(crate) fn note(db: Db, name: &[u8], family: Option<Family>, note: Note) {
    if let (Some(family), Note::Ended(end) | Note::EndedElsewhere(end)) = (family, note) {
        ENDS.with(|ends| ends.ended(db, name, family, end));
    }
}

/// Adds a row for a key that was removed with holds.
pub(crate) fn removed(removal: Removal) {
    let at = UnixMs(clock::unix_us() / 1_000);
    ENDS.with(|ends| ends.removed(removal, at));
}

/// Notes that the lease clock stood still for so long.
pub(crate) fn stalled(us: u64) {
    let at = UnixMs(clock::unix_us() / 1_000);
    ENDS.with(|ends| ends.stalled(us / 1_000, at));
}

/// Calls `show` with the number of rows to come, at most `count`, and then with each of them, the newest first.
pub(crate) fn latest(count: usize, begin: impl FnOnce(usize), show: impl FnMut(&LogRow)) {
    ENDS.with(|ends| {
        begin(ends.rows.len().min(count));
        ends.rows.iter().take(count).for_each(show);
    });
}

/// Drops all rows.
pub(crate) fn reset() {
    let rows = ENDS.with(|ends| std::mem::take(&mut ends.rows));
    drop(rows);
}

/// Gives the setting `dsync.log-max-len` to `body`, which may change it.
pub(crate) fn with_max_len<R>(body: impl FnOnce(&mut u64) -> R) -> R {
    ENDS.with(|ends| {
        let result = body(&mut ends.max_len);
        ends.trim();
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(n: u64) -> UnaskedEnd {
        UnaskedEnd {
            how: End::Lapsed,
            fence: Fence(n),
            owner: None,
            is_renewed: false,
            at: UnixMs(n),
            held_ms: 1,
            late_ms: Some(0),
        }
    }

    fn ids(log: &EndLog) -> Vec<u64> {
        log.rows.iter().map(|row| row.id).collect()
    }

    fn log(max_len: u64, rows: u64) -> EndLog {
        let mut log = EndLog {
            max_len,
            ..EndLog::default()
        };
        (0..rows).for_each(|n| log.ended(Db(0), b"k", Family::Lock, end(n)));
        log
    }

    #[test]
    fn log_keeps_its_newest_rows_with_rising_ids() {
        for max_len in 0..4 {
            let mut log = log(max_len, 9);
            let newest: Vec<u64> = (0..9).rev().take(max_len as usize).collect();
            let expected = if max_len == 0 { vec![] } else { newest };
            assert_eq!(ids(&log), expected, "{max_len}");
            log.max_len = 2;
            log.trim();
            let expected: Vec<u64> = expected.into_iter().take(2).collect();
            assert_eq!(ids(&log), expected, "{max_len}, then 2");
        }
    }

    #[test]
    fn log_keeps_the_beginning_of_a_long_name() {
        for (len, kept) in [(0, 0), (255, 255), (256, 256), (257, 256)] {
            let name = shortened(&vec![b'k'; len]);
            let (beginning, rest) = name.split_at(kept);
            assert!(beginning.iter().all(|byte| *byte == b'k'), "{len}");
            let expected: &[u8] = if len > kept {
                b"... (1 more bytes)"
            } else {
                b""
            };
            assert_eq!(rest, expected, "{len}");
        }
    }

    #[test]
    fn log_adds_a_stall_to_the_row_of_the_one_just_before() {
        let mut log = log(9, 0);
        log.stalled(300, UnixMs(1_000));
        log.stalled(200, UnixMs(61_000));
        assert_eq!((ids(&log), log.rows[0].late_ms), (vec![0], Some(500)));
        log.stalled(200, UnixMs(121_001));
        assert_eq!((ids(&log), log.rows[0].late_ms), (vec![1, 0], Some(200)));
        log.ended(Db(0), b"k", Family::Lock, end(7));
        log.stalled(400, UnixMs(121_002));
        assert_eq!(ids(&log), [3, 2, 1, 0], "something was in between");
    }
}
