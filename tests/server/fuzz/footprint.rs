//! What a server has taken from its machine: memory and descriptors.

use crate::support::*;

/// How many bytes more than at the start a server may keep when all is over: the end log, and room for as much as there was
/// at a time. A run of an hour leaves no more than one of a minute.
const ROOM: u64 = 4 << 20;

#[derive(Debug)]
pub struct Footprint {
    /// Bytes, without what the server itself needs for clients, replicas and its AOF.
    memory: u64,
    /// Files, connections and pipes that are open.
    descriptors: usize,
}

impl Footprint {
    #[track_caller]
    pub fn of(server: &Server) -> Footprint {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.pid()));
        Footprint {
            memory: server.info_number("memory", "used_memory_dataset"),
            descriptors: descriptors.expect("its descriptors").count(),
        }
    }

    /// Whether a server that has this now has given back what it took since the start.
    pub fn is_back_to(&self, start: &Footprint) -> bool {
        // The connections of replicas change sides, and that of this question is one.
        self.memory <= start.memory + ROOM && self.descriptors <= start.descriptors + 8
    }
}
