//! Three sentinels that watch a primary.
//!
//! They are the server under test in sentinel mode, each with its own directory and port. Their periods are shortened,
//! so that a failover takes one to four seconds instead of ten to twenty. Two settings keep a busy machine from failing
//! the tests: `tilt-trigger` is so long that a sentinel that stalls for two seconds goes on (by default it would do
//! nothing for thirty), and a server counts as lost after half a second only while a test waits for a failover,
//! otherwise after ten.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::builder::Builder;
use crate::call;
use crate::eventually::eventually;
use crate::hosts::Host;
use crate::server::Server;

/// The sentinels' name for the primary.
const MASTER: &str = "locks";

/// The deadline for the sentinels to find each other and the replicas.
const ACQUAINTED_WITHIN: Duration = Duration::from_secs(30);
/// The deadline for a failover. Elections fail, twice perhaps, when sentinels stand against each other.
const FAILOVER_WITHIN: Duration = Duration::from_secs(45);

/// The sentinels' settings for the primary, unless a test has its own.
const SETTINGS: &[(&str, u32)] = &[
    ("down-after-milliseconds", PATIENT_MS),
    ("failover-timeout", 2000),
    ("parallel-syncs", 1),
];

/// After how many milliseconds of silence a server counts as lost: while a test waits for a failover, and otherwise.
const IMPATIENT_MS: u32 = 500;
const PATIENT_MS: u32 = 10_000;

/// `SENTINEL DEBUG` settings, in milliseconds. `ask-period` is not among them: sentinels that ask each other more often
/// stand against each other more often, and then all wait for twice `failover-timeout`. After four of its publish
/// periods a sentinel that has not heard of a promotion takes it back.
const PERIODS: &[(&str, &str)] = &[
    ("info-period", "300"),
    ("ping-period", "200"),
    ("publish-period", "1000"),
    ("min-link-reconnect-period", "300"),
    ("tilt-trigger", "60000"),
];

pub struct Sentinels {
    sentinels: Vec<Server>,
}

impl Sentinels {
    /// Three sentinels beside the primary; returns when each knows the others and this many replicas.
    #[track_caller]
    pub fn watch(primary: &Server, replicas: usize) -> Sentinels {
        Sentinels::watch_with(SETTINGS, primary, replicas)
    }

    /// As [`Sentinels::watch`], with these lines `sentinel NAME locks VALUE`.
    #[track_caller]
    pub fn watch_with(settings: &[(&str, u32)], primary: &Server, replicas: usize) -> Sentinels {
        let builders = (0..3).map(|_| Server::builder());
        Sentinels::start(builders, settings, PERIODS, primary, replicas)
    }

    /// One sentinel, which needs no other to decide, with its own periods: it takes longer, and overlooks longer pauses
    /// of a busy machine.
    #[track_caller]
    pub fn alone(settings: &[(&str, u32)], primary: &Server, replicas: usize) -> Sentinels {
        let builder = [Server::builder()].into_iter();
        Sentinels::start(builder, settings, &[], primary, replicas)
    }

    /// One sentinel on each of these hosts.
    #[track_caller]
    pub fn watch_from(hosts: &[&Host], primary: &Server, replicas: usize) -> Sentinels {
        let builders = hosts.iter().map(|host| Server::builder().on(host));
        Sentinels::start(builders, SETTINGS, PERIODS, primary, replicas)
    }

    #[track_caller]
    fn start(
        builders: impl ExactSizeIterator<Item = Builder>,
        settings: &[(&str, u32)],
        periods: &[(&str, &str)],
        primary: &Server,
        replicas: usize,
    ) -> Sentinels {
        let quorum = builders.len() / 2 + 1;
        let (ip, port) = (primary.ip(), primary.port());
        let monitor = format!("monitor {MASTER} {ip} {port} {quorum}");
        let sentinels: Vec<Server> = builders
            .map(|builder| {
                let builder = builder.sentinel().config("sentinel", &monitor);
                let with_setting = |builder: Builder, (name, value): &(&str, u32)| {
                    builder.config("sentinel", format!("{name} {MASTER} {value}"))
                };
                settings.iter().fold(builder, with_setting).start()
            })
            .collect();
        for sentinel in &sentinels {
            let mut client = sentinel.connect();
            for (name, period) in periods {
                assert_eq!(call!(client, "SENTINEL", "DEBUG", name, period), "OK");
            }
        }
        let sentinels = Sentinels { sentinels };
        let others = (sentinels.sentinels.len() - 1).to_string();
        eventually(
            "sentinels that know each other and all replicas",
            ACQUAINTED_WITHIN,
            || {
                sentinels.sentinels.iter().all(|sentinel| {
                    let master = call!(sentinel.connect(), "SENTINEL", "MASTER", MASTER);
                    let says = |field: &str, value: &str| *master.field(field) == *value;
                    says("num-other-sentinels", &others)
                        && says("num-slaves", &replicas.to_string())
                        && says("flags", "master")
                })
            },
        );
        sentinels
    }

