//! Where the servers are: one address, the primary that sentinels name, or all primaries of a cluster.
//!
//! `dsync run` hands this to the client library, which follows failovers and moved slots by itself. The other commands look
//! at one moment: they connect to each primary once, and a failure ends them.

use std::path::Path;
use std::time::Duration;

use dsync_client::Server;
use redis::cluster::ClusterClientBuilder;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    Client, ClientTlsConfig, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult, TlsCertificates, TlsMode, Value, from_redis_value_ref,
};

use crate::args;
use crate::failure::{Failure, Result, Status};

const DEFAULT_URL: &str = "redis://127.0.0.1:6379";
const SENTINEL_PORT: u16 = 26379;

/// The servers that the command line names.
pub struct Servers {
    place: Place,
    login: RedisConnectionInfo,
    certificates: TlsCertificates,
    timeout: Duration,
}

enum Place {
    Single(ConnectionAddr),
    /// Any node of the cluster.
    Cluster(ConnectionAddr),
    Sentinel(Sentinels),
}

/// The sentinels that know the address of a primary.
struct Sentinels {
    addresses: Vec<ConnectionAddr>,
    master: String,
    login: RedisConnectionInfo,
}

/// A connection to one primary.
pub struct Node {
    /// Its address, as messages and lists show it.
    pub name: String,
    pub connection: Connection,
    db: i64,
}

impl Node {
    /// Selects a database, unless it is selected already.
    pub fn select(&mut self, db: i64) -> Result<()> {
        if self.db != db {
            self.ask::<()>(redis::cmd("SELECT").arg(db))?;
            self.db = db;
        }
        Ok(())
    }

    /// Sends a command. The failure names the server.
    pub fn ask<T: redis::FromRedisValue>(&mut self, command: &redis::Cmd) -> Result<T> {
        let reply = command.query(&mut self.connection);
        reply.map_err(|error| Failure::of_server(&self.name, &error))
    }
}

impl Servers {
    /// Reads the options of the command line, REDIS_URL and REDISCLI_AUTH, and the files that they name. Connects to nothing.
    pub fn of(options: &args::Server) -> Result<Servers> {
        let url = match &options.url {
            Some(url) => url.clone(),
            None => variable("REDIS_URL").unwrap_or_else(|| DEFAULT_URL.into()),
        };
        let uses_sentinel = !options.sentinel.is_empty();
        // Sentinels know the address. The URL of the environment is meant for other programs then.
        let info = if uses_sentinel {
            DEFAULT_URL.into_connection_info()
        } else {
            url.as_str().into_connection_info()
        };
        let info = info.map_err(|error| {
            let why = crate::failure::plain(&error);
            usage(format!(
                "'{}': {why}\nA URL is redis://HOST:PORT, rediss://… or unix:///PATH.",
                without_password(&url)
            ))
        })?;

        let asks_for_tls =
            options.tls || options.cacert.is_some() || options.cert.is_some() || options.insecure;
        let insecure = options.insecure;
        let address = match info.addr().clone() {
            ConnectionAddr::Tcp(host, port) if asks_for_tls => tls(host, port, insecure),
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: by_url,
                ..
            } => tls(host, port, insecure || by_url),
            ConnectionAddr::Unix(_) if asks_for_tls || options.cluster => {
                return Err(usage(
                    "a unix socket has neither TLS nor --cluster; give a redis:// or rediss:// URL",
                ));
            }
            other => other,
        };

        let mut login = info.redis_settings().clone();
        if let Some(user) = &options.user {
            login = login.set_username(user);
        }
        // The password of the environment belongs to the default user or to --user, not to another one in a URL.
        let from_environment = || variable("REDISCLI_AUTH").filter(|_| login.password().is_none());
        if let Some(password) = options.pass.clone().or_else(from_environment) {
            login = login.set_password(password);
        }
        if let Some(db) = options.db {
            login = login.set_db(db);
        }
        login = login.set_lib_name("dsync-cli", env!("CARGO_PKG_VERSION"));

