//! Files of every version since 0.2.0, written by any server, are read by this version.
//!
//! `tests/golden/` has a directory for each version that wrote something new; its README says what is in it and what
//! ages. Files of 0.1.0 are refused with a message that says why.
//!
//! Each file is loaded by a replica of a missing primary, which decides nothing: its states must equal what was
//! written, however long ago. Then that replica is promoted and the holds are used with their tokens; states whose
//! retention has ended by the wall clock may be gone by then.
//!
//! `DSYNC_WRITE_GOLDEN=1` writes the files of this version, if it has none, with Redis 7.0.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::data_files::{rewrite_aof, with_aof};
use crate::support::fixtures::{self, FIXTURES};
use crate::support::steps::{SOON, unix_ms};
use crate::support::*;

const RDB: &str = "dump.rdb";
const CONTENTS: &str = "contents.txt";
/// A DUMP payload of each key of database 0, by the key's name.
const DUMPS: &str = "dumps";
/// The version whose files are refused.
const UNREADABLE: &str = "0.1.0";
/// A manifest names the parts of an AOF, so each AOF has a directory of its own.
const AOF_DIR: &str = "appendonlydir";
const AOFS: [&str; 2] = ["aof", "aof-with-preamble"];

/// The greatest value of each setting, so that states are kept as long as possible.
const LONGEST: [(&str, u64); 4] = [
    ("takeover-grace-ms", 3_600_000),
    ("group-keep-ms", 2_592_000_000),
    ("group-idle-ms", 31_536_000_000),
    ("once-keep-ms", 315_360_000_000),
];

const DAY_MS: i64 = 86_400_000;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn builder() -> Builder {
    LONGEST
        .iter()
        .fold(Server::builder(), |builder, (name, ms)| {
            builder.module_arg(name).module_arg(ms)
        })
}

/// What `contents.txt` says of one key: facts by name, and the tokens of its holds.
#[derive(Default, Debug)]
struct GoldenKey {
    facts: BTreeMap<String, String>,
    tokens: Vec<Vec<u8>>,
}

/// What `contents.txt` says, by database and key.
type Contents = BTreeMap<(usize, String), GoldenKey>;

fn info_command(key: &str) -> &'static str {
    match key.split(':').next() {
        Some("lock") => "DLOCK.INFO",
        Some("sem") => "DSEM.INFO",
        Some("group") => "DWG.INFO",
        _ => "DONCE.INFO",
    }
}

/// INFO of a key of any family.
fn info(client: &mut Client, key: &str) -> Reply {
    let each = Family::ALL.map(|family| call!(client, format!("{}.INFO", family.prefix()), key));
    let mut found = each.into_iter().filter(|reply| !reply.is_error());
    found.next().expect("a key of a family")
}

/// Whether a field of INFO is true at one moment only, or on one server only: a duration, a list with durations, or a
/// connection.
fn is_passing(field: &str) -> bool {
    matches!(field, "client" | "first-lanes")
        || field.ends_with("-ms") && !field.ends_with("-unix-ms")
}

/// Flattens a reply into values by their paths.
fn flatten(path: &str, reply: &Reply, into: &mut BTreeMap<String, String>) {
    match reply {
        Reply::Array(items) if items.iter().all(|item| matches!(item, Reply::Array(_))) => {
            for (n, item) in items.iter().enumerate() {
                flatten(&format!("{path}.{n}"), item, into);
            }
        }
        Reply::Array(pairs) => {
            for pair in pairs.chunks_exact(2) {
                let name = pair[0].as_str();
                if !is_passing(name) {
                    let path = if path.is_empty() {
                        name.to_owned()
                    } else {
                        format!("{path}.{name}")
                    };
                    flatten(&path, &pair[1], into);
                }
            }
        }
        Reply::Bulk(bytes) => drop(into.insert(path.to_owned(), bytes.escape_ascii().to_string())),
        other => drop(into.insert(path.to_owned(), format!("{other:?}"))),
    }
}

/// The facts about a key of a replica: its digest, and the fields of INFO that do not change with time.
fn facts(client: &mut Client, key: &str) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let digest = call!(client, "DEBUG", "DIGEST-VALUE", key);
    facts.insert(
        "digest".to_owned(),
        digest.as_array()[0].as_str().to_owned(),
    );
    let info = info(client, key);
    flatten("", &info, &mut facts);
    // It has another state when the delay or the pause is over by the clock.
    if *info.field("state") == "delayed" || *info.field("paused-ms") != 0 {
        facts.remove("state");
    }
    facts
}

