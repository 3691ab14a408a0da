//! Leases while time goes wrong: a stopped process, a slow script, a pause, replicas that are missing, a
//! disk that fails, a wall clock that jumps.
//!
//! The promise: leases run on a clock that stands still while the server could not serve, so that no hold
//! lapses whose renewal was waiting in the socket; and nothing begins or ends while writes are not taken.
//! Also here, since it is the same clock: many leases that are due at once, and very short ones.

use crate::support::*;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

/// What one turn of the event loop may count for: the sleep the server asks for at ten turns a second, and
/// a tenth of a second.
const TURN_MS: i64 = 200;

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("a short while")
}

#[track_caller]
fn check(client: &mut Client, key: &str) -> i64 {
    call!(client, "DLOCK.CHECK", key, "t").as_int()
}

#[track_caller]
fn granted(waiter: &mut Client) -> (String, u64) {
    waiter.recv(SOON).expect("the waiter is granted").grant()
}

/// Waits for nothing but time.
fn until(moment: Instant) {
    eventually("a moment to come", SOON * 2, || Instant::now() >= moment);
}

/// Asserts that the condition holds again and again during a while.
#[track_caller]
fn stays(what: &str, during: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + during;
    while Instant::now() < end {
        assert!(holds(), "not any more: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn assert_calm(server: &Server) {
    assert_eq!(call!(server.connect(), "PING"), "PONG");
    let log = server.log_text();
    for word in ["panic", "ASSERTION", "crashed by signal", "BUG REPORT"] {
        assert!(!log.contains(word), "{word} in the log:\n{log}");
    }
}

#[test]
fn a_hold_whose_renewal_waits_in_the_socket_survives_a_stopped_server() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    for round in 0..3 {
        call!(holder, "DLOCK.ACQUIRE", "k", "PX", 700, "TOKEN", "t");
        send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "w");
        wait_for_blocked(&server, 1);
        assert_eq!(call!(holder, "DLOCK.RENEW", "k", "t"), 1);
        server.stop();
        let stopped = Instant::now();
        send!(holder, "DLOCK.RENEW", "k", "t", "EX", 60);
        until(stopped + Duration::from_millis(1_500));
        server.cont();
        assert_eq!(
            holder.recv(SOON).expect("a reply to RENEW"),
            1,
            "round {round}"
        );
        waiter.expect_silence(Duration::from_millis(50));
        assert_eq!(call!(holder, "DLOCK.RELEASE", "k", "t"), 1);
        granted(&mut waiter);
        assert_eq!(call!(holder, "DLOCK.RELEASE", "k", "w"), 1);
    }
}

/// A stall of the server in which the lease must not run: what CHECK says after it, against before.
#[track_caller]
fn assert_stands_still(server: &Server, stall: impl FnOnce()) {
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    call!(holder, "DLOCK.ACQUIRE", "k", "PX", 1_500, "TOKEN", "t");
    send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "w");
    wait_for_blocked(server, 1);
    let asked = Instant::now();
    let before = check(&mut holder, "k");
    let began = Instant::now();
    stall();
    let ended = Instant::now();
    assert!(
        ended - began > Duration::from_millis(1_500),
        "the stall is longer than the lease"
    );
    let sent = Instant::now();
    let after = check(&mut holder, "k");
    // Three roundings to milliseconds, and two in what CHECK says. Two turns, for the server's own cron may
    // have ended one between the reply to CHECK and the stall.
    let awake = ms(began - asked) + ms(ended.elapsed()) + 5;
    assert!(
        after >= before - 2 * TURN_MS - awake,
        "{before} ms left before, {after} after, {awake} awake"
    );
    waiter.expect_silence(Duration::ZERO);
    // And what is left it has to the end.
    granted(&mut waiter);
    assert!(
        ms(sent.elapsed()) >= after - 1,
        "{after} ms were left, it was lapsed after {:?}",
        sent.elapsed()
    );
    call!(holder, "DEL", "k");
}

#[test]
fn a_hold_lapses_only_after_what_is_left_of_its_lease_when_the_server_was_stopped() {
    let server = Server::start();
    for _ in 0..2 {
        assert_stands_still(&server, || {
            server.stop();
            until(Instant::now() + Duration::from_millis(2_000));
            server.cont();
        });
    }
}

