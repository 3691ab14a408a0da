//! A real server for one test, on a free port of 127.0.0.1 or on a host of its own network, in a folder of its own.
//!
//! Dropping a [`Server`] kills the process and removes the directory; if the test is panicking, it prints the server's
//! log first. The configuration is a file in that directory, so that `CONFIG REWRITE` works and a server that is
//! started again has the same settings. A process on the same port that is not ours is told apart by its process id.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::folder::Folder;
use crate::hosts::HostPlace;
use crate::reply::Reply;
use crate::{call, process};

/// Deadlines for a server to start, load its data and answer, and to save its data and stop.
const START_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// How many bytes of a log a failing test prints, counted from its end.
const LOG_SHOWN: usize = 64 * 1024;

const CONFIG_FILE: &str = "server.conf";
const LOG_FILE: &str = "server.log";
pub(crate) const SOCKET_FILE: &str = "server.sock";

/// How the process is started, each time.
#[derive(Clone)]
pub(crate) struct Launcher {
    pub(crate) program: String,
    /// The words before the program, of one that runs it, such as valgrind.
    pub(crate) under: Vec<String>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Libraries that are loaded before all others.
    pub(crate) preloaded: Vec<PathBuf>,
    pub(crate) place: Option<HostPlace>,
    pub(crate) is_sentinel: bool,
}

/// A running server, or one that was killed and can be started again.
pub struct Server {
    launcher: Launcher,
    folder: Folder,
    port: u16,
    child: Option<Child>,
}

/// Why a server did not start. No process is left.
pub(crate) enum Failure {
    PortTaken,
    /// What happened, with the log.
    Other(String),
}

impl Server {
    pub(crate) fn new(launcher: Launcher, folder: Folder) -> Server {
        Server {
            launcher,
            folder,
            port: 0,
            child: None,
        }
    }

    /// Starts the process for the first time, on this port and with this configuration.
    pub(crate) fn start_on(&mut self, port: u16, config: &str) -> Result<(), Failure> {
        fs::write(self.folder.path(CONFIG_FILE), config).expect("the configuration is written");
        self.port = port;
        self.launch()
    }

    /// The address by which other servers reach this one.
    pub fn ip(&self) -> Ipv4Addr {
        match &self.launcher.place {
            None => Ipv4Addr::LOCALHOST,
            Some(place) => place.address,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn dir(&self) -> &Path {
        self.folder.dir()
    }

    #[track_caller]
    pub fn pid(&self) -> u32 {
        match &self.child {
            Some(child) => child.id(),
            None => panic!("the server is not running"),
        }
    }

    /// A new connection that speaks RESP2.
    #[track_caller]
    pub fn connect(&self) -> Client {
        match self.try_connect() {
            Ok(client) => client,
            Err(error) => panic!("cannot connect to {}:{}: {error}", self.ip(), self.port),
        }
    }

    /// As [`Server::connect`], for a server that may not be there.
    pub fn try_connect(&self) -> io::Result<Client> {
        match self.launcher.place {
            None => Client::connect(SocketAddr::from((self.ip(), self.port))),
            Some(_) => Client::connect_path(&self.folder.path(SOCKET_FILE)),
        }
    }

    /// A new connection that speaks RESP3.
    #[track_caller]
    pub fn connect_resp3(&self) -> Client {
        let mut client = self.connect();
        let hello = call!(client, "HELLO", 3);
        assert_eq!(*hello.field("proto"), 3, "HELLO 3 answered {hello:?}");
        client
    }

    /// What clients call an address.
    pub fn url(&self) -> String {
        format!("redis://{}:{}", self.ip(), self.port)
    }

    /// The log of all its starts, with standard error.
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&self.log_bytes()).into_owned()
    }

    /// Stops the server by SHUTDOWN, which saves as its configuration says, and starts it again with the same directory
    /// and port.
    #[track_caller]
    pub fn restart(&mut self) {
        self.shutdown();
        self.start_again();
    }

    /// `SHUTDOWN`; returns when the process is gone.
    #[track_caller]
    pub fn shutdown(&mut self) {
        let mut client = self.connect();
        // SHUTDOWN has no reply when it works: the connection closes. A reply is an error.
        client.send(&["SHUTDOWN"]);
        client.expect_closed(STOP_WITHIN);
        let child = self.child.as_mut().expect("it answered, so it runs");
        match wait_for_exit(child, STOP_WITHIN) {
            Some(status) if status.success() => self.child = None,
            Some(status) => panic!("after SHUTDOWN the server ended with {status}"),
            None => panic!("the server did not stop within {STOP_WITHIN:?}"),
        }
    }

    /// SIGKILL; returns when the process is gone. [`Server::start_again`] uses the same directory and port.
    #[track_caller]
    pub fn kill9(&mut self) {
        let Some(mut child) = self.child.take() else {
            panic!("the server is not running");
        };
        child.kill().expect("a child of ours may be killed");
        child.wait().expect("a killed child can be waited for");
    }

    /// Adds a line to the configuration of a stopped or killed server, for its next start.
    #[track_caller]
    pub fn configure(&self, name: &str, value: impl Display) {
        assert!(self.child.is_none(), "the server is running");
        let mut file = OpenOptions::new()
            .append(true)
            .open(self.folder.path(CONFIG_FILE))
            .expect("the configuration opens");
        writeln!(file, "{}", config_line(name, &value.to_string())).expect("it is written");
    }

    /// Makes a stopped or killed server load this module from its next start on, with the same arguments.
    #[track_caller]
    pub fn set_module(&self, module: &Path) {
        self.edit_module_line(|arguments| {
            Some(format!("loadmodule {} {arguments}", module.display()))
        });
    }

