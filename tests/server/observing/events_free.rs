//! The events `*.free`: sent when capacity was gained and nobody is queued for it, and only then. With them a client
//! that never blocks gets its turn.

use crate::observing::listener::*;
use crate::support::steps::*;
use crate::support::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn free_event_is_not_sent_while_anyone_is_queued() {
    let server = notifying("Ed");
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    client.ask("DLOCK.ACQUIRE k TOKEN a");
    let mut first = server.waiting("DLOCK.ACQUIRE k TOKEN b BLOCK 0");
    let mut second = server.waiting("DLOCK.ACQUIRE k TOKEN c BLOCK 0");
    assert_eq!(
        listener.so_far(&mut client),
        ["dlock.grant k"],
        "queueing is no event"
    );
    client.ask("DLOCK.RELEASE k a");
    first.granted();
    assert_eq!(
        listener.so_far(&mut client),
        ["dlock.grant k", "dlock.release k"]
    );
    // The queue is empty after this grant, but no capacity is left for others.
    client.ask("DLOCK.RELEASE k b");
    second.granted();
    assert_eq!(
        listener.so_far(&mut client),
        ["dlock.grant k", "dlock.release k"]
    );
    client.ask("DLOCK.RELEASE k c");
    assert_eq!(
        listener.so_far(&mut client),
        ["dlock.free k", "dlock.release k"]
    );

    // Free permits that are too few for the first waiter are for nobody else.
    client.ask("DSEM.ACQUIRE s LIMIT 4 PERMITS 2 TOKEN a");
    client.ask("DSEM.ACQUIRE s PERMITS 2 TOKEN b");
    let mut all = server.waiting("DSEM.ACQUIRE s PERMITS 4 TOKEN c BLOCK 0");
    listener.so_far(&mut client);
    client.ask("DSEM.RELEASE s a");
    assert_eq!(listener.so_far(&mut client), ["dsem.release s"]);
    client.ask("DSEM.RELEASE s b");
    all.granted();
    assert_eq!(
        listener.so_far(&mut client),
        ["dsem.grant s", "dsem.release s"]
    );
    // Permits that are left when the last waiter has been granted are free for everybody.
    let mut one = server.waiting("DSEM.ACQUIRE s PERMITS 1 TOKEN d BLOCK 0");
    client.ask("DSEM.RELEASE s c");
    one.granted();
    assert_eq!(
        listener.so_far(&mut client),
        ["dsem.free s", "dsem.grant s", "dsem.release s"]
    );

    client.ask("DONCE.BEGIN o TOKEN a");
    let mut next = server.waiting("DONCE.BEGIN o BLOCK 0");
    listener.so_far(&mut client);
    client.ask("DONCE.FAIL o a");
    next.reply();
    assert_eq!(
        listener.so_far(&mut client),
        ["donce.fail o", "donce.run o"]
    );

    client.ask("DWG.ADD g LIMIT 1 TOKEN a");
    let mut next = server.waiting("DWG.ADD g LIMIT 1 BLOCK 0");
    listener.so_far(&mut client);
    client.ask("DWG.DONE g a");
    next.granted();
    assert_eq!(listener.so_far(&mut client), ["dwg.add g", "dwg.done g"]);
}

/// A vacant place is no waiter, so a try would succeed.
#[test]
fn free_event_is_sent_despite_a_vacant_place() {
    let server = notifying("Ed");
    let mut client = server.connect();
    client.ask("CONFIG SET dsync.rejoin-ms 60000");
    let mut listener = Listener::to_events(&server);
    client.ask("DLOCK.ACQUIRE k TOKEN a");
    server.waiting("DLOCK.ACQUIRE k TOKEN b BLOCK 0").close();
    server.wait_for_blocked(0);
    client.ask("DLOCK.RELEASE k a");
    assert_eq!(
        listener.so_far(&mut client),
        ["dlock.free k", "dlock.grant k", "dlock.release k"]
    );
}

