//! All fences that were read. Each names one hold for ever, and they rise over the grants of the whole server, also
//! over its restarts and changes of the primary.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// How many fences are remembered.
const REMEMBERED: usize = 200_000;

#[derive(Default)]
pub struct SeenFences {
    tokens: HashMap<u64, String>,
    /// The fences in the order in which they were read.
    order: VecDeque<u64>,
    /// Each new highest fence, with the moment at which it was read.
    highest: VecDeque<(Instant, u64)>,
}

impl SeenFences {
    /// A grant has been read, whose request was sent at `sent`. `is_fresh` says that its token had never been sent
    /// before, so that this is no repeated reply of an earlier grant.
    #[track_caller]
    pub fn granted(
        &mut self,
        fence: u64,
        token: &str,
        sent: Instant,
        is_fresh: bool,
        now: Instant,
    ) {
        if let Some(before) = self.tokens.get(&fence) {
            assert_eq!(before, token, "fence {fence} was given to two tokens");
            return;
        }
        let earlier = self.highest.partition_point(|(read, _)| *read < sent);
        let before = earlier.checked_sub(1).map(|at| self.highest[at].1);
        assert!(
            !is_fresh || before.is_none_or(|before| fence > before),
            "{token} was granted fence {fence} after {before:?} had been read"
        );
        self.tokens.insert(fence, token.to_owned());
        self.order.push_back(fence);
        if self
            .highest
            .back()
            .is_none_or(|(_, highest)| fence > *highest)
        {
            self.highest.push_back((now, fence));
        }
        if self.order.len() > REMEMBERED {
            let oldest = self.order.pop_front();
            oldest.map(|oldest| self.tokens.remove(&oldest));
            self.highest.pop_front();
        }
    }
}

#[test]
#[should_panic(expected = "after Some(9) had been read")]
fn lower_fence_after_a_higher_one_is_found() {
    let start = Instant::now();
    let at = |ms| start + std::time::Duration::from_millis(ms);
    let mut fences = SeenFences::default();
    fences.granted(9, "a", at(0), true, at(1));
    // This request was sent before the first grant was read, so either may have been granted first.
    fences.granted(7, "b", at(0), true, at(2));
    fences.granted(8, "c", at(2), true, at(3));
}
