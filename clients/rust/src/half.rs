//! What threads and tasks do each in their own way. All else that this crate does is said once, for both.
//!
//! The steps of a request and of a hold are async functions over [`Half`]. Those of the asynchronous half wait as tasks do.
//! Those of the synchronous half block their thread and are never pending, so [`now`](crate::signal::now) runs them without
//! an executor.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::call::Call;
use crate::cancel::Cancel;
use crate::clock::Moment;
use crate::confirm::{Failure, Line};
use crate::effort::Effort;
use crate::error::Result;
use crate::lease::Lease;
use crate::request::{Command, Grant, Request};
use crate::server::Server;
use crate::signal::Wait;

/// A client, as the half of threads or of tasks. Not for other crates.
pub trait Half: Wait + Clone + Send + Sync + 'static {
    /// A channel that is listened to.
    type Listening: Default + Send;
    /// A connection on which commands were answered.
    type Line: Line + Send;

    fn effort(&self) -> Effort;
    fn server(&self) -> &Server;

    /// Renews a hold for as long as it lives. Without a thread it lasts for one lease, and is then told as lost.
    fn renew(&self, hold: &Arc<Shared<Self>>);

    /// Has the one who renews look again, because something is due earlier.
    fn renew_earlier(&self);

    /// Whether waits have no connection, and are told of their turn by messages.
    fn listens(&self) -> bool {
        false
    }

    /// Sends commands in one write, once: and anew where an idle connection turns out to be closed. The outer error says
    /// that none has an answer.
    fn attempt(
        &self,
        call: &Call<'_>,
    ) -> impl Future<Output = std::result::Result<Reply<Self::Line>, Failure>> + Send;

    /// Wait for a message on a channel, so long at most; only for a half that listens. Returns at once after it began to
    /// listen, because the turn may have come before.
    fn turn(
        &self,
        _listening: &mut Self::Listening,
        _channel: &str,
        _pause: Duration,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Has something done that nobody waits for.
    fn in_background(&self, what: impl Future<Output = ()> + Send + 'static);

    /// Does something that goes on when its caller's future is dropped. `cancel` is told of that.
    fn to_the_end<T: Send + 'static>(
        &self,
        cancel: Option<&Cancel>,
        what: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send;

    /// Sends the command that ends a dropped hold, by one attempt of who drops it. Returns whether it was answered.
    fn conclude(&self, _: &Command) -> bool {
        false
    }

    /// Sends, by one attempt of who calls it, the command that ends a hold and that a task was to send whose runtime has
    /// ended.
    fn conclude_without_runtime(&self, _: &Command) {}
}

/// What a hold shares with those who renew and watch it.
pub struct Shared<H> {
    pub(crate) half: H,
    pub(crate) request: Request,
    pub(crate) lease: Lease,
    pub(crate) grant: Grant,
}

/// The replies to an attempt, one for each command.
pub struct Reply<L> {
    pub(crate) sent: Moment,
    pub(crate) values: Vec<std::result::Result<Value, Failure>>,
    /// Whether an earlier attempt, on a connection that turned out to be closed, may have been carried out.
    pub(crate) is_second: bool,
    /// The connection, for a call that keeps it; `None` in a cluster, whose connections are not known one by one.
    pub(crate) line: Option<L>,
}
