//! How a wait is ended from outside.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::signal::{Signal, Wait, lock};

/// What is called when waits are to end, for as long as it lives.
pub(crate) type OnCancel = Arc<dyn Fn() + Send + Sync>;

/// A handle with which another thread ends waits: those that run, and all later ones of the builders that have it.
///
/// The waiting call withdraws its request from the queue and returns [`Error::Cancelled`](crate::Error::Cancelled). A
/// clone is the same handle.
#[derive(Clone, Default)]
pub struct Cancel {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Signal,
}

#[derive(Default)]
struct State {
    is_cancelled: bool,
    withdrawals: Vec<Weak<dyn Fn() + Send + Sync>>,
}

impl Cancel {
    /// Makes a handle.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Ends the waits. Returns at once: another thread tells the server, which ends the waiting call. A call that waits for
    /// a group to finish looks here every two seconds.
    pub fn cancel(&self) {
        let withdrawals: Vec<OnCancel> = {
            let mut state = lock(&self.shared.state);
            state.is_cancelled = true;
            state.withdrawals.iter().filter_map(Weak::upgrade).collect()
        };
        self.shared.changed.tell();
        withdrawals.iter().for_each(|withdraw| withdraw());
    }

    /// Whether [`cancel`](Cancel::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        lock(&self.shared.state).is_cancelled
    }

    /// Wait so long, or until the waits are to end.
    pub(crate) async fn wait<W: Wait>(&self, time: Duration) {
        let seen = self.shared.changed.seen();
        if !self.is_cancelled() {
            W::wait(&self.shared.changed, seen, time).await;
        }
    }

    /// Has this called when the waits are to end, as long as the returned value lives.
    pub(crate) fn register(&self, withdraw: impl Fn() + Send + Sync + 'static) -> OnCancel {
        let withdraw: OnCancel = Arc::new(withdraw);
        let mut state = lock(&self.shared.state);
        state.withdrawals.retain(|it| it.strong_count() > 0);
        state.withdrawals.push(Arc::downgrade(&withdraw));
        withdraw
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel")
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}
