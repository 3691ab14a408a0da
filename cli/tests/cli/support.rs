//! Servers (of `testkit/`), commands and conditions. Everything that is started here ends with the test, whatever
//! happens.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::Duration;

use dsync_testkit::Sentinels;
pub use dsync_testkit::process::lives;
pub use dsync_testkit::{Folder, Proxy, Server};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;

/// Waits until a condition holds, for as long as it may take on a busy machine.
#[track_caller]
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    dsync_testkit::eventually(what, Duration::from_secs(30), holds);
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

/// A command of the tool for a server.
pub trait ToolFor {
    fn dsync(&self, arguments: &[&str]) -> Tool;
}

impl ToolFor for Server {
    fn dsync(&self, arguments: &[&str]) -> Tool {
        dsync(&self.url(), arguments)
    }
}

/// A sentinel that watches this primary and so many replicas, under the name `locks`.
#[track_caller]
pub fn watch(primary: &Server, replicas: usize) -> Sentinels {
    let settings = [
        ("down-after-milliseconds", 1000),
        ("failover-timeout", 5000),
    ];
    Sentinels::alone(&settings, primary, replicas)
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

/// A line of a script that waits without starting processes until [`let_go`] is called. A shell that is stopped just
/// while it starts one never tells that it has stopped: it waits in vfork for a process that is stopped before its
/// exec.
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
