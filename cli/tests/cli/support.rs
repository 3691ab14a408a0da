//! Servers, commands and conditions. Everything that is started here ends with the test, whatever happens.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;
use redis::FromRedisValue;

/// How long a condition may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a condition holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// A folder that is removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("dsync-cli-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns a path for a shell script.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Returns what a file has, nothing if there is none.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub fn touch(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed at the end.
pub struct Process(pub Child);

impl Process {
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().cast_signed())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits for the end. Returns the exit status as a shell shows it.
    #[track_caller]
    pub fn status(&mut self) -> i32 {
        let mut ended = None;
        until("the process ends", || {
            ended = self.0.try_wait().unwrap();
            ended.is_some()
        });
        shell_status(ended.unwrap())
    }

    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Waits for the end. Returns the exit status and what stands on stderr, which must be a pipe.
    #[track_caller]
    pub fn end(&mut self) -> (i32, String) {
        let mut stderr = self.0.stderr.take().unwrap();
        let reader = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let status = self.status();
        (status, reader.join().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn shell_status(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Whether a process lives and is no zombie.
pub fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A server with the module.
pub struct Server {
    pub port: u16,
    pub folder: Folder,
    process: Process,
}

impl Server {
    pub fn start() -> Server {
        Server::with(&[])
    }

    #[track_caller]
    pub fn with(arguments: &[&str]) -> Server {
        Server::try_with(arguments).unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// Starts a server. Returns its log if it does not start.
    pub fn try_with(arguments: &[&str]) -> Result<Server, String> {
        let module = variable("DSYNC_TEST_MODULE");
        let mut all = vec!["--loadmodule", &module];
        all.extend(arguments);
        Server::program(&all, &[])
    }

    /// Starts a server without the module.
    pub fn bare() -> Server {
        Server::bare_with(&[])
    }

    pub fn bare_with(arguments: &[&str]) -> Server {
        Server::program(arguments, &[]).unwrap()
    }

    /// Starts a sentinel that watches a primary named `locks`.
    pub fn sentinel(primary: u16) -> Server {
        let lines = format!(
            "sentinel monitor locks 127.0.0.1 {primary} 1\nsentinel down-after-milliseconds locks 1000\n\
             sentinel failover-timeout locks 5000\n"
        );
        Server::program(&["--sentinel"], lines.as_bytes()).unwrap()
    }

    /// Starts a server with the module on a port that another one had before.
    pub fn again(port: u16) -> Server {
        let module = variable("DSYNC_TEST_MODULE");
        let started = Server::on(port, &["--loadmodule", &module], &[]);
        started.unwrap_or_else(|log| panic!("the server did not start again:\n{log}"))
    }

    fn program(arguments: &[&str], configuration: &[u8]) -> Result<Server, String> {
        let mut log = String::new();
        // Another process can take the free port before the server does.
        for _ in 0..5 {
            match Server::on(free_port(), arguments, configuration) {
                Ok(server) => return Ok(server),
                Err(of_server) => log = of_server,
            }
        }
        Err(log)
    }

    fn on(port: u16, arguments: &[&str], configuration: &[u8]) -> Result<Server, String> {
        let folder = Folder::new();
        fs::write(folder.path("conf"), configuration).unwrap();
        let mut command = Command::new(variable("DSYNC_TEST_SERVER"));
        command
            .arg(folder.path("conf"))
            .arg("--dir")
            .arg(folder.path("."));
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--logfile",
            "log",
        ]);
        let child = command
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut process = Process(child);
        let mut is_up = false;
        until("the server answers or ends", || {
            is_up = ping(port);
            is_up || process.has_ended()
        });
        if is_up && !process.has_ended() {
            return Ok(Server {
                port,
                folder,
                process,
            });
        }
        Err(folder.read("log"))
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Sends a command, given as words.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &str) -> T {
        self.try_ask(words).unwrap()
    }

    /// The same for a server whose connections a failover may close.
    pub fn try_ask<T: FromRedisValue>(&self, words: &str) -> redis::RedisResult<T> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(5))?;
        let mut words = words.split_whitespace();
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        command.query(&mut connection)
    }

    /// Returns a field of INFO dsync.
    pub fn metric(&self, name: &str) -> u64 {
        let info: String = self.ask("INFO dsync");
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_default().trim().parse().unwrap_or_default()
    }

    #[track_caller]
    pub fn until_waiters(&self, number: u64) {
        until(&format!("{number} waiters"), || {
            self.metric("dsync_waiters") == number
        });
    }

    /// A command of the tool for this server.
    pub fn dsync(&self, arguments: &[&str]) -> Tool {
        dsync(&self.url(), arguments)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that a test has stopped is killed all the same.
        if thread::panicking() {
            eprintln!(
                "--- log of the server on port {}\n{}",
                self.port,
                self.folder.read("log")
            );
        }
    }
}

