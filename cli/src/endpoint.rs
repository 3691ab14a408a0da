//! Where a node of a cluster is, as the node that was asked tells.

use redis::ConnectionAddr;

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

#[cfg(test)]
mod tests {
    use super::*;

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
