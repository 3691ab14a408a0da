//! A primary whose replication stream is compared, word by word, with what a test expects.
//!
//! An expected command is written `key family | change | change`. In it `@` stands for the moment of the decision in
//! milliseconds since 1970, and `@+n` for n milliseconds later: one command is one decision, so all its moments are
//! counted from the same one. A command that is no DSYN is written with a `!` before it, and only its beginning counts.

use crate::support::steps::{SOON, unix_ms};
use crate::support::*;

pub struct WatchedPrimary {
    pub server: Server,
    pub stream: ReplicationStream,
    pub client: Client,
    /// No moment of an expected command is earlier, in milliseconds since 1970.
    pub since: u64,
    /// How many MULTI and EXEC were read since the last `forget`.
    brackets: usize,
}

impl WatchedPrimary {
    pub fn start() -> WatchedPrimary {
        WatchedPrimary::start_with(Server::builder())
    }

    pub fn start_with(builder: Builder) -> WatchedPrimary {
        let server = builder.start();
        WatchedPrimary {
            stream: ReplicationStream::attach(&server),
            client: server.connect(),
            since: unix_ms(),
            brackets: 0,
            server,
        }
    }

    #[track_caller]
    pub fn ask(&mut self, line: impl AsRef<str>) -> Reply {
        self.client.ask(line)
    }

    /// Sends a request that is granted at once; returns the fence.
    #[track_caller]
    pub fn fence(&mut self, line: impl AsRef<str>) -> u64 {
        fence_of(&self.ask(line))
    }

    /// Skips what was replicated so far.
    pub fn forget(&mut self) {
        self.stream.take_so_far(&self.server);
        self.since = unix_ms();
        self.brackets = 0;
    }

    /// Asserts that these commands are replicated next, and nothing after them. MULTI and EXEC are skipped.
    #[track_caller]
    pub fn expect<E: AsRef<str>>(&mut self, expected: &[E]) {
        let replicated = self.next_commands(expected.len());
        for (expected, command) in expected.iter().zip(&replicated) {
            assert_replicated(expected.as_ref(), command, self.since);
        }
        let rest = self.stream.take_so_far(&self.server);
        let mut rest: Vec<_> = rest.iter().map(|command| words(command)).collect();
        self.drop_brackets(&mut rest);
        assert!(rest.is_empty(), "and then {rest:?}");
    }

    /// As [`WatchedPrimary::expect`], and no MULTI or EXEC came since the last `forget`.
    #[track_caller]
    pub fn expect_bare<E: AsRef<str>>(&mut self, expected: &[E]) {
        self.expect(expected);
        assert_eq!(self.brackets, 0, "a single command in MULTI and EXEC");
    }

    #[track_caller]
    pub fn expect_nothing(&mut self) {
        self.expect::<&str>(&[]);
    }

    /// Waits for this many commands, without MULTI and EXEC.
    #[track_caller]
    pub fn next_commands(&mut self, count: usize) -> Vec<Vec<String>> {
        let mut replicated = Vec::new();
        while replicated.len() < count {
            match self.stream.next(SOON) {
                Some(command) => replicated.push(words(&command)),
                None => panic!("nothing within {SOON:?} after {replicated:?}"),
            }
            self.drop_brackets(&mut replicated);
        }
        replicated
    }

    fn drop_brackets(&mut self, commands: &mut Vec<Vec<String>>) {
        let before = commands.len();
        commands.retain(|command| !is_bracket(command));
        self.brackets += before - commands.len();
    }
}

fn is_bracket(command: &[String]) -> bool {
    ["MULTI", "EXEC"]
        .iter()
        .any(|bracket| command[0].eq_ignore_ascii_case(bracket))
}

/// The fence of a grant or a run.
#[track_caller]
pub fn fence_of(reply: &Reply) -> u64 {
    match reply.as_array() {
        [_, Reply::Int(fence)] | [_, _, Reply::Int(fence), _] => fence.unsigned_abs(),
        _ => panic!("expected a grant, received {reply:?}"),
    }
}

#[track_caller]
pub fn assert_replicated(expected: &str, command: &[String], since: u64) {
    if let Some(beginning) = expected.strip_prefix('!') {
        let command = command.join(" ");
        assert!(
            command
                .to_uppercase()
                .starts_with(&beginning.to_uppercase()),
            "{expected}: {command}"
        );
        return;
    }
    let [apply, key, kind, changes @ ..] = command else {
        panic!("expected {expected}, the primary replicated {command:?}");
    };
    let text = [&[format!("{key} {kind}")], changes].concat().join(" | ");
    assert_eq!(apply, "DSYN", "{text}");
    let mut moment = None;
    assert!(
        is_same(expected, &text, |at| {
            (since..=unix_ms()).contains(&at) && *moment.get_or_insert(at) == at
        }),
        "expected (since {since})\n    {expected}\nreplicated\n    {text}"
    );
}

/// Compares word by word. For each `@` and `@+n`, `is_moment` judges the moment of the decision.
pub fn is_same(expected: &str, text: &str, mut is_moment: impl FnMut(u64) -> bool) -> bool {
    let mut same = |(expected, word): (&str, &str)| {
        let Some(later) = expected.strip_prefix('@') else {
            return expected == word;
        };
        let later: u64 = match later {
            "" => 0,
            later => later.parse().expect("@+n"),
        };
        let at = word
            .parse::<u64>()
            .ok()
            .and_then(|at| at.checked_sub(later));
        at.is_some_and(&mut is_moment)
    };
    expected.split(' ').count() == text.split(' ').count()
        && expected.split(' ').zip(text.split(' ')).all(&mut same)
}

/// How a family is replicated.
pub struct StreamFamily {
    pub family: Family,
    pub claim: &'static str,
    /// The change by which a request's LIMIT takes force on a new key.
    pub limit: &'static str,
    /// The changes that follow the end of the last hold, where it was lost.
    pub lost: &'static str,
    /// The changes that follow the end of the last hold, where it was given back.
    pub returned: &'static str,
}

pub const FAMILIES: [StreamFamily; 4] = [
    StreamFamily {
        family: Family::Lock,
        claim: "exclusive",
        limit: "",
        lost: " | VANISH",
        returned: " | VANISH",
    },
    StreamFamily {
        family: Family::Semaphore,
        claim: "1",
        limit: " | LIMIT 1",
        lost: " | VANISH",
        returned: " | VANISH",
    },
    StreamFamily {
        family: Family::Group,
        claim: "member",
        limit: " | LIMIT 1",
        lost: " | FINISH @+60000",
        returned: " | FINISH @+60000",
    },
    StreamFamily {
        family: Family::Once,
        claim: "run",
        limit: "",
        lost: "",
        returned: " | VANISH",
    },
];

impl StreamFamily {
    pub fn prefix(&self) -> &'static str {
        self.family.prefix()
    }

    /// A request for a hold of this key, with this token.
    pub fn request(&self, key: &str, token: &str) -> String {
        self.family.acquire(key, token, "")
    }

    /// The key and the family, as they stand before the changes.
    pub fn about(&self, key: &str) -> String {
        format!("{key} {}", self.family.word())
    }

    /// A GRANT with the default lease and without an owner.
    pub fn grant(&self, fence: u64, token: &str) -> String {
        grant(fence, self.claim, 30_000, token)
    }
}

/// A GRANT without an owner.
pub fn grant(fence: u64, claim: &str, lease: u64, token: &str) -> String {
    let length = token.len();
    format!("GRANT {fence} {claim} {lease} @+{lease} @ 0 {length}:{token} 0:")
}
