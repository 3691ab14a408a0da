//! The table of all public commands.
//!
//! To add a command, write its row beside its function in the family's file, and add a line here. The commands that
//! clients cannot call are not here but beside the code that uses them.

use super::contended::CONTENDED;
use super::holding::{check, info, pause, release, renew, revoke};
use super::holds::HOLDS;
use super::log::LOG;
use super::row::Row;
use super::{group, lock, once, semaphore};
use dsync_engine::Family::{Group, Lock, Once, Semaphore};

/// A type that stands for a row: the server calls a command's handler without telling which command it is, so each row
/// needs a handler of its own.
pub(super) trait InTable {
    const ROW: &'static Row;
}

/// What is done with the type of each row.
pub(super) trait ForEachRow {
    fn row<R: InTable>(&self) -> Result<(), String>;
}

macro_rules! table {
    ($($row:expr),* $(,)?) => {
        pub(super) static ROWS: [Row; [$(stringify!($row)),*].len()] = [$($row),*];

        /// Stops at the first error.
        pub(super) fn for_each_row(each: &impl ForEachRow) -> Result<(), String> {
            $({
                struct ThisRow;
                impl InTable for ThisRow {
                    const ROW: &'static Row = &$row;
                }
                each.row::<ThisRow>()?;
            })*
            Ok(())
        }
    };
}

table![
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