/// For a script to end, and for a reply that it keeps waiting, on a machine that has little time for it.
const SCRIPT_WITHIN: Duration = Duration::from_secs(60);

fn send_slow_script(client: &mut Client, ms: u32) {
    send!(client, "EVAL", busy_for(ms) + "return 'done'", 0);
}

#[track_caller]
fn script_ends(client: &mut Client) {
    assert_eq!(client.recv(SCRIPT_WITHIN).expect("the script ends"), "done");
}

#[test]
fn a_hold_lapses_only_after_what_is_left_of_its_lease_when_a_script_was_slow() {
    let server = Server::start();
    let mut slow = server.connect();
    assert_stands_still(&server, || {
        send_slow_script(&mut slow, 1_700);
        script_ends(&mut slow);
    });
}

#[test]
fn a_hold_whose_renewal_waits_in_the_socket_survives_a_slow_script() {
    // However long the script is on a machine under load, the server does not answer BUSY in the middle.
    let server = Server::builder()
        .config("busy-reply-threshold", 60_000)
        .start();
    let (mut holder, mut waiter, mut slow) = (server.connect(), server.connect(), server.connect());
    call!(holder, "DLOCK.ACQUIRE", "k", "PX", 500, "TOKEN", "t");
    send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0);
    wait_for_blocked(&server, 1);
    assert_eq!(call!(holder, "DLOCK.RENEW", "k", "t"), 1);
    send_slow_script(&mut slow, 1_200);
    send!(holder, "DLOCK.RENEW", "k", "t", "EX", 60);
    assert_eq!(holder.recv(SCRIPT_WITHIN).expect("a reply to RENEW"), 1);
    script_ends(&mut slow);
    waiter.expect_silence(Duration::from_millis(50));
}

#[test]
fn a_script_that_lets_others_in_between_is_still_one_turn() {
    // Past the threshold the server answers BUSY in the middle of the script: no time for a lease.
    let server = Server::builder().config("busy-reply-threshold", 50).start();
    let mut slow = server.connect();
    assert_stands_still(&server, || {
        send_slow_script(&mut slow, 1_700);
        script_ends(&mut slow);
    });
    assert_calm(&server);
}

#[test]
fn during_a_pause_of_writes_no_lease_runs_waits_run_out_and_afterwards_all_goes_on() {
    let server = Server::start();
    let _stream = ReplicationStream::attach(&server);
    let (mut client, mut patient, mut impatient) =
        (server.connect(), server.connect(), server.connect());
    call!(client, "DLOCK.ACQUIRE", "k", "PX", 600, "TOKEN", "t");
    call!(client, "DLOCK.ACQUIRE", "alone", "PX", 600, "TOKEN", "t");
    call!(client, "DWG.ADD", "g", "PX", 600, "TOKEN", "t");
    send!(patient, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "w");
    wait_for_blocked(&server, 1);
    send!(impatient, "DLOCK.ACQUIRE", "k", "BLOCK", 900);
    let mut watcher = server.connect();
    send!(watcher, "DWG.WAIT", "g", "BLOCK", 0);
    wait_for_blocked(&server, 3);
    assert_eq!(call!(client, "CLIENT", "PAUSE", 60_000, "WRITE"), "OK");
    // The turn of the pause itself may still count.
    let first = check(&mut client, "k");
    let (left, alone) = (check(&mut client, "k"), check(&mut client, "alone"));
    assert!(left > 0 && left <= first, "{left}");
    stays(
        "a lease that stands still",
        Duration::from_millis(1_200),
        || check(&mut client, "k") == left && check(&mut client, "alone") == alone,
    );
    assert!(impatient.recv(SOON).expect("the wait runs out").is_nil());
    patient.expect_silence(Duration::ZERO);
    assert_eq!(call!(client, "CLIENT", "UNPAUSE"), "OK");
    assert_eq!(granted(&mut patient).0, "w");
    let finished = watcher.recv(SOON).expect("the round finishes");
    assert_eq!(finished.as_array(), [Reply::Int(0), Reply::Int(1)]);
    eventually("the lock that nobody waits for to lapse", SOON, || {
        call!(client, "EXISTS", "alone") == 0
    });
    assert_calm(&server);
}

