//! Every sequence of a few events of two servers.
//!
//! A sequence ends where it comes to a world that another one has come to before. The contract promises something for 8
//! events with starts from latest files, for 7 with older ones, and for 6 without any. `DSYNC_DEPTH=n` takes n events.
//! More than these lead to cases that are not promised, and the tests say which.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::excuse::Excuse;
use super::order::Breach;
use super::{Event, MINUTE_US, May, Setup, World};
use crate::history::number_from_env;

struct Search<'a> {
    setup: &'a Setup,
    depth: usize,
    /// After how few events each world was found, by its hash.
    seen: BTreeMap<u64, u8>,
    path: Vec<Event>,
    /// The shortest sequence to each kind of breach.
    found: BTreeMap<Breach, Vec<Event>>,
}

impl Search<'_> {
    fn visit(&mut self, world: &World) {
        let events = self.path.len();
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        let before = self.seen.entry(hasher.finish()).or_insert(u8::MAX);
        if usize::from(*before) <= events {
            return;
        }
        *before = events as u8;
        for event in world.events(self.setup) {
            let is_last = events + 1 == self.depth;
            if is_last && !matches!(event, Event::Grant(_) | Event::GrantAndReplicate(_)) {
                continue;
            }
            let mut next = world.clone();
            self.path.push(event);
            for breach in next.take(self.setup, event) {
                let known = self.found.get(&breach);
                if known.is_none_or(|path| path.len() > self.path.len()) {
                    self.found.insert(breach, self.path.clone());
                }
            }
            if !is_last {
                self.visit(&next);
            }
            self.path.pop();
        }
    }
}

/// Plays all sequences of `depth` events. Only these excuses count.
fn play(what: &str, depth: usize, setup: &Setup, excuses: Option<&[Excuse]>) {
    let mut search = Search {
        setup,
        depth,
        seen: BTreeMap::new(),
        path: Vec::new(),
        found: BTreeMap::new(),
    };
    search.visit(&World::new(setup));
    println!("{what}: {} worlds, {depth} events deep", search.seen.len());
    for (breach, path) in &search.found {
        println!("    {} ({:?}): {path:?}", breach.what, breach.excuse);
    }
    let unexcused = search
        .found
        .iter()
        .find(|(breach, _)| !breach.is_excused(excuses));
    assert_eq!(unexcused, None, "{what}");
}

/// The clocks agree, or are half an hour apart.
fn play_all(what: &str, depth: u64, aofs: [bool; 2], may: May, excuses: Option<&[Excuse]>) {
    let depth = number_from_env("DSYNC_DEPTH").unwrap_or(depth) as usize;
    for (tick, ahead, order) in [
        (5, [0, 0], 60),
        (20, [0, 0], 60),
        (20, [30, 0], 18),
        (20, [0, 30], 18),
    ] {
        let setup = Setup {
            servers: 2,
            ahead_us: [ahead[0] * MINUTE_US, ahead[1] * MINUTE_US, 0],
            tick_us: tick * MINUTE_US,
            order_us: order * MINUTE_US,
            has_aof: [aofs[0], aofs[1], false],
            may,
        };
        play(
            &format!("{what}, {tick} minutes pass, clocks {ahead:?} ahead"),
            depth,
            &setup,
            excuses,
        );
    }
}

const LATEST: May = May {
    start_from_latest: true,
    start_from_older: false,
    start_from_nothing: false,
    follow_cut_off: true,
    change_roles: false,
};

const OLDER: May = May {
    start_from_older: true,
    ..LATEST
};

#[test]
fn fences_rise_over_starts_from_latest_files() {
    play_all("latest files", 8, [false; 2], LATEST, Some(&[]));
}

#[test]
fn fences_rise_over_starts_from_older_files() {
    play_all("older files", 7, [false; 2], OLDER, Some(&[]));
}

#[test]
fn fences_rise_over_starts_without_files() {
    let may = May {
        start_from_latest: false,
        start_from_nothing: true,
        ..LATEST
    };
    // What concerns the order of two servers is not promised then.
    let excuses = [Excuse::OldStartedWithout, Excuse::PromotedUnheard];
    play_all("no files", 6, [false; 2], may, Some(&excuses));
}

#[test]
fn fences_rise_over_starts_from_aofs_cut_anywhere() {
    for aofs in [[true; 2], [true, false], [false, true]] {
        play_all(&format!("AOFs {aofs:?}"), 7, aofs, OLDER, Some(&[]));
    }
}

#[test]
fn fences_rise_over_changes_of_role_without_saves() {
    let may = May {
        change_roles: true,
        ..LATEST
    };
    let excuses = [
        Excuse::FileOlderThanChangeOfRole,
        Excuse::OldStartedFromOther,
        Excuse::PromotedUnheard,
    ];
    for aofs in [[false; 2], [true; 2]] {
        let what = format!("roles change, AOFs {aofs:?}");
        play_all(&what, 6, aofs, may, Some(&excuses));
    }
}

#[test]
fn mixed_starts_break_only_what_is_not_promised() {
    let may = May {
        start_from_nothing: true,
        ..OLDER
    };
    play_all("mixed", 7, [false; 2], may, None);
}