fn read_contents(text: &str) -> (u64, Contents) {
    let (mut last_fence, mut contents) = (0, Contents::new());
    let mut key = (0, String::new());
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(header) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            let (database, name) = header.split_once(' ').expect("a database and a key");
            key = (database.parse().expect("a database"), name.to_owned());
            contents.insert(key.clone(), GoldenKey::default());
            continue;
        }
        let (name, value) = line.split_once(" = ").expect("a name and a value");
        match (name, contents.get_mut(&key)) {
            ("token", Some(entry)) => entry.tokens.push(unescaped(value)),
            ("last-fence", None) => last_fence = value.parse().expect("a fence"),
            (_, Some(entry)) => drop(entry.facts.insert(name.to_owned(), value.to_owned())),
            _ => panic!("a line before the first key: {line}"),
        }
    }
    (last_fence, contents)
}

/// Reverses `escape_ascii`, as far as the tokens here need it.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut left = text;
    while let Some((before, escape)) = left.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        bytes.push(u8::from_str_radix(&escape[..2], 16).expect("two digits"));
        left = &escape[2..];
    }
    bytes.extend_from_slice(left.as_bytes());
    bytes
}

/// A stopped server with these files, which will start as a replica of a missing primary.
fn prepared(version: &Path, files: &str) -> Server {
    let is_aof = files != RDB;
    let builder = if is_aof {
        with_aof(builder(), "always", "yes")
    } else {
        builder()
    };
    let mut server = builder.start();
    server.kill9();
    if is_aof {
        let aof = server.dir().join(AOF_DIR);
        fs::remove_dir_all(&aof).expect("the empty AOF goes");
        copy_dir(&version.join(files), &aof);
    } else {
        fs::copy(version.join(files), server.dir().join(RDB)).expect("the file is copied");
    }
    server.configure("replicaof", "127.0.0.1 1");
    server
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory is made");
    for file in fs::read_dir(from).expect("a directory is read") {
        let file = file.expect("a file").path();
        let name = file.file_name().expect("a name");
        fs::copy(&file, to.join(name)).expect("a file is copied");
    }
}

#[test]
fn files_of_every_version_are_read_and_their_holds_used() {
    if std::env::var_os("DSYNC_WRITE_GOLDEN").is_some() {
        write();
    }
    let mut versions: Vec<_> = fs::read_dir(golden())
        .expect("tests/golden is there")
        .map(|version| version.expect("an entry").path())
        .filter(|version| version.is_dir())
        .collect();
    versions.retain(|version| !version.ends_with(UNREADABLE));
    versions.sort();
    assert!(!versions.is_empty());
    for version in versions {
        let text = fs::read_to_string(version.join(CONTENTS)).expect("the contents are read");
        let (last_fence, contents) = read_contents(&text);
        for files in [RDB, AOFS[0], AOFS[1]] {
            let what = format!("{} {files}", version.display());
            let mut server = prepared(&version, files);
            server.start_again();
            assert_found(&server, &contents, &what);
            assert_eq!(server.connect().ask("REPLICAOF NO ONE"), "OK");
            assert_in_use(&server, &contents, last_fence, &what);
        }
        assert_restored(&version, &contents);
    }
}

/// Asserts that each DUMP payload restores the state it was made from. Groups are left out: they are kept for a year at
/// most, and a primary removes them then.
#[track_caller]
fn assert_restored(version: &Path, contents: &Contents) {
    let server = builder().start();
    let mut client = server.connect();
    let is_kept = |entry: &GoldenKey| entry.facts["type"] != "group";
    for ((_, key), entry) in contents
        .iter()
        .filter(|((db, _), entry)| *db == 0 && is_kept(entry))
    {
        let payload = fs::read(version.join(DUMPS).join(key)).expect("the payload is read");
        // In one turn, before the timer ends a delay or a pause that is over by now.
        assert_eq!(client.ask("MULTI"), "OK");
        call!(client, "RESTORE", key, 0, &payload);
        call!(client, "DEBUG", "DIGEST-VALUE", key);
        call!(client, "DUMP", key);
        let replies = client.ask("EXEC");
        let [restored, digest, dumped] = replies.as_array() else {
            panic!("{key}: {replies:?}");
        };
        assert_eq!(*restored, "OK", "{key}");
        assert_eq!(digest.as_array()[0], *entry.facts["digest"], "{key}");
        // What uses nothing new is written as it was, so the version of that time can read it. The last ten bytes are
        // the server's version and its checksum.
        let own = |payload: &[u8]| payload[..payload.len() - 10].to_vec();
        assert_eq!(own(dumped.as_bytes()), own(&payload), "{key}");
    }
}