#[test]
fn a_pause_that_runs_out_by_itself_ends_like_one_that_is_ended() {
    let server = Server::start();
    let _stream = ReplicationStream::attach(&server);
    let mut client = server.connect();
    for kind in ["WRITE", "ALL"] {
        let mut waiter = server.connect();
        call!(client, "DLOCK.ACQUIRE", "k", "PX", 300, "TOKEN", "t");
        send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "PX", 100);
        wait_for_blocked(&server, 1);
        assert_eq!(call!(client, "CLIENT", "PAUSE", 700, kind), "OK");
        granted(&mut waiter);
        eventually("the waiter's own lapse", SOON, || {
            call!(client, "EXISTS", "k") == 0
        });
    }
    assert_calm(&server);
}

/// A server that refuses writes unless a replica is at hand.
fn in_need_of_a_replica() -> (Server, ReplicationStream) {
    let server = Server::builder()
        .config("min-replicas-to-write", 1)
        .config("min-replicas-max-lag", 10)
        .start();
    let stream = ReplicationStream::attach(&server);
    eventually("writes to be taken", SOON, || {
        call!(server.connect(), "SET", "x", 1) == "OK"
    });
    (server, stream)
}

#[track_caller]
fn refuses_with(client: &mut Client, code: &str) -> bool {
    match call!(client, "SET", "x", 1) {
        Reply::Error(text) => {
            assert!(text.starts_with(code), "{text}");
            true
        }
        _ => false,
    }
}

/// Asserts that no lease runs and nothing is granted while writes are refused, then that all goes on
/// promptly when `recover` has made the server take them again. The server refuses writes already, or
/// does so soon.
#[track_caller]
fn assert_held_up(server: &Server, code: &str, refuse: impl FnOnce(), recover: impl FnOnce()) {
    let mut client = server.connect();
    call!(client, "DLOCK.ACQUIRE", "k", "PX", 1_500, "TOKEN", "t");
    let mut lapse = server.connect();
    send!(lapse, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "w");
    // Behind an exclusive request that will go away: a shared one that then could be granted.
    call!(client, "DLOCK.ACQUIRE", "shared", "SHARED", "EX", 600);
    let (mut first, mut second) = (server.connect(), server.connect());
    wait_for_blocked(server, 1);
    let first_id = first.id();
    send!(first, "DLOCK.ACQUIRE", "shared", "BLOCK", 0);
    wait_for_blocked(server, 2);
    send!(second, "DLOCK.ACQUIRE", "shared", "SHARED", "BLOCK", 0);
    let mut ephemeral = server.connect();
    call!(ephemeral, "DLOCK.ACQUIRE", "bound", "EPHEMERAL", "EX", 600);
    let mut heir = server.connect();
    send!(heir, "DLOCK.ACQUIRE", "bound", "BLOCK", 0, "TOKEN", "heir");
    let mut impatient = server.connect();
    send!(impatient, "DLOCK.ACQUIRE", "k", "BLOCK", 400);
    wait_for_blocked(server, 5);

    refuse();
    eventually("writes to be refused", SOON, || {
        refuses_with(&mut client, code)
    });
    // The server is asked ten times a second whether it takes writes; from then on no lease runs.
    let mut left = check(&mut client, "k");
    eventually("a lease that stands still", SOON, || {
        thread::sleep(Duration::from_millis(120));
        let before = std::mem::replace(&mut left, check(&mut client, "k"));
        before == left
    });
    assert!(left > 0, "the lease was long enough for this story");
    assert_eq!(call!(client, "CLIENT", "KILL", "ID", first_id), 1);
    ephemeral.close();
    stays(
        "a lease that stands still",
        Duration::from_millis(1_600),
        || check(&mut client, "k") == left,
    );
    let refused = call!(client, "DLOCK.RENEW", "k", "t");
    assert!(refused.error().starts_with(code), "{refused:?}");
    lapse.expect_silence(Duration::ZERO);
    second.expect_silence(Duration::ZERO);
    heir.expect_silence(Duration::ZERO);
    assert!(
        impatient
            .recv(SOON)
            .expect("a wait runs out all the same")
            .is_nil()
    );

    recover();
    eventually("writes to be taken", SOON, || {
        !refuses_with(&mut client, code)
    });
    let back = Instant::now();
    granted(&mut second);
    assert_eq!(granted(&mut heir).0, "heir");
    // A tenth of a second is promised; the rest is for a machine under load.
    assert!(
        back.elapsed() < Duration::from_millis(1_100),
        "granted {:?} after",
        back.elapsed()
    );
    assert_eq!(granted(&mut lapse).0, "w");
    assert_calm(server);
}

