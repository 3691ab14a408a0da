//! What a user at a terminal sees, and what the keys do. Each command is the leader of a session on a terminal of its
//! own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;

use nix::libc;
use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use crate::support::{Folder, Process, Server, ToolFor, let_go, until, wait_for_line};

struct Screen {
    process: Process,
    keys: File,
    shown: Arc<Mutex<String>>,
}

impl Screen {
    /// Starts a command of the tool on a terminal of 160 columns.
    fn of(server: &Server, arguments: &[&str]) -> Screen {
        Screen::with(server, arguments, &[])
    }

    fn with(server: &Server, arguments: &[&str], environment: &[(&str, &str)]) -> Screen {
        Screen::sized(160, 30, server, arguments, environment)
    }

    fn sized(
        columns: u16,
        lines: u16,
        server: &Server,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Screen {
        let size = Winsize {
            ws_row: lines,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let side = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut tool = server.dsync(arguments).0;
        tool.stdin(side())
            .stdout(side())
            .stderr(side())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .envs(environment.iter().copied());
        // SAFETY: setsid and ioctl are async-signal-safe.
        unsafe {
            tool.pre_exec(|| {
                nix::unistd::setsid()?;
                match libc::ioctl(0, libc::TIOCSCTTY, 0) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let process = Process(tool.spawn().unwrap());
        let mut output = File::from(pty.master.try_clone().unwrap());
        let shown = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                seen.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        Screen {
            process,
            keys: File::from(pty.master),
            shown,
        }
    }

    fn until_shows(&self, text: &str) {
        until(&format!("'{text}' is shown"), || self.text().contains(text));
    }

    fn text(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }
}

#[test]
fn waiting_shows_holder_and_place_and_ctrl_c_ends_it() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE k PX 60000 TOKEN t OWNER web-1");
    server.ask("DLOCK.ACQUIRE k PX 60000 TOKEN u QUEUE 60000");
    let mut screen = Screen::of(&server, &["run", "--lock", "k", "--", "true"]);
    screen.until_shows("for lock 'k': place 2 of 2; held by web-1 for");
    screen.press("\x03");
    assert_eq!(screen.process.status(), 130);
    assert_eq!(server.info_number("dsync", "dsync_waiters"), 1);
}

#[test]
fn terminal_that_does_not_know_its_size_shows_as_much_as_a_usual_one() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE k PX 60000 TOKEN t OWNER web-1");
    let waiting = Screen::sized(0, 0, &server, &["run", "--lock", "k", "--", "true"], &[]);
    waiting.until_shows("for lock 'k': place 1 of 1; held by web-1");
    let top = Screen::sized(0, 0, &server, &["top", "--interval", "100ms"], &[]);
    top.until_shows("web-1");
}

#[test]
fn waiting_line_is_gone_when_the_command_runs() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE k PX 60000 TOKEN t OWNER web-1");
    let mut screen = Screen::of(&server, &["run", "--lock", "k", "--", "echo", "begun"]);
    screen.until_shows("place 1 of 1");
    server.ask("DLOCK.RELEASE k t");
    assert_eq!(screen.process.status(), 0);
    screen.until_shows("\r\x1b[Kbegun");
}

#[test]
fn command_reads_from_the_terminal() {
    let server = Server::start();
    let script = "read -r name; echo \"hello $name\"";
    let mut screen = Screen::of(&server, &["run", "--lock", "k", "--", "sh", "-c", script]);
    until("it holds", || {
        server.info_number("dsync", "dsync_holds") == 1
    });
    screen.press("world\n");
    screen.until_shows("hello world");
    assert_eq!(screen.process.status(), 0);
}

#[test]
fn ctrl_c_reaches_the_command() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!(
        "trap 'exit 9' INT; touch '{}'; while :; do sleep 0.02; done",
        folder.text("ready")
    );
    let mut screen = Screen::of(&server, &["run", "--lock", "k", "--", "sh", "-c", &script]);
    until("the command is ready", || folder.has("ready"));
    screen.press("\x03");
    assert_eq!(screen.process.status(), 9);
}

#[test]
fn suspended_command_goes_on_while_its_hold_lasts() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!(
        "touch '{}'; {}; exit 4",
        folder.text("ready"),
        wait_for_line(&folder.path("go"))
    );
    let mut screen = Screen::of(
        &server,
        &[
            "run", "--lock", "k", "--lease", "60s", "--", "sh", "-c", &script,
        ],
    );
    until("the command is ready", || folder.has("ready"));
    screen.press("\x1a");
    until_stopped(&screen);
    let _line = let_go(&folder.path("go"));
    screen.process.signal(Signal::SIGCONT);
    assert_eq!(screen.process.status(), 4);
}

