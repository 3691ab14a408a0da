//! Every change, in every way in which it comes about, as replicas and the AOF are told of it: to the letter.
//!
//! What is expected is written as it is told, `key family | change | change`, with `@` for the moment
//! of the decision and `@+n` for n milliseconds later: one command is one decision, so all its moments are
//! counted from the same one.
//!
//! | change | comes about by | here, or in [`super::replication_stream`] (s) |
//! |---|---|---|
//! | GRANT | a request, at once | s `…_every_kind_of_claim…`, [`lapsed_by_a_rival`] |
//! | | the end of a hold, in each way | [`however_a_hold_ends_…`] |
//! | | the head's wait running out, its leaving, its unblocking, its refusal | [`whoever_leaves_…`] |
//! | | a limit pinned, unpinned, raised by a queued request | [`limits_and_pins_…`] |
//! | | the key's removal, in each way | [`however_a_key_goes_…`], s `a_removed_lock_…` |
//! | | the end of a pause or of a refusal of writes | [`what_was_put_off_…`] |
//! | RENEW | RENEW, a repeated request, one that is overdue, a queued one that holds | [`a_lease_…`] |
//! | END released, lapsed (by the timer, by a rival), revoked, disconnected, undelivered, done | | [`however_a_hold_ends_…`] |
//! | LIMIT | a grant, entering the queue | [`limits_and_pins_…`] |
//! | PIN | pinning, unpinning, on a key or none | [`limits_and_pins_…`] |
//! | EXPECT, FINISH | the first, a revision, the next round; each end of the last member | [`rounds_…`], [`however_a_hold_ends_…`] |
//! | FAIL, COMPLETE, GIVEUP | of a run, late, to one who asks, to one in line | [`work_…`] |
//! | VANISH | the last end, unpinning, retention, a handed-back run | all of them |
//! | LIMITS, TALLY, RECORD | the rewriting of an AOF, and nothing else | [`a_rewritten_aof_…`] |

use std::time::Duration;

use crate::support::data_files::{commands_in, rewrite_aof, rewritten, with_safe_aof};
use crate::support::steps::{SOON, at_once, granted, queue, queued, reply, unix_ms};
use crate::support::*;

/// A primary, what it tells, and a client.
struct Scene {
    server: Server,
    stream: ReplicationStream,
    client: Client,
    since: u64,
}

impl Scene {
    fn of(builder: Builder) -> Scene {
        let server = builder.start();
        Scene {
            stream: ReplicationStream::attach(&server),
            client: server.connect(),
            since: unix_ms(),
            server,
        }
    }

    fn new() -> Scene {
        Scene::of(Server::builder())
    }

    #[track_caller]
    fn ask(&mut self, line: impl AsRef<str>) -> Reply {
        crate::support::steps::ask(&mut self.client, line)
    }

    /// A grant that is given at once, or a run; its fence.
    #[track_caller]
    fn fence(&mut self, line: impl AsRef<str>) -> u64 {
        fence_of(&self.ask(line))
    }

    /// A client that waits with this request.
    #[track_caller]
    fn queued(&mut self, line: impl AsRef<str>) -> Client {
        queued(&self.server, line)
    }

    /// What was told until now belongs to the scenery.
    fn begin(&mut self) {
        self.stream.take_so_far(&self.server);
        self.since = unix_ms();
    }

    /// Asserts that exactly this is told, now or soon. What other commands tell is written behind a `!`.
    #[track_caller]
    fn hears<E: AsRef<str>>(&mut self, expected: &[E]) {
        let told = self.next_commands(expected.len());
        for (expected, told) in expected.iter().zip(&told) {
            assert_told(expected.as_ref(), told, self.since);
        }
        let rest = self.stream.take_so_far(&self.server);
        let rest: Vec<_> = rest.iter().map(|command| words(command)).collect();
        assert!(
            rest.iter().all(|command| is_bracket(command)),
            "and then {rest:?}"
        );
    }

    /// The next commands, without the brackets around several of them.
    #[track_caller]
    fn next_commands(&mut self, count: usize) -> Vec<Vec<String>> {
        let mut told = Vec::new();
        while told.len() < count {
            match self.stream.next(SOON) {
                Some(command) => told.push(words(&command)),
                None => panic!("nothing within {SOON:?} after {told:?}"),
            }
            told.retain(|command| !is_bracket(command));
        }
        told
    }
}