#[test]
fn without_enough_replicas_no_lease_runs_and_no_timer_grants() {
    let (server, stream) = in_need_of_a_replica();
    let mut replaced = None;
    assert_held_up(
        &server,
        "NOREPLICAS",
        || drop(stream),
        || replaced = Some(ReplicationStream::attach(&server)),
    );
}

#[test]
fn after_a_save_that_failed_no_lease_runs_and_no_timer_grants() {
    // The save ends by renaming its file over a directory, which cannot be: not by root either.
    let server = Server::builder().config("save", "3600 1000000").start();
    let in_the_way = server.dir().join("dump.rdb");
    let save = |server: &Server, status: &str| {
        let reply = call!(server.connect(), "BGSAVE");
        assert!(!reply.is_error(), "{reply:?}");
        eventually("the end of a save", SOON, || {
            let info = server.info_section("persistence");
            info.contains("rdb_bgsave_in_progress:0") && info.contains(status)
        });
    };
    assert_held_up(
        &server,
        "MISCONF",
        || {
            fs::create_dir_all(in_the_way.join("full")).expect("a directory is made");
            save(&server, "rdb_last_bgsave_status:err");
        },
        || {
            fs::remove_dir_all(&in_the_way).expect("a directory is removed");
            save(&server, "rdb_last_bgsave_status:ok");
        },
    );
}

#[test]
fn what_ends_in_the_very_turn_in_which_writes_are_taken_again_leaves_nothing_behind() {
    let (server, stream) = in_need_of_a_replica();
    let mut client = server.connect();
    call!(client, "DLOCK.ACQUIRE", "k", "EX", 60, "TOKEN", "t");
    call!(
        client,
        "DSEM.ACQUIRE",
        "s",
        "LIMIT",
        1,
        "EX",
        60,
        "TOKEN",
        "t"
    );
    call!(client, "DWG.ADD", "g", "EX", 60, "TOKEN", "t");
    drop(stream);
    eventually("writes to be refused", SOON, || {
        refuses_with(&mut client, "NOREPLICAS")
    });
    // The server's cron has seen it too when a lease stands still.
    let mut left = 0;
    eventually("a lease that stands still", SOON, || {
        thread::sleep(Duration::from_millis(120));
        let before = std::mem::replace(&mut left, check(&mut client, "k"));
        before == left
    });
    client.send_raw(
        b"CONFIG SET min-replicas-to-write 0\r\nDLOCK.RELEASE k t\r\nDSEM.RELEASE s t\r\nDWG.DONE g t\r\n",
    );
    assert_eq!(client.recv(SOON).expect("a reply"), "OK");
    for _ in 0..3 {
        assert_eq!(client.recv(SOON).expect("a reply"), 1);
    }
    eventually("keys without holds to go", SOON, || {
        call!(client, "EXISTS", "k", "s") == 0
    });
    eventually("a round without members to finish", SOON, || {
        *call!(client, "DWG.INFO", "g").field("state") == *"finished"
    });
}

