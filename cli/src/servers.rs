//! Where the servers are: one address, the primary that sentinels name, or all primaries of a cluster.
//!
//! Read from the options of the command line, what `profile` adds to them, REDISCLI_AUTH, and the files that they name.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use redis::{
    ClientTlsConfig, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, TlsCertificates,
};

use crate::address::{has_tls, list, parse_sentinels, parse_url, tls};
use crate::args;
use crate::failure::{Failure, Result, Status, usage};
use crate::password;
use crate::profile::{self, variable};

const DEFAULT_URL: &str = "redis://127.0.0.1:6379";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The servers that the command line names.
#[derive(Clone)]
pub struct Servers {
    pub place: Place,
    pub login: RedisConnectionInfo,
    pub certificates: TlsCertificates,
    /// How long connecting may take in all, and how long a server may be silent in an answer.
    pub timeout: Duration,
}

#[derive(Clone)]
pub enum Place {
    Single(ConnectionAddr),
    /// Some nodes of the cluster; there is at least one.
    Cluster(Vec<ConnectionAddr>),
    Sentinel(Sentinels),
}

/// The sentinels that know the address of a primary.
#[derive(Clone)]
pub struct Sentinels {
    pub addresses: Vec<ConnectionAddr>,
    pub master: String,
    pub login: RedisConnectionInfo,
}

/// Whom a message is about: the server, and the user that asks it.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: String,
    pub user: String,
    pub has_tls: bool,
    pub is_sentinel: bool,
}

impl Peer {
    pub fn new(address: &ConnectionAddr, login: &RedisConnectionInfo) -> Peer {
        Peer {
            address: address.to_string(),
            user: login.username().unwrap_or("default").to_owned(),
            has_tls: has_tls(address),
            is_sentinel: false,
        }
    }