fn is_bracket(command: &[String]) -> bool {
    ["MULTI", "EXEC"]
        .iter()
        .any(|bracket| command[0].eq_ignore_ascii_case(bracket))
}

#[track_caller]
fn fence_of(reply: &Reply) -> u64 {
    match reply.as_array() {
        [_, Reply::Int(fence)] | [_, _, Reply::Int(fence), _] => fence.unsigned_abs(),
        _ => panic!("expected a grant, received {reply:?}"),
    }
}

#[track_caller]
fn assert_told(expected: &str, told: &[String], since: u64) {
    if let Some(command) = expected.strip_prefix('!') {
        let told = told.join(" ");
        assert!(
            told.to_uppercase().starts_with(&command.to_uppercase()),
            "{expected}: {told}"
        );
        return;
    }
    let [apply, key, kind, changes @ ..] = told else {
        panic!("expected {expected}, was told {told:?}");
    };
    let told = [&[format!("{key} {kind}")], changes].concat().join(" | ");
    assert_eq!(apply, "DSYN", "{told}");
    let mut moment = None;
    let same = |(expected, told): (&str, &str)| {
        let Some(later) = expected.strip_prefix('@') else {
            return expected == told;
        };
        let later: u64 = if later.is_empty() {
            0
        } else {
            later.parse().expect("@+n")
        };
        let Some(at) = told
            .parse::<u64>()
            .ok()
            .and_then(|at| at.checked_sub(later))
        else {
            return false;
        };
        (since..=unix_ms()).contains(&at) && *moment.get_or_insert(at) == at
    };
    let equal = expected.split(' ').count() == told.split(' ').count()
        && expected.split(' ').zip(told.split(' ')).all(same);
    assert!(
        equal,
        "expected (since {since})\n    {expected}\ntold\n    {told}"
    );
}

/// A family, and a request of it beside which there is room for no other.
struct Family {
    prefix: &'static str,
    acquire: &'static str,
    rest: &'static str,
    wire: &'static str,
    claim: &'static str,
    /// What a request brings into force on a new key.
    limit: &'static str,
    /// What follows the end of the last hold: where it was lost, and where it was given back.
    lost: &'static str,
    returned: &'static str,
}

const FAMILIES: [Family; 4] = [
    Family {
        prefix: "DLOCK",
        acquire: "DLOCK.ACQUIRE",
        rest: "",
        wire: "lock",
        claim: "exclusive",
        limit: "",
        lost: " | VANISH",
        returned: " | VANISH",
    },
    Family {
        prefix: "DSEM",
        acquire: "DSEM.ACQUIRE",
        rest: "LIMIT 1",
        wire: "semaphore",
        claim: "1",
        limit: " | LIMIT 1",
        lost: " | VANISH",
        returned: " | VANISH",
    },
    Family {
        prefix: "DWG",
        acquire: "DWG.ADD",
        rest: "LIMIT 1",
        wire: "group",
        claim: "member",
        limit: " | LIMIT 1",
        lost: " | FINISH @+60000",
        returned: " | FINISH @+60000",
    },
    Family {
        prefix: "DONCE",
        acquire: "DONCE.BEGIN",
        rest: "",
        wire: "once",
        claim: "run",
        limit: "",
        lost: "",
        returned: " | VANISH",
    },
];

impl Family {
    /// A request for this key, with this token.
    fn request(&self, key: &str, token: &str) -> String {
        format!("{} {key} {} TOKEN {token}", self.acquire, self.rest)
    }

    /// The command about this key, without its changes.
    fn about(&self, key: &str) -> String {
        format!("{key} {}", self.wire)
    }

    /// A grant of the default lease.
    fn grant(&self, fence: u64, token: &str) -> String {
        grant(fence, self.claim, 30_000, token)
    }
}

fn grant(fence: u64, claim: &str, lease: u64, token: &str) -> String {
    let length = token.len();
    format!("GRANT {fence} {claim} {lease} @+{lease} @ 0 {length}:{token} 0:")
}

/// What ends a hold, and how that is told.
const ENDS: [&str; 7] = [
    "released",
    "lapsed",
    "lapsed by a rival",
    "revoked",
    "disconnected",
    "undelivered",
    "done",
];

