// When a hold counts as lost, by this process' own clocks: the server's word for it cannot be awaited, because none comes when
// the network is cut. The monotonic clock of Node.js stands still while the machine is suspended, and the wall clock can be
// set; so the one counts on which more time has passed.

'use strict';

/** The clocks differ by more than this only after a suspension, or after somebody has set the wall clock. */
const JUMP_MS = 500;

/** A moment on both clocks. */
class Moment {
    #monotonicMs = performance.now();
    #wallMs = Date.now();

    /** How long ago it was, suspensions included. */
    get agoMs() {
        return Math.max(performance.now() - this.#monotonicMs, Date.now() - this.#wallMs);
    }

    /** Whether the clocks have parted since: the machine was suspended, or the wall clock was set. */
    get isBeforeJump() {
        return Date.now() - this.#wallMs - (performance.now() - this.#monotonicMs) > JUMP_MS;
    }
}

class Lease {
    #sent;

    /** `sent` is the Moment at which the request that was granted was sent; the server began the lease later than that. */
    constructor(leaseMs, marginMs, sent) {
        this.leaseMs = leaseMs;
        this.marginMs = marginMs;
        this.#sent = sent;
    }

    /** The server has granted or renewed at the request that was sent at this Moment. */
    renewed(sent) {
        if (sent.agoMs < this.#sent.agoMs) {
            this.#sent = sent;
        }
    }

    /** What is left until the hold counts as lost: a margin before the end of the lease, so that work can stop in time. */
    get leftMs() {
        return this.wholeLeftMs - this.marginMs;
    }

    /** What is left of the lease itself. */
    get wholeLeftMs() {
        return this.leaseMs - this.#sent.agoMs;
    }

    /** Whether the machine seems to have been suspended since the last renewal was sent. */
    get isBeforeJump() {
        return this.#sent.isBeforeJump;
    }
}

module.exports = { Lease, Moment };
