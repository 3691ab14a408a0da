//! MONITOR, SLOWLOG, COMMAND LIST and commandstats show next to nothing of the commands that the module calls for
//! itself.

use crate::support::steps::*;
use crate::support::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a server is watched.
const WATCHED: Duration = Duration::from_secs(3);

/// How often a node may read its slots (CLUSTER NODES) in that time; it does so every ten seconds.
const LOOKS: u64 = 1;

/// Whether the module calls DSYNC.PROBE on this server to learn whether it accepts writes. Redis 7.0 has no dry runs.
#[track_caller]
fn has_probe(server: &Server) -> bool {
    let flavour = server.flavour();
    flavour.product == Product::Redis && flavour.version < (7, 2, 0)
}

/// A server under observation.
struct Watch {
    client: Client,
    monitor: Client,
    since: Instant,
}

/// The commands that ran while a server was watched.
struct Seen {
    /// Calls by command, as commandstats have them.
    calls: BTreeMap<String, u64>,
    /// The commands in SLOWLOG, which logs every command here.
    slow: Vec<String>,
    monitored: Vec<String>,
    during: Duration,
}

impl Watch {
    #[track_caller]
    fn begin(server: &Server) -> Watch {
        let (mut client, mut monitor) = (server.connect(), server.connect());
        assert_eq!(monitor.ask("MONITOR"), "OK");
        let begun = client.ask_all([
            "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 10000",
            "SLOWLOG RESET",
            "CONFIG RESETSTAT",
        ]);
        assert!(begun.iter().all(|reply| *reply == "OK"), "{begun:?}");
        Watch {
            client,
            monitor,
            since: Instant::now(),
        }
    }

    #[track_caller]
    fn end(mut self) -> Seen {
        let replies =
            self.client
                .ask_all(["INFO commandstats", "SLOWLOG GET 10000", "ECHO the-end"]);
        let calls = replies[0].as_str().lines().filter_map(|line| {
            let (name, stats) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_lowercase(), stats.split(',').next()?.parse().ok()?))
        });
        let words = |entry: &Reply| {
            let words = entry.as_array()[3].as_array();
            words
                .iter()
                .map(Reply::as_str)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let mut monitored = Vec::new();
        loop {
            let line = self.monitor.reply().as_str().to_owned();
            if line.contains("the-end") {
                break;
            }
            monitored.push(line);
        }
        Seen {
            calls: calls.collect(),
            slow: replies[1].as_array().iter().map(words).collect(),
            monitored,
            during: self.since.elapsed(),
        }
    }

    /// Watches a server to which no client sends anything.
    #[track_caller]
    fn idle(server: &Server) -> Seen {
        let watch = Watch::begin(server);
        at(watch.since + WATCHED);
        watch.end()
    }
}

impl Seen {
    fn calls(&self, command: &str) -> u64 {
        self.calls.get(command).copied().unwrap_or(0)
    }

    /// Asserts that no commands ran but CLUSTER NODES, at most `looks` times, and the probe if it is allowed.
    #[track_caller]
    fn assert_silent(&self, server: &Server, looks: u64, probes: bool) {
        let by_us: BTreeMap<_, _> = self
            .calls
            .iter()
            .filter(|(name, _)| {
                !["config|resetstat", "info", "slowlog|get"].contains(&name.as_str())
            })
            .collect();
        let allowed = ["cluster|nodes", "dsync.probe"];
        assert!(
            by_us.keys().all(|name| allowed.contains(&name.as_str())),
            "{by_us:?}"
        );
        assert!(self.calls("cluster|nodes") <= looks, "{by_us:?}");
        let most = if probes && has_probe(server) {
            // The server's cron runs ten times a second.
            12 * (self.during.as_secs() + 1)
        } else {
            0
        };
        assert!(self.calls("dsync.probe") <= most, "{by_us:?}");
        let count = |lines: &[String]| lines.iter().filter(|line| line.contains("NODES")).count();
        assert!(count(&self.slow) as u64 <= looks, "{:?}", self.slow);
        assert!(
            count(&self.monitored) as u64 <= looks,
            "{:?}",
            self.monitored
        );
        for line in self.slow.iter().chain(&self.monitored) {
            let line = line.to_lowercase();
            for word in [
                "dsync.",
                "config get",
                "config\" \"get",
                "persist",
                "\"info\"",
            ] {
                // The test itself sends one INFO.
                let is_own = line.contains("commandstats");
                assert!(is_own || !line.contains(word), "{word} in {line}");
            }
        }
    }
}

#[test]
fn idle_server_shows_no_commands_of_the_module() {
    let server = Server::start();
    Watch::idle(&server).assert_silent(&server, 0, false);
    server.connect().ask("DLOCK.ACQUIRE key EX 600").grant();
    Watch::idle(&server).assert_silent(&server, 0, true);
    assert_calm(&server);
}

