//! Clients that wait, and how many do.

use crate::client::Client;
use crate::eventually::{SOON, eventually};
use crate::server::Server;

impl Client {
    /// Sends a line that waits. Returns when the server has blocked this client.
    #[track_caller]
    pub fn wait_on(&mut self, server: &Server, line: impl AsRef<str>) {
        let before = server.blocked_clients();
        self.begin(line);
        server.wait_for_blocked(before + 1);
    }
}

impl Server {
    /// A new connection that waits with this line, see [`Client::wait_on`].
    #[track_caller]
    pub fn waiting(&self, line: impl AsRef<str>) -> Client {
        let mut client = self.connect();
        client.wait_on(self, line);
        client
    }

    /// How many clients are blocked in a command, by the server's own count.
    #[track_caller]
    pub fn blocked_clients(&self) -> u64 {
        self.info_number("clients", "blocked_clients")
    }

    /// Waits until exactly `count` clients are blocked.
    #[track_caller]
    pub fn wait_for_blocked(&self, count: u64) {
        eventually(&format!("{count} blocked clients"), SOON, || {
            self.blocked_clients() == count
        });
    }

    /// How many requests wait, by the module's INFO.
    #[track_caller]
    pub fn waiters(&self) -> u64 {
        self.info_number("dsync", "dsync_waiters")
    }

    /// Waits until so many requests wait here.
    #[track_caller]
    pub fn wait_for_waiters(&self, count: u64) {
        eventually(&format!("{count} waiters"), SOON, || {
            self.find_info("dsync", "dsync_waiters") == Some(count.to_string())
        });
    }
}
