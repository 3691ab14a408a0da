//! Long random walks of three servers.
//!
//! `DSYNC_WALKS=n` plays n walks, and `DSYNC_SEED=n` begins with another one.

use std::collections::BTreeMap;

use super::excuse::Excuse;
use super::order::Breach;
use super::{Event, MINUTE_US, May, Setup, World};
use crate::chooser::Random;
use crate::history::number_from_env;

const EVENTS: usize = 24;
const WALKS: u64 = 20_000;

fn setup(random: &mut Random, may: fn(&mut Random) -> May) -> Setup {
    let are_apart = random.one_in(2);
    let mut ahead = || {
        if are_apart {
            random.below(31) * MINUTE_US
        } else {
            0
        }
    };
    let ahead_us = [ahead(), ahead(), ahead()];
    Setup {
        servers: 3,
        ahead_us,
        tick_us: random.pick(&[5, 20, 60, 600]) * MINUTE_US,
        order_us: if are_apart { 18 } else { 60 } * MINUTE_US,
        has_aof: [random.one_in(2), random.one_in(2), random.one_in(2)],
        may: may(random),
    }
}

/// Takes one walk. Returns its first breach, and the events up to it.
fn walk(seed: u64, may: fn(&mut Random) -> May) -> Option<(Breach, Setup, Vec<Event>)> {
    let mut random = Random::new(seed);
    let setup = setup(&mut random, may);
    let mut world = World::new(&setup);
    let mut path = Vec::new();
    for _ in 0..EVENTS {
        let event = random.pick(&world.events(&setup));
        path.push(event);
        if let Some(breach) = world.take(&setup, event).into_iter().next() {
            return Some((breach, setup, path));
        }
    }
    None
}

/// Leaves out all events without which the breach is the same.
fn shortened(setup: &Setup, breach: &Breach, mut path: Vec<Event>) -> Vec<Event> {
    let still_breaks = |path: &[Event]| {
        let mut world = World::new(setup);
        let (last, before) = path.split_last()?;
        for event in before {
            let is_possible = world.events(setup).contains(event);
            if !is_possible || !world.take(setup, *event).is_empty() {
                return None;
            }
        }
        (world.events(setup).contains(last) && world.take(setup, *last).contains(breach))
            .then_some(())
    };
    let mut nth = 0;
    while nth < path.len() {
        let mut shorter = path.clone();
        shorter.remove(nth);
        if still_breaks(&shorter).is_some() {
            (path, nth) = (shorter, 0);
        } else {
            nth += 1;
        }
    }
    path
}

/// Plays the walks, and prints how often each kind of breach came, and the shortest path to it. Only these excuses
/// count.
fn play(what: &str, may: fn(&mut Random) -> May, excuses: Option<&[Excuse]>) {
    let walks = number_from_env("DSYNC_WALKS").unwrap_or(WALKS);
    let first = number_from_env("DSYNC_SEED").unwrap_or(1);
    let mut found: BTreeMap<Breach, (u64, Setup, Vec<Event>)> = BTreeMap::new();
    for seed in first..first + walks {
        let Some((breach, setup, path)) = walk(seed, may) else {
            continue;
        };
        let path = shortened(&setup, &breach, path);
        let known = found.entry(breach).or_insert((0, setup, path.clone()));
        known.0 += 1;
        if path.len() < known.2.len() {
            (known.1, known.2) = (setup, path);
        }
    }
    println!("{walks} walks {what}, with DSYNC_SEED={first} and on");
    for (breach, (times, setup, path)) in &found {
        println!(
            "    {times} times {} ({:?}): {path:?} in {setup:?}",
            breach.what, breach.excuse
        );
    }
    let unexcused: Vec<_> = found
        .keys()
        .filter(|breach| !breach.is_excused(excuses))
        .collect();
    assert!(unexcused.is_empty(), "{unexcused:?}");
}

#[test]
fn random_walks_from_latest_files_keep_the_order() {
    let may = |_: &mut Random| May {
        start_from_latest: true,
        ..May::default()
    };
    let excuses = [
        Excuse::SyncedWithUnaware,
        Excuse::OldStartedFromOther,
        Excuse::PromotedUnheard,
    ];
    play("from latest files", may, Some(&excuses));
}

#[test]
fn random_walks_of_all_kinds_break_only_what_is_not_promised() {
    let may = |random: &mut Random| May {
        start_from_latest: true,
        start_from_older: random.one_in(2),
        start_from_nothing: random.one_in(8),
        follow_cut_off: true,
        change_roles: random.one_in(2),
    };
    play("of all kinds", may, None);
}
