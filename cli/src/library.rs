//! The servers as the client library takes them: it follows failovers and moved slots by itself.

use std::time::Duration;

use dsync_client::{Client, Error, Server, ServerError};
use redis::cluster::ClusterClientBuilder;
use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, TlsMode};

use crate::connect::info;
use crate::duration::short;
use crate::failure::{Failure, Result, Status};
use crate::race;
use crate::servers::{Peer, Place, Sentinels, Servers};
use crate::text::{counted, printable, say};

/// After so long without an answer the user is told why the tool has not ended.
const SILENCE: Duration = Duration::from_secs(2);

impl Servers {
    /// Returns a client that repeats requests for so long, from the first one that was not answered.
    pub fn patient(&self, retry_for: Duration) -> Result<Client> {
        let client = Client::new(self.server()?).with_response_timeout(self.timeout);
        Ok(client.with_retry_for(retry_for))
    }

    /// Waits for the answer to a request that such a client repeats.
    pub fn ask<T: Send + 'static>(
        &self,
        name: &str,
        retry_for: Duration,
        request: impl FnOnce(Client) -> dsync_client::Result<T> + Send + 'static,
    ) -> Result<T> {
        let client = self.patient(retry_for)?;
        let tell = || {
            let mut text = format!("{} has not answered for {}", self.name(), short(SILENCE));
            if retry_for > SILENCE {
                let time = short(retry_for);
                text.push_str(&format!("; asking again for {time} in all"));
            }
            say(&text);
        };
        let answer = race::watched(SILENCE, tell, move || request(client))?;
        answer.map_err(|error| self.failure(name, &error))
    }

    /// Returns what an error of the client library is for the caller of this tool. `name` is what was asked for, in words.
    pub fn failure(&self, name: &str, error: &Error) -> Failure {
        match error {
            Error::Redis(error) => {
                let failure = Failure::of_server(&self.peer(error), error);
                // A sign of life is about no key.
                match error.key() {
                    Some(_) => Failure::new(failure.status, format!("{name}: {failure}")),
                    None => failure,
                }
            }
            Error::WorkFailed {
                reason, attempts, ..
            } => given_up(name, *attempts, reason),
            Error::HoldLost { loss, .. } => {
                Failure::new(Status::Lost, format!("{name} was lost: {loss}"))
            }
            Error::NotConfirmed { have, wanted, .. } => {
                let server = self.name();
                let message = format!("{server}: {have} of {wanted} replicas have confirmed it");
                Failure::new(Status::Unreachable, message)
            }
            Error::InvalidOption { .. } => Failure::new(Status::Usage, error.to_string()),
            other => Failure::new(Status::Refused, other.to_string()),
        }
    }

    /// Returns whom an error of the client library is about: behind sentinels one of them, or the primary.
    fn peer(&self, error: &ServerError) -> Peer {
        let told = error
            .address()
            .filter(|_| error.kind() != ErrorKind::MasterNameNotFoundBySentinel);
        let (Place::Sentinel(asked), Some(address)) = (&self.place, told) else {
            return self.name();
        };
        let mut sentinels = { asked.addresses.iter() }.map(|it| Peer::sentinel(it, &asked.login));
        let sentinel = sentinels.find(|peer| peer.address == address);
        sentinel.unwrap_or_else(|| Peer {
            address: address.to_owned(),
            ..self.name()
        })
    }

    /// Returns the servers for the client library, unless it is plain at once that they are not what the options say.
    pub fn server(&self) -> Result<Server> {
        self.check()?;
        let refused = |error: RedisError| Failure::of_server(&self.name(), &error);
        match &self.place {
            Place::Single(address) => {
                let client = self.client(address, &self.login).map_err(refused)?;
                Ok(Server::from(client))
            }
            Place::Cluster(nodes) => self.cluster(nodes).map_err(refused),
            Place::Sentinel(sentinels) => {
                let (asked, primary) = self.ways(sentinels).map_err(refused)?;
                let server = Server::sentinel(asked, sentinels.master.as_str(), primary);
                server.map_err(|error| self.failure(&sentinels.master, &error))
            }
        }
    }

    fn cluster(&self, nodes: &[ConnectionAddr]) -> RedisResult<Server> {
        // One repetition follows MOVED and ASK. The client library makes all others, with the same token.
        let infos = nodes.iter().map(|node| info(node, &self.login));
        let infos = infos.collect::<RedisResult<Vec<_>>>()?;
        let mut builder = ClusterClientBuilder::new(infos).retries(1);
        builder = builder.connection_timeout(self.timeout);
        if let Some(mode) = tls_mode(nodes) {
            builder = builder.tls(mode).certs(self.certificates.clone());
        }
        Ok(builder.build()?.into())
    }

    /// Returns how to connect to each sentinel, and to the primary, except for its address.
    fn ways(&self, sentinels: &Sentinels) -> RedisResult<(Vec<ConnectionInfo>, ConnectionInfo)> {
        let way = |address, login| -> RedisResult<ConnectionInfo> {
            Ok(self.client(address, login)?.get_connection_info().clone())
        };
        let addresses = &sentinels.addresses;
        let asked = addresses.iter().map(|it| way(it, &sentinels.login));
        Ok((
            asked.collect::<RedisResult<_>>()?,
            way(&addresses[0], &self.login)?,
        ))
    }
}

/// Returns the failure of work that nobody will be told to do. `name` is the work in words.
pub fn given_up(name: &str, attempts: u64, reason: &str) -> Failure {
    let (after, reason) = (counted(attempts, "attempt"), printable(reason.as_bytes()));
    let message = format!("{name} is given up after {after}; the last failed with: {reason}");
    Failure::new(Status::GivenUp, message)
}

/// Returns how the certificates of these servers are checked, which have TLS in common.
fn tls_mode(addresses: &[ConnectionAddr]) -> Option<TlsMode> {
    match addresses.first()? {
        ConnectionAddr::TcpTls { insecure: true, .. } => Some(TlsMode::Insecure),
        ConnectionAddr::TcpTls { .. } => Some(TlsMode::Secure),
        _ => None,
    }
}