#[test]
fn command_that_was_suspended_past_its_lease_does_no_more_work() {
    let (server, folder) = (Server::start(), Folder::new());
    let script = format!(
        "touch '{}'; {}; touch '{}'",
        folder.text("ready"),
        wait_for_line(&folder.path("go")),
        folder.text("worked")
    );
    let mut screen = Screen::of(
        &server,
        &[
            "run", "--lock", "k", "--lease", "1s", "--", "sh", "-c", &script,
        ],
    );
    until("the command is ready", || folder.has("ready"));
    screen.press("\x1a");
    until_stopped(&screen);
    until("the hold lapses", || {
        server.info_number("dsync", "dsync_holds") == 0
    });
    let _line = let_go(&folder.path("go"));
    screen.process.signal(Signal::SIGCONT);
    assert_eq!(screen.process.status(), 79);
    assert!(!folder.has("worked"));
}

fn until_stopped(screen: &Screen) {
    until("the tool is stopped", || {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        matches!(
            waitpid(screen.process.pid(), Some(flags)),
            Ok(WaitStatus::Stopped(..))
        )
    });
}

#[test]
fn top_is_a_live_view_that_q_ends() {
    let server = Server::start();
    let mut screen = Screen::of(&server, &["top", "--interval", "100ms"]);
    screen.until_shows("Nobody waits.");
    server.ask("DLOCK.ACQUIRE jobs:1 PX 60000 TOKEN t OWNER web-1");
    server.ask("DLOCK.ACQUIRE jobs:1 PX 60000 TOKEN u OWNER web-2 QUEUE 60000");
    screen.until_shows("jobs:1");
    screen.until_shows("web-2");
    screen.press("q");
    assert_eq!(screen.process.status(), 0);
    until("the shell's screen is back", || {
        screen.text().ends_with("\x1b[?1049l")
    });
}

#[test]
fn top_sorts_and_filters_what_it_shows() {
    let server = Server::start();
    for (key, waiters) in [("mail", 1), ("jobs", 2)] {
        server.ask(format!("DLOCK.ACQUIRE {key} PX 60000 TOKEN t OWNER a"));
        for n in 0..waiters {
            server.ask(format!("DLOCK.ACQUIRE {key} TOKEN {n} QUEUE 60000"));
        }
    }
    let mut screen = Screen::of(&server, &["top", "--interval", "100ms"]);
    screen.until_shows("keys: the longest wait first");
    let order = |text: &str| {
        let last = text.rfind("keys: ").unwrap_or(0);
        (text[last..].find("mail"), text[last..].find("jobs"))
    };
    until(
        "mail is first",
        || matches!(order(&screen.text()), (Some(mail), Some(jobs)) if mail < jobs),
    );
    screen.press("s");
    screen.until_shows("keys: the most waiters first");
    until(
        "jobs is first",
        || matches!(order(&screen.text()), (Some(mail), Some(jobs)) if jobs < mail),
    );
    screen.press("/ai");
    screen.until_shows("only keys like: ai");
    screen.press("\r");
    screen.until_shows("; only 'ai'");
    until("only mail is shown", || {
        matches!(order(&screen.text()), (Some(_), None))
    });
    screen.press("/x*\r");
    screen.until_shows("Nobody waits for such a key.");
    screen.press("\x03");
    assert_eq!(screen.process.status(), 0);
}

#[test]
fn top_that_is_paused_keeps_its_picture() {
    let server = Server::start();
    let wait_for = |key: &str| {
        server.ask(format!("DLOCK.ACQUIRE {key} PX 60000 TOKEN t"));
        server.ask(format!("DLOCK.ACQUIRE {key} TOKEN u QUEUE 60000"));
    };
    let mut screen = Screen::of(&server, &["top", "--interval", "100ms"]);
    screen.until_shows("Nobody waits.");
    screen.until_shows("p pause");
    screen.press("p");
    screen.until_shows("PAUSED, p goes on");
    wait_for("jobs");
    // This takes as long as several looks would.
    let once = ["top", "--once", "--interval", "500ms"];
    assert!(server.dsync(&once).stdout().contains("jobs"));
    // Each key of the keyboard draws the picture anew.
    for order in ["the most waiters", "the longest held", "by name"] {
        let last = screen.text().len();
        screen.press("s");
        until("it is drawn", || screen.text()[last..].contains(order));
        assert!(!screen.text().contains("jobs"), "{}", screen.text());
    }
    screen.press(" ");
    screen.until_shows("jobs");
    screen.press("q");
    assert_eq!(screen.process.status(), 0);
}

