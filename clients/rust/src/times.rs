//! The times of the protocol, under the names that its table has for all languages.

use std::time::Duration;

/// For an answer to a command that does not block, a connection included.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// For the answers to a round of renewals, at most.
pub(crate) const RENEWAL_WITHIN: Duration = Duration::from_secs(5);
/// A try in all, whatever the server does.
pub(crate) const TRY_WITHIN: Duration = Duration::from_secs(2);
/// For an answer to the withdrawal of a request, without which the place runs out by itself, and to a question for the
/// text of an error; the second after a try, of whose time it is a part.
pub(crate) const WITHDRAW_WITHIN: Duration = Duration::from_secs(1);
pub(crate) const WITHDRAW_TRY_WITHIN: Duration = Duration::from_millis(500);
/// For an answer of a Sentinel that is asked for the primary; then the next one is asked.
pub(crate) const LOOK_UP_WITHIN: Duration = Duration::from_secs(1);
/// How long a place is kept after its request was last heard of, as long as a promoted server keeps it at least. A process
/// that dies in the queue can cost the others so long, when its turn comes.
pub(crate) const PLACE_KEPT_FOR: Duration = Duration::from_secs(5);
/// One BLOCK. A connection that died without a word is noticed after this and the time for an answer, while a server that
/// took over still keeps the place.
pub(crate) const BLOCK_AT_MOST: Duration = Duration::from_secs(2);
/// After this a wait without a connection asks again: that keeps the place, and finds a turn whose message was lost.
pub(crate) const ASK_AGAIN_AFTER: Duration =
    Duration::from_millis(PLACE_KEPT_FOR.as_secs() * 1_000 / 3);
/// The pauses between two attempts double from the first to the longest.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long requests are repeated while nothing answers, unless it is set.
pub(crate) const RETRY_FOR: Duration = Duration::from_secs(30);
/// How long a promoted server lets each hold live at least, whatever was left of its lease (`dsync.takeover-grace-ms`).
pub(crate) const TAKEOVER_GRACE: Duration = Duration::from_secs(5);
/// A lease, unless it is set; and what a tenth of one is at most as margin, and as the time of a confirmation.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const MARGIN_AT_MOST: Duration = Duration::from_secs(2);
pub(crate) const CONFIRM_AT_MOST: Duration = Duration::from_millis(500);
