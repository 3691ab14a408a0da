// When a hold counts as lost, by this process' own monotonic clock: the server's word for it cannot be awaited, because none
// comes when the network is cut.

'use strict';

class Lease {
    #sent;

    /** `sent` is when the request that was granted was sent; the server began the lease later than that. */
    constructor(leaseMs, marginMs, sent) {
        this.leaseMs = leaseMs;
        this.marginMs = marginMs;
        this.#sent = sent;
    }

    /** The server has granted or renewed at the request that was sent then. */
    renewed(sent) {
        this.#sent = Math.max(this.#sent, sent);
    }

    /** What is left until the hold counts as lost: a margin before the end of the lease, so that work can stop in time. */
    get leftMs() {
        return this.wholeLeftMs - this.marginMs;
    }

    /** What is left of the lease itself. */
    get wholeLeftMs() {
        return this.#sent + this.leaseMs - performance.now();
    }
}

module.exports = { Lease };
