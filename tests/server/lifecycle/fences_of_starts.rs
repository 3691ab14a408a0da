//! How far a server leaps with its fences when it starts or is promoted, and that no lost data makes them go back.
//!
//! A server that starts from its own file, which it wrote as a primary, goes on. Any other beginning goes past the fences
//! of a server that may still serve. All servers of a test have the same clock, unless the test sets one of them.

use std::fs;
use std::path::Path;

use crate::support::data_files::{
    append_changes, grant_by_hand, kill_and_start, wait_for_rewrite, with_safe_aof,
};
use crate::support::steps::*;
use crate::support::*;

const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;
const HOUR_US: u64 = 60 * MINUTE_US;
const DAY_US: u64 = 24 * HOUR_US;

const RDB: &str = "dump.rdb";
const AOF_DIR: &str = "appendonlydir";

/// Acquires and releases a key; returns the fence.
#[track_caller]
fn grant(server: &Server) -> u64 {
    let mut client = server.connect();
    let (token, fence) = client.ask("DLOCK.ACQUIRE k PX 60000").grant();
    assert_eq!(client.ask(format!("DLOCK.RELEASE k {token}")), 1);
    fence
}

#[track_caller]
fn save(server: &Server) {
    eventually("the end of a full sync", SOON, || {
        server.info_number("persistence", "rdb_bgsave_in_progress") == 0
    });
    assert_eq!(server.connect().ask("SAVE"), "OK");
}

/// A server that has synchronised with its primary.
fn replica_of(primary: &Server, builder: Builder) -> Server {
    let replica = builder.replica_of(primary).start();
    replica.wait_for_sync();
    replica
}

#[track_caller]
fn promote(server: &Server) {
    assert_eq!(server.connect().ask("REPLICAOF NO ONE"), "OK");
}

/// Kills a promoted server and starts it as a primary. `change` is done to its files in between.
#[track_caller]
fn lose(server: &mut Server, change: impl FnOnce(&Path)) {
    server.kill9();
    change(server.dir());
    server.configure("replicaof", "no one");
    server.start_again();
}

#[track_caller]
fn assert_rises(before: u64, after: u64, story: &str) {
    assert!(after > before, "{after} follows {before}: {story}");
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).expect("the directory is made");
    for file in fs::read_dir(from).expect("the directory is read") {
        let file = file.expect("a file");
        fs::copy(file.path(), to.join(file.file_name())).expect("it is copied");
    }
}

/// A promoted server has granted, and is killed before it has saved that. Its fences went back by an hour.
#[test]
fn promoted_server_without_its_grants_starts_above_them() {
    // Whether the primary had given fences before the replica synchronised: if not, the file tells of none.
    for was_used in [true, false] {
        let primary = Server::start();
        if was_used {
            grant(&primary);
        }
        let synchronised = |builder: Builder| {
            let replica = replica_of(&primary, builder);
            replica.wait_to_catch_up_with(&primary);
            replica
        };

        let mut replica = synchronised(Server::builder());
        grant(&primary);
        replica.wait_to_catch_up_with(&primary);
        promote(&replica);
        let before = grant(&replica);
        lose(&mut replica, |_| ());
        let story = format!("the file of its full sync, {was_used}");
        assert_rises(before, grant(&replica), &story);

        let mut replica = synchronised(Server::builder());
        save(&replica);
        promote(&replica);
        let before = grant(&replica);
        lose(&mut replica, |_| ());
        let story = format!("a file that it saved as a replica, {was_used}");
        assert_rises(before, grant(&replica), &story);

        let mut replica = synchronised(Server::builder().config("appendonly", "yes"));
        let (aof, saved) = (replica.dir().join(AOF_DIR), replica.dir().join("saved"));
        wait_for_rewrite(&replica);
        copy_dir(&aof, &saved);
        promote(&replica);
        let before = grant(&replica);
        lose(&mut replica, |_| {
            fs::remove_dir_all(&aof).expect("the AOF is removed");
            fs::rename(&saved, &aof).expect("the older one is there");
        });
        let story = format!("an AOF of before the last fsync, {was_used}");
        assert_rises(before, grant(&replica), &story);
    }
}

#[test]
fn promoted_server_without_any_file_starts_above_its_grants() {
    let primary = Server::start();
    let mut replica = replica_of(&primary, Server::builder().config("save", "''"));
    promote(&replica);
    let before = grant(&replica);
    lose(&mut replica, |dir| {
        // Without disks there is none.
        let _ = fs::remove_file(dir.join(RDB));
    });
    let again = grant(&replica);
    assert_rises(before, again, "without a file");
    kill_and_start(&mut replica);
    assert_rises(again, grant(&replica), "once more");
}

#[test]
fn promoted_server_starts_twice_from_one_file() {
    let primary = Server::start();
    grant(&primary);
    let mut replica = replica_of(&primary, Server::builder());
    promote(&replica);
    let mut last = grant(&replica);
    save(&replica);
    lose(&mut replica, |_| ());
    for _ in 0..3 {
        let fence = grant(&replica);
        assert_rises(last, fence, "from the same file");
        last = fence;
        kill_and_start(&mut replica);
    }
}

#[test]
fn start_from_older_file_gives_higher_fences_than_starts_since() {
    let mut server = Server::start();
    let mut last = grant(&server);
    save(&server);
    let (file, old) = (server.dir().join(RDB), server.dir().join("old.rdb"));
    fs::copy(&file, &old).expect("the file is copied");
    for start in 1..=4 {
        kill_and_start(&mut server);
        let fence = grant(&server);
        assert_rises(last, fence, &format!("start {start}"));
        last = fence;
        save(&server);
    }
    server.kill9();
    fs::copy(&old, &file).expect("the file is copied");
    server.start_again();
    assert_rises(last, grant(&server), "the file of before all those");
}

