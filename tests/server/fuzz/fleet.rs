//! The servers of a run, and what happens to them as a whole: comparisons, changes of the primary, kills.
//!
//! There are a primary and a replica, both with an AOF that is synced before each reply, and a replica of the replica.
//! The first two change roles. The third takes writes of clients (`replica-read-only no`), but those of the module it
//! must refuse. All read one wall clock, and each may be on a host of its own.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::driver::Driver;
use super::requests::{DATABASES, NAMES};
use super::run_view::RunView;
use super::step::{FuzzRequest, OPERATOR, Step};
use super::upheavals::Means;
use crate::fuzz::history::{assert_same, assert_untroubled, contents};
use crate::support::data_files::{rewrite_aof, with_aof};
use crate::support::*;

/// How long an operation on the servers may take, on a machine under load.
const UNTIL: Duration = Duration::from_secs(40);
/// A hold is looked for after a restart only if this much of its lease is certainly left.
const AT_LEAST: Duration = Duration::from_secs(20);
/// How long a server stands still that is frozen.
const FROZEN: Duration = Duration::from_millis(150);
/// How many bytes more than at the start a server may keep when all is over: the end log, and room for as much as there was
/// at a time.
const KEPT_BYTES: u64 = 4 << 20;
/// The same of descriptors: the connections of replicas change sides.
const KEPT_DESCRIPTORS: usize = 8;
/// An address where no server listens.
const NOWHERE: &str = "127.0.0.1 1";

pub struct Fleet {
    servers: Vec<Server>,
    primary: usize,
    /// One for each server, or none.
    hosts: Vec<Host>,
    _network: Option<Network>,
    has_disks: bool,
    clock: Option<WallClock>,
    /// Of each server, before anything has happened.
    footprints: Vec<Footprint>,
}

/// A server with short retention, and vacant places that are kept long enough to be resumed.
fn builder() -> Builder {
    let short = [
        ("default-lease-ms", 80),
        ("rejoin-ms", 400),
        ("group-keep-ms", 100),
        ("group-idle-ms", 1_000),
        ("once-keep-ms", 300),
        ("takeover-grace-ms", 50),
    ];
    let builder = Server::builder().config("repl-backlog-size", "32mb");
    short.into_iter().fold(builder, |builder, (name, ms)| {
        builder.module_arg(name).module_arg(ms)
    })
}

impl Fleet {
    /// `on_hosts` puts each server on a host that can be cut off. All servers load this module, until [`Step::Upgrade`].
    #[track_caller]
    pub fn start(on_hosts: bool, module: &Path) -> Fleet {
        let network = on_hosts.then(Network::new).flatten();
        let hosts = network.iter();
        let hosts = hosts.flat_map(|network| (0..3).map(move |_| network.host()));
        let hosts: Vec<Host> = hosts.collect();
        let (disk, clock) = (Disk::new(), WallClock::new());
        let start = |number: usize, builder: Builder| {
            let mut builder = builder.module(module);
            if let Some(host) = hosts.get(number) {
                builder = builder.on(host);
            }
            if let Some(disk) = &disk {
                builder = disk.under(builder);
            }
            if let Some(clock) = &clock {
                builder = clock.over(builder);
            }
            builder.start()
        };
        let servers = vec![
            start(0, with_aof(builder(), "always", "yes")),
            start(1, with_aof(builder(), "always", "yes")),
            start(2, builder().config("replica-read-only", "no")),
        ];
        let mut fleet = Fleet {
            servers,
            primary: 0,
            hosts,
            _network: network,
            has_disks: disk.is_some(),
            clock,
            footprints: Vec::new(),
        };
        fleet.follow(1, 0);
        // If the replica had no link yet, its own replica would retry only after a second.
        fleet.servers[1].wait_for_sync();
        fleet.follow(2, 1);
        fleet.catch_up();
        fleet.footprints = fleet.servers().map(Footprint::of).collect();
        fleet
    }

    pub fn means(&self) -> Means {
        Means {
            disks: self.has_disks,
            clock: self.clock.is_some(),
            hosts: self.hosts.len(),
        }
    }