/// A try fails while anyone waits, even if permits are free. When the last waiter leaves without a grant, these permits
/// can be had, so clients that only try must get the event.
#[test]
fn free_event_is_sent_when_the_last_waiter_leaves_capacity_behind() {
    for by_closing in [true, false] {
        let server = notifying("Ed");
        let mut client = server.connect();
        let mut listener = Listener::to_events(&server);
        client.ask("DSEM.ACQUIRE s LIMIT 3 PERMITS 2");
        let block = if by_closing { 0 } else { 1_000 };
        let mut greedy = server.waiting(format!("DSEM.ACQUIRE s PERMITS 2 BLOCK {block}"));
        listener.so_far(&mut client);
        // One permit is free, but a try fails because of the waiter.
        assert!(client.ask("DSEM.ACQUIRE s").is_nil());
        if by_closing {
            greedy.close();
        } else {
            assert!(greedy.reply().is_nil());
        }
        server.wait_for_blocked(0);
        let sent = listener
            .next(SOON)
            .map(|(channel, message)| event(&channel, &message));
        assert_eq!(
            sent.as_deref(),
            Some("dsem.free s"),
            "closing: {by_closing}"
        );
        client.ask("DSEM.ACQUIRE s").grant();
    }
}

/// The first limit and a lowered limit add no capacity. With an event, clients would try for nothing.
#[test]
fn free_event_is_not_sent_for_a_limit_that_adds_no_capacity() {
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
        // Back to the remembered limit of seven.
        ("DSEM.LIMIT s NONE", &[]),
        (
            "DSEM.ACQUIRE s LIMIT 9 TOKEN c",
            &["dsem.free s", "dsem.grant s"],
        ),
        ("DWG.ADD g LIMIT 3 TOKEN a", &["dwg.add g"]),
        ("DWG.ADD g LIMIT 2 TOKEN b", &["dwg.add g"]),
        ("DWG.DONE g b", &["dwg.done g", "dwg.free g"]),
    ] {
        client.ask(line);
        let sent = listener.so_far(&mut client);
        if sent != *events {
            wrong.push(format!("{line}: {sent:?}, not {events:?}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// A shared try failed while the lock was exclusive; it succeeds when the lock has become shared and nobody is queued.
#[test]
fn free_event_is_sent_when_an_exclusive_lock_becomes_shared() {
    let server = notifying("Ed");
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    client.ask("DLOCK.ACQUIRE k TOKEN writer");
    let mut reader = server.waiting("DLOCK.ACQUIRE k SHARED BLOCK 0");
    assert!(client.ask("DLOCK.ACQUIRE k SHARED").is_nil());
    listener.so_far(&mut client);
    assert_eq!(client.ask("DLOCK.RELEASE k writer"), 1);
    reader.granted();
    assert_eq!(
        listener.so_far(&mut client),
        ["dlock.free k", "dlock.grant k", "dlock.release k"]
    );
    client.ask("DLOCK.ACQUIRE k SHARED").grant();
}

/// Acquires without BLOCK: tries again after each `*.free`, and after `retry` in case an event was lost.
fn acquire_by_events(
    client: &mut Client,
    listener: &mut Listener,
    line: &str,
    retry: Duration,
) -> (String, u64) {
    let until = Instant::now() + 3 * SOON;
    loop {
        let reply = client.ask(line);
        if !reply.is_nil() {
            return reply.grant();
        }
        assert!(Instant::now() < until, "no turn for {line}");
        listener.hears_free(retry);
    }
}

#[test]
fn client_that_never_blocks_gets_its_turn_by_free_events() {
    const RETRY: Duration = Duration::from_secs(2);
    struct FamilyEnds {
        hold: &'static str,
        ends: &'static [&'static str],
        request: &'static str,
    }
    let families = [
        FamilyEnds {
            hold: "DLOCK.ACQUIRE k TOKEN held",
            ends: &[
                "DLOCK.RELEASE k held",
                "DLOCK.REVOKE k FENCE",
                "DLOCK.RENEW k held PX 20",
            ],
            request: "DLOCK.ACQUIRE k TOKEN mine",
        },
        FamilyEnds {
            hold: "DSEM.ACQUIRE k LIMIT 2 PERMITS 2 TOKEN held",
            ends: &[
                "DSEM.RELEASE k held",
                "DSEM.REVOKE k FENCE",
                "DSEM.LIMIT k 3",
                "DSEM.RENEW k held PX 20",
            ],
            request: "DSEM.ACQUIRE k LIMIT 2 TOKEN mine",
        },
        FamilyEnds {
            hold: "DWG.ADD k LIMIT 1 TOKEN held",
            ends: &[
                "DWG.DONE k held",
                "DWG.RELEASE k held",
                "DWG.REVOKE k FENCE",
                "DWG.RENEW k held PX 20",
            ],
            request: "DWG.ADD k LIMIT 1 TOKEN mine",
        },
        FamilyEnds {
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
    for FamilyEnds {
        hold,
        ends,
        request,
    } in families
    {
        for end in ends {
            holder.ask("DEL k");
            let held = holder.ask(format!("{hold} EX 600"));
            let held = fence_in(&held).expect("a grant");
            let mut client = server.connect();
            assert!(client.ask(request).is_nil());
            let mut listener = Listener::to(&server, "__keyevent@0__:*");
            assert!(client.ask(request).is_nil());
            let reply = holder.ask(end.replace("FENCE", &held.to_string()));
            assert!(!reply.is_error() && reply != 0, "{end}: {reply:?}");
            assert!(listener.hears_free(SOON), "no event *.free after {end}");
            let reply = client.ask(request);
            assert!(
                !reply.is_error() && !reply.is_nil(),
                "after {end}: {reply:?}"
            );
        }
    }
    // Three clients that only try and three that block: each of them gets all its turns, one at a time.
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
                        client.ask(format!("{line} BLOCK 0")).grant();
                    } else {
                        acquire_by_events(&mut client, &mut listener, &line, RETRY);
                    }
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    turns.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    let release = format!("DLOCK.RELEASE shared-by-all {n}-{turn}");
                    assert_eq!(client.ask(release), 1);
                }
            });
        }
    });
    assert_eq!(turns.into_inner(), 30);
}

