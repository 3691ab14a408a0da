"""The times of the protocol, in seconds, under the names that its table has for all languages."""

from __future__ import annotations

#: For an answer to a command that does not block, a connection included.
ANSWER_WITHIN = 2.0
#: For the answers to a round of renewals, at most; a third of the shortest lease otherwise.
RENEWAL_WITHIN = 5.0
#: A try in all, whatever the server does.
TRY_WITHIN = 2.0
#: For an answer to the withdrawal of a request, without which the place runs out by itself, and to a question for the
#: message of an error; after a try, of whose time they are a part.
WITHDRAW_WITHIN, WITHDRAW_TRY_WITHIN = 1.0, 0.5
#: For an answer of a Sentinel or a node that is asked who has a key; then the next one is asked.
LOOK_UP_WITHIN = 1.0
#: How long a place is kept after its request was last heard of, as long as a server keeps it after a failover. Who is
#: killed in the queue delays the others by as much.
PLACE_KEPT_FOR = 5.0
#: A single BLOCK: with the time for its answer, a connection included, shorter than a place is kept.
BLOCK_AT_MOST = 2.0
#: After this a request without a connection is repeated: three times while its place is kept.
ASK_AGAIN_AFTER = PLACE_KEPT_FOR / 3
#: The pauses between two attempts double from the first to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
#: How long requests are repeated while nothing answers, by default.
RETRY_FOR = 30.0
#: By how much a server that is promoted can prolong a lease (dsync.takeover-grace-ms).
TAKEOVER_GRACE = 5.0
#: A lease by default, and what a tenth of one is at most as margin, and as the time of a confirmation.
LEASE, MARGIN_AT_MOST, CONFIRM_AT_MOST = 30.0, 2.0, 0.5