#[test]
fn what_ends_in_the_very_turn_in_which_a_pause_ends_leaves_nothing_behind() {
    let server = Server::start();
    let mut client = server.connect();
    for round in 0..5 {
        call!(client, "DLOCK.ACQUIRE", "k", "EX", 60, "TOKEN", "t");
        let mut waiter = server.connect();
        call!(
            client,
            "DLOCK.ACQUIRE",
            "waited for",
            "EX",
            60,
            "TOKEN",
            "t"
        );
        send!(
            waiter,
            "DLOCK.ACQUIRE",
            "waited for",
            "BLOCK",
            0,
            "TOKEN",
            round
        );
        wait_for_blocked(&server, 1);
        assert_eq!(call!(client, "CLIENT", "PAUSE", 60_000, "WRITE"), "OK");
        check(&mut client, "k");
        client
            .send_raw(b"CLIENT UNPAUSE\r\nDLOCK.RELEASE k t\r\nDLOCK.RELEASE \"waited for\" t\r\n");
        assert_eq!(client.recv(SOON).expect("a reply"), "OK");
        assert_eq!(client.recv(SOON).expect("a reply"), 1);
        assert_eq!(client.recv(SOON).expect("a reply"), 1);
        assert_eq!(granted(&mut waiter).0, round.to_string());
        assert_eq!(call!(client, "DLOCK.RELEASE", "waited for", round), 1);
        eventually("keys without holds to go", SOON, || {
            call!(client, "DBSIZE") == 0
        });
    }
}

#[test]
fn a_thousand_leases_that_are_due_at_once_are_all_handed_on() {
    let server = Server::start();
    let mut client = server.connect();
    let mut waiters: Vec<_> = (0..1_000).map(|_| server.connect()).collect();
    let lines: String = (0..1_000)
        .map(|n| format!("DLOCK.ACQUIRE k{n} PX 1500 TOKEN t{n}\r\n"))
        .collect();
    client.send_raw(lines.as_bytes());
    let fences: Vec<_> = (0..1_000).map(|_| granted(&mut client).1).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        send!(
            waiter,
            "DLOCK.ACQUIRE",
            format!("k{n}"),
            "BLOCK",
            0,
            "TOKEN",
            format!("w{n}")
        );
    }
    for (n, waiter) in waiters.iter_mut().enumerate() {
        let (token, fence) = granted(waiter);
        assert_eq!(token, format!("w{n}"));
        assert!(fence > fences[n]);
    }
    wait_for_blocked(&server, 0);
    assert_calm(&server);
}

#[test]
fn leases_that_run_out_one_after_the_other_serve_a_queue_in_its_order() {
    let server = Server::start();
    let mut client = server.connect();
    for lease in [1, 2, 10] {
        call!(client, "DLOCK.ACQUIRE", "k", "PX", 400);
        let mut waiters: Vec<_> = (0..100).map(|_| server.connect()).collect();
        for (n, waiter) in waiters.iter_mut().enumerate() {
            send!(
                waiter,
                "DLOCK.ACQUIRE",
                "k",
                "PX",
                lease,
                "BLOCK",
                0,
                "TOKEN",
                format!("{lease}:{n}")
            );
            // In this order: the server has the request before the next connection sends its own.
            if n % 10 == 9 {
                assert_eq!(call!(client, "PING"), "PONG");
            }
            wait_for_at_least(&server, &mut client, n as u64 + 1);
        }
        let mut last = 0;
        for (n, waiter) in waiters.iter_mut().enumerate() {
            let (token, fence) = granted(waiter);
            assert_eq!(token, format!("{lease}:{n}"));
            assert!(fence > last, "waiter {n} passed an earlier one");
            last = fence;
        }
        eventually("the last lapse", SOON, || call!(client, "EXISTS", "k") == 0);
    }
}

/// Waits until the key's queue has seen this many, those granted meanwhile included.
fn wait_for_at_least(server: &Server, client: &mut Client, count: u64) {
    eventually("a queued request", SOON, || {
        let info = call!(client, "DLOCK.INFO", "k");
        let queued = if info.is_nil() {
            0
        } else {
            info.field("waiters").as_int().unsigned_abs()
        };
        // Once the first lease has run out the queue shrinks while it grows.
        queued >= count || blocked_clients(server) < count
    });
}