/// The free event comes once, at the end of the pause, and not when a hold ends in it.
#[test]
fn free_event_is_sent_at_the_end_of_a_pause() {
    let server = notifying("Ed");
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    for family in Family::ALL {
        let (family, request) = (family.prefix(), family.request("k"));
        let event = family.to_lowercase();
        client.ask(format!("{request} TOKEN t"));
        client.ask(format!("{family}.PAUSE k 600000"));
        client.ask(format!("{family}.RELEASE k t"));
        let heard = listener.so_far(&mut client);
        assert!(
            heard.iter().all(|heard| !heard.contains(".free")),
            "{family}: {heard:?}"
        );
        // By a command.
        client.ask(format!("{family}.PAUSE k 0"));
        let heard = listener.so_far(&mut client);
        assert_eq!(heard, [format!("{event}.free k")], "{family}");
        client.ask("DEL k");
        // By the timer.
        client.ask(format!("{family}.PAUSE k 5"));
        assert!(listener.hears_free(SOON), "{family}");
        // Not while a waiter takes it.
        client.ask(format!("{family}.PAUSE k 600000"));
        let mut waiter = server.waiting(format!("{request} BLOCK 0 TOKEN w"));
        client.ask(format!("{family}.PAUSE k 0"));
        waiter.reply();
        let heard = listener.so_far(&mut client);
        assert!(
            heard.iter().all(|heard| !heard.contains(".free")),
            "{family}: {heard:?}"
        );
        client.ask("DEL k");
        listener.so_far(&mut client);
    }
}

/// A listener of `dwg.finish` would start the next stage of a job for a group that was paused while it did not exist.
#[test]
fn pause_of_absent_group_finishes_no_round() {
    let server = notifying("Ed");
    let mut client = server.connect();
    let mut listener = Listener::to_events(&server);
    client.ask("DWG.PAUSE g 600000");
    let finished = Reply::Array(vec![Reply::Int(0), Reply::Int(0)]);
    assert_eq!(client.ask("DWG.WAIT g BLOCK 0"), finished);
    assert_eq!(listener.so_far(&mut client), [""; 0]);
    // A request that waits to be added holds up WAIT.
    let mut member = server.waiting("DWG.ADD g BLOCK 0 TOKEN m");
    assert!(client.ask("DWG.WAIT g").is_nil());
    let mut watcher = server.waiting("DWG.WAIT g BLOCK 0");
    client.ask("DWG.PAUSE g 0");
    member.granted();
    client.ask("DWG.DONE g m");
    assert_eq!(
        watcher.reply(),
        Reply::Array(vec![Reply::Int(1), Reply::Int(0)])
    );
}
