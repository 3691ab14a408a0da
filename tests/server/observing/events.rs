//! Keyspace notifications: what happens to a key, told to those who subscribe.
//!
//! The promise: every event of the contract and no other; none for what is no event (renewals, tries,
//! looks, queueing); `*.free` when capacity was gained and nobody is queued for it, so that a client that
//! never blocks gets its turn by events alone. In which order events and replies arrive is not promised.

use crate::support::steps::*;
use crate::support::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A connection that is told of everything in every database.
struct Listener {
    client: Client,
    told: u64,
}

const MARKER: &str = "the-end-of-the-step";

impl Listener {
    /// Hears the channels that match.
    #[track_caller]
    fn to(server: &Server, pattern: &str) -> Listener {
        let mut client = server.connect();
        for (command, channel) in [("SUBSCRIBE", MARKER), ("PSUBSCRIBE", pattern)] {
            call!(client, command, channel);
        }
        Listener { client, told: 0 }
    }

    #[track_caller]
    fn to_events(server: &Server) -> Listener {
        Listener::to(server, "__key*__:*")
    }

    /// The next notification, as (channel, message).
    #[track_caller]
    fn next(&mut self, within: Duration) -> Option<(String, String)> {
        let message = self.client.recv(within)?;
        let text = |reply: &Reply| reply.as_bytes().escape_ascii().to_string();
        match message.as_array() {
            [kind, _, channel, message] if *kind == "pmessage" => {
                Some((text(channel), text(message)))
            }
            [kind, channel, message] if *kind == "message" => Some((text(channel), text(message))),
            _ => panic!("expected a message, received {message:?}"),
        }
    }

    /// Waits until somebody tells that there is room; says whether somebody did.
    #[track_caller]
    fn is_told_of_room(&mut self, within: Duration) -> bool {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.next(left) {
                Some((channel, _)) if channel.ends_with(".free") => return true,
                Some(_) => {}
                None => return false,
            }
        }
    }

    /// What was told up to now: as "event key", sorted, for the order is not promised.
    #[track_caller]
    fn so_far(&mut self, publisher: &mut Client) -> Vec<String> {
        self.told += 1;
        let mark = self.told.to_string();
        assert!(call!(publisher, "PUBLISH", MARKER, &mark).as_int() > 0);
        let mut events = Vec::new();
        loop {
            let (channel, message) = self.next(SOON).expect("the marker comes");
            if channel == MARKER {
                if message == mark {
                    events.sort();
                    return events;
                }
                continue;
            }
            events.push(event(&channel, &message));
        }
    }
}

/// "event key" of a notification of either kind, with the database where it is not 0.
#[track_caller]
fn event(channel: &str, message: &str) -> String {
    let (kind, name) = channel
        .split_once("__:")
        .expect("a channel of notifications");
    let (kind, db) = kind
        .trim_start_matches("__")
        .split_once('@')
        .expect("a database");
    let (event, key) = match kind {
        "keyevent" => (name, message),
        "keyspace" => (message, name),
        _ => panic!("an unknown channel: {channel}"),
    };
    match db {
        "0" => format!("{event} {key}"),
        db => format!("{event} {key}@{db}"),
    }
}

fn notifying(classes: &str) -> Server {
    Server::builder()
        .config("notify-keyspace-events", classes)
        .start()
}

/// The fence in a reply, if it is a grant.
fn grant_number(reply: &Reply) -> Option<i64> {
    let Reply::Array(items) = reply else {
        return None;
    };
    items.iter().find_map(|item| match item {
        Reply::Int(n) if *n > 1_000_000 => Some(*n),
        _ => None,
    })
}

/// A story of one key: lines with what must be told after each.
type Steps = &'static [(&'static str, &'static [&'static str])];

#[track_caller]
fn tell_story(classes: &str, steps: Steps) {
    let server = notifying(classes);
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    // Whoever was granted last is FENCE.
    let mut latest = 0;
    for (line, events) in steps {
        let reply = ask(&mut client, line.replace("FENCE", &latest.to_string()));
        assert!(!reply.is_error(), "{line}: {reply:?}");
        if line.contains("ACQUIRE") || line.contains("ADD") || line.contains("BEGIN") {
            latest = grant_number(&reply).unwrap_or(latest);
        }
        assert_eq!(listener.so_far(&mut client), *events, "after {line}");
    }
}

