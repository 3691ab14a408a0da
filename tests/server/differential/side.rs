//! One of the two sides: a primary with an AOF and its replica with the same module, connections, and everything that
//! comes out of them.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::masks::Masks;
use crate::fuzz::requests::{DATABASES, NAMES};
use crate::fuzz::words::payloads;
use crate::support::data_files::{aof, commands_in, rewrite_aof, rewritten, with_aof};
use crate::support::*;

/// Settings that let nothing end during a burst.
const SETTINGS: [(&str, &str); 5] = [
    ("default-lease-ms", "600000"),
    ("rejoin-ms", "600000"),
    ("group-keep-ms", "600000"),
    ("takeover-grace-ms", "600000"),
    ("once-keep-ms", "700000"),
];
const FAMILIES: [&str; 4] = ["DLOCK", "DSEM", "DWG", "DONCE"];
/// The deadline for all leases of a phase to lapse.
const LAPSED_WITHIN: Duration = Duration::from_secs(60);

pub struct Side {
    pub primary: Server,
    replica: Server,
    stream: ReplicationStream,
    control: Client,
    /// Subscribed to all events and messages of the module.
    watcher: Client,
    links: Vec<Option<Client>>,
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
            // Payloads are compared byte by byte.
            builder.config("rdbcompression", "no")
        };
        let primary = with_aof(builder(), "no", "no")
            .config("notify-keyspace-events", "KEAn")
            .config("repl-backlog-size", "32mb")
            .start();
        let replica = builder().replica_of(&primary).start();
        let stream = ReplicationStream::attach(&primary);
        let mut watcher = primary.connect();
        for pattern in ["__key*__:*", "dsync:*"] {
            assert!(!call!(watcher, "PSUBSCRIBE", pattern).is_error());
        }
        watcher.set_nonblocking();
        Side {
            control: primary.connect(),
            primary,
            replica,
            stream,
            watcher,
            links: (0..=connections).map(|_| None).collect(),
            heard: vec![Vec::new(); connections + 2],
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
        let requests: Vec<Vec<Vec<u8>>> = requests
            .iter()
            .map(|words| {
                let words: Vec<String> = words.iter().map(|word| self.known(word)).collect();
                payloads(&words, &self.primary, database)
            })
            .collect();
        if let Some(link) = &mut self.links[on] {
            // A closed connection is seen when its replies are read.
            let _ = link.push(&requests);
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

    /// Reads what has arrived. The PINGs come after all that was sent before, and after what that has set off.
    #[track_caller]
    pub fn read(&mut self) {
        for _ in 0..3 {
            assert_eq!(call!(self.control, "PING"), "PONG");
        }
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
        while let Ok(Some(event)) = self.watcher.poll() {
            self.heard[self.links.len()].push(event);
        }
    }

    /// What was heard since [`Side::take_heard`], and the names as they are after it.
    pub fn shown(&self) -> (Vec<String>, Masks) {
        let mut masks = self.masks.clone();
        masks.set_clock();
        let mut shown = Vec::new();
        for (on, replies) in self.heard.iter().enumerate() {
            let name = if on == self.links.len() {
                "event".to_owned()
            } else {
                format!("c{on}")
            };
            let mut lines: Vec<String> = replies
                .iter()
                .map(|reply| format!("{name}: {}", masks.reply(&sorted_rows(reply))))
                .collect();
            if masks.any_order && on == self.links.len() {
                lines.sort();
            }
            shown.extend(lines);
        }
        (shown, masks)
    }

    /// The replies of each connection; the last are events.
    pub fn take_heard(&mut self) -> Vec<Vec<Reply>> {
        self.heard.iter_mut().map(std::mem::take).collect()
    }

    /// The lines of INFO dsync now.
    #[track_caller]
    pub fn info(&self) -> Vec<String> {
        let info = self.primary.info_section("dsync");
        self.masks.clone().info(&info)
    }

    /// Everything that can be seen of the servers at rest, a line each.
    #[track_caller]
    pub fn view(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let any_order = self.masks.any_order;
        let stream = self.stream.take_so_far(&self.primary);
        lines.extend(replicated(&mut self.masks, "stream", &stream));
        let info = self.primary.info_section("dsync");
        let info = self.masks.info(&info);
        lines.extend(info.into_iter().map(|line| format!("INFO: {line}")));
        self.replica.wait_to_catch_up_with(&self.primary);
        for (name, server) in [("primary", &self.primary), ("replica", &self.replica)] {
            let mut client = server.connect();
            for database in 0..DATABASES {
                assert_eq!(call!(client, "SELECT", database), "OK");
                for key in NAMES {
                    let at = format!("{name} {database} {}", key.escape_default());
                    let dump = match call!(client, "DUMP", key) {
                        Reply::Bulk(payload) => self.masks.dump(&payload),
                        other => self.masks.reply(&other),
                    };
                    lines.push(format!("{at} DUMP: {dump}"));
                    for word in ["PTTL", "TYPE"] {
                        let reply = call!(client, word, key);
                        lines.push(format!("{at} {word}: {}", self.masks.reply(&reply)));
                    }
                    for family in FAMILIES {
                        let reply = call!(client, format!("{family}.INFO"), key);
                        lines.push(format!("{at} {family}.INFO: {}", self.masks.reply(&reply)));
                    }
                }
            }
            let requests = [
                "DSYNC.LOG COUNT 128",
                "DBSIZE",
                "DSYNC.CONTENDED COUNT 100",
                "DSYNC.HOLDS 0 COUNT 1000",
            ];
            // A replica forgets the holds of removed keys bit by bit, so what it lists and counts is luck for a while.
            let requests = &requests[..if name == "primary" { 4 } else { 2 }];
            for request in requests {
                let words: Vec<&str> = request.split(' ').collect();
                let reply = sorted_rows(&client.call(&words));
                if let (true, Reply::Array(rows)) = (any_order && words[0] == "DSYNC.LOG", &reply) {
                    // Ids and moments are luck here, and so is the order.
                    let mut shown: Vec<String> = rows
                        .iter()
                        .map(|row| {
                            let rest = row.as_array().iter().skip(2).cloned();
                            let row = [Reply::Nil, Reply::Nil].into_iter().chain(rest).collect();
                            self.masks.reply(&Reply::Array(row))
                        })
                        .collect();
                    shown.sort();
                    lines.extend(shown.iter().map(|row| format!("{name} DSYNC.LOG: {row}")));
                    continue;
                }
                lines.push(format!("{name} {request}: {}", self.masks.reply(&reply)));
            }
        }
        lines
    }

    /// The commands in the AOF since it was rewritten, and then what the next rewrite writes. The order in which a server
    /// writes its keys is luck: they are sorted.
    #[track_caller]
    pub fn files(&mut self) -> Vec<String> {
        let appended = commands_in(&aof(&self.primary));
        // The commands of the stream, with the numbers of databases.
        let mut lines: Vec<String> = replicated(&mut self.masks, "AOF", &appended)
            .iter()
            .map(|line| without_clock(line))
            .collect();
        rewrite_aof(&self.primary);
        let mut database = String::new();
        let mut commands = Vec::new();
        for command in commands_in(&rewritten(&self.primary)) {
            if command[0].eq_ignore_ascii_case(b"SELECT") {
                database = command[1].escape_ascii().to_string();
                continue;
            }
            let key = command.get(1).cloned().unwrap_or_default();
            commands.push((database.clone(), key, command));
        }
        // Stable: the commands of one key stay in their order.
        commands.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        for (database, _, command) in commands {
            lines.push(format!(
                "rewritten AOF: {database} {}",
                self.masks.command(&command)
            ));
        }
        lines
    }

    /// What the commands and settings say of themselves.
    #[track_caller]
    pub fn documents(&mut self) -> Vec<String> {
        let client = &mut self.control;
        let list = call!(client, "COMMAND", "LIST", "FILTERBY", "MODULE", "dsync");
        let mut names: Vec<String> = list
            .as_array()
            .iter()
            .map(|name| name.as_str().to_owned())
            .collect();
        names.sort();
        assert!(!names.is_empty(), "the module has commands");
        let mut lines = Vec::new();
        for name in names {
            for what in ["DOCS", "INFO"] {
                let reply = call!(client, "COMMAND", what, &name);
                lines.push(format!("COMMAND {what} {name}: {reply:?}"));
            }
        }
        let settings = call!(client, "CONFIG", "GET", "dsync.*");
        let mut pairs: Vec<String> = settings
            .as_array()
            .chunks(2)
            .map(|pair| format!("CONFIG: {pair:?}"))
            .collect();
        pairs.sort();
        lines.extend(pairs);
        lines
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

/// DSYNC.CONTENDED sorts by milliseconds waited, in which servers differ by one, and DSYNC.HOLDS by a hash with a secret:
/// their rows are compared in the order of databases, keys and fences.
fn sorted_rows(reply: &Reply) -> Reply {
    let Reply::Array(items) = reply else {
        return reply.clone();
    };
    let mut items: Vec<Reply> = items.iter().map(sorted_rows).collect();
    let family = |row: &Reply| matches!(row, Reply::Array(row)
            if matches!(row.as_slice(), [Reply::Int(_), Reply::Bulk(_), Reply::Bulk(_) | Reply::Simple(_), Reply::Int(_), _, ..]));
    let field = |row: &Reply| matches!(row, Reply::Map(row) if row.iter().any(|(name, _)| *name == "family"));
    if items.iter().all(family) {
        items.sort_by_key(|row| format!("{:?}", &row.as_array()[..4]));
    } else if items.iter().all(field) {
        items.sort_by_key(|row| {
            format!(
                "{:?}",
                ["db", "key", "fence"].map(|name| row.find_field(name))
            )
        });
    }
    Reply::Array(items)
}

/// The line without its times: those in an AOF are of any moment of the run.
fn without_clock(line: &str) -> String {
    let mut shown = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("<now") {
        shown += before;
        shown += "<time>";
        rest = after.split_once('>').map_or("", |(_, rest)| rest);
    }
    shown + rest
}

/// The commands, a line each. Where leases lapse, it is luck which of two ends first that end at the same moment, and
/// which ends share a command: then each change has its line, and lines are sorted.
fn replicated(masks: &mut Masks, name: &str, commands: &[Vec<Vec<u8>>]) -> Vec<String> {
    if !masks.any_order {
        let lines = commands.iter().map(|command| masks.command(command));
        return lines.map(|line| format!("{name}: {line}")).collect();
    }
    let mut lines = Vec::new();
    for command in commands {
        match words(command).as_slice() {
            [stream, key, family, changes @ ..] if stream == STREAM => {
                let changes = changes.iter().map(|change| masks.text(change));
                lines.extend(changes.map(|change| format!("{name}: {key} {family} {change}")));
            }
            [word] if word == "MULTI" || word == "EXEC" => {}
            [select, _] if select == "SELECT" => {}
            _ => lines.push(format!("{name}: {}", masks.command(command))),
        }
    }
    lines.sort();
    lines
}
