//! The table of all public commands.
//!
//! To add a command, write its row beside its function in the family's file, add a line here, and add the next
//! number in `register`; the compiler fails until all three agree. The commands that clients cannot call are not
//! here but beside the code that uses them.

use super::contended::CONTENDED;
use super::holding::{check, info, pause, release, renew, revoke};
use super::holds::HOLDS;
use super::log::LOG;
use super::row::Row;
use super::{group, lock, once, semaphore};
use dsync_engine::Family::{Group, Lock, Once, Semaphore};

pub(super) static ROWS: [Row; 38] = [
    lock::ACQUIRE,
    release(Lock),
    renew(Lock),
    check(Lock),
    revoke(Lock),
    pause(Lock),
    info(Lock),
    semaphore::ACQUIRE,
    semaphore::PIN,
    release(Semaphore),
    renew(Semaphore),
    check(Semaphore),
    revoke(Semaphore),
    pause(Semaphore),
    info(Semaphore),
    group::ADD,
    group::DONE,
    group::WAIT,
    group::EXPECT,
    release(Group),
    renew(Group),
    check(Group),
    revoke(Group),
    pause(Group),
    info(Group),
    once::BEGIN,
    once::DONE,
    once::FAIL,
    once::GET,
    release(Once),
    renew(Once),
    check(Once),
    revoke(Once),
    pause(Once),
    info(Once),
    CONTENDED,
    HOLDS,
    LOG,
];
