//! One piece of work for one key, that no request asks for.

use crate::change::End;
use crate::queue::place::Standing;
use crate::store::slab::StateId;
use crate::types::{Fence, LeaseUs, MonoUs, QueueId, Rank};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// End a hold whose connection is gone.
    End { fence: Fence, ending: Ending },
    /// End the holds whose leases have run out.
    Lapse(StateId),
    /// Serve a queue that an event outside a request has touched.
    Serve(QueueId),
    /// A wait has run out, or a vacant place.
    RunOut { queue: QueueId, rank: Rank },
    /// A kept place was not asked for in time.
    KeepOver {
        until: LeaseUs,
        queue: QueueId,
        rank: Rank,
    },
    /// Let the queue of a closed key go on.
    Open(StateId),
    /// Forget a group or a work-once key that has been kept long enough.
    Retire(StateId),
}

/// How to end a hold whose connection has closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending {
    pub state: StateId,
    pub how: End,
    /// What the hold's token gets back, and until when it is vacant if it is not kept.
    pub gives_back: Option<(Standing, MonoUs)>,
}
