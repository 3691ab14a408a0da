//! How the primary is found that Sentinel names.
//!
//! The Sentinels are asked one after the other. One that refuses or does not answer is passed over for the next one.
//! redis-rs does that, too, but it does not tell which Sentinel an error is of, nor an error of a Sentinel from one of the
//! primary.

use std::future::{Future, ready};
use std::io;
use std::sync::Mutex;

use redis::{
    Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, Value,
};

use crate::passing::passes;
use crate::request::read;
use crate::signal::{lock, now};
use crate::times::LOOK_UP_WITHIN;
use crate::untold::Untold;

/// Who is asked, and whom they named last.
pub(crate) struct Found {
    sentinels: Vec<Client>,
    master: String,
    /// How to connect to the primary. Its address is the one that a Sentinel names.
    primary: ConnectionInfo,
    last: Mutex<Option<String>>,
}

impl Found {
    pub(crate) fn new(sentinels: Vec<Client>, master: String, primary: ConnectionInfo) -> Found {
        Found {
            sentinels,
            master,
            primary,
            last: Mutex::default(),
        }
    }

    /// The address of the primary that was named last.
    pub(crate) fn last(&self) -> Option<String> {
        lock(&self.last).clone()
    }

    /// Finds the primary, for a thread.
    pub(crate) fn client(&self) -> RedisResult<Client> {
        let ask = |client: Client, command: Cmd| {
            let mut connection = client.get_connection_with_timeout(LOOK_UP_WITHIN)?;
            connection.set_read_timeout(Some(LOOK_UP_WITHIN))?;
            command.query(&mut connection)
        };
        now(self.find(|client, command| ready(ask(client, command))))
    }

    /// Finds the primary, for a task.
    #[cfg(feature = "tokio")]
    pub(crate) async fn client_for_task(&self) -> RedisResult<Client> {
        let ask = |client: Client, command: Cmd| {
            let config = redis::AsyncConnectionConfig::new()
                .set_response_timeout(None)
                .set_connection_timeout(None);
            crate::signal::within(LOOK_UP_WITHIN, async move {
                let connection = client.get_multiplexed_async_connection_with_config(&config);
                command.query_async(&mut connection.await?).await
            })
        };
        self.find(ask).await
    }

    /// Asks the Sentinels until one names a server that is a primary. A refusal says more than that a Sentinel is not
    /// reached, and an error of the primary says more than one of a Sentinel.
    async fn find<A>(&self, ask: impl Fn(Client, Cmd) -> A) -> RedisResult<Client>
    where
        A: Future<Output = RedisResult<Value>>,
    {
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        let (mut of_primary, mut untold) = (None, Vec::new());
        for sentinel in &self.sentinels {
            let named = ask(sentinel.clone(), question.clone()).await;
            match named.and_then(|reply| self.named(&reply)) {
                Ok(primary) => match ask(primary.clone(), redis::cmd("ROLE")).await {
                    Ok(role) if is_replica(&role) => of_primary = Some(unknown("a replica")),
                    Err(error) if passes(&error) => of_primary = Some(error),
                    // What it refuses is told where the connection is made.
                    _ => return Ok(primary),
                },
                Err(error) => untold.push((sentinel, error)),
            }
        }
        let is_final = !untold.iter().any(|(_, error)| passes(error));
        let of_sentinel = untold.into_iter().min_by_key(|(_, error)| passes(error));
        Err(match (of_primary, of_sentinel) {
            (None, Some((sentinel, error))) => RedisError::from(io::Error::other(Untold {
                sentinel: sentinel.get_connection_info().addr().to_string(),
                error,
                is_final,
            })),
            (of_primary, _) => of_primary.unwrap_or_else(|| unknown("nobody")),
        })
    }

    /// Returns a client of the server that a Sentinel names.
    fn named(&self, reply: &Value) -> RedisResult<Client> {
        let named: Option<(String, u16)> = read(reply)?;
        let (to, at) = named.ok_or_else(|| unknown("nobody"))?;
        let mut address = self.primary.addr().clone();
        match &mut address {
            ConnectionAddr::TcpTls { host, port, .. } => (*host, *port) = (to, at),
            _ => address = ConnectionAddr::Tcp(to, at),
        }
        *lock(&self.last) = Some(address.to_string());
        Client::open(self.primary.clone().set_addr(address))
    }
}

fn is_replica(role: &Value) -> bool {
    let name = role.as_sequence().and_then(|items| items.first());
    name.is_some_and(|name| read::<String>(name).is_ok_and(|name| name != "master"))
}

fn unknown(named: &str) -> RedisError {
    let kind = ErrorKind::MasterNameNotFoundBySentinel;
    let what = "Sentinel names no primary";
    RedisError::from((kind, what, format!("it names {named}")))
}