    pub fn primary(&self) -> &Server {
        &self.servers[self.primary]
    }

    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter()
    }

    fn others(&self) -> impl Iterator<Item = &Server> {
        let others = self.servers.iter().enumerate();
        others
            .filter(|(at, _)| *at != self.primary)
            .map(|(_, server)| server)
    }

    #[track_caller]
    fn follow(&self, replica: usize, primary: usize) {
        let (ip, port) = (self.servers[primary].ip(), self.servers[primary].port());
        let mut client = self.servers[replica].connect();
        assert_eq!(client.ask(format!("REPLICAOF {ip} {port}")), "OK");
    }

    /// Waits until the other servers have everything that the primary has. Its writes must be paused.
    #[track_caller]
    fn catch_up(&self) {
        eventually("replicas that have caught up", UNTIL, || {
            let primary = Position::of(self.primary());
            self.others().all(|other| {
                let other = Position::of(other);
                other.is_linked && other.id == primary.id && other.offset >= primary.offset
            })
        });
    }

    /// Carries out a step that concerns servers.
    #[track_caller]
    pub fn perform(&mut self, driver: &mut Driver, step: &Step) {
        match step {
            Step::Compare => self.compare(driver),
            Step::Failover => self.fail_over(driver),
            Step::Switch => self.switch(driver),
            Step::Kill => self.kill(driver),
            Step::Load => self.load(driver),
            Step::Reload => self.reload(driver),
            Step::Freeze => self.freeze(driver),
            Step::KillReplica => self.kill_replica(),
            Step::Upgrade { server } => self.upgrade(*server),
            Step::Resync => self.resync(driver),
            Step::PowerLoss {
                kept_per_cent,
                everysec,
            } => self.lose_power(driver, *kept_per_cent, *everysec),
            Step::Clock { ms } => self.set_clock(driver, *ms),
            Step::Stray { database, request } => self.stray(*database, request),
            Step::Cut { hosts } => hosts.iter().for_each(|host| self.hosts[*host].cut_off()),
            Step::Join => self.hosts.iter().for_each(Host::join),
            other => panic!("'{other}' is not for servers"),
        }
    }

    #[track_caller]
    fn stray(&self, database: usize, request: &FuzzRequest) {
        let mut client = self.servers[2].connect();
        let selected = client.ask(format!("SELECT {database}"));
        let reply = client.call(&request.words);
        let is_loading = |reply: &Reply| reply.is_error() && reply.error().starts_with("LOADING");
        let is_refused = reply.is_error() && reply.error().starts_with("READONLY");
        assert!(
            is_refused || is_loading(&selected) || is_loading(&reply),
            "{:?} on a replica: {reply:?}",
            request.words
        );
    }

    #[track_caller]
    fn compare(&self, driver: &mut Driver) {
        driver.stand_still(self.primary());
        self.catch_up();
        for other in self.others() {
            assert_same(self.primary(), other, "a replica and its primary");
        }
        driver.operate(self.primary(), &["CLIENT UNPAUSE"]);
        self.check_untroubled();
    }

    /// Asserts that no server refused a replicated or loaded change, and that no log reports a defect.
    #[track_caller]
    pub fn check_untroubled(&self) {
        self.servers
            .iter()
            .for_each(|server| assert_untroubled(server));
    }

    /// Asserts that the replicas applied every change. This check is cheap and finds most defects of replication.
    #[track_caller]
    pub fn check_applied(&self) {
        for other in self.others() {
            let unapplied = other.info_number("dsync", "dsync_unapplied_changes");
            assert_eq!(
                unapplied, 0,
                "a replica could not carry out what its primary had done"
            );
        }
    }

    /// Asserts that every server has given back the memory and the descriptors that it took. No key may be left.
    #[track_caller]
    pub fn check_footprints(&self) {
        let until = Instant::now() + UNTIL;
        for (server, start) in self.servers().zip(&self.footprints) {
            loop {
                let now = Footprint::of(server);
                if now.is_back_to(start, KEPT_BYTES, KEPT_DESCRIPTORS) {
                    break;
                }
                assert!(
                    Instant::now() < until,
                    "{} had {start:?} at the start, and has {now:?}",
                    server.port()
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// The index of the primary, and that of the other server of the first two.
    fn pair(&self) -> (usize, usize) {
        (self.primary, 1 - self.primary)
    }

    #[track_caller]
    fn fail_over(&mut self, driver: &mut Driver) {
        let (old, new) = self.pair();
        driver.accept(self.primary());
        driver.conditions.role_changes();
        driver.ledger.taken_over(Instant::now());
        driver.expect_closing();
        let (ip, port) = (self.servers[new].ip(), self.servers[new].port());
        let until = Instant::now() + UNTIL;
        // The primary may not yet count a replica as online whose link has just come up.
        loop {
            let mut client = self.servers[old].connect();
            let reply = client.ask(format!("FAILOVER TO {ip} {port} TIMEOUT 20000"));
            if reply == "OK" {
                break;
            }
            assert!(Instant::now() < until, "no failover: {reply:?}");
            driver.rest(Duration::from_millis(20));
        }
        while self.servers[new].info("replication", "role") != "master"
            || self.servers[old].info("replication", "role") != "slave"
        {
            assert!(Instant::now() < until, "the failover does not come about");
            driver.rest(Duration::from_millis(5));
        }
        self.switch_to(driver, new);
    }

    #[track_caller]
    fn switch(&mut self, driver: &mut Driver) {
        let (old, new) = self.pair();
        driver.accept(self.primary());
        driver.stand_still(self.primary());
        self.catch_up();
        driver.conditions.role_changes();
        driver.ledger.taken_over(Instant::now());
        driver.expect_closing();
        assert_eq!(self.servers[new].connect().ask("REPLICAOF NO ONE"), "OK");
        self.follow(old, new);
        assert_eq!(self.servers[old].connect().ask("CLIENT UNPAUSE"), "OK");
        self.switch_to(driver, new);
    }

    /// Waits until every request to the old primary is answered or its connection closed, then uses the new primary.
    #[track_caller]
    fn switch_to(&mut self, driver: &mut Driver, new: usize) {
        let until = Instant::now() + UNTIL;
        while let Some(on) = (0..=driver.connections()).find(|on| !driver.is_idle(*on)) {
            assert!(
                Instant::now() < until,
                "connection {on} waits for a server that is a replica now"
            );
            driver.rest(Duration::from_millis(1));
        }
        driver.close_all();
        self.primary = new;
        driver.conditions.fresh_server(Instant::now());
    }

    /// Lets the primary load its own data under traffic.
    #[track_caller]
    fn reload(&self, driver: &mut Driver) {
        driver.accept(self.primary());
        self.wait_while("rdb_bgsave_in_progress", driver);
        driver.ledger.taken_over(Instant::now());
        // A primary that loads skips expired keys without telling its replicas, so no key may have a TTL.
        self.operate_without_ttls(driver, "DEBUG RELOAD");
    }

    /// Waits while the primary writes a file.
    #[track_caller]
    fn wait_while(&self, is_writing: &str, driver: &mut Driver) {
        let until = Instant::now() + UNTIL;
        while self.primary().info("persistence", is_writing) != "0" {
            assert!(Instant::now() < until, "{is_writing} for {UNTIL:?}");
            driver.rest(Duration::from_millis(2));
        }
    }

    /// Takes all keys their TTLs, sends a request of the operator, and waits for its reply.
    #[track_caller]
    fn operate_without_ttls(&self, driver: &mut Driver, line: &str) {
        let mut requests = Vec::new();
        for database in 0..DATABASES {
            requests.push(FuzzRequest::line(&format!("SELECT {database}")));
            requests.extend(NAMES.map(|name| FuzzRequest::new(["PERSIST", name])));
        }
        requests.push(FuzzRequest::line(line));
        let send = Step::Send {
            on: OPERATOR,
            requests,
            fin: false,
        };
        driver.perform(self.primary(), 0, &send);
        while !driver.is_idle(OPERATOR) {
            driver.rest(Duration::from_millis(1));
        }
    }

    /// Kills the primary under traffic, and starts it again with its AOF.
    #[track_caller]
    fn kill(&mut self, driver: &mut Driver) {
        self.servers[self.primary].kill9();
        let now = self.start_primary_again(driver);
        self.assert_kept(driver, now, now);
    }

    /// Starts a killed primary again. Returns when it has loaded its data.
    #[track_caller]
    fn start_primary_again(&mut self, driver: &mut Driver) -> Instant {
        driver.expect_closing();
        driver.close_all();
        driver.ledger.taken_over(Instant::now());
        self.servers[self.primary].start_again();
        let now = Instant::now();
        driver.conditions.fresh_server(now);
        now
    }

    /// Asserts that the primary has every hold that is certain and that nothing has changed since that moment.
    #[track_caller]
    fn assert_kept(&self, driver: &Driver, now: Instant, since: Instant) {
        let mut client = self.primary().connect();
        for ((database, key), check, token) in driver.ledger.certain_since(since, now, AT_LEAST) {
            assert_eq!(client.ask(format!("SELECT {database}")), "OK");
            let left = call!(client, check, key, token);
            let held = matches!(left, Reply::Int(1..));
            assert!(
                held,
                "a restart lost what {token} held of {key:?}: {check} says {left:?}"
            );
        }
    }

    /// The primary's machine loses power under traffic, and with it what was not synced. Where each write is synced
    /// before its reply, nothing that was answered is lost; where each second, nothing that was answered before the last
    /// write that was synced. What came later may be undone, so all is removed then.
    #[track_caller]
    fn lose_power(&mut self, driver: &mut Driver, kept_per_cent: u32, everysec: bool) {
        if everysec {
            // A rewrite begins another file while the last one is not synced yet: the server may not load that.
            driver.accept(self.primary());
            self.wait_while("rdb_bgsave_in_progress", driver);
            self.wait_while("aof_rewrite_scheduled", driver);
            self.wait_while("aof_rewrite_in_progress", driver);
        }
        let at = self.primary;
        self.servers[at].lose_power(kept_per_cent);
        let now = self.start_primary_again(driver);
        let since = if everysec {
            let synced = SystemTime::now().duration_since(self.primary().synced_until());
            let ago = synced.expect("the right time does not step back");
            now.checked_sub(ago).expect("the run is older")
        } else {
            now
        };
        self.assert_kept(driver, now, since);
        self.check_untroubled();
        self.mend_aof();
        if everysec {
            driver.operate(self.primary(), &["FLUSHALL"]);
        }
    }

    /// Rewrites the AOF if the primary has cut off a torn end at its start, as docs/failover.md advises: Redis, and Valkey
    /// before 9, leave there what was complete of a torn transaction, and carry it out at their next start.
    #[track_caller]
    fn mend_aof(&self) {
        if self.primary().log_text().contains("Truncating the AOF") {
            rewrite_aof(self.primary());
        }
    }

    /// Sets the wall clock of all servers at once.
    #[track_caller]
    fn set_clock(&self, driver: &mut Driver, ms: i64) {
        let Some(clock) = &self.clock else { return };
        // A TTL ends when the wall clock says so: in days, or at once.
        driver.accept(self.primary());
        driver.settle();
        self.operate_without_ttls(driver, "CLIENT UNPAUSE");
        clock.shift_by(ms * 1_000);
        driver.ledger.clock_is_set(Instant::now());
        // The server pauses writes until a moment of its wall clock.
        driver.operate(self.primary(), &["CLIENT UNPAUSE"]);
    }

    /// Stops the primary as it is, under traffic, and lets it go on.
    fn freeze(&self, driver: &mut Driver) {
        self.primary().stop();
        driver.rest(FROZEN);
        self.primary().cont();
    }

    /// Kills the replica that may become the primary, which then catches up with its AOF and the stream.
    #[track_caller]
    fn kill_replica(&mut self) {
        let (_, replica) = self.pair();
        self.servers[replica].kill9();
        self.servers[replica].start_again();
        self.follow(replica, self.primary);
    }

    /// Kills a replica, and starts it with the module that is tested. It catches up with its AOF, if it has one, and the
    /// stream.
    #[track_caller]
    fn upgrade(&mut self, replica: usize) {
        let primary = if replica == 2 { 1 } else { self.primary };
        assert_ne!(replica, self.primary, "replicas are upgraded first");
        self.servers[replica].kill9();
        self.servers[replica].set_module(&module_path());
        self.servers[replica].start_again();
        self.follow(replica, primary);
    }

    /// Breaks the links, and makes the primary forget the stream that the replicas have followed.
    #[track_caller]
    fn resync(&self, driver: &mut Driver) {
        let lines = ["DEBUG CHANGE-REPL-ID", "CLIENT KILL TYPE replica"];
        driver.perform(self.primary(), 0, &Step::operator(&lines));
    }

    /// Kills the primary while writes are paused, and compares what it loads as a replica, which decides nothing.
    #[track_caller]
    pub fn load(&mut self, driver: &mut Driver) {
        driver.accept(self.primary());
        driver.stand_still(self.primary());
        let everything = |server: &Server| {
            let digest = server.connect().ask("DEBUG DIGEST");
            (contents(server), digest)
        };
        let before = everything(self.primary());
        let at = self.primary;
        self.servers[at].kill9();
        driver.expect_closing();
        driver.close_all();
        driver.ledger.taken_over(Instant::now());
        self.servers[at].configure("replicaof", NOWHERE);
        self.servers[at].start_again();
        assert_eq!(
            everything(&self.servers[at]),
            before,
            "what was loaded from the AOF"
        );
        self.check_untroubled();
        let mut client = self.servers[at].connect();
        assert_eq!(client.ask("REPLICAOF NO ONE"), "OK");
        // So that it starts as a primary the next time.
        assert_eq!(client.ask("CONFIG REWRITE"), "OK");
        driver.conditions.fresh_server(Instant::now());
    }
}

/// How far a server is in the replication stream.
struct Position {
    id: String,
    offset: u64,
    is_linked: bool,
}

impl Position {
    fn of(server: &Server) -> Position {
        let info = server.info_section("replication");
        let field = |name: &str| {
            let line = info
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().to_owned()
        };
        let is_primary = field("role") == "master";
        let offset = field(if is_primary {
            "master_repl_offset"
        } else {
            "slave_repl_offset"
        });
        Position {
            id: field("master_replid"),
            offset: offset.parse().unwrap_or(0),
            is_linked: field("master_link_status") == "up",
        }
    }
}
