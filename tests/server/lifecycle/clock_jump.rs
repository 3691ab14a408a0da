//! The wall clock jumps by an hour, forwards and backwards, while leases and waits run.
//!
//! No lease lapses early, no lapse and no end of a wait is delayed, and fences never go back: leases run on the
//! monotonic clock. A DELAY of work-once runs on the wall clock, as EXPIRE does. A library that is preloaded into the
//! server shifts its wall clock; the tests are skipped without a C compiler.

use super::lease_clock::check;
use crate::support::steps::SOON;
use crate::support::*;
use std::fs;
use std::io::Write as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// C code of a library that shifts the wall clock of a process, and no other clock, by the microseconds in a file. If a
/// number follows them, the shift counts from that reading on.
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

static long long shift_us(void) {
    if (!shift) return 0;
    if (shift[1] > 0) shift[1]--;
    return shift[1] ? 0 : shift[0];
}

__attribute__((constructor)) static void start(void) {
    const char *name = getenv("DSYNC_TEST_SHIFT");
    int file = name ? open(name, O_RDWR) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 2 * sizeof *shift, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) shift = page;
}

static long long now_us(struct timespec *exact, clockid_t id) {
    syscall(SYS_clock_gettime, id, exact);
    return exact->tv_sec * 1000000LL + exact->tv_nsec / 1000 + shift_us();
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

/// A server whose wall clock the test sets.
struct ShiftedServer {
    server: Server,
    folder: Folder,
}

impl ShiftedServer {
    /// Returns `None` without a C compiler.
    fn start() -> Option<ShiftedServer> {
        let folder = Folder::new();
        fs::write(folder.path("shim.c"), SHIM).expect("the shim is written");
        fs::write(folder.path("shift"), [0; 16]).expect("the shift is written");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([folder.path("shim.so"), folder.path("shim.c")])
            .status();
        if !compiled.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no C compiler");
            return None;
        }
        let builder = Server::builder().env("LD_PRELOAD", folder.path("shim.so"));
        let server = builder
            .env("DSYNC_TEST_SHIFT", folder.path("shift"))
            .start();
        Some(ShiftedServer { server, folder })
    }

    fn connect(&self) -> Client {
        self.server.connect()
    }

    fn shift_by(&self, us: i64) {
        self.shift_from_reading(0, us);
    }

    /// Shifts the clock from its next reading with this number on.
    fn shift_from_reading(&self, number: i64, us: i64) {
        // Writes in place: the server has the file mapped, so it must never be truncated.
        let file = fs::OpenOptions::new()
            .write(true)
            .open(self.folder.path("shift"));
        let words = [us.to_ne_bytes(), number.to_ne_bytes()].concat();
        file.and_then(|mut file| file.write_all(&words))
            .expect("the shift is written");
    }
}

const HOUR_US: i64 = 3_600_000_000;

#[test]
fn wall_clock_jump_changes_no_lease_and_no_wait() {
    let Some(server) = ShiftedServer::start() else {
        return;
    };
    let mut client = server.connect();
    let seconds = |client: &mut Client| {
        client.ask("TIME").as_array()[0]
            .as_str()
            .parse::<i64>()
            .expect("a number")
    };
    let (mut last_fence, mut shift) = (0, 0);
    for jump in [-HOUR_US, HOUR_US, HOUR_US, -HOUR_US, -HOUR_US] {
        let mut waiter = server.connect();
        let start = Instant::now();
        let fence = client.ask("DLOCK.ACQUIRE k PX 1200 TOKEN t").grant().1;
        waiter.begin("DLOCK.ACQUIRE k BLOCK 0 TOKEN w");
        eventually("the waiter in its queue", SOON, || {
            *client.ask("DLOCK.INFO k").field("waiters") == 1
        });
        let mut impatient = server.connect();
        impatient.begin("DLOCK.ACQUIRE k BLOCK 300");
        let before = seconds(&mut client);
        shift += jump;
        server.shift_by(shift);
        // Valkey 9.1 reads the system clock only once a millisecond.
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
        // The lapse comes within one tick of the server's cron; the rest is for a machine under load.
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
        assert_eq!(client.ask("DLOCK.RELEASE k w"), 1);
    }
}

/// Whether the library shifts the clock that the module reads. Valkey 9 binds a module's symbols to the C library
/// first.
fn module_sees_shift(server: &ShiftedServer, client: &mut Client) -> bool {
    let mut kept_until = |key: &str| {
        client.ask(format!("DONCE.BEGIN {key} TOKEN t"));
        assert_eq!(client.ask(format!("DONCE.DONE {key} t EX 100000")), 1);
        let info = client.ask(format!("DONCE.INFO {key}"));
        info.field("kept-until-unix-ms").as_int()
    };
    let before = kept_until("before");
    server.shift_by(HOUR_US);
    let after = kept_until("after");
    server.shift_by(0);
    after - before > HOUR_US / 2_000
}

#[test]
fn wall_clock_jump_moves_end_of_delay() {
    const DELAY_MS: i64 = 20_000;
    let Some(server) = ShiftedServer::start() else {
        return;
    };
    let mut client = server.connect();
    if !module_sees_shift(&server, &mut client) {
        eprintln!("skipped: this server does not let the library shift the module's clock");
        return;
    }
    client.ask("DONCE.BEGIN job TOKEN t");
    let mut waiter = server.connect();
    waiter.begin("DONCE.BEGIN job BLOCK 0");
    eventually("the waiter in its queue", SOON, || {
        *client.ask("DONCE.INFO job").field("waiters") == 1
    });
    assert_eq!(
        client.ask(format!("DONCE.FAIL job t DELAY {}", DELAY_MS)),
        1
    );
    server.shift_by(-HOUR_US);
    eventually("an hour more to wait", SOON, || {
        let left_ms = client.ask("DONCE.INFO job");
        left_ms.field("delay-left-ms").as_int() > DELAY_MS
    });
    // The timer was armed for an hour later. The server's cron finds out that the clock has jumped.
    server.shift_by(HOUR_US);
    let begun = waiter.recv(SOON).expect("the waiter begins");
    assert_eq!(begun.as_array()[0], *"RUN");
}

/// The server compares all its timers with the moment at which it began to fire them. If the clock is set back after
/// that moment, a timer that is armed in a timer's callback is due at once, and so is the next one: for an hour here.
#[test]
fn wall_clock_set_back_while_timer_fires_stalls_nobody() {
    const READINGS: i64 = 24;
    let Some(server) = ShiftedServer::start() else {
        return;
    };
    let mut client = server.connect();
    let ticks = |client: &mut Client| {
        let info = client.ask("INFO dsync");
        let line = info
            .as_str()
            .lines()
            .find_map(|line| line.strip_prefix("dsync_timer_ticks:"));
        line.and_then(|ticks| ticks.parse::<i64>().ok())
            .expect("a number")
    };
    client.ask("DLOCK.ACQUIRE far PX 600000");
    let before = ticks(&mut client);
    for reading in 1..=READINGS {
        client.ask("DLOCK.ACQUIRE near PX 3");
        server.shift_from_reading(reading, -HOUR_US);
        thread::sleep(Duration::from_millis(6));
        eventually("the lapse", SOON, || client.ask("DBSIZE") == 1);
        server.shift_by(0);
    }
    let fired = ticks(&mut client) - before;
    assert!((READINGS..READINGS * 5).contains(&fired), "{fired} times");
}
