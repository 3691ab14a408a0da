//! A disk that loses what was not synced when the power fails: of AOF and RDB files, and of their names.
//!
//! `shims/disk.c` is preloaded into the server. It notes what is synced, and cuts the files back at the next start.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::builder::Builder;
use crate::server::Server;
use crate::shim;

/// The file by which a test orders the loss, and in which the library answers.
const ORDER: &str = "power-lost";

/// The library that knows what is synced.
pub struct Disk {
    library: PathBuf,
}

impl Disk {
    /// Returns `None` without a C compiler.
    pub fn new() -> Option<Disk> {
        let library = shim::compiled("disk")?;
        Some(Disk { library })
    }

    /// Has the server write to such a disk. It must be preloaded from the first start on.
    pub fn under(&self, builder: Builder) -> Builder {
        builder.preload(&self.library)
    }
}

impl Server {
    /// Kills a server that writes to a [`Disk`]. At its next start the disk has what was synced, and `kept_per_cent` of
    /// what was written to each file after that.
    #[track_caller]
    pub fn lose_power(&mut self, kept_per_cent: u32) {
        self.kill9();
        fs::write(self.dir().join(ORDER), kept_per_cent.to_string()).expect("the order is written");
    }

    /// After the start that followed a loss of power: the moment of the last write to the AOF that was synced. What was
    /// answered before it is not lost.
    #[track_caller]
    pub fn synced_until(&self) -> SystemTime {
        let answer = fs::read_to_string(self.dir().join(ORDER)).expect("power was lost");
        let us = answer
            .strip_prefix("since ")
            .and_then(|us| us.trim().parse().ok());
        let us = us.unwrap_or_else(|| panic!("the disk has not lost power: {answer}"));
        SystemTime::UNIX_EPOCH + Duration::from_micros(us)
    }
}
