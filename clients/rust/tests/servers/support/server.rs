//! A server of a test's own, on a free port of 127.0.0.1, in a folder of its own.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dsync_client::redis::{self, Cmd, FromRedisValue, RedisResult};

use super::{LONG, eventually};

pub struct Server {
    port: u16,
    dir: PathBuf,
    settings: Vec<String>,
    child: Child,
}

impl Server {
    pub fn start() -> Server {
        Server::with(&[])
    }

    /// Starts with further settings, as on the command line: `["--appendonly yes"]`.
    pub fn with(settings: &[&str]) -> Server {
        let module = variable("DSYNC_TEST_MODULE");
        let mut all = vec![format!("--loadmodule {module}")];
        all.extend(settings.iter().map(|&setting| setting.to_owned()));
        Server::launch(&all)
    }

    /// Starts without the module: what Sentinel needs.
    pub fn launch(settings: &[String]) -> Server {
        // Another process may take the port between our look and the server's start.
        for _ in 0..5 {
            let port = free_port();
            let dir = new_dir();
            let mut server = Server {
                port,
                child: spawn(port, &dir, settings),
                dir,
                settings: settings.to_vec(),
            };
            if server.answers() {
                return server;
            }
        }
        panic!("the server does not start with {settings:?}");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn query<T: FromRedisValue>(&self, command: &Cmd) -> T {
        self.try_query(command).expect("the server answers")
    }

    pub fn try_query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(1))?;
        connection.set_read_timeout(Some(Duration::from_secs(5)))?;
        command.query(&mut connection)
    }

    /// Sends a command given as words.
    pub fn run<T: FromRedisValue>(&self, words: &str) -> T {
        self.query(&command(words))
    }

    /// Has a script run until it is killed: meanwhile the server answers BUSY.
    pub fn keep_busy(&self) -> std::thread::JoinHandle<()> {
        let _: String = self.run("CONFIG SET busy-reply-threshold 20");
        let client = redis::Client::open(self.url()).expect("an address");
        let script = std::thread::spawn(move || {
            let mut connection = client.get_connection().expect("a connection");
            let endless = redis::cmd("EVAL")
                .arg("while true do end")
                .arg(0)
                .to_owned();
            assert!(endless.query::<redis::Value>(&mut connection).is_err());
        });
        eventually("the server is busy", || {
            let ping = self.try_query::<String>(&redis::cmd("PING"));
            ping.is_err_and(|error| error.code() == Some("BUSY"))
        });
        script
    }

    pub fn waiters(&self) -> usize {
        self.info("dsync", "dsync_waiters")
            .parse()
            .expect("a number")
    }

    pub fn wait_for_waiters(&self, count: usize) {
        eventually("the number of waiters", || {
            self.info("dsync", "dsync_waiters") == count.to_string()
        });
    }

    /// Waits until the BLOCK of the only client that waits is over, and the next one is on its way.
    pub fn wait_until_no_client_is_blocked(&self) {
        let is_free = || self.info("clients", "blocked_clients") == "0";
        eventually("no client is blocked", || {
            is_free() && {
                std::thread::sleep(Duration::from_millis(200));
                is_free()
            }
        });
    }

    pub fn info(&self, section: &str, field: &str) -> String {
        // A server that changes its role closes connections: what is awaited is asked for again.
        let text: String = self
            .try_query(&command(&format!("INFO {section}")))
            .unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    /// Starts a replica, and waits until it could take over.
    pub fn start_replica(&self) -> Server {
        let replica = Server::with(&[&format!("--replicaof 127.0.0.1 {}", self.port())]);
        eventually("the replica follows", || {
            replica.info("replication", "master_link_status") == "up"
        });
        replica
    }

    /// Freezes the process: its connections stay open, and nothing is answered.
    pub fn stop(&self) {
        self.signal("STOP");
    }

    pub fn cont(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status();
        assert!(status.expect("kill runs").success());
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("the server ends");
    }

    /// Starts again on the same port, with the same files.
    pub fn start_again(&mut self) {
        self.child = spawn(self.port, &self.dir, &self.settings);
        assert!(self.answers(), "the server does not start again");
    }

    fn answers(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < LONG {
            if self.try_query::<String>(&redis::cmd("PING")).is_ok() {
                return true;
            }
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            eprintln!("--- log of the server on port {}\n{log}", self.port);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub fn command(words: &str) -> Cmd {
    let mut words = words.split_ascii_whitespace();
    let mut command = redis::cmd(words.next().expect("a command"));
    for word in words {
        command.arg(word);
    }
    command
}

pub fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set; test.sh says what it is"))
}

/// A free port, 11000 to 20999. It and the port of a cluster bus, 10000 above, are below those that Linux gives to
/// outgoing connections: so none of them takes the port of a server that a test has killed and will start again.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Test processes that run at the same time begin far apart.
    let start = std::process::id().wrapping_mul(7_919);
    loop {
        let step = start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % 10_000;
        let port = 11_000 + u16::try_from(step).expect("below 10000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn spawn(port: u16, dir: &Path, settings: &[String]) -> Child {
    let lines = [
        format!("port {port}"),
        "bind 127.0.0.1".to_owned(),
        "save \"\"".to_owned(),
        format!("dir {}", dir.display()),
        "logfile log".to_owned(),
        "enable-debug-command yes".to_owned(),
    ];
    let config = dir.join("server.conf");
    // Sentinel writes to its file, so a start that follows finds it as it is.
    if !config.exists() {
        let settings = settings
            .iter()
            .map(|setting| setting.trim_start_matches("--").to_owned());
        let is_sentinel = settings
            .clone()
            .any(|setting| setting.starts_with("sentinel "));
        let lines = lines.into_iter().filter(|line| {
            !is_sentinel || !(line.starts_with("save") || line.starts_with("enable-debug"))
        });
        let text = lines.chain(settings).collect::<Vec<_>>().join("\n");
        fs::write(&config, text).expect("the configuration is written");
    }
    let mut command = Command::new(variable("DSYNC_TEST_SERVER"));
    command.arg(&config);
    if settings
        .iter()
        .any(|setting| setting.starts_with("--sentinel "))
    {
        command.arg("--sentinel");
    }
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.spawn().expect("the server starts")
}

fn new_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("dsync-client-{}-{number}", std::process::id());
    let dir = env::temp_dir().join(name);
    fs::create_dir_all(&dir).expect("a folder");
    dir
}
