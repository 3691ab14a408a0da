//! A real server for one test, on a free port of 127.0.0.1 or on a [`Host`], in a directory of its own.
//!
//! Dropping a [`Server`] kills the process and removes the directory; if the test is panicking, it prints the server's
//! log first. The configuration is a file in that directory, so that `CONFIG REWRITE` works and a server that is
//! started again has the same settings. A process on the same port that is not ours is told apart by its process id.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Client, call};
use super::eventually::eventually;
use super::flavour::Flavour;
use super::hosts::{Host, HostPlace};
use super::reply::Reply;
use super::{ports, process};

/// Deadlines for a server to start, load its data and answer, and to save its data and stop.
const START_WITHIN: Duration = Duration::from_secs(30);
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// The deadline for a replica's synchronisation.
const SYNC_WITHIN: Duration = Duration::from_secs(30);
/// How many ports a new server tries.
const PORTS_TO_TRY: usize = 20;
/// How many bytes of a log a failing test prints, counted from its end.
const LOG_SHOWN: usize = 64 * 1024;

const CONFIG_FILE: &str = "server.conf";
const LOG_FILE: &str = "server.log";
const SOCKET_FILE: &str = "server.sock";

/// The settings of every server, unless a test sets them.
const DEFAULTS: &[(&str, &str)] = &[
    ("save", ""),
    ("appendonly", "no"),
    ("enable-debug-command", "yes"),
    ("enable-module-command", "yes"),
    // By default a primary waits five seconds for more replicas before it sends a snapshot.
    ("repl-diskless-sync-delay", "0"),
];

/// How a server is to be started. [`Server::builder`] makes one.
pub struct Builder {
    with_module: bool,
    /// Another module than [`module_path`].
    module: Option<PathBuf>,
    module_arguments: Vec<String>,
    config: Vec<(String, String)>,
    wait_for_sync: bool,
    place: Option<HostPlace>,
    is_sentinel: bool,
    keeps_library: bool,
}

impl Builder {
    /// Adds a line to the configuration. It replaces the harness's default for this name; a name given twice has both
    /// lines. The value is written as it is: put quotes around what the server would split.
    pub fn config(mut self, name: &str, value: impl Display) -> Builder {
        self.config.push((name.to_owned(), value.to_string()));
        self
    }

    /// An argument after the module's path in `loadmodule`.
    pub fn module_arg(mut self, argument: impl Display) -> Builder {
        self.module_arguments.push(argument.to_string());
        self
    }

    /// Loads this module instead of the one that is tested.
    pub fn module(mut self, path: &Path) -> Builder {
        self.module = Some(path.to_owned());
        self
    }

    /// Starts the server without dsync.
    pub fn without_module(mut self) -> Builder {
        self.with_module = false;
        self
    }

    /// Keeps the module's library in the process although the module is refused or unloaded, as systems do that never
    /// unload libraries.
    pub fn keeping_library(mut self) -> Builder {
        self.keeps_library = true;
        self
    }

    /// Makes the server a replica; `start` returns when its first synchronisation with `primary` is done.
    pub fn replica_of(self, primary: &Server) -> Builder {
        let address = format!("{} {}", primary.ip(), primary.port());
        let mut builder = self.config("replicaof", address);
        builder.wait_for_sync = true;
        builder
    }

    /// Starts the server on this host; tests connect to it by the socket in its directory.
    pub fn on(mut self, host: &Host) -> Builder {
        self.place = Some(host.place());
        self
    }

    /// Starts the program as a sentinel, without the module.
    pub fn sentinel(mut self) -> Builder {
        self.is_sentinel = true;
        self.without_module()
    }

    /// Starts the server; panics with its log if it does not come up.
    #[track_caller]
    pub fn start(self) -> Server {
        let mut server = Server {
            binary: server_binary(),
            dir: make_dir(),
            port: 0,
            place: self.place.clone(),
            is_sentinel: self.is_sentinel,
            keeps_library: self.keeps_library,
            child: None,
        };
        for _ in 0..PORTS_TO_TRY {
            server.port = ports::next_port();
            let config = self.config_text(server.port);
            fs::write(server.dir.join(CONFIG_FILE), config).expect("the configuration is written");
            match server.launch() {
                Launch::Ready => {
                    if self.wait_for_sync {
                        server.wait_for_sync();
                    }
                    return server;
                }
                Launch::PortTaken => {}
                Launch::Failed(how) => panic!("{} {how}", server.binary),
            }
        }
        panic!("{PORTS_TO_TRY} ports were free and then taken by others");
    }

