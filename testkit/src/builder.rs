//! How a server is to be started: its configuration, module, place and folder.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::folder::Folder;
use crate::hosts::{Host, HostPlace};
use crate::ports::next_port;
use crate::program::{absolute, module_path, server_program};
use crate::server::{Failure, Launcher, SOCKET_FILE, Server, config_line};

/// How many ports a new server tries.
const PORTS_TO_TRY: usize = 20;

/// The settings of every server, unless a test sets them.
const DEFAULTS: &[(&str, &str)] = &[
    ("save", ""),
    ("appendonly", "no"),
    ("enable-debug-command", "yes"),
    ("enable-module-command", "yes"),
    // By default a primary waits five seconds for more replicas before it sends a snapshot.
    ("repl-diskless-sync-delay", "0"),
];

impl Server {
    /// A server with the module and the defaults.
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
            folder: None,
            launcher: Launcher {
                program: server_program(),
                under: Vec::new(),
                environment: Vec::new(),
                preloaded: Vec::new(),
                place: None,
                is_sentinel: false,
            },
        }
    }
}

/// How a server is to be started. [`Server::builder`] makes one.
pub struct Builder {
    with_module: bool,
    /// Another module than [`module_path()`].
    module: Option<PathBuf>,
    module_arguments: Vec<String>,
    config: Vec<(String, String)>,
    wait_for_sync: bool,
    folder: Option<Folder>,
    launcher: Launcher,
}

impl Builder {
    /// Adds a line to the configuration. It replaces the default for this name; a name given twice has both lines. The
    /// value is written as it is: put quotes around what the server would split.
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

    /// Starts this program instead of the server that is tested.
    pub fn program(mut self, path: &Path) -> Builder {
        self.launcher.program = absolute(path.display().to_string());
        self
    }

    /// Starts the server by these words before its program, which replace themselves by it or run it in their process.
    pub fn under(mut self, words: Vec<String>) -> Builder {
        self.launcher.under = words;
        self
    }

    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Builder {
        let [name, value]: [OsString; 2] = [name.as_ref().into(), value.as_ref().into()];
        self.launcher.environment.push((name, value));
        self
    }

    /// Loads this library before all others.
    pub fn preload(mut self, library: &Path) -> Builder {
        self.launcher.preloaded.push(library.to_owned());
        self
    }

    /// Keeps the module's library in the process although the module is refused or unloaded, as systems do that never
    /// unload libraries.
    pub fn keeping_library(self) -> Builder {
        self.preload(&module_path())
    }

    /// Runs the server in this folder, which stays when the server has ended.
    pub fn folder(mut self, path: &Path) -> Builder {
        self.folder = Some(Folder::that_stays(path.to_owned()));
        self
    }

    /// Makes the server a replica; `start` returns when its first synchronisation with `primary` is done.
    pub fn replica_of(mut self, primary: &Server) -> Builder {
        self.wait_for_sync = true;
        let address = format!("{} {}", primary.ip(), primary.port());
        self.config("replicaof", address)
    }

    /// Starts the server on this host; tests connect to it by the socket in its directory.
    pub fn on(mut self, host: &Host) -> Builder {
        self.launcher.place = Some(host.place());
        self
    }

    /// Starts the program as a sentinel, without the module.
    pub fn sentinel(mut self) -> Builder {
        self.launcher.is_sentinel = true;
        self.without_module()
    }

    /// Starts the server; panics with its log if it does not come up.
    #[track_caller]
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(how) => panic!("{how}"),
        }
    }

    /// As [`Builder::start`]; returns what happened, with the log, if the server does not come up.
    #[track_caller]
    pub fn try_start(mut self) -> Result<Server, String> {
        let folder = self.folder.take().unwrap_or_else(Folder::new);
        let mut server = Server::new(self.launcher.clone(), folder);
        for _ in 0..PORTS_TO_TRY {
            let port = next_port();
            match server.start_on(port, &self.config_text(port)) {
                Ok(()) => {
                    if self.wait_for_sync {
                        server.wait_for_sync();
                    }
                    return Ok(server);
                }
                Err(Failure::PortTaken) => {}
                Err(Failure::Other(how)) => return Err(how),
            }
        }
        Err(format!(
            "{PORTS_TO_TRY} ports were free and then taken by others"
        ))
    }

    fn config_text(&self, port: u16) -> String {
        let mut lines = vec![format!("port {port}"), "daemonize no".to_owned()];
        match &self.launcher.place {
            None => lines.push("bind 127.0.0.1".to_owned()),
            Some(HostPlace { address, .. }) => {
                lines.push(format!("bind {address}"));
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
        let defaults = DEFAULTS.iter().filter(|(name, _)| !is_given(name));
        lines.extend(defaults.map(|(name, value)| config_line(name, value)));
        lines.extend(
            self.config
                .iter()
                .map(|(name, value)| config_line(name, value)),
        );
        if self.with_module {
            let module = self.module.clone().unwrap_or_else(module_path);
            let path = absolute(module.display().to_string());
            let words: Vec<_> = ["loadmodule", &path]
                .into_iter()
                .chain(self.module_arguments.iter().map(String::as_str))
                .collect();
            lines.push(words.join(" "));
        }
        lines.join("\n") + "\n"
    }
}
