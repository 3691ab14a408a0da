//! PAUSE, for every family: nobody is granted for some time.
//!
//! The pause is part of the key. It ends by a change of its own, which the server that decides makes when the moment has
//! come by the wall clock: see [`Engine::open_due`]. So a pause that has ended does not begin again if the clock is set
//! back, and a replica never ends one by its own clock. Rejected: to compare the moment with the clock at every grant,
//! because nothing would then say when a replica and its primary differ, and when to announce that capacity was gained.
//!
//! A pause holds back grants and nothing else: holds lapse and end as ever, results, FAILED and finished rounds are
//! told, and a hold's own token gets its hold again.

use crate::change::Change;
use crate::types::Now;
use crate::{Body, Engine, Family, Key, WrongType};

impl Engine {
    /// Pauses the key for so long from now, or ends its pause if that is 0. Returns the milliseconds that were left of
    /// the pause before.
    ///
    /// # Errors
    /// When the key is of another family.
    pub fn pause(
        &mut self,
        key: &mut Key<'_>,
        family: Family,
        ms: u64,
        now: Now,
    ) -> Result<u64, WrongType> {
        self.settle_if_absent(key, now);
        let before = self.body(key, family)?.and_then(Body::paused_until);
        let until = (ms > 0).then(|| now.unix().after_ms(ms));
        if until != before {
            let _ = self.decide(key, family, Change::Pause { until });
        }
        self.catch_up(key, now);
        self.settle(key, now);
        Ok(before.map_or(0, |until| until.ms_left(now.unix())))
    }
}