    fn config_text(&self, port: u16) -> String {
        let mut lines = vec![format!("port {port}"), "daemonize no".to_owned()];
        match &self.place {
            None => lines.push("bind 127.0.0.1".to_owned()),
            Some(place) => {
                lines.push(format!("bind {}", place.address));
                // Only the test's own servers can reach this address.
                lines.push("protected-mode no".to_owned());
                // In the server's working directory.
                lines.push(format!("unixsocket {SOCKET_FILE}"));
            }
        }
        let is_given = |name: &str| {
            self.config
                .iter()
                .any(|(given, _)| given.eq_ignore_ascii_case(name))
        };
        for (name, value) in DEFAULTS.iter().filter(|(name, _)| !is_given(name)) {
            lines.push(config_line(name, value));
        }
        for (name, value) in &self.config {
            lines.push(config_line(name, value));
        }
        if self.with_module {
            let module = self.module.clone().unwrap_or_else(module_path);
            let mut line = format!("loadmodule {}", module.display());
            for argument in &self.module_arguments {
                line.push(' ');
                line.push_str(argument);
            }
            lines.push(line);
        }
        lines.join("\n") + "\n"
    }
}

/// A running server, or one that was killed and can be started again.
pub struct Server {
    binary: String,
    dir: PathBuf,
    port: u16,
    place: Option<HostPlace>,
    is_sentinel: bool,
    keeps_library: bool,
    child: Option<Child>,
}

impl Server {
    /// A server with the module and the harness's defaults.
    #[track_caller]
    pub fn start() -> Server {
        Server::builder().start()
    }

    pub fn builder() -> Builder {
        Builder {
            with_module: true,
            module: None,
            module_arguments: Vec::new(),
            config: Vec::new(),
            wait_for_sync: false,
            place: None,
            is_sentinel: false,
            keeps_library: false,
        }
    }

