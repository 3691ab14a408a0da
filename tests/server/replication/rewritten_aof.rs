//! A rewritten AOF holds each state as it is, by changes that make no history: LIMITS, TALLY, RECORD and DISPLACED.

use super::watched_primary::{fence_of, grant, is_same};
use crate::support::data_files::{commands_in, rewrite_aof, rewritten, with_safe_aof};
use crate::support::steps::{SOON, unix_ms};
use crate::support::*;

#[test]
fn rewritten_aof_has_states_and_no_history() {
    let server = with_safe_aof(false).start();
    let mut client = server.connect();
    let since = unix_ms();
    let mut say = |line: &str| client.ask(line);
    let lock = fence_of(&say("DLOCK.ACQUIRE lock TOKEN a OWNER me"));
    say("DLOCK.RENEW lock a PX 40000");
    let (s1, s2) = (
        fence_of(&say("DLOCK.ACQUIRE shared SHARED TOKEN a")),
        fence_of(&say("DLOCK.ACQUIRE shared SHARED TOKEN b")),
    );
    let permits = fence_of(&say("DSEM.ACQUIRE sem LIMIT 4 PERMITS 3 TOKEN a"));
    say("DSEM.LIMIT sem 5");
    say("DSEM.LIMIT idle 0");
    say("DWG.EXPECT group 3");
    let member = fence_of(&say("DWG.ADD group LIMIT 2 TOKEN a"));
    say("DWG.ADD over TOKEN a");
    say("DWG.DONE over a");
    say("DONCE.BEGIN run TOKEN a");
    say("DONCE.FAIL run a REASON no-disk");
    let run = fence_of(&say("DONCE.BEGIN run TOKEN b"));
    let silent = fence_of(&say("DONCE.BEGIN silent TOKEN a"));
    say(&format!("DONCE.REVOKE silent {silent}"));
    say("DONCE.BEGIN done TOKEN a");
    say("DONCE.DONE done a RESULT r EX 9");
    let paused = fence_of(&say("DSEM.ACQUIRE paused LIMIT 1 TOKEN a"));
    say("DSEM.PAUSE paused 600000");
    say("DLOCK.PAUSE paused-alone 500000");
    rewrite_aof(&server);
    let until = unix_ms();
    let mut written: Vec<_> = commands_in(&rewritten(&server))
        .into_iter()
        .map(|command| words(&command))
        .filter(|command| command[0] == "DSYN")
        .collect();
    written.sort();
    let mut expected = [
        "done once | RECORD 1 @ NONE NONE @+9000 1:a 1:r".to_owned(),
        format!(
            "group group | {} | TALLY 2 0 3 0 0 @ NONE",
            grant(member, "member", 30_000, "a")
        ),
        "idle semaphore | LIMITS NONE 0 0".to_owned(),
        format!("lock lock | GRANT {lock} exclusive 40000 @+40000 @ 1 1:a 2:me"),
        "over group | TALLY NONE 0 NONE 1 0 @ @+60000".to_owned(),
        "paused semaphore | PAUSE @+600000".to_owned(),
        format!(
            "paused semaphore+ | LIMITS 1 NONE 0 | {}",
            grant(paused, "1", 30_000, "a")
        ),
        "paused-alone lock | PAUSE @+500000".to_owned(),
        format!(
            "run once | {} | RECORD 2 @ 7:no-disk NONE NONE",
            grant(run, "run", 30_000, "b")
        ),
        format!(
            "sem semaphore | LIMITS 4 5 1 | {}",
            grant(permits, "3", 30_000, "a")
        ),
        format!(
            "shared lock | {} | {}",
            grant(s1, "shared", 30_000, "a"),
            grant(s2, "shared", 30_000, "b")
        ),
        "silent once | RECORD 1 @ revoked NONE NONE".to_owned(),
    ];
    expected.sort();
    assert_eq!(written.len(), expected.len(), "{written:#?}");
    for (expected, written) in expected.iter().zip(&written) {
        assert_written(expected, written, since, until);
    }
}

/// What an unheard hold has displaced is in a string of its own, which only this version and later ones read.
#[test]
fn rewritten_aof_has_what_unheard_holds_displaced_in_strings_of_version_4() {
    let server = with_safe_aof(false).start();
    let mut client = server.connect();
    let mut say = |line: &str| client.ask(line);
    say("DONCE.BEGIN job TOKEN late");
    say("DONCE.BEGIN job TOKEN dead QUEUE 60000");
    say("DONCE.RENEW job late PX 1");
    say("DWG.ADD group TOKEN a");
    assert_eq!(say("DWG.DONE group a"), 1);
    let until = say("DWG.INFO group").field("kept-until-unix-ms").as_int();
    say("DWG.PAUSE group 60000");
    say("DWG.ADD group TOKEN dead QUEUE 60000");
    say("DWG.PAUSE group 0");
    for check in ["DONCE.CHECK job dead", "DWG.CHECK group dead"] {
        eventually("the turn of a dead client", SOON, || {
            say(check).as_int() > 0
        });
    }
    let of_version_4 = |server: &Server| {
        rewrite_aof(server);
        let commands = commands_in(&rewritten(server)).into_iter();
        let later = commands.filter(|command| command.get(2).is_some_and(|packed| packed[0] == 4));
        let mut written: Vec<_> = later
            .map(|command| words(&command)[1..].join(" | "))
            .collect();
        written.sort();
        written
    };
    let expected = [
        format!("group | group | DISPLACED NONE 1 0 {until}"),
        "job | once | DISPLACED 4:late".to_owned(),
    ];
    assert_eq!(of_version_4(&server), expected);
    // From the first word of their clients on, version 3 is enough again.
    assert_eq!(say("DONCE.RENEW job dead"), 1);
    assert_eq!(say("DWG.RENEW group dead"), 1);
    assert_eq!(of_version_4(&server), [""; 0]);
}

/// As `assert_replicated`, for a command that sums up several decisions: each moment is its own.
#[track_caller]
fn assert_written(expected: &str, command: &[String], since: u64, until: u64) {
    let text = [&[command[1..3].join(" ")], &command[3..]]
        .concat()
        .join(" | ");
    assert!(
        is_same(expected, &text, |at| (since..=until).contains(&at)),
        "expected\n    {expected}\nwritten\n    {text}"
    );
}
