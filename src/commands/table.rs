//! The table of all public commands. A new command is a row beside its function, in its family's file, a line here,
//! and the next number in `register`, which the compiler asks for.
//!
//! The commands that clients do not call are listed in `internal`.

use super::contended::CONTENDED;
use super::holding::{check, info, release, renew, revoke};
use super::row::Row;
use super::{group, lock, once, semaphore};
use dsync_engine::Family::{Group, Lock, Once, Semaphore};

pub(super) static ROWS: [Row; 31] = [
    lock::ACQUIRE,
    release(Lock),
    renew(Lock),
    check(Lock),
    revoke(Lock),
    info(Lock),
    semaphore::ACQUIRE,
    semaphore::PIN,
    release(Semaphore),
    renew(Semaphore),
    check(Semaphore),
    revoke(Semaphore),
    info(Semaphore),
    group::ADD,
    group::DONE,
    group::WAIT,
    group::EXPECT,
    release(Group),
    renew(Group),
    check(Group),
    revoke(Group),
    info(Group),
    once::BEGIN,
    once::DONE,
    once::FAIL,
    release(Once),
    renew(Once),
    check(Once),
    revoke(Once),
    info(Once),
    CONTENDED,
];