        let place = match (uses_sentinel, options.cluster) {
            (true, _) => Place::Sentinel(Sentinels {
                addresses: sentinels(&options.sentinel, asks_for_tls.then_some(insecure))?,
                master: options.master.clone().unwrap_or_default(),
                login: sentinel_login(options),
            }),
            (_, true) => Place::Cluster(address),
            _ => Place::Single(address),
        };
        let certificates = certificates(options)?;
        Ok(Servers {
            place,
            login,
            certificates,
            timeout: options.timeout,
        })
    }

    /// How long to wait for an answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the address, as messages show it.
    pub fn name(&self) -> String {
        match &self.place {
            Place::Single(address) | Place::Cluster(address) => address.to_string(),
            Place::Sentinel(sentinels) => {
                let addresses: Vec<String> = sentinels
                    .addresses
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                let master = &sentinels.master;
                format!("{master} (sentinels {})", addresses.join(", "))
            }
        }
    }

    /// Returns the servers for the client library.
    pub fn server(&self) -> Result<Server> {
        let server = match &self.place {
            Place::Single(address) => self.client(address).map(Server::from),
            Place::Cluster(address) => self.cluster(address),
            Place::Sentinel(sentinels) => self.sentinel(sentinels).map(Server::from),
        };
        server.map_err(|error| self.failure(&error))
    }

    /// Connects to all primaries: one, or all of the cluster.
    pub fn primaries(&self) -> Result<Vec<Node>> {
        match &self.place {
            Place::Single(address) => Ok(vec![self.node(address)?]),
            Place::Cluster(address) => self.cluster_primaries(address),
            Place::Sentinel(sentinels) => {
                let client = self
                    .sentinel(sentinels)
                    .and_then(|mut sentinel| sentinel.get_client());
                let client = client.map_err(|error| self.failure(&error))?;
                Ok(vec![self.node(client.get_connection_info().addr())?])
            }
        }
    }

    /// Connects to the primary that has this key.
    pub fn primary_of(&self, key: &str) -> Result<Node> {
        let Place::Cluster(address) = &self.place else {
            return self
                .primaries()?
                .pop()
                .ok_or_else(|| Failure::new(Status::Unreachable, "no primary"));
        };
        let mut any = self.node(address)?;
        let slot: u16 = any.ask(redis::cmd("CLUSTER").arg("KEYSLOT").arg(key))?;
        let ranges = slots(&mut any)?;
        match ranges
            .iter()
            .find(|range| (range.first..=range.last).contains(&slot))
        {
            Some(range) => self.node(&range.primary.beside(address)),
            None => Err(Failure::new(
                Status::Unreachable,
                format!("{}: no node serves slot {slot}", any.name),
            )),
        }
    }

    fn cluster_primaries(&self, address: &ConnectionAddr) -> Result<Vec<Node>> {
        let mut any = self.node(address)?;
        let mut addresses: Vec<Endpoint> = slots(&mut any)?
            .into_iter()
            .map(|range| range.primary)
            .collect();
        addresses.sort();
        addresses.dedup();
        if addresses.is_empty() {
            let message = format!("{}: this cluster has no node that serves slots", any.name);
            return Err(Failure::new(Status::Unreachable, message));
        }
        addresses
            .iter()
            .map(|endpoint| self.node(&endpoint.beside(address)))
            .collect()
    }

    fn node(&self, address: &ConnectionAddr) -> Result<Node> {
        let connect = || -> RedisResult<Connection> {
            let connection = self
                .client(address)?
                .get_connection_with_timeout(self.timeout)?;
            connection.set_read_timeout(Some(self.timeout))?;
            connection.set_write_timeout(Some(self.timeout))?;
            Ok(connection)
        };
        let name = address.to_string();
        let connection = connect().map_err(|error| Failure::of_server(&name, &error))?;
        Ok(Node {
            name,
            connection,
            db: self.login.db(),
        })
    }

    fn client(&self, address: &ConnectionAddr) -> RedisResult<Client> {
        let info = self.info(address)?;
        match address {
            ConnectionAddr::TcpTls { .. } => {
                Client::build_with_tls(info, self.certificates.clone())
            }
            _ => Client::open(info),
        }
    }

    fn info(&self, address: &ConnectionAddr) -> RedisResult<ConnectionInfo> {
        let info = address.clone().into_connection_info()?;
        Ok(info.set_redis_settings(self.login.clone()))
    }

    fn cluster(&self, address: &ConnectionAddr) -> RedisResult<Server> {
        // One repetition follows MOVED and ASK. The client library makes all others, with the same token.
        let mut builder = ClusterClientBuilder::new([self.info(address)?]).retries(1);
        builder = builder.connection_timeout(self.timeout);
        if let ConnectionAddr::TcpTls { insecure, .. } = address {
            let mode = if *insecure {
                TlsMode::Insecure
            } else {
                TlsMode::Secure
            };
            builder = builder.tls(mode).certs(self.certificates.clone());
        }
        Ok(builder.build()?.into())
    }

    fn sentinel(&self, sentinels: &Sentinels) -> RedisResult<SentinelClient> {
        let Sentinels {
            addresses,
            master,
            login,
        } = sentinels;
        let kind = SentinelServerType::Master;
        let mut builder = SentinelClientBuilder::new(addresses.clone(), master.clone(), kind)?;
        builder = builder.set_client_to_redis_db(self.login.db());
        if let Some(user) = self.login.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = self.login.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(user) = login.username() {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = login.password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if let Some(ConnectionAddr::TcpTls { insecure, .. }) = addresses.first() {
            let mode = if *insecure {
                TlsMode::Insecure
            } else {
                TlsMode::Secure
            };
            builder = builder
                .set_client_to_redis_tls_mode(mode)
                .set_client_to_sentinel_tls_mode(mode)
                .set_client_to_redis_certificates(self.certificates.clone())
                .set_client_to_sentinel_certificates(self.certificates.clone());
        }
        builder.build()
    }

    fn failure(&self, error: &redis::RedisError) -> Failure {
        Failure::of_server(&self.name(), error)
    }
}

