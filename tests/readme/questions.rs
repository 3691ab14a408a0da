//! Questions, as they are asked: docs/README.md names a page for each, and the page answers it on its first screen.
//!
//! The first screen is 60 lines of the page, or of its section where the index links to one, without comments that a reader
//! does not see.

use std::path::{Component, Path, PathBuf};

use crate::{anchor, read};

const INDEX: &str = "docs/README.md";
const SCREEN: usize = 60;

struct Question {
    asked: &'static str,
    /// How the row of the index begins.
    row: &'static str,
    /// A link of that row.
    link: &'static str,
    /// What stands on the first screen there, in this order.
    answer: &'static [&'static str],
}

const fn asks(
    asked: &'static str,
    row: &'static str,
    link: &'static str,
    answer: &'static [&'static str],
) -> Question {
    Question {
        asked,
        row,
        link,
        answer,
    }
}

/// Of users of other locks, in their issue trackers.
const OF_USERS_OF_OTHERS: [Question; 10] = [
    asks(
        "redisson#2116: who blocks me?",
        "Who holds it?",
        "operations.md#who-holds-what",
        &["DSYNC.HOLDS", "owner"],
    ),
    asks(
        "redisson#4698: the hold is lost, and my work is not told",
        "Someone worked on after the hold was lost",
        "../clients/python/README.md#when-a-hold-is-lost",
        &["the block's task is cancelled", "raise_if_lost()"],
    ),
    asks(
        "trigger.dev#2617: one user's 1000 tasks take all slots while 99 others wait",
        "One customer starves the others",
        "fair-shares.md",
        &["LANE text", "fewest in use", "`LIMIT 10 LANE tenant`"],
    ),
    asks(
        "redisson#4109: my request timed out, and was granted all the same",
        "A request timed out, or its connection broke",
        "waiting.md#when-a-wait-ends-otherwise",
        &["not known", "the same request with the same TOKEN"],
    ),
    asks(
        "medusa#16284: two processes take two locks in two orders",
        "Two programs wait for each other's lock",
        "recipes/several-keys.md",
        &["in the order of their names", "in one order"],
    ),
    asks(
        "node-redlock#64: CROSSSLOT",
        "`CROSSSLOT`",
        "cluster.md",
        &["one hash tag", "CROSSSLOT", "One command has one key"],
    ),
    asks(
        "bullmq#2215: the server evicts locks that are held",
        "A lock that was held is gone",
        "operations.md#eviction",
        &["allkeys-*", "noeviction", "Did it happen?"],
    ),
    asks(
        "redisson#4462: a process crashed, and its permits never came back",
        "A worker died, and nobody goes on",
        "locks.md#the-lease",
        &["When the holder dies", "the first in line is granted"],
    ),
    asks(
        "StackExchange.Redis#1961: who waits holds up everybody on the connection",
        "Other requests stand still while one waits",
        "queue.md",
        &["share one connection", "QUEUE 30000"],
    ),
    asks(
        "openlinker#2019: callers of a rate limit poll, and the one who came first loses",
        "The partner's API answers 429",
        "recipes/rate-limit.md",
        &["`429`", "in the order in which they came", "MINHOLD"],
    ),
];

