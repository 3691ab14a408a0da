//! Searches the keyspace for strays: values of ours that RENAME or MOVE has stored under another key. No server tells
//! under which one.
//!
//! A search visits every key of every database, as SCAN does, for a quarter of a millisecond at a time and at most a tenth
//! of the server's time. It ends early when no stray is left, because requests have opened their keys. A stray that comes
//! during a search may be where the search has been, so another search follows.
//!
//! Only a primary searches. A replica carries out what its primary sends, and needs no key before it is promoted.

use super::redis::clock;
use super::redis::context::Ctx;
use super::redis::gil::GilCell;
use super::redis::key::KeyContent;
use super::redis::scan::{ScanCursor, Visitor};
use super::shell::SHELL;
use dsync_engine::types::{Db, MonoUs};
use dsync_engine::{Engine, StateId};

/// How long a slice may take, and when the next one follows.
const SLICE_US: u64 = 250;
const PERIOD_US: u64 = 2_500;

/// How many buckets of a table are visited between two looks at the clock.
const STEPS: u32 = 32;

static SEARCH: GilCell<Search> = GilCell::new(Search::default);

#[derive(Default)]
struct Search {
    /// The database that is being searched, and the place in it. `None` between two searches.
    progress: Option<(Db, ScanCursor)>,
    /// When the next slice may begin, by the monotonic clock.
    due_us: u64,
}

impl Search {
    /// Takes the place where the next slice begins, if one is due.
    fn take_slice(&mut self, engine: &mut Engine, now_us: u64) -> Option<(Db, ScanCursor)> {
        if !engine.has_strays() {
            self.progress = None;
            return None;
        }
        if self.due_us > now_us {
            return None;
        }
        self.due_us = now_us.saturating_add(PERIOD_US);
        self.progress.take().or_else(|| {
            if !engine.needs_search() {
                return None;
            }
            engine.search_begins();
            Some((Db(0), ScanCursor::new()?))
        })
    }
}

/// Returns the microseconds until the next slice, `None` if there is nothing to search for.
pub(super) fn next_wake(engine: &Engine, now: MonoUs) -> Option<u64> {
    if !engine.has_strays() || !engine.is_serving() {
        return None;
    }
    SEARCH.with(|search| {
        let is_wanted = engine.needs_search() || search.progress.is_some();
        is_wanted.then(|| search.due_us.saturating_sub(now.0))
    })
}

/// Searches for a slice of time, if one is due.
pub(super) fn search(ctx: Ctx<'_>) {
    let started_us = clock::monotonic_us();
    let progress =
        SHELL.with(|shell| SEARCH.with(|search| search.take_slice(&mut shell.engine, started_us)));
    let Some((mut db, mut cursor)) = progress else {
        return;
    };
    while ctx.select_db(db.0) {
        let has_more = (0..STEPS).all(|_| cursor.scan::<StrayFinder>(ctx));
        if !has_more {
            db = Db(db.0.saturating_add(1));
            cursor.restart();
        }
        if clock::monotonic_us().saturating_sub(started_us) >= SLICE_US {
            return SEARCH.with(|search| search.progress = Some((db, cursor)));
        }
    }
}

struct StrayFinder;

impl Visitor for StrayFinder {
    fn visit(ctx: Ctx<'_>, name: &[u8], content: KeyContent) {
        if let KeyContent::Ours { id, .. } = content
            && let Some(id) = StateId::from_raw(id.get())
        {
            SHELL.with(|shell| shell.engine.found(id, Db(ctx.db()), name));
        }
    }
}