/// No later version reads the formats of 0.1.0. A server neither crashes over such files nor loses their holds
/// silently: it does not start, and logs why.
#[test]
fn files_of_0_1_0_stop_the_start_and_the_log_names_both_versions() {
    let version = golden().join(UNREADABLE);
    for files in [RDB, AOFS[0], AOFS[1]] {
        let mut server = prepared(&version, files);
        let seen = server.log_text().len();
        let started = catch_unwind(AssertUnwindSafe(|| server.start_again()));
        let log = server.log_text()[seen..].to_owned();
        assert!(started.is_err(), "{files}: {log}");
        let sentence = concat!("and this is dsync ", env!("CARGO_PKG_VERSION"));
        let says =
            |line: &str| line.contains("it was written by dsync 0.1.0,") && line.contains(sentence);
        assert!(log.lines().any(says), "{files}: {log}");
        for word in ["panic", "crashed by signal", "ASSERTION"] {
            assert!(!log.contains(word), "{files}: {log}");
        }
    }
}

/// Asserts that a server that decides nothing has everything that was written.
#[track_caller]
fn assert_found(server: &Server, contents: &Contents, what: &str) {
    let mut client = server.connect();
    for ((database, key), entry) in contents {
        assert_eq!(client.ask(format!("SELECT {database}")), "OK");
        let found = facts(&mut client, key);
        // A later version may have more facts; those that were written must still be true.
        for (name, value) in &entry.facts {
            assert_eq!(
                found.get(name),
                Some(value),
                "{what}: {name} of {key} in {found:#?}"
            );
        }
    }
    for (database, keys) in by_database(contents) {
        assert_eq!(client.ask(format!("SELECT {database}")), "OK");
        assert_eq!(
            client.ask("DBSIZE"),
            keys,
            "{what}: keys in database {database}"
        );
    }
}

fn by_database(contents: &Contents) -> BTreeMap<usize, i64> {
    let mut sizes = BTreeMap::new();
    for (database, _) in contents.keys() {
        *sizes.entry(*database).or_insert(0) += 1;
    }
    sizes
}

/// Asserts that on a promoted server every token has its hold, and that results and tallies are answered.
#[track_caller]
fn assert_in_use(server: &Server, contents: &Contents, last_fence: u64, what: &str) {
    let mut client = server.connect();
    let (_, fence) = client.ask("DLOCK.ACQUIRE lock:new").grant();
    assert!(fence > last_fence, "{what}: {fence} after {last_fence}");
    let fact = |key: &str, name: &str| &contents[&(0, key.to_owned())].facts[name];

    // Other tokens are not granted, and the limits are as before.
    if contents.contains_key(&(0, "lock:queued".to_owned())) {
        let second = client.ask("DLOCK.ACQUIRE lock:queued EX 86400 TOKEN b QUEUE 60000");
        assert_eq!(second.as_array()[1], 2, "{what}: {second:?}");
    }
    for request in [
        "DLOCK.ACQUIRE lock:owned",
        "DLOCK.ACQUIRE lock:shared",
        "DSEM.ACQUIRE sem:busy PERMITS 3",
        "DSEM.ACQUIRE sem:paused LIMIT 5",
        "DONCE.BEGIN once:first",
        "DONCE.BEGIN once:second",
    ] {
        assert!(client.ask(request).is_nil(), "{what}: {request}");
    }
    for ((database, key), entry) in contents {
        assert_eq!(client.ask(format!("SELECT {database}")), "OK");
        let prefix = info_command(key).trim_end_matches("INFO");
        for token in &entry.tokens {
            let left = call!(client, format!("{prefix}CHECK"), key, token).as_int();
            assert!((1..=DAY_MS).contains(&left), "{what}: {left} ms of {key}");
            assert_eq!(
                call!(client, format!("{prefix}RENEW"), key, token, "EX", 60),
                1
            );
            assert_eq!(call!(client, format!("{prefix}RELEASE"), key, token), 1);
            assert_eq!(call!(client, format!("{prefix}RELEASE"), key, token), 0);
        }
    }
    assert_eq!(client.ask("SELECT 0"), "OK");
    assert_eq!(client.ask("DSEM.LIMIT sem:pinned NONE"), 4);

    // Retention runs on the wall clock: after ten years the result may be gone.
    let written: u64 = fact("once:done", "kept-until-unix-ms")
        .parse()
        .expect("a moment");
    if unix_ms() + 60_000 >= written {
        return;
    }
    let failed = client.ask("DONCE.BEGIN once:failed MAX 2");
    assert_eq!(failed.as_array()[1], *"no disk");
    assert_eq!(failed.as_array()[2], 2);
    let revoked = client.ask("DONCE.BEGIN once:revoked MAX 1");
    assert_eq!(revoked.as_array()[1], *"revoked");
    assert_eq!(client.ask("DONCE.DONE once:silent a RESULT late"), 1);
    assert_eq!(client.ask("DONCE.DONE once:given-up a"), 0);
    if contents.contains_key(&(0, "once:delayed".to_owned())) {
        let failed = client.ask("DONCE.BEGIN once:delayed MAX 1");
        assert_eq!(failed.as_array()[1], *"overload");
        let kept = client.ask("DONCE.GET once:persisted");
        assert_eq!(kept.as_array()[1], *"for ever");
    }
    if contents.contains_key(&(0, "once:displaced".to_owned())) {
        let done = client.ask("DONCE.DONE once:displaced late RESULT late");
        assert_eq!(done, 1, "{what}: nobody has heard of the run after it");
        let done = client.ask("DONCE.BEGIN once:displaced TOKEN a");
        assert_eq!(done.as_array()[1], *"late");
    }
    let done = client.ask("DONCE.BEGIN once:done");
    assert_eq!(done.as_array()[1].as_bytes(), b"a\r\nresult \xff");
    assert_eq!(done.as_array()[2], 2);
    assert_eq!(client.ask("DONCE.DONE once:done b"), 1, "said again");
    assert!(client.ask("DONCE.BEGIN once:done-without").as_array()[1].is_nil());
}

