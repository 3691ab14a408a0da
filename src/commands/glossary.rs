//! What the fields of replies mean, for the pages in `docs/commands`. One name means the same in the replies of all
//! commands; where it is about something else, the command or the family decides.

use super::row::Row;
use dsync_engine::Family;

/// The meaning of a field or an element of the command's replies, in a sentence.
pub(super) fn meaning(row: &Row, name: &str) -> &'static str {
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
