//! Since when, and until when, something may be going on that ends holds.

use std::time::Instant;

/// What may be going on at one key, or with one token.
#[derive(Default)]
pub struct Doubt {
    /// How many requests are on their way.
    open: u32,
    /// When the last of them was over.
    over: Option<Instant>,
    /// A TTL that runs out: when it was set, and when it is over at the latest.
    ttl: Option<(Instant, Instant)>,
}

impl Doubt {
    pub fn open(&mut self) {
        self.open += 1;
    }

    /// One of the requests is over at that moment.
    pub fn close(&mut self, at: Instant) {
        self.open = self.open.saturating_sub(1);
        self.extend(at);
    }

    /// All of them are over.
    pub fn end(&mut self, at: Instant) {
        if self.open > 0 {
            self.open = 0;
            self.extend(at);
        }
    }

    pub fn extend(&mut self, until: Instant) {
        self.over = Some(self.over.map_or(until, |over| over.max(until)));
    }

    /// A TTL was set at that moment.
    pub fn expires(&mut self, set: Instant, until: Instant) {
        let until = self.ttl.map_or(until, |(_, before)| before.max(until));
        self.ttl = Some((set, until));
    }

    pub fn ttl(&self) -> Option<(Instant, Instant)> {
        self.ttl
    }

    /// The value was removed by a request that was sent then, and its TTL with it.
    pub fn forget_ttl(&mut self, sent: Instant) {
        self.ttl = self.ttl.filter(|(set, _)| *set > sent);
    }

    /// Whether anything was going on at that moment or later.
    pub fn covers(&self, since: Instant) -> bool {
        self.covers_besides(0, since)
    }

    /// The same, but for so many requests that are on their way.
    pub fn covers_besides(&self, own: u32, since: Instant) -> bool {
        let ttl = self.ttl.map(|(_, until)| until);
        self.open > own || self.over.max(ttl).is_some_and(|until| until >= since)
    }
}