#[test]
fn however_a_hold_ends_the_end_and_what_follows_from_it_are_one_command() {
    let mut scene = Scene::new();
    for family in &FAMILIES {
        for (n, how) in ENDS.into_iter().enumerate() {
            let key = format!("{}:{n}", family.prefix);
            match how {
                "lapsed by a rival" => lapsed_by_a_rival(&mut scene, family, &key),
                "undelivered" => undelivered(&mut scene, family, &key),
                // The end of a run that is done is another change: see below.
                "done" if family.prefix != "DWG" => {}
                _ => hands_on(&mut scene, family, &key, how),
            }
        }
    }
}

/// With somebody in line, and then with nobody.
fn hands_on(scene: &mut Scene, family: &Family, key: &str, how: &str) {
    for in_line in [true, false] {
        let lease = if how == "lapsed" { " PX 150" } else { "" };
        let request = format!("{}{lease}", family.request(key, "a"));
        let mut holder = scene.server.connect();
        let ephemeral = if how == "disconnected" {
            " EPHEMERAL"
        } else {
            ""
        };
        let fence = fence_of(&crate::support::steps::ask(
            &mut holder,
            format!("{request}{ephemeral}"),
        ));
        let heir = in_line.then(|| scene.queued(format!("{} BLOCK 0", family.request(key, "w"))));
        if how != "lapsed" {
            scene.begin();
        }
        let prefix = family.prefix;
        match how {
            "released" => assert_eq!(scene.ask(format!("{prefix}.RELEASE {key} a")), 1),
            "done" => assert_eq!(scene.ask(format!("{prefix}.DONE {key} a")), 1),
            "revoked" => assert_eq!(scene.ask(format!("{prefix}.REVOKE {key} {fence}")), 1),
            "disconnected" => holder.close(),
            // Until then, only the grant; and that was told in its own command.
            _ => drop(scene.next_commands(1)),
        }
        let word = how;
        let last = match how {
            "released" => family.returned,
            _ => family.lost,
        };
        let end = format!("{} | END {fence} {word} @", family.about(key));
        match heir {
            Some(mut heir) => {
                let next = fence_of(&reply(&mut heir));
                scene.hears(&[format!("{end} | {}", family.grant(next, "w"))]);
            }
            // It says all that became of the lock, and is told as it came.
            None if how == "released" && family.prefix == "DLOCK" => {
                scene.hears(&[format!("!DLOCK.RELEASE {key} a")]);
            }
            None => scene.hears(&[format!("{end}{last}")]),
        }
        scene.ask(format!("DEL {key}"));
        scene.begin();
    }
}

/// The three lines are one turn of the event loop: no timer can come between them.
fn lapsed_by_a_rival(scene: &mut Scene, family: &Family, key: &str) {
    scene.begin();
    let first = format!("{} PX 1", family.request(key, "a"));
    let rival = family.request(key, "b");
    let replies = at_once(&mut scene.client, &[&first, "DEBUG SLEEP 0.03", &rival]);
    let (a, b) = (fence_of(&replies[0]), fence_of(&replies[2]));
    let about = family.about(key);
    // The last member is lost before the rival is added: that was a round of its own.
    let between = if family.prefix == "DWG" {
        family.lost
    } else {
        ""
    };
    scene.hears(&[
        format!(
            "{about}{} | {}",
            family.limit,
            grant(a, family.claim, 1, "a")
        ),
        format!(
            "{about} | END {a} lapsed @{between} | {}",
            family.grant(b, "b")
        ),
    ]);
}

/// The hold comes free and the first in line is killed in one turn: whoever is next has it, or nobody.
fn undelivered(scene: &mut Scene, family: &Family, key: &str) {
    for in_line in [true, false] {
        let a = scene.fence(family.request(key, "a"));
        let mut doomed = scene.server.connect();
        let id = doomed.id();
        queue(
            &scene.server,
            &mut doomed,
            format!("{} BLOCK 0", family.request(key, "doomed")),
        );
        let heir = in_line.then(|| scene.queued(format!("{} BLOCK 0", family.request(key, "w"))));
        scene.begin();
        let release = format!("{}.RELEASE {key} a", family.prefix);
        at_once(
            &mut scene.client,
            &[&release, &format!("CLIENT KILL ID {id}")],
        );
        let about = family.about(key);
        let told = scene.next_commands(1);
        let lost: u64 = told[0][4]
            .split(' ')
            .nth(1)
            .expect("a fence")
            .parse()
            .expect("a fence");
        let given = family.grant(lost, "doomed");
        assert_told(
            &format!("{about} | END {a} released @ | {given}"),
            &told[0],
            scene.since,
        );
        let end = format!("{about} | END {lost} undelivered @");
        match heir {
            Some(mut heir) => {
                let next = fence_of(&reply(&mut heir));
                scene.hears(&[format!("{end} | {}", family.grant(next, "w"))]);
            }
            None => scene.hears(&[format!("{end}{}", family.returned)]),
        }
        scene.ask(format!("DEL {key}"));
        scene.begin();
    }
}