const LOCK: Steps = &[
    ("DLOCK.ACQUIRE k TOKEN a", &["dlock.grant k"]),
    ("DLOCK.ACQUIRE k", &[]),
    ("DLOCK.ACQUIRE k TOKEN a", &[]),
    ("DLOCK.RENEW k a EX 9", &[]),
    ("DLOCK.RENEW k b", &[]),
    ("DLOCK.CHECK k a", &[]),
    ("DLOCK.INFO k", &[]),
    ("DLOCK.RELEASE k b", &[]),
    ("DLOCK.REVOKE k 1", &[]),
    ("DLOCK.RELEASE k a", &["dlock.free k", "dlock.release k"]),
    ("DLOCK.RELEASE k a", &[]),
    ("DLOCK.ACQUIRE k SHARED TOKEN a", &["dlock.grant k"]),
    ("DLOCK.ACQUIRE k SHARED TOKEN b", &["dlock.grant k"]),
    ("DLOCK.RELEASE k a", &["dlock.release k"]),
    ("DLOCK.RELEASE k b", &["dlock.free k", "dlock.release k"]),
    ("DLOCK.ACQUIRE k", &["dlock.grant k"]),
    ("DLOCK.REVOKE k FENCE", &["dlock.free k", "dlock.revoke k"]),
];

const SEMAPHORE: Steps = &[
    ("DSEM.LIMIT k 0", &[]),
    ("DSEM.ACQUIRE k", &[]),
    ("DSEM.LIMIT k 3", &["dsem.free k"]),
    ("DSEM.ACQUIRE k PERMITS 2 TOKEN a", &["dsem.grant k"]),
    ("DSEM.ACQUIRE k PERMITS 2", &[]),
    ("DSEM.ACQUIRE k TOKEN b", &["dsem.grant k"]),
    ("DSEM.RENEW k a", &[]),
    ("DSEM.CHECK k a", &[]),
    ("DSEM.INFO k", &[]),
    ("DSEM.RELEASE k b", &["dsem.free k", "dsem.release k"]),
    ("DSEM.ACQUIRE k TOKEN c", &["dsem.grant k"]),
    ("DSEM.REVOKE k FENCE", &["dsem.free k", "dsem.revoke k"]),
    // Another limit: a gain is an event, a loss is not.
    ("DSEM.LIMIT k 2", &[]),
    ("DSEM.LIMIT k 2", &[]),
    ("DSEM.LIMIT k 9", &["dsem.free k"]),
    ("DSEM.LIMIT k 0", &[]),
    ("DSEM.RELEASE k a", &["dsem.release k"]),
    ("DSEM.LIMIT k 1", &["dsem.free k"]),
];

const GROUP: Steps = &[
    ("DWG.EXPECT k 3", &[]),
    ("DWG.ADD k LIMIT 1 TOKEN a", &["dwg.add k"]),
    ("DWG.ADD k LIMIT 2 TOKEN b", &["dwg.add k"]),
    ("DWG.ADD k", &[]),
    ("DWG.ADD k TOKEN a", &[]),
    ("DWG.RENEW k a", &[]),
    ("DWG.CHECK k a", &[]),
    ("DWG.INFO k", &[]),
    ("DWG.WAIT k", &[]),
    ("DWG.DONE k x", &[]),
    ("DWG.DONE k a", &["dwg.done k", "dwg.free k"]),
    ("DWG.DONE k a", &[]),
    ("DWG.RELEASE k b", &["dwg.free k", "dwg.release k"]),
    ("DWG.ADD k TOKEN c", &["dwg.add k"]),
    ("DWG.REVOKE k FENCE", &["dwg.free k", "dwg.revoke k"]),
    ("DWG.ADD k TOKEN d", &["dwg.add k"]),
    ("DWG.ADD k TOKEN e", &["dwg.add k"]),
    (
        "DWG.DONE k d e",
        &["dwg.done k", "dwg.done k", "dwg.finish k", "dwg.free k"],
    ),
    ("DWG.WAIT k", &[]),
];

/// Without a gate nobody ever stays outside, so nothing comes free.
const UNGATED: Steps = &[
    ("DWG.ADD k TOKEN a", &["dwg.add k"]),
    ("DWG.ADD k TOKEN b", &["dwg.add k"]),
    ("DWG.DONE k a", &["dwg.done k"]),
    ("DWG.DONE k b", &["dwg.done k", "dwg.finish k"]),
];

