// A hold, as its user has it.

'use strict';

const { Loss } = require('./loss.js');
const { Renewal } = require('./renewal.js');
const { ANSWER_MS, isAnswer, untilAnswered } = require('./retry.js');
const { bounded } = require('./timing.js');

/**
 * The server can know the token for so long after its lease: it adds `dsync.takeover-grace-ms`, which is this by default, to
 * the leases after a restart or a failover.
 */
const TAKEOVER_GRACE_MS = 5_000;

/** The key has another value now, so the hold has ended, as the answer 0 says it. */
function zeroIfReplaced(error) {
    return isAnswer(error, 'WRONGTYPE') ? { answer: 0, earlier: [] } : rethrow(error);
}

function rethrow(error) {
    throw error;
}

function hasEnded(answer) {
    return Number(answer) >= 1;
}

/** Whether a request that was sent before the one that was answered 0 has done it. Its own answer may be on the way. */
async function anyHasEnded(earlier) {
    const ended = earlier.map(async (sent) => hasEnded(await sent) || Promise.reject(new Error('not by this one')));
    return (await bounded(Promise.any(ended), ANSWER_MS).catch(() => false)) === true;
}

/** A lock, permits of a semaphore, a membership of a group or a run of work-once. */
class Hold {
    #claim;
    #renewal;
    #loss = new Loss(this);

    /** `found` is the outcome of the request, which was sent at the Moment `sent`. */
    constructor(claim, { fence, index }, sent) {
        this.#claim = claim;
        /** The key, as the caller named it. */
        this.key = claim.key;
        /** The public number of the hold, which only grows. The resource should refuse a smaller one than it has seen. */
        this.fence = fence;
        /** The lowest number from 0 that no other hold had at the grant; undefined unless it was asked for. */
        this.index = index;
        this.#renewal = new Renewal(claim, fence, sent, this);
    }

    /** Aborts with a HoldLost when the hold is lost, and never when it is released. Give it to the work. */
    get signal() {
        return this.#loss.signal;
    }

    /** For how many milliseconds the hold is certain without another renewal; 0 when it was released or lost. */
    get leftMs() {
        return this.#renewal.leftMs;
    }

    /** Whether the hold was neither released nor lost. */
    get isHeld() {
        return this.leftMs > 0;
    }

    /** Throws a HoldLost if the hold is lost. It looks at the clock, so it is right even if timers come late. */
    throwIfLost() {
        this.#renewal.loseIfDue();
        this.signal.throwIfAborted();
    }

    /** Renews the lease now. Resolves to whether the hold still lived; if not, it is lost. */
    renew() {
        return this.#renewal.renew();
    }

    /**
     * Ends the hold. Resolves to whether the server ended it now: false if it was released or lost before. When the answer
     * is lost with its connection the request is repeated, for a lease and five seconds; then false can also mean that
     * the first request did it. Rejects when the server has not answered by then.
     */
    async release() {
        const { isEnded } = await this._release();
        return isEnded;
    }

    /** `await using` releases the hold. It does not fail: a server that cannot be reached ends the hold with its lease. */
    async [Symbol.asyncDispose]() {
        if (!this._isEnded) {
            await this.release().catch(() => {});
        }
    }

    /** Releases. Resolves as `_end` does. For this package only. */
    _release() {
        return this._end(['RELEASE'], zeroIfReplaced);
    }

    /**
     * Ends the hold with a verb of its family, tried for a lease and the takeover grace. Resolves to whether the server has
     * ended it, and to whether it was asked only once. For this package only.
     */
    async _end(words, onError = rethrow) {
        this.#renewal.end();
        this.#loss.over();
        const send = () => this.#claim.send(...words);
        const forMs = this.#claim.leaseMs + TAKEOVER_GRACE_MS;
        const { answer, earlier } = await untilAnswered(this.#claim.library, this.key, send, forMs).catch(onError);
        const isEnded = hasEnded(answer) || (earlier.length > 0 && (await anyHasEnded(earlier)));
        return { isEnded, isFirst: earlier.length === 0 };
    }

    /** Whether the caller has ended the hold. For this package only. */
    get _isEnded() {
        return this.#renewal.isEnded;
    }

    /** Calls back with the HoldLost when the hold is lost. For this package only. */
    _onLoss(callback) {
        this.#loss.onLoss(callback);
    }

    /** The hold is lost. For this package only. */
    _lose(error) {
        this.#loss.tell(error);
    }
}

module.exports = { Hold };
