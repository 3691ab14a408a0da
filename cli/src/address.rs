//! Addresses of servers: as people write them, as a node of a cluster tells them, and as messages show them.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult};

use crate::failure::{Result, usage};
use crate::text::plain;

const SENTINEL_PORT: u16 = 26379;

/// Reads a URL, or one without its `redis://`.
pub fn read(url: &str) -> RedisResult<ConnectionInfo> {
    match url.into_connection_info() {
        Err(_) if !url.contains("://") => format!("redis://{url}").into_connection_info(),
        info => info,
    }
}

/// Reads a URL. The error hides its password.
pub fn parse_url(url: &str, accepts_insecure: bool) -> Result<ConnectionInfo> {
    let info = read(url).map_err(|error| {
        usage(format!(
            "the URL {} cannot be read: {}\nA URL is HOST:PORT, redis://HOST:PORT, rediss://… or unix:///PATH.",
            scheme_of(url),
            plain(&error)
        ))
    })?;
    // Whoever reads the URL, in a variable perhaps, must not overlook that anybody can pose as the server.
    if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) && !accepts_insecure {
        return Err(usage(
            "the URL ends with #insecure: any certificate would be accepted, also a forged one. Name the authority with \
             --cacert FILE and leave out #insecure, or say --insecure too",
        ));
    }
    Ok(info)
}

/// Reads `host:port`, `[ipv6]:port` or a host alone. With TLS if `tls_mode` says how.
pub fn parse_sentinels(
    addresses: &[String],
    tls_mode: Option<bool>,
) -> Result<Vec<ConnectionAddr>> {
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

/// Whether a word that stands where no URL is expected is one, perhaps with a password.
pub fn looks_like_url(word: &str) -> bool {
    word.contains("://") || word.contains(':') && read(word).is_ok()
}

/// Returns the scheme of a URL, for a message: a password can stand anywhere behind it.
pub fn scheme_of(url: &str) -> String {
    let scheme = url.split_once("://").map(|parts| parts.0);
    scheme.map_or("…".into(), |scheme| format!("{scheme}://…"))
}

/// Where a node of a cluster is, as CLUSTER SLOTS tells.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// `None` where the node does not know it: then it is the host of the connection that told.
    pub host: Option<String>,
    pub port: u16,
}

impl Endpoint {
    /// Reads `host:port` of a MOVED, where the host may be missing.
    pub fn read(text: &str) -> Option<Endpoint> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Endpoint {
            host: (!host.is_empty()).then(|| host.to_owned()),
            port: port.parse().ok()?,
        })
    }

    /// Returns the address, with the host and TLS of the node that was asked where this one leaves them open.
    pub fn beside(&self, asked: &ConnectionAddr) -> ConnectionAddr {
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

/// Returns an address with TLS.
pub fn tls(host: String, port: u16, insecure: bool) -> ConnectionAddr {
    ConnectionAddr::TcpTls {
        host,
        port,
        insecure,
        tls_params: None,
    }
}

pub fn has_tls(address: &ConnectionAddr) -> bool {
    matches!(address, ConnectionAddr::TcpTls { .. })
}

/// Returns the addresses as messages name them.
pub fn list(addresses: &[ConnectionAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Status;

    #[test]
    fn nodes_without_a_host_are_at_the_host_that_was_asked() {
        let endpoint = Endpoint {
            host: None,
            port: 7001,
        };
        let asked = ConnectionAddr::Tcp("example.com".into(), 7000);
        assert_eq!(endpoint.beside(&asked).to_string(), "example.com:7001");
    }

    #[test]
    fn message_about_a_wrong_url_hides_the_password() {
        for url in [
            "rediss//alice:secret@h",
            "http://alice:secret@example.com",
            "unix//socket?pass=secret",
            "http://alice:top?secret@h@i",
        ] {
            let failure = parse_url(url, false).err().unwrap();
            assert_eq!(failure.status, Status::Usage);
            assert!(!failure.message.contains("secret"), "{failure}");
        }
    }

    #[test]
    fn url_may_lack_its_scheme() {
        for (url, expected) in [
            ("127.0.0.1:7000", "127.0.0.1:7000"),
            ("redis:7000", "redis:7000"),
            ("db.example", "db.example:6379"),
            ("alice:secret@[::1]:7000/2", "::1:7000"),
        ] {
            let info = parse_url(url, false).unwrap();
            assert_eq!(info.addr().to_string(), expected, "{url}");
        }
        assert!(looks_like_url("127.0.0.1:7000") && looks_like_url("http://h"));
        assert!(!looks_like_url("jobs") && !looks_like_url("--owner"));
    }

    #[test]
    fn sentinels_have_a_default_port() {
        let texts = ["a", "b:1", "[::1]:2", "[::1]", "::1"].map(String::from);
        let names: Vec<String> = parse_sentinels(&texts, None)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names, ["a:26379", "b:1", "::1:2", "::1:26379", "::1:26379"]);
        assert!(parse_sentinels(&["a:x".into()], None).is_err());
        assert!(parse_sentinels(&[":1".into()], None).is_err());
    }
}