/// Writes the files of this version.
fn write() {
    let version = golden().join(env!("CARGO_PKG_VERSION"));
    assert!(
        !version.exists(),
        "{} is there and is not written again",
        version.display()
    );
    let primary = with_aof(builder(), "always", "no").start();
    let flavour = primary.flavour();
    assert!(
        flavour.product == Product::Redis && flavour.version < (7, 1, 0),
        "golden files are written by Redis 7.0, whose RDB every later server reads, not by {flavour:?}"
    );
    let replica = with_aof(builder(), "always", "yes")
        .replica_of(&primary)
        .start();
    let mut tokens = BTreeMap::new();
    // Database 0 comes before the rewriting of the AOF, database 4 after it.
    let ephemeral = add_keys(&primary, 0, &mut tokens);
    rewrite_aof(&primary);
    let also_ephemeral = add_keys(&primary, 4, &mut tokens);
    replica.wait_to_catch_up_with(&primary);
    rewrite_aof(&replica);
    let mut client = primary.connect();
    assert_eq!(client.ask("DLOCK.RENEW lock:owned a EX 86399"), 1);
    let (_, last_fence) = client.ask("DLOCK.ACQUIRE lock:gone TOKEN a").grant();
    assert_eq!(client.ask("DLOCK.RELEASE lock:gone a"), 1);
    assert_eq!(client.ask("CLIENT PAUSE 60000 WRITE"), "OK");
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(client.ask("SAVE"), "OK");

    fs::create_dir_all(&version).expect("a directory is made");
    fs::copy(primary.dir().join(RDB), version.join(RDB)).expect("the RDB is copied");
    for (server, name) in [(&primary, AOFS[0]), (&replica, AOFS[1])] {
        copy_dir(&server.dir().join(AOF_DIR), &version.join(name));
    }
    fs::create_dir_all(version.join(DUMPS)).expect("a directory is made");
    for (_, key) in tokens.keys().filter(|(database, _)| *database == 0) {
        let payload = call!(primary.connect(), "DUMP", key);
        let file = version.join(DUMPS).join(key);
        fs::write(file, payload.as_bytes()).expect("the payload is written");
    }
    let mut text = format!(
        "# What is in the files beside this one, as a server finds it that follows: see ../README.md.\n\
         last-fence = {last_fence}\n"
    );
    let mut client = replica.connect();
    for ((database, key), tokens) in &tokens {
        assert_eq!(client.ask(format!("SELECT {database}")), "OK");
        text += &format!("\n[{database} {key}]\n");
        for (name, value) in facts(&mut client, key) {
            text += &format!("{name} = {value}\n");
        }
        for token in tokens {
            text += &format!("token = {}\n", token.escape_ascii());
        }
    }
    fs::write(version.join(CONTENTS), text).expect("the contents are written");
    drop((ephemeral, also_ephemeral));
}

