//! Servers that give fences, crash, start from files, follow each other and are promoted: the engine's real `Fences`
//! and `Record`, with files around them and no keys.
//!
//! What must hold:
//! - (a) the fences that one server gives rise in real time, over all its starts;
//! - (b) from a promotion on, while the old primary is cut off: its fences stay below those of the promoted server,
//!   also after starts there from its own files. For a time: see [`Setup::order_us`].
//!
//! A grant stands for 29 million of them, so that fences rise as fast as the rule allows for.
//!
//! `all` takes every sequence of a few events, `walks` long random ones. `excuse` names what the contract does not
//! promise.

mod all;
mod events;
mod excuse;
mod files;
mod life;
mod named;
mod order;
mod walks;

use dsync_engine::types::{Fence, LeaseUs, MonoUs, Now, UnixMs};
use dsync_engine::{Fences, Identity};

use excuse::Excuse;
use files::{Disk, File, From};
use life::Life;
use order::{Breach, Order};

const MINUTE_US: u64 = 60_000_000;
const HOUR_US: u64 = 60 * MINUTE_US;
/// In the beginning, a whole number of hours.
const BEGAN_US: u64 = 490_000 * HOUR_US;
/// How long each event takes.
const EVENT_US: u64 = 2 * MINUTE_US;
/// How many fences a grant stands for: nearly as many as the rule allows for in the time of an event, a quarter of it.
const BURST: u64 = 29_000_000;

/// What differs between worlds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub servers: usize,
    /// How far each server's clock is ahead.
    pub ahead_us: [u64; 3],
    pub tick_us: u64,
    /// For how long (b) must hold.
    pub order_us: u64,
    /// Which servers write AOFs instead of RDB files.
    pub has_aof: [bool; 3],
    pub may: May,
}