#[test]
fn whoever_leaves_the_head_of_a_queue_lets_the_next_in_and_only_that_is_told() {
    let mut scene = Scene::new();
    for (n, how) in ["runs out", "closes", "is unblocked", "is refused"]
        .into_iter()
        .enumerate()
    {
        let key = format!("s{n}");
        scene.ask(format!("DSEM.ACQUIRE {key} LIMIT 3 TOKEN a"));
        let mut head = scene.server.connect();
        let id = head.id();
        let block = if how == "runs out" { 150 } else { 0 };
        let greedy = format!("DSEM.ACQUIRE {key} PERMITS 3 TOKEN head BLOCK {block}");
        queue(&scene.server, &mut head, greedy);
        let mut next = scene.queued(format!("DSEM.ACQUIRE {key} TOKEN next BLOCK 0"));
        scene.begin();
        let pin = match how {
            "closes" => {
                head.close();
                ""
            }
            "is unblocked" => {
                assert_eq!(scene.ask(format!("CLIENT UNBLOCK {id}")), 1);
                ""
            }
            "is refused" => {
                scene.ask(format!("DSEM.LIMIT {key} 2"));
                assert!(reply(&mut head).error().starts_with("TOOMANY"));
                " | PIN 2"
            }
            _ => "",
        };
        let (_, fence) = granted(&mut next);
        scene.hears(&[format!(
            "{key} semaphore{pin} | {}",
            grant(fence, "1", 30_000, "next")
        )]);
    }
}

#[test]
fn limits_and_pins_are_told_when_they_take_force_and_whom_they_let_in() {
    let mut scene = Scene::new();
    // Pinned where there was nothing, and raised for one who waits.
    scene.begin();
    scene.ask("DSEM.LIMIT s 1");
    scene.hears(&["s semaphore | PIN 1"]);
    // While pinned, requests' limits are remembered: that is told too.
    let a = scene.fence("DSEM.ACQUIRE s LIMIT 2 TOKEN a");
    scene.hears(&[format!(
        "s semaphore | LIMIT 2 | {}",
        grant(a, "1", 30_000, "a")
    )]);
    let mut waiters: Vec<_> = ["b", "c"]
        .iter()
        .map(|token| scene.queued(format!("DSEM.ACQUIRE s TOKEN {token} BLOCK 0")))
        .collect();
    scene.hears::<&str>(&[]);
    scene.ask("DSEM.LIMIT s NONE");
    let b = granted(&mut waiters[0]).1;
    scene.hears(&[format!(
        "s semaphore | PIN NONE | {}",
        grant(b, "1", 30_000, "b")
    )]);
    scene.ask("DSEM.LIMIT s 3");
    let c = granted(&mut waiters[1]).1;
    scene.hears(&[format!(
        "s semaphore | PIN 3 | {}",
        grant(c, "1", 30_000, "c")
    )]);
    scene.ask("DSEM.LIMIT s 0");
    scene.hears(&["s semaphore | PIN 0"]);
    for (token, fence) in [("a", a), ("b", b), ("c", c)] {
        assert_eq!(scene.ask(format!("DSEM.RELEASE s {token}")), 1);
        scene.hears(&[format!("s semaphore | END {fence} released @")]);
    }
    scene.ask("DSEM.LIMIT s NONE");
    scene.hears(&["s semaphore | PIN NONE | VANISH"]);

    // The gate of a group: with the first member, with a queued request that opens it, and told once.
    let a = scene.fence("DWG.ADD g LIMIT 1 TOKEN a");
    scene.hears(&[format!(
        "g group | LIMIT 1 | {}",
        grant(a, "member", 30_000, "a")
    )]);
    let mut b = scene.queued("DWG.ADD g LIMIT 1 TOKEN b BLOCK 0");
    scene.hears::<&str>(&[]);
    // It takes force as its request enters the queue, where the first in line is let in by it.
    let mut c = scene.server.connect();
    queue_or_not(&mut c, "DWG.ADD g LIMIT 2 TOKEN c BLOCK 0");
    let b = granted(&mut b).1;
    scene.hears(&[format!(
        "g group | LIMIT 2 | {}",
        grant(b, "member", 30_000, "b")
    )]);
    scene.ask("DWG.ADD g LIMIT 3 TOKEN d");
    scene.hears::<&str>(&[]);
}