const ONCE: Steps = &[
    ("DONCE.BEGIN k TOKEN a", &["donce.run k"]),
    ("DONCE.BEGIN k", &[]),
    ("DONCE.BEGIN k TOKEN a", &[]),
    ("DONCE.RENEW k a", &[]),
    ("DONCE.CHECK k a", &[]),
    ("DONCE.INFO k", &[]),
    ("DONCE.FAIL k b", &[]),
    ("DONCE.DONE k b", &[]),
    ("DONCE.FAIL k a", &["donce.fail k", "donce.free k"]),
    ("DONCE.BEGIN k MAX 1", &[]),
    ("DONCE.BEGIN k TOKEN c", &["donce.run k"]),
    ("DONCE.RELEASE k c", &["donce.free k", "donce.release k"]),
    ("DONCE.BEGIN k", &["donce.run k"]),
    ("DONCE.REVOKE k FENCE", &["donce.free k", "donce.revoke k"]),
    ("DONCE.BEGIN k TOKEN d", &["donce.run k"]),
    ("DONCE.DONE k d RESULT r", &["donce.done k"]),
    ("DONCE.DONE k d", &[]),
    ("DONCE.BEGIN k", &[]),
];

#[test]
fn every_event_of_every_family_is_told_and_nothing_else() {
    for classes in ["Ed", "Kd"] {
        for steps in [LOCK, SEMAPHORE, GROUP, UNGATED, ONCE] {
            tell_story(classes, steps);
        }
    }
}

#[test]
fn both_kinds_of_channel_and_the_database_are_as_with_the_servers_own_events() {
    let server = notifying("KEd");
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    ask(&mut client, "SELECT 5");
    ask(&mut client, "DLOCK.ACQUIRE k");
    let told = listener.so_far(&mut client);
    assert_eq!(told, ["dlock.grant k@5", "dlock.grant k@5"]);
    let mut keyed = Listener::to(&server, "__keyspace@5__:k");
    ask(&mut client, "DEL k");
    ask(&mut client, "DLOCK.ACQUIRE other");
    ask(&mut client, "DLOCK.ACQUIRE k");
    assert_eq!(keyed.so_far(&mut server.connect()), ["dlock.grant k@5"]);
}

#[test]
fn nothing_is_told_where_the_server_was_not_asked_to() {
    for classes in ["", "KEg$lshzxet"] {
        let server = Server::start();
        let mut client = server.connect();
        call!(client, "CONFIG", "SET", "notify-keyspace-events", classes);
        let mut listener = Listener::to_events(&server);
        ask(&mut client, "DLOCK.ACQUIRE k TOKEN a");
        ask(&mut client, "DLOCK.RELEASE k a");
        assert!(listener.so_far(&mut client).is_empty());
    }
}

#[test]
fn what_the_server_does_by_itself_is_told_too() {
    let cases = [
        (
            "DLOCK.ACQUIRE k PX 20",
            "dlock.grant",
            "dlock.lapse",
            Some("dlock.free"),
        ),
        (
            "DSEM.ACQUIRE k LIMIT 1 PX 20",
            "dsem.grant",
            "dsem.lapse",
            Some("dsem.free"),
        ),
        (
            "DWG.ADD k LIMIT 1 PX 20",
            "dwg.add",
            "dwg.lapse",
            Some("dwg.free"),
        ),
        ("DWG.ADD k PX 20", "dwg.add", "dwg.lapse", None),
        (
            "DONCE.BEGIN k PX 20",
            "donce.run",
            "donce.lapse",
            Some("donce.free"),
        ),
    ];
    let server = notifying("Ed");
    let mut client = server.connect();
    for (line, begun, lapsed, free) in cases {
        for ephemeral in [false, true] {
            ask(&mut client, "DEL k");
            let mut listener = Listener::to_events(&server);
            if ephemeral {
                let mut holder = server.connect();
                ask(&mut holder, line.replace("PX 20", "EX 600 EPHEMERAL"));
                holder.close();
            } else {
                ask(&mut client, line);
            }
            let mut told = Vec::new();
            while told
                .iter()
                .filter(|event| **event == format!("{lapsed} k"))
                .count()
                == 0
            {
                let (channel, message) = listener.next(SOON).expect("a lapse is told");
                told.push(event(&channel, &message));
            }
            told.extend(listener.so_far(&mut client));
            told.sort();
            let mut expected: Vec<_> = [Some(begun), Some(lapsed), free]
                .into_iter()
                .flatten()
                .map(|event| format!("{event} k"))
                .collect();
            if line.starts_with("DWG") {
                // The round is over with its last member.
                expected.push("dwg.finish k".to_owned());
            }
            expected.sort();
            assert_eq!(told, expected, "{line}, ephemeral: {ephemeral}");
        }
    }
}

