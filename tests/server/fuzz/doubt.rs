//! The span of time in which something may be going on that ends holds, or that explains a refusal.

use std::time::Instant;

/// What may be going on with one key, one token or one setting.
#[derive(Default)]
pub struct Doubt {
    /// How many requests that cause the doubt are unanswered.
    open: u32,
    /// Until when the doubt lasts that finished requests have left.
    over: Option<Instant>,
    /// A TTL of the key: when it was set, and until when it has expired at the latest.
    ttl: Option<(Instant, Instant)>,
}

impl Doubt {
    pub fn open(&mut self) {
        self.open += 1;
    }

    /// One of the requests is over; its doubt lasts until this moment.
    pub fn close(&mut self, at: Instant) {
        self.open = self.open.saturating_sub(1);
        self.extend(at);
    }

    /// All of the requests are over; their doubt lasts until this moment.
    pub fn end(&mut self, at: Instant) {
        if self.open > 0 {
            self.open = 0;
            self.extend(at);
        }
    }

    pub fn extend(&mut self, until: Instant) {
        self.over = Some(self.over.map_or(until, |over| over.max(until)));
    }

    /// A TTL was set, which has expired by `until`.
    pub fn expires(&mut self, set: Instant, until: Instant) {
        let until = self.ttl.map_or(until, |(_, before)| before.max(until));
        self.ttl = Some((set, until));
    }

    pub fn ttl(&self) -> Option<(Instant, Instant)> {
        self.ttl
    }

    /// A request that was sent at that moment has removed the value and its TTL.
    pub fn forget_ttl(&mut self, sent: Instant) {
        self.ttl = self.ttl.filter(|(set, _)| *set > sent);
    }

    /// Returns whether the doubt lasted at that moment or later.
    pub fn covers(&self, since: Instant) -> bool {
        self.covers_besides(0, since)
    }

    /// The same, leaving out `own` unanswered requests.
    pub fn covers_besides(&self, own: u32, since: Instant) -> bool {
        let ttl = self.ttl.map(|(_, until)| until);
        self.open > own || self.over.max(ttl).is_some_and(|until| until >= since)
    }
}
