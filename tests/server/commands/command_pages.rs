//! Each command has one page in `docs/commands`, and the page says what the server says of the command: its grammar,
//! the bounds of its arguments, its version, complexity and ACL categories, and the errors that it replies.
//!
//! `guide_sessions` plays the sessions of the pages. That COMMAND DOCS tells what the parser does is tested in
//! `grammar_*`.

use crate::commands::page::*;
use crate::support::*;
use std::collections::{BTreeMap, BTreeSet};

/// Words in capitals of the pages that are no words of a command, a reply or an error.
const PROSE: [&str; 5] = ["ACL", "CLI", "RESP2", "RESP3", "UUID"];

/// What the server says of its commands.
struct Docs {
    client: Client,
}

impl Docs {
    /// The entry of a command in COMMAND DOCS.
    fn of(&mut self, name: &str) -> Reply {
        let docs = self.client.ask(format!("COMMAND DOCS {name}"));
        docs.field(name).clone()
    }

    /// The commands for clients, in capitals.
    fn commands(&mut self) -> BTreeSet<String> {
        let listed = self.client.ask("COMMAND LIST FILTERBY MODULE dsync");
        let names = texts(&listed).into_iter().map(str::to_uppercase);
        let is_for_clients = |name: &String| {
            let docs = self.of(name);
            !docs.field("summary").as_str().contains("not for clients")
        };
        names.filter(is_for_clients).collect()
    }
}

fn texts(reply: &Reply) -> Vec<&str> {
    reply.as_array().iter().map(Reply::as_str).collect()
}

/// The arguments of an entry of COMMAND DOCS, or the alternatives of an argument.
fn arguments(entry: &Reply) -> &[Reply] {
    let arguments = entry.find_field("arguments");
    arguments.map_or(&[], Reply::as_array)
}

/// An argument as a page writes it, such as `EX seconds`, without the signs for what is optional.
fn written(argument: &Reply) -> String {
    let text = |field: &str| argument.find_field(field).map(Reply::as_str);
    let name = text("name").filter(|_| text("type") != Some("pure-token"));
    let words: Vec<_> = text("token").into_iter().chain(name).collect();
    words.join(" ")
}

/// All arguments of an entry of COMMAND DOCS, as a page writes them.
fn syntax(entry: &Reply, between: &str) -> String {
    let one = |argument: &Reply| {
        let mut text = match arguments(argument) {
            [] => written(argument),
            _ => syntax(argument, " | "),
        };
        let flags = argument.find_field("flags").map_or(Vec::new(), texts);
        if flags.contains(&"multiple") {
            text = format!("{text} [{text} ...]");
        }
        if flags.contains(&"optional") {
            text = format!("[{text}]");
        }
        text
    };
    let all: Vec<_> = arguments(entry).iter().map(one).collect();
    all.join(between)
}

/// The arguments of an entry of COMMAND DOCS, of a choice each alternative, with their bounds.
fn bounds(entry: &Reply) -> BTreeSet<(String, String)> {
    let one = |argument: &Reply| match arguments(argument) {
        [] => {
            let summary = argument.field("summary").as_str();
            let bounds = summary
                .strip_suffix(").")
                .and_then(|text| text.rsplit_once('('));
            let bounds = bounds.map_or("", |(_, bounds)| bounds);
            BTreeSet::from([(written(argument), bounds.to_owned())])
        }
        _ => bounds(argument),
    };
    arguments(entry).iter().flat_map(one).collect()
}

#[test]
fn every_command_has_one_page_with_its_grammar_and_a_session() {
    let (server, (pages, index)) = (Server::start(), pages());
    let client = server.connect();
    let mut docs = Docs { client };
    let mut missing = docs.commands();
    for page in &pages {
        let file = &page.file;
        assert!(index.links.contains(file), "no link to {file}");
        let title: Vec<_> = page.title.split(", ").collect();
        let of_page: Vec<_> = page.syntax.iter().map(|(name, _)| name).collect();
        assert_eq!(title, of_page, "{file}");
        for (name, written) in &page.syntax {
            assert!(
                missing.remove(name),
                "{file}: {name} is no command, or twice"
            );
            assert_eq!(*written, syntax(&docs.of(name), " "), "{file}: {name}");
            let request = format!("> {name} ");
            let mut lines = page.sessions.iter().map(|line| format!("{line} "));
            assert!(lines.any(|line| line.contains(&request)), "{file}: {name}");
        }
    }
    assert!(missing.is_empty(), "without a page: {missing:?}");
}