#[test]
fn free_is_not_told_while_anybody_is_queued() {
    let server = notifying("Ed");
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN a");
    let mut first = queued(&server, "DLOCK.ACQUIRE k TOKEN b BLOCK 0");
    let mut second = queued(&server, "DLOCK.ACQUIRE k TOKEN c BLOCK 0");
    assert_eq!(
        listener.so_far(&mut client),
        ["dlock.grant k"],
        "queueing is no event"
    );
    ask(&mut client, "DLOCK.RELEASE k a");
    granted(&mut first);
    assert_eq!(
        listener.so_far(&mut client),
        ["dlock.grant k", "dlock.release k"]
    );
    // To the last of them: nobody is queued any more, but nothing was gained for others.
    ask(&mut client, "DLOCK.RELEASE k b");
    granted(&mut second);
    assert_eq!(
        listener.so_far(&mut client),
        ["dlock.grant k", "dlock.release k"]
    );
    ask(&mut client, "DLOCK.RELEASE k c");
    assert_eq!(
        listener.so_far(&mut client),
        ["dlock.free k", "dlock.release k"]
    );

    // Permits that come free and do not suffice for the first in line are for nobody else.
    ask(&mut client, "DSEM.ACQUIRE s LIMIT 4 PERMITS 2 TOKEN a");
    ask(&mut client, "DSEM.ACQUIRE s PERMITS 2 TOKEN b");
    let mut all = queued(&server, "DSEM.ACQUIRE s PERMITS 4 TOKEN c BLOCK 0");
    listener.so_far(&mut client);
    ask(&mut client, "DSEM.RELEASE s a");
    assert_eq!(listener.so_far(&mut client), ["dsem.release s"]);
    ask(&mut client, "DSEM.RELEASE s b");
    granted(&mut all);
    assert_eq!(
        listener.so_far(&mut client),
        ["dsem.grant s", "dsem.release s"]
    );
    // And what is left when the last in line has been served is for everybody.
    let mut one = queued(&server, "DSEM.ACQUIRE s PERMITS 1 TOKEN d BLOCK 0");
    ask(&mut client, "DSEM.RELEASE s c");
    granted(&mut one);
    assert_eq!(
        listener.so_far(&mut client),
        ["dsem.free s", "dsem.grant s", "dsem.release s"]
    );

    ask(&mut client, "DONCE.BEGIN o TOKEN a");
    let mut next = queued(&server, "DONCE.BEGIN o BLOCK 0");
    listener.so_far(&mut client);
    ask(&mut client, "DONCE.FAIL o a");
    reply(&mut next);
    assert_eq!(
        listener.so_far(&mut client),
        ["donce.fail o", "donce.run o"]
    );

    ask(&mut client, "DWG.ADD g LIMIT 1 TOKEN a");
    let mut next = queued(&server, "DWG.ADD g LIMIT 1 BLOCK 0");
    listener.so_far(&mut client);
    ask(&mut client, "DWG.DONE g a");
    granted(&mut next);
    assert_eq!(listener.so_far(&mut client), ["dwg.add g", "dwg.done g"]);
}

/// A vacant place is no waiter: whoever does not block need not wait for it.
#[test]
fn free_is_told_although_a_place_is_kept_for_a_token() {
    let server = notifying("Ed");
    let mut client = server.connect();
    ask(&mut client, "CONFIG SET dsync.rejoin-ms 60000");
    let mut listener = Listener::to_events(&server);
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN a");
    queued(&server, "DLOCK.ACQUIRE k TOKEN b BLOCK 0").close();
    wait_for_blocked(&server, 0);
    ask(&mut client, "DLOCK.RELEASE k a");
    assert_eq!(
        listener.so_far(&mut client),
        ["dlock.free k", "dlock.grant k", "dlock.release k"]
    );
}

