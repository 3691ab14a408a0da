//! The page of one command in `docs/commands`, from its row in the table and the recorded replies.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::docs::categories;
use super::glossary::replies;
use super::grammar::{Arg, Kind};
use super::row::{Row, User, prefix};
use super::table::ROWS;
use crate::module::redis::docs::KeyUse;
use dsync_engine::Family;

/// The replies of servers to the examples.
pub(super) const REPLIES: &str = "tests/server/commands/replies.txt";

/// Below this line of a block of the file of replies stands the last reply in RESP3.
const IN_RESP3: &str = "RESP3";

pub(super) fn file_name(command: &str) -> String {
    format!("{}.md", command.to_lowercase())
}

pub(super) fn link(command: &str) -> String {
    assert!(
        ROWS.iter().any(|row| row.name.as_str() == command),
        "no command {command}"
    );
    format!("[{command}]({})", file_name(command))
}

/// The guide to a family, or to what operators do.
pub(super) fn guide(family: Option<Family>) -> &'static str {
    match family {
        Some(Family::Lock) => "[Locks](../locks.md)",
        Some(Family::Semaphore) => "[Semaphores](../semaphores.md)",
        Some(Family::Group) => "[Wait groups](../groups.md)",
        Some(Family::Once) => "[Work-once](../once.md)",
        None => OPERATIONS,
    }
}

const OPERATIONS: &str = "[Operations](../operations.md)";
const WAITING: &str = "[Waiting](../waiting.md)";
const PAUSE: &str = "[Pause](../pause.md)";

pub(super) fn page(row: &Row, recorded: &BTreeMap<&str, &str>) -> String {
    let name = row.name.as_str();
    let (in_words, syntax) = (row.summary(), row.syntax());
    let mut text = format!("# {name}\n\n{in_words}\n\n```\n{name} {syntax}");
    text.truncate(text.trim_end().len());
    text += "\n```\n\n";
    text += &properties(row);
    let manual = row.manual.text;
    let family = row.family().map_or("", prefix);
    let manual = manual.replace("{family}", family);
    let manual = manual.replace("{page}", &family.to_lowercase());
    for paragraph in manual.split("\n\n") {
        write!(text, "\n{}\n", wrapped(paragraph)).expect("text");
    }
    text += "\n## Arguments\n\n";
    text += &arguments(row);
    write!(text, "\n## Replies\n\n{}", replies(row)).expect("text");
    write!(text, "\n## Errors\n\n{}", errors(row)).expect("text");
    write!(text, "\n## Examples\n{}", examples(row, recorded)).expect("text");
    write!(text, "\n## Access\n\n{}", access(row)).expect("text");
    write!(text, "\n## See also\n\n{}", see_also(row)).expect("text");
    text
}

