//! Servers of a run's own: on an ephemeral port of 127.0.0.1, in a directory of their own, gone with the run.
//!
//! A server's guard kills it, also while a panic unwinds. Where the run itself is killed, the kernel kills the
//! servers: `setpriv --pdeathsig` asks for that between fork and exec. The request is bound to the *thread* that
//! forks, so servers are started by the main thread alone, which lives as long as the run.
//!
//! Servers run with their own defaults, log level and log file included, because users run them so. What differs
//! is listed in `arguments`, with the reason.
//!
//! Replicas are real second servers. Only the primary's main thread is ever measured.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::invalid::{Context, Invalid, Result};
use crate::valgrind;

const START_PATIENCE: Duration = Duration::from_secs(60);

/// What a primary does besides serving: the four cases in which throughput is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    Plain,
    Aof,
    Replica,
    Both,
}

impl Setting {
    pub const ALL: [Self; 4] = [Self::Plain, Self::Aof, Self::Replica, Self::Both];

    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Aof => "AOF",
            Self::Replica => "replica",
            Self::Both => "AOF, replica",
        }
    }

    fn has_aof(self) -> bool {
        matches!(self, Self::Aof | Self::Both)
    }

    fn has_replica(self) -> bool {
        matches!(self, Self::Replica | Self::Both)
    }
}

/// The first and the last slot of a cluster's node.
pub type SlotRange = (u16, u16);

pub const ALL_SLOTS: SlotRange = (0, 16_383);

/// How to start a server.
#[derive(Clone, Debug)]
pub struct Plan {
    pub program: PathBuf,
    pub module: Option<PathBuf>,
    pub setting: Setting,
    /// The slots that the server has, as a node of a cluster. `None` starts it without cluster mode.
    pub slots: Option<SlotRange>,
    pub max_clients: usize,
    /// Whether valgrind runs the server, and then the library that is preloaded, see [`valgrind`].
    pub counted_with: Option<PathBuf>,
    /// Made by the start, and emptied by the server's guard but for the log.
    pub directory: PathBuf,
}

pub struct Server {
    child: Child,
    plan: Plan,
    ports: Ports,
    replica: Option<Box<Server>>,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    clients: u16,
    /// Of the cluster bus. Otherwise it would be the clients' port + 10000, which may be taken.
    bus: u16,
}

impl Server {
    /// Starts a server, and its replica where the plan has one. It need not be ready when this returns, so that
    /// several can start at the same time: see [`Server::await_ready`].
    pub fn start(plan: Plan) -> Result<Self> {
        fs::create_dir_all(&plan.directory).context("cannot make a server's directory")?;
        let mut server = Self::start_alone(plan, None)?;
        if server.plan.setting.has_replica() {
            let plan = Plan {
                setting: Setting::Plain,
                counted_with: None,
                directory: server.plan.directory.join("replica"),
                ..server.plan.clone()
            };
            fs::create_dir_all(&plan.directory).context("cannot make a replica's directory")?;
            server.replica = Some(Box::new(Self::start_alone(plan, Some(server.port()))?));
        }
        Ok(server)
    }

    fn start_alone(plan: Plan, primary: Option<u16>) -> Result<Self> {
        let ports = free_ports()?;
        Ok(Self {
            child: spawn(&plan, ports, primary)?,
            plan,
            ports,
            replica: None,
        })
    }