/// The primary was promoted moments ago, so its fences are far ahead of the clock. A replica of it is promoted, loses
/// everything, synchronises with it again, and is promoted once more.
#[test]
fn second_promotion_over_one_primary_gives_higher_fences() {
    let first = Server::start();
    let primary = replica_of(&first, Server::builder());
    promote(&primary);
    grant(&primary);
    let mut replica = replica_of(&primary, Server::builder());
    // The longer the first promotion comes after the synchronisation, the higher are its fences.
    grant(&primary);
    let waited = unix_us() + 2 * SECOND_US;
    eventually("two seconds", SOON, || unix_us() > waited);
    promote(&replica);
    let before = grant(&replica);
    replica.kill9();
    // With the file the replica would only ask for what it has missed.
    let _ = fs::remove_file(replica.dir().join(RDB));
    replica.start_again();
    replica.wait_for_sync();
    promote(&replica);
    assert_rises(before, grant(&replica), "synchronised anew");
}

/// An old primary that is cut off and started again there, as often as it likes, stays below the promoted one for an
/// hour, whether it saves in between or not.
#[test]
fn old_primary_stays_below_promoted_one_for_an_hour() {
    for saves in [true, false] {
        let Some(clock) = WallClock::new() else {
            return;
        };
        let first = Server::start();
        // Else the server saves by itself when its clock has jumped.
        let builder = Server::builder().config("save", "''");
        let mut old = replica_of(&first, clock.over(builder));
        promote(&old);
        grant(&old);
        save(&old);
        let new = replica_of(&old, Server::builder());
        promote(&new);
        let promoted = grant(&new);
        for start in 1..=9 {
            clock.shift_by(start * 394 * SECOND_US.cast_signed());
            if saves {
                save(&old);
            }
            lose(&mut old, |_| ());
            let late = grant(&old);
            assert!(
                late < promoted,
                "{late} of the old side, start {start}, saves {saves}; {promoted} of the new one"
            );
        }
    }
}

/// The last fence is a hundred days ahead of the clock, so each leap is a distance from it.
#[test]
fn start_leaps_once_and_as_the_file_demands() {
    let far = unix_us() + 100 * DAY_US;
    let mut own = with_safe_aof(false).start();
    own.kill9();
    append_changes(&own, "far", "lock", &[&grant_by_hand(far)]);
    own.start_again();
    // An AOF without a preamble does not tell who wrote it.
    let begun = grant(&own);
    let another = 35 * MINUTE_US..36 * MINUTE_US;
    assert!(another.contains(&(begun - far)), "{}", begun - far);

    save(&own);
    let mut other = Server::start();
    other.kill9();
    fs::copy(own.dir().join(RDB), other.dir().join(RDB)).expect("the file is copied");
    other.start_again();
    let there = grant(&other);
    assert!(another.contains(&(there - begun)), "{}", there - begun);

    save(&other);
    let known = other.info_number("dsync", "dsync_last_fence");
    kill_and_start(&mut other);
    let again = grant(&other);
    assert!(again - known < MINUTE_US, "{}", again - known);
}

/// A server whose port has changed is another one: it leaps farther from the files of before.
#[test]
fn file_after_change_of_the_port_is_of_the_new_address() {
    let mut server = Server::start();
    let mut last = grant(&server);
    for (elsewhere, is_another) in [(false, false), (true, true)] {
        let mut client = server.connect();
        if elsewhere {
            let port = dsync_testkit::next_port();
            assert_eq!(client.ask(format!("CONFIG SET port {port}")), "OK");
        }
        call!(client, "SAVE");
        kill_and_start(&mut server);
        let fence = grant(&server);
        let leapt = fence - last > 20 * MINUTE_US;
        assert_eq!(leapt, is_another, "by {}", fence - last);
        last = fence;
    }
}

/// Servers other than Redis 7.0 read a file of a server that has not used the module, also without the module.
#[test]
fn unused_server_leaves_nothing_in_its_file() {
    let unused = Server::start();
    let flavour = unused.flavour();
    if flavour.product == Product::Redis && flavour.version < (7, 2, 0) {
        return;
    }
    let mut client = unused.connect();
    assert_eq!(client.ask("SET others value"), "OK");
    assert!(client.ask("DLOCK.INFO k").is_nil());
    save(&unused);
    let mut plain = Server::builder().without_module().start();
    plain.kill9();
    fs::copy(unused.dir().join(RDB), plain.dir().join(RDB)).expect("the file is copied");
    plain.start_again();
    assert_eq!(plain.connect().ask("GET others"), "value");
}

/// The file of an unused server tells of no fence, or of its own leap alone. Each start from it goes past the clock, and
/// past the start before.
#[test]
fn starts_from_file_of_unused_server_rise() {
    let mut server = Server::start();
    save(&server);
    let mut last = server.info_number("dsync", "dsync_last_fence");
    for start in 1..=3 {
        kill_and_start(&mut server);
        let fence = grant(&server);
        assert_rises(last, fence, &format!("start {start}"));
        let ahead_us = fence - unix_us();
        assert!(
            (2 * HOUR_US - MINUTE_US..3 * HOUR_US).contains(&ahead_us),
            "{ahead_us}"
        );
        last = fence;
    }
}
