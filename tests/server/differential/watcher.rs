//! A client that is told of all events and messages of a server, and of each modified key as client-side caches are.

use std::collections::BTreeSet;

use super::masks::Masks;
use crate::support::*;

pub struct Watcher {
    /// Reads the pushes.
    client: Client,
    /// Its PINGs come after all that the server was sent before, and after what that has set off.
    control: Client,
    told: Vec<Reply>,
}

impl Watcher {
    #[track_caller]
    pub fn start(server: &Server) -> Watcher {
        let mut client = server.connect_resp3();
        assert_eq!(client.ask("CLIENT TRACKING ON BCAST"), "OK");
        for pattern in ["__key*__:*", "dsync:*"] {
            assert!(!client.ask(format!("PSUBSCRIBE {pattern}")).is_error());
        }
        client.set_nonblocking();
        Watcher {
            client,
            control: server.connect(),
            told: Vec::new(),
        }
    }

    /// Reads what the server has sent.
    #[track_caller]
    pub fn read(&mut self) {
        for _ in 0..3 {
            assert_eq!(self.control.ask("PING"), "PONG");
        }
        while let Ok(Some(push)) = self.client.poll() {
            self.told.push(push);
        }
    }

    pub fn forget(&mut self) {
        self.told.clear();
    }

    /// The events and messages that were read, and then the modified keys, each once: how many of them share a push
    /// depends on how the server's turns fall.
    pub fn shown(&self, masks: &mut Masks) -> Vec<String> {
        let is_modified = |push: &&Reply| push.as_array()[0] == "invalidate";
        let (modified, events): (Vec<&Reply>, Vec<&Reply>) =
            self.told.iter().partition(is_modified);
        let events = events.into_iter();
        let mut lines: Vec<String> = events
            .map(|event| format!("event: {}", masks.reply(event)))
            .collect();
        if masks.any_order {
            lines.sort();
        }
        let keys = modified.iter().flat_map(|push| match &push.as_array()[1] {
            Reply::Array(keys) => keys.as_slice(),
            all => std::slice::from_ref(all),
        });
        let keys: BTreeSet<String> = keys.map(|key| masks.reply(key)).collect();
        lines.extend(keys.iter().map(|key| format!("modified: {key}")));
        lines
    }
}