/// Sends what will wait; who is let in meanwhile makes up for it in the count of those who wait.
fn queue_or_not(client: &mut Client, line: &str) {
    crate::support::steps::tell(client, line);
}

#[test]
fn a_lease_that_begins_anew_is_told_however_that_came_about() {
    let mut scene = Scene::new();
    for family in &FAMILIES {
        let (prefix, key) = (family.prefix, format!("k{}", family.prefix));
        let about = family.about(&key);
        let request = family.request(&key, "t");
        let fence = scene.fence(&request);
        scene.begin();
        assert_eq!(scene.ask(format!("{prefix}.RENEW {key} t EX 50")), 1);
        assert_eq!(scene.ask(format!("{prefix}.RENEW {key} t")), 1);
        let renewed = format!("{about} | RENEW {fence} 50000 @+50000");
        scene.hears(&[&renewed, &renewed]);
        // The request once more, and once more by one that may wait.
        assert_eq!(scene.fence(&request), fence);
        assert_eq!(scene.fence(format!("{request} BLOCK 0 PX 7")), fence);
        scene.hears(&[
            format!("{about} | RENEW {fence} 30000 @+30000"),
            format!("{about} | RENEW {fence} 7 @+7"),
            format!("{about} | END {fence} lapsed @{}", family.lost),
        ]);

        // Overdue, and nobody has ended it: it is its token's.
        scene.ask(format!("DEL {key}"));
        scene.begin();
        let short = format!("{request} PX 1");
        let renew = format!("{prefix}.RENEW {key} t EX 9");
        let replies = at_once(&mut scene.client, &[&short, "DEBUG SLEEP 0.03", &renew]);
        let fence = fence_of(&replies[0]);
        assert_eq!(replies[2], 1);
        scene.hears(&[
            format!(
                "{about}{} | {}",
                family.limit,
                grant(fence, family.claim, 1, "t")
            ),
            format!("{about} | RENEW {fence} 9000 @+9000"),
        ]);

        // One who waits here holds there, and there becomes here.
        let there = format!("there{prefix}");
        let fence = scene.fence(family.request(&there, "w"));
        let mut waiter = scene.queued(format!("{} BLOCK 0 PX 8000", family.request(&key, "w")));
        scene.begin();
        assert_eq!(scene.ask(format!("RENAME {there} {key}")), "OK");
        assert_eq!(fence_of(&reply(&mut waiter)), fence);
        scene.hears(&[
            format!("!RENAME {there} {key}"),
            format!("{about} | RENEW {fence} 8000 @+8000"),
        ]);
    }
}

#[test]
fn rounds_begin_finish_and_are_forgotten_in_the_primarys_words() {
    let builder = Server::builder()
        .module_arg("group-idle-ms")
        .module_arg(1_000);
    let mut scene = Scene::of(builder.module_arg("group-keep-ms").module_arg(40_000));
    scene.begin();
    scene.ask("DWG.EXPECT g 3");
    scene.ask("DWG.EXPECT g 2");
    scene.hears(&["g group | EXPECT 3 @", "g group | EXPECT 2 @"]);
    let a = scene.fence("DWG.ADD g TOKEN a");
    scene.begin();
    scene.ask("DWG.DONE g a");
    // One is owed: the round goes on with nobody in it.
    scene.hears(&[format!("g group | END {a} done @")]);
    // Revised to what is done, it is over.
    let mut waiter = scene.queued("DWG.WAIT g BLOCK 0");
    scene.ask("DWG.EXPECT g 1");
    scene.hears(&["g group | EXPECT 1 @ | FINISH @+40000"]);
    assert_eq!(
        reply(&mut waiter).as_array(),
        [Reply::Int(1), Reply::Int(0)]
    );
    // The next round begins with what begins it, without a word of its own.
    scene.ask("DWG.EXPECT g 5");
    scene.hears(&["g group | EXPECT 5 @"]);
    // Several ends of one call are one command.
    let (b, c) = (
        scene.fence("DWG.ADD g TOKEN b"),
        scene.fence("DWG.ADD g TOKEN c"),
    );
    scene.begin();
    assert_eq!(scene.ask("DWG.DONE g c b b nobody"), 2);
    scene.hears(&[format!("g group | END {c} done @ | END {b} done @")]);
    // Nothing lives, waits or happens: it is forgotten.
    scene.hears(&["g group | VANISH"]);
}

