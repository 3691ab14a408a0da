//! The steps of a run, and how a line of the log spells them.
//!
//! ```text
//! c7 DLOCK.ACQUIRE a BLOCK 20 TOKEN t5            a request on connection 7
//! op MULTI | DEL a | EXEC                         three requests in one write, on the operator's connection
//! c7 ? DLOCK.ACQUIRE a PX 0                       a request that may be refused as malformed
//! c7 fin DLOCK.ACQUIRE a TOKEN t5                 a request and the end of the connection, in one turn
//! close c7                                        the end of the connection alone
//! settle                                          wait until every request is answered that cannot wait
//! compare | failover | switch | kill | load | reload | freeze | kill-replica | resync | join
//!                                                 what happens to the servers: see `fleet`
//! power-loss 37                                   the same; 37 % of what was not synced is there all the same
//! power-loss-everysec 37                          the same, while writes are synced each second
//! clock -3600000                                  the servers' wall clock is an hour behind from now on
//! stray 1 DLOCK.ACQUIRE a TOKEN t5                a request in this database to the replica that takes writes
//! cut 0 2                                         the hosts of these servers are cut off, until `join`
//! ```
//!
//! A word may stand for a value that is known only when it is sent, and that differs from run to run: `$client:7` is
//! the server's id of connection 7, `$token:312` the token that the server made for the request of line 312,
//! `$fence:t5` the last fence of token t5, `$dump:a` the DUMP payload of a key, `$beyond` one that must be refused,
//! `$each` and `$busy:5` are scripts, `$broken` is a request that breaks the protocol. So a log can be sent again, also
//! with lines left out.

use std::fmt;
use std::str::FromStr;

/// The operator's connection: CLIENT KILL, CONFIG SET and the like.
pub const OPERATOR: usize = 0;

/// The words of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuzzRequest {
    pub words: Vec<String>,
    /// Whether it may be malformed.
    pub odd: bool,
}

impl FuzzRequest {
    pub fn new<W: ToString>(words: impl IntoIterator<Item = W>) -> FuzzRequest {
        FuzzRequest {
            words: words.into_iter().map(|word| word.to_string()).collect(),
            odd: false,
        }
    }

    /// Splits a line into words at its blanks.
    pub fn line(line: &str) -> FuzzRequest {
        FuzzRequest::new(line.split(' '))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Send {
        /// The number of the connection; it is opened if it is not open.
        on: usize,
        /// Sent in one write.
        requests: Vec<FuzzRequest>,
        /// Whether the connection is closed right after them.
        fin: bool,
    },
    Close {
        on: usize,
    },
    Settle,
    /// Writes are paused and the servers compared.
    Compare,
    /// The replica becomes the primary by FAILOVER.
    Failover,
    /// The replica becomes the primary by REPLICAOF, while writes are paused.
    Switch,
    /// The primary is killed and started again.
    Kill,
    /// The primary is killed while writes are paused, and must have everything after its start.
    Load,
    /// DEBUG RELOAD.
    Reload,
    /// The primary stands still for a moment, as in a frozen virtual machine.
    Freeze,
    /// The replica is killed, and started again with its AOF.
    KillReplica,
    /// A replica is killed, and started again with the module that is tested.
    Upgrade {
        server: usize,
    },
    /// The replicas must take all data anew.
    Resync,
    /// The primary's machine loses power: so much of what was not synced is there all the same.
    PowerLoss {
        kept_per_cent: u32,
        /// Writes were synced each second, and not before each reply.
        everysec: bool,
    },
    /// The wall clock of all servers is so far ahead of the right time, or behind it.
    Clock {
        ms: i64,
    },
    /// A client writes to the replica that takes writes, which must refuse that.
    Stray {
        database: usize,
        request: FuzzRequest,
    },
    /// No packet reaches or leaves the hosts of these servers, until [`Step::Join`].
    Cut {
        hosts: Vec<usize>,
    },
    Join,
}

impl Step {
    pub fn one(on: usize, request: FuzzRequest) -> Step {
        Step::Send {
            on,
            requests: vec![request],
            fin: false,
        }
    }

    /// Requests of the operator, in one write.
    pub fn operator(lines: &[&str]) -> Step {
        Step::Send {
            on: OPERATOR,
            requests: lines.iter().map(|line| FuzzRequest::line(line)).collect(),
            fin: false,
        }
    }