#[test]
fn idle_cluster_node_shows_cluster_nodes_and_no_other_command() {
    let cluster = Cluster::start();
    let key = cluster.key_of(0, "key");
    cluster[0]
        .connect()
        .ask(format!("DLOCK.ACQUIRE {key} EX 600"))
        .grant();
    std::thread::scope(|scope| {
        scope.spawn(|| Watch::idle(&cluster[0]).assert_silent(&cluster[0], LOOKS, true));
        scope.spawn(|| Watch::idle(&cluster[1]).assert_silent(&cluster[1], LOOKS, false));
    });
    assert_calm(&cluster[0]);
}

#[test]
fn cluster_node_with_waiters_and_lapses_shows_no_extra_commands() {
    let cluster = Cluster::start();
    let (server, key) = (&cluster[0], cluster.key_of(0, "key"));
    let mut client = server.connect();
    client
        .ask(format!("DLOCK.ACQUIRE {key} EX 600 TOKEN t"))
        .grant();
    let mut waiters: Vec<Client> = (0..5)
        .map(|_| server.waiting(format!("DLOCK.ACQUIRE {key} PX 1 BLOCK 0")))
        .collect();
    let watch = Watch::begin(server);
    client.ask(format!("DLOCK.RELEASE {key} t"));
    waiters.iter_mut().for_each(|waiter| {
        waiter.granted();
    });
    eventually("the last lapse", SOON, || {
        server.info_number("dsync", "dsync_holds") == 0
    });
    let seen = watch.end();
    assert_eq!(seen.calls("cluster|info"), 0);
    assert_eq!(seen.calls("config|get"), 0);
    assert!(seen.calls("cluster|nodes") <= LOOKS, "{:?}", seen.calls);
    let probes = seen.calls("dsync.probe");
    assert!(has_probe(server) || probes == 0, "{probes} probes");
    assert_calm(server);
}

#[test]
fn config_set_reads_loglevel_and_policy_only_when_they_were_set() {
    let server = Server::start();
    let mut client = server.connect();
    let watch = Watch::begin(&server);
    for setting in [
        "maxmemory-samples 6",
        "hz 20",
        "dsync.rejoin-ms 7",
        "maxmemory-samples 5 hz 10",
    ] {
        assert_eq!(client.ask(format!("CONFIG SET {setting}")), "OK");
    }
    let seen = watch.end();
    assert_eq!(seen.calls("config|get"), 0);
    let asked = |line: &&String| line.to_lowercase().starts_with("config get");
    assert_eq!(seen.slow.iter().find(asked), None);

    // When the loglevel is set, the module follows it.
    let (watch, grant_line) = (Watch::begin(&server), "was granted");
    client.ask("DLOCK.ACQUIRE before EX 600").grant();
    assert_eq!(client.ask("CONFIG SET hz 10 loglevel debug"), "OK");
    assert!(!server.log_text().contains(grant_line));
    client.ask("DLOCK.ACQUIRE after EX 600").grant();
    assert!(server.log_text().contains(grant_line));
    assert_eq!(client.ask("CONFIG SET loglevel notice"), "OK");
    assert_eq!(client.ask("CONFIG SET maxmemory-policy noeviction"), "OK");
    assert_eq!(watch.end().calls("config|get"), 3);
}

#[test]
fn command_list_hides_internal_commands_where_possible() {
    let server = Server::start();
    let list = server.connect().ask("COMMAND LIST");
    let names: Vec<_> = list.as_array().iter().map(Reply::as_str).collect();
    let has = |name: &str| names.iter().any(|shown| shown.eq_ignore_ascii_case(name));
    let flavour = server.flavour();
    let hides = flavour.product == Product::Redis && flavour.version >= (8, 0, 0);
    assert_eq!(has("DSYN"), !hides);
    assert_eq!(has("DSYNC.APPLY"), !hides);
    assert_eq!(has("DSYNC.PROBE"), has_probe(&server));
    assert!(has("DSYNC.CONTENDED") && has("DSYNC.HOLDS") && has("DSYNC.LOG"));
}

#[test]
fn server_works_with_config_and_persist_renamed_away() {
    let server = Server::builder()
        .config("rename-command", r#"CONFIG """#)
        .config("rename-command", r#"PERSIST """#)
        .start();
    let mut client = server.connect();
    client.ask("DLOCK.ACQUIRE key EX 600 TOKEN t").grant();
    let mut waiter = server.waiting("DLOCK.ACQUIRE key PX 1 BLOCK 0");
    assert_eq!(client.ask("DLOCK.RENEW key t PX 1"), 1);
    waiter.granted();
    wait_until_gone(&mut client, "key");
    assert_eq!(client.ask("DSYNC.PROBE key"), "OK");
    assert_calm(&server);
}
