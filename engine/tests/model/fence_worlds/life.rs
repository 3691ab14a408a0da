//! What a server has gone through, and so why the contract does not promise that its fences rise.

use super::excuse::Excuse;
use super::files::{File, From};

/// What is known of a server's data since its last start or full synchronisation.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Life {
    /// Why the data may lack fences that the server gave.
    pub excuse: Option<Excuse>,
    /// When the server changed its role last.
    pub changed_us: Option<u64>,
    /// When the server was a replica and first knew of the last leap, its own or that of its primary.
    pub knew_leap_us: Option<u64>,
    /// Whether the server starts from files in this world.
    has_files: bool,
    started_without_us: Option<u64>,
    /// Of when the data were when it started from a file that it did not write as a primary.
    others_data_us: Option<u64>,
    /// When it started from an older file, and of when the data were.
    older: Option<(u64, u64)>,
}

impl Life {
    pub fn new(has_files: bool) -> Life {
        Life {
            has_files,
            ..Life::default()
        }
    }

    /// A server loads its own file, whose data are of this moment, or has none.
    pub fn began(
        &mut self,
        from: From,
        file: Option<(File, u64)>,
        is_own_of_primary: bool,
        us: u64,
    ) {
        let Some((file, data_us)) = file else {
            self.started_without_us = Some(us);
            self.excuse = self.has_files.then_some(Excuse::StartWithoutAfterFiles);
            return;
        };
        let is_before = |us: Option<u64>| us.is_some_and(|us| file.written_us < us);
        let is_newer_again =
            (self.older).is_some_and(|(at, older_us)| file.written_us < at && older_us < data_us);
        self.excuse = if file.excuse.is_some() {
            file.excuse
        } else if is_before(self.started_without_us) {
            Some(Excuse::FileOlderThanStartWithout)
        } else if is_own_of_primary && is_before(self.changed_us) || is_before(self.knew_leap_us) {
            Some(Excuse::FileOlderThanChangeOfRole)
        } else if is_newer_again {
            Some(Excuse::NewerFileAfterOlder)
        } else if self.others_data_us > Some(data_us) {
            Some(Excuse::OlderDataAfterOthers)
        } else {
            None
        };
        if !is_own_of_primary {
            self.others_data_us = Some(data_us);
        }
        if from == From::Older {
            self.older = Some((us, data_us));
        }
    }
}