/// Where a node of a cluster is, as CLUSTER SLOTS tells.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Endpoint {
    /// `None` where the node does not know it: then it is the host of the connection that told.
    host: Option<String>,
    port: u16,
}

impl Endpoint {
    /// Returns the address, with the host and TLS of the node that was asked where this one leaves them open.
    fn beside(&self, asked: &ConnectionAddr) -> ConnectionAddr {
        match asked {
            ConnectionAddr::TcpTls { host, insecure, .. } => tls(
                self.host.clone().unwrap_or_else(|| host.clone()),
                self.port,
                *insecure,
            ),
            ConnectionAddr::Tcp(host, _) => {
                ConnectionAddr::Tcp(self.host.clone().unwrap_or_else(|| host.clone()), self.port)
            }
            other => other.clone(),
        }
    }
}

struct Range {
    first: u16,
    last: u16,
    primary: Endpoint,
}

fn slots(node: &mut Node) -> Result<Vec<Range>> {
    let rows: Vec<Vec<Value>> = node.ask(redis::cmd("CLUSTER").arg("SLOTS"))?;
    let range = |row: &Vec<Value>| -> Option<Range> {
        let [first, last, Value::Array(primary), ..] = row.as_slice() else {
            return None;
        };
        let host: Option<String> = from_redis_value_ref(primary.first()?).ok()?;
        Some(Range {
            first: from_redis_value_ref(first).ok()?,
            last: from_redis_value_ref(last).ok()?,
            primary: Endpoint {
                host: host.filter(|host| !host.is_empty() && host != "?"),
                port: from_redis_value_ref(primary.get(1)?).ok()?,
            },
        })
    };
    Ok(rows.iter().filter_map(range).collect())
}

fn tls(host: String, port: u16, insecure: bool) -> ConnectionAddr {
    ConnectionAddr::TcpTls {
        host,
        port,
        insecure,
        tls_params: None,
    }
}

