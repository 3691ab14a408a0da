//! The servers as the client library takes them: it follows failovers and moved slots by itself.

use dsync_client::Server;
use redis::cluster::ClusterClientBuilder;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{ConnectionAddr, RedisResult, TlsMode};

use crate::connect::info;
use crate::failure::{Failure, Result};
use crate::servers::{Place, Sentinels, Servers};

impl Servers {
    /// Returns the servers for the client library, unless it is plain at once that they are not what the options say.
    pub fn server(&self) -> Result<Server> {
        self.check()?;
        let server = match &self.place {
            Place::Single(address) => self.client(address, &self.login).map(Server::from),
            Place::Cluster(nodes) => self.cluster(nodes),
            Place::Sentinel(sentinels) => {
                let (servers, sentinels) = (self.clone(), sentinels.clone());
                Ok(Server::sentinel(move || servers.sentinel(&sentinels)))
            }
        };
        server.map_err(|error| Failure::of_server(&self.name(), &error))
    }

    fn cluster(&self, nodes: &[ConnectionAddr]) -> RedisResult<Server> {
        // One repetition follows MOVED and ASK. The client library makes all others, with the same token.
        let infos = nodes.iter().map(|node| info(node, &self.login));
        let infos = infos.collect::<RedisResult<Vec<_>>>()?;
        let mut builder = ClusterClientBuilder::new(infos).retries(1);
        builder = builder.connection_timeout(self.timeout);
        if let ConnectionAddr::TcpTls { insecure, .. } = &nodes[0] {
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
}