const OF_AN_OPERATOR_AT_NIGHT: [Question; 10] = [
    asks(
        "The report was sent twice. Why?",
        "The job ran twice",
        "operations.md#why-did-the-job-run-twice",
        &["DSYNC.LOG COUNT", "\"lapse\"", "did not renew"],
    ),
    asks(
        "Everything hangs. Where do I look?",
        "Something is stuck",
        "operations.md#something-is-stuck",
        &["DSYNC.CONTENDED", "DSEM.INFO", "CLIENT LIST"],
    ),
    asks(
        "My first alert of this thing. What may I do, and what not?",
        "An alert",
        "operations.md#an-alert",
        &["a restart", "DSYNC.CONTENDED", "what an alert means"],
    ),
    asks(
        "The log has a line of dsync that I do not know",
        "A line in the server's log",
        "alerts.md#the-servers-log",
        &["lapsed without any renewal", "what it means", "DSYN failed"],
    ),
    asks(
        "Two keys have one waiter each, and both go on waiting",
        "Two programs wait for each other's lock",
        "operations.md#two-keys-taken-in-two-orders",
        &["DSYNC.CONTENDED", "DLOCK.INFO", "DLOCK.REVOKE"],
    ),
    asks(
        "The machine burnt down. How do I free all that it held?",
        "The machine that holds it is gone for good",
        "operations.md#who-holds-what",
        &["To end everything that web-1 holds", "revoke=DLOCK.REVOKE"],
    ),
    asks(
        "Nobody may start this job in the next ten minutes",
        "How do I stop one key for a while?",
        "commands/pause.md",
        &["DSEM.PAUSE api 600000", "DSEM.PAUSE api 0"],
    ),
    asks(
        "All requests fail with NOREPLICAS, or MISCONF, or OOM",
        "An error",
        "waiting.md#when-a-wait-ends-otherwise",
        &["`NOREPLICAS`, `MISCONF`", "`OOM`"],
    ),
    asks(
        "The primary died, and a replica took over. What is lost?",
        "After a failover two had the lock",
        "failover.md",
        &[
            "a primary dies and a replica is promoted",
            "had not received",
        ],
    ),
    asks(
        "I must restart the server with the new version. What becomes of the holds?",
        "How do I replace one version by the next?",
        "upgrading.md",
        &[
            "What happens to holds and waiters",
            "kept, if the server saves its data",
        ],
    ),
];

const OF_A_NEWCOMER: [Question; 10] = [
    asks(
        "How do I install it?",
        "How do I build, load and configure it?",
        "install.md",
        &[
            "make deb",
            "sudo make install",
            "loadmodule /usr/lib/redis/modules/dsync.so",
        ],
    ),
    asks(
        "Does it run on ElastiCache?",
        "Does it run on my managed service",
        "hosting.md",
        &["Amazon ElastiCache", "no: you cannot bring a file"],
    ),
    asks(
        "I have SET NX. Which line becomes which, and need I change at all?",
        "I have a lock, a limiter or a scheduler already",
        "coming-from.md",
        &["`DLOCK.ACQUIRE jobs PX 30000", "keep `SET NX PX`"],
    ),
    asks(
        "Why not etcd, or Postgres?",
        "Why not `SET NX`, Redlock, etcd or a library?",
        "comparison.md",
        &["a store with consensus: etcd", "pg_advisory_xact_lock"],
    ),
    asks(
        "May I rely on it for money?",
        "What may I rely on, and on what not?",
        "guarantees.md",
        &["Exclusion", "A lease never ends early"],
    ),
    asks(
        "How long should a lease be?",
        "How long should a lease be?",
        "locks.md#the-lease",
        &["prefer a short lease that is renewed"],
    ),
    asks(
        "Each grant has a second number. What is it for?",
        "How long should a lease be? What is the fence for?",
        "locks.md#the-fence",
        &["only grows", "refuse a lower fence", "AND fence <= ?"],
    ),
    asks(
        "Is there a library for my language?",
        "Which library can I use, and what must I set there?",
        "clients.md",
        &["Python", "go-redis", "Jedis 7.5"],
    ),
    asks(
        "Ten machines have the same crontab, and the job shall run once",
        "Once a night, by one of many machines",
        "recipes/nightly-job.md",
        &["DONCE.BEGIN report:2026-11-22", "DONCE.DONE"],
    ),
    asks(
        "Go on when the last of fifty imports is through",
        "How do I wait until all jobs are done?",
        "groups.md",
        &["DWG.EXPECT", "DWG.WAIT", "DWG.DONE"],
    ),
];