#[test]
fn pages_list_every_argument_with_its_bounds() {
    let server = Server::start();
    let client = server.connect();
    let mut docs = Docs { client };
    for page in pages().0 {
        let rows = page.rows("Arguments").iter();
        let listed: BTreeSet<_> = rows.map(|row| (row[0].clone(), row[1].clone())).collect();
        for (name, _) in &page.syntax {
            assert_eq!(listed, bounds(&docs.of(name)), "{}: {name}", page.file);
        }
    }
}

#[test]
fn page_of_info_lists_the_fields_that_its_sessions_show() {
    let (pages, _) = pages();
    let page = pages.iter().find(|page| page.file == "info.md");
    let page = page.expect("a page of INFO");
    let chapters = [
        "All families",
        "Lock",
        "Semaphore",
        "Wait group",
        "Work-once",
    ];
    let rows = chapters.into_iter().flat_map(|chapter| page.rows(chapter));
    let listed: BTreeSet<_> = rows.map(|row| row[0].trim_start_matches("– ")).collect();
    let lines = page.sessions.iter();
    let fields = lines.filter_map(|line| line.split_once("\" =>")?.0.rsplit('"').next());
    assert_eq!(listed, fields.collect());
}

#[test]
fn pages_tell_version_complexity_key_and_acl_categories() {
    let server = Server::start();
    let client = server.connect();
    let mut docs = Docs { client };
    for page in pages().0 {
        for (name, syntax) in &page.syntax {
            let place = format!("{}: {name}", page.file);
            let entry = docs.of(name);
            assert_eq!(*entry.field("since"), page.fact("since"), "{place}");
            assert_eq!(
                *entry.field("complexity"),
                page.fact("complexity"),
                "{place}"
            );
            let info = docs.client.ask(format!("COMMAND INFO {name}"));
            let info = info.as_array()[0].as_array();
            let required = minimal(name, syntax).len() as i64;
            let is_fixed = !syntax.contains('[');
            assert_eq!(
                info[1],
                if is_fixed { required } else { -required },
                "{place}"
            );
            let key = match info[8].as_array() {
                [] => "none",
                [key] if texts(key.field("flags")).contains(&"RO") => "read",
                _ => "written",
            };
            assert_eq!(page.fact("key"), key, "{place}");
            // Older servers have no categories of modules, or none of dsync's own.
            let found: BTreeSet<_> = texts(&info[6]).into_iter().collect();
            let mut categories: BTreeSet<_> = page.fact("ACL").split(' ').collect();
            let has_own = found.contains("@dsync");
            categories.retain(|category| has_own || !category.starts_with("@dsync"));
            assert!(
                found.is_empty() || found == categories,
                "{place}: {found:?}"
            );
        }
    }
}

/// A request without any option, by its syntax: the name, the key and so on.
fn minimal<'a>(name: &'a str, syntax: &'a str) -> Vec<&'a str> {
    let required = syntax.split(['[', '|']).next().unwrap_or_default();
    let values = required.split_whitespace().map(|word| match word {
        "key" => "k",
        "cursor" => "0",
        _ => "5",
    });
    [name].into_iter().chain(values).collect()
}

/// Requests to an empty server; the last one is refused because of the others.
const REFUSED: [&[&str]; 5] = [
    &["EVAL \"return redis.pcall('DLOCK.ACQUIRE','k','EPHEMERAL')\" 0"],
    &["DLOCK.ACQUIRE k TOKEN t", "DLOCK.ACQUIRE k TOKEN t SHARED"],
    &["DSEM.ACQUIRE k"],
    &[
        "DSEM.ACQUIRE k LIMIT 2 TOKEN t",
        "DSEM.ACQUIRE k PERMITS 2 TOKEN t",
    ],
    &["DSEM.ACQUIRE k LIMIT 2", "DSEM.ACQUIRE k PERMITS 3"],
];

/// A request, and one that then waits.
const WAITING: [[&str; 2]; 5] = [
    ["DLOCK.ACQUIRE k", "DLOCK.ACQUIRE k BLOCK 0"],
    ["DSEM.ACQUIRE k LIMIT 1", "DSEM.ACQUIRE k BLOCK 0"],
    ["DWG.ADD k LIMIT 1", "DWG.ADD k BLOCK 0"],
    ["DWG.ADD k", "DWG.WAIT k BLOCK 0"],
    ["DONCE.BEGIN k", "DONCE.BEGIN k BLOCK 0"],
];

/// Settings of a server in trouble, and those that end it.
const TROUBLE: [[&str; 2]; 2] = [
    ["CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"],
    ["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"],
];

/// Sends a request and notes the error that answers it, by command.
fn note(errors: &mut BTreeMap<String, Vec<String>>, client: &mut Client, request: &str) {
    if let Reply::Error(line) = client.ask(request) {
        // EVAL is the only request here that does not begin with a command of the module.
        let mut words = request.split([' ', '\'']);
        let command = words.find(|word| word.starts_with('D'));
        let of_command = errors.entry(command.expect("a command").to_owned());
        of_command.or_default().push(line);
    }
}