#[test]
fn many_leases_lapse_while_commands_go_on() {
    let server = Server::start();
    let mut client = server.connect();
    for from in (0..20_000).step_by(1_000) {
        let lines: String = (from..from + 1_000)
            .map(|n| format!("DLOCK.ACQUIRE k{n} PX 700\r\n"))
            .collect();
        client.send_raw(lines.as_bytes());
        for _ in 0..1_000 {
            granted(&mut client);
        }
    }
    call!(client, "DLOCK.ACQUIRE", "lasting", "EX", 60, "TOKEN", "t");
    let mut rounds = 0;
    eventually("all lapses", Duration::from_secs(20), || {
        rounds += 1;
        assert!(check(&mut client, "lasting") > 0);
        assert!(call!(client, "DLOCK.ACQUIRE", "lasting").is_nil());
        assert!(
            call!(client, "DLOCK.ACQUIRE", "busy", "TOKEN", rounds)
                .grant()
                .1
                > 0
        );
        assert_eq!(call!(client, "DLOCK.RELEASE", "busy", rounds), 1);
        call!(client, "DBSIZE") == 1
    });
    assert_calm(&server);
}

#[test]
fn where_a_grant_and_the_end_of_a_wait_are_both_due_after_a_stall_the_grant_wins() {
    let server = Server::start();
    let (mut client, mut slow) = (server.connect(), server.connect());
    for _ in 0..5 {
        let mut waiter = server.connect();
        call!(client, "DLOCK.ACQUIRE", "k", "PX", 150);
        send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 180, "TOKEN", "w");
        wait_for_blocked(&server, 1);
        send_slow_script(&mut slow, 400);
        script_ends(&mut slow);
        let reply = waiter.recv(SOON).expect("the waiter is answered");
        assert_eq!(reply.grant().0, "w");
        assert_eq!(call!(client, "DLOCK.RELEASE", "k", "w"), 1);
    }
}

/// Shifts the wall clock of a process, and no other clock, by what a file says in microseconds.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *shift;

__attribute__((constructor)) static void start(void) {
    const char *name = getenv("DSYNC_TEST_SHIFT");
    int file = name ? open(name, O_RDONLY) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) shift = page;
}

static long long now_us(struct timespec *exact, clockid_t id) {
    syscall(SYS_clock_gettime, id, exact);
    return exact->tv_sec * 1000000LL + exact->tv_nsec / 1000 + (shift ? *shift : 0);
}

int clock_gettime(clockid_t id, struct timespec *to) {
    if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) return syscall(SYS_clock_gettime, id, to);
    long long us = now_us(to, id);
    to->tv_sec = us / 1000000;
    to->tv_nsec = us % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
    struct timespec exact;
    long long us = now_us(&exact, CLOCK_REALTIME);
    (void)zone;
    to->tv_sec = us / 1000000;
    to->tv_usec = us % 1000000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec exact;
    time_t now = now_us(&exact, CLOCK_REALTIME) / 1000000;
    if (to) *to = now;
    return now;
}
"#;

/// A server whose wall clock the story sets. Made by hand, for the harness gives servers no environment.
struct ShiftedServer {
    child: Child,
    dir: PathBuf,
    address: SocketAddr,
}

impl ShiftedServer {
    /// `None` without a C compiler.
    fn start() -> Option<ShiftedServer> {
        let dir = std::env::temp_dir().join(format!("dsync-test-clock-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory is made");
        fs::write(dir.join("shim.c"), SHIM).expect("the shim is written");
        fs::write(dir.join("shift"), 0i64.to_ne_bytes()).expect("the shift is written");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([dir.join("shim.so"), dir.join("shim.c")])
            .status();
        if !compiled.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no C compiler");
            return None;
        }
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = free.local_addr().expect("a bound socket has an address");
        drop(free);
        let server = std::env::var("DSYNC_TEST_SERVER").unwrap_or("redis-server".to_owned());
        let module = std::env::var("DSYNC_TEST_MODULE").unwrap_or(format!(
            "{}/target/release/libdsync.so",
            env!("CARGO_MANIFEST_DIR")
        ));
        let module = fs::canonicalize(module).expect("the module is built");
        let child = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                &server,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .args(["--port", &address.port().to_string(), "--logfile", "log"])
            .arg("--dir")
            .arg(&dir)
            .arg("--loadmodule")
            .arg(module)
            .env("LD_PRELOAD", dir.join("shim.so"))
            .env("DSYNC_TEST_SHIFT", dir.join("shift"))
            .stdout(Stdio::null())
            .spawn()
            .expect("the server starts");
        let server = ShiftedServer {
            child,
            dir,
            address,
        };
        eventually("the server's answer", SOON, || {
            Client::connect(address).is_ok_and(|mut client| {
                client
                    .try_call(&["PING"])
                    .is_some_and(|pong| pong == "PONG")
            })
        });
        Some(server)
    }

