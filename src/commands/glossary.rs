//! The replies of a command in words, for the pages in `docs/commands`: their forms, and what their fields mean. One name
//! means the same in the replies of all commands; where it is about something else, the command or the family decides.

use std::fmt::Write as _;

use super::info_tests::meaning as meaning_in_info;
use super::replies::Form;
use super::row::Row;

/// The replies of a command: when each comes, its form and its fields.
pub(super) fn replies(row: &Row) -> String {
    let mut text = String::new();
    let forms: Vec<_> = row.replies.iter().map(|reply| reply.form.whole()).collect();
    for (reply, whole) in row.replies.iter().zip(&forms) {
        let form = in_words(whole);
        let when = reply.when.strip_prefix("always: ").unwrap_or(reply.when);
        match when {
            "always" => writeln!(text, "- {form}"),
            _ => writeln!(text, "- **{when}**: {form}"),
        }
        .expect("text");
        fields(row, whole, 1, &mut text);
    }
    let has = |fits: fn(&Form) -> bool| forms.iter().any(|form| contains(form, fits));
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
        Form::Map(_) | Form::Info(_) => "map".to_owned(),
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
    let of_key = row.family().filter(|_| command.ends_with(".INFO"));
    if let Some(sentence) = of_key.and_then(|family| meaning_in_info(family, name)) {
        return sentence;
    }
    match name {
        "token" => "The secret name of the hold.",
        "fence" => "The public number of the hold. Fences only ever grow.",
        "place" => {
            "How many requests come up to this one: 1 is next in line, 100 means 100 or more."
        }
        "channel" => "Where the turn will be announced.",
        "attempt" => "Which attempt at the work it is or was, from 1.",
        "attempts" => "How many attempts have been made.",
        "result" => "The `RESULT` of DONCE.DONE; null if there was none.",
        "reason" => "Why the last attempt ended: its `REASON`, or `failed`, `lapsed` or `revoked`.",
        "done" => "How many members of the round were done.",
        "lapsed" => {
            "How many were lost: their lease ran out, they were revoked, or their EPHEMERAL connection closed."
        }
        "type" => "`lock`, `semaphore`, `group` or `once`.",
        "waiters" => "How many requests wait.",
        "longest-wait-ms" => "How long the one that has waited longest has waited.",
        "owner" if command == "DSYNC.LOG" => {
            "The text of `OWNER`; null without one. Of several holds that were removed with their key, how many: \
             `3 holds`."
        }
        "owner" => "The text of `OWNER`; null without one.",
        "client" => {
            "The id of the connection in `CLIENT LIST`; null if it has none on this server."
        }
        "lease-left-ms" => "What is left of the lease.",
        "held-ms" if command == "DSYNC.LOG" => {
            "How long the hold lasted; of several, the oldest one. Null for a stall."
        }
        "held-ms" => "How long the hold has lasted.",
        "db" | "key" if command == "DSYNC.HOLDS" => {
            "Where the hold is; null after `RENAME` or `MOVE` until the module has found the key."
        }
        "db" => "The number of the database.",
        "key" => "The key.",
        "next-cursor" => "What to send next; `0` when the walk is over.",
        "holds" => "The holds that were found. Of each:",
        "id" => "Rises with every row.",
        "unix-ms" => "When it happened, by the wall clock.",
        "what" => {
            "`lapse`, `revoke`, `disconnect`, `undelivered` (nobody could be told of the grant), `removed` (with the \
             key), or `stall` (no hold ended: the lease clock stood still)."
        }
        "late-ms" => {
            "From the end of the lease to the lapse; of a stall, for how long the clock stood still; otherwise null."
        }
        name => panic!("{command}: what does {name} mean?"),
    }
}
