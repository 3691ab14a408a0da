//! The order of the fences of two servers after a promotion, and what breaks a promise.

use super::excuse::Excuse;
use super::files::From;
use super::{Server, Setup, World};
use dsync_engine::types::Fence;

/// A server was promoted and an old primary may go on.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Order {
    pub promoted: usize,
    pub old: usize,
    pub since_us: u64,
    /// The lowest fence that the promoted server has given since.
    pub lowest: Option<Fence>,
    /// Why the contract promises this order no more.
    pub excuse: Option<Excuse>,
}

/// A fence that is not where (a) or (b) says.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Breach {
    pub what: &'static str,
    pub excuse: Option<Excuse>,
}

impl Breach {
    /// Returns whether one of these excuses counts for it, or any if `None`.
    pub fn is_excused(&self, excuses: Option<&[Excuse]>) -> bool {
        let counts = |excuse: &Excuse| excuses.is_none_or(|excuses| excuses.contains(excuse));
        self.excuse.as_ref().is_some_and(counts)
    }
}

impl Order {
    /// Notes that a server started.
    pub fn started(&mut self, starting: usize, is_own_of_primary: bool, from: From) {
        let excuse = match from {
            From::Nothing if starting == self.old => Some(Excuse::OldStartedWithout),
            From::Nothing => Some(Excuse::PromotedStartedWithout),
            _ if starting == self.old && !is_own_of_primary => Some(Excuse::OldStartedFromOther),
            _ => None,
        };
        let is_part = starting == self.old || starting == self.promoted;
        self.excuse = excuse.filter(|_| is_part).or(self.excuse);
    }

    pub fn excuse(&self, servers: &[Server]) -> Option<Excuse> {
        let lives = [self.promoted, self.old].map(|server| servers[server].life.excuse);
        self.excuse.or(lives[0]).or(lives[1])
    }
}

impl World {
    /// Checks the fences from the first to the last against those that the promoted server and the old primary gave.
    pub(super) fn check_orders(
        &mut self,
        setup: &Setup,
        giver: usize,
        (first, last): (Fence, Fence),
        breaches: &mut Vec<Breach>,
    ) {
        for order in &mut self.orders {
            let is_over = self.us > order.since_us + setup.order_us;
            let what = if order.promoted == giver {
                order.lowest = Some(order.lowest.map_or(first, |lowest| lowest.min(first)));
                let is_above = first > self.servers[order.old].highest;
                (!is_above).then_some("(b) the promoted server is not above the old primary")
            } else if order.old == giver {
                let is_below = order.lowest.is_none_or(|lowest| last < lowest);
                (!is_below).then_some("(b) the old primary is not below the promoted server")
            } else {
                None
            };
            breaches.extend(what.filter(|_| !is_over).map(|what| Breach {
                what,
                excuse: order.excuse(&self.servers),
            }));
        }
    }
}