/// Which events there are, beside grants, crashes, saves, full synchronisations and promotions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct May {
    pub start_from_latest: bool,
    pub start_from_older: bool,
    pub start_from_nothing: bool,
    /// A server may follow an old primary that is cut off, though the one that was promoted in its place lives.
    pub follow_cut_off: bool,
    /// Replicas crash, roles change without a full synchronisation, and a synchronisation may leave the file as it was.
    pub change_roles: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Event {
    Pass,
    Grant(usize),
    GrantAndReplicate(usize),
    Crash(usize),
    Save(usize),
    /// Starts as a primary.
    Start(usize, From),
    /// Starts from the latest file as a replica of a server, which sends only what is missing.
    Resume(usize, usize),
    /// Becomes a replica of a server by full synchronisation, as it runs or after a crash.
    Sync {
        replica: usize,
        of: usize,
        keeps_file: bool,
    },
    Promote(usize),
    /// A planned switch: the primary waits until the replica has everything, then the roles change. No file is written.
    Switch {
        primary: usize,
        replica: usize,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Role {
    Primary,
    ReplicaOf(usize),
    Down,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Server {
    role: Role,
    fences: Fences,
    disk: Disk,
    /// The highest fence that it ever gave.
    highest: Fence,
    life: Life,
    /// The last fence that it gave since it took the place of another one, and when in milliseconds.
    given: Option<(Fence, u64)>,
    /// A replica has heard of its primary since that one took the place of another.
    has_heard: bool,
    /// A replica receives what its primary gives. It does not if that one took over the data of another.
    is_linked: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    us: u64,
    servers: Vec<Server>,
    orders: Vec<Order>,
}

fn identity(server: usize) -> Identity {
    Identity::from_hash((server as u32 + 1) << 20)
}

impl Setup {
    fn now(&self, server: usize, us: u64) -> Now {
        Now {
            lease: LeaseUs(0),
            mono: MonoUs(0),
            unix_us: us + self.ahead_us[server],
            may_write: true,
        }
    }
}

impl Server {
    fn is_replica_of(&self, primary: usize) -> bool {
        self.role == Role::ReplicaOf(primary) && self.is_linked
    }
}

impl World {
    /// Returns a primary that has served for long, with its replicas. All have files that are eight hours old.
    pub fn new(setup: &Setup) -> World {
        let saved_us = BEGAN_US - 8 * HOUR_US;
        let mut world = World {
            us: saved_us,
            servers: Vec::new(),
            orders: Vec::new(),
        };
        for server in 0..setup.servers {
            let mut fences = Fences::default();
            if server == 0 {
                fences.start(identity(0), setup.now(0, saved_us - 8 * HOUR_US));
                fences.next(setup.now(0, saved_us));
            }
            world.servers.push(Server {
                role: if server == 0 {
                    Role::Primary
                } else {
                    Role::ReplicaOf(0)
                },
                fences,
                disk: Disk::new(setup.has_aof[server]),
                highest: Fence(0),
                life: Life::new(setup.may.start_from_latest),
                has_heard: false,
                is_linked: false,
                given: None,
            });
        }
        world.save(setup, 0);
        for replica in 1..setup.servers {
            world.sync(setup, replica, 0, false);
            world.save(setup, replica);
        }
        world.us = BEGAN_US;
        world
    }

    /// Lets an event happen. Returns what it breaks.
    pub fn take(&mut self, setup: &Setup, event: Event) -> Vec<Breach> {
        let mut breaches = Vec::new();
        match event {
            Event::Pass => {}
            Event::Grant(server) => self.grant(setup, server, false, &mut breaches),
            Event::GrantAndReplicate(server) => self.grant(setup, server, true, &mut breaches),
            Event::Crash(server) => {
                self.servers[server].role = Role::Down;
                self.servers[server].fences = Fences::default();
            }
            Event::Save(server) => self.save(setup, server),
            Event::Start(server, from) => self.start(setup, server, from),
            Event::Resume(replica, of) => {
                let now = setup.now(replica, self.us);
                self.load(replica, From::Latest, now);
                self.follow(replica, of);
            }
            Event::Sync {
                replica,
                of,
                keeps_file,
            } => self.sync(setup, replica, of, keeps_file),
            Event::Promote(server) => self.promote(setup, server),
            Event::Switch { primary, replica } => {
                if let Some((last, granted)) = self.servers[primary].given {
                    self.replicate(setup, replica, last, UnixMs(granted));
                }
                self.promote(setup, replica);
                for server in 0..self.servers.len() {
                    if server == primary || self.servers[server].is_replica_of(primary) {
                        self.follow(server, replica);
                    }
                }
            }
        }
        self.us += if event == Event::Pass {
            setup.tick_us
        } else {
            EVENT_US
        };
        breaches
    }

    fn grant(&mut self, setup: &Setup, giver: usize, replicates: bool, breaches: &mut Vec<Breach>) {
        let now = setup.now(giver, self.us);
        let server = &mut self.servers[giver];
        let first = server.fences.next(now);
        let last = Fence(first.0 + BURST - 1);
        server.fences.adopt(last, now);
        if first <= server.highest {
            breaches.push(Breach {
                what: "(a) a fence is not above the server's earlier ones",
                excuse: server.life.excuse,
            });
        }
        server.highest = server.highest.max(last);
        server.given = Some((last, now.unix().0));
        server.disk.append(last, now.unix(), self.us);
        self.check_orders(setup, giver, (first, last), breaches);
        let is_highest = |other: &Server| other.highest.max(other.fences.last()) <= last;
        let is_in_order = |order: &Order| order.promoted == giver || order.old == giver;
        if self.servers.iter().all(is_highest) && !self.orders.iter().any(is_in_order) {
            // From now on nothing is lacking.
            self.servers[giver].life.excuse = None;
        }
        let replicas = (0..self.servers.len()).filter(|_| replicates);
        for replica in replicas {
            if self.servers[replica].is_replica_of(giver) {
                self.replicate(setup, replica, last, now.unix());
            }
        }
    }

    /// A replica follows a grant.
    fn replicate(&mut self, setup: &Setup, replica: usize, fence: Fence, granted: UnixMs) {
        let now = setup.now(replica, self.us);
        self.has_heard(replica);
        let server = &mut self.servers[replica];
        server.fences.adopt_grant(fence, granted, now);
        server.disk.append(fence, granted, self.us);
    }

    fn has_heard(&mut self, replica: usize) {
        let server = &mut self.servers[replica];
        if !server.has_heard {
            server.life.knew_leap_us = Some(self.us);
        }
        server.has_heard = true;
    }

    /// Returns the file that a server would write now.
    fn file_of(&self, setup: &Setup, index: usize) -> File {
        let server = &self.servers[index];
        let writer = (identity(index), server.role == Role::Primary);
        let now = setup.now(index, self.us);
        File::written(&server.fences, writer, now, self.us, server.life.excuse)
    }

    fn save(&mut self, setup: &Setup, server: usize) {
        let file = self.file_of(setup, server);
        self.servers[server].disk.save(file);
    }

    /// Loads the server's own file. Returns whether it wrote that as a primary.
    fn load(&mut self, index: usize, from: From, now: Now) -> bool {
        let server = &mut self.servers[index];
        let is_own_of_primary = server.disk.is_own_of_primary(from, identity(index));
        let data = server.disk.data(from);
        (server.life).began(from, data, is_own_of_primary, self.us);
        server.fences = server.disk.load(from, now);
        is_own_of_primary
    }

    /// A server becomes a replica. Nobody expects an order of its fences and others any more.
    fn follow(&mut self, replica: usize, of: usize) {
        let server = &mut self.servers[replica];
        if server.role == Role::Primary {
            server.life.changed_us = Some(self.us);
            server.life.knew_leap_us = Some(self.us);
        }
        server.role = Role::ReplicaOf(of);
        server.has_heard = false;
        server.is_linked = true;
        self.orders
            .retain(|order| order.old != replica && order.promoted != replica);
    }

    fn sync(&mut self, setup: &Setup, replica: usize, of: usize, keeps_file: bool) {
        let mut file = self.file_of(setup, of);
        self.follow(replica, of);
        let file_last = self.servers[of].fences.last();
        let server = &mut self.servers[replica];
        let known = server.fences.last();
        file.load(&mut server.fences, setup.now(replica, self.us));
        let is_unaware = server.fences.last() < server.highest;
        if is_unaware || known > file_last {
            file.excuse = Some(Excuse::SyncedWithUnaware);
        }
        server.life.excuse = file.excuse;
        for other in &mut self.servers {
            // They are behind other data now.
            other.is_linked &= other.role != Role::ReplicaOf(replica);
        }
        if file.says_something() {
            self.has_heard(replica);
        }
        let server = &mut self.servers[replica];
        if server.disk.has_aof() {
            // The server rewrites its AOF after a full synchronisation.
            self.save(setup, replica);
        } else if !keeps_file {
            server.disk.save(file);
        }
    }

    /// A server takes the place of another one, and its replicas have not heard of that.
    fn has_replaced(&mut self, index: usize) {
        self.servers[index].role = Role::Primary;
        self.servers[index].given = None;
        for server in &mut self.servers {
            server.has_heard &= server.role != Role::ReplicaOf(index);
        }
    }

    fn promote(&mut self, setup: &Setup, promoted: usize) {
        let now = setup.now(promoted, self.us);
        let server = &mut self.servers[promoted];
        let Role::ReplicaOf(old) = server.role else {
            panic!("only a replica is promoted");
        };
        server.life.changed_us = Some(self.us);
        server.fences.promote(now);
        let has_heard = server.has_heard;
        self.has_replaced(promoted);
        if !matches!(self.servers[old].role, Role::ReplicaOf(_)) {
            self.orders.push(Order {
                promoted,
                old,
                since_us: self.us,
                lowest: None,
                excuse: (!has_heard).then_some(Excuse::PromotedUnheard),
            });
        }
    }

    fn start(&mut self, setup: &Setup, index: usize, from: From) {
        let now = setup.now(index, self.us);
        let is_own_of_primary = self.load(index, from, now);
        self.servers[index].role = Role::Primary;
        self.servers[index].fences.start(identity(index), now);
        if !is_own_of_primary {
            self.has_replaced(index);
        }
        for order in &mut self.orders {
            order.started(index, is_own_of_primary, from);
        }
    }
}
