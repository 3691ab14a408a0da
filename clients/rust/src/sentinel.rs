//! How the primary is found that Sentinel names.

use std::sync::Mutex;
#[cfg(not(feature = "tokio"))]
use std::sync::Mutex as ClientMutex;
use std::time::Duration;
#[cfg(not(feature = "tokio"))]
use std::{io, thread, time::Instant};

#[cfg(not(feature = "tokio"))]
use redis::RedisError;
use redis::sentinel::SentinelClient;
use redis::{Client, RedisResult};
#[cfg(feature = "tokio")]
use tokio::sync::Mutex as ClientMutex;

use crate::signal::lock;
#[cfg(feature = "tokio")]
use crate::signal::within;

/// Who is asked, and whom they named last.
pub(crate) struct Found {
    source: Source,
    last: Mutex<Option<String>>,
}

pub(crate) enum Source {
    /// Asking changes the client, which keeps connections: one question at a time.
    One(Box<ClientMutex<SentinelClient>>),
    /// A client for each question, so that one which is never answered keeps nobody else waiting.
    New(Box<dyn Fn() -> RedisResult<SentinelClient> + Send + Sync>),
}

impl Source {
    pub(crate) fn one(client: SentinelClient) -> Source {
        Source::One(Box::new(ClientMutex::new(client)))
    }
}

impl Found {
    pub(crate) fn by(source: Source) -> Found {
        let last = Mutex::default();
        Found { source, last }
    }

    /// The address of the primary that was found last.
    pub(crate) fn last(&self) -> Option<String> {
        lock(&self.last).clone()
    }

    fn note(&self, client: Client) -> Client {
        let address = client.get_connection_info().addr().to_string();
        *lock(&self.last) = Some(address);
        client
    }

    /// Finds the primary, for a thread, as a task does: that can be ended while it waits for a Sentinel.
    #[cfg(feature = "tokio")]
    pub(crate) fn client(&self, limit: Duration) -> RedisResult<Client> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build()?;
        let found = runtime.block_on(within(limit, self.client_for_task()));
        // A look-up of a name, which cannot be ended, is not waited for.
        runtime.shutdown_background();
        found
    }

    /// Finds the primary. The client is waited for so long at most: another thread may have it for ever.
    #[cfg(not(feature = "tokio"))]
    pub(crate) fn client(&self, limit: Duration) -> RedisResult<Client> {
        let client = match &self.source {
            Source::New(make) => make()?.get_client(),
            Source::One(client) => {
                let end = Instant::now() + limit;
                loop {
                    if let Ok(mut client) = client.try_lock() {
                        break client.get_client();
                    }
                    if Instant::now() >= end {
                        return Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)));
                    }
                    thread::sleep(Duration::from_millis(5));
                }
            }
        };
        client.map(|client| self.note(client))
    }

    /// Finds the primary, for a task.
    #[cfg(feature = "tokio")]
    pub(crate) async fn client_for_task(&self) -> RedisResult<Client> {
        let client = match &self.source {
            Source::New(make) => make()?.async_get_client().await,
            Source::One(client) => client.lock().await.async_get_client().await,
        };
        client.map(|client| self.note(client))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::{Arc, mpsc};
    use std::thread;

    use redis::sentinel::SentinelServerType;

    use super::*;

    #[test]
    fn thread_ends_that_waits_for_a_client_which_another_has() {
        // It takes connections, and never answers.
        let sentinel = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("redis://{}", sentinel.local_addr().unwrap());
        let primary = SentinelServerType::Master;
        let client = SentinelClient::build(vec![address], "primary".to_owned(), None, primary);
        let found = Arc::new(Found::by(Source::one(client.unwrap())));
        let (tell, told) = mpsc::channel();
        for _ in 0..2 {
            let (found, tell) = (Arc::clone(&found), tell.clone());
            thread::spawn(move || tell.send(found.client(Duration::from_millis(100)).is_err()));
        }
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(true));
    }
}