fn ping(port: u16) -> bool {
    let ask = || -> redis::RedisResult<String> {
        let client = redis::Client::open(("127.0.0.1", port))?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(1))?;
        redis::cmd("PING").query(&mut connection)
    };
    match ask() {
        Ok(_) => true,
        // It is up, and asks for a password.
        Err(error) => error.code() == Some("NOAUTH"),
    }
}

/// A free port, 11000 to 20999. It and the port of a cluster bus, 10000 above, are below those that Linux gives to
/// outgoing connections: so none of them takes the port of a server that a test has killed and will start again.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Test processes that run at the same time begin far apart.
    let start = std::process::id().wrapping_mul(7_919);
    loop {
        let step = start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % 10_000;
        let port = 11_000 + u16::try_from(step).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set; run the tests with cli/test.sh"))
}

/// A command of the tool.
pub struct Tool(pub Command);

pub fn dsync(url: &str, arguments: &[&str]) -> Tool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dsync"));
    command
        .env_remove("REDISCLI_AUTH")
        .env("REDIS_URL", url)
        .args(arguments);
    // SAFETY: signal is async-signal-safe, and no signal gets a handler.
    unsafe {
        command.pre_exec(|| {
            // A job in the background ignores these, and its children would.
            signal(Signal::SIGINT, SigHandler::SigDfl)?;
            signal(Signal::SIGQUIT, SigHandler::SigDfl)?;
            Ok(())
        });
    }
    Tool(command)
}

impl Tool {
    /// Runs it to its end.
    #[track_caller]
    pub fn output(mut self) -> (i32, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = self.0.stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (shell_status(status), text(stdout), text(stderr))
    }

    /// Starts it, with stderr for [`Process::end`].
    pub fn start(mut self) -> Process {
        let command = self
            .0
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Process(command.spawn().unwrap())
    }

    /// Runs it and expects success. Returns what it printed.
    #[track_caller]
    pub fn stdout(self) -> String {
        let (status, stdout, stderr) = self.output();
        assert_eq!(status, 0, "{stderr}");
        stdout
    }

    pub fn with(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Tool {
        self.0.env(name, value);
        self
    }
}

/// A way to a server that can be cut: then no byte passes, and no connection is closed.
pub struct Proxy {
    pub port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Proxy {
    pub fn to(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        thread::spawn(move || {
            // Connections that were made after the cut are kept open, and nothing is read from them.
            let mut unanswered = Vec::new();
            for client in listener.incoming().map_while(Result::ok) {
                if cut.load(Ordering::Relaxed) {
                    unanswered.push(client);
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                let (to_server, to_client) =
                    (server.try_clone().unwrap(), client.try_clone().unwrap());
                for (from, to) in [(client, to_server), (server, to_client)] {
                    let cut = Arc::clone(&cut);
                    thread::spawn(move || pump(from, to, &cut));
                }
            }
        });
        Proxy { port, is_cut }
    }

    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if is_cut.load(Ordering::Relaxed) {
            continue;
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    if !is_cut.load(Ordering::Relaxed) {
        let _ = to.shutdown(Shutdown::Both);
    }
}

/// Compiles a file of this folder.
pub fn compile(source: &str, options: &[&str], program: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli");
    let mut compiler = Command::new("cc");
    let compiler = compiler.args(options).arg("-o").arg(program);
    let status = compiler.arg(folder.join(source)).status();
    assert!(status.unwrap().success());
}

/// Returns the shell command that waits for a file.
pub fn wait_for(path: &Path) -> String {
    format!("while [ ! -e '{}' ]; do sleep 0.02; done", path.display())
}

/// A line of a script that waits without starting processes until [`let_go`] is called. A shell that is stopped just while it
/// starts one never tells that it has stopped: it waits in vfork for a process that is stopped before its exec.
pub fn wait_for_line(path: &Path) -> String {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    format!("read -r line <'{}'", path.display())
}

/// Writes the line. The script gets it as long as the result lives; it may come to read it later.
#[must_use]
pub fn let_go(path: &Path) -> File {
    let mut line = File::options().read(true).write(true).open(path).unwrap();
    line.write_all(b"\n").unwrap();
    line
}
