//! A wall clock of servers that a test sets, as an operator or NTP does. Their other clocks go on.
//!
//! `shims/wall_clock.c` is preloaded into the servers.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use crate::builder::Builder;
use crate::folder::Folder;
use crate::shim;

/// The file with the shift.
const SHIFT: &str = "shift";

/// The clock of one server or several. It must live as long as they.
pub struct WallClock {
    library: PathBuf,
    folder: Folder,
}

impl WallClock {
    /// A clock that is right. `None` without a C compiler.
    pub fn new() -> Option<WallClock> {
        let library = shim::compiled("wall_clock")?;
        let folder = Folder::new();
        fs::write(folder.path(SHIFT), [0; 16]).expect("the shift is written");
        Some(WallClock { library, folder })
    }

    /// Has the server read this clock.
    pub fn over(&self, builder: Builder) -> Builder {
        let shift = self.folder.path(SHIFT);
        builder
            .preload(&self.library)
            .env("DSYNC_TEST_SHIFT", shift)
    }

    /// Sets the clock to so many microseconds after the right time, or before it.
    pub fn shift_by(&self, us: i64) {
        self.shift_from_reading(0, us);
    }

    /// Shifts the clock from its next reading with this number on.
    pub fn shift_from_reading(&self, number: i64, us: i64) {
        // Writes in place: the servers have the file mapped, so it must never be truncated.
        let file = OpenOptions::new().write(true).open(self.folder.path(SHIFT));
        let words = [us.to_ne_bytes(), number.to_ne_bytes()].concat();
        file.and_then(|mut file| file.write_all(&words))
            .expect("the shift is written");
    }
}