/// The paragraph in lines of at most 120 characters.
fn wrapped(paragraph: &str) -> String {
    let mut lines = vec![String::new()];
    for word in paragraph.split(' ') {
        let line = lines.last_mut().expect("a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= 120 {
            write!(line, " {word}").expect("text");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

/// The text with the names of settings set as code.
fn with_settings_as_code(text: &str) -> String {
    let word = |word: &str| {
        let name = word.trim_end_matches(['.', ',', ';', ')']);
        if name.starts_with("dsync.") {
            format!("`{name}`{}", &word[name.len()..])
        } else {
            word.to_owned()
        }
    };
    let words: Vec<_> = text.split(' ').map(word).collect();
    words.join(" ")
}

fn has_flag(row: &Row, flag: &str) -> bool {
    let flags = row.properties.flags.to_string_lossy();
    flags.split(' ').any(|found| found == flag)
}

fn takes(row: &Row, word: &str) -> bool {
    row.args.iter().any(|arg| arg.words().contains(&word))
}

fn properties(row: &Row) -> String {
    let properties = row.properties;
    let writes = if has_flag(row, "write") {
        "yes: it runs on a primary, and its changes are replicated and saved"
    } else {
        "no: a replica answers it too"
    };
    let waits = match (has_flag(row, "blocking"), takes(row, "QUEUE")) {
        (false, _) => "never",
        (true, false) => {
            "with `BLOCK`; in `MULTI`, scripts and functions it is answered at once all the same"
        }
        (true, true) => {
            "with `BLOCK`; in `MULTI`, scripts and functions `BLOCK` is ignored and the request is a try"
        }
    };
    let key = match properties.key {
        KeyUse::NoKey => "none: it is about the whole server, all databases",
        KeyUse::Reads => "the first argument; read",
        KeyUse::Changes => "the first argument; changed",
        KeyUse::ReadsAndChanges => "the first argument; read and changed",
        KeyUse::Removes => "the first argument; something of it is removed",
    };
    let mut text = "| | |\n|---|---|\n".to_owned();
    for (what, how) in [
        ("since", properties.since),
        ("complexity", properties.complexity),
        ("writes", writes),
        ("waits", waits),
        ("key", key),
    ] {
        writeln!(text, "| {what} | {how} |").expect("text");
    }
    text
}

fn arguments(row: &Row) -> String {
    let mut text = "| argument | value | meaning |\n|---|---|---|\n".to_owned();
    for arg in row.args {
        if let Kind::OneOf(alternatives) = arg.kind {
            argument(&mut text, arg, &arg.syntax());
            for alternative in alternatives {
                argument(
                    &mut text,
                    alternative,
                    &format!("– {}", alternative.syntax()),
                );
            }
        } else {
            argument(&mut text, arg, &arg.syntax());
        }
    }
    text
}

fn argument(text: &mut String, arg: &Arg, syntax: &str) {
    let kind = match arg.kind {
        Kind::Key => "key",
        Kind::Flag(_) => "",
        Kind::Integer(_) => "integer",
        Kind::Text(_) => "text",
        Kind::OneOf(_) => "one of these",
    };
    let bounds = arg.bounds().unwrap_or_default();
    let mut value = vec![kind, &bounds];
    value.retain(|part| !part.is_empty());
    let (mark, syntax) = match syntax.strip_prefix("– ") {
        Some(syntax) => ("– ", syntax),
        None => ("", syntax),
    };
    let syntax = syntax.replace('|', "\\|");
    let value = with_settings_as_code(&value.join(", "));
    let meaning = with_settings_as_code(arg.meaning);
    writeln!(text, "| {mark}`{syntax}` | {value} | {meaning} |").expect("text");
}

fn errors(row: &Row) -> String {
    let mut text = "| code | when |\n|---|---|\n".to_owned();
    for error in row.errors {
        let when = with_settings_as_code(error.when);
        writeln!(text, "| `{}` | {when} |", error.code).expect("text");
    }
    let has_key = row.family().is_some();
    let of_server = [
        (
            has_flag(row, "write"),
            "`READONLY`",
            "the server is a replica",
        ),
        (
            has_flag(row, "write"),
            "`NOREPLICAS`, `MISCONF`",
            "the primary takes no writes: too few replicas are connected, or it cannot save",
        ),
        (
            has_flag(row, "deny-oom"),
            "`OOM`",
            "the server has reached `maxmemory`",
        ),
        (
            has_key,
            "`MOVED`, `ASK`, `TRYAGAIN`, `CLUSTERDOWN`",
            "in a cluster: ask another node, or the same one later",
        ),
        (true, "`NOPERM`", "the user may not do this: see below"),
    ];
    for (_, code, when) in of_server.iter().filter(|(applies, _, _)| *applies) {
        writeln!(text, "| {code} | {when} |").expect("text");
    }
    text
}

fn examples(row: &Row, recorded: &BTreeMap<&str, &str>) -> String {
    let mut text = String::new();
    for example in row.examples() {
        // What a key of another type is answered is the same everywhere.
        if example.lines.iter().any(|line| line.starts_with("> SET ")) {
            continue;
        }
        let title = row.title(&example);
        let session = recorded.get(title.as_str());
        let session = session.unwrap_or_else(|| panic!("{REPLIES} has no {title:?}"));
        let shows = example.shows;
        let shows = shows.strip_prefix("always: ").unwrap_or(shows);
        let (two, three) = match session.split_once(&format!("\n{IN_RESP3}\n")) {
            Some((two, three)) => (two, Some(three)),
            None => (*session, None),
        };
        let two = with_names(two);
        match shows {
            "always" => write!(text, "\n```redis-cli\n{two}\n```\n"),
            _ => write!(
                text,
                "\n{}:\n\n```redis-cli\n{two}\n```\n",
                capitalised(shows)
            ),
        }
        .expect("text");
        if let Some(three) = three {
            let last = example.lines.last().expect("a request");
            write!(
                text,
                "\nThe same with `redis-cli -3`:\n\n```redis-cli\n{last}\n{three}\n```\n"
            )
            .expect("text");
        }
    }
    text
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

/// The session with `A>` in place of `>` if a second connection takes part.
fn with_names(session: &str) -> String {
    if !session.lines().any(|line| line.starts_with("B> ")) {
        return session.to_owned();
    }
    let line = |line: &str| {
        if line.starts_with("> ") {
            format!("A{line}")
        } else if line.starts_with("B> ") {
            format!("{line}      # waits")
        } else {
            line.to_owned()
        }
    };
    let lines: Vec<_> = session.lines().map(line).collect();
    lines.join("\n")
}

fn access(row: &Row) -> String {
    let categories = categories(row);
    let at = |names: &str| {
        let names: Vec<_> = names.split(' ').map(|name| format!("`@{name}`")).collect();
        names.join(", ")
    };
    let (servers, own) = (at(&categories.servers), at(&categories.own));
    let command = row.name.as_str().to_lowercase();
    let keys = match row.properties.key {
        KeyUse::NoKey => "",
        KeyUse::Reads => " %R~jobs:*",
        _ => " ~jobs:*",
    };
    let mut text = format!(
        "A user who may send this command and no other, to any server:\n\n```\nACL SETUSER app on >change-me \
         resetchannels{keys} -@all +{command}\n```\n\n"
    );
    if takes(row, "QUEUE") {
        text += "With `QUEUE` the user listens on the channels where turns are announced:\n\n```\nACL SETUSER app \
                 &dsync:{jobs:* +subscribe +psubscribe +ssubscribe\n```\n\n";
    }
    let users = row.properties.users.iter().map(|user| match user {
        User::Worker => "worker",
        User::Observer => "observer",
        User::Operator => "operator",
    });
    let users: Vec<_> = users.collect();
    writeln!(
        text,
        "Of the ready-made users in [ACL](../acl.md) it is for: {}.\n\nCategories: {servers} (Redis 7.2 and newer, \
         Valkey), {own} (Redis 7.4 and newer, Valkey 8 and newer). On Redis 7.0 the command is in none.",
        users.join(", ")
    )
    .expect("text");
    text
}

fn see_also(row: &Row) -> String {
    let mut guides = vec![guide(row.family())];
    if has_flag(row, "blocking") {
        guides.push(WAITING);
    }
    if row.name.as_str().ends_with(".PAUSE") {
        guides.push(PAUSE);
    }
    if row.family().is_some() && row.properties.users.contains(&User::Operator) {
        guides.push(OPERATIONS);
    }
    let commands = row.manual.see_also.iter().map(|name| link(name));
    let guides = guides.into_iter().map(str::to_owned);
    let all: Vec<_> = commands.chain(guides).collect();
    format!("{} · [all commands](README.md)\n", all.join(" · "))
}
