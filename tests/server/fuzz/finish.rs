//! What must be true at the end of a run: no client waits for a key that nobody holds, all waiters are served when
//! every hold is given back, no gauge counts what is gone, and all files can be loaded.

use std::time::{Duration, Instant};

use super::driver::Driver;
use super::fleet::Fleet;
use super::requests::{DATABASES, NAMES};
use super::run_view::RunView;
use super::step::Step;
use crate::fuzz::history::assert_nothing_overdue;
use crate::support::*;

const UNTIL: Duration = Duration::from_secs(30);

#[track_caller]
pub fn finish(fleet: &mut Fleet, driver: &mut Driver) {
    driver.accept(fleet.primary());
    driver.settle();
    fleet.perform(driver, &Step::Compare);
    assert_nothing_overdue(fleet.primary());
    assert_no_wait_without_holder(fleet, driver);
    assert_all_answered(fleet, driver);
    driver.close_all();
    assert_gauges_at_zero(fleet);
    fleet.check_footprints();
    fleet.perform(driver, &Step::Load);
    fleet.check_untroubled();
}

/// Asserts that a key with waiters has a holder, is paused or delayed, or is a group with owed jobs.
#[track_caller]
fn assert_no_wait_without_holder(fleet: &Fleet, driver: &mut Driver) {
    let until = Instant::now() + UNTIL;
    let mut client = fleet.primary().connect();
    while let Some(key) = contended_without_holder(&mut client) {
        assert!(
            Instant::now() < until,
            "nobody holds {key:?}, and yet there are waiters"
        );
        driver.rest(Duration::from_millis(20));
    }
}

#[track_caller]
fn contended_without_holder(client: &mut Client) -> Option<Reply> {
    let contended = client.ask("DSYNC.CONTENDED COUNT 1000");
    let without_holder = contended.as_array().iter().find(|row| {
        let [database, key, family, ..] = row.as_array() else {
            panic!("a row of DSYNC.CONTENDED: {row:?}");
        };
        let mut families = Family::ALL.into_iter();
        let family = families
            .find(|known| *family == known.word())
            .expect("a family");
        let prefix = family.prefix();
        assert_eq!(client.ask(format!("SELECT {}", database.as_int())), "OK");
        let info = call!(client, format!("{prefix}.INFO"), key.as_str());
        if info.is_nil() || info.is_error() {
            return true;
        }
        let is_paused = info
            .find_field("pinned-limit")
            .is_some_and(|limit| *limit == 0);
        // DWG.WAIT waits for jobs that are owed.
        let is_owed = info.find_field("owed").is_some_and(|owed| *owed != 0);
        let is_delayed = *info.field("state") == "delayed";
        *info.field("holders") == 0 && !is_paused && !is_delayed && !is_owed
    });
    without_holder.cloned()
}

/// Removes all keys again and again, and asserts that every client is answered.
#[track_caller]
fn assert_all_answered(fleet: &Fleet, driver: &mut Driver) {
    let until = Instant::now() + UNTIL;
    let mut client = fleet.primary().connect();
    driver.ledger.make_nothing_certain(Instant::now());
    while let Some(on) = (0..=driver.connections()).find(|on| !driver.is_idle(*on)) {
        assert!(
            Instant::now() < until,
            "connection {on} still waits, though all keys were removed again and again"
        );
        remove_all(&mut client);
        driver.rest(Duration::from_millis(2));
    }
    remove_all(&mut client);
}

#[track_caller]
fn remove_all(client: &mut Client) {
    for database in 0..DATABASES {
        assert_eq!(client.ask(format!("SELECT {database}")), "OK");
        // A request with an odd word in the place of its key has made a key of that name. KEYS leaves out what has
        // expired.
        let others = client.ask("KEYS *");
        let others = others.as_array().iter().map(Reply::as_bytes);
        let names = NAMES.into_iter().map(str::as_bytes);
        let words = [&b"DEL"[..]].into_iter().chain(names).chain(others);
        client.call(&words.collect::<Vec<_>>()).as_int();
    }
}

#[track_caller]
fn assert_gauges_at_zero(fleet: &Fleet) {
    let until = Instant::now() + UNTIL;
    let mut client = fleet.primary().connect();
    loop {
        // A last request may have resumed a vacant place and been granted.
        remove_all(&mut client);
        let counted = gauges_above_zero(fleet);
        if counted.is_empty() {
            return;
        }
        assert!(
            Instant::now() < until,
            "counted {UNTIL:?} after every client left: {counted:?}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The gauges that are not 0: the port of the server, the field of INFO, its number.
fn gauges_above_zero(fleet: &Fleet) -> Vec<(u16, String, u64)> {
    let mut above = Vec::new();
    for server in fleet.servers() {
        let families = ["", "lock_", "sem_", "wg_", "once_"].into_iter();
        let gauges =
            families.flat_map(|family| [family, family].into_iter().zip(["holds", "waiters"]));
        for (family, gauge) in gauges.chain([("", "resting"), ("", "lanes")]) {
            let field = format!("dsync_{family}{gauge}");
            let count = server.info_number("dsync", &field);
            if count > 0 {
                above.push((server.port(), field, count));
            }
        }
    }
    above
}
