//! What one server knows alone of a state, and neither replicates nor saves: the lease clock, connections, and its own
//! indexes.

use super::body::{Body, Value};
use super::families::policy::Retention;
use crate::hold::Hold;
use crate::types::{ClientId, Fence, InUse, Moments, Turn, UnixMs};

impl Body {
    fn retention_mut(&mut self) -> Option<&mut Retention> {
        match self.value_mut() {
            Value::Group(group) => Some(&mut group.retention),
            Value::Once(once) => Some(&mut once.retention),
            Value::Lock(_) | Value::Semaphore(_) => None,
        }
    }

    /// Sets the moments of a hold on this server's lease clock. Returns whether there is such a hold.
    #[inline(always)]
    pub fn set_moments(&mut self, fence: Fence, moments: Moments) -> bool {
        let holds = self.holds_mut();
        holds.is_ok_and(|holds| holds.set_moments(fence, moments))
    }

    /// Sets the moments of each hold, much faster than one by one. For a state that was loaded just now.
    pub fn set_all_moments(&mut self, moments: impl FnMut(&Hold) -> Moments) {
        if let Ok(holds) = self.holds_mut() {
            holds.set_all_moments(moments);
        }
    }

    /// Sets the turn of a lane of a semaphore. Returns what it has in use, with this turn.
    pub fn set_turn(&mut self, lane: &[u8], turn: Turn) -> InUse {
        let holds = self.holds_mut();
        holds.map_or(InUse::default(), |holds| holds.set_turn(lane, turn))
    }

    /// Notes the connection that the hold was given to, and whether it ends with that connection. Returns the
    /// connection with which it would have ended before.
    #[inline(always)]
    pub fn bind(&mut self, fence: Fence, client: ClientId, ephemeral: bool) -> Option<ClientId> {
        let bind = |hold: &mut Hold| hold.bind(client, ephemeral);
        self.holds_mut().ok()?.change(fence, bind).ok()?
    }

    /// Notes that a request waits for the key, which keeps it longer.
    pub fn watched(&mut self, at: UnixMs) {
        if let Some(retention) = self.retention_mut() {
            retention.watched(at);
        }
    }

    /// Notes the moment under which the key is in the `retention` index. Returns the one before. Does nothing for
    /// families that keep nothing.
    pub fn note_retention(&mut self, until: Option<UnixMs>) -> Option<UnixMs> {
        std::mem::replace(&mut self.retention_mut()?.noted, until)
    }
}
