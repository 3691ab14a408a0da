//! Where the servers are: one address, the primary that sentinels name, or all primaries of a cluster.
//!
//! Read from the options of the command line, REDIS_URL and REDISCLI_AUTH, and the files that they name.

use std::path::Path;
use std::time::Duration;

use redis::{
    ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates,
};

use crate::args;
use crate::endpoint::tls;
use crate::failure::{Failure, Result, Status};

const DEFAULT_URL: &str = "redis://127.0.0.1:6379";
const SENTINEL_PORT: u16 = 26379;

/// The servers that the command line names.
pub struct Servers {
    pub place: Place,
    pub login: RedisConnectionInfo,
    pub certificates: TlsCertificates,
    /// How long to wait for an answer.
    pub timeout: Duration,
}

pub enum Place {
    Single(ConnectionAddr),
    /// Any node of the cluster.
    Cluster(ConnectionAddr),
    Sentinel(Sentinels),
}

/// The sentinels that know the address of a primary.
pub struct Sentinels {
    pub addresses: Vec<ConnectionAddr>,
    pub master: String,
    pub login: RedisConnectionInfo,
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
}
