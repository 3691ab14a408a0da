//! The replies of a command in words, for the pages in `docs/commands`: their forms, and what their fields mean. One name
//! means the same in the replies of all commands; where it is about something else, the command or the family decides.

use std::fmt::Write as _;

use super::replies::Form;
use super::row::Row;
use dsync_engine::Family;

/// The replies of a command: when each comes, its form and its fields.
pub(super) fn replies(row: &Row) -> String {
    let mut text = String::new();
    for reply in row.replies {
        let form = in_words(&reply.form);
        let when = reply.when.strip_prefix("always: ").unwrap_or(reply.when);
        match when {
            "always" => writeln!(text, "- {form}"),
            _ => writeln!(text, "- **{when}**: {form}"),
        }
        .expect("text");
        fields(row, &reply.form, 1, &mut text);
    }
    let has = |fits: fn(&Form) -> bool| row.replies.iter().any(|reply| contains(&reply.form, fits));
    let mut differences = Vec::new();
    if has(|form| matches!(form, Form::Null)) {
        differences.push("null is `$-1` in RESP2 and `_` in RESP3");
    }
    if has(|form| matches!(form, Form::Map(_))) {
        differences.push("a map is an array of names and values in RESP2");
    }
    let difference = match differences.as_slice() {
        [] => "The replies are the same in RESP2 and RESP3.".to_owned(),
        differences => format!(
            "The replies are the same in RESP2 and RESP3, except that {}.",
            differences.join(", and ")
        ),
    };
    format!("{difference}\n\n{text}")
}

fn contains(form: &Form, fits: fn(&Form) -> bool) -> bool {
    let inside = match form {
        Form::Array(elements) | Form::Map(elements) => {
            elements.iter().any(|(_, form)| contains(form, fits))
        }
        Form::List(element) => contains(element, fits),
        Form::Either(forms) => forms.iter().any(|form| contains(form, fits)),
        _ => false,
    };
    inside || fits(form)
}

/// The form in words: `array of 2`, `bulk string or null`.
fn in_words(form: &Form) -> String {
    match form {
        Form::Null => "null".to_owned(),
        Form::Integer | Form::Id => "integer".to_owned(),
        Form::Ms => "integer (milliseconds)".to_owned(),
        // Its label says which.
        Form::Is(_) => "integer".to_owned(),
        Form::Bulk => "bulk string".to_owned(),
        Form::Word(word) => format!("bulk string `{word}`"),
        Form::Status(line) => format!("simple string `{line}`"),
        Form::Array(elements) => format!("array of {}", elements.len()),
        Form::List(Form::Map(_)) => "array of maps".to_owned(),
        Form::List(element) => format!("array, each element an {}", in_words(element)),
        Form::Map(_) => "map".to_owned(),
        Form::Either(forms) => {
            let forms: Vec<_> = forms.iter().map(in_words).collect();
            forms.join(" or ")
        }
    }
}

/// A list of the fields of a map or of the elements of an array, and of those inside them.
fn fields(row: &Row, form: &Form, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match form {
        Form::Array(elements) | Form::Map(elements) => {
            for (name, form) in *elements {
                let words = in_words(form);
                match form {
                    Form::Word(word) if word == name => writeln!(text, "{indent}- {words}"),
                    Form::Word(_) => writeln!(text, "{indent}- `{name}`, {words}"),
                    _ => writeln!(text, "{indent}- `{name}`, {words}: {}", meaning(row, name)),
                }
                .expect("text");
                fields(row, form, depth + 1, text);
            }
        }
        Form::List(element) => fields(row, element, depth, text),
        _ => {}
    }
}

