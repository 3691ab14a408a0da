//! The files of a server: RDB files, the latest and the one before, or an AOF, which may be cut at any fsync.

use dsync_engine::types::{Fence, Now, UnixMs};
use dsync_engine::{Fences, Identity, Record};

use super::May;
use super::excuse::Excuse;

/// From what a server starts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum From {
    Latest,
    Older,
    Nothing,
    /// From an AOF with so many of its grants.
    AofCutBehind(usize),
}

/// An RDB file, or the base of an AOF.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct File {
    /// The numbers in front of the keys and behind them. A server that knows of no fences writes none.
    numbers: Option<(Fence, Fence)>,
    /// The real time when it was written.
    pub written_us: u64,
    /// Why its fences may lack some that the server gave.
    pub excuse: Option<Excuse>,
    by: Identity,
    as_primary: bool,
}

impl File {
    pub fn written(
        fences: &Fences,
        (by, as_primary): (Identity, bool),
        now: Now,
        us: u64,
        excuse: Option<Excuse>,
    ) -> File {
        let record = fences.record(now, by, as_primary);
        File {
            numbers: fences.is_used().then(|| (record.last, record.pack())),
            written_us: us,
            excuse,
            by,
            as_primary,
        }
    }

    pub fn says_something(&self) -> bool {
        self.numbers.is_some()
    }

    pub fn load(&self, fences: &mut Fences, now: Now) {
        fences.loading_started();
        self.load_base(fences, now);
        fences.loading_ended();
    }

    fn load_base(&self, fences: &mut Fences, now: Now) {
        let Some((last, packed)) = self.numbers else {
            return;
        };
        fences.adopt(last, now);
        if let Some(record) = Record::unpack(packed, last) {
            fences.adopt_record(record, now);
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Grant {
    fence: Fence,
    /// In milliseconds, by the clock of the server that gave it.
    granted: u64,
    /// The real time when it was appended.
    us: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Disk {
    latest: Option<File>,
    older: Option<File>,
    /// The grants behind the latest file, if that is the base of an AOF.
    grants: Option<Vec<Grant>>,
}

impl Disk {
    pub fn new(has_aof: bool) -> Disk {
        Disk {
            latest: None,
            older: None,
            grants: has_aof.then(Vec::new),
        }
    }

    pub fn has_aof(&self) -> bool {
        self.grants.is_some()
    }

    pub fn append(&mut self, fence: Fence, granted: UnixMs, us: u64) {
        if let Some(grants) = &mut self.grants {
            grants.push(Grant {
                fence,
                granted: granted.0,
                us,
            });
        }
    }

    /// Stores an RDB file, or rewrites the AOF.
    pub fn save(&mut self, file: File) {
        match &mut self.grants {
            Some(grants) => grants.clear(),
            None => self.older = self.latest,
        }
        self.latest = Some(file);
    }

    /// Returns whether this file says something that the latest one does not.
    pub fn differs(&self, file: &File) -> bool {
        let has_grants = self
            .grants
            .as_ref()
            .is_some_and(|grants| !grants.is_empty());
        has_grants
            || self.latest.is_none_or(|latest| {
                (latest.numbers, latest.by, latest.as_primary)
                    != (file.numbers, file.by, file.as_primary)
            })
    }

    /// Returns the file that this start loads, and of when its last data are.
    pub fn data(&self, from: From) -> Option<(File, u64)> {
        let file = *self.file(from)?;
        let grants = self.grants.as_deref().unwrap_or_default();
        let last = match from {
            From::AofCutBehind(n) => grants[..n].last(),
            _ => None,
        };
        Some((file, last.map_or(file.written_us, |grant| grant.us)))
    }

    fn file(&self, from: From) -> Option<&File> {
        match from {
            From::Latest | From::AofCutBehind(_) => self.latest.as_ref(),
            From::Older => self.older.as_ref(),
            From::Nothing => None,
        }
    }

    pub fn starts(&self, may: May) -> Vec<From> {
        let mut starts = Vec::new();
        if let Some(grants) = &self.grants {
            if may.start_from_latest {
                let least = if may.start_from_older {
                    0
                } else {
                    grants.len().saturating_sub(1)
                };
                starts.extend((least..=grants.len()).map(From::AofCutBehind));
            }
        } else {
            let has = |may: bool, file: &Option<File>| may && file.is_some();
            starts.extend(has(may.start_from_latest, &self.latest).then_some(From::Latest));
            starts.extend(has(may.start_from_older, &self.older).then_some(From::Older));
        }
        starts.extend(may.start_from_nothing.then_some(From::Nothing));
        starts
    }

    /// Returns what a server knows that starts from this file. What an AOF has behind the cut is lost.
    pub fn load(&mut self, from: From, now: Now) -> Fences {
        let mut fences = Fences::default();
        let file = self.file(from).copied();
        fences.loading_started();
        if let Some(file) = file {
            file.load_base(&mut fences, now);
        }
        if let (From::AofCutBehind(n), Some(grants)) = (from, &mut self.grants) {
            grants.truncate(n);
            for grant in grants {
                fences.adopt_grant(grant.fence, UnixMs(grant.granted), now);
            }
        }
        fences.loading_ended();
        if let (From::Nothing, Some(grants)) = (from, &mut self.grants) {
            // A new AOF is begun.
            grants.clear();
            self.latest = None;
        }
        fences
    }

    pub fn is_own_of_primary(&self, from: From, me: Identity) -> bool {
        (self.file(from))
            .is_some_and(|file| file.numbers.is_some() && file.by == me && file.as_primary)
    }
}