/// The errors that a server replies to each command, for every reason that a client can meet.
fn errors_by_command(pages: &[Page]) -> BTreeMap<String, Vec<String>> {
    let server = Server::start();
    let client = &mut server.connect();
    let mut errors = BTreeMap::new();
    for (name, syntax) in pages.iter().flat_map(|page| &page.syntax) {
        let mut request = minimal(name, syntax).join(" ");
        let text = "x".repeat(1_001);
        request += &match &**name {
            "DSEM.ACQUIRE" => " LIMIT 2".to_owned(),
            "DONCE.DONE" => format!(" RESULT {text}"),
            "DONCE.FAIL" => format!(" REASON {text}"),
            _ => String::new(),
        };
        note(&mut errors, client, name);
        note(&mut errors, client, &format!("{request} option"));
        if syntax.starts_with("key") {
            assert_eq!(client.ask("SET k text"), "OK");
            note(&mut errors, client, &request);
        }
        client.ask("FLUSHALL");
        for [begin, end] in TROUBLE {
            assert_eq!(client.ask(begin), "OK");
            note(&mut errors, client, &request);
            assert_eq!(client.ask(end), "OK");
        }
    }
    for requests in REFUSED {
        client.ask("FLUSHALL");
        for request in requests {
            note(&mut errors, client, request);
        }
    }
    client.ask("CONFIG SET dsync.max-waiters-per-key 1");
    for [hold, wait] in WAITING {
        client.ask("FLUSHALL");
        client.ask(hold);
        let mut waiter = server.connect();
        let id = waiter.id();
        waiter.wait_on(&server, wait);
        note(&mut errors, client, wait);
        assert_eq!(client.ask(format!("CLIENT UNBLOCK {id} ERROR")), 1);
        let command = wait.split(' ').next().expect("a command");
        let line = waiter.reply().error().to_owned();
        errors.entry(command.to_owned()).or_default().push(line);
    }
    errors
}

#[test]
fn pages_list_the_errors_that_a_server_replies_and_no_others() {
    let (pages, _) = pages();
    let errors = errors_by_command(&pages);
    for page in &pages {
        let (file, listed) = (&page.file, page.errors());
        let of_commands = page.syntax.iter().flat_map(|(name, _)| &errors[name]);
        for line in of_commands.clone() {
            let is_listed = listed.iter().any(|begin| line.starts_with(begin));
            assert!(is_listed, "{file} does not list {line:?}");
        }
        let in_sessions = page.sessions.iter();
        let in_sessions = in_sessions.filter_map(|line| line.split_once("(error) "));
        let mut found: Vec<_> = of_commands.map(String::as_str).collect();
        found.extend(in_sessions.map(|(_, line)| line));
        for begin in &listed {
            let is_there = found.iter().any(|line| line.starts_with(begin));
            assert!(is_there, "{file}: no command replies {begin:?}");
        }
        let codes: BTreeSet<_> = listed
            .iter()
            .filter_map(|line| line.split(' ').next())
            .collect();
        for (name, _) in &page.syntax {
            let of_command = errors[name]
                .iter()
                .filter_map(|line| line.split(' ').next());
            let of_command: BTreeSet<_> = of_command.collect();
            assert_eq!(codes, of_command, "{file}: {name}");
        }
    }
}

/// The words in capitals of a text, such as the names of options.
fn words_in_capitals(text: &str) -> BTreeSet<&str> {
    let is_capital = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| word.len() > 1 && word.chars().all(is_capital))
        .filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()))
        .collect()
}

#[test]
fn pages_name_no_option_that_does_not_exist() {
    let (server, (pages, _)) = (Server::start(), pages());
    let mut known: BTreeSet<String> = PROSE.map(str::to_owned).into();
    let listed = server.connect().ask("COMMAND LIST");
    let commands = texts(&listed).join(" ").to_uppercase();
    known.extend(words_in_capitals(&commands).into_iter().map(str::to_owned));
    for page in &pages {
        let errors = page.errors().join(" ");
        let syntax: Vec<_> = page.syntax.iter().map(|(_, syntax)| &**syntax).collect();
        let syntax = syntax.join(" ");
        let shown = page.sessions.join(" ");
        for text in [&errors, &syntax, &shown] {
            known.extend(words_in_capitals(text).into_iter().map(str::to_owned));
        }
    }
    for page in &pages {
        let mut words = words_in_capitals(&page.text);
        words.retain(|word| !known.contains(*word));
        assert!(words.is_empty(), "{} names {words:?}", page.file);
    }
}
