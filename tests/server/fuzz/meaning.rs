//! What a request asks for, read from its words. The ledger and the checks of replies rely on this.
//!
//! A log that is sent again has only words, so nothing here comes from the generator of requests.

use crate::support::{Family, InCommands};

pub use dsync_engine::types::Claim;

/// Returns whether two such holds of one key cannot exist at the same time, whatever the limit.
pub fn exclude_each_other(one: Claim, other: Claim) -> bool {
    match (one, other) {
        (Claim::Exclusive, Claim::Exclusive | Claim::Shared)
        | (Claim::Shared, Claim::Exclusive)
        | (Claim::Run, Claim::Run) => true,
        _ => one.family() != other.family(),
    }
}

/// ACQUIRE, ADD or BEGIN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub key: String,
    pub claim: Claim,
    pub limit: Option<u64>,
    pub max: Option<u64>,
    pub lease_ms: Option<u64>,
    pub min_hold_ms: Option<u32>,
    pub block_ms: Option<u64>,
    pub queue_ms: Option<u64>,
    pub token: Option<String>,
    pub lane: Option<String>,
    pub lane_limit: Option<u64>,
    pub ephemeral: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Release,
    Renew,
    Check,
    /// DWG.DONE and DONCE.DONE.
    Done,
    Fail,
}

impl Verb {
    /// Returns whether the command ends the hold.
    pub fn ends(self) -> bool {
        matches!(self, Verb::Release | Verb::Done | Verb::Fail)
    }
}

/// A command about a hold, by its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub family: Family,
    pub verb: Verb,
    pub key: String,
    pub tokens: Vec<String>,
    pub lease_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    Ask(Ask),
    Word(Word),
    /// DWG.WAIT.
    Wait {
        block_ms: Option<u64>,
    },
    Revoke {
        fence: u64,
    },
    /// DSEM.LIMIT, with `None` for NONE.
    Pin {
        key: String,
        limit: Option<u64>,
    },
    /// Any other command of the module: it ends no hold, and only its reply is checked.
    Plain,
    /// The values of these keys are removed, at once or `later_ms` later.
    Remove {
        keys: Vec<String>,
        later_ms: Option<u64>,
    },
    /// A value moves from one key to another of the same database, or to the same key of another database.
    Move {
        from: String,
        to: String,
        database: Option<usize>,
    },
    /// FLUSHDB and FLUSHALL.
    Flush,
    Swap,
    /// RESTORE of a payload that every primary refuses.
    Beyond,
    /// A request that concerns no hold.
    Other,
}

impl Meaning {
    /// Reads the words. A malformed request is [`Meaning::Other`].
    pub fn of(words: &[String]) -> Meaning {
        read(words).unwrap_or(Meaning::Other)
    }

    /// The milliseconds of BLOCK, where 0 is without limit; `None` for a request that does not wait.
    pub fn block_ms(&self) -> Option<u64> {
        match self {
            Meaning::Ask(ask) => ask.block_ms,
            Meaning::Wait { block_ms } => *block_ms,
            _ => None,
        }
    }
}

fn read(words: &[String]) -> Option<Meaning> {
    let name = words.first()?.to_ascii_uppercase();
    let key = || words.get(1).cloned();
    if let Some((prefix, verb)) = name.split_once('.')
        && let Some(family) = Family::ALL.into_iter().find(|f| f.prefix() == prefix)
    {
        return read_own(family, verb, words);
    }
    Some(match name.as_str() {
        // With one word more it is RESET, or malformed.
        "DSYNC.LOG" if words.len() == 2 => Meaning::Other,
        "DSYNC.CONTENDED" | "DSYNC.HOLDS" | "DSYNC.LOG" => Meaning::Plain,
        "DEL" | "UNLINK" => Meaning::Remove {
            keys: words[1..].to_vec(),
            later_ms: None,
        },
        "SET" => Meaning::Remove {
            keys: vec![key()?],
            later_ms: None,
        },
        "PEXPIRE" => Meaning::Remove {
            keys: vec![key()?],
            later_ms: Some(words.get(2)?.parse().ok()?),
        },
        "RENAME" | "RENAMENX" | "COPY" => Meaning::Move {
            from: key()?,
            to: words.get(2)?.clone(),
            database: None,
        },
        "RESTORE" if words.get(3).is_some_and(|word| word == "$beyond") => Meaning::Beyond,
        "RESTORE" => Meaning::Move {
            from: words.get(3)?.strip_prefix("$dump:")?.to_owned(),
            to: key()?,
            database: None,
        },
        "MOVE" => Meaning::Move {
            from: key()?,
            to: key()?,
            database: words.get(2)?.parse().ok(),
        },
        "FLUSHALL" | "FLUSHDB" => Meaning::Flush,
        "SWAPDB" => Meaning::Swap,
        _ => Meaning::Other,
    })
}

