//! Connects to the servers that the command line names.
//!
//! `dsync run` hands them to the client library, which follows failovers and moved slots by itself. The other commands look
//! at one moment: they connect to each primary once, and a failure ends them.

use dsync_client::Server;
use redis::cluster::ClusterClientBuilder;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo,
    RedisResult, TlsMode, Value, from_redis_value_ref,
};

use crate::endpoint::Endpoint;
use crate::failure::{Failure, Result, Status};
use crate::servers::{Place, Sentinels, Servers};

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
    pub fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T> {
        let reply = command.query(&mut self.connection);
        reply.map_err(|error| Failure::of_server(&self.name, &error))
    }
}

impl Servers {
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

    /// Connects to the server that is asked first: the primary, or in a cluster any node.
    pub fn first(&self) -> Result<Node> {
        if let Place::Cluster(address) = &self.place {
            return self.node(address);
        }
        let primary = self.primaries()?.pop();
        primary.ok_or_else(|| Failure::new(Status::Unreachable, "there is no primary"))
    }

    /// Sends a command about one key, in a cluster to the node that has the key, which then replaces `node`.
    ///
    /// The inner result is the server's answer, the outer one tells whether it could be asked.
    pub fn ask_about_key<T: FromRedisValue>(
        &self,
        node: &mut Node,
        command: &Cmd,
    ) -> Result<RedisResult<T>> {
        // While a slot moves, a node can know less than the one that sent us there.
        const MOST_REDIRECTS: u32 = 5;
        for _ in 0..MOST_REDIRECTS {
            let reply = command.query(&mut node.connection);
            match (&self.place, &reply) {
                (Place::Cluster(asked), Err(error)) if error.code() == Some("MOVED") => {
                    let endpoint = error.redirect_node().and_then(|to| Endpoint::read(to.0));
                    match endpoint {
                        Some(endpoint) => *node = self.node(&endpoint.beside(asked))?,
                        None => return Ok(reply),
                    }
                }
                _ => return Ok(reply),
            }
        }
        let message = format!("{}: the nodes do not agree about the key's slot", node.name);
        Err(Failure::new(Status::Unreachable, message))
    }

    fn cluster_primaries(&self, address: &ConnectionAddr) -> Result<Vec<Node>> {
        let mut any = self.node(address)?;
        let mut addresses = primaries_of_slots(&mut any)?;
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

/// Returns the primaries that serve slots.
fn primaries_of_slots(node: &mut Node) -> Result<Vec<Endpoint>> {
    let rows: Vec<Vec<Value>> = node.ask(redis::cmd("CLUSTER").arg("SLOTS"))?;
    let primary = |row: &Vec<Value>| -> Option<Endpoint> {
        let [_first_slot, _last_slot, Value::Array(primary), ..] = row.as_slice() else {
            return None;
        };
        let host: Option<String> = from_redis_value_ref(primary.first()?).ok()?;
        Some(Endpoint {
            host: host.filter(|host| !host.is_empty() && host != "?"),
            port: from_redis_value_ref(primary.get(1)?).ok()?,
        })
    };
    Ok(rows.iter().filter_map(primary).collect())
}