/// The tokens of the holds of each key.
type Tokens = BTreeMap<(usize, String), Vec<Vec<u8>>>;

/// Makes the fixtures of all tests in this database, and keys whose tokens the test uses. The returned connection has an
/// EPHEMERAL hold.
fn add_keys(server: &Server, database: usize, tokens: &mut Tokens) -> Client {
    let mut client = server.connect();
    fixtures::add_to(&mut client, database);
    for key in FIXTURES {
        tokens.insert((database, key.to_owned()), Vec::new());
    }
    // A day is the longest lease by default; the files do not say what is left of it.
    let mut hold = |client: &mut Client, line: &str| {
        let reply = client.ask(format!("{line} EX 86400"));
        let key = line.split(' ').nth(1).expect("a key").to_owned();
        let items = reply.as_array();
        let token = &items[usize::from(items[0] == "RUN")];
        let of_key = tokens.entry((database, key)).or_default();
        of_key.push(token.as_bytes().to_vec());
    };
    hold(
        &mut client,
        "DLOCK.ACQUIRE lock:owned TOKEN a OWNER \"web-1 \\r\\n\"",
    );
    hold(&mut client, "DLOCK.ACQUIRE lock:renewed");
    hold(&mut client, "DLOCK.ACQUIRE lock:ephemeral EPHEMERAL");
    hold(&mut client, "DLOCK.ACQUIRE lock:shared SHARED TOKEN a");
    hold(&mut client, "DLOCK.ACQUIRE lock:shared SHARED");
    hold(
        &mut client,
        "DLOCK.ACQUIRE lock:shared SHARED TOKEN \"\\x00\\xff\"",
    );
    hold(
        &mut client,
        "DSEM.ACQUIRE sem:busy LIMIT 9 PERMITS 4 TOKEN a",
    );
    hold(
        &mut client,
        "DSEM.ACQUIRE sem:busy LIMIT 8 PERMITS 2 OWNER web-2",
    );
    hold(&mut client, "DSEM.ACQUIRE sem:pinned LIMIT 2 TOKEN a");
    for token in ["a", "b"] {
        let line = format!("DSEM.ACQUIRE sem:indexed LIMIT 2 INDEX TOKEN {token}");
        hold(&mut client, &line);
    }
    hold(
        &mut client,
        "DSEM.ACQUIRE sem:paced LIMIT 2 MINHOLD 86400000 TOKEN a",
    );
    hold(
        &mut client,
        "DSEM.ACQUIRE sem:lanes LIMIT 1 LANE \"a lane \\xff\" TOKEN a",
    );
    hold(&mut client, "DLOCK.ACQUIRE lock:queued TOKEN held");
    hold(&mut client, "DLOCK.ACQUIRE lock:unheard TOKEN held");
    hold(&mut client, "DWG.ADD group:live LIMIT 5 TOKEN a");
    hold(
        &mut client,
        "DWG.ADD group:live LIMIT 4 TOKEN b OWNER web-3",
    );
    hold(&mut client, "DONCE.BEGIN once:first TOKEN a");
    let mut say = |line: &str| {
        let reply = client.ask(line);
        assert!(!reply.is_error() && !reply.is_nil(), "{line}: {reply:?}");
        reply
    };
    let key = (database, "lock:renewed".to_owned());
    let token = String::from_utf8(tokens[&key][0].clone()).expect("a UUID");
    assert_eq!(
        say(&format!("DLOCK.RENEW lock:renewed {token} EX 80000")),
        1
    );
    say("DSEM.LIMIT sem:pinned 4");
    say("DSEM.LIMIT sem:paused 0");
    for token in ["a OWNER web-5", "b"] {
        say(&format!(
            "DLOCK.ACQUIRE lock:queued EX 86400 TOKEN {token} QUEUE 60000"
        ));
    }
    say("DSEM.ACQUIRE sem:indexed EX 86400 INDEX TOKEN c QUEUE 60000");
    say("DSEM.ACQUIRE sem:paced MINHOLD 86400000 TOKEN rests");
    assert_eq!(say("DSEM.RELEASE sem:paced rests"), 1);
    say("DSEM.ACQUIRE sem:paced EX 86400 MINHOLD 5 TOKEN c QUEUE 60000");
    say("DSEM.ACQUIRE sem:lanes EX 86400 LANE b LANELIMIT 2 TOKEN b QUEUE 60000");
    say("DSEM.ACQUIRE sem:lanes EX 86400 LANE b MINHOLD 5 INDEX TOKEN c QUEUE 60000");
    say("DLOCK.ACQUIRE lock:unheard EX 86400 TOKEN a QUEUE 60000");
    assert_eq!(say("DLOCK.RELEASE lock:unheard held"), 1);
    say("DWG.EXPECT group:live 7");
    for key in ["group:live", "group:finished", "group:owed"] {
        say(&format!("DWG.ADD {key} TOKEN done"));
        let (_, lost) = say(&format!("DWG.ADD {key} TOKEN lost")).grant();
        if key == "group:owed" {
            say("DWG.EXPECT group:owed 3");
        }
        assert_eq!(say(&format!("DWG.DONE {key} done")), 1);
        assert_eq!(say(&format!("DWG.REVOKE {key} {lost}")), 1);
    }
    for key in ["once:second", "once:failed", "once:done"] {
        say(&format!("DONCE.BEGIN {key} TOKEN a"));
        assert_eq!(say(&format!("DONCE.FAIL {key} a REASON \"no disk\"")), 1);
    }
    say("DONCE.BEGIN once:failed TOKEN b");
    assert_eq!(say("DONCE.FAIL once:failed b REASON \"no disk\""), 1);
    for key in ["once:silent", "once:given-up"] {
        say(&format!("DONCE.BEGIN {key} TOKEN a PX 1"));
        eventually("the silence of a run", SOON, || {
            *say(&format!("DONCE.INFO {key}")).field("state") == "idle"
        });
    }
    assert_eq!(
        say("DONCE.BEGIN once:given-up MAX 1").as_array()[0],
        *"FAILED"
    );
    let run = say("DONCE.BEGIN once:revoked TOKEN a");
    let fence = run.as_array()[2].as_int();
    assert_eq!(say(&format!("DONCE.REVOKE once:revoked {fence}")), 1);
    say("DONCE.BEGIN once:done TOKEN b");
    let done = "DONCE.DONE once:done b RESULT \"a\\r\\nresult \\xff\" EX 315360000";
    assert_eq!(say(done), 1);
    // The longest delay by default.
    say("DONCE.BEGIN once:delayed TOKEN a");
    let fail = "DONCE.FAIL once:delayed a REASON overload DELAY 86400000";
    assert_eq!(say(fail), 1);
    say("DONCE.BEGIN once:persisted TOKEN a");
    let done = "DONCE.DONE once:persisted a RESULT \"for ever\" PERSIST";
    assert_eq!(say(done), 1);
    // A kept place has its turn, and nobody hears of it: it has displaced a late token, and a finished round.
    say("DONCE.BEGIN once:displaced TOKEN late");
    say("DONCE.BEGIN once:displaced EX 86400 TOKEN a QUEUE 60000");
    say("DONCE.RENEW once:displaced late PX 1");
    say("DWG.EXPECT group:displaced 1");
    say("DWG.ADD group:displaced TOKEN done");
    assert_eq!(say("DWG.DONE group:displaced done"), 1);
    say("DWG.PAUSE group:displaced 60000");
    say("DWG.ADD group:displaced EX 86400 TOKEN a QUEUE 60000");
    say("DWG.PAUSE group:displaced 0");
    for check in [
        "DONCE.CHECK once:displaced a",
        "DWG.CHECK group:displaced a",
    ] {
        eventually("the turn of a kept place", SOON, || say(check).as_int() > 0);
    }
    say("DONCE.BEGIN once:done-without TOKEN a");
    assert_eq!(say("DONCE.DONE once:done-without a EX 315360000"), 1);
    let run = say("DONCE.BEGIN once:second TOKEN b EX 86400 OWNER web-4");
    assert_eq!(run.as_array()[3], 2);
    tokens.insert((database, "once:second".to_owned()), vec![b"b".to_vec()]);
    for key in ["lock:unheard", "group:displaced"] {
        tokens.insert((database, key.to_owned()), vec![b"a".to_vec()]);
    }
    for key in [
        "sem:paused",
        "group:finished",
        "group:owed",
        "once:failed",
        "once:silent",
        "once:given-up",
        "once:revoked",
        "once:done",
        "once:done-without",
        "once:delayed",
        "once:persisted",
        // The late token is used, and not that of the run.
        "once:displaced",
    ] {
        tokens.entry((database, key.to_owned())).or_default();
    }
    client.expect_silence(Duration::ZERO);
    client
}