fn read_own(family: Family, verb: &str, words: &[String]) -> Option<Meaning> {
    let key = words.get(1)?.clone();
    let word = |verb, last: usize| {
        let tokens = words.get(2..last.min(words.len()))?.to_vec();
        let (name, lease) = match words.get(3..) {
            Some([name, lease]) => (name.to_ascii_uppercase(), lease.parse::<u64>().ok()),
            _ => (String::new(), None),
        };
        let lease_ms = match name.as_str() {
            "EX" => lease.map(|seconds| seconds.saturating_mul(1_000)),
            "PX" => lease,
            _ => None,
        };
        Some(Meaning::Word(Word {
            family,
            verb,
            key: key.clone(),
            tokens,
            lease_ms,
        }))
    };
    match (family, verb) {
        (Family::Lock | Family::Semaphore, "ACQUIRE")
        | (Family::Group, "ADD")
        | (Family::Once, "BEGIN") => read_ask(family, words).map(Meaning::Ask),
        (_, "RELEASE") => word(Verb::Release, 3),
        (_, "RENEW") => word(Verb::Renew, 3),
        (_, "CHECK") => word(Verb::Check, 3),
        (Family::Group, "DONE") => word(Verb::Done, usize::MAX),
        (Family::Once, "DONE") => word(Verb::Done, 3),
        (Family::Once, "FAIL") => word(Verb::Fail, 3),
        (_, "REVOKE") => Some(Meaning::Revoke {
            fence: words.get(2)?.parse().ok()?,
        }),
        (Family::Semaphore, "LIMIT") => Some(Meaning::Pin {
            key,
            limit: words.get(2)?.parse().ok(),
        }),
        (Family::Group, "WAIT") => Some(Meaning::Wait {
            block_ms: words.get(3).and_then(|ms| ms.parse().ok()),
        }),
        _ => Some(Meaning::Plain),
    }
}

fn read_ask(family: Family, words: &[String]) -> Option<Ask> {
    let mut ask = Ask {
        key: words.get(1)?.clone(),
        claim: match family {
            Family::Lock => Claim::Exclusive,
            Family::Semaphore => Claim::Permits(1),
            Family::Group => Claim::Member,
            Family::Once => Claim::Run,
        },
        limit: None,
        max: None,
        lease_ms: None,
        min_hold_ms: None,
        block_ms: None,
        queue_ms: None,
        token: None,
        lane: None,
        lane_limit: None,
        ephemeral: false,
    };
    let mut rest = words[2..].iter();
    while let Some(word) = rest.next() {
        let word = word.to_ascii_uppercase();
        match word.as_str() {
            "SHARED" => ask.claim = Claim::Shared,
            "INDEX" => ask.claim = Claim::Indexed,
            "EPHEMERAL" => ask.ephemeral = true,
            "TOKEN" => ask.token = Some(rest.next()?.clone()),
            "LANE" => ask.lane = Some(rest.next()?.clone()),
            "OWNER" => drop(rest.next()?),
            _ => {
                let number: u64 = rest.next()?.parse().ok()?;
                match word.as_str() {
                    "EX" => ask.lease_ms = Some(number.saturating_mul(1_000)),
                    "PX" => ask.lease_ms = Some(number),
                    "MINHOLD" => ask.min_hold_ms = number.try_into().ok(),
                    "BLOCK" => ask.block_ms = Some(number),
                    "QUEUE" => ask.queue_ms = Some(number),
                    "LIMIT" => ask.limit = Some(number),
                    "LANELIMIT" => ask.lane_limit = Some(number),
                    "MAX" => ask.max = Some(number),
                    "PERMITS" => ask.claim = Claim::Permits(number.try_into().ok()?),
                    _ => return None,
                }
            }
        }
    }
    Some(ask)
}

#[test]
fn request_words_are_read_as_the_server_reads_them() {
    let of = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Meaning::of(&words)
    };
    let Meaning::Ask(ask) =
        of("dsem.acquire a LIMIT 3 PERMITS 2 TOKEN t EX 2 BLOCK 0 EPHEMERAL OWNER TOKEN")
    else {
        panic!("it asks");
    };
    assert_eq!(
        (ask.claim, ask.limit, ask.token.as_deref()),
        (Claim::Permits(2), Some(3), Some("t"))
    );
    assert_eq!(
        (ask.lease_ms, ask.block_ms, ask.ephemeral),
        (Some(2_000), Some(0), true)
    );
    let Meaning::Ask(ask) = of("DSEM.ACQUIRE a INDEX LIMIT 3 MINHOLD 7 LANE l LANELIMIT 2") else {
        panic!("it asks");
    };
    assert_eq!((ask.claim, ask.limit), (Claim::Indexed, Some(3)));
    assert_eq!(ask.min_hold_ms, Some(7));
    assert_eq!((ask.lane.as_deref(), ask.lane_limit), (Some("l"), Some(2)));
    let Meaning::Word(word) = of("DWG.DONE a t u") else {
        panic!("it is about tokens");
    };
    assert_eq!(word.tokens, ["t", "u"]);
    let Meaning::Word(word) = of("DLOCK.RENEW a t PX 7") else {
        panic!("it is about a token");
    };
    assert_eq!((word.tokens.len(), word.lease_ms), (1, Some(7)));
    assert_eq!(of("DLOCK.ACQUIRE a PX"), Meaning::Other);
}
