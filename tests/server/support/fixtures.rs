//! Fixtures: a key for every kind of state, in two databases, and what each of them must still do. For tests that save,
//! load, copy or replicate states.

use crate::support::steps::{SOON, fence_in};
use crate::support::*;

/// Makes the fixtures: [`FIXTURES`] in database 0 and one more in database 3.
#[track_caller]
pub fn add_fixtures(server: &Server) {
    let mut client = server.connect();
    add_to(&mut client, 0);
    client.ask_all(["SELECT 3", "DLOCK.ACQUIRE elsewhere EX 600 TOKEN t"]);
}

/// Makes [`FIXTURES`] in this database.
#[track_caller]
pub fn add_to(client: &mut Client, database: usize) {
    assert_eq!(client.ask(format!("SELECT {database}")), "OK");
    let mut say = |line: &str| {
        let reply = client.ask(line);
        assert!(!reply.is_error() && !reply.is_nil(), "{line}: {reply:?}");
        reply
    };
    say("DLOCK.ACQUIRE lock EX 600 TOKEN t OWNER somebody");
    say("DLOCK.ACQUIRE renewed EX 600 TOKEN t");
    say("DLOCK.RENEW renewed t EX 700");
    say("DLOCK.ACQUIRE 'by the server' EX 600");
    for n in 0..5 {
        say(&format!(
            "DLOCK.ACQUIRE shared SHARED EX 600 TOKEN \"{n}\\x00\\xff\""
        ));
    }
    say("DSEM.ACQUIRE sem LIMIT 9 PERMITS 4 EX 600 TOKEN t");
    say("DSEM.ACQUIRE sem LIMIT 8 PERMITS 2 EX 600");
    for token in ["a", "b", "c"] {
        say(&format!(
            "DSEM.ACQUIRE indexed LIMIT 9 EX 600 INDEX TOKEN {token}"
        ));
    }
    say("DSEM.RELEASE indexed a");
    for token in ["a", "b"] {
        say(&format!(
            "DSEM.ACQUIRE paced LIMIT 2 EX 600 MINHOLD 600000 TOKEN {token}"
        ));
    }
    say("DSEM.RELEASE paced a");
    say("DSEM.ACQUIRE lanes LIMIT 4 EX 600 LANE a TOKEN a");
    say("DSEM.ACQUIRE lanes LIMIT 4 EX 600 LANE a MINHOLD 600000 INDEX TOKEN b");
    say("DSEM.RELEASE lanes b");
    say("DSEM.LIMIT pinned 3");
    say("DSEM.LIMIT pinned 4");
    say("DWG.EXPECT group 7");
    say("DWG.ADD group LIMIT 5 EX 600 TOKEN a");
    say("DWG.ADD group LIMIT 4 EX 600 TOKEN b");
    say("DWG.DONE group a");
    say("DWG.ADD 'just added' EX 600 TOKEN a");
    say("DWG.ADD finished EX 600 TOKEN a");
    let (_, revoked) = say("DWG.ADD finished EX 600 TOKEN b").grant();
    say("DWG.DONE finished a");
    say(&format!("DWG.REVOKE finished {revoked}"));
    say("DONCE.BEGIN running EX 600 TOKEN a");
    say("DONCE.FAIL running a REASON 'no disk'");
    say("DONCE.BEGIN running EX 600 TOKEN t");
    say("DONCE.BEGIN failed TOKEN t");
    say("DONCE.FAIL failed t");
    say("DONCE.BEGIN silent PX 1 TOKEN t");
    say("DONCE.BEGIN done TOKEN t");
    say(r#"DONCE.DONE done t RESULT "it \r\n is""#);
    eventually("the silence of a run", SOON, || {
        *say("DONCE.INFO silent").field("state") == "idle"
    });
    say("DLOCK.PAUSE paused 600000");
    say("DSEM.ACQUIRE 'paused sem' LIMIT 2 EX 600 TOKEN t");
    say("DSEM.PAUSE 'paused sem' 600000");
    say("DWG.PAUSE 'paused group' 600000");
    say("DONCE.BEGIN 'paused once' TOKEN t");
    say("DONCE.FAIL 'paused once' t");
    say("DONCE.PAUSE 'paused once' 600000");
}

/// The keys of [`add_to`].
pub const FIXTURES: [&str; 20] = [
    "lock",
    "renewed",
    "by the server",
    "shared",
    "sem",
    "indexed",
    "paced",
    "lanes",
    "pinned",
    "group",
    "just added",
    "finished",
    "running",
    "failed",
    "silent",
    "done",
    "paused",
    "paused sem",
    "paused group",
    "paused once",
];

/// The digest of each fixture and of all databases.
pub fn digests(server: &Server) -> Vec<(&'static str, String)> {
    let mut all: Vec<_> = FIXTURES
        .iter()
        .map(|key| (*key, server.digest(key)))
        .collect();
    let whole = server.connect().ask("DEBUG DIGEST");
    all.push(("all databases", whole.as_str().to_owned()));
    all
}

/// Asserts that the two servers have the same states.
#[track_caller]
pub fn assert_same_fixtures(one: &Server, other: &Server) {
    assert_eq!(digests(one), digests(other));
}

/// Asserts that the fixtures still work: their tokens, leases, limits, tallies, results, and the order of fences.
#[track_caller]
pub fn assert_in_use(server: &Server) {
    let mut client = server.connect();
    let left = client.ask("DLOCK.CHECK lock t").as_int();
    assert!((500_000..=600_000).contains(&left), "{left}");
    let left = client.ask("DLOCK.CHECK renewed t").as_int();
    assert!((600_001..=700_000).contains(&left), "{left}");
    assert!(client.ask("DLOCK.ACQUIRE lock").is_nil());
    assert!(client.ask("DLOCK.ACQUIRE shared").is_nil());
    assert_eq!(*client.ask("DLOCK.INFO shared").field("holders"), 5);
    assert!(
        client.ask("DSEM.ACQUIRE sem PERMITS 3").is_nil(),
        "6 of 8 permits are taken"
    );
    for (token, index) in [("c", 2), ("b", 1), ("new", 0)] {
        let held = client.ask(format!("DSEM.ACQUIRE indexed INDEX TOKEN {token}"));
        assert_eq!(held.as_array()[2], index, "{token}");
    }
    assert!(client.ask("DSEM.ACQUIRE paced TOKEN a").is_nil());
    assert_eq!(client.ask("DSEM.RELEASE paced b"), 1);
    assert_eq!(*client.ask("DSEM.INFO paced").field("resting"), 2);
    let lane = |lane: &str| format!("DSEM.ACQUIRE lanes LANE {lane} LANELIMIT 2 TOKEN new");
    assert!(client.ask(lane("a")).is_nil(), "one holds, and one rests");
    client.ask(lane("b")).grant();
    let pinned = client.ask("DSEM.INFO pinned");
    assert_eq!(*pinned.field("pinned-limit"), 4);
    assert_eq!(*pinned.field("limit-changes"), 1);
    let group = client.ask("DWG.INFO group");
    for (field, value) in [
        ("expected", 7),
        ("owed", 6),
        ("done", 1),
        ("limit", 4),
        ("limit-changes", 1),
    ] {
        assert_eq!(*group.field(field), value, "{field} of {group:?}");
    }
    let finished = client.ask("DWG.WAIT finished");
    assert_eq!(finished.as_array(), [Reply::Int(1), Reply::Int(1)]);
    let old = client
        .ask("DLOCK.INFO lock")
        .field("first-holders")
        .as_array()[0]
        .field("fence")
        .as_int();
    assert_eq!(client.ask("DLOCK.RELEASE lock t"), 1);
    let (_, fence) = client.ask("DLOCK.ACQUIRE lock").grant();
    assert!(fence > old.unsigned_abs());
    assert_eq!(client.ask("DWG.DONE group b"), 1);
    assert!(client.ask("DONCE.BEGIN running").is_nil());
    let running = client.ask("DONCE.INFO running");
    assert_eq!(*running.field("attempts"), 2);
    assert_eq!(*running.field("last-reason"), "no disk");
    assert_eq!(client.ask("DONCE.DONE running t"), 1);
    let failed = client.ask("DONCE.BEGIN failed MAX 1");
    assert_eq!(failed.as_array()[1], *"failed");
    // DONE of a lapsed run counts, because no attempt began since.
    assert_eq!(client.ask("DONCE.DONE silent t RESULT late"), 1);
    let done = client.ask("DONCE.BEGIN done");
    assert_eq!(done.as_array()[1], *"it \r\n is");
    for (family, key, request) in [
        ("DLOCK", "paused", "DLOCK.ACQUIRE paused"),
        ("DSEM", "'paused sem'", "DSEM.ACQUIRE 'paused sem'"),
        ("DWG", "'paused group'", "DWG.ADD 'paused group'"),
        ("DONCE", "'paused once'", "DONCE.BEGIN 'paused once'"),
    ] {
        assert!(client.ask(request).is_nil(), "{request}");
        let left = client.ask(format!("{family}.PAUSE {key} 0")).as_int();
        assert!((500_000..=600_000).contains(&left), "{key}: {left}");
        assert!(fence_in(&client.ask(request)).is_some(), "{request}");
    }
}
