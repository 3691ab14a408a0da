// A hold: renewed at a third of its lease until it is ended or lost.

'use strict';

const { HoldLost } = require('./errors.js');
const { Lease, Moment } = require('./lease.js');
const { isAnswer, untilAnswered } = require('./retry.js');

/**
 * The server can know the token for so long after its lease: it adds `dsync.takeover-grace-ms`, which is this by default, to
 * the leases after a restart or a failover.
 */
const TAKEOVER_GRACE_MS = 5_000;
const SHORTEST_PAUSE_MS = 50;
const SHORTEST_SLICE_MS = 20;

/** The key has another value now, so the hold has ended, as the answer 0 says it. */
function zeroIfReplaced(error) {
    return isAnswer(error, 'WRONGTYPE') ? 0 : rethrow(error);
}

function rethrow(error) {
    throw error;
}

/** A lock, permits of a semaphore, a membership of a group or a run of work-once. */
class Hold {
    #claim;
    #lease;
    #lost = new AbortController();
    #timer;
    #renewAt;
    #isRenewing = false;
    /** Whether a renewal was asked for because of a jump of the clocks since the last one that was answered. */
    #isJumpSeen = false;
    #failure;
    #state = 'held';

    constructor(claim, fence, sent) {
        this.#claim = claim;
        this.#lease = new Lease(claim.leaseMs, claim.marginMs, sent);
        /** The key, as the caller named it. */
        this.key = claim.key;
        /** The public number of the hold, which only grows. The resource should refuse a smaller one than it has seen. */
        this.fence = fence;
        this.#renewAt = performance.now() - sent.agoMs + claim.leaseMs / 3;
        this.#look();
    }

    /** Aborts with a HoldLost when the hold is lost, and never when it is released. Give it to the work. */
    get signal() {
        return this.#lost.signal;
    }

    /** For how many milliseconds the hold is certain without another renewal; 0 when it was released or lost. */
    get leftMs() {
        return this.#state === 'held' ? Math.max(0, this.#lease.leftMs) : 0;
    }

    /** Whether the hold was neither released nor lost. */
    get isHeld() {
        return this.leftMs > 0;
    }

    /** Throws a HoldLost if the hold is lost. It looks at the clock, so it is right even if timers come late. */
    throwIfLost() {
        if (this.#state === 'held' && this.#lease.leftMs <= 0) {
            this.#loseByClock();
        }
        this.signal.throwIfAborted();
    }

    /** Renews the lease now. Resolves to whether the hold still lived; if not, it is lost. */
    async renew() {
        const sent = new Moment();
        const answer = Number(await this.#claim.send('RENEW', 'PX', this.#lease.leaseMs).catch(zeroIfReplaced));
        if (this.#state !== 'held') {
            return false;
        }
        if (answer !== 1) {
            this.#lose('the server says that it has ended');
            return false;
        }
        this.#lease.renewed(sent);
        this.#failure = undefined;
        this.#renewAt = performance.now() - sent.agoMs + this.#lease.leaseMs / 3;
        this.#isJumpSeen = false;
        this.#look();
        return true;
    }

    /**
     * Ends the hold. Resolves to whether the server ended it now: false if it was released or lost before. When the answer
     * is lost with its connection the request is repeated, for a lease and five seconds; then false can also mean that
     * the first request did it. Rejects when the server has not answered by then.
     */
    release() {
        return this._end(['RELEASE'], zeroIfReplaced);
    }

    /** `await using` releases the hold. It does not fail: a server that cannot be reached ends the hold with its lease. */
    async [Symbol.asyncDispose]() {
        if (this.#state !== 'ended') {
            await this.release().catch(() => {});
        }
    }

    /** Ends the hold with a verb of its family, tried for a lease and the takeover grace. For this package only. */
    async _end(words, onError = rethrow) {
        this.#stop(this.#state === 'lost' ? 'lost' : 'ended');
        const forMs = this.#lease.leaseMs + TAKEOVER_GRACE_MS;
        const send = () => this.#claim.send(...words);
        const reply = await untilAnswered(this.#claim.library, this.key, send, forMs).catch(onError);
        return Number(reply) >= 1;
    }

    /** Whether the caller has ended the hold. For this package only. */
    get _isEnded() {
        return this.#state === 'ended';
    }

    #stop(state) {
        this.#state = state;
        clearTimeout(this.#timer);
    }

    #lose(why, cause) {
        this.#stop('lost');
        const error = new HoldLost(this.key, this.fence, why);
        if (cause !== undefined) {
            error.cause = cause;
        }
        this.#lost.abort(error);
    }

    #loseByClock() {
        this.#lose(`its lease runs out, and ${this.#claim.server} has not renewed it`, this.#failure);
    }

    /** Does what has come due, and sets the timer for what comes next. */
    #look() {
        clearTimeout(this.#timer);
        if (this.#state !== 'held') {
            return;
        }
        const leftMs = this.#lease.leftMs;
        if (leftMs <= 0) {
            this.#loseByClock();
            return;
        }
        if (this.#lease.isBeforeJump && !this.#isJumpSeen) {
            this.#isJumpSeen = true;
            this.#renewAt = performance.now();
        }
        const dueMs = this.#renewAt - performance.now();
        if (dueMs <= 0 && !this.#isRenewing) {
            this.#renewInBackground();
        }
        // While a renewal is on its way nothing else is sent; but the clock goes on, whether the server answers or not.
        // A timer stands still while the machine is suspended: so it looks at the clocks at least once in a margin.
        const sliceMs = Math.min(leftMs, Math.max(this.#lease.marginMs, SHORTEST_SLICE_MS));
        this.#timer = setTimeout(() => this.#look(), Math.ceil(this.#isRenewing ? sliceMs : Math.min(sliceMs, dueMs)));
        // The hold alone does not keep the process alive.
        this.#timer.unref();
    }

    async #renewInBackground() {
        this.#isRenewing = true;
        try {
            await this.renew();
        } catch (error) {
            this.#failure = error;
            const pauseMs = Math.min(this.#lease.leaseMs / 3, Math.max(SHORTEST_PAUSE_MS, this.#lease.leftMs / 4));
            this.#renewAt = performance.now() + pauseMs;
        } finally {
            this.#isRenewing = false;
            this.#look();
        }
    }
}

module.exports = { Hold };
