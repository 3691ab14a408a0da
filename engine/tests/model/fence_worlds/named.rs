//! Sequences that once broke a promise, or that are too long for `all`.

use super::files::From;
use super::{Event, MINUTE_US, May, Setup, World};

fn setup(ahead_minutes: [u64; 2]) -> Setup {
    Setup {
        servers: 2,
        ahead_us: [
            ahead_minutes[0] * MINUTE_US,
            ahead_minutes[1] * MINUTE_US,
            0,
        ],
        tick_us: 20 * MINUTE_US,
        order_us: 60 * MINUTE_US,
        has_aof: [false; 3],
        may: May {
            start_from_latest: true,
            ..May::default()
        },
    }
}

fn play(setup: &Setup, events: &[Event]) {
    let mut world = World::new(setup);
    for (nth, event) in events.iter().enumerate() {
        assert!(world.events(setup).contains(event), "{nth}: {event:?}");
        assert_eq!(world.take(setup, *event), [], "{nth}: {event:?}");
    }
}

fn sync(replica: usize, of: usize) -> Event {
    Event::Sync {
        replica,
        of,
        keeps_file: false,
    }
}

/// The fences of both are two hours ahead of the clock then. So only what a promotion leaps past the last fence, and
/// past the line, keeps them apart.
#[test]
fn old_primary_promoted_moments_before_stays_below_the_next() {
    play(
        &setup([0, 0]),
        &[
            Event::Crash(0),
            Event::Promote(1),
            Event::Save(1),
            sync(0, 1),
            Event::Promote(0),
            Event::Grant(0),
            Event::Pass,
            Event::Pass,
            Event::Crash(1),
            Event::Start(1, From::Latest),
            Event::Grant(1),
        ],
    );
}

/// The promotion went past a line by the clock of the server's primary, the start past one by its own clock.
#[test]
fn start_from_file_saved_as_replica_goes_past_lost_promotion() {
    play(
        &setup([0, 30]),
        &[
            Event::Crash(0),
            Event::Promote(1),
            sync(0, 1),
            Event::Promote(0),
            Event::Crash(1),
            sync(1, 0),
            Event::Save(1),
            Event::Promote(1),
            Event::Grant(1),
            Event::Crash(1),
            Event::Start(1, From::Latest),
            Event::Grant(1),
        ],
    );
}