    /// Makes a stopped or killed server load no module from its next start on.
    #[track_caller]
    pub fn remove_module(&self) {
        self.edit_module_line(|_| None);
    }

    /// Replaces the `loadmodule` line by what becomes of its arguments.
    #[track_caller]
    fn edit_module_line(&self, edited: impl Fn(&str) -> Option<String>) {
        assert!(self.child.is_none(), "the server is running");
        let path = self.folder.path(CONFIG_FILE);
        let configuration = fs::read_to_string(&path).expect("the configuration is read");
        let lines =
            configuration
                .lines()
                .filter_map(|line| match line.strip_prefix("loadmodule ") {
                    Some(words) => {
                        edited(words.split_once(' ').map_or("", |(_, arguments)| arguments))
                    }
                    None => Some(line.to_owned()),
                });
        let lines: String = lines.map(|line| line + "\n").collect();
        fs::write(&path, lines).expect("it is written");
    }

    /// Starts a stopped or killed server with the same directory, configuration and port.
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "the server is already running");
        let deadline = Instant::now() + START_WITHIN;
        loop {
            match self.launch() {
                Ok(()) => return,
                // Clients know the port, so no other will do: try again until the other process gives it up.
                Err(Failure::PortTaken) if Instant::now() < deadline => {}
                Err(Failure::PortTaken) => panic!("port {} stays taken by others", self.port),
                Err(Failure::Other(how)) => panic!("{how}"),
            }
        }
    }

    /// As [`Server::start_again`], but does not wait until the server answers.
    #[track_caller]
    pub fn begin_again(&mut self) {
        assert!(self.child.is_none(), "the server is already running");
        self.spawn().expect("it was started before");
    }

    /// SIGSTOP: the server does nothing until [`Server::cont`]; its connections stay open.
    #[track_caller]
    pub fn stop(&self) {
        process::stop(self.pid());
    }

    /// SIGCONT.
    #[track_caller]
    pub fn cont(&self) {
        process::cont(self.pid());
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path(LOG_FILE)
    }

    /// Starts the process and waits until it answers. After a failure no process is left.
    fn launch(&mut self) -> Result<(), Failure> {
        let log_start = self.log_bytes().len();
        let started = self.spawn().and_then(|()| self.wait_for_answer());
        let Err(how) = started else {
            return Ok(());
        };
        if self.child.is_some() {
            self.kill9();
        }
        let log = self.log_bytes();
        let log = String::from_utf8_lossy(&log[log_start..]);
        if log.contains("Address already in use") {
            return Err(Failure::PortTaken);
        }
        let program = &self.launcher.program;
        Err(Failure::Other(format!("{program} {how}; its log:\n{log}")))
    }

    fn spawn(&mut self) -> Result<(), String> {
        let launcher = &self.launcher;
        let entry = launcher.place.as_ref().map(|place| place.entry.as_slice());
        let mut words = launcher.under.iter().chain([&launcher.program]);
        let first = words.next().expect("the program at least");
        let mut command = process::mortal(entry.unwrap_or_default(), first);
        command.args(words).arg(self.folder.path(CONFIG_FILE));
        if launcher.is_sentinel {
            command.arg("--sentinel");
        }
        if !launcher.preloaded.is_empty() {
            let libraries = launcher.preloaded.iter().map(|library| library.as_os_str());
            let libraries: Vec<&OsStr> = libraries.collect();
            command.env("LD_PRELOAD", libraries.join(OsStr::new(":")));
        }
        command
            .envs(launcher.environment.iter().cloned())
            .current_dir(self.folder.dir())
            .stdout(open_log(&self.log_path()))
            .stderr(open_log(&self.log_path()));
        let child = process::spawn(command)
            .map_err(|error| format!("cannot be started through setpriv (util-linux): {error}"))?;
        // Stored before anything can panic, so that a panic kills the process.
        self.child = Some(child);
        Ok(())
    }

    /// Waits until a server that was begun again answers. Returns what happened otherwise.
    pub fn wait_for_answer(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_WITHIN;
        let pid = self.pid();
        loop {
            match self.child.as_mut().map(Child::try_wait) {
                Some(Ok(None)) => {}
                Some(Ok(Some(status))) => return Err(format!("ended at its start with {status}")),
                other => return Err(format!("cannot be watched: {other:?}")),
            }
            if self.is_answered_by(pid) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!("did not answer within {START_WITHIN:?}"));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether the process `pid` answers on the port and has loaded its data. Another process on the port may answer
    /// anything, or close the connection.
    fn is_answered_by(&self, pid: u32) -> bool {
        let Ok(mut client) = self.try_connect() else {
            return false;
        };
        if !client
            .try_call(&["PING"])
            .is_some_and(|pong| pong == "PONG")
        {
            return false;
        }
        let process_id = format!("process_id:{pid}");
        match client.try_call(&["INFO", "server"]) {
            Some(Reply::Bulk(info)) => String::from_utf8_lossy(&info)
                .lines()
                .any(|line| line == process_id),
            _ => false,
        }
    }

    fn log_bytes(&self) -> Vec<u8> {
        // Before the first start there is no log.
        fs::read(self.log_path()).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Nothing here may panic: the test may be panicking already.
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            let log = self.log_bytes();
            let end = &log[log.len().saturating_sub(LOG_SHOWN)..];
            let program = &self.launcher.program;
            eprintln!("--- log of {program} on port {} ---", self.port);
            eprintln!("{}--- end of log ---", String::from_utf8_lossy(end));
        }
    }
}

pub(crate) fn config_line(name: &str, value: &str) -> String {
    if value.is_empty() {
        format!("{name} \"\"")
    } else {
        format!("{name} {value}")
    }
}

fn open_log(path: &Path) -> File {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()))
}

fn wait_for_exit(child: &mut Child, within: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + within;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}