/// A try fails while anybody waits. When the last one who waited leaves without having been served, what
/// he waited in front of can be had, and those who tried and do not block must be told.
#[test]
fn free_is_told_when_who_was_queued_gives_up_and_leaves_room_behind() {
    for by_closing in [true, false] {
        let server = notifying("Ed");
        let mut client = server.connect();
        let mut listener = Listener::to_events(&server);
        ask(&mut client, "DSEM.ACQUIRE s LIMIT 3 PERMITS 2");
        let block = if by_closing { 0 } else { 1_000 };
        let mut greedy = queued(&server, format!("DSEM.ACQUIRE s PERMITS 2 BLOCK {block}"));
        listener.so_far(&mut client);
        // One permit is there, and not to be had.
        assert!(ask(&mut client, "DSEM.ACQUIRE s").is_nil());
        if by_closing {
            greedy.close();
        } else {
            assert!(reply(&mut greedy).is_nil());
        }
        wait_for_blocked(&server, 0);
        let told = listener
            .next(SOON)
            .map(|(channel, message)| event(&channel, &message));
        assert_eq!(
            told.as_deref(),
            Some("dsem.free s"),
            "closing: {by_closing}"
        );
        ask(&mut client, "DSEM.ACQUIRE s").grant();
    }
}

/// A limit that comes into force with the first request, or becomes smaller, lets nobody in who had to
/// stay outside: whoever is told that there is room nevertheless comes running for nothing.
#[test]
fn free_is_not_told_of_a_limit_that_gains_nobody_anything() {
    let server = notifying("Ed");
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    let mut wrong = Vec::new();
    for (line, events) in [
        ("DSEM.ACQUIRE s LIMIT 9 TOKEN a", &["dsem.grant s"][..]),
        ("DSEM.ACQUIRE s LIMIT 7 TOKEN b", &["dsem.grant s"]),
        ("DSEM.LIMIT s 6", &[]),
        ("DSEM.LIMIT s 5", &[]),
        ("DSEM.LIMIT s 8", &["dsem.free s"]),
        // Back to the seven that were asked for last.
        ("DSEM.LIMIT s NONE", &[]),
        (
            "DSEM.ACQUIRE s LIMIT 9 TOKEN c",
            &["dsem.free s", "dsem.grant s"],
        ),
        ("DWG.ADD g LIMIT 3 TOKEN a", &["dwg.add g"]),
        ("DWG.ADD g LIMIT 2 TOKEN b", &["dwg.add g"]),
        ("DWG.DONE g b", &["dwg.done g", "dwg.free g"]),
    ] {
        ask(&mut client, line);
        let told = listener.so_far(&mut client);
        if told != *events {
            wrong.push(format!("{line}: {told:?}, not {events:?}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// Who wants to read could not while somebody wrote; now others read, and nobody is queued.
#[test]
fn free_is_told_when_an_exclusive_lock_becomes_a_shared_one_and_nobody_is_queued() {
    let server = notifying("Ed");
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN writer");
    let mut reader = queued(&server, "DLOCK.ACQUIRE k SHARED BLOCK 0");
    assert!(ask(&mut client, "DLOCK.ACQUIRE k SHARED").is_nil());
    listener.so_far(&mut client);
    assert_eq!(ask(&mut client, "DLOCK.RELEASE k writer"), 1);
    granted(&mut reader);
    assert_eq!(
        listener.so_far(&mut client),
        ["dlock.free k", "dlock.grant k", "dlock.release k"]
    );
    ask(&mut client, "DLOCK.ACQUIRE k SHARED").grant();
}

/// How a client without blocking commands gets a lock: it has subscribed, and tries whenever it is told
/// that there is room, or after a while in case that was lost.
fn acquire_by_events(
    client: &mut Client,
    listener: &mut Listener,
    line: &str,
    retry: Duration,
) -> (String, u64) {
    let until = Instant::now() + 3 * SOON;
    loop {
        let reply = ask(client, line);
        if !reply.is_nil() {
            return reply.grant();
        }
        assert!(Instant::now() < until, "no turn for {line}");
        listener.is_told_of_room(retry);
    }
}

#[test]
fn a_client_that_never_blocks_gets_its_turn_by_events() {
    const RETRY: Duration = Duration::from_secs(2);
    struct Family {
        hold: &'static str,
        ends: &'static [&'static str],
        request: &'static str,
    }
    let families = [
        Family {
            hold: "DLOCK.ACQUIRE k TOKEN held",
            ends: &[
                "DLOCK.RELEASE k held",
                "DLOCK.REVOKE k FENCE",
                "DLOCK.RENEW k held PX 20",
            ],
            request: "DLOCK.ACQUIRE k TOKEN mine",
        },
        Family {
            hold: "DSEM.ACQUIRE k LIMIT 2 PERMITS 2 TOKEN held",
            ends: &[
                "DSEM.RELEASE k held",
                "DSEM.REVOKE k FENCE",
                "DSEM.LIMIT k 3",
                "DSEM.RENEW k held PX 20",
            ],
            request: "DSEM.ACQUIRE k LIMIT 2 TOKEN mine",
        },
        Family {
            hold: "DWG.ADD k LIMIT 1 TOKEN held",
            ends: &[
                "DWG.DONE k held",
                "DWG.RELEASE k held",
                "DWG.REVOKE k FENCE",
                "DWG.RENEW k held PX 20",
            ],
            request: "DWG.ADD k LIMIT 1 TOKEN mine",
        },
        Family {
            hold: "DONCE.BEGIN k TOKEN held",
            ends: &[
                "DONCE.FAIL k held",
                "DONCE.RELEASE k held",
                "DONCE.REVOKE k FENCE",
                "DONCE.RENEW k held PX 20",
            ],
            request: "DONCE.BEGIN k TOKEN mine",
        },
    ];
    let server = notifying("Ed");
    let mut holder = server.connect();
    for Family {
        hold,
        ends,
        request,
    } in families
    {
        for end in ends {
            ask(&mut holder, "DEL k");
            let held = ask(&mut holder, format!("{hold} EX 600"));
            let held = grant_number(&held).expect("a fence");
            let mut client = server.connect();
            assert!(ask(&mut client, request).is_nil());
            let mut listener = Listener::to(&server, "__keyevent@0__:*");
            assert!(ask(&mut client, request).is_nil());
            let reply = ask(&mut holder, end.replace("FENCE", &held.to_string()));
            assert!(!reply.is_error() && reply != 0, "{end}: {reply:?}");
            assert!(listener.is_told_of_room(SOON), "told after {end}");
            let reply = ask(&mut client, request);
            assert!(
                !reply.is_error() && !reply.is_nil(),
                "after {end}: {reply:?}"
            );
        }
    }
    // Many of them among those who block: everybody has every turn, one at a time, and nobody hangs.
    let inside = AtomicU32::new(0);
    let turns = AtomicU32::new(0);
    thread::scope(|scope| {
        for n in 0..6 {
            let (server, inside, turns) = (&server, &inside, &turns);
            scope.spawn(move || {
                let mut client = server.connect();
                let mut listener = Listener::to(server, "__keyevent@0__:dlock.*");
                for turn in 0..5 {
                    let line = format!("DLOCK.ACQUIRE shared-by-all TOKEN {n}-{turn}");
                    if n % 2 == 0 {
                        ask(&mut client, format!("{line} BLOCK 0")).grant();
                    } else {
                        acquire_by_events(&mut client, &mut listener, &line, RETRY);
                    }
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    turns.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    let release = format!("DLOCK.RELEASE shared-by-all {n}-{turn}");
                    assert_eq!(ask(&mut client, release), 1);
                }
            });
        }
    });
    assert_eq!(turns.into_inner(), 30);
}

/// An event is sent once, and by the server that decided.
#[test]
fn a_release_that_serves_many_tells_of_each() {
    let server = notifying("Ed");
    let mut client = server.connect();
    ask(&mut client, "DLOCK.ACQUIRE k TOKEN writer");
    let mut readers: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for reader in &mut readers {
        tell(reader, "DLOCK.ACQUIRE k SHARED BLOCK 0");
    }
    wait_for_blocked(&server, 300);
    let mut listener = Listener::to_events(&server);
    ask(&mut client, "DLOCK.RELEASE k writer");
    for reader in &mut readers {
        granted(reader);
    }
    let mut told = BTreeMap::new();
    for event in listener.so_far(&mut client) {
        *told.entry(event).or_insert(0) += 1;
    }
    assert_eq!(told.get("dlock.grant k"), Some(&300), "{told:?}");
    assert_eq!(told.get("dlock.release k"), Some(&1), "{told:?}");
}
