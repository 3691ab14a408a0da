//! Walks over all holds that are bounded whatever the keys are like, and what is told of a removed key.

use crate::model::Name;
use crate::server::{Server, Stored, key_bytes};
use crate::world::World;
use dsync_engine::LaneName;
use dsync_engine::held::HeldCursor;
use dsync_engine::types::{Claim, ClientId, Db, Fence, LeaseMs, Now, Token};
use dsync_engine::unasked::Removal;
use dsync_engine::{Family, Request, Settings, StateId, Visit};

const OLD: Name = (0, 0);
const NEW: Name = (1, 1);

fn server() -> (Server, Now) {
    let now = World::new(Settings::default()).now;
    let mut server = Server::new(Settings::default());
    server.engine.take_over(now);
    server.finish_background();
    (server, now)
}

/// Lets `number` hold the key. Returns the fence.
fn hold(server: &mut Server, name: Name, claim: Claim, number: u32, now: Now) -> Fence {
    let request = Request {
        claim,
        limit: matches!(claim, Claim::Permits(_)).then_some(1_000_000),
        bound: None,
        lease: LeaseMs(1_000),
        wait: None,
        min_hold: None,
        keep_ms: None,
        token: Token::parse(format!("token {number}").as_bytes()).expect("legal"),
        may_return: true,
        client: ClientId(7),
        ephemeral: false,
        owner: Some(format!("web-{}", number % 2).as_bytes().into()),
        lane: LaneName::default(),
        may_grow: true,
    };
    let acquire = |visit: &mut Visit<'_>| visit.acquire(request);
    server.call(name, claim.family(), now, acquire);
    server.engine.fences().last()
}

/// Makes a key that has no holds and stays.
fn pin(server: &mut Server, name: Name, now: Now) {
    let pin = |visit: &mut Visit<'_>| visit.pin_limit(Some(1));
    assert_eq!(server.call(name, Family::Semaphore, now, pin).0, Ok(None));
}

fn id(server: &Server, name: Name) -> StateId {
    match server.keys.get(&name) {
        Some(Stored::State(id)) => *id,
        other => panic!("{other:?}"),
    }
}

/// Walks over all holds of the owner, with so many looks in each slice. Returns the fences, and the number of slices.
fn walk(server: &Server, looks: usize, owner: &[u8], now: Now) -> (Vec<Fence>, usize) {
    let mut fences = Vec::new();
    let mut cursor: Option<HeldCursor> = None;
    for slices in 1..=2_000 {
        let wanted = |found: Option<&[u8]>| found == Some(owner);
        let (found, next) = server.engine.held(cursor, looks, now, wanted);
        fences.extend(found.iter().map(|found| found.hold.fence));
        cursor = next;
        if cursor.is_none() {
            return (fences, slices);
        }
    }
    panic!("the walk has no end")
}

#[test]
fn walk_stops_inside_a_key_with_many_holds() {
    const HOLDS: u32 = 1_000;
    let (mut server, now) = server();
    let fences: Vec<Fence> = (0..HOLDS)
        .map(|n| hold(&mut server, OLD, Claim::Permits(1), n, now))
        .collect();
    let wanted: Vec<Fence> = fences.iter().copied().step_by(2).collect();
    for looks in [1, 7, 999, 1_000, 1_001] {
        let (found, slices) = walk(&server, looks, b"web-0", now);
        assert_eq!(found, wanted, "{looks} looks");
        // Each look counts, whether or not the hold is wanted.
        assert_eq!(slices, fences.len().div_ceil(looks), "{looks} looks");
    }
}

#[test]
fn walk_counts_states_without_holds() {
    let (mut server, now) = server();
    for n in 0..100 {
        let name = (n, 0);
        pin(&mut server, name, now);
    }
    let fence = hold(&mut server, (100, 0), Claim::Exclusive, 1, now);
    for looks in [1, 10, 100, 101] {
        let (found, slices) = walk(&server, looks, b"web-1", now);
        assert_eq!(found, [fence], "{looks} looks");
        assert_eq!(slices, 101_usize.div_ceil(looks), "{looks} looks");
    }
    // A flushed database has no holds, also before its values are freed.
    server.flush(Some(100));
    assert_eq!(walk(&server, 10, b"web-1", now).0, []);
    server.free_let_go();
    server.finish_background();
    assert_eq!(walk(&server, 10, b"web-1", now).0, []);
}

