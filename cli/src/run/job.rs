//! What the phases of `dsync run` share: the request, the events in one channel, and what errors are for the caller.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use dsync_client::Error;
use nix::sys::signal::Signal;

use super::clock::Moment;
use super::grant::Outcome;
use super::notice::Notice;
use super::request::Request;
use crate::failure::Result;
use crate::servers::Servers;

/// How long a try may take, whatever the server does, and each request that is not repeated.
pub const TRY: Duration = Duration::from_secs(2);

pub enum Event {
    Signal(Signal),
    /// The server answers, and has not granted yet.
    Heard,
    /// The server has answered the request, or could not.
    Answered(Result<Outcome>),
    /// The server has answered the end of the hold.
    Settled(std::result::Result<(), Error>),
}

pub struct Job {
    pub request: Request,
    pub servers: Arc<Servers>,
    pub notice: Arc<Notice>,
    pub busy_status: u8,
    pub sender: Sender<Event>,
    pub events: Receiver<Event>,
}

impl Job {
    /// Takes the next event, or `None` when the time is up.
    pub fn next_event(&self, until: Moment) -> Option<Event> {
        self.events.recv_timeout(until.left()).ok()
    }
}
