//! Random requests: every command of every family with every option, with few keys and few tokens, so that they meet.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};

use super::driver::{SeenGrant, Waiting};
use super::run_view::RunView;
use super::step::FuzzRequest;
use crate::support::{Family, InCommands};

/// All names of keys. A plan uses the first few.
pub const NAMES: [&str; 9] = [
    "a",
    "b",
    "c{t}",
    "a-name-longer-than-kept-in-place\r\n",
    "d",
    "e",
    "{t}f",
    "g",
    "h",
];
pub const DATABASES: usize = 3;

/// Tokens that are used for any key of any family.
const SHARED_TOKENS: [&str; 4] = [
    "t",
    "8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59",
    "8F14E45F-CEEA-467F-A8F5-6D1E2C3B4A59",
    "\r\n$-1",
];

/// What a module may know, by its version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    V0_2_0,
    /// QUEUE, PAUSE, DELAY, PERSIST, DONCE.GET and what operators see of all keys. INFO has all fields that a reply is
    /// checked for.
    V0_3_0,
    /// Groups and work-once keys keep what a grant on a kept place has displaced, and their digest has it.
    V0_3_1,
    /// LANE, MINHOLD and INDEX. RESTORE compares payloads with the bounds of commands.
    V0_4_0,
}

pub struct RequestGenerator {
    pub rng: StdRng,
    /// How many of the names are used.
    keys: usize,
    /// The family that most requests for a key are of, until it changes.
    families: Vec<Family>,
    /// The limit that most requests for a key bring, until it changes.
    limits: Vec<u32>,
    tokens: u32,
    /// The oldest module that must know the requests.
    oldest: Version,
}

impl RequestGenerator {
    pub fn new(seed: u64, keys: usize, oldest: Version) -> RequestGenerator {
        let mut requests = RequestGenerator {
            rng: StdRng::seed_from_u64(seed),
            keys,
            families: Vec::new(),
            limits: Vec::new(),
            tokens: 0,
            oldest,
        };
        for _ in NAMES {
            let family = requests.family();
            requests.families.push(family);
            let limit = requests.rng.random_range(1..4);
            requests.limits.push(limit);
        }
        requests
    }

