//! States whose values have left their keys, until the engine learns where they are.

use crate::model::Name;
use crate::server::{Server, Stored, key_bytes};
use crate::world::World;
use dsync_engine::LaneName;
use dsync_engine::types::{Claim, ClientId, Db, LeaseMs, Now, Token};
use dsync_engine::{Family, Request, Settings, StateId};

const OLD: Name = (0, 0);
const NEW: Name = (1, 1);
const LEASE_MS: u32 = 1_000;

/// A lock that an EPHEMERAL hold of client 7 has, and that was renamed.
fn renamed() -> (Server, Now, StateId) {
    let now = World::new(Settings::default()).now;
    let mut server = Server::new(Settings::default());
    server.engine.take_over(now);
    server.finish_background();
    let request = Request {
        claim: Claim::Exclusive,
        limit: None,
        bound: None,
        lease: LeaseMs(LEASE_MS),
        wait: None,
        min_hold: None,
        keep_ms: None,
        token: Token::parse(b"t").expect("legal"),
        may_return: true,
        client: ClientId(7),
        ephemeral: true,
        owner: None,
        lane: LaneName::default(),
        may_grow: true,
    };
    server.call(OLD, Family::Lock, now, |visit| visit.acquire(request));
    let Some(Stored::State(id)) = server.keys.get(&OLD).copied() else {
        panic!("the lock is held");
    };
    server.rename(OLD, NEW);
    server.engine.check_invariants(now);
    (server, now, id)
}

fn later(now: Now, ms: u64) -> Now {
    let mut later = now;
    later.lease = now.lease.after_ms(ms + 2);
    later.mono = now.mono.after_ms(ms + 2);
    later.unix_us += (ms + 2) * 1_000;
    later
}

fn has_task(server: &mut Server, now: Now) -> bool {
    server.engine.next_task(now, &mut 9).is_some()
}

#[test]
fn stray_lapses_once_it_is_found() {
    let (mut server, now, id) = renamed();
    let now = later(now, u64::from(LEASE_MS));
    assert!(!has_task(&mut server, now), "its key is not known");
    assert!(server.engine.needs_search());
    server.engine.search_begins();
    assert!(!server.engine.needs_search(), "once is enough");
    server.engine.found(id, Db(NEW.0), &key_bytes(NEW));
    assert!(!server.engine.has_strays());
    server.run_tasks(now);
    assert!(server.keys.is_empty());
}

#[test]
fn hold_of_closed_connection_ends_once_the_stray_is_found() {
    let (mut server, now, id) = renamed();
    assert!(server.engine.disconnected(ClientId(7), now));
    assert!(!has_task(&mut server, now), "its key is not known");
    let now = later(now, 60);
    assert!(!has_task(&mut server, now), "nor is it later");
    server.engine.found(id, Db(NEW.0), &key_bytes(NEW));
    server.run_tasks(later(now, 60));
    assert!(server.keys.is_empty());
}

#[test]
fn stray_that_is_freed_is_searched_for_no_longer() {
    let (mut server, now, id) = renamed();
    server.keys.clear();
    server.engine.freed(id);
    assert!(!server.engine.has_strays() && !server.engine.needs_search());
    server.engine.check_invariants(now);
}

#[test]
fn stray_that_comes_during_a_search_causes_another() {
    let (mut server, now, id) = renamed();
    server.engine.search_begins();
    server.engine.found(id, Db(NEW.0), &key_bytes(NEW));
    server.rename(NEW, OLD);
    assert!(server.engine.needs_search());
    server.engine.search_begins();
    server.engine.swapped(Db(0), Db(1));
    assert!(server.engine.needs_search(), "it may be behind the search");
    server.engine.check_invariants(now);
}
