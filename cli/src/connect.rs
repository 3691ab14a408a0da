//! Connects to the servers that the command line names, for the commands that look at one moment: `dsync run` hands the
//! servers to the client library instead, see `library`.
//!
//! Connecting takes no longer than the time-out in all, whatever is on the way: names that are looked up, several
//! addresses, TLS, the login, sentinels and nodes of a cluster. Sentinels and nodes are asked all at the same time, and
//! the first good answer counts, so one that is dead or stopped costs no time.

use std::time::Duration;

use redis::{
    Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult, Value, from_redis_value_ref,
};

use crate::address::Endpoint;
use crate::explain::unknown_master;
use crate::failure::{Failure, Result, Status};
use crate::family::Family;
use crate::race;
use crate::servers::{Peer, Place, Sentinels, Servers};
use crate::text::quoted;

/// A connection to one server.
pub struct Node {
    pub peer: Peer,
    pub connection: Connection,
    pub address: ConnectionAddr,
    db: i64,
}

impl Node {
    /// Returns its address, as messages and lists show it.
    pub fn name(&self) -> &str {
        &self.peer.address
    }

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
        reply.map_err(|error| Failure::of_server(&self.peer, &error))
    }
}

impl Servers {
    /// Connects to all primaries: one, or all of the cluster.
    pub fn primaries(&self) -> Result<Vec<Node>> {
        self.in_time(|servers| match &servers.place {
            Place::Cluster(nodes) => {
                let addresses = servers.primaries_of_cluster(nodes)?;
                addresses
                    .iter()
                    .map(|address| servers.open(address))
                    .collect()
            }
            _ => Ok(vec![servers.open_any()?]),
        })
    }

    /// Connects to the server that is asked first: the primary, or in a cluster any node.
    pub fn first(&self) -> Result<Node> {
        self.in_time(Servers::open_any)
    }

    /// Finds the addresses of all primaries. Of a cluster the known ones may tell them too.
    pub fn addresses(&self, known: &[ConnectionAddr]) -> Result<Vec<ConnectionAddr>> {
        let known = known.to_vec();
        self.in_time(move |servers| match &servers.place {
            Place::Single(address) => Ok(vec![address.clone()]),
            Place::Cluster(nodes) => servers.primaries_of_cluster(&[nodes.clone(), known].concat()),
            Place::Sentinel(_) => Ok(vec![servers.open_any()?.address]),
        })
    }