/// Reads `host:port`, `[ipv6]:port` or a host alone. With TLS if `tls_mode` says how.
fn sentinels(addresses: &[String], tls_mode: Option<bool>) -> Result<Vec<ConnectionAddr>> {
    let read = |text: &String| {
        let (host, port) = match text.rsplit_once(':') {
            // A colon inside brackets, or one of several, belongs to an IPv6 address.
            Some((host, port))
                if !port.ends_with(']') && (!host.contains(':') || host.ends_with(']')) =>
            {
                let wrong = |_| usage(format!("--sentinel '{text}': '{port}' is no port"));
                (host, port.parse().map_err(wrong)?)
            }
            _ => (text.as_str(), SENTINEL_PORT),
        };
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        if host.is_empty() {
            return Err(usage(format!("--sentinel '{text}' has no host")));
        }
        Ok(match tls_mode {
            Some(insecure) => tls(host, port, insecure),
            None => ConnectionAddr::Tcp(host, port),
        })
    };
    addresses.iter().map(read).collect()
}

fn sentinel_login(options: &args::Server) -> RedisConnectionInfo {
    let mut login = RedisConnectionInfo::default();
    if let Some(user) = &options.sentinel_user {
        login = login.set_username(user);
    }
    if let Some(password) = &options.sentinel_pass {
        login = login.set_password(password);
    }
    login
}

fn certificates(options: &args::Server) -> Result<TlsCertificates> {
    let read = |path: &Path| {
        let wrong = |error| Failure::new(Status::System, format!("{}: {error}", path.display()));
        std::fs::read(path).map_err(wrong)
    };
    let client_tls = match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => Some(ClientTlsConfig {
            client_cert: read(cert)?,
            client_key: read(key)?,
        }),
        _ => None,
    };
    let root_cert = options.cacert.as_deref().map(read).transpose()?;
    Ok(TlsCertificates {
        client_tls,
        root_cert,
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the URL for a message: what stands before the `@` can be a password.
fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}…{}", &url[..scheme + 3], &url[at..]),
        _ => url.to_owned(),
    }
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Status::Usage, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> args::Server {
        args::Server {
            timeout: Duration::from_secs(1),
            ..args::Server::default()
        }
    }

    #[test]
    fn url_and_options_say_where_the_server_is() {
        let mut given = options();
        given.url = Some("redis://alice:secret@example.com:7000/2".into());
        given.user = Some("bob".into());
        let servers = Servers::of(&given).unwrap();
        assert_eq!(servers.name(), "example.com:7000");
        assert_eq!(servers.login.username(), Some("bob"));
        assert_eq!(servers.login.password(), Some("secret"));
        assert_eq!(servers.login.db(), 2);
    }

    #[test]
    fn insecure_and_certificates_ask_for_tls() {
        let mut given = options();
        given.url = Some("redis://example.com".into());
        given.insecure = true;
        let servers = Servers::of(&given).unwrap();
        assert!(matches!(
            servers.place,
            Place::Single(ConnectionAddr::TcpTls { insecure: true, .. })
        ));
        given.url = Some("unix:///tmp/socket".into());
        assert!(Servers::of(&given).is_err());
    }

    #[test]
    fn message_about_a_wrong_url_hides_the_password() {
        let mut given = options();
        given.url = Some("rediss//alice:secret@h".into());
        assert!(Servers::of(&given).is_err());
        given.url = Some("http://alice:secret@example.com".into());
        let failure = Servers::of(&given).err().unwrap();
        assert_eq!(failure.status, Status::Usage);
        assert!(!failure.message.contains("secret"), "{failure}");
    }

    #[test]
    fn sentinels_have_a_default_port() {
        let texts = ["a", "b:1", "[::1]:2", "[::1]", "::1"].map(String::from);
        let names: Vec<String> = sentinels(&texts, None)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names, ["a:26379", "b:1", "::1:2", "::1:26379", "::1:26379"]);
        assert!(sentinels(&["a:x".into()], None).is_err());
        assert!(sentinels(&[":1".into()], None).is_err());
    }

    #[test]
    fn nodes_without_a_host_are_at_the_host_that_was_asked() {
        let endpoint = Endpoint {
            host: None,
            port: 7001,
        };
        let asked = ConnectionAddr::Tcp("example.com".into(), 7000);
        assert_eq!(endpoint.beside(&asked).to_string(), "example.com:7001");
    }
}