    /// Reads what [`Step`] displays.
    pub fn read(text: &str) -> Result<Step, String> {
        let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
        Ok(match first {
            "settle" => Step::Settle,
            "compare" => Step::Compare,
            "failover" => Step::Failover,
            "switch" => Step::Switch,
            "kill" => Step::Kill,
            "load" => Step::Load,
            "reload" => Step::Reload,
            "freeze" => Step::Freeze,
            "kill-replica" => Step::KillReplica,
            "upgrade" => Step::Upgrade {
                server: plain(rest)?,
            },
            "resync" => Step::Resync,
            "join" => Step::Join,
            "power-loss" | "power-loss-everysec" => Step::PowerLoss {
                kept_per_cent: plain(rest)?,
                everysec: first == "power-loss-everysec",
            },
            "clock" => Step::Clock { ms: plain(rest)? },
            "stray" => {
                let (database, request) = rest.split_once(' ').unwrap_or((rest, ""));
                Step::Stray {
                    database: plain(database)?,
                    request: read_request(request)?,
                }
            }
            "cut" => Step::Cut {
                hosts: rest.split(' ').map(plain).collect::<Result<_, _>>()?,
            },
            "close" => Step::Close { on: number(rest)? },
            on => {
                let on = number(on)?;
                let (fin, rest) = match rest.strip_prefix("fin ") {
                    Some(rest) => (true, rest),
                    None => (false, rest),
                };
                let requests: Result<_, _> = rest.split(" | ").map(read_request).collect();
                Step::Send {
                    on,
                    requests: requests?,
                    fin,
                }
            }
        })
    }
}

fn plain<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

fn number(name: &str) -> Result<usize, String> {
    let number = match name {
        "op" => Some(OPERATOR),
        _ => name.strip_prefix('c').and_then(|n| n.parse().ok()),
    };
    number.ok_or_else(|| format!("'{name}' is no connection"))
}

fn read_request(text: &str) -> Result<FuzzRequest, String> {
    let (odd, text) = match text.strip_prefix("? ") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let words: Result<_, _> = text.split(' ').map(read_word).collect();
    Ok(FuzzRequest { words: words?, odd })
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Settle => f.write_str("settle"),
            Step::Compare => f.write_str("compare"),
            Step::Failover => f.write_str("failover"),
            Step::Switch => f.write_str("switch"),
            Step::Kill => f.write_str("kill"),
            Step::Load => f.write_str("load"),
            Step::Reload => f.write_str("reload"),
            Step::Freeze => f.write_str("freeze"),
            Step::KillReplica => f.write_str("kill-replica"),
            Step::Upgrade { server } => write!(f, "upgrade {server}"),
            Step::Resync => f.write_str("resync"),
            Step::PowerLoss {
                kept_per_cent,
                everysec,
            } => {
                let lazily = if *everysec { "-everysec" } else { "" };
                write!(f, "power-loss{lazily} {kept_per_cent}")
            }
            Step::Clock { ms } => write!(f, "clock {ms}"),
            Step::Stray { database, request } => {
                write!(f, "stray {database}")?;
                write_request(f, request)
            }
            Step::Cut { hosts } => {
                f.write_str("cut")?;
                hosts.iter().try_for_each(|host| write!(f, " {host}"))
            }
            Step::Join => f.write_str("join"),
            Step::Close { on } => write!(f, "close {}", Connection(*on)),
            Step::Send { on, requests, fin } => {
                write!(f, "{}", Connection(*on))?;
                if *fin {
                    f.write_str(" fin")?;
                }
                for (nth, request) in requests.iter().enumerate() {
                    f.write_str(if nth == 0 { "" } else { " |" })?;
                    write_request(f, request)?;
                }
                Ok(())
            }
        }
    }
}

fn write_request(f: &mut fmt::Formatter<'_>, request: &FuzzRequest) -> fmt::Result {
    f.write_str(if request.odd { " ?" } else { "" })?;
    let mut words = request.words.iter();
    words.try_for_each(|word| write!(f, " {}", spelled(word)))
}

/// The name of a connection.
pub struct Connection(pub usize);

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            OPERATOR => f.write_str("op"),
            n => write!(f, "c{n}"),
        }
    }
}

/// A word as the log spells it: without blanks, line ends, and characters that have a meaning in the log.
fn spelled(word: &str) -> String {
    if word.is_empty() {
        return r"\e".to_owned();
    }
    let mut text = String::new();
    for c in word.chars() {
        match c {
            '\\' => text.push_str(r"\\"),
            '|' | '?' => text.push_str(&format!(r"\u{:04x}", u32::from(c))),
            c if c.is_ascii_graphic() => text.push(c),
            c => text.push_str(&format!(r"\u{:04x}", u32::from(c) & 0xffff)),
        }
    }
    text
}

fn read_word(text: &str) -> Result<String, String> {
    if text == r"\e" {
        return Ok(String::new());
    }
    let mut word = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        word.push_str(before);
        rest = if let Some(after) = after.strip_prefix('\\') {
            word.push('\\');
            after
        } else {
            let code = after.strip_prefix('u').and_then(|after| after.get(..4));
            let code = code.and_then(|digits| u32::from_str_radix(digits, 16).ok());
            let c = code.and_then(char::from_u32);
            word.push(c.ok_or_else(|| format!("'{text}' is no word"))?);
            &after[5..]
        };
    }
    word.push_str(rest);
    Ok(word)
}

#[test]
fn steps_are_read_as_they_were_written() {
    let odd = FuzzRequest {
        words: vec![
            "GET".to_owned(),
            "a |\\ ?\r\n\u{7f}é".to_owned(),
            String::new(),
        ],
        odd: true,
    };
    let send = |requests: &[FuzzRequest], fin| Step::Send {
        on: 7,
        requests: requests.to_vec(),
        fin,
    };
    let steps = [
        send(std::slice::from_ref(&odd), false),
        send(
            &[FuzzRequest::line("MULTI"), odd, FuzzRequest::line("EXEC")],
            true,
        ),
        Step::operator(&["CLIENT KILL ID $client:7", "DEL a"]),
        Step::Close { on: 3 },
        Step::Settle,
        Step::Compare,
        Step::Failover,
        Step::Switch,
        Step::Upgrade { server: 1 },
        Step::Kill,
        Step::Load,
        Step::Reload,
        Step::Freeze,
        Step::KillReplica,
        Step::Resync,
        Step::PowerLoss {
            kept_per_cent: 37,
            everysec: false,
        },
        Step::PowerLoss {
            kept_per_cent: 0,
            everysec: true,
        },
        Step::Clock { ms: -3_600_000 },
        Step::Stray {
            database: 1,
            request: FuzzRequest::line("DLOCK.RELEASE a t5"),
        },
        Step::Cut { hosts: vec![0, 2] },
        Step::Join,
    ];
    for step in steps {
        let text = step.to_string();
        assert!(!text.contains(['\r', '\n']), "{text:?}");
        assert_eq!(Step::read(&text), Ok(step), "{text}");
    }
    assert!(Step::read("x GET a").is_err());
}