    /// The sentinels' name for the primary.
    pub fn master(&self) -> &'static str {
        MASTER
    }

    /// The sentinel with this number, in the order of the hosts.
    pub fn nth(&self, number: usize) -> &Server {
        &self.sentinels[number]
    }

    /// The primary's address by this sentinel: what a client asks before it connects.
    #[track_caller]
    pub fn address_by(&self, number: usize) -> (Ipv4Addr, u16) {
        let mut client = self.nth(number).connect();
        let answer = call!(client, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER);
        match answer.as_array() {
            [ip, port] => (
                ip.as_str().parse().expect("an address"),
                port.as_str().parse().expect("a port"),
            ),
            _ => panic!("expected an address and a port, received {answer:?}"),
        }
    }

    #[track_caller]
    fn take_for_lost_after(&self, ms: u32) {
        for sentinel in &self.sentinels {
            let mut client = sentinel.connect();
            let set = ["SENTINEL", "SET", MASTER, "down-after-milliseconds"];
            let set = set.map(str::to_owned).into_iter().chain([ms.to_string()]);
            assert_eq!(client.call(&set.collect::<Vec<_>>()), "OK");
        }
    }

    /// Waits until this sentinel names another primary than `old`, which is down already, and the new one has the role
    /// of a primary. Returns which of `servers` it is.
    #[track_caller]
    pub fn wait_for_failover<'a>(
        &self,
        number: usize,
        old: &Server,
        servers: &[&'a Server],
    ) -> &'a Server {
        self.take_for_lost_after(IMPATIENT_MS);
        let new = self.wait_for_another(number, old, servers);
        self.take_for_lost_after(PATIENT_MS);
        new
    }

    /// As [`Sentinels::wait_for_failover`], but does not shorten the time after which a server counts as lost.
    #[track_caller]
    pub fn wait_for_another<'a>(
        &self,
        number: usize,
        old: &Server,
        servers: &[&'a Server],
    ) -> &'a Server {
        let mut new = None;
        eventually("a promoted replica", FAILOVER_WITHIN, || {
            let address = self.address_by(number);
            new = servers
                .iter()
                .find(|server| address == (server.ip(), server.port()))
                .filter(|server| server.port() != old.port() || server.ip() != old.ip())
                .filter(|server| server.is_primary());
            new.is_some()
        });
        new.expect("the wait ended with one")
    }

    /// Waits until `replica` follows `primary` and every sentinel knows that. A sentinel that does not know would
    /// reconfigure the replica once more, which closes all its clients' connections.
    #[track_caller]
    pub fn wait_until_it_follows(&self, replica: &Server, primary: &Server) {
        let expected = [
            ("ip", replica.ip().to_string()),
            ("port", replica.port().to_string()),
            ("role-reported", "slave".to_owned()),
            ("master-host", primary.ip().to_string()),
            ("master-port", primary.port().to_string()),
            ("master-link-status", "ok".to_owned()),
        ];
        eventually("a replica of the new primary", FAILOVER_WITHIN, || {
            self.sentinels.iter().all(|sentinel| {
                let replicas = call!(sentinel.connect(), "SENTINEL", "REPLICAS", MASTER);
                replicas.as_array().iter().any(|known| {
                    expected
                        .iter()
                        .all(|(field, value)| *known.field(field) == **value)
                })
            })
        });
        replica.wait_to_catch_up_with(primary);
    }
}