    /// Connects to one of them.
    pub fn connect(&self, address: &ConnectionAddr) -> Result<Node> {
        let address = address.clone();
        self.in_time(move |servers| servers.open(&address))
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
            let redirect = match (&self.place, &reply) {
                (Place::Cluster(_), Err(error)) => error.redirect_node(),
                _ => None,
            };
            let Some(endpoint) = redirect.and_then(|to| Endpoint::read(to.0)) else {
                return Ok(reply);
            };
            let is_moving = reply.is_err_and(|error| error.code() == Some("ASK"));
            *node = self.connect(&endpoint.beside(&node.address))?;
            if is_moving {
                node.ask::<()>(&redis::cmd("ASKING"))?;
            }
        }
        let message = format!("{}: the nodes do not agree about the key's slot", node.peer);
        Err(Failure::new(Status::Unreachable, message))
    }

    /// Sends the command of each family until one is not answered that the key has another type. Returns the family and
    /// the answer; of a key that does not exist, those of the first.
    pub fn ask_about_any_type<T: FromRedisValue>(
        &self,
        node: &mut Node,
        key: &[u8],
        command: impl Fn(Family) -> Cmd,
    ) -> Result<(Family, T)> {
        for family in Family::ALL {
            match self.ask_about_key::<T>(node, &command(family))? {
                Ok(reply) => return Ok((family, reply)),
                Err(error) if error.code() == Some("WRONGTYPE") => {}
                Err(error) => return Err(Failure::of_server(&node.peer, &error)),
            }
        }
        let (key, peer) = (quoted(key), &node.peer);
        let message = format!("{key} is no key of dsync: at {peer} it has another type");
        Err(Failure::new(Status::Nothing, message))
    }

    /// Returns what the client library would take for an outage that ends: the server is no node of a cluster, or no
    /// sentinel knows the name of the primary. What cannot be told in a moment, and what else sentinels refuse, is left
    /// to the library.
    pub fn check(&self) -> Result<()> {
        const MOMENT: Duration = Duration::from_secs(1);
        let servers = self.clone();
        let checked = race::within(self.timeout.min(MOMENT), move || match &servers.place {
            Place::Single(_) => Ok(()),
            Place::Cluster(nodes) => servers.primaries_of_cluster(nodes).map(drop),
            Place::Sentinel(Sentinels { addresses, .. }) => {
                servers.first_of(addresses, |servers, address| {
                    let named = servers.named_by(address).map(|named| named.map(drop));
                    named.unwrap_or_else(|failure| Err(failure.that_may_pass()))
                })
            }
        })?;
        match checked {
            Some(Err(failure)) if failure.status == Status::Refused => Err(failure),
            _ => Ok(()),
        }
    }

    /// Does the work, or gives up when the time-out is over: the library bounds its steps, and the look-up of names has
    /// no bound at all.
    fn in_time<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Servers) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let servers = self.clone();
        let done = race::within(self.timeout, move || work(&servers))?;
        done.unwrap_or_else(|| {
            let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
            Err(Failure::of_server(&self.name(), &late.into()))
        })
    }

    fn open_any(&self) -> Result<Node> {
        match &self.place {
            Place::Single(address) => self.open(address),
            Place::Cluster(nodes) => self.first_of(nodes, Servers::open),
            Place::Sentinel(sentinels) => {
                self.first_of(&sentinels.addresses, Servers::open_by_sentinel)
            }
        }
    }

    /// Tries all addresses at the same time. Returns the first success.
    fn first_of<T: Send + 'static>(
        &self,
        addresses: &[ConnectionAddr],
        attempt: fn(&Servers, &ConnectionAddr) -> Result<T>,
    ) -> Result<T> {
        let attempts = addresses.iter().map(|address| {
            let (servers, address) = (self.clone(), address.clone());
            move || attempt(&servers, &address)
        });
        race::first_of(attempts)?.map_err(Failure::of_all)
    }

    /// Asks a node for the primaries that serve slots, the first node that answers.
    fn primaries_of_cluster(&self, nodes: &[ConnectionAddr]) -> Result<Vec<ConnectionAddr>> {
        self.first_of(nodes, |servers, address| {
            let mut node = servers.open(address)?;
            let mut endpoints = primaries_of_slots(&mut node)?;
            endpoints.sort();
            endpoints.dedup();
            if endpoints.is_empty() {
                let message = format!("{}: this cluster has no node that serves slots", node.peer);
                return Err(Failure::new(Status::Unreachable, message));
            }
            let addresses = endpoints.iter().map(|endpoint| endpoint.beside(address));
            Ok(addresses.collect())
        })
    }

    /// Connects to the primary that a sentinel names. One that is no primary is not taken: the sentinel has not yet
    /// heard of a failover.
    fn open_by_sentinel(&self, address: &ConnectionAddr) -> Result<Node> {
        let mut node = self.open(&self.named_by(address)??)?;
        let role: RedisResult<Vec<Value>> = redis::cmd("ROLE").query(&mut node.connection);
        let is_other = |role: Vec<Value>| {
            let name = role.first().map(from_redis_value_ref::<String>);
            !name.is_some_and(|name| name.is_ok_and(|name| name == "master"))
        };
        // A user who may not ask for the role learns it from the answers.
        if role.is_ok_and(is_other) {
            let message = format!(
                "{}: the Sentinel at {address} names it as primary, but it is none",
                node.peer
            );
            return Err(Failure::new(Status::Unreachable, message));
        }
        Ok(node)
    }

    /// Asks a sentinel for the primary. The inner result tells whether it knows the name.
    fn named_by(&self, address: &ConnectionAddr) -> Result<Result<ConnectionAddr>> {
        let Place::Sentinel(Sentinels { master, login, .. }) = &self.place else {
            return Ok(Ok(address.clone()));
        };
        let mut sentinel = self.open_as(address, login, Peer::sentinel(address, login))?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let named: Option<(String, u16)> = sentinel.ask(&question)?;
        let primary = named.map(|(host, port)| {
            let host = Some(host);
            Endpoint { host, port }.beside(address)
        });
        Ok(primary.ok_or_else(|| unknown_master(&sentinel.peer, master)))
    }

    fn open(&self, address: &ConnectionAddr) -> Result<Node> {
        self.open_as(address, &self.login, Peer::new(address, &self.login))
    }

    fn open_as(
        &self,
        address: &ConnectionAddr,
        login: &RedisConnectionInfo,
        peer: Peer,
    ) -> Result<Node> {
        let connect = || -> RedisResult<Connection> {
            let client = self.client(address, login)?;
            let connection = client.get_connection_with_timeout(self.timeout)?;
            connection.set_read_timeout(Some(self.timeout))?;
            connection.set_write_timeout(Some(self.timeout))?;
            Ok(connection)
        };
        let connection = connect().map_err(|error| Failure::of_server(&peer, &error))?;
        Ok(Node {
            peer,
            connection,
            address: address.clone(),
            db: login.db(),
        })
    }

    pub fn client(
        &self,
        address: &ConnectionAddr,
        login: &RedisConnectionInfo,
    ) -> RedisResult<Client> {
        let info = info(address, login)?;
        match address {
            ConnectionAddr::TcpTls { .. } => {
                Client::build_with_tls(info, self.certificates.clone())
            }
            _ => Client::open(info),
        }
    }
}

pub fn info(address: &ConnectionAddr, login: &RedisConnectionInfo) -> RedisResult<ConnectionInfo> {
    let info = address.clone().into_connection_info()?;
    Ok(info.set_redis_settings(login.clone()))
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
