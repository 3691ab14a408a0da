// The times of the protocol, in milliseconds, under the names that its table has for all languages.

/** For an answer to a command that does not block, a connection included. Then the primary is looked up afresh. */
export const ANSWER_WITHIN_MS = 2_000;
/** A try in all, whatever the server does. */
export const TRY_WITHIN_MS = 2_000;
/** For an answer to the withdrawal of a request, and to a question for the text of an error; after a try. */
export const WITHDRAW_WITHIN_MS = 1_000;
export const WITHDRAW_TRY_WITHIN_MS = 500;
/** For an answer of a Sentinel, or of the client that asks them. */
export const LOOK_UP_WITHIN_MS = 1_000;
/** How long the server keeps a place after its request was last heard of, unless `placeMs` says otherwise. */
export const PLACE_KEPT_FOR_MS = 5_000;
/** A single BLOCK. */
export const BLOCK_AT_MOST_MS = 2_000;
/** A wait without a connection asks again: what it heard from can be at a server that the key has left. */
export const ASK_AGAIN_AFTER_MS = PLACE_KEPT_FOR_MS / 3;
/** The pauses between two attempts double from the first to the longest. */
export const FIRST_PAUSE_MS = 50;
export const LONGEST_PAUSE_MS = 1_000;
/** How long requests are repeated while nothing answers, by default. */
export const RETRY_FOR_MS = 30_000;
/** By how much a server that is promoted can prolong a lease (`dsync.takeover-grace-ms`). */
export const TAKEOVER_GRACE_MS = 5_000;
/** A lease by default, and what a tenth of one is at most as margin, and as the time of a confirmation. */
export const LEASE_MS = 30_000;
export const MARGIN_AT_MOST_MS = 2_000;
export const CONFIRM_AT_MOST_MS = 500;