#[test]
fn walk_goes_on_where_its_state_is_gone() {
    let (mut server, now) = server();
    let first = hold(&mut server, (0, 0), Claim::Exclusive, 1, now);
    let second = hold(&mut server, (0, 2), Claim::Exclusive, 1, now);
    let third = hold(&mut server, (0, 4), Claim::Exclusive, 1, now);
    let (found, cursor) = server.engine.held(None, 1, now, |_| true);
    assert_eq!(found[0].hold.fence, first);
    let gone = id(&server, (0, 2));
    assert_eq!(cursor.map(|cursor| cursor.state), Some(gone));
    server.delete((0, 2));
    let removal = server.engine.freed(gone).expect("it had a hold");
    assert_eq!(removal.fence, second);
    let (found, cursor) = server.engine.held(cursor, 5, now, |_| true);
    let fences: Vec<Fence> = found.iter().map(|found| found.hold.fence).collect();
    assert_eq!((fences, cursor), (vec![third], None));
}

/// The states behind one that is gone are looked at from their first hold on, whatever its last hold was.
#[test]
fn walk_goes_on_with_holds_older_than_those_that_are_gone() {
    let (mut server, now) = server();
    hold(&mut server, OLD, Claim::Permits(1), 1, now);
    let older = hold(&mut server, NEW, Claim::Exclusive, 1, now);
    hold(&mut server, OLD, Claim::Permits(1), 2, now);
    hold(&mut server, OLD, Claim::Permits(1), 3, now);
    let (_, cursor) = server.engine.held(None, 2, now, |_| true);
    assert_eq!(cursor.map(|cursor| cursor.state), Some(id(&server, OLD)));
    removed(&mut server, OLD);
    let (found, _) = server.engine.held(cursor, 5, now, |_| true);
    let fences: Vec<Fence> = found.iter().map(|found| found.hold.fence).collect();
    assert_eq!(fences, [older]);
}

/// Removes the value of a key, as DEL does, and frees it.
fn removed(server: &mut Server, name: Name) -> Option<Removal> {
    let id = id(server, name);
    server.delete(name);
    server.let_go.clear();
    server.engine.freed(id)
}

#[test]
fn removal_tells_the_key_its_holds_and_the_oldest_of_them() {
    let (mut server, now) = server();
    let fence = hold(&mut server, NEW, Claim::Permits(1), 1, now);
    hold(&mut server, NEW, Claim::Permits(2), 2, now);
    let removal = removed(&mut server, NEW).expect("it had holds");
    let expected = Removal {
        db: Db(NEW.0),
        name: key_bytes(NEW).into(),
        family: Family::Semaphore,
        holds: 2,
        fence,
        owner: Some(b"web-1".as_slice().into()),
        granted: now.unix(),
    };
    assert_eq!(removal, expected);
    // A key without holds is nothing to tell of.
    pin(&mut server, OLD, now);
    assert_eq!(removed(&mut server, OLD), None);
}

#[test]
fn removal_after_rename_has_the_new_name_whether_found_or_not() {
    for is_found in [false, true] {
        let (mut server, now) = server();
        hold(&mut server, OLD, Claim::Exclusive, 1, now);
        server.rename(OLD, NEW);
        if is_found {
            let id = id(&server, NEW);
            server.engine.found(id, Db(NEW.0), &key_bytes(NEW));
        }
        let removal = removed(&mut server, NEW).expect("it had a hold");
        assert_eq!(
            (removal.db, &*removal.name),
            (Db(NEW.0), &*key_bytes(NEW)),
            "{is_found}"
        );
    }
}

#[test]
fn flush_and_own_removal_are_no_removals_of_a_key() {
    let (mut server, now) = server();
    hold(&mut server, OLD, Claim::Exclusive, 1, now);
    let flushed = id(&server, OLD);
    server.flush(None);
    assert_eq!(server.engine.freed(flushed), None, "a flush");
    let fence = hold(&mut server, OLD, Claim::Exclusive, 1, now);
    let released = id(&server, OLD);
    let revoke = |visit: &mut Visit<'_>| visit.revoke(Family::Lock, fence);
    assert_eq!(server.call(OLD, Family::Lock, now, revoke).0, Ok(true));
    assert_eq!(server.engine.freed(released), None, "the last hold ended");
}