/// The meaning of a field or an element of the command's replies, in a sentence.
fn meaning(row: &Row, name: &str) -> &'static str {
    let command = row.name.as_str();
    match (name, row.family()) {
        ("token", _) => "The secret name of the hold.",
        ("fence", _) => "The public number of the hold. Fences only ever grow.",
        ("place", _) => {
            "How many requests come up to this one: 1 is next in line, 100 means 100 or more."
        }
        ("channel", _) => "Where the turn will be announced.",
        ("attempt", _) => "Which attempt at the work it is or was, from 1.",
        ("attempts", _) => "How many attempts have been made.",
        ("result", _) => "The `RESULT` of DONCE.DONE; null if there was none.",
        ("reason", _) => {
            "Why the last attempt ended: its `REASON`, or `failed`, `lapsed` or `revoked`."
        }
        ("last-reason", _) => {
            "Why the last attempt that was not done ended: its `REASON`, or `failed`, `lapsed` or `revoked`; null before."
        }
        ("done", _) => "How many members of the round were done.",
        ("lapsed", _) => {
            "How many were lost: their lease ran out, they were revoked, or their EPHEMERAL connection closed."
        }
        ("type", _) => "`lock`, `semaphore`, `group` or `once`.",
        ("state", Some(Family::Lock)) => {
            "`exclusive`, `shared`, `paused`, or `free` for the moment in which a pause ends."
        }
        ("state", Some(Family::Semaphore)) => {
            "`open` (permits are free), `full`, or `paused` (also with a limit of 0)."
        }
        ("state", Some(Family::Group)) => "`open`, `finished` or `paused`.",
        ("state", Some(Family::Once)) => {
            "`running`, `idle` (nobody runs), `delayed` (by `DELAY`), `done` or `paused`."
        }
        ("paused-ms", _) => "What is left of a PAUSE; 0 without one.",
        ("holders", _) => "How many holds there are.",
        ("waiters", _) => "How many requests wait.",
        ("longest-wait-ms", _) => "How long the one that has waited longest has waited.",
        ("first-holders", _) => "The oldest holds, `COUNT` at most. Of each:",
        ("first-waiters", _) => "The first in line, `COUNT` at most. Of each:",
        ("owner", _) if command == "DSYNC.LOG" => {
            "The text of `OWNER`; null without one. Of several holds that were removed with their key, how many: \
             `3 holds`."
        }
        ("owner", _) => "The text of `OWNER`; null without one.",
        ("client", _) => {
            "The id of the connection in `CLIENT LIST`; null if it has none on this server."
        }
        ("lease-left-ms", _) => "What is left of the lease.",
        ("held-ms", _) if command == "DSYNC.LOG" => {
            "How long the hold lasted; of several, the oldest one. Null for a stall."
        }
        ("held-ms", _) => "How long the hold has lasted.",
        ("mode", Some(Family::Group)) => "`member`, or `wait` for a client in DWG.WAIT.",
        ("mode", Some(Family::Once)) => "`run`.",
        ("mode", _) => "`exclusive` or `shared`.",
        ("permits", _) => "How many permits it takes.",
        ("age-ms", _) => "How long the request has waited.",
        ("number", _) => "The number of the kept place, for REVOKE; null if the request has none.",
        ("kept-ms", _) => "How long the place is still kept; null if the request has none.",
        ("limit", _) => "The limit in force; null if there is none.",
        ("pinned-limit", _) => "The limit that DSEM.LIMIT pinned; null if none is.",
        ("limit-changes", _) => "How often the limit in force has become another one.",
        ("available", _) => "How many permits are free.",
        ("expected", _) => "The total that DWG.EXPECT declared; null without one.",
        ("owed", _) => "How many jobs are still owed.",
        ("kept-until-unix-ms", Some(Family::Group)) => {
            "When the tally of the finished round is forgotten, by the wall clock; null before it is finished."
        }
        ("kept-until-unix-ms", _) => {
            "When the result is forgotten, by the wall clock; null before it is done, and with `PERSIST`."
        }
        ("delay-left-ms", _) => "What is left of a `DELAY`; 0 without one.",
        ("result-bytes", _) => "How long the result is, in bytes; null if there is none.",
        ("db" | "key", _) if command == "DSYNC.HOLDS" => {
            "Where the hold is; null after `RENAME` or `MOVE` until the module has found the key."
        }
        ("db", _) => "The number of the database.",
        ("key", _) => "The key.",
        ("next-cursor", _) => "What to send next; `0` when the walk is over.",
        ("holds", _) => "The holds that were found. Of each:",
        ("id", _) => "Rises with every row.",
        ("unix-ms", _) => "When it happened, by the wall clock.",
        ("what", _) => {
            "`lapse`, `revoke`, `disconnect`, `undelivered` (nobody could be told of the grant), `removed` (with the \
             key), or `stall` (no hold ended: the lease clock stood still)."
        }
        ("late-ms", _) => {
            "From the end of the lease to the lapse; of a stall, for how long the clock stood still; otherwise null."
        }
        (name, _) => panic!("{command}: what does {name} mean?"),
    }
}
