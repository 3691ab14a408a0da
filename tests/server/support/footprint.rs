//! What a server has taken from its machine: memory and descriptors.

use dsync_testkit::Server;

#[derive(Debug)]
pub struct Footprint {
    /// Bytes, without what the server itself needs for clients, replicas and its AOF.
    memory: u64,
    /// How many files, connections and pipes are open.
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

    /// Whether it is no larger than an earlier one by more than so many bytes and descriptors.
    pub fn is_back_to(&self, start: &Footprint, bytes: u64, descriptors: usize) -> bool {
        self.memory <= start.memory + bytes && self.descriptors <= start.descriptors + descriptors
    }
}