    pub fn sentinel(address: &ConnectionAddr, login: &RedisConnectionInfo) -> Peer {
        Peer {
            address: format!("the Sentinel at {address}"),
            is_sentinel: true,
            ..Peer::new(address, login)
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl Servers {
    /// Reads the options of the command line, what stands in for those that are not given, and the files that they name.
    /// Sends nothing.
    pub fn of(options: &args::Server) -> Result<Servers> {
        let options = &profile::complete(options)?;
        check_combination(options)?;
        let uses_sentinel = !options.sentinel.is_empty();
        let parse = |url: &String| parse_url(url, options.insecure);
        let infos: Vec<ConnectionInfo> = match options.url.as_slice() {
            [] => vec![parse(&DEFAULT_URL.into())?],
            urls => urls.iter().map(parse).collect::<Result<_>>()?,
        };
        let first = &infos[0];
        if infos.len() > 1 && !options.cluster {
            return Err(usage(
                "several URLs are several nodes of a cluster: add --cluster, or give one URL",
            ));
        }
        let asks_for_tls =
            options.tls || options.cacert.is_some() || options.cert.is_some() || options.insecure;
        let addresses = infos
            .iter()
            .map(|info| address(info, asks_for_tls, options))
            .collect::<Result<Vec<ConnectionAddr>>>()?;
        let is_like_first = |(other, address): (&ConnectionInfo, &ConnectionAddr)| {
            let (one, other) = (first.redis_settings(), other.redis_settings());
            one.username() == other.username()
                && one.password() == other.password()
                && has_tls(address) == has_tls(&addresses[0])
        };
        if !infos.iter().zip(&addresses).all(is_like_first) {
            return Err(usage(
                "the nodes of a cluster have user, password and TLS in common: write them the same in all URLs",
            ));
        }

        let place = match (uses_sentinel, options.cluster) {
            (true, _) => Place::Sentinel(Sentinels {
                addresses: parse_sentinels(
                    &options.sentinel,
                    asks_for_tls.then_some(options.insecure),
                )?,
                master: options.master.clone().unwrap_or_default(),
                login: sentinel_login(options)?,
            }),
            (_, true) => Place::Cluster(addresses),
            _ => Place::Single(addresses[0].clone()),
        };
        Ok(Servers {
            place,
            login: login(first.redis_settings().clone(), options)?,
            certificates: certificates(options)?,
            timeout: options.timeout.unwrap_or(DEFAULT_TIMEOUT),
        })
    }

    /// Returns the server that messages name, where no single one of several is meant.
    pub fn name(&self) -> Peer {
        let (first, address) = match &self.place {
            Place::Single(address) => (address, address.to_string()),
            Place::Cluster(nodes) => (&nodes[0], list(nodes)),
            Place::Sentinel(sentinels) => {
                let Sentinels {
                    addresses, master, ..
                } = sentinels;
                let text = format!("{master} (sentinels {})", list(addresses));
                (&addresses[0], text)
            }
        };
        Peer {
            address,
            ..Peer::new(first, &self.login)
        }
    }
}

/// Refuses options that contradict each other, or that lack another. They can stand on both sides of the subcommand.
fn check_combination(options: &args::Server) -> Result<()> {
    let uses_sentinel = !options.sentinel.is_empty();
    let has_sentinel_login = options.sentinel_user.is_some()
        || options.sentinel_pass.is_some()
        || options.sentinel_password_file.is_some();
    let wrong = if uses_sentinel && (!options.url.is_empty() || options.cluster) {
        "--sentinel names the server: leave out --url and --cluster"
    } else if uses_sentinel && options.master.is_none() {
        "--sentinel needs --master NAME, the name of the primary at the sentinels"
    } else if !uses_sentinel && (options.master.is_some() || has_sentinel_login) {
        "--master, --sentinel-user, --sentinel-pass and --sentinel-password-file need --sentinel HOST:PORT"
    } else if options.cert.is_some() != options.private_key.is_some() {
        "--cert and --key need each other: the client's certificate and its private key"
    } else if options.pass.is_some() && options.password_file.is_some()
        || options.sentinel_pass.is_some() && options.sentinel_password_file.is_some()
    {
        "give the password or a file that has it, not both"
    } else {
        return Ok(());
    };
    Err(usage(wrong))
}

/// Returns the address of a URL, with TLS if an option asks for it.
fn address(
    info: &ConnectionInfo,
    asks_for_tls: bool,
    options: &args::Server,
) -> Result<ConnectionAddr> {
    match info.addr().clone() {
        ConnectionAddr::Tcp(host, port) if asks_for_tls => Ok(tls(host, port, options.insecure)),
        ConnectionAddr::TcpTls { host, port, .. } => Ok(tls(host, port, options.insecure)),
        ConnectionAddr::Unix(_) if asks_for_tls || options.cluster => Err(usage(
            "a unix socket has neither TLS nor --cluster; give a redis:// or rediss:// URL",
        )),
        other => Ok(other),
    }
}

/// Returns user, password and database: an option wins over the URL, the URL over the environment.
fn login(of_url: RedisConnectionInfo, options: &args::Server) -> Result<RedisConnectionInfo> {
    let mut login = of_url;
    if let Some(user) = &options.user {
        login = login.set_username(user);
    }
    let given = given_password(options.pass.as_ref(), options.password_file.as_deref())?;
    // The password of the environment belongs to the default user or to --user, not to another one in a URL.
    let from_environment = || variable("REDISCLI_AUTH").filter(|_| login.password().is_none());
    if let Some(password) = given.or_else(from_environment) {
        login = login.set_password(password);
    }
    if let Some(db) = options.db {
        login = login.set_db(db);
    }
    Ok(login.set_lib_name("dsync-cli", env!("CARGO_PKG_VERSION")))
}

fn sentinel_login(options: &args::Server) -> Result<RedisConnectionInfo> {
    let mut login = RedisConnectionInfo::default();
    if let Some(user) = &options.sentinel_user {
        login = login.set_username(user);
    }
    let file = options.sentinel_password_file.as_deref();
    if let Some(password) = given_password(options.sentinel_pass.as_ref(), file)? {
        login = login.set_password(password);
    }
    Ok(login)
}

fn given_password(password: Option<&String>, file: Option<&Path>) -> Result<Option<String>> {
    match (password, file) {
        (None, Some(file)) => password::read(file).map(Some),
        (password, _) => Ok(password.cloned()),
    }
}

fn certificates(options: &args::Server) -> Result<TlsCertificates> {
    let read = |path: &Path| {
        let wrong = |error| Failure::new(Status::System, format!("{}: {error}", path.display()));
        std::fs::read(path).map_err(wrong)
    };
    let client_tls = match (&options.cert, &options.private_key) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> args::Server {
        args::Server {
            timeout: Some(Duration::from_secs(1)),
            ..args::Server::default()
        }
    }

    #[test]
    fn url_and_options_say_where_the_server_is() {
        let mut given = options();
        given.url = vec!["redis://alice:secret@example.com:7000/2".into()];
        given.user = Some("bob".into());
        let servers = Servers::of(&given).unwrap();
        assert_eq!(servers.name().to_string(), "example.com:7000");
        assert_eq!(servers.login.username(), Some("bob"));
        assert_eq!(servers.login.password(), Some("secret"));
        assert_eq!(servers.login.db(), 2);
    }

    #[test]
    fn insecure_and_certificates_ask_for_tls() {
        let mut given = options();
        given.url = vec!["redis://example.com".into()];
        given.insecure = true;
        let servers = Servers::of(&given).unwrap();
        assert!(matches!(
            servers.place,
            Place::Single(ConnectionAddr::TcpTls { insecure: true, .. })
        ));
        given.url = vec!["unix:///tmp/socket".into()];
        assert!(Servers::of(&given).is_err());
    }

    #[test]
    fn insecure_url_needs_the_option_too() {
        let mut given = options();
        given.url = vec!["rediss://example.com/#insecure".into()];
        let failure = Servers::of(&given).err().unwrap();
        assert_eq!(failure.status, Status::Usage);
        assert!(failure.message.contains("--insecure"), "{failure}");
        given.insecure = true;
        assert!(Servers::of(&given).is_ok());
    }

    #[test]
    fn cluster_takes_several_urls_of_one_login() {
        let mut given = options();
        given.url = vec!["redis://a:1".into(), "redis://b:2".into()];
        let failure = Servers::of(&given).err().unwrap();
        assert!(failure.message.contains("--cluster"), "{failure}");
        given.cluster = true;
        let servers = Servers::of(&given).unwrap();
        assert_eq!(servers.name().to_string(), "a:1, b:2");
        given.url[1] = "redis://alice:secret@b:2".into();
        assert!(Servers::of(&given).is_err());
        given.url[1] = "rediss://b:2".into();
        assert!(Servers::of(&given).is_err());
        given.tls = true;
        assert!(Servers::of(&given).is_ok());
    }

    #[test]
    fn options_that_contradict_or_lack_another_are_refused() {
        let refuses = |change: fn(&mut args::Server), word: &str| {
            let mut given = options();
            change(&mut given);
            let failure = Servers::of(&given).err().unwrap();
            assert_eq!(failure.status, Status::Usage);
            assert!(failure.message.contains(word), "{failure}");
        };
        refuses(|given| given.sentinel = vec!["a:1".into()], "--master");
        refuses(|given| given.master = Some("m".into()), "--sentinel");
        refuses(|given| given.sentinel_user = Some("u".into()), "--sentinel");
        refuses(|given| given.cert = Some("c.pem".into()), "--key");
        refuses(
            |given| {
                given.sentinel = vec!["a:1".into()];
                given.master = Some("m".into());
                given.cluster = true;
            },
            "--cluster",
        );
        refuses(
            |given| {
                given.pass = Some("x".into());
                given.password_file = Some("f".into());
            },
            "not both",
        );
    }
}