    fn connect(&self) -> Client {
        Client::connect(self.address).expect("the server listens")
    }

    fn shift_by(&self, us: i64) {
        // In place: the server has the file mapped, and there must be a page at all times.
        let file = fs::OpenOptions::new()
            .write(true)
            .open(self.dir.join("shift"));
        file.and_then(|mut file| file.write_all(&us.to_ne_bytes()))
            .expect("the shift is written");
    }
}

impl Drop for ShiftedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!(
                "{}",
                fs::read_to_string(self.dir.join("log")).unwrap_or_default()
            );
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn a_jump_of_the_wall_clock_lapses_nothing_early_and_holds_nothing_up() {
    const HOUR_US: i64 = 3_600_000_000;
    let Some(server) = ShiftedServer::start() else {
        return;
    };
    let mut client = server.connect();
    let seconds = |client: &mut Client| {
        call!(client, "TIME").as_array()[0]
            .as_str()
            .parse::<i64>()
            .expect("a number")
    };
    let (mut last_fence, mut shift) = (0, 0);
    for jump in [-HOUR_US, HOUR_US, HOUR_US, -HOUR_US, -HOUR_US] {
        let mut waiter = server.connect();
        let start = Instant::now();
        let fence = call!(client, "DLOCK.ACQUIRE", "k", "PX", 1_200, "TOKEN", "t")
            .grant()
            .1;
        send!(waiter, "DLOCK.ACQUIRE", "k", "BLOCK", 0, "TOKEN", "w");
        eventually("the waiter in its queue", SOON, || {
            *call!(client, "DLOCK.INFO", "k").field("waiters") == 1
        });
        let mut impatient = server.connect();
        send!(impatient, "DLOCK.ACQUIRE", "k", "BLOCK", 300);
        let before = seconds(&mut client);
        shift += jump;
        server.shift_by(shift);
        // Not at once: Valkey 9.1 reads the system's clock only once a millisecond.
        eventually("the server's clock to jump", SOON, || {
            let jumped = seconds(&mut client) - before;
            (jumped - jump / 1_000_000).abs() < 60
        });
        assert!(check(&mut client, "k") > 0 || start.elapsed() >= Duration::from_millis(1_200));
        assert!(
            impatient
                .recv(Duration::from_secs(3))
                .expect("its wait runs out")
                .is_nil()
        );
        assert!(start.elapsed() >= Duration::from_millis(300));
        // Within one tick of the server's cron after the lease; the rest is for a machine under load.
        let next = waiter
            .recv(Duration::from_secs(4))
            .expect("the lapse was held up by the clock")
            .grant()
            .1;
        assert!(
            start.elapsed() >= Duration::from_millis(1_200),
            "lapsed early, after {:?}",
            start.elapsed()
        );
        assert!(
            fence > last_fence && next > fence,
            "fences never go back: {last_fence} {fence} {next}"
        );
        last_fence = next;
        assert_eq!(call!(client, "DLOCK.RELEASE", "k", "w"), 1);
    }
}

#[test]
fn a_server_that_is_stopped_again_and_again_wedges_nobody() {
    let server = Server::start();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..4 {
            let (server, over) = (&server, &over);
            scope.spawn(move || {
                let mut client = server.connect();
                let mut done = 0;
                while !over.load(Ordering::Relaxed) || done < 8 {
                    let token = format!("{worker}:{done}");
                    let reply = call!(
                        client,
                        "DLOCK.ACQUIRE",
                        "k",
                        "PX",
                        150,
                        "BLOCK",
                        8_000,
                        "TOKEN",
                        &token
                    );
                    let (mine, _) = reply.grant();
                    assert_eq!(mine, token);
                    if done % 3 != 0 {
                        call!(client, "DLOCK.RELEASE", "k", &token);
                    }
                    done += 1;
                }
            });
        }
        for _ in 0..6 {
            server.stop();
            until(Instant::now() + Duration::from_millis(120));
            server.cont();
            until(Instant::now() + Duration::from_millis(100));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_calm(&server);
}
