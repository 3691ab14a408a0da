//! Three sentinels, as one would run them, and what they say of the primary.
//!
//! They are the server under test in its other mode, each with a directory and a port of its own. Their
//! periods, seconds as they come, are shortened, so that a failover takes one to four seconds and not ten
//! to twenty. A machine under load is not what these stories are about: a sentinel that was not given the
//! processor for two seconds goes on, where it would otherwise do nothing for thirty; and only while a
//! failover is awaited is a server taken for lost soon after its last word.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::client::call;
use super::hosts::Host;
use super::reply::Reply;
use super::server::{Builder, Server};
use super::waiting::eventually;

/// What the primary is called among sentinels.
const MASTER: &str = "locks";

/// For the sentinels to find each other and the replicas.
const ACQUAINTED_WITHIN: Duration = Duration::from_secs(30);
/// For a failover: two elections may fail where sentinels stand against each other.
const FAILOVER_WITHIN: Duration = Duration::from_secs(45);

/// The sentinels' settings for a primary, in a story that has no wish of its own.
const SETTINGS: &[(&str, u32)] = &[
    ("down-after-milliseconds", PATIENT_MS),
    ("failover-timeout", 2000),
    ("parallel-syncs", 1),
];

/// For how long a server may be silent before it is taken for lost: while a failover is awaited, and
/// otherwise.
const IMPATIENT_MS: u32 = 500;
const PATIENT_MS: u32 = 10_000;

/// `SENTINEL DEBUG`: milliseconds. Not `ask-period`: sentinels that ask each other more often stand against
/// each other more often, and then all wait for twice `failover-timeout`.
const PERIODS: &[(&str, &str)] = &[
    ("info-period", "300"),
    ("ping-period", "200"),
    ("publish-period", "300"),
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
        Sentinels::start(builders, settings, primary, replicas)
    }

    /// One sentinel on each of these hosts.
    #[track_caller]
    pub fn watch_from(hosts: &[&Host], primary: &Server, replicas: usize) -> Sentinels {
        let builders = hosts.iter().map(|host| Server::builder().on(host));
        Sentinels::start(builders, SETTINGS, primary, replicas)
    }

    #[track_caller]
    fn start(
        builders: impl Iterator<Item = Builder>,
        settings: &[(&str, u32)],
        primary: &Server,
        replicas: usize,
    ) -> Sentinels {
        let monitor = format!("monitor {MASTER} {} {} 2", primary.ip(), primary.port());
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
            for (name, period) in PERIODS {
                assert_eq!(call!(client, "SENTINEL", "DEBUG", name, period), "OK");
            }
        }
        let sentinels = Sentinels { sentinels };
        let others = (sentinels.sentinels.len() - 1).to_string();
        eventually("sentinels that know all", ACQUAINTED_WITHIN, || {
            sentinels.sentinels.iter().all(|sentinel| {
                let master = call!(sentinel.connect(), "SENTINEL", "MASTER", MASTER);
                let says = |field: &str, value: &str| *master.field(field) == *value;
                says("num-other-sentinels", &others)
                    && says("num-slaves", &replicas.to_string())
                    && says("flags", "master")
            })
        });
        sentinels
    }

    /// What the primary is called among them.
    pub fn master(&self) -> &'static str {
        MASTER
    }

    /// The sentinel of this number, the hosts' order.
    pub fn nth(&self, number: usize) -> &Server {
        &self.sentinels[number]
    }

    /// Where the primary is, by this sentinel's word: what a client asks before it connects.
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

    /// Waits until this sentinel names another primary than `old`, which is lost already, and that one says
    /// so itself; returns which of `servers` it is.
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

    /// As [`Sentinels::wait_for_failover`], as soon as the sentinels find by themselves, if they need to.
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
                .filter(|server| is_primary(server));
            new.is_some()
        });
        new.expect("the wait ended with one")
    }

    /// Waits until `replica` follows `primary` and every sentinel knows, so that none of them tells it to
    /// once more: when they do, they close all its clients' connections.
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

/// Whether a server that answers is a primary, by its own word.
#[track_caller]
fn is_primary(server: &Server) -> bool {
    let Ok(mut client) = server.try_connect() else {
        return false;
    };
    match client.try_call(&["ROLE"]) {
        Some(Reply::Array(role)) => role.first().is_some_and(|name| *name == "master"),
        _ => false,
    }
}