const OF_ONE_WHO_LEAVES: [Question; 5] = [
    asks(
        "I removed all keys and the loadmodule line, and the server does not start",
        "`AUX module data I can't load: no matching module`",
        "leaving.md#remove-the-module-from-a-server",
        &[
            "AUX module data I can't load: no matching module",
            "aof-use-rdb-preamble no",
            "appendonly yes",
        ],
    ),
    asks(
        "How do I get rid of it?",
        "How do I get rid of the module?",
        "leaving.md#remove-the-module-from-a-server",
        &["Stop the programs", "Remove its keys", "Stop the server"],
    ),
    asks(
        "We go to Valkey. What happens to the locks?",
        "How do I move to another server",
        "leaving.md#move-to-another-server",
        &["REPLICAOF", "FAILOVER TO", "Redis 7.0"],
    ),
    asks(
        "MIGRATE answers: DUMP payload version or checksum are wrong",
        "`DUMP payload version or checksum are wrong`",
        "leaving.md#move-to-another-server",
        &["Which of them works", "payload version"],
    ),
    asks(
        "Can I take the results of work-once with me?",
        "How do I get the results out",
        "leaving.md",
        &["DONCE.GET"],
    ),
];

/// The page of a link of the index, by its path from the root, and the place in it.
fn target(link: &str) -> (PathBuf, Option<&str>) {
    let (path, place) = match link.split_once('#') {
        Some((path, place)) => (path, Some(place)),
        None => (link, None),
    };
    let mut target = PathBuf::from("docs");
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => drop(target.pop()),
            part => target.push(part),
        }
    }
    (target, place)
}

/// The text without comments, which a reader does not see.
fn visible(text: &str) -> String {
    let mut visible = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("<!--") {
        visible += before;
        rest = comment.split_once("-->").map_or("", |(_, after)| after);
    }
    visible + rest
}

/// The lines of a page that a reader sees first who comes to this place of it.
fn first_screen(page: &str, place: Option<&str>) -> String {
    let text = visible(page);
    let is_place = |line: &&str| {
        let heading = line.trim_start_matches('#');
        heading.len() < line.len() && Some(anchor(heading.trim()).as_str()) == place
    };
    let lines = text.lines();
    let from = match place {
        Some(_) => lines.clone().position(|line| is_place(&line)),
        None => Some(0),
    };
    let from = from.unwrap_or(usize::MAX);
    let screen: Vec<_> = lines.skip(from).take(SCREEN).collect();
    screen.join("\n")
}

/// The words between single blanks, so that it does not matter where a line ends.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What is missing; `None` if the index leads to the answer.
fn unanswered(question: &Question) -> Option<String> {
    let index = read(Path::new(INDEX));
    let begin = format!("| {}", question.row);
    let mut rows = index.lines().filter(|line| line.starts_with(&begin));
    let Some(row) = rows.next() else {
        return Some(format!("no row of the index begins with {}", question.row));
    };
    if !row.contains(&format!("]({})", question.link)) {
        return Some(format!("its row does not link to {}", question.link));
    }
    let (page, place) = target(question.link);
    let screen = joined(&first_screen(&read(&page), place));
    let mut rest = screen.as_str();
    for part in question.answer {
        let Some((_, after)) = rest.split_once(&joined(part)) else {
            return Some(format!("{} does not say {part} there", question.link));
        };
        rest = after;
    }
    None
}

#[test]
fn questions_are_answered_on_the_first_screen_of_the_page_that_the_index_names() {
    let others = [OF_USERS_OF_OTHERS, OF_AN_OPERATOR_AT_NIGHT, OF_A_NEWCOMER];
    let questions = others.iter().flatten().chain(&OF_ONE_WHO_LEAVES);
    let wrong: Vec<_> = questions
        .filter_map(|question| Some(format!("{}: {}", question.asked, unanswered(question)?)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn first_screen_begins_at_the_place_and_has_no_comments() {
    let mut page = "# Page\n\n<!-- hidden\nhidden -->\nintro\n\n## A place\n\nhere\n".to_owned();
    page += &"line\n".repeat(100);
    let top = first_screen(&page, None);
    assert!(top.contains("intro") && top.contains("here") && !top.contains("hidden"));
    let section = first_screen(&page, Some("a-place"));
    assert!(section.starts_with("## A place\n\nhere"));
    assert_eq!(section.lines().count(), SCREEN);
    assert_eq!(first_screen(&page, Some("elsewhere")), "");
}