    /// Returns when the server serves, a cluster of one node is up, and the replica follows. A node that has only some
    /// of the slots is up with the others: see [`Server::await_cluster`].
    pub fn await_ready(&mut self) -> Result<()> {
        let mut client = self.await_ping()?;
        if let Some((first, last)) = self.plan.slots {
            client.ok(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
            if (first, last) == ALL_SLOTS {
                self.await_cluster(&mut client)?;
            }
        }
        if let Some(replica) = &mut self.replica {
            let mut client = replica.await_ping()?;
            replica.eventually("the replica's link", || {
                Ok(info(&mut client, "replication", "master_link_status")? == "up")
            })?;
        }
        self.settle_replica(&mut client)
    }

    /// Makes this node and another one a cluster.
    pub fn meet(&self, client: &mut Client, other: &Self) -> Result<()> {
        let Ports { clients, bus } = other.ports;
        client.ok(&format!("CLUSTER MEET 127.0.0.1 {clients} {bus}"))
    }

    /// Waits until this node knows an owner of every slot.
    pub fn await_cluster(&self, client: &mut Client) -> Result<()> {
        self.eventually("the cluster to be up", || {
            Ok(client.text("CLUSTER INFO")?.contains("cluster_state:ok"))
        })
    }

    /// Waits until the server has read its files and answers; returns the connection it answered on.
    fn await_ping(&mut self) -> Result<Client> {
        let begin = Instant::now();
        loop {
            let answered = Client::connect(self.port()).and_then(|mut client| {
                client.barrier()?;
                Ok(client)
            });
            match answered {
                Ok(client) => return Ok(client),
                Err(_) if begin.elapsed() < START_PATIENCE && self.is_alive() => {
                    sleep(Duration::from_millis(5));
                }
                Err(error) => {
                    let log = self.plan.directory.join("server.log");
                    return Err(
                        error.during(format!("a server does not start, see {}", log.display()))
                    );
                }
            }
        }
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the replica has carried out everything that the primary sent. An error where it was lost.
    pub fn settle_replica(&self, client: &mut Client) -> Result<()> {
        if self.replica.is_none() || client.integer("WAIT 1 60000")? >= 1 {
            Ok(())
        } else {
            Err(Invalid::new("the replica was lost"))
        }
    }

    /// Kills the server as a crash would, and starts it again with the same files and port. It is not ready when
    /// this returns: the stall of a start is what is measured.
    pub fn crash_and_start(&mut self) -> Result<()> {
        self.child.kill().context("cannot kill a server")?;
        self.child.wait().context("cannot wait for a server")?;
        self.child = spawn(&self.plan, self.ports, None)?;
        Ok(())
    }

    /// Waits for `condition`, which is looked at every 10 ms, for at most a minute.
    pub fn eventually(
        &self,
        what: &str,
        mut condition: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let begin = Instant::now();
        while !condition()? {
            if begin.elapsed() > START_PATIENCE {
                return Err(Invalid::new(format!("waited in vain for {what}")));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    pub fn client(&self) -> Result<Client> {
        Client::connect(self.port())
    }

    pub fn clients(&self, count: usize) -> Result<Vec<Client>> {
        (0..count).map(|_| self.client()).collect()
    }

    pub fn port(&self) -> u16 {
        self.ports.clients
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn directory(&self) -> &Path {
        &self.plan.directory
    }

    /// Memory of the process that is not swapped out: what the system has given it, not what it uses of that.
    pub fn resident_bytes(&self) -> Result<f64> {
        let path = format!("/proc/{}/status", self.id());
        let text = fs::read_to_string(&path).context(&path)?;
        let kilobytes: Option<f64> = text.lines().find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        });
        Ok(kilobytes.context(format!("{path} has no VmRSS"))? * 1024.0)
    }

    /// Nanoseconds that the server's main thread has run. Its other threads write files and free memory aside;
    /// they take no time from clients as long as there is another core.
    pub fn cpu_ns(&self) -> Result<u64> {
        let id = self.id();
        let path = format!("/proc/{id}/task/{id}/schedstat");
        let text = fs::read_to_string(&path).context(&path)?;
        let ns: u64 = text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
            .context(format!("{path} has no number"))?;
        if ns == 0 {
            return Err(Invalid::new(format!(
                "{path}: this kernel does not count CPU time there"
            )));
        }
        Ok(ns)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The replica first: otherwise it writes into its log that its primary has gone.
        self.replica = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Data is large. The logs stay until the run has ended well.
        if let Ok(entries) = fs::read_dir(&self.plan.directory) {
            for path in entries.flatten().map(|entry| entry.path()) {
                let _ = match path.extension() {
                    Some(extension) if extension == "log" => Ok(()),
                    _ if path.file_name().is_some_and(|name| name == "replica") => Ok(()),
                    _ if path.is_dir() => fs::remove_dir_all(&path),
                    _ => fs::remove_file(&path),
                };
            }
        }
    }
}

/// Returns a field of INFO.
pub fn info(client: &mut Client, section: &str, field: &str) -> Result<String> {
    let text = client.text(&format!("INFO {section}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .map(str::to_owned)
        .context(format!("INFO {section} has no {field}"))
}

/// As [`info`], for a field that is a number.
pub fn info_number(client: &mut Client, section: &str, field: &str) -> Result<f64> {
    let text = info(client, section, field)?;
    text.parse().context(format!("INFO's {field} is '{text}'"))
}

/// Two ports that were free a moment ago. The system gives out other ones each time.
fn free_ports() -> Result<Ports> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port");
    let (clients, bus) = (bind()?, bind()?);
    let port = |listener: &TcpListener| Ok(listener.local_addr().context("no free port")?.port());
    Ok(Ports {
        clients: port(&clients)?,
        bus: port(&bus)?,
    })
}

fn spawn(plan: &Plan, ports: Ports, primary: Option<u16>) -> Result<Child> {
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(plan.directory.join("server.log"))
        .context("cannot write a server's log")?;
    let errors = log.try_clone().context("cannot write a server's log")?;
    let mut command = Command::new("setpriv");
    if let Some(library) = &plan.counted_with {
        command
            .envs(valgrind::ENVIRONMENT)
            .env("LD_PRELOAD", library);
    }
    // The shell closes the gap in which the run ended before the kernel knew the request.
    command
        .args(["--pdeathsig", "KILL", "sh", "-c"])
        .arg(r#"[ "$PPID" = "$0" ] && exec "$@""#)
        .arg(std::process::id().to_string())
        .args(match plan.counted_with {
            Some(_) => valgrind::prefix(&plan.directory),
            None => Vec::new(),
        })
        .arg(&plan.program)
        .args(arguments(plan, ports, primary))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .context("cannot start setpriv (of the package util-linux)")
}

fn arguments(plan: &Plan, ports: Ports, primary: Option<u16>) -> Vec<String> {
    let directory = plan.directory.display();
    let mut arguments = vec![
        format!("--port {}", ports.clients),
        "--bind 127.0.0.1".to_owned(),
        format!("--dir {directory}"),
        format!("--logfile {directory}/server.log"),
        format!("--maxclients {}", plan.max_clients),
        // A fork in the middle of a measurement would make the server pay for copied pages.
        "--save ''".to_owned(),
        "--auto-aof-rewrite-percentage 0".to_owned(),
        // A rewritten AOF consists of commands: that is what is compared with the RDB file.
        "--aof-use-rdb-preamble no".to_owned(),
        // A busy machine must not make a primary give up a replica that comes late, nor a start take seconds.
        "--client-output-buffer-limit replica 0 0 0".to_owned(),
        "--repl-diskless-sync-delay 0".to_owned(),
    ];
    if plan.setting.has_aof() {
        arguments.push("--appendonly yes".to_owned());
        arguments.push("--appendfsync everysec".to_owned());
    }
    if plan.counted_with.is_some() {
        arguments.extend(valgrind::ARGUMENTS.map(str::to_owned));
    }
    if plan.slots.is_some() {
        arguments.push("--cluster-enabled yes".to_owned());
        arguments.push(format!("--cluster-port {}", ports.bus));
    }
    if let Some(primary) = primary {
        arguments.push(format!("--replicaof 127.0.0.1 {primary}"));
    }
    if let Some(module) = &plan.module {
        arguments.push(format!("--loadmodule {}", module.display()));
    }
    // One word each: the server's parser wants the value of an option apart from its name.
    arguments
        .iter()
        .flat_map(|argument| argument.split(' '))
        .map(|word| {
            if word == "''" {
                String::new()
            } else {
                word.to_owned()
            }
        })
        .collect()
}
