//! A cluster client that follows redirections.
//!
//! Deliberately absent: the map of slots that real clients keep. This one asks the last node that answered without a
//! redirection, so that tests see the redirections.

use crate::client::Client;
use crate::reply::{Reply, expect_ok};
use std::time::{Duration, Instant};

/// The deadline for a reply, over all redirections of a request.
const ROUTE_WITHIN: Duration = Duration::from_secs(30);

/// Connections to the nodes of a cluster, and the port of the node to ask first.
pub struct Router {
    at: u16,
    connections: Vec<(u16, Client)>,
}

impl Router {
    /// Begins with the node on this port.
    pub(crate) fn to(port: u16) -> Router {
        Router {
            at: port,
            connections: Vec::new(),
        }
    }

    /// Sends a line, follows MOVED and ASK, repeats after TRYAGAIN, and returns the first other reply.
    #[track_caller]
    pub fn ask(&mut self, line: impl AsRef<str>) -> Reply {
        let line = line.as_ref();
        let deadline = Instant::now() + ROUTE_WITHIN;
        let mut trail = Vec::new();
        let mut asking = None;
        loop {
            let port = asking.unwrap_or(self.at);
            let reply = self.ask_at(port, asking.take().is_some(), line, deadline, &trail);
            let Reply::Error(error) = &reply else {
                return reply;
            };
            match error.split(' ').collect::<Vec<_>>()[..] {
                ["MOVED", _, to] => self.at = port_of(to),
                ["ASK", _, to] => asking = Some(port_of(to)),
                ["TRYAGAIN", ..] => {}
                _ => return reply,
            }
            trail.push(format!("{port}: {error}"));
        }
    }

    /// The port of the node that answered last. An ASK redirection does not change it.
    pub fn at(&self) -> u16 {
        self.at
    }

    #[track_caller]
    fn ask_at(
        &mut self,
        port: u16,
        asking: bool,
        line: &str,
        deadline: Instant,
        trail: &[String],
    ) -> Reply {
        let client = self.connection(port);
        let prefix = if asking { "ASKING\r\n" } else { "" };
        client.send_raw(format!("{prefix}{line}\r\n").as_bytes());
        let mut receive = || {
            let left = deadline.saturating_duration_since(Instant::now());
            client.recv(left).unwrap_or_else(|| {
                let last = trail.iter().rev().take(20).rev().collect::<Vec<_>>();
                panic!("no answer from {port} to {line:?}, after {last:#?}")
            })
        };
        if asking {
            expect_ok(&receive());
        }
        receive()
    }

    fn connection(&mut self, port: u16) -> &mut Client {
        let known = self.connections.iter().position(|(to, _)| *to == port);
        let n = known.unwrap_or_else(|| {
            let client = Client::connect(([127, 0, 0, 1], port).into());
            let client = client.unwrap_or_else(|error| panic!("cannot connect to {port}: {error}"));
            self.connections.push((port, client));
            self.connections.len() - 1
        });
        &mut self.connections[n].1
    }
}

/// The port in `127.0.0.1:port`, as redirections name a node.
#[track_caller]
fn port_of(endpoint: &str) -> u16 {
    let port = endpoint.rsplit_once(':').map(|(_, port)| port.parse());
    match port {
        Some(Ok(port)) => port,
        _ => panic!("sent to {endpoint:?}, which has no port"),
    }
}
