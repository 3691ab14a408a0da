//! A subscriber of keyspace notifications, for the tests of events.

use crate::support::steps::*;
use crate::support::*;
use std::time::{Duration, Instant};

/// A connection that subscribes to notifications.
pub struct Listener {
    client: Client,
    /// How many markers were published, see [`Listener::so_far`].
    markers: u64,
}

/// The channel of the markers that [`Listener::so_far`] publishes.
const MARKER: &str = "the-end-of-the-step";

impl Listener {
    /// Subscribes to the channels that match.
    #[track_caller]
    pub fn to(server: &Server, pattern: &str) -> Listener {
        let mut client = server.connect();
        for (command, channel) in [("SUBSCRIBE", MARKER), ("PSUBSCRIBE", pattern)] {
            call!(client, command, channel);
        }
        Listener { client, markers: 0 }
    }

    /// Subscribes to all keyspace notifications in all databases.
    #[track_caller]
    pub fn to_events(server: &Server) -> Listener {
        Listener::to(server, "__key*__:*")
    }

    /// The next message, as (channel, message); `None` if none comes in time.
    #[track_caller]
    pub fn next(&mut self, within: Duration) -> Option<(String, String)> {
        let message = self.client.recv(within)?;
        let text = |reply: &Reply| reply.as_bytes().escape_ascii().to_string();
        match message.as_array() {
            [kind, _, channel, message] if *kind == "pmessage" => {
                Some((text(channel), text(message)))
            }
            [kind, channel, message] if *kind == "message" => Some((text(channel), text(message))),
            _ => panic!("expected a message, received {message:?}"),
        }
    }

    /// Waits for an event `*.free`. Returns whether one came.
    #[track_caller]
    pub fn hears_free(&mut self, within: Duration) -> bool {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.next(left) {
                Some((channel, _)) if channel.ends_with(".free") => return true,
                Some(_) => {}
                None => return false,
            }
        }
    }

    /// The events sent up to this call, as "event key", sorted, because their order is not promised. `publisher` sends
    /// a marker that arrives behind them.
    #[track_caller]
    pub fn so_far(&mut self, publisher: &mut Client) -> Vec<String> {
        self.markers += 1;
        let mark = self.markers.to_string();
        assert!(publisher.ask(format!("PUBLISH {} {mark}", MARKER)).as_int() > 0);
        let mut events = Vec::new();
        loop {
            let (channel, message) = self.next(SOON).expect("the marker comes");
            if channel == MARKER {
                if message == mark {
                    events.sort();
                    return events;
                }
                continue;
            }
            events.push(event(&channel, &message));
        }
    }
}

/// "event key" of a notification on either kind of channel; "event key@db" for a database other than 0.
#[track_caller]
pub fn event(channel: &str, message: &str) -> String {
    let (kind, name) = channel
        .split_once("__:")
        .expect("a channel of notifications");
    let (kind, db) = kind
        .trim_start_matches("__")
        .split_once('@')
        .expect("a database");
    let (event, key) = match kind {
        "keyevent" => (name, message),
        "keyspace" => (message, name),
        _ => panic!("an unknown channel: {channel}"),
    };
    match db {
        "0" => format!("{event} {key}"),
        db => format!("{event} {key}@{db}"),
    }
}

/// A server that sends these classes of notifications.
pub fn notifying(classes: &str) -> Server {
    Server::builder()
        .config("notify-keyspace-events", classes)
        .start()
}