#[test]
fn work_that_is_done_failed_or_given_up_is_told_with_what_follows_from_it() {
    let builder = Server::builder().module_arg("once-keep-ms").module_arg(600);
    let mut scene = Scene::of(builder);
    let run = |fence, token| grant(fence, "run", 30_000, token);
    // Failed, with nobody in line and with somebody.
    let a = scene.fence("DONCE.BEGIN w TOKEN a");
    scene.begin();
    scene.ask("DONCE.FAIL w a");
    scene.hears(&[format!("w once | FAIL {a} @ 6:failed")]);
    let b = scene.fence("DONCE.BEGIN w TOKEN b");
    let mut heir = scene.queued("DONCE.BEGIN w TOKEN c BLOCK 0");
    scene.begin();
    scene.ask("DONCE.FAIL w b REASON no-disk");
    let c = fence_of(&reply(&mut heir));
    scene.hears(&[format!("w once | FAIL {b} @ 7:no-disk | {}", run(c, "c"))]);
    // Done, with somebody in line: told nothing but that, for nobody runs any more.
    let mut waiter = scene.queued("DONCE.BEGIN w TOKEN d BLOCK 0");
    scene.ask("DONCE.DONE w c RESULT r PX 700");
    assert_eq!(reply(&mut waiter).as_array()[0], *"DONE");
    scene.hears(&[format!("w once | COMPLETE {c} @+700 1:c 1:r")]);
    scene.hears(&["w once | VANISH"]);

    // Given up by one in line, in the command by which the last attempt came to nothing.
    let a = scene.fence("DONCE.BEGIN x TOKEN a PX 150");
    let mut hopeless = scene.queued("DONCE.BEGIN x TOKEN b MAX 1 BLOCK 0");
    scene.next_commands(1);
    assert_eq!(reply(&mut hopeless).as_array()[0], *"FAILED");
    scene.hears(&[format!("x once | END {a} lapsed @ | GIVEUP")]);
    // Kept as long as results, then forgotten.
    scene.hears(&["x once | VANISH"]);

    // Given up by one who asks; and a late DONE, which names no run.
    let a = scene.fence("DONCE.BEGIN y TOKEN a PX 1");
    let said = format!("y once | END {a} lapsed @");
    scene.hears(&[format!("y once | {}", grant(a, "run", 1, "a")), said]);
    scene.ask("DONCE.BEGIN y MAX 1");
    scene.hears(&["y once | GIVEUP", "y once | VANISH"]);
    let a = scene.fence("DONCE.BEGIN z TOKEN a PX 1");
    let said = format!("z once | END {a} lapsed @");
    scene.hears(&[format!("z once | {}", grant(a, "run", 1, "a")), said]);
    scene.ask("DONCE.DONE z a PX 90");
    scene.hears(&["z once | COMPLETE NONE @+90 1:a NONE", "z once | VANISH"]);
}

#[test]
fn however_a_key_goes_the_grant_to_the_first_in_line_is_told_behind_the_removal() {
    let mut scene = Scene::new();
    let payload = {
        scene.ask("SET string 1");
        let payload = call!(scene.client, "DUMP", "string").as_bytes().to_vec();
        assert_eq!(scene.ask("DEL string"), 1);
        payload
    };
    for family in &FAMILIES {
        let ways: [(&str, &[&str]); 9] = [
            ("DEL k", &["!DEL k"]),
            ("UNLINK k", &["!UNLINK k"]),
            ("RENAME k away", &["!RENAME k away"]),
            ("MOVE k 1", &["!MOVE k 1"]),
            ("FLUSHDB", &["!FLUSHDB"]),
            ("FLUSHALL ASYNC", &["!FLUSHALL"]),
            ("SWAPDB 0 1", &["!SWAPDB 0 1"]),
            // Carried out by the server in its own time, by the command of its choice.
            ("PEXPIRE k 20", &["!PEXPIRE", "!"]),
            ("EVAL \"return redis.call('DEL', 'k')\" 1 k", &["!DEL k"]),
        ];
        for (way, removal) in ways {
            scene.ask("FLUSHALL");
            scene.ask(family.request("k", "holder"));
            let mut waiter = scene.queued(format!("{} BLOCK 0", family.request("k", "w")));
            scene.begin();
            let done = scene.ask(way);
            assert!(!done.is_error(), "{way}: {done:?}");
            let fence = fence_of(&reply(&mut waiter));
            let again = format!(
                "{}{} | {}",
                family.about("k"),
                family.limit,
                family.grant(fence, "w")
            );
            let expected: Vec<_> = removal
                .iter()
                .map(|word| (*word).to_owned())
                .chain([again])
                .collect();
            scene.hears(&expected);
        }
        // Overwritten, nobody is granted anything.
        scene.ask("FLUSHALL");
        scene.ask(family.request("k", "holder"));
        let mut waiter = scene.queued(format!("{} BLOCK 0", family.request("k", "w")));
        scene.begin();
        let done = call!(scene.client, "RESTORE", "k", 0, &payload, "REPLACE");
        assert_eq!(done, "OK");
        assert!(reply(&mut waiter).error().starts_with("WRONGTYPE"));
        scene.hears(&["!RESTORE k"]);
    }
}