    /// Whether requests may have what this version brought.
    fn knows(&self, version: Version) -> bool {
        self.oldest >= version
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    pub fn number(&mut self, range: std::ops::Range<u32>) -> String {
        self.rng.random_range(range).to_string()
    }

    pub fn one_of<'b, T: ?Sized>(&mut self, choices: &[&'b T]) -> &'b T {
        choices[self.rng.random_range(0..choices.len())]
    }

    fn family(&mut self) -> Family {
        Family::ALL[self.rng.random_range(0..Family::ALL.len())]
    }

    pub fn key(&mut self) -> usize {
        self.rng.random_range(0..self.keys)
    }

    pub fn database(&mut self) -> usize {
        [0, 0, 0, 0, 0, 0, 0, 1, 1, 2][self.rng.random_range(0..10)]
    }

    /// Gives a key another family and another limit; returns its name.
    pub fn turn_over(&mut self) -> &'static str {
        let key = self.key();
        self.families[key] = self.family();
        self.limits[key] = self.rng.random_range(1..4);
        NAMES[key]
    }

    /// Tiny, short or long.
    fn lease(&mut self) -> Vec<String> {
        let (name, value) = match self.rng.random_range(0..20) {
            0..3 => ("EX", self.number(60..600)),
            3..10 => ("PX", self.number(1..30)),
            10..17 => ("PX", self.number(30..500)),
            _ => return Vec::new(),
        };
        vec![name.to_owned(), value]
    }

    fn new_token(&mut self) -> String {
        self.tokens += 1;
        let token = format!("t{}", self.tokens);
        if self.tokens.is_multiple_of(37) {
            // The longest token that is allowed.
            return format!("{token}{}", "x".repeat(128 - token.len()));
        }
        token
    }

    fn block(&mut self) -> Vec<String> {
        let ms = match self.rng.random_range(0..20) {
            0..7 => return Vec::new(),
            7..10 => "0".to_owned(),
            10..16 => self.number(1..50),
            _ => self.number(50..1_500),
        };
        vec!["BLOCK".to_owned(), ms]
    }

    /// A request for a hold, and its database.
    pub fn ask(&mut self, view: &dyn RunView, in_script: bool) -> (usize, FuzzRequest) {
        if self.chance(25)
            && let Some(retry) = self.retry(view, in_script)
        {
            return retry;
        }
        let key = self.key();
        let family = if self.chance(93) {
            self.families[key]
        } else {
            self.family()
        };
        let token = match self.rng.random_range(0..20) {
            0..3 => None,
            3..5 => Some(self.one_of(&SHARED_TOKENS).to_owned()),
            5 if self.tokens > 8 => {
                let back = self.rng.random_range(0..8);
                Some(format!("t{}", self.tokens - back))
            }
            _ => Some(self.new_token()),
        };
        let database = self.database();
        (database, self.ask_for(family, key, token, in_script))
    }

    /// A repeated request: a known token for the same key.
    fn retry(&mut self, view: &dyn RunView, in_script: bool) -> Option<(usize, FuzzRequest)> {
        let (database, key, family, token) = if self.chance(50) {
            let waiting = view.waiting();
            let at = self.some(waiting.len())?;
            let waiting = waiting.into_iter().nth(at)?;
            (
                waiting.database,
                waiting.key,
                waiting.family,
                waiting.token?,
            )
        } else {
            let grant = self.seen_grant(view)?;
            (grant.database, grant.key, grant.family, grant.token)
        };
        let key = NAMES.iter().position(|name| *name == key)?;
        Some((database, self.ask_for(family, key, Some(token), in_script)))
    }

    /// The request of a client that waits, once more; `None` if it has no token.
    pub fn late(&mut self, waiting: &Waiting) -> Option<(usize, FuzzRequest)> {
        let key = NAMES.iter().position(|name| *name == waiting.key)?;
        let token = Some(waiting.token.clone()?);
        let request = self.ask_for(waiting.family, key, token, false);
        Some((waiting.database, request))
    }

    /// A hand-off of a key that no other request uses: a request that is granted at once, two that wait for its end, and
    /// what ends it; and their database.
    pub fn hand_off(&mut self) -> (usize, [FuzzRequest; 4]) {
        let (database, key, family) = (self.database(), self.keys, self.family());
        let tokens = [(); 3].map(|()| self.new_token());
        let release = family.release(NAMES[key], &tokens[0]);
        let mut waits = ["", "BLOCK 0", "BLOCK 300"].into_iter();
        let [held, first, second] = tokens.map(|token| {
            let more = format!("EX 60 {}", waits.next().unwrap_or_default());
            FuzzRequest::line(family.acquire(NAMES[key], &token, &more).trim_end())
        });
        (database, [held, first, second, FuzzRequest::line(&release)])
    }

    fn some(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| self.rng.random_range(0..count))
    }

    /// A grant that was read, most often a late one.
    pub fn seen_grant(&mut self, view: &dyn RunView) -> Option<SeenGrant> {
        let all = view.seen_grants();
        let older = self.rng.random_range(0.0..1.0f64).powi(3);
        let back = (older * all.len() as f64) as usize;
        all.iter().rev().nth(back).cloned()
    }

    fn ask_for(
        &mut self,
        family: Family,
        key: usize,
        token: Option<String>,
        in_script: bool,
    ) -> FuzzRequest {
        let limit = match self.rng.random_range(0..20) {
            0..14 => Some(self.limits[key]),
            14..17 => Some(self.rng.random_range(1..6)),
            _ => None,
        };
        let (name, mut options) = match family {
            Family::Lock if self.chance(40) => ("DLOCK.ACQUIRE", vec!["SHARED".to_owned()]),
            Family::Lock => ("DLOCK.ACQUIRE", Vec::new()),
            Family::Semaphore => ("DSEM.ACQUIRE", Vec::new()),
            Family::Group => ("DWG.ADD", Vec::new()),
            Family::Once => ("DONCE.BEGIN", Vec::new()),
        };
        if let (Family::Semaphore | Family::Group, Some(limit)) = (family, limit) {
            options.extend(["LIMIT".to_owned(), limit.to_string()]);
        }
        if family == Family::Semaphore && self.chance(30) {
            options.extend(["PERMITS".to_owned(), self.number(1..4)]);
        } else if family == Family::Semaphore && self.knows(Version::V0_4_0) && self.chance(30) {
            options.push("INDEX".to_owned());
        }
        if family == Family::Semaphore && self.knows(Version::V0_4_0) && self.chance(30) {
            let lane = self.one_of(&["l", "l", "m", "a lane\r\n"]).to_owned();
            options.extend(["LANE".to_owned(), lane]);
            if self.chance(30) {
                options.extend(["LANELIMIT".to_owned(), self.number(1..4)]);
            }
        }
        if family == Family::Once && self.chance(50) {
            let most = self.one_of(&["1", "1", "1", "2", "2", "3", "5"]);
            options.extend(["MAX".to_owned(), most.to_owned()]);
        }
        let may_rest =
            self.knows(Version::V0_4_0) && matches!(family, Family::Lock | Family::Semaphore);
        if may_rest && self.chance(15) {
            options.extend(["MINHOLD".to_owned(), self.number(1..400)]);
        }
        options.extend(self.lease());
        let version = match family {
            Family::Group | Family::Once => Version::V0_3_1,
            _ => Version::V0_3_0,
        };
        let keeps = token.is_some() && self.knows(version) && self.chance(20);
        if keeps {
            options.extend(["QUEUE".to_owned(), self.number(1_000..2_000)]);
        } else {
            options.extend(self.block());
        }
        if !in_script && !keeps && self.chance(15) {
            options.push("EPHEMERAL".to_owned());
        }
        if self.chance(15) {
            options.extend(["OWNER".to_owned(), format!("o\r\n{}", self.tokens)]);
        }
        let token = token.map(|token| vec!["TOKEN".to_owned(), token]);
        let words = [name, NAMES[key]].map(str::to_owned).into_iter();
        FuzzRequest::new(words.chain(token.into_iter().flatten()).chain(options))
    }

    /// A command about an existing hold or key, and its database.
    pub fn word(&mut self, view: &dyn RunView) -> (usize, FuzzRequest) {
        let (mut database, mut key, mut family, mut token) = match self.seen_grant(view) {
            Some(grant) => (grant.database, grant.key, grant.family, grant.token),
            None => (0, NAMES[0].to_owned(), Family::Lock, "t".to_owned()),
        };
        if self.chance(12) {
            // About a waiting request.
            let waiting = view.waiting();
            if let Some(at) = self.some(waiting.len())
                && let Some(queued) = waiting[at].token.clone()
            {
                let waiting = &waiting[at];
                (database, key, family, token) = (
                    waiting.database,
                    waiting.key.clone(),
                    waiting.family,
                    queued,
                );
            }
        }
        if self.chance(4) {
            family = self.family();
        }
        if self.chance(4) {
            key = NAMES[self.key()].to_owned();
        }
        let prefix = family.prefix();
        let say = |verb: &str, rest: &[String]| {
            let words = [format!("{prefix}.{verb}"), key.clone()].into_iter();
            FuzzRequest::new(words.chain(rest.iter().cloned()))
        };
        let by_token = |verb: &str, rest: Vec<String>| {
            let rest: Vec<String> = std::iter::once(token.clone()).chain(rest).collect();
            say(verb, &rest)
        };
        let request = match (self.rng.random_range(0..100), family) {
            (0..30, _) => by_token("RELEASE", Vec::new()),
            (30..40, _) => by_token("RENEW", self.lease()),
            (40..45, _) => by_token("CHECK", Vec::new()),
            (45..53, _) => say("REVOKE", &[format!("$fence:{token}")]),
            (53..57, _) if self.knows(Version::V0_3_0) => say("INFO", &[]),
            (57..75, Family::Semaphore) => {
                let limit = if self.chance(50) {
                    "NONE".to_owned()
                } else {
                    self.number(0..4)
                };
                say("LIMIT", &[limit])
            }
            (57..75, Family::Group) => {
                let mut tokens = Vec::new();
                for _ in 0..self.rng.random_range(0..3) {
                    tokens.extend(self.seen_grant(view).map(|grant| grant.token));
                }
                by_token("DONE", tokens)
            }
            (75..82, Family::Group) => say("EXPECT", &[self.number(1..4)]),
            (82..95, Family::Group) => say("WAIT", &self.block()),
            (57..68, Family::Once) => by_token("DONE", self.result()),
            (68..80, Family::Once) => {
                let mut rest = Vec::new();
                if self.chance(50) {
                    rest.extend(["REASON", "no disk\r\n"].map(str::to_owned));
                }
                if self.knows(Version::V0_3_0) && self.chance(40) {
                    rest.extend(["DELAY".to_owned(), self.number(0..200)]);
                }
                by_token("FAIL", rest)
            }
            (80..85, Family::Once) if self.knows(Version::V0_3_0) => say("GET", &[]),
            (95..97, _) if self.knows(Version::V0_3_0) => {
                let ms = if self.chance(30) {
                    "0".to_owned()
                } else {
                    self.number(1..600)
                };
                say("PAUSE", &[ms])
            }
            (97.., _) if self.knows(Version::V0_3_0) => FuzzRequest::line(self.one_of(&[
                "DSYNC.CONTENDED COUNT 5",
                "DSYNC.HOLDS 0 COUNT 100",
                "DSYNC.HOLDS 3-1700000000000000 OWNER w*",
                "DSYNC.LOG COUNT 5",
            ])),
            _ => by_token("RELEASE", Vec::new()),
        };
        (database, request)
    }

    fn result(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        if self.chance(60) {
            let bytes = if self.chance(5) { 5_000 } else { 5 };
            rest.extend(["RESULT".to_owned(), "r".repeat(bytes)]);
        }
        if self.knows(Version::V0_3_0) && self.chance(10) {
            rest.push("PERSIST".to_owned());
        } else {
            rest.extend(self.lease());
        }
        rest
    }

    /// Changes a word of the request, so that it may be malformed.
    pub fn spoil(&mut self, mut request: FuzzRequest) -> FuzzRequest {
        request.odd = true;
        let words = &mut request.words;
        let at = self.rng.random_range(1..=words.len());
        match self.rng.random_range(0..6) {
            0 => words.truncate(at),
            1 => words.push(words[at - 1].clone()),
            2 => words.insert(
                at,
                self.one_of(&["PX", "LIMIT", "EPHEMERAL", "", "TOKEN"])
                    .to_owned(),
            ),
            _ => {
                let odd = [
                    "0",
                    "-1",
                    "99999999999999999999",
                    "",
                    "1.5",
                    "9007199254740992",
                ];
                let odd = self.one_of(&odd).to_owned();
                if let Some(word) = words.get_mut(at) {
                    *word = odd;
                }
            }
        }
        request
    }

    /// A command of the server itself that changes keys.
    pub fn keyspace(&mut self, ttls: bool, flushes: bool) -> FuzzRequest {
        let (key, other) = (NAMES[self.key()], NAMES[self.key()]);
        let elsewhere = self.number(0..DATABASES as u32);
        let ms = if ttls {
            self.number(1..60)
        } else {
            "900000".to_owned()
        };
        let mut odd = false;
        let words: Vec<&str> = match self.rng.random_range(0..200) {
            0..70 => vec!["DEL", key],
            70..85 => vec!["UNLINK", key, other],
            85..115 => vec!["RENAME", key, other],
            115..122 => vec!["RENAMENX", key, other],
            122..140 => vec!["MOVE", key, &elsewhere],
            140..146 => vec!["SWAPDB", "0", &elsewhere],
            146..150 => vec!["PEXPIRE", key, &ms],
            150..152 => vec!["PERSIST", key],
            152..162 => vec!["SET", key, "overwritten"],
            162..166 => vec!["COPY", key, other],
            166..188 => {
                odd = true;
                let dump = match self.knows(Version::V0_4_0) && self.chance(20) {
                    true => "$beyond".to_owned(),
                    false => format!("$dump:{key}"),
                };
                let words = ["RESTORE", other, "0", &dump, "REPLACE"].map(str::to_owned);
                return FuzzRequest {
                    words: words.to_vec(),
                    odd,
                };
            }
            188..190 if flushes => vec!["FLUSHDB"],
            190..192 if flushes => vec!["FLUSHALL", "ASYNC"],
            192 if flushes => vec!["FLUSHALL"],
            _ => vec!["DEL", key, other],
        };
        FuzzRequest {
            odd,
            ..FuzzRequest::new(words)
        }
    }
}