#[test]
fn top_looks_into_a_key_and_revokes_after_a_question() {
    let server = Server::start();
    for owner in ["web-1", "web-2"] {
        server.ask(format!(
            "DSEM.ACQUIRE s PX 60000 TOKEN {owner} OWNER {owner} LIMIT 2"
        ));
    }
    server.ask("DSEM.ACQUIRE s PX 60000 TOKEN next OWNER web-3 QUEUE 60000");
    let mut screen = Screen::of(&server, &["top", "--interval", "100ms"]);
    screen.until_shows("web-3");
    screen.press("\r");
    screen.until_shows("semaphore 's' of");
    screen.until_shows("of web-1   ↑ ↓ another");
    screen.press("\x1b[B");
    screen.until_shows("of web-2   ↑ ↓ another");
    screen.press("r");
    screen.until_shows("of web-2? [y/N]");
    screen.press("\r");
    screen.until_shows("nothing was revoked");
    assert_eq!(server.info_number("dsync", "dsync_holds"), 2);
    screen.press("r");
    until("it asks again", || {
        screen.text().matches("of web-2? [y/N]").count() > 1
    });
    screen.press("y");
    screen.until_shows("revoked ");
    until("the hold is over and the place is given", || {
        server.info_number("dsync", "dsync_sem_revoked") == 1
    });
    screen.press("q");
    screen.until_shows("s sort");
    screen.press("q");
    assert_eq!(screen.process.status(), 0);
}

#[test]
fn top_tells_that_a_server_that_is_lost_revoked_nothing() {
    let mut server = Server::start();
    server.ask("DLOCK.ACQUIRE k PX 60000 OWNER web-1");
    server.ask("DLOCK.ACQUIRE k TOKEN next OWNER web-2 QUEUE 60000");
    let mut screen = Screen::of(&server, &["top", "--interval", "100ms"]);
    screen.until_shows("web-2");
    screen.press("\r");
    screen.until_shows("of web-1   ↑ ↓ another");
    screen.press("r");
    screen.until_shows("of web-1? [y/N]");
    server.kill9();
    screen.until_shows("no answer; trying again");
    screen.press("y");
    screen.until_shows("nothing was revoked: its server does not answer");
    screen.press("\x03");
    assert_eq!(screen.process.status(), 0);
}

#[test]
fn top_that_is_ended_by_a_signal_gives_the_terminal_back() {
    let server = Server::start();
    for signal in [Signal::SIGTERM, Signal::SIGQUIT] {
        let mut screen = Screen::of(&server, &["top", "--interval", "1h"]);
        screen.until_shows("\x1b[?1049h");
        screen.process.signal(signal);
        screen.until_shows("\x1b[?1049l");
        assert_eq!(screen.process.status(), 128 + signal as i32);
    }
}

#[test]
fn terminal_has_colours_unless_no_color_forbids_them() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE a PX 60000 OWNER web-1");
    for (value, has_colours) in [("", true), ("1", false)] {
        let mut screen = Screen::with(&server, &["ls"], &[("NO_COLOR", value)]);
        assert_eq!(screen.process.status(), 0);
        screen.until_shows("web-1");
        assert_eq!(screen.text().contains("\x1b["), has_colours, "{value:?}");
    }
    let (_, piped, _) = server.dsync(&["ls"]).output();
    assert!(!piped.contains('\x1b'), "{piped}");
}

#[test]
fn revoke_of_an_owner_shows_the_holds_and_asks() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE a PX 60000 OWNER web-1");
    let mut screen = Screen::of(&server, &["revoke", "--owner", "web-*"]);
    screen.until_shows("Revoke it? [y/N]");
    screen.press("n\n");
    assert_eq!(screen.process.status(), 1);
    assert_eq!(server.info_number("dsync", "dsync_holds"), 1);
    let mut screen = Screen::of(&server, &["revoke", "--owner", "web-*"]);
    screen.until_shows("Revoke it? [y/N]");
    screen.press("y\n");
    assert_eq!(screen.process.status(), 0);
    assert_eq!(server.info_number("dsync", "dsync_holds"), 0);
}
