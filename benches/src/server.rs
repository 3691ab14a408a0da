//! Servers of a run's own, started by `testkit/`: each in a directory of its own, gone with the run.
//!
//! Servers run with their own defaults, log level and log file included, because users run them so. What differs
//! is listed in `settings`, with the reason, and in the testkit's `builder.rs`.
//!
//! Replicas are real second servers. Only the primary's main thread is ever measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dsync_testkit::{Builder, Server as Process};

use crate::client::Client;
use crate::invalid::{Context, Invalid, Result};
use crate::valgrind;

const PATIENCE: Duration = Duration::from_secs(60);

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
    /// Made by the start, and emptied at the end but for the log.
    pub directory: PathBuf,
}

pub struct Server {
    // In the order in which they end. The replica is first: otherwise it writes into its log that its primary has gone.
    replica: Option<Box<Server>>,
    process: Process,
    directory: Directory,
    slots: Option<SlotRange>,
}

impl Server {
    /// Starts a server, and its replica where the plan has one. See also [`Server::await_ready`].
    pub fn start(plan: Plan) -> Result<Self> {
        let mut server = Self::start_alone(&plan, |builder| builder)?;
        if plan.setting.has_replica() {
            let plan = Plan {
                setting: Setting::Plain,
                counted_with: None,
                directory: plan.directory.join("replica"),
                ..plan
            };
            let replica = Self::start_alone(&plan, |builder| builder.replica_of(&server.process))?;
            server.replica = Some(Box::new(replica));
        }
        Ok(server)
    }

    fn start_alone(plan: &Plan, more: impl FnOnce(Builder) -> Builder) -> Result<Self> {
        fs::create_dir_all(&plan.directory).context("cannot make a server's directory")?;
        let process = more(builder(plan)).try_start().map_err(Invalid::new)?;
        Ok(Self {
            replica: None,
            process,
            directory: Directory(plan.directory.clone()),
            slots: plan.slots,
        })
    }

    /// Returns when the server serves, a cluster of one node is up, and the replica follows. A node that has only some
    /// of the slots is up with the others: see [`Server::await_cluster`].
    pub fn await_ready(&mut self) -> Result<()> {
        self.process.wait_for_answer().map_err(Invalid::new)?;
        let mut client = self.client()?;
        if let Some((first, last)) = self.slots {
            client.ok(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
            if (first, last) == ALL_SLOTS {
                self.await_cluster(&mut client)?;
            }
        }
        self.settle_replica(&mut client)
    }

    /// Makes this node and another one a cluster.
    pub fn meet(&self, client: &mut Client, other: &Self) -> Result<()> {
        client.ok(&format!("CLUSTER MEET 127.0.0.1 {}", other.port()))
    }

    /// Waits until this node knows an owner of every slot.
    pub fn await_cluster(&self, client: &mut Client) -> Result<()> {
        self.eventually("the cluster to be up", || {
            Ok(client.text("CLUSTER INFO")?.contains("cluster_state:ok"))
        })
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
    pub fn crash_and_start(&mut self) {
        self.process.kill9();
        self.process.begin_again();
    }

    /// Waits for `condition`, which is looked at every 10 ms, for at most a minute.
    pub fn eventually(
        &self,
        what: &str,
        mut condition: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let begin = Instant::now();
        while !condition()? {
            if begin.elapsed() > PATIENCE {
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
        self.process.port()
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.process.pid()
    }

    pub fn directory(&self) -> &Path {
        &self.directory.0
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

/// Where a server has its files. Its logs stay until the run has ended well.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // Data is large.
        if let Ok(entries) = fs::read_dir(&self.0) {
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

fn builder(plan: &Plan) -> Builder {
    let mut builder = Process::builder()
        .program(&plan.program)
        .folder(&plan.directory);
    builder = match &plan.module {
        Some(module) => builder.module(module),
        None => builder.without_module(),
    };
    if let Some(library) = &plan.counted_with {
        builder = builder.under(valgrind::prefix(&plan.directory));
        builder = builder.env("LD_PRELOAD", library);
        for (name, value) in valgrind::ENVIRONMENT {
            builder = builder.env(name, value);
        }
    }
    let settings = settings(plan);
    settings.iter().fold(builder, |builder, (name, value)| {
        builder.config(name, value)
    })
}

fn settings(plan: &Plan) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        // The log goes to the file as users have it, not through the standard output.
        ("logfile", "server.log"),
        // A fork in the middle of a measurement would make the server pay for copied pages.
        ("auto-aof-rewrite-percentage", "0"),
        // A rewritten AOF consists of commands: that is what is compared with the RDB file.
        ("aof-use-rdb-preamble", "no"),
        // A busy machine must not make a primary give up a replica that comes late.
        ("client-output-buffer-limit", "replica 0 0 0"),
    ];
    if plan.setting.has_aof() {
        settings.extend([("appendonly", "yes"), ("appendfsync", "everysec")]);
    }
    if plan.counted_with.is_some() {
        settings.extend(valgrind::SETTINGS);
    }
    if plan.slots.is_some() {
        settings.push(("cluster-enabled", "yes"));
    }
    let settings = settings.into_iter();
    let settings = settings.map(|(name, value)| (name, value.to_owned()));
    settings
        .chain([("maxclients", plan.max_clients.to_string())])
        .collect()
}
