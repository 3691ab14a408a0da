//! What a run is told: through the environment, or as `NAME=value` arguments, which win.
//!
//! The servers and the module must be named: which ones there are is the scripts' knowledge (scripts/bench.sh).

use std::path::PathBuf;

use serde::Serialize;

use crate::invalid::{Context, Invalid, Result};

pub const USAGE: &str = "usage: dsync-bench [full|growth|peers|instructions|quick] [NAME=value ...]
    SERVER=path         redis-server or valkey-server
    NATIVE_SERVER=path  a server that knows DELIFEQ, for the lines that compare with it (default: SERVER)
    OTHER_SERVERS='path ...'  other servers, for the pair and the hand-off there
    MODULE=path         libdsync.so
    OLD=path            another one, whose instructions are counted as well
    PRELOAD=path        benches/fixed_random.c as a library, to count instructions
    PYTHON=path         python3 with the libraries of benches/peers, for the peers in Python
    NODE=path           node that finds the libraries of benches/peers, for the peers in JavaScript
    ONLY='name ...'     these lines or peers alone
    PAIRS=n             pairs of each comparison (default: 5; in a quick run, and for instructions, 1)
    OUT=directory       for the results and the plots (default: target/bench)";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The lines with targets, at the sizes that the targets name.
    Full,
    /// The lines that show how costs grow.
    Growth,
    /// Other lock algorithms.
    Peers,
    /// How many instructions the server executes for one operation.
    Instructions,
    /// Every line at a small size: whether it runs and every reply is right.
    Quick,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Growth => "growth",
            Self::Peers => "peers",
            Self::Instructions => "instructions",
            Self::Quick => "quick",
        }
    }
}

#[derive(Debug)]
pub struct Options {
    pub mode: Mode,
    pub server: PathBuf,
    pub native_server: PathBuf,
    pub other_servers: Vec<PathBuf>,
    pub module: PathBuf,
    pub old_module: Option<PathBuf>,
    pub preload: Option<PathBuf>,
    /// Without them, the peers of that language are left out.
    pub python: Option<PathBuf>,
    pub node: Option<PathBuf>,
    pub only: Vec<String>,
    pub pairs: usize,
    pub out: PathBuf,
}

impl Options {
    pub fn read(
        arguments: impl Iterator<Item = String>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let mut mode = Mode::Full;
        let mut given: Vec<(String, String)> = Vec::new();
        for argument in arguments {
            match (argument.as_str(), argument.split_once('=')) {
                ("full", _) => mode = Mode::Full,
                ("growth", _) => mode = Mode::Growth,
                ("peers", _) => mode = Mode::Peers,
                ("instructions", _) => mode = Mode::Instructions,
                ("quick", _) => mode = Mode::Quick,
                (_, Some((name, value))) if NAMES.contains(&name) => {
                    given.push((name.to_owned(), value.to_owned()));
                }
                _ => {
                    return Err(Invalid::new(format!(
                        "unknown argument '{argument}'\n{USAGE}"
                    )));
                }
            }
        }
        let value = |name: &str| {
            let argument = given.iter().rev().find(|(given, _)| given == name);
            argument
                .map(|(_, value)| value.clone())
                .or_else(|| environment(name))
                .filter(|value| !value.is_empty())
        };
        let required = |name: &str| value(name).context(format!("{name} is not given\n{USAGE}"));
        let server = PathBuf::from(required("SERVER")?);
        let list = |name: &str| -> Vec<String> {
            let text = value(name).unwrap_or_default();
            let words = text.split([' ', ',']).filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        };
        let pairs = match value("PAIRS") {
            None if matches!(mode, Mode::Quick | Mode::Instructions) => 1,
            None => 5,
            Some(text) => match text.parse() {
                Ok(pairs) if pairs > 0 => pairs,
                _ => {
                    return Err(Invalid::new(format!(
                        "PAIRS must be a number from 1 on, not '{text}'"
                    )));
                }
            },
        };
        Ok(Self {
            mode,
            pairs,
            native_server: value("NATIVE_SERVER").map_or_else(|| server.clone(), PathBuf::from),
            server,
            module: PathBuf::from(required("MODULE")?),
            old_module: value("OLD").map(PathBuf::from),
            preload: value("PRELOAD").map(PathBuf::from),
            python: value("PYTHON").map(PathBuf::from),
            node: value("NODE").map(PathBuf::from),
            only: list("ONLY"),
            other_servers: list("OTHER_SERVERS")
                .into_iter()
                .map(PathBuf::from)
                .collect(),
            out: PathBuf::from(value("OUT").unwrap_or_else(|| "target/bench".to_owned())),
        })
    }
}

const NAMES: [&str; 11] = [
    "SERVER",
    "NATIVE_SERVER",
    "OTHER_SERVERS",
    "MODULE",
    "OLD",
    "PRELOAD",
    "PYTHON",
    "NODE",
    "ONLY",
    "PAIRS",
    "OUT",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Options> {
        let environment = |name: &str| match name {
            "SERVER" => Some("/s".to_owned()),
            "MODULE" => Some("/m".to_owned()),
            "ONLY" => Some(String::new()),
            _ => None,
        };
        Options::read(arguments.iter().map(|&word| word.to_owned()), environment)
    }

    #[test]
    fn arguments_win_over_the_environment() {
        let options = read(&["quick", "SERVER=/other", "ONLY=memory,files handoff"]).unwrap();
        assert_eq!((options.mode, options.pairs), (Mode::Quick, 1));
        assert_eq!(options.server, PathBuf::from("/other"));
        assert_eq!(options.native_server, PathBuf::from("/other"));
        assert_eq!(options.module, PathBuf::from("/m"));
        assert_eq!(options.only, ["memory", "files", "handoff"]);
    }

    #[test]
    fn without_arguments_the_environment_and_defaults_hold() {
        let options = read(&[]).unwrap();
        assert_eq!((options.mode, options.pairs), (Mode::Full, 5));
        assert_eq!(options.server, PathBuf::from("/s"));
        assert!(options.only.is_empty());
        assert_eq!(options.out, PathBuf::from("target/bench"));
    }

    #[test]
    fn languages_of_peers_are_named_or_absent() {
        let options = read(&["peers", "PYTHON=/python"]).unwrap();
        assert_eq!(options.mode, Mode::Peers);
        assert_eq!(options.python, Some(PathBuf::from("/python")));
        assert_eq!(options.node, None);
    }

    #[test]
    fn unknown_arguments_and_missing_paths_are_refused() {
        assert!(read(&["fast"]).is_err());
        assert!(read(&["SPEED=1"]).is_err());
        assert!(read(&["PAIRS=0"]).is_err());
        assert!(Options::read(std::iter::empty(), |_| None).is_err());
    }
}
