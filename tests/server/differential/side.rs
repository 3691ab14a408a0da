//! One of the two sides: a primary with an AOF and its replica with the same module, connections, and everything that
//! comes out of them.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::at_rest::steady;
use super::masks::Masks;
use super::watcher::Watcher;
use crate::fuzz::step::Connection;
use crate::fuzz::words;
use crate::support::data_files::with_aof;
use crate::support::*;

/// Settings that let nothing end during a burst.
const SETTINGS: [(&str, &str); 5] = [
    ("default-lease-ms", "600000"),
    ("rejoin-ms", "600000"),
    ("group-keep-ms", "600000"),
    ("takeover-grace-ms", "600000"),
    ("once-keep-ms", "700000"),
];
/// The deadline for all leases of a phase to lapse.
const LAPSED_WITHIN: Duration = Duration::from_secs(60);

pub struct Side {
    pub primary: Server,
    pub replica: Server,
    pub stream: ReplicationStream,
    pub control: Client,
    pub watcher: Watcher,
    pub replica_watcher: Watcher,
    links: Vec<Option<Client>>,
    /// The replies of each connection since [`Side::take_heard`].
    heard: Vec<Vec<Reply>>,
    /// The tokens that this server made, by the line of the request, and the last fence of each token.
    pub made: HashMap<String, String>,
    pub fences: HashMap<String, i64>,
    pub masks: Masks,
}

impl Side {
    #[track_caller]
    pub fn start(module: &Path, connections: usize) -> Side {
        let builder = || {
            let builder = SETTINGS.iter().fold(
                Server::builder().module(module),
                |builder, (name, value)| builder.module_arg(name).module_arg(value),
            );
            builder
                .config("notify-keyspace-events", "KEAn")
                // Payloads are compared byte by byte.
                .config("rdbcompression", "no")
        };
        let primary = with_aof(builder(), "no", "no")
            .config("repl-backlog-size", "32mb")
            .start();
        let replica = builder().replica_of(&primary).start();
        let stream = ReplicationStream::attach(&primary);
        Side {
            control: primary.connect(),
            watcher: Watcher::start(&primary),
            replica_watcher: Watcher::start(&replica),
            primary,
            replica,
            stream,
            links: (0..=connections).map(|_| None).collect(),
            heard: vec![Vec::new(); connections + 1],
            made: HashMap::new(),
            fences: HashMap::new(),
            masks: Masks::default(),
        }
    }

    /// Sends requests in one write.
    #[track_caller]
    pub fn send(&mut self, on: usize, requests: &[Vec<String>], database: usize) {
        if self.links[on].is_none() {
            let mut client = self.primary.connect();
            let id = i64::try_from(client.id()).expect("ids are small");
            self.masks.clients.retain(|_, known| *known != on);
            self.masks.clients.insert(id, on);
            client.set_nonblocking();
            self.links[on] = Some(client);
        }
        let bytes: Vec<u8> = requests
            .iter()
            .flat_map(|words| {
                let words: Vec<String> = words.iter().map(|word| self.known(word)).collect();
                words::bytes(&words, &self.primary, database)
            })
            .collect();
        if let Some(link) = &mut self.links[on] {
            // A closed connection is seen when its replies are read.
            let _ = link.push(&bytes);
        }
    }

    pub fn close(&mut self, on: usize) {
        if let Some(client) = self.links[on].take() {
            client.close();
        }
    }

    /// A word, with the value that only this side knows.
    fn known(&self, word: &str) -> String {
        if let Some(on) = word.strip_prefix("$client:") {
            let id = self
                .masks
                .clients
                .iter()
                .find(|(_, known)| known.to_string() == on);
            return id.map_or(u32::MAX.to_string(), |(id, _)| id.to_string());
        }
        if word.starts_with("$token:") {
            return self.made.get(word).cloned().unwrap_or("never".to_owned());
        }
        if let Some(token) = word.strip_prefix("$fence:") {
            return self
                .fences
                .get(token)
                .map_or("1".to_owned(), i64::to_string);
        }
        word.to_owned()
    }

    /// Reads what has arrived.
    #[track_caller]
    pub fn read(&mut self) {
        self.watcher.read();
        for on in 0..self.links.len() {
            while let Some(link) = &mut self.links[on] {
                match link.poll() {
                    Ok(Some(reply)) => self.heard[on].push(reply),
                    Ok(None) => break,
                    Err(Closed) => {
                        self.heard[on].push(Reply::Simple("(closed)".to_owned()));
                        self.links[on] = None;
                    }
                }
            }
        }
    }

    /// What was heard since [`Side::take_heard`], and the names as they are after it.
    pub fn shown(&self) -> (Vec<String>, Masks) {
        let mut masks = self.masks.clone();
        masks.set_clock();
        let mut shown = Vec::new();
        for (on, replies) in self.heard.iter().enumerate() {
            let name = Connection(on);
            let lines = replies.iter();
            shown.extend(lines.map(|reply| format!("{name}: {}", masks.reply(&steady(reply)))));
        }
        shown.extend(self.watcher.shown(&mut masks));
        (shown, masks)
    }

    /// The replies of each connection.
    pub fn take_heard(&mut self) -> Vec<Vec<Reply>> {
        self.watcher.forget();
        self.heard.iter_mut().map(std::mem::take).collect()
    }

    /// Removes all keys.
    #[track_caller]
    pub fn clear(&mut self) {
        for request in [
            "CONFIG SET min-replicas-to-write 0",
            "FLUSHALL",
            "DSYNC.LOG RESET",
        ] {
            let words: Vec<&str> = request.split(' ').collect();
            let reply = self.control.call(&words);
            assert!(!reply.is_error(), "{request}: {reply:?}");
        }
        self.made.clear();
        self.fences.clear();
    }

    /// Waits until no hold and no waiter is left.
    #[track_caller]
    pub fn wait_for_lapses(&mut self) {
        let deadline = Instant::now() + LAPSED_WITHIN;
        loop {
            let late = Instant::now() >= deadline;
            let left = ["dsync_holds", "dsync_waiters"]
                .map(|name| self.primary.info_number("dsync", name));
            self.read();
            if left == [0, 0] {
                return;
            }
            assert!(
                !late,
                "not lapsed within {LAPSED_WITHIN:?}: {left:?} holds and waiters"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
