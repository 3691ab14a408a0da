//! What the figures were measured on: a figure without its machine says nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use crate::invalid::{Context, Result};

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_gb: u64,
    pub kernel: String,
    /// Processes that ran or wanted to, as a mean over the minute before the run.
    pub load: f64,
    /// Open files that one process may have: each client is one, here and in the server.
    pub open_files: usize,
    /// The commit of the working directory, with a `+` where files differ from it.
    pub commit: String,
}

impl Machine {
    pub fn look() -> Result<Self> {
        Ok(Self {
            cpu: field("/proc/cpuinfo", "model name")?,
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory_gb: number(&field("/proc/meminfo", "MemTotal")?)? >> 20,
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            load: first_word(&read("/proc/loadavg")?)
                .parse()
                .context("/proc/loadavg")?,
            open_files: number(&field("/proc/self/limits", "Max open files")?)? as usize,
            commit: commit(),
        })
    }

    /// Whether others want the cores that client and server need.
    pub fn is_busy(&self) -> bool {
        self.load > self.cores as f64
    }

    /// How many clients one server can have at a time, of those that are wanted. Some files are for other uses.
    pub fn clients(&self, wanted: usize) -> usize {
        wanted.min(self.open_files.saturating_sub(300))
    }
}

/// The version that a server's program tells: "Redis 7.0.15".
pub fn version(server: &Path) -> Result<String> {
    let output = Command::new(server)
        .arg("--version")
        .output()
        .context(format!("cannot run {}", server.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let product = first_word(&text);
    let version = text
        .split_once("v=")
        .map(|(_, rest)| first_word(rest))
        .context(format!("{} tells no version: {text}", server.display()))?;
    Ok(format!("{product} {version}"))
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match git(&["rev-parse", "--short", "HEAD"]) {
        None => "unknown".to_owned(),
        Some(commit) => {
            let is_clean =
                git(&["status", "--porcelain"]).is_some_and(|changes| changes.is_empty());
            format!("{commit}{}", if is_clean { "" } else { "+" })
        }
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).context(path)
}

/// What stands behind `name` and a colon or blanks, in the first such line.
fn field(path: &str, name: &str) -> Result<String> {
    let text = read(path)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.context(format!("{path} has no '{name}'"))?;
    Ok(value.trim_start_matches([' ', '\t', ':']).to_owned())
}

fn number(text: &str) -> Result<u64> {
    let word = first_word(text);
    if word == "unlimited" {
        return Ok(1 << 30);
    }
    word.parse().context(format!("no number: '{text}'"))
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_described() {
        let machine = Machine::look().unwrap();
        assert!(machine.cores >= 1 && machine.open_files > 0 && !machine.cpu.is_empty());
    }

    #[test]
    fn clients_are_bounded_by_open_files() {
        let mut machine = Machine::look().unwrap();
        machine.open_files = 1300;
        assert_eq!(machine.clients(500), 500);
        assert_eq!(machine.clients(10_000), 1000);
    }
}
