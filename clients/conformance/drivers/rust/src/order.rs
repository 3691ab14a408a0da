//! An order of the runner, and its answer: one JSON object a line.

use std::io::Write;
use std::time::Duration;

use dsync_client::redis::{
    Client, ConnectionInfo, IntoConnectionInfo, RedisResult, TlsCertificates,
};
use dsync_client::{Error, Lock, Once, Semaphore, Server};
use serde_json::{Value, json};

#[derive(Clone)]
pub struct Order(Value);

/// What is answered: an error of the client, or of an order that the driver cannot carry out.
pub type Answer = Result<Value, Failure>;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Adds the order's options that all families have.
macro_rules! common {
    ($order:ident, $options:expr) => {{
        let mut options = $options.lease($order.time("lease").expect("a lease"));
        if let Some(owner) = $order.optional("owner") {
            options = options.owner(owner);
        }
        if let Some(time) = $order.time("max_hold") {
            options = options.max_hold(time);
        }
        if let Some(count) = $order.count("replicas") {
            options = options.replicas(count);
        } else if $order.is("replicas", "all") {
            options = options.replicas_all();
        }
        if let Some(time) = $order.time("within") {
            options = options.within(time);
        }
        if $order.is_set("disk") {
            options = options.disk();
        }
        options
    }};
}

pub(crate) use common;

impl Order {
    pub fn read(line: &str) -> Order {
        Order(serde_json::from_str(line).expect("an order is JSON"))
    }

    pub fn what(&self) -> &str {
        self.text("do")
    }

    pub fn name(&self) -> String {
        self.text("as").to_owned()
    }

    pub fn text(&self, field: &str) -> &str {
        self.0[field]
            .as_str()
            .unwrap_or_else(|| panic!("{field} in {}", self.0))
    }

    pub fn optional(&self, field: &str) -> Option<&str> {
        self.0[field].as_str()
    }

    pub fn number(&self, field: &str) -> Option<u64> {
        self.0[field].as_u64()
    }

    pub fn time(&self, field: &str) -> Option<Duration> {
        self.number(field).map(Duration::from_millis)
    }

    pub fn count(&self, field: &str) -> Option<u32> {
        self.number(field)
            .map(|count| u32::try_from(count).expect("a small number"))
    }

    pub fn is(&self, field: &str, text: &str) -> bool {
        self.0[field].as_str() == Some(text)
    }

    pub fn is_set(&self, field: &str) -> bool {
        self.0[field].as_bool() == Some(true)
    }

    /// Whether what tells the loss of a forgotten hold is kept.
    pub fn keeps(&self) -> bool {
        self.0["keep"].is_string()
    }

    /// Adds the order's options of a semaphore.
    pub fn semaphore<C>(&self, mut semaphore: Semaphore<C>) -> Semaphore<C> {
        if let Some(limit) = self.count("limit") {
            semaphore = semaphore.limit(limit);
        }
        if let Some(lane) = self.0["lane"].as_str() {
            semaphore = semaphore.lane(lane);
        }
        if let Some(limit) = self.count("lane_limit") {
            semaphore = semaphore.lane_limit(limit);
        }
        if let Some(time) = self.time("min_hold") {
            semaphore = semaphore.min_hold(time);
        }
        if self.is_set("index") {
            semaphore = semaphore.index();
        }
        semaphore
    }

    /// Adds the order's options of work that is done once.
    pub fn once<C>(&self, mut once: Once<C>) -> Once<C> {
        if let Some(attempts) = self.count("attempts") {
            once = once.max_attempts(attempts);
        }
        if self.is_set("until_done") {
            once = once.until_done();
        }
        once
    }

    /// What the work of `once` comes to the nth time that it is done.
    pub fn work(&self, nth: u64) -> Answer {
        if nth <= self.number("failures").unwrap_or_default() {
            return Err("no disk".into());
        }
        Ok(self.0["value"].clone())
    }

    /// Answers what the work, which was done so many times, has come to.
    pub fn worked(&self, value: Answer, runs: u64) -> Value {
        match value {
            Ok(value) => json!({ "is": "value", "value": value, "runs": runs }),
            Err(error) => json!({ "is": "failed", "text": error.to_string(), "runs": runs }),
        }
    }

    /// Adds the order's options of a lock.
    pub fn lock<C>(&self, lock: Lock<C>) -> Lock<C> {
        match self.time("min_hold") {
            Some(time) => lock.min_hold(time),
            None => lock,
        }
    }

    /// The servers that `connect` names.
    pub fn server(&self) -> dsync_client::Result<Server> {
        let servers = self.places("user", "password")?;
        match self.text("mode") {
            "one" => Server::at(servers[0].clone()),
            "cluster" => Server::cluster(servers),
            _ => {
                let sentinels = self.places("sentinel_user", "sentinel_password")?;
                Server::sentinel(sentinels, "locks", servers[0].clone())
            }
        }
    }

    /// The ports of `connect`, with the user and password of these fields, over TLS if there is an authority to trust.
    fn places(&self, user: &str, password: &str) -> RedisResult<Vec<ConnectionInfo>> {
        let who = match self.optional(password) {
            Some(password) => format!("{}:{password}@", self.text(user)),
            None => String::new(),
        };
        let ca = self.optional("ca").map(std::fs::read).transpose()?;
        let ports = self.0["ports"].as_array().expect("ports");
        let place = |port: &Value| match &ca {
            None => format!("redis://{who}127.0.0.1:{port}").into_connection_info(),
            Some(ca) => {
                let trusted = TlsCertificates {
                    client_tls: None,
                    root_cert: Some(ca.clone()),
                };
                let url = format!("rediss://{who}127.0.0.1:{port}");
                Ok(Client::build_with_tls(url, trusted)?
                    .get_connection_info()
                    .clone())
            }
        };
        ports.iter().map(place).collect()
    }

    /// Says that the driver has nothing of the order's name.
    pub fn unknown(&self) -> String {
        format!("no {:?}", self.text("as"))
    }

    pub fn answer(&self, answer: Answer) {
        let mut said = answer.unwrap_or_else(|error| {
            let text = error.to_string();
            let error = error.downcast_ref();
            let is = match error {
                Some(Error::NotConfirmed { .. }) => "not confirmed",
                Some(Error::NotAcquired { .. }) => "busy",
                Some(Error::HoldLost { .. }) => "lost",
                Some(Error::Cancelled { .. }) => "given up",
                Some(Error::WorkFailed { .. }) => "failed",
                _ => "error",
            };
            match error {
                Some(Error::NotConfirmed { have, wanted, .. }) => {
                    json!({ "is": is, "text": text, "have": have, "wanted": wanted })
                }
                _ => json!({ "is": is, "text": text }),
            }
        });
        said["id"] = self.0["id"].clone();
        let mut out = std::io::stdout().lock();
        writeln!(out, "{said}")
            .and_then(|()| out.flush())
            .expect("somebody reads the answers");
    }
}
