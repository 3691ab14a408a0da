//! What can be seen of a side at rest: the stream, INFO, keys, lists and files, a line each.

use std::collections::BTreeSet;

use super::masks::Masks;
use super::side::Side;
use crate::fuzz::requests::{DATABASES, NAMES};
use crate::support::data_files::{aof, commands_in, rewrite_aof, rewritten};
use crate::support::*;

impl Side {
    /// The lines of INFO dsync now.
    #[track_caller]
    pub fn info(&self) -> Vec<String> {
        let info = self.primary.info_section("dsync");
        let lines = self.masks.clone().info(&info);
        lines.iter().map(|line| format!("INFO: {line}")).collect()
    }

    /// Everything else that can be seen of the servers at rest, a line each.
    #[track_caller]
    pub fn view(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let any_order = self.masks.any_order;
        let stream = self.stream.take_so_far(&self.primary);
        lines.extend(replicated(&mut self.masks, "stream", &stream));
        self.replica.wait_to_catch_up_with(&self.primary);
        self.replica_watcher.read();
        let told = self.replica_watcher.shown(&mut self.masks);
        lines.extend(told.iter().map(|line| format!("replica {line}")));
        self.replica_watcher.forget();
        for (name, server) in [("primary", &self.primary), ("replica", &self.replica)] {
            let mut client = server.connect();
            for database in 0..DATABASES {
                assert_eq!(client.ask(format!("SELECT {database}")), "OK");
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
                    for family in Family::ALL.map(Family::prefix) {
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
                let reply = steady(&client.call(&words));
                if let (true, Reply::Array(rows)) = (any_order && words[0] == "DSYNC.LOG", &reply) {
                    let rows = rows.iter().map(|row| self.masks.reply(row));
                    let mut rows: Vec<String> =
                        rows.map(|row| format!("{name} DSYNC.LOG: {row}")).collect();
                    rows.sort();
                    lines.extend(rows);
                    continue;
                }
                lines.push(format!("{name} {request}: {}", self.masks.reply(&reply)));
            }
        }
        lines
    }

    /// The commands in the AOF since it was rewritten, and then what the next rewrite writes. The order in which a
    /// server writes its keys is luck: they are sorted.
    #[track_caller]
    pub fn files(&mut self) -> Vec<String> {
        let appended = commands_in(&aof(&self.primary));
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

    #[track_caller]
    fn commands(&mut self) -> Vec<String> {
        let list = self.control.ask("COMMAND LIST FILTERBY MODULE dsync");
        let names = list.as_array().iter();
        let mut names: Vec<_> = names.map(|name| name.as_str().to_owned()).collect();
        names.sort();
        assert!(!names.is_empty(), "the module has commands");
        names
    }

    /// Each command with its arguments, as COMMAND DOCS has them.
    #[track_caller]
    fn arguments(&mut self) -> Vec<(String, Vec<Reply>)> {
        let names = self.commands();
        let mut documented = |name: String| {
            let docs = self.control.ask(format!("COMMAND DOCS {name}"));
            let arguments = docs.field(&name).find_field("arguments");
            let arguments = arguments.map_or(&[][..], Reply::as_array).to_vec();
            (name, arguments)
        };
        names.into_iter().map(&mut documented).collect()
    }

    /// The words without a value that some command takes.
    #[track_caller]
    pub fn flags(&mut self) -> BTreeSet<String> {
        let arguments = self.arguments();
        let all = arguments.iter().flat_map(|(_, arguments)| arguments);
        all.filter_map(flag).map(str::to_owned).collect()
    }

    /// The commands that have a time behind the key, as PAUSE.
    #[track_caller]
    pub fn timed(&mut self) -> BTreeSet<String> {
        let mut all = self.arguments();
        let is_time = |argument: &Reply| *argument.field("name") == "milliseconds";
        let is_timed = |arguments: &[Reply]| arguments.get(1).is_some_and(is_time);
        all.retain(|(_, arguments)| is_timed(arguments));
        all.into_iter()
            .map(|(name, _)| name.to_uppercase())
            .collect()
    }

    /// What the commands and settings say of themselves, but for arguments that are other flags than these.
    #[track_caller]
    pub fn documents(&mut self, flags: &BTreeSet<String>) -> Vec<String> {
        let mut lines = Vec::new();
        for name in self.commands() {
            for what in ["DOCS", "INFO"] {
                let reply = self.control.ask(format!("COMMAND {what} {name}"));
                let is_new = |item: &Reply| flag(item).is_some_and(|word| !flags.contains(word));
                let reply = without(&reply, &is_new);
                lines.push(format!("COMMAND {what} {name}: {reply:?}"));
            }
        }
        let settings = self.control.ask("CONFIG GET dsync.*");
        let mut pairs: Vec<String> = settings
            .as_array()
            .chunks(2)
            .map(|pair| format!("CONFIG: {pair:?}"))
            .collect();
        pairs.sort();
        lines.extend(pairs);
        lines
    }
}

/// The word of an argument in COMMAND DOCS that is a word without a value.
fn flag(argument: &Reply) -> Option<&str> {
    match argument {
        Reply::Array(items) if items.iter().any(|item| *item == "pure-token") => {
            Some(argument.field("token").as_str())
        }
        _ => None,
    }
}

/// The reply without the items of its lists that are to be left out.
fn without(reply: &Reply, is_left_out: &impl Fn(&Reply) -> bool) -> Reply {
    match reply {
        Reply::Array(items) => {
            let items = items.iter().filter(|item| !is_left_out(item));
            Reply::Array(items.map(|item| without(item, is_left_out)).collect())
        }
        other => other.clone(),
    }
}

/// The reply without what is luck in lists. DSYNC.CONTENDED sorts by milliseconds waited, in which servers differ by
/// one, and DSYNC.HOLDS by a hash with a secret: their rows are compared in the order of databases, keys and fences.
/// HELLO names the modules in the order of such a hash (Valkey 9.1 has a second one, Lua). DSYNC.LOG tells that the
/// machine was slow: without these rows, and without the numbers of rows, which count them.
pub fn steady(reply: &Reply) -> Reply {
    let items = match reply {
        Reply::Array(items) => items,
        Reply::Map(pairs) => {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (name.clone(), steady(value)));
            return Reply::Map(pairs.collect());
        }
        _ => return reply.clone(),
    };
    let mut items: Vec<Reply> = items.iter().map(steady).collect();
    let is_contended = |row: &Reply| {
        matches!(row, Reply::Array(row) if matches!(row.as_slice(),
            [Reply::Int(_), Reply::Bulk(_), Reply::Bulk(_) | Reply::Simple(_), Reply::Int(_), _, ..]))
    };
    let is_hold = |row: &Reply| matches!(row, Reply::Map(row) if row.iter().any(|(name, _)| *name == "family"));
    let is_logged = |row: &Reply| {
        matches!(row, Reply::Array(row) if row.len() == 10
            && matches!(row.as_slice(), [Reply::Int(_), Reply::Int(_), Reply::Bulk(_), ..]))
    };
    let is_module = |row: &Reply| match row {
        Reply::Map(row) => row.iter().any(|(name, _)| *name == "ver"),
        Reply::Array(row) => row.len() == 8 && row[0] == "name" && row[2] == "ver",
        _ => false,
    };
    if items.iter().all(is_module) {
        items.sort_by_key(|row| format!("{row:?}"));
    } else if items.iter().all(is_contended) {
        items.sort_by_key(|row| format!("{:?}", &row.as_array()[..4]));
    } else if items.iter().all(is_hold) {
        let id = |row: &Reply| ["db", "key", "fence"].map(|name| row.find_field(name).cloned());
        items.sort_by_key(|row| format!("{:?}", id(row)));
    } else if items.iter().all(is_logged) {
        items.retain(|row| row.as_array()[2] != "stall");
        for row in &mut items {
            if let Reply::Array(row) = row {
                row[0] = Reply::Simple("<row>".to_owned());
            }
        }
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

/// A command, and the database that was selected for it: empty if the commands do not tell.
type Placed<'a> = (String, &'a [Vec<u8>]);

/// The commands of a stream or an AOF, a line each. Where leases lapse, it is luck which of two ends first that end at
/// the same moment, and which ends share a command: then each change has its line, and lines are sorted.
fn replicated(masks: &mut Masks, name: &str, commands: &[Vec<Vec<u8>>]) -> Vec<String> {
    let mut database = String::new();
    let mut placed: Vec<Placed<'_>> = Vec::new();
    for command in commands {
        match words(command).as_slice() {
            [select, number] if select == "SELECT" => database = format!("{number} "),
            _ => placed.push((database.clone(), command)),
        }
    }
    let mut lines = Vec::new();
    for (database, command) in units(&placed) {
        match words(command).as_slice() {
            [stream, key, family, changes @ ..] if masks.any_order && stream == STREAM => {
                let changes = changes.iter().map(|change| masks.text(change));
                lines.extend(
                    changes.map(|change| format!("{name}: {database}{key} {family} {change}")),
                );
            }
            [word] if masks.any_order && (word == "MULTI" || word == "EXEC") => {}
            _ => lines.push(format!("{name}: {database}{}", masks.command(command))),
        }
    }
    if masks.any_order {
        lines.sort();
    }
    lines
}

/// The commands, but with transactions of changes taken apart where the key changes, and before the end of a hold whose
/// connection has gone: how much one tick gets done depends on the machine.
fn units<'a>(mut left: &[Placed<'a>]) -> Vec<Placed<'a>> {
    let is = |(_, command): &Placed<'_>, word: &[u8]| command[0] == word;
    let is_change = |command: &Placed<'_>| is(command, STREAM.as_bytes());
    let mut apart = Vec::new();
    while let Some((first, rest)) = left.split_first() {
        let exec = left.iter().position(|command| is(command, b"EXEC"));
        let Some(exec) = exec.filter(|_| is(first, b"MULTI")) else {
            apart.push(first.clone());
            left = rest;
            continue;
        };
        let body = &left[1..exec];
        if body.iter().all(is_change) {
            let shares = |a: &Placed<'_>, b: &Placed<'_>| {
                (&a.0, &a.1[1]) == (&b.0, &b.1[1]) && !is_departure(b)
            };
            for unit in body.chunk_by(shares) {
                let is_one = unit.len() == 1;
                apart.extend((!is_one).then(|| first.clone()));
                apart.extend_from_slice(unit);
                apart.extend((!is_one).then(|| left[exec].clone()));
            }
        } else {
            apart.extend_from_slice(&left[..=exec]);
        }
        left = &left[exec + 1..];
    }
    apart
}

/// Returns whether the command is the end of a hold whose connection has gone.
fn is_departure((_, command): &Placed<'_>) -> bool {
    let words = words(command);
    let change = words.get(3).map_or("", String::as_str);
    change.starts_with("END ")
        && [" disconnected ", " undelivered "]
            .iter()
            .any(|how| change.contains(how))
}
