//! A server with one key, called as the module calls the engine. The engine's invariants are checked after each call.

use dsync_engine::change::Change;
use dsync_engine::saved::{self, Assembly, Loaded, Unsound};
use dsync_engine::types::{Claim, ClientId, Db, LeaseMs, LeaseUs, MonoUs, Now, Token};
use dsync_engine::{Engine, Family, Key, LaneName, Request, Settings, StateId, Visit};

const DB: Db = Db(0);
const NAME: &[u8] = b"key";

/// Packed strings without their checks.
pub type Strings = Vec<Vec<u8>>;

pub struct Server {
    engine: Engine,
    now: Now,
    key: Option<StateId>,
}

impl Server {
    pub fn replica() -> Server {
        let now = Now {
            lease: LeaseUs(0),
            mono: MonoUs(5_000_000),
            unix_us: 1_800_000_000_000_000,
            may_write: true,
        };
        let engine = Engine::new(Settings::default());
        Server {
            engine,
            now,
            key: None,
        }
    }

    pub fn primary() -> Server {
        let mut server = Server::replica();
        server.take_over();
        server
    }

    /// Makes the server a primary, with a lease clock past all earlier moments, as the module does.
    pub fn take_over(&mut self) {
        let latest = self.engine.latest_due().0.saturating_add(1);
        self.now.lease = self.now.lease.max(LeaseUs(latest));
        self.engine.take_over(self.now);
        self.engine.check_invariants(self.now);
    }

    /// Applies what a primary wrote. Returns whether it fits.
    pub fn follow(&mut self, family: Family, changes: &[Change]) -> bool {
        self.visit(|visit| visit.follow(family, changes).is_ok())
    }

    /// Takes over what was saved, as an RDB file or RESTORE brings it. Returns whether it is accepted.
    pub fn adopt(&mut self, loaded: Loaded) -> bool {
        self.key = self.engine.adopt(loaded, DB, NAME, self.now).ok();
        self.engine.check_invariants(self.now);
        self.key.is_some()
    }

    /// Returns what a file would have of the key.
    pub fn saved(&self) -> Option<(Family, Strings)> {
        let body = &self.engine.state(self.key?)?.body;
        let places = self.engine.places(DB, NAME, body.family());
        Some((body.family(), strings(body, places)))
    }

    /// Queues a request that any of the families may grant.
    pub fn ask(&mut self, claim: Claim, token: &[u8]) {
        let Some(token) = Token::parse(token) else {
            return;
        };
        let request = Request {
            claim,
            limit: (claim.family() == Family::Semaphore).then_some(3),
            bound: (claim == Claim::Run).then_some(2),
            lease: LeaseMs(30_000),
            min_hold: None,
            wait: Some(MonoUs(self.now.mono.0 + 60_000_000)),
            keep_ms: None,
            token,
            may_return: true,
            client: ClientId(1),
            ephemeral: false,
            owner: None,
            lane: LaneName::default(),
            may_grow: true,
        };
        self.visit(|visit| drop(visit.acquire(request)));
    }

    /// Lets time pass until nothing comes due, or for so many moments.
    pub fn live(&mut self, moments: usize) {
        for _ in 0..moments {
            while self.engine.has_background() {
                self.engine.background(&mut 64);
            }
            let mut budget = 64;
            while let Some((task, ..)) = self.engine.next_task(self.now, &mut budget) {
                self.visit(|visit| visit.perform(task));
            }
            match self.engine.next_wake(self.now) {
                Some(us) => self.pass(us.max(1)),
                None => return,
            }
        }
    }

    fn pass(&mut self, us: u64) {
        let now = &mut self.now;
        now.lease.0 = now.lease.0.saturating_add(us);
        now.mono.0 = now.mono.0.saturating_add(us);
        now.unix_us = now.unix_us.saturating_add(us);
    }

    fn visit<R>(&mut self, call: impl FnOnce(&mut Visit<'_>) -> R) -> R {
        let key = Key {
            db: DB,
            name: NAME,
            state: self.key,
        };
        let visited = self.engine.visit(key, self.now, call);
        let (before, result) = (self.key, visited.result);
        self.key = visited.state;
        if let Some(id) = before.filter(|_| self.key.is_none()) {
            self.engine.unlinked(id, DB, NAME);
            self.engine.freed(id);
        }
        self.engine.effects.clear();
        self.engine.check_invariants(self.now);
        result
    }
}

/// Reads saved strings, each of which gets its check.
pub fn assemble(family: Family, strings: &[Vec<u8>]) -> Result<Loaded, Unsound> {
    let mut assembly = Assembly::new(family);
    for string in strings {
        assembly.add(&checked(string))?;
    }
    assembly.finish()
}

/// Returns what would be saved, without the checks.
pub fn strings(
    body: &dsync_engine::Body,
    places: impl IntoIterator<Item = dsync_engine::change::KeptPlace>,
) -> Strings {
    let mut strings = Strings::new();
    saved::pack(body, places, |packed| {
        strings.push(packed[..packed.len() - 4].to_vec());
    });
    strings
}

/// Appends the check of a packed string.
pub fn checked(string: &[u8]) -> Vec<u8> {
    [string, &crc32c::crc32c(string).to_le_bytes()].concat()
}

/// Splits an input into strings: before each there are two bytes with its length, the lower one first.
pub fn split(mut input: &[u8]) -> Strings {
    let mut strings = Strings::new();
    while let Some((length, rest)) = input.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        strings.push(rest[..length].to_vec());
        input = &rest[length..];
    }
    strings
}

/// Returns a claim of each kind that the family grants.
pub fn claims(family: Family) -> &'static [Claim] {
    match family {
        Family::Lock => &[Claim::Exclusive, Claim::Shared],
        Family::Semaphore => &[Claim::Permits(2), Claim::Indexed],
        Family::Group => &[Claim::Member],
        Family::Once => &[Claim::Run],
    }
}