    /// The address by which other servers reach this one.
    pub fn ip(&self) -> Ipv4Addr {
        match &self.place {
            None => Ipv4Addr::LOCALHOST,
            Some(place) => place.address,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn dir(&self) -> &Path {
        &self.dir
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
        match self.place {
            None => Client::connect(SocketAddr::from((self.ip(), self.port))),
            Some(_) => Client::connect_path(&self.dir.join(SOCKET_FILE)),
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

    /// A field of INFO; panics with the section if it is not there.
    #[track_caller]
    pub fn info(&self, section: &str, field: &str) -> String {
        let info = self.info_section(section);
        let value = info
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        match value {
            Some(value) => value.to_owned(),
            None => panic!("no {field} in INFO {section}:\n{info}"),
        }
    }

    /// A field of INFO that is a whole number.
    #[track_caller]
    pub fn info_number(&self, section: &str, field: &str) -> u64 {
        let value = self.info(section, field);
        match value.parse() {
            Ok(number) => number,
            Err(_) => panic!("{field} of INFO {section} is not a whole number: {value:?}"),
        }
    }

    /// A whole section of INFO.
    #[track_caller]
    pub fn info_section(&self, section: &str) -> String {
        call!(self.connect(), "INFO", section).as_str().to_owned()
    }

    #[track_caller]
    pub fn flavour(&self) -> Flavour {
        Flavour::from_info(&self.info_section("server"))
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
            .open(self.dir.join(CONFIG_FILE))
            .expect("the configuration opens");
        writeln!(file, "{}", config_line(name, &value.to_string())).expect("it is written");
    }

    /// Starts a stopped or killed server with the same directory, configuration and port.
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "the server is already running");
        let deadline = Instant::now() + START_WITHIN;
        loop {
            match self.launch() {
                Launch::Ready => return,
                // Clients know the port, so no other will do: try again until the other process gives it up.
                Launch::PortTaken if Instant::now() < deadline => {}
                Launch::PortTaken => panic!("port {} stays taken by others", self.port),
                Launch::Failed(how) => panic!("{} {how}", self.binary),
            }
        }
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

    /// Waits until this replica has synchronised with its primary.
    #[track_caller]
    pub fn wait_for_sync(&self) {
        eventually("a replica with its link up", SYNC_WITHIN, || {
            self.info("replication", "master_link_status") == "up"
        });
    }

    /// Waits until this replica has applied everything that `primary` has replicated by now.
    #[track_caller]
    pub fn wait_to_catch_up_with(&self, primary: &Server) {
        let target = primary.info_number("replication", "master_repl_offset");
        eventually("a replica at its primary's offset", SYNC_WITHIN, || {
            let info = self.info_section("replication");
            let offset = info
                .lines()
                .find_map(|line| line.strip_prefix("slave_repl_offset:")?.parse().ok());
            offset.is_some_and(|offset: u64| offset >= target)
        });
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join(LOG_FILE)
    }

    /// Starts the process and waits until it answers. After any result but `Ready` no process is left.
    fn launch(&mut self) -> Launch {
        let log_start = self.log_bytes().len();
        let entry = self.place.as_ref().map(|place| place.entry.as_slice());
        let mut command = process::mortal_through(entry.unwrap_or_default(), &self.binary);
        command.arg(self.dir.join(CONFIG_FILE));
        if self.is_sentinel {
            command.arg("--sentinel");
        }
        if self.keeps_library {
            command.env("LD_PRELOAD", module_path());
        }
        command
            .current_dir(&self.dir)
            .stdout(open_log(&self.log_path()))
            .stderr(open_log(&self.log_path()));
        match process::spawn(command) {
            // Stored first, so that a panic below still kills the process.
            Ok(child) => self.child = Some(child),
            Err(error) => {
                return Launch::Failed(format!(
                    "cannot be started through setpriv (util-linux): {error}"
                ));
            }
        }
        let Err(failure) = self.wait_for_answer() else {
            return Launch::Ready;
        };
        self.kill9();
        let log = self.log_bytes();
        if String::from_utf8_lossy(&log[log_start..]).contains("Address already in use") {
            return Launch::PortTaken;
        }
        Launch::Failed(failure)
    }

    fn wait_for_answer(&mut self) -> Result<(), String> {
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
            eprintln!("--- log of {} on port {} ---", self.binary, self.port);
            eprintln!("{}--- end of log ---", String::from_utf8_lossy(end));
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

enum Launch {
    Ready,
    PortTaken,
    Failed(String),
}

fn config_line(name: &str, value: &str) -> String {
    if value.is_empty() {
        format!("{name} \"\"")
    } else {
        format!("{name} {value}")
    }
}

/// The server program: a name to look up on PATH, or an absolute path, because the server runs in another directory.
/// Links are not resolved: Debian's `redis-server` is a link, and the program behind it goes by the name it was called
/// by.
fn server_binary() -> String {
    let binary = std::env::var("DSYNC_TEST_SERVER").unwrap_or("redis-server".to_owned());
    if !binary.contains('/') {
        return binary;
    }
    std::path::absolute(&binary)
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok())
        .unwrap_or(binary)
}

/// The module under test.
#[track_caller]
pub fn module_path() -> PathBuf {
    let path = match std::env::var_os("DSYNC_TEST_MODULE") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("target/release/libdsync.so"),
    };
    match path.canonicalize() {
        Ok(path) => path,
        Err(error) => panic!(
            "no module at {} ({error}): `cargo build --release` makes it, DSYNC_TEST_MODULE names another",
            path.display()
        ),
    }
}

fn make_dir() -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    loop {
        let name = format!(
            "dsync-test-{}-{}",
            std::process::id(),
            MADE.fetch_add(1, Ordering::Relaxed)
        );
        let dir = std::env::temp_dir().join(name);
        match fs::create_dir(&dir) {
            Ok(()) => return dir,
            // The directory of a killed run that had the same process id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => panic!("cannot make {}: {error}", dir.display()),
        }
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