#[test]
fn what_was_put_off_while_writes_were_not_taken_is_told_when_they_are() {
    let mut scene = Scene::new();
    for (hold_up, go_on) in [
        ("CLIENT PAUSE 60000 WRITE", "CLIENT UNPAUSE"),
        (
            "CONFIG SET min-replicas-to-write 9",
            "CONFIG SET min-replicas-to-write 0",
        ),
    ] {
        let mut holder = scene.server.connect();
        let request = "DLOCK.ACQUIRE k TOKEN a EPHEMERAL";
        let a = fence_of(&crate::support::steps::ask(&mut holder, request));
        let mut heir = scene.queued("DLOCK.ACQUIRE k TOKEN w BLOCK 0");
        scene.begin();
        assert_eq!(scene.ask(hold_up), "OK");
        holder.close();
        heir.expect_silence(Duration::from_millis(150));
        assert_eq!(scene.ask(go_on), "OK");
        let w = granted(&mut heir).1;
        let given = grant(w, "exclusive", 30_000, "w");
        scene.hears(&[format!("k lock | END {a} disconnected @ | {given}")]);
        scene.ask("DEL k");
        scene.begin();
    }
}

#[test]
fn a_rewritten_aof_says_what_there_is_and_nothing_of_how_it_came_about() {
    let server = with_safe_aof(false).start();
    let mut client = server.connect();
    let since = unix_ms();
    let mut say = |line: &str| crate::support::steps::ask(&mut client, line);
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
    rewrite_aof(&server);
    let until = unix_ms();
    let mut told: Vec<_> = commands_in(&rewritten(&server))
        .into_iter()
        .map(|command| words(&command))
        .filter(|command| command[0] == "DSYN")
        .collect();
    told.sort();
    let mut expected = [
        "done once | RECORD 1 @ NONE NONE @+9000 1:a 1:r".to_owned(),
        format!(
            "group group | {} | TALLY 2 0 3 0 0 @ NONE",
            grant(member, "member", 30_000, "a")
        ),
        "idle semaphore | LIMITS NONE 0 0".to_owned(),
        format!("lock lock | GRANT {lock} exclusive 40000 @+40000 @ 1 1:a 2:me"),
        "over group | TALLY NONE 0 NONE 1 0 @ @+60000".to_owned(),
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
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (expected, told) in expected.iter().zip(&told) {
        assert_written(expected, told, since, until);
    }
}

/// As [`assert_told`], for what comes of several decisions: each moment is its own.
#[track_caller]
fn assert_written(expected: &str, told: &[String], since: u64, until: u64) {
    let told = [&[told[1..3].join(" ")], &told[3..]].concat().join(" | ");
    let same = |(expected, told): (&str, &str)| match expected.strip_prefix('@') {
        None => expected == told,
        Some(later) => {
            let later: u64 = if later.is_empty() {
                0
            } else {
                later.parse().expect("@+n")
            };
            let at = told
                .parse::<u64>()
                .ok()
                .and_then(|at| at.checked_sub(later));
            at.is_some_and(|at| (since..=until).contains(&at))
        }
    };
    let equal = expected.split(' ').count() == told.split(' ').count()
        && expected.split(' ').zip(told.split(' ')).all(same);
    assert!(equal, "expected\n    {expected}\nwritten\n    {told}");
}
